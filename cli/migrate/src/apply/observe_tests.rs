use super::super::fixture::plan;
use super::*;
use serde_json::json;

fn extension(change: impl Fn(&mut Value)) -> Value {
    let mut extension = plan().extension;
    extension["metadata"]["generation"] = json!(1);
    extension["metadata"]["uid"] = json!("u");
    let condition = |type_: &str| json!({"type": type_, "status": "True", "reason": "Succeeded", "message": "", "observedGeneration": 1});
    extension["status"] = json!({"conditions": [condition("Installed"), condition("Progressing")],
        "install": {"bundle": {"version": "1.0.0"}}});
    change(&mut extension);
    extension
}

#[test]
fn state_of_extension_follows_its_conditions() {
    let state = |change: &dyn Fn(&mut Value)| {
        let found = extension(change);
        let recorded = Some("u").filter(|_| found["metadata"]["annotations"].get("note").is_some());
        extension_state(&plan(), recorded, Some(&found), &Live::new())
    };
    assert_eq!(extension_state(&plan(), None, None, &Live::new()), ExtensionState::Absent);
    assert_eq!(state(&|_| ()), ExtensionState::Pinned);
    let other = |extension: &mut Value| extension["spec"]["source"]["catalog"]["packageName"] = json!("pipe");
    assert_eq!(state(&other), ExtensionState::Foreign);
    let old = |extension: &mut Value| extension["metadata"]["generation"] = json!(2);
    assert_eq!(state(&old), ExtensionState::Installing("Succeeded: ".to_owned()));
    let open = |extension: &mut Value| {
        extension["spec"] = plan().opened["spec"].clone();
        extension["metadata"]["annotations"] = json!({"note": "a"});
    };
    assert_eq!(state(&open), ExtensionState::Opened);
    let blocked = |extension: &mut Value| {
        extension["status"]["conditions"][1]["reason"] = json!("Blocked");
        extension["status"]["conditions"][1]["message"] = json!("other objects");
    };
    let expected =
        ExtensionState::Blocked { digest: "sha256:00".to_owned(), message: "other objects".to_owned() };
    assert_eq!(state(&blocked), expected);
}

#[test]
fn extension_paused_by_rollback_is_pinned_until_it_owns_all_adopted_objects() {
    let mut opened = extension(|extension| {
        extension["spec"] = plan().opened["spec"].clone();
        extension["metadata"]["annotations"] = json!({(annotations::EXT_PAUSED): "true", "note": "a"});
    });
    let deployment = plan().adopted[0].clone();
    let live =
        |owners: Value| Live::from([(deployment.clone(), json!({"metadata": {"ownerReferences": owners}}))]);
    let (released, adopted) = (live(json!([])), live(json!([{"uid": "r", "controller": true}])));
    let state = |found: &Value, live: &Live| extension_state(&plan(), Some("u"), Some(found), live);
    assert_eq!(state(&opened, &released), ExtensionState::Paused(ObjectId::of(&opened)));
    let patch = resuming(&plan());
    let expected = json!({"metadata": {"annotations": {(annotations::EXT_PAUSED): null,
            (annotations::EXT_UNINSTALL_POLICY): null}},
        "spec": {"source": {"catalog": {"version": "1.0.0", "channels": null}}}});
    assert_eq!(patch, expected);
    let pinned = extension(|extension| extension["metadata"]["annotations"] = json!({"note": "a"}));
    let waits = ExtensionState::Installing("Deployment ns/lamp is not adopted yet".to_owned());
    assert_eq!(state(&pinned, &released), waits);
    assert_eq!(state(&pinned, &adopted), ExtensionState::Pinned);
    let mut without_channels = pinned.clone();
    without_channels["spec"]["source"]["catalog"]["channels"] = json!([]);
    assert_eq!(state(&without_channels, &adopted), ExtensionState::Pinned);
    let mut deleting = pinned.clone();
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert!(matches!(state(&deleting, &adopted), ExtensionState::Installing(_)));
    // An administrator paused a later version.
    opened["status"]["install"]["bundle"]["version"] = json!("1.1.0");
    assert_eq!(state(&opened, &released), ExtensionState::Opened);
}

