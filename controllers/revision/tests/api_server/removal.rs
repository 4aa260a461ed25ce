//! Archived and deleted revisions.

use std::time::Duration;

use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use olm_api::ClusterExtension;
use olm_servers::{Call, Fault, Proxy, Rule};
use serde_json::{Value, json};

use super::fixture::{Fixture, PACE, config_map, crd, custom_resource, eventually, phase, start, unmodified};

// Cases apply-10, apply-34, apply-35, api-45, api-46
pub(super) async fn archived_revision_deletes_objects_that_successor_does_not_list(fixture: &Fixture) {
    let ns = "leaving";
    fixture.namespace(ns).await;
    let [both, dropped] = ["both", "dropped"].map(|name| config_map(ns, name, json!({})));
    let first = fixture.revision(ns, 1, json!([phase("a", &[&both, &dropped])]), unmodified).await;
    fixture.until_succeeded(&first).await;
    let second = fixture.revision(ns, 2, json!([phase("a", &[&both])]), unmodified).await;
    fixture.until_succeeded(&second).await;
    fixture.until_condition(&first, "Progressing", "False/Archived revision is archived").await;
    let condition = async |type_: &str| fixture.condition(&first, type_).await.unwrap();
    assert_eq!(condition("Available").await, "Unknown/Archived revision is archived");
    assert_eq!(condition("Succeeded").await, "True/Succeeded Revision succeeded rolling out.");
    let works = "True/ProbesSucceeded Objects are available and pass all probes.";
    assert_eq!(fixture.condition(&second, "Ready").await.unwrap(), works);
    assert_eq!(fixture.condition(&first, "Ready").await, None);
    fixture.until_object_deleted(&dropped).await;
    let live = fixture.get(&both).await.unwrap();
    assert_eq!(live["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    eventually("our finalizer is removed", async || {
        let set = fixture.sets().get(&first).await.unwrap();
        set.metadata.finalizers.is_none_or(|finalizers| finalizers.is_empty()).then_some(())
    })
    .await;
    let back = kube::api::Patch::Merge(json!({"spec": {"lifecycleState": "Active"}}));
    let refused = fixture.sets().patch(&first, &Default::default(), &back).await.unwrap_err().to_string();
    assert!(refused.contains("cannot un-archive"), "{refused}");
    fixture.delete_revision(&second).await;
    fixture.until_deleted(&second).await;
    fixture.until_object_deleted(&both).await;
}

// docs/design/apply.md#objects-handed-over: an upgrade that drops a CRD deletes no custom resource.
pub(super) async fn archived_revision_retains_crd_in_use(fixture: &Fixture) {
    let ns = "spared";
    fixture.namespace(ns).await;
    let (crd, map) = (crd("spareds", "Spared"), config_map(ns, "a", json!({})));
    let first =
        fixture.revision(ns, 1, json!([phase("crds", &[&crd]), phase("b", &[&map])]), unmodified).await;
    fixture.until_succeeded(&first).await;
    let [one, two] = ["one", "two"].map(|name| custom_resource("Spared", ns, name));
    fixture.create(&one).await;
    fixture.create(&two).await;
    let second =
        fixture.revision(ns, 2, json!([phase("c", &[&config_map(ns, "c", json!({}))])]), unmodified).await;
    fixture.until_succeeded(&second).await;
    assert_eq!(
        fixture.until_condition(&first, "Progressing", "False/").await,
        "False/Blocked cannot delete CustomResourceDefinition spareds.acme.example: 2 custom resources exist \
         (first: acme.example/v1, Kind=Spared spared/one)"
    );
    fixture.until_object_deleted(&map).await;
    // Nor does deleting the archived revision.
    fixture.delete_revision(&first).await;
    fixture.delete(&one).await;
    fixture
        .until_condition(
            &first,
            "Progressing",
            "False/Blocked cannot delete CustomResourceDefinition spareds.acme.example: 1 ",
        )
        .await;
    assert!(fixture.get(&crd).await.is_some());
    fixture.delete(&two).await;
    fixture.until_deleted(&first).await;
    fixture.until_object_deleted(&crd).await;
}