#[test]
fn extension_that_keeps_its_pin_is_open_once_it_owns_all_adopted_objects() {
    let mut plan = plan();
    plan.keep_pinned();
    let live = |owners: Value| {
        Live::from([(plan.adopted[0].clone(), json!({"metadata": {"ownerReferences": owners}}))])
    };
    let (released, adopted) = (live(json!([])), live(json!([{"uid": "r", "controller": true}])));
    let state = |found: &Value, live: &Live| extension_state(&plan, Some("u"), Some(found), live);
    let without_digest = |extension: &mut Value| extension["metadata"]["annotations"] = json!({"note": "a"});
    let waits = ExtensionState::Installing("Deployment ns/lamp is not adopted yet".to_owned());
    assert_eq!(state(&extension(without_digest), &released), waits);
    assert_eq!(state(&extension(without_digest), &adopted), ExtensionState::Opened);
    assert_eq!(state(&extension(|_| ()), &adopted), ExtensionState::Pinned);
    let old = extension(|extension| {
        without_digest(extension);
        extension["metadata"]["generation"] = json!(2);
    });
    assert_eq!(state(&old, &adopted), ExtensionState::Installing("Succeeded: ".to_owned()));
    // An administrator has upgraded it.
    let upgraded = extension(|extension| {
        without_digest(extension);
        extension["spec"]["source"]["catalog"]["version"] = json!("1.1.0");
        extension["status"]["install"]["bundle"]["version"] = json!("1.1.0");
    });
    assert_eq!(state(&upgraded, &released), ExtensionState::Opened);
}

#[test]
fn backup_has_no_tokens_of_service_accounts() {
    let secret = |type_: &str| {
        let metadata = json!({"name": "a", "managedFields": [{"manager": "b"}]});
        let mut secret =
            json!({"kind": "Secret", "type": type_, "metadata": metadata, "data": {"token": "eA=="}});
        without_unneeded(&mut secret);
        secret
    };
    let expected =
        json!({"kind": "Secret", "type": "kubernetes.io/service-account-token", "metadata": {"name": "a"}});
    assert_eq!(secret("kubernetes.io/service-account-token"), expected);
    assert_eq!(secret("Opaque")["data"], json!({"token": "eA=="}));
}

#[test]
fn leftovers_are_recognized_by_uid_or_as_recreated_by_rollback() {
    let removed = plan().removed[0].object.clone();
    let role = |uid: &str, verb: &str| {
        json!({"apiVersion": removed.api_version, "kind": removed.kind,
            "metadata": {"name": removed.name, "uid": uid}, "rules": [{"verbs": [verb]}]})
    };
    let saved = role(&removed.uid, "get");
    let backup = Backup { plan: plan(), objects: vec![saved.clone()], pods: Vec::new() };
    let found = |live: Value| leftovers(&plan(), Some(&backup), &Live::from([(removed.clone(), live)]));
    assert_eq!(found(saved), std::slice::from_ref(&removed));
    assert_eq!(found(role("new", "get")), [ObjectId { uid: "new".to_owned(), ..removed.clone() }]);
    assert_eq!(found(role("new", "list")), []);
}

#[test]
fn recreated_extension_is_foreign() {
    let found = |annotations: Value| {
        extension(|extension| extension["metadata"]["annotations"] = annotations.clone())
    };
    let state = |recorded, found: &Value| extension_state(&plan(), recorded, Some(found), &Live::new());
    let (adopting, opened) =
        (found(json!({(annotations::EXT_ADOPT): "sha256:00"})), found(json!({"note": "a"})));
    assert_eq!(state(None, &adopting), ExtensionState::Pinned);
    assert_eq!(state(None, &opened), ExtensionState::Foreign);
    assert_eq!(state(Some("u"), &adopting), ExtensionState::Pinned);
    assert_ne!(state(Some("u"), &opened), ExtensionState::Foreign);
    assert_eq!(state(Some("former"), &opened), ExtensionState::Foreign);
}

#[test]
fn upgrades_by_classic_are_found() {
    let object =
        |kind: &str, name: &str| json!({"kind": kind, "metadata": {"namespace": "ns", "name": name}});
    let subscription = |installed: &str, current: &str| {
        let mut found = object("Subscription", "lamp");
        found["status"] = json!({"installedCSV": installed, "currentCSV": current});
        found
    };
    let mut csv = object("ClusterServiceVersion", "lamp.v1.0.0");
    csv["status"] = json!({"phase": "Succeeded"});
    let mut next = object("ClusterServiceVersion", "lamp.v2.0.0");
    next["spec"] = json!({"replaces": "lamp.v1.0.0"});
    let mut failed = csv.clone();
    failed["status"]["phase"] = json!("Failed");
    let mut held = csv.clone();
    held["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let (old, new) = ("lamp.v1.0.0", "lamp.v2.0.0");
    let both = [csv.clone(), next.clone()];
    let phase = "ClusterServiceVersion ns/lamp.v1.0.0: phase";
    let waiting = json!({"kind": "InstallPlan", "metadata": {"namespace": "ns", "name": "install-2"},
        "spec": {"approved": false, "clusterServiceVersionNames": [new]}, "status": {"phase": "RequiresApproval"}});
    let found = upgrade(&plan(), (Some(&subscription(old, new)), &[]), Some(&csv), (&both[..1], &[&waiting]));
    assert_eq!(found, None);
    let mut returning = subscription("", "");
    returning["metadata"]["uid"] = json!("new");
    returning["spec"] = json!({"source": PAUSED});
    let known = ["old".to_owned()];
    assert_eq!(upgrade(&plan(), (Some(&returning), &known), None, (&[], &[])), None);
    let mut paused = subscription(old, old);
    paused["metadata"]["uid"] = json!("old");
    paused["spec"] = json!({"source": PAUSED});
    assert_eq!(upgrade(&plan(), (Some(&paused), &known), None, (&[], &[])), None);
    returning["spec"] = json!({"source": "hub"});
    assert!(upgrade(&plan(), (Some(&returning), &known), None, (&[], &[])).is_some());
    for (subscription, csv, csvs, expected) in [
        (Some(subscription(old, old)), Some(&csv), &both[..1], None),
        (None, None, &both[..1], None),
        (Some(subscription(old, old)), Some(&held), &both[..1], None),
        (
            Some(subscription(old, new)),
            Some(&csv),
            &both[..1],
            Some(
                "Subscription ns/lamp: status.currentCSV is \"lamp.v2.0.0\", expected lamp.v1.0.0".to_owned(),
            ),
        ),
        (None, None, &both[..], Some("ClusterServiceVersion ns/lamp.v2.0.0 replaces lamp.v1.0.0".to_owned())),
        (Some(subscription(old, old)), None, &[], Some(format!("{phase} missing, expected Succeeded"))),
        (
            Some(subscription(old, old)),
            Some(&failed),
            &[],
            Some(format!("{phase} Failed, expected Succeeded")),
        ),
    ] {
        assert_eq!(upgrade(&plan(), (subscription.as_ref(), &[]), csv, (csvs, &[])), expected);
    }
}

#[test]
fn other_version_of_the_package_is_an_upgrade() {
    let csv = |name: &str, metadata: Value| {
        let mut csv = json!({"kind": "ClusterServiceVersion", "metadata": metadata, "spec": {"replaces": "lamp.v1.5.0"}});
        csv["metadata"]["namespace"] = json!("ns");
        csv["metadata"]["name"] = json!(name);
        csv
    };
    let property = |package: &str| {
        let properties = json!({"properties": [{"type": "olm.package", "value": {"packageName": package}}]});
        json!({"annotations": {"operatorframework.io/properties": properties.to_string()}})
    };
    let labeled = |key: &str| json!({"labels": {key: ""}});
    let mut copy = property("lamp");
    copy["labels"] = json!({"olm.copiedFrom": "other"});
    let (installed, next) = ("lamp.v1.0.0", "lamp.v2.0.0");
    for (other, is_upgrade) in [
        (csv(next, property("lamp")), true),
        (csv(next, labeled("operators.coreos.com/lamp.ns")), true),
        (csv(installed, property("lamp")), false),
        (csv(next, property("pipe")), false),
        (csv(next, labeled("operators.coreos.com/pipe.ns")), false),
        (csv(next, json!({})), false),
        (csv(next, copy), false),
    ] {
        let why = "ClusterServiceVersion ns/lamp.v2.0.0 is another version of lamp".to_owned();
        let found = upgrade(&plan(), (None, &[]), None, (std::slice::from_ref(&other), &[]));
        assert_eq!(found, Some(why).filter(|_| is_upgrade), "{other}");
    }
}

#[test]
fn csv_is_held_once_the_garbage_collector_removed_its_owner_references() {
    let csv = |finalizers: Value| json!({"metadata": {"deletionTimestamp": "now", "finalizers": finalizers}});
    for (finalizers, expected) in [
        (json!([FINALIZER]), true),
        (json!([FINALIZER, "example.com/other"]), true),
        (json!([FINALIZER, "orphan"]), false),
        (json!([FINALIZER, CLEANUP]), false),
        (json!(["example.com/other"]), false),
    ] {
        assert_eq!(classic_object(&csv(finalizers.clone())).is_held, expected, "{finalizers}");
    }
    // Classic OLM may not run.
    let found = classic_object(&csv(json!([FINALIZER, "orphan", CLEANUP, "example.com/other"])));
    assert_eq!(found.finalizers, [CLEANUP, "example.com/other"]);
}

#[test]
fn created_object_that_exists_is_reported_before_the_backup() {
    use super::super::fixture::id;
    let mut plan = plan();
    let created = ObjectId { uid: String::new(), ..id("v1", "Service", "ns", "lamp") };
    plan.adopted.clear();
    plan.created = vec![created.clone()];
    let live = Live::from([(created.clone(), json!({}))]);
    assert_eq!(lost(&plan, None, &live, &ExtensionState::Absent, false), [created]);
    assert_eq!(lost(&plan, None, &Live::new(), &ExtensionState::Absent, false), []);
}

#[test]
fn operator_condition_is_detached_last() {
    use super::super::fixture::id;
    let mut plan = plan();
    for object in [
        id("operators.coreos.com/v2", "OperatorCondition", "ns", "lamp.v1.0.0"),
        id("operators.coreos.com/v1", "OperatorGroup", "ns", "group"),
    ] {
        plan.left.push(crate::plan::model::Reasoned { object, reason: String::new() });
    }
    let kinds: Vec<&str> = detachable(&plan).iter().map(|id| id.kind.as_str()).collect();
    assert_eq!(kinds, ["ClusterRole", "Deployment", "ServiceAccount", "OperatorCondition"]);
}

#[test]
fn conversion_that_classic_reset_is_restored() {
    use super::super::fixture::id;
    let mut plan = plan();
    let crd = id("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "lamps.example.com");
    plan.adopted = vec![crd.clone()];
    let object = |strategy: &str| {
        json!({"kind": "CustomResourceDefinition", "metadata": {"name": "lamps.example.com", "uid": crd.uid},
            "spec": {"conversion": {"strategy": strategy}}})
    };
    let backup = Backup { plan: plan.clone(), objects: vec![object("Webhook")], pods: Vec::new() };
    let lost = |live: &[(ObjectId, Value)], extension| {
        lost(&plan, Some(&backup), &live.iter().cloned().collect(), &extension, false)
    };
    let reset = [(crd.clone(), object("None"))];
    let all = std::slice::from_ref(&crd);
    assert_eq!(lost(&reset, ExtensionState::Absent), all);
    assert_eq!(lost(&[(crd.clone(), object("Webhook"))], ExtensionState::Absent), []);
    assert_eq!(lost(&[], ExtensionState::Absent), all);
    assert_eq!(lost(&reset, ExtensionState::Pinned), []);
}

#[test]
fn nothing_is_restored_once_the_extension_was_opened() {
    use super::super::fixture::id;
    let mut plan = plan();
    let secret = id("v1", "Secret", "ns", "lamp-token");
    plan.left = vec![crate::plan::model::Reasoned { object: secret.clone(), reason: String::new() }];
    let saved = json!({"kind": "Secret", "metadata": {"namespace": "ns", "name": "lamp-token"}});
    let backup = Backup { plan: plan.clone(), objects: vec![saved], pods: Vec::new() };
    let lost = |is_recorded| {
        let extension = ExtensionState::Installing(String::new());
        lost(&plan, Some(&backup), &Live::new(), &extension, is_recorded)
    };
    assert_eq!(lost(false), [secret]);
    assert_eq!(lost(true), []);
}