// Case additions-a50
pub(super) async fn uninstall_policy_keep_crds_retains_crds(fixture: &Fixture) {
    let ns = "kept";
    fixture.namespace(ns).await;
    let (kept, map) = (crd("kepts", "Kept"), config_map(ns, "a", json!({})));
    let keep = |set: &mut serde_json::Value| {
        set["metadata"]["annotations"]["ext.olm.operatorframework.io/uninstall-policy"] = json!("KeepCRDs");
    };
    let name = fixture.revision(ns, 1, json!([phase("crds", &[&kept]), phase("b", &[&map])]), keep).await;
    fixture.until_succeeded(&name).await;
    let resource = custom_resource("Kept", ns, "one");
    fixture.create(&resource).await;
    fixture.delete_revision(&name).await;
    fixture.until_deleted(&name).await;
    assert!(fixture.get(&resource).await.is_some() && fixture.get(&map).await.is_none());
    let live = fixture.get(&kept).await.unwrap();
    assert_eq!(live["metadata"]["ownerReferences"], json!(null));
    assert_eq!(live["metadata"]["labels"], json!(null));
    // The recreated extension adopts the CRD.
    let again = fixture.revision(ns, 1, json!([phase("crds", &[&kept])]), unmodified).await;
    fixture.until_succeeded(&again).await;
    let live = fixture.get(&kept).await.unwrap();
    assert_eq!(live["metadata"]["ownerReferences"][0]["name"], again);
    assert_eq!(live["metadata"]["annotations"].get("ext.olm.operatorframework.io/kept-for"), None);
    assert!(fixture.get(&resource).await.is_some());

    // Also if the content is lost, together with the label by which its objects are found.
    let ns = "lost";
    fixture.namespace(ns).await;
    let (lost, map) = (crd("losts", "Lost"), config_map(ns, "a", json!({})));
    let name = fixture.revision(ns, 1, stored(fixture, ns, &[&lost, &map]).await, keep).await;
    fixture.until_succeeded(&name).await;
    fixture.delete(&secret(ns)).await;
    fixture.edit(&lost, json!({"metadata": {"labels": null}})).await;
    fixture.delete_revision(&name).await;
    fixture.until_deleted(&name).await;
    assert_eq!(fixture.get(&lost).await.unwrap()["metadata"]["ownerReferences"], json!(null));
    assert_eq!(fixture.get(&map).await, None);
}

pub(super) fn secret(namespace: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "content", "namespace": namespace}})
}

/// Returns one phase of objects that are stored in the Secret `content`.
pub(super) async fn stored(fixture: &Fixture, namespace: &str, objects: &[&Value]) -> Value {
    let key = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    let keys: Vec<String> = objects.iter().map(|object| key(object)).collect();
    let texts = objects.iter().map(|object| object.to_string().into_bytes());
    let data: Vec<(&str, Vec<u8>)> = keys.iter().map(String::as_str).zip(texts).collect();
    fixture.secret(namespace, "content", true, &data).await;
    let refers = |key: &String| json!({"ref": {"name": "content", "namespace": namespace, "key": key}});
    json!([{"name": "stored", "objects": keys.iter().map(refers).collect::<Vec<_>>()}])
}

// Its successors would collide forever with the objects that it controls.
pub(super) async fn archived_revision_without_content_releases_objects(fixture: &Fixture) {
    let ns = "forgetful";
    fixture.namespace(ns).await;
    let [both, dropped, held] = ["both", "dropped", "held"].map(|name| config_map(ns, name, json!({})));
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "forgetful"}, "rules": []});
    let first =
        fixture.revision(ns, 1, stored(fixture, ns, &[&both, &dropped, &role]).await, unmodified).await;
    fixture.until_succeeded(&first).await;
    let second = fixture
        .revision(ns, 2, json!([phase("a", &[&held]), phase("b", &[&both])]), |set| {
            let selector = json!({"type": "Label", "label": {"matchLabels": {"holds": "yes"}}});
            set["spec"]["phases"][0]["objects"][0]["object"]["metadata"]["labels"] = json!({"holds": "yes"});
            set["spec"]["progressionProbes"] = json!([{"selector": selector,
                "assertions": [{"type": "FieldValue", "fieldValue": {"fieldPath": "data.ready", "value": "yes"}}]}]);
        })
        .await;
    fixture.until_condition(&second, "Available", "False/ProbeFailure ").await;
    // The new Secret has other content than the applied one.
    let other = held.to_string().into_bytes();
    let data = ["both", "dropped", "forgetful"].map(|key| (key, other.clone()));
    fixture.secret(ns, "content", true, &data).await;
    fixture.patch(&first, json!({"spec": {"lifecycleState": "Archived"}})).await;
    fixture.until_condition(&first, "Progressing", "False/Archived revision is archived").await;
    assert_eq!((fixture.get(&dropped).await, fixture.get(&role).await), (None, None));
    let controller = async |object: &Value| {
        let live = fixture.get(object).await.unwrap();
        let owners = live["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        owners.iter().map(|owner| owner["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(controller(&both).await, [second.as_str()]);
    fixture.edit(&held, json!({"data": {"ready": "yes"}})).await;
    fixture.until_succeeded(&second).await;
}

pub(super) async fn archived_revision_that_never_applied_needs_no_content(fixture: &Fixture) {
    let ns = "unapplied";
    fixture.namespace(ns).await;
    let phases = stored(fixture, ns, &[&config_map(ns, "never", json!({}))]).await;
    fixture.delete(&secret(ns)).await;
    let name = fixture.revision(ns, 1, phases, unmodified).await;
    fixture.until_condition(&name, "Progressing", "True/Retrying ").await;
    fixture.patch(&name, json!({"spec": {"lifecycleState": "Archived"}})).await;
    fixture.until_condition(&name, "Progressing", "False/Archived revision is archived").await;
}

pub(super) async fn removal_hands_over_to_newest_revision_while_content_of_another_is_lost(
    fixture: &Fixture,
) {
    let ns = "passed-over";
    fixture.namespace(ns).await;
    let [both, held] = ["both", "held"].map(|name| config_map(ns, name, json!({})));
    let first = fixture.revision(ns, 1, json!([phase("a", &[&both])]), unmodified).await;
    fixture.until_succeeded(&first).await;
    let phases = stored(fixture, ns, &[&config_map(ns, "never", json!({}))]).await;
    fixture.delete(&secret(ns)).await;
    let second = fixture.revision(ns, 2, phases, unmodified).await;
    fixture.until_condition(&second, "Progressing", "True/Retrying ").await;
    let third = fixture.revision(ns, 3, json!([phase("a", &[&held]), phase("b", &[&both])]), waits).await;
    fixture.until_condition(&third, "Available", "False/ProbeFailure ").await;
    fixture.delete_revision(&first).await;
    eventually("the object is handed over", async || {
        let owner = fixture.get(&both).await?["metadata"]["ownerReferences"][0]["name"].clone();
        (owner == json!(third)).then_some(())
    })
    .await;
    for map in [&held, &both] {
        fixture.edit(map, json!({"data": {"ready": "yes"}})).await;
    }
    fixture.until_succeeded(&third).await;
    fixture.until_deleted(&first).await;
}

/// Removes the record from a revision whose content cannot be read, so that it is not recorded again.
async fn forget_record(fixture: &Fixture, name: &str) {
    fixture.until_condition(name, "Progressing", "True/Retrying ").await;
    fixture
        .patch(name, json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/objects": null}}}))
        .await;
}

/// Makes a revision wait for its first ConfigMap.
fn waits(set: &mut Value) {
    let probe = json!({"fieldPath": "data.ready", "value": "yes"});
    set["spec"]["progressionProbes"] = json!([{
        "selector": {"type": "GroupKind", "groupKind": {"group": "", "kind": "ConfigMap"}},
        "assertions": [{"type": "FieldValue", "fieldValue": probe}]}]);
}

// Garbage collection removes the rest once the revision is deleted.
pub(super) async fn archived_revision_without_content_or_record_hands_over_and_blocks(fixture: &Fixture) {
    let ns = "unrecorded";
    fixture.namespace(ns).await;
    let [both, dropped, held] = ["both", "dropped", "held"].map(|name| config_map(ns, name, json!({})));
    let first = fixture.revision(ns, 1, stored(fixture, ns, &[&both, &dropped]).await, unmodified).await;
    fixture.until_succeeded(&first).await;
    fixture.delete(&secret(ns)).await;
    fixture.edit(&both, json!({"data": {"k": "v"}})).await;
    forget_record(fixture, &first).await;
    let phases = json!([phase("a", &[&held]), phase("b", &[&both])]);
    let second = fixture.revision(ns, 2, phases, waits).await;
    fixture.until_condition(&second, "Available", "False/ProbeFailure ").await;
    fixture.patch(&first, json!({"spec": {"lifecycleState": "Archived"}})).await;
    let text = fixture.until_condition(&first, "Progressing", "False/Blocked ").await;
    assert_eq!(
        text,
        "False/Blocked objects of revision unrecorded-1 are unknown: resolving ref in phase \"stored\": getting Secret \
         unrecorded/content: Secret \"content\" not found; delete this revision to remove its objects"
    );
    let owner = async |object: &Value| {
        fixture.get(object).await.unwrap()["metadata"]["ownerReferences"][0]["name"].clone()
    };
    assert_eq!((owner(&both).await, owner(&dropped).await), (json!(second), json!(first)));
    fixture.delete_revision(&first).await;
    fixture.until_deleted(&first).await;
    assert_eq!(owner(&both).await, json!(second));
}

// Without its extension no controller restores that Secret.
pub(super) async fn archived_revision_hands_over_to_sibling_without_secret(fixture: &Fixture) {
    let ns = "heirless";
    fixture.namespace(ns).await;
    let [both, missing] = ["both", "missing"].map(|name| config_map(ns, name, json!({})));
    let first = fixture.revision(ns, 1, json!([phase("a", &[&both])]), unmodified).await;
    fixture.until_succeeded(&first).await;
    let second = fixture.revision(ns, 2, stored(fixture, ns, &[&missing, &both]).await, |set| {
        waits(set);
        set["spec"]["phases"] = json!([{"name": "first", "objects": [set["spec"]["phases"][0]["objects"][0]]},
            {"name": "second", "objects": [set["spec"]["phases"][0]["objects"][1]]}]);
    });
    let second = second.await;
    fixture.until_condition(&second, "Available", "False/ProbeFailure ").await;
    fixture.delete(&secret(ns)).await;
    fixture.patch(&first, json!({"spec": {"lifecycleState": "Archived"}})).await;
    fixture.until_condition(&first, "Progressing", "False/Archived ").await;
    assert_eq!(fixture.get(&both).await.unwrap()["metadata"]["ownerReferences"][0]["name"], second);
}

// Lexical order of the names differs: revision 10 sorts before revision 9.
pub(super) async fn superseded_revisions_are_archived_oldest_first_and_adopt_nothing(fixture: &Fixture) {
    let ns = "superseded";
    fixture.namespace(ns).await;
    let proxy = Proxy::start(fixture.plane.kubeconfig()).await.unwrap();
    let controller = start(proxy.kubeconfig(), None, PACE);
    let [kept, dropped] = ["kept", "dropped"].map(|name| config_map(ns, name, json!({})));
    for number in [9, 10] {
        let name = fixture.revision(ns, number, json!([phase("a", &[&kept, &dropped])]), waits).await;
        fixture.until_condition(&name, "Available", "False/ProbeFailure ").await;
    }
    let last = fixture.revision(ns, 11, json!([phase("a", &[&kept])]), unmodified).await;
    fixture.until_succeeded(&last).await;
    for number in [9, 10] {
        fixture.until_condition(&format!("{ns}-{number}"), "Progressing", "False/Archived ").await;
    }
    fixture.until_object_deleted(&dropped).await;
    let calls = proxy.calls(0);
    let body = |call: &Call| serde_json::from_slice::<Value>(&call.body).unwrap_or_default();
    let archived = calls.iter().filter(|call| body(call)["spec"]["lifecycleState"] == "Archived");
    let archived: Vec<&str> = archived.map(|call| call.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(archived.first(), Some(&"superseded-9"), "{archived:?}");
    let first = calls.iter().position(|call| body(call)["spec"]["lifecycleState"] == "Archived").unwrap();
    // Unlike a change of owner, an apply contains the kind.
    let is_new_owner = |call: &&Call| {
        call.path.ends_with("/configmaps/dropped")
            && body(call)["kind"].is_null()
            && body(call)["metadata"]["annotations"]["olm.operatorframework.io/revision"].is_string()
    };
    let written: Vec<String> = calls[first..].iter().filter(is_new_owner).map(Call::line).collect();
    assert_eq!(written, [""; 0]);
    controller.stop().await;
}

pub(super) async fn finalizer_added_during_removal_is_retained(fixture: &Fixture) {
    let ns = "finalized";
    fixture.namespace(ns).await;
    let proxy = Proxy::start(fixture.plane.kubeconfig()).await.unwrap();
    let controller = start(proxy.kubeconfig(), None, PACE);
    let map = config_map(ns, "a", json!({}));
    let name = fixture.revision(ns, 1, json!([phase("a", &[&map])]), unmodified).await;
    fixture.until_succeeded(&name).await;
    // Delays the removal of our finalizer.
    let path = format!("/clusterobjectsets/{name}");
    let slow = Rule::new(Fault::Delay(Duration::from_secs(2)), move |call| {
        call.method == http::Method::PATCH && call.path.ends_with(&path)
    });
    let slow = proxy.add(slow);
    fixture.patch(&name, json!({"spec": {"lifecycleState": "Archived"}})).await;
    proxy.wait_for_hits(slow, 1, Duration::from_secs(20)).await.unwrap();
    let both = json!(["olm.operatorframework.io/teardown", "acme.example/hold"]);
    fixture.patch(&name, json!({"metadata": {"finalizers": both}})).await;
    eventually("our finalizer is removed", async || {
        let set = fixture.sets().get(&name).await.unwrap();
        let finalizers = set.metadata.finalizers.unwrap_or_default();
        (!finalizers.iter().any(|one| one.contains("teardown"))).then_some(finalizers)
    })
    .await;
    let set = fixture.sets().get(&name).await.unwrap();
    assert_eq!(set.metadata.finalizers, Some(vec!["acme.example/hold".to_owned()]));
    controller.stop().await;
}

// Garbage collection deletes the rest, except for objects that the successor lists.
pub(super) async fn late_removal_hands_over_objects_of_successor(fixture: &Fixture) {
    let ns = "hasty";
    fixture.namespace(ns).await;
    let controller = fixture.controller_without_ordered_removal();
    let [both, dropped, missing] = ["both", "dropped", "missing"].map(|name| config_map(ns, name, json!({})));
    let first = fixture.revision(ns, 1, stored(fixture, ns, &[&both, &dropped]).await, unmodified).await;
    fixture.until_succeeded(&first).await;
    let held = json!([phase("a", &[&missing]), phase("b", &[&both])]);
    let second = fixture.revision(ns, 2, held, waits).await;
    fixture.until_condition(&second, "Available", "False/ProbeFailure ").await;
    fixture.delete(&secret(ns)).await;
    fixture.delete_revision(&first).await;
    fixture.until_deleted(&first).await;
    let owner = async |object: &Value| {
        fixture.get(object).await.unwrap()["metadata"]["ownerReferences"][0]["name"].clone()
    };
    assert_eq!((owner(&both).await, owner(&dropped).await), (json!(second), json!(first)));

    // A possible new owner with unknown content delays the removal and is reported.
    let ns = "unknown";
    fixture.namespace(ns).await;
    let [both, missing] = ["both", "missing"].map(|name| config_map(ns, name, json!({})));
    let first = fixture.revision(ns, 1, json!([phase("a", &[&both])]), unmodified).await;
    fixture.until_succeeded(&first).await;
    let second = fixture.revision(ns, 2, stored(fixture, ns, &[&missing, &both]).await, waits).await;
    fixture.until_condition(&second, "Available", "False/ProbeFailure ").await;
    fixture.delete(&secret(ns)).await;
    fixture.edit(&missing, json!({"data": {"k": "v"}})).await;
    forget_record(fixture, &second).await;
    fixture.delete_revision(&first).await;
    let text = "False/Blocked objects of revision unknown-2 are unknown: resolving ref in phase \"stored\": ";
    fixture.until_condition(&first, "Progressing", text).await;
    stored(fixture, ns, &[&missing, &both]).await;
    fixture.until_deleted(&first).await;
    controller.stop().await;
}

// docs/design/apply.md#recreated-extensions: objects that the recreated extension lists are not deleted with its
// earlier revisions.
pub(super) async fn revision_of_former_extension_hands_over_to_recreated_one(fixture: &Fixture) {
    let ns = "former";
    fixture.namespace(ns).await;
    let [both, dropped, held] = ["both", "dropped", "held"].map(|name| config_map(ns, name, json!({})));
    let of = |set: &mut Value, uid: &str, kind: &str| {
        set["metadata"]["ownerReferences"] = json!([{"apiVersion": "olm.operatorframework.io/v1", "kind": kind,
            "name": ns, "uid": uid, "controller": true}]);
    };
    let first = fixture
        .revision(ns, 1, json!([phase("a", &[&both, &dropped])]), |set| of(set, "1", "ClusterExtension"));
    let first = first.await;
    fixture.until_succeeded(&first).await;
    // A revision with another controller is not a sibling (docs/design/apply.md#revision-membership).
    let stranger =
        fixture.revision(ns, 7, json!([phase("a", &[&dropped])]), |set| of(set, "1", "Whatever")).await;
    fixture
        .until_condition(&stranger, "Progressing", "True/Retrying revision object collisions in phase 0")
        .await;
    let waits = |set: &mut Value| {
        of(set, "2", "ClusterExtension");
        let selector = json!({"type": "Label", "label": {"matchLabels": {"holds": "yes"}}});
        set["spec"]["phases"][0]["objects"][0]["object"]["metadata"]["labels"] = json!({"holds": "yes"});
        set["spec"]["progressionProbes"] = json!([{"selector": selector,
            "assertions": [{"type": "FieldValue", "fieldValue": {"fieldPath": "data.ready", "value": "yes"}}]}]);
    };
    let phases = json!([phase("a", &[&held]), phase("b", &[&both])]);
    let second = fixture.revision(ns, 2, phases, waits).await;
    fixture.until_condition(&second, "Available", "False/ProbeFailure ").await;
    let uid = fixture.get(&both).await.unwrap()["metadata"]["uid"].clone();
    fixture.delete_revision(&first).await;
    fixture.until_deleted(&first).await;
    let live = fixture.get(&both).await.unwrap();
    assert_eq!(
        (&live["metadata"]["uid"], &live["metadata"]["ownerReferences"][0]["name"]),
        (&uid, &json!(second))
    );
}

pub(super) async fn unknown_uninstall_policy_blocks_removal_of_crd_in_use(fixture: &Fixture) {
    let ns = "policy";
    fixture.namespace(ns).await;
    let crd = crd("policies", "Policy");
    let policy = |policy: &str| json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/uninstall-policy": policy}}});
    let name = fixture.revision(ns, 1, json!([phase("a", &[&crd])]), unmodified).await;
    fixture.until_succeeded(&name).await;
    let resource = custom_resource("Policy", ns, "one");
    fixture.create(&resource).await;
    fixture.patch(&name, policy("Keep")).await;
    fixture.delete_revision(&name).await;
    let blocked = "False/Blocked cannot delete CustomResourceDefinition policies.acme.example: 1 custom resources exist";
    fixture.until_condition(&name, "Progressing", blocked).await;
    fixture.patch(&name, policy("Delete")).await;
    fixture.until_deleted(&name).await;
    fixture.until_object_deleted(&crd).await;
}

/// Creates a ClusterExtension. Returns an owner reference to it.
async fn extension(fixture: &Fixture, name: &str) -> Value {
    let extensions: Api<ClusterExtension> = Api::all(fixture.client());
    let extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": {"name": name},
        "spec": {"namespace": name, "source": {"sourceType": "Catalog", "catalog": {"packageName": name}}}});
    let extension = serde_json::from_value(extension).unwrap();
    let uid = extensions.create(&PostParams::default(), &extension).await.unwrap().uid();
    json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": name, "uid": uid,
        "controller": true})
}

// docs/design/apply.md#crds-with-custom-resources: the extension makes a successor, which takes the CRD over
pub(super) async fn revision_of_living_extension_retains_crd_in_use(fixture: &Fixture) {
    let ns = "living";
    fixture.namespace(ns).await;
    let reference = extension(fixture, ns).await;
    let owner = |set: &mut Value| set["metadata"]["ownerReferences"] = json!([reference]);
    let crd = crd("livings", "Living");
    let name = fixture.revision(ns, 1, json!([phase("crds", &[&crd])]), owner).await;
    fixture.until_succeeded(&name).await;
    fixture.create(&custom_resource("Living", ns, "one")).await;
    fixture.delete_revision(&name).await;
    let text =
        "False/Blocked cannot delete CustomResourceDefinition livings.acme.example: 1 custom resources exist";
    fixture.until_condition(&name, "Progressing", text).await;
    let second = fixture.revision(ns, 2, json!([phase("crds", &[&crd])]), owner).await;
    fixture.until_deleted(&name).await;
    assert_eq!(fixture.owners(&crd).await, Some(vec![second]));
    assert!(fixture.get(&custom_resource("Living", ns, "one")).await.is_some());
}

// docs/design/additions.md#uninstall-policy: the policy of the extension applies before it is copied to its revisions.
pub(super) async fn removal_follows_policy_of_extension_before_it_is_copied(fixture: &Fixture) {
    let ns = "current";
    fixture.namespace(ns).await;
    let reference = extension(fixture, ns).await;
    let owner = |set: &mut Value| {
        set["metadata"]["ownerReferences"] = json!([reference]);
        set["metadata"]["annotations"]["ext.olm.operatorframework.io/uninstall-policy"] = json!("Delete");
    };
    let (crd, map) = (crd("currents", "Current"), config_map(ns, "a", json!({})));
    let resource = custom_resource("Current", ns, "one");
    let first = fixture.revision(ns, 1, json!([phase("crds", &[&crd])]), owner).await;
    fixture.until_succeeded(&first).await;
    fixture.create(&resource).await;
    let second = fixture.revision(ns, 2, json!([phase("maps", &[&map])]), owner).await;
    fixture.until_succeeded(&second).await;
    fixture.until_condition(&first, "Progressing", "False/Blocked cannot delete").await;
    let extensions: Api<ClusterExtension> = Api::all(fixture.client());
    let keep =
        json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/uninstall-policy": "KeepCRDs"}}});
    extensions.patch(ns, &PatchParams::default(), &Patch::Merge(keep)).await.unwrap();
    fixture.delete_revision(&first).await;
    fixture.until_deleted(&first).await;
    assert_eq!(fixture.get(&crd).await.unwrap()["metadata"]["ownerReferences"], json!(null));
    assert!(fixture.get(&resource).await.is_some());
}
