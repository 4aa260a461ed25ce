//! Fields of other writers, defaults of the API server, and content that only a POST accepts
//! (docs/design/apply.md#owners-of-fields).

use kube::api::{Patch, PatchParams};
use olm_revision::object::ObjectKey;
use olm_revision::result::Action;
use serde_json::{Value, json};

use crate::fixture::{Fixture, actions, config_map, deployment, phase, until, version};

const OURS: &str = "olm.operatorframework.io";

/// Server-side applies an object with force, as this field manager.
async fn apply_as(fixture: &Fixture, manager: &str, object: &Value) {
    let key = ObjectKey::of(object);
    let params = PatchParams::apply(manager).force();
    fixture.api(&key).await.patch(&key.name, &params, &Patch::Apply(object)).await.unwrap();
}

/// Sets the replicas through the subresource `scale`.
async fn scale_as(fixture: &Fixture, manager: &str, object: &Value, replicas: u32) {
    let key = ObjectKey::of(object);
    let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    fixture.api(&key).await.patch_scale(&key.name, &params, &patch).await.unwrap();
}

/// Managers that own the field, a name such as `f:rules` at any depth.
fn owners_of(object: &Value, field: &str) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let owning = entries.iter().filter(|entry| entry["fieldsV1"].to_string().contains(&format!("{field:?}")));
    owning.map(|entry| entry["manager"].as_str().unwrap().to_owned()).collect()
}

// Issue: 2,095 writes of such a role within a minute, in half of them without rules.
#[tokio::test]
async fn rules_of_an_aggregated_role_are_left_to_its_controller() {
    let fixture = &mut Fixture::start_with(&["clusterrole-aggregation-controller"]).await;
    let name = "aggregated";
    let role = |name: &str, content: Value| {
        let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}});
        role.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
        role
    };
    let selectors = json!([{"matchLabels": {"acme.example/part": "yes"}}]);
    let all =
        role("aggregated-all", json!({"aggregationRule": {"clusterRoleSelectors": selectors}, "rules": []}));
    let rules = json!([{"apiGroups": ["acme.example"], "resources": ["*"], "verbs": ["get"]}]);
    let mut part = role("aggregated-part", json!({ "rules": rules }));
    part["metadata"]["labels"] = json!({"acme.example/part": "yes"});
    let revision = fixture.revision(name, 1, vec![phase("rbac", &[&all, &part])]).await;
    fixture.complete(&revision).await;
    let filled = async |fixture: &Fixture| {
        until(async || fixture.get(&all).await.filter(|live| live["rules"] == rules)).await
    };
    let before = filled(fixture).await;
    fixture.calls();
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Idle, Action::Idle]);
    fixture.restart();
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Idle, Action::Idle]);
    assert_eq!(fixture.calls(), [""; 0]);
    assert_eq!(version(&fixture.get(&all).await.unwrap()), version(&before));

    // An earlier version of the engine owned the rules, here alone.
    let mut owned = all.clone();
    owned["rules"] = rules.clone();
    owned["metadata"] = before["metadata"].clone();
    owned["metadata"]["managedFields"] = json!(null);
    owned["metadata"]["resourceVersion"] = json!(null);
    apply_as(fixture, OURS, &owned).await;
    let live = fixture.get(&all).await.unwrap();
    let mut entries = live["metadata"]["managedFields"].as_array().unwrap().clone();
    entries.retain(|entry| entry["manager"] == OURS);
    fixture.edit(&all, json!({"metadata": {"managedFields": entries}})).await;
    assert_eq!(owners_of(&fixture.get(&all).await.unwrap(), "f:rules"), [OURS]);
    fixture.complete(&revision).await;
    let live = fixture.get(&all).await.unwrap();
    assert_eq!(live["rules"], rules);
    assert_eq!(owners_of(&live, "f:rules"), [""; 0], "an empty role would be filled by its controller");
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Idle, Action::Idle]);
}

// Issue: an autoscaler and the engine set replicas in turn.
#[tokio::test]
async fn replicas_of_an_autoscaler_stay_and_manual_ones_are_restored() {
    let fixture = &mut Fixture::start().await;
    let ns = "scaled";
    fixture.namespace(ns).await;
    let mut op = deployment(ns, "op");
    op["spec"]["replicas"] = json!(1);
    let mut first = fixture.revision(ns, 1, vec![phase("deploy", &[&op])]).await;
    first.probes = Default::default();
    fixture.complete(&first).await;
    let replicas = async |fixture: &Fixture| fixture.get(&op).await.unwrap()["spec"]["replicas"].clone();
    scale_as(fixture, "kube-controller-manager", &op, 3).await;
    fixture.calls();
    assert_eq!(actions(&fixture.complete(&first).await), [Action::Idle]);
    fixture.restart();
    assert_eq!(actions(&fixture.complete(&first).await), [Action::Idle]);
    scale_as(fixture, "kube-controller-manager", &op, 4).await;
    assert_eq!(actions(&fixture.complete(&first).await), [Action::Idle]);
    assert_eq!(fixture.calls(), [""; 0]);

    let mut new = op.clone();
    new["spec"]["template"]["spec"]["containers"][0]["image"] = json!("example.test/op:v2");
    let mut second = fixture.revision(ns, 2, vec![phase("deploy", &[&new])]).await;
    second.siblings = vec![first.owner.uid.clone()];
    second.probes = Default::default();
    assert_eq!(actions(&fixture.complete(&second).await), [Action::Updated]);
    assert_eq!(replicas(fixture).await, 4);
    assert_eq!(actions(&fixture.complete(&second).await), [Action::Idle]);

    scale_as(fixture, "kubectl", &op, 2).await;
    let result = fixture.complete(&second).await;
    assert_eq!(actions(&result), [Action::Recovered]);
    let contention = result.phases[0].objects[0].contention.clone().unwrap();
    assert_eq!(contention.summary(), ".spec.replicas, changed by \"kubectl\"");
    assert_eq!(replicas(fixture).await, 1);
    assert_eq!(owners_of(&fixture.get(&op).await.unwrap(), "f:replicas"), [OURS]);

    // The API server records no owner of 0, whoever scales.
    scale_as(fixture, "kube-controller-manager", &op, 0).await;
    assert_eq!(owners_of(&fixture.get(&op).await.unwrap(), "f:replicas"), [""; 0]);
    assert_eq!(actions(&fixture.complete(&second).await), [Action::Updated]);
    assert_eq!(replicas(fixture).await, 1);

    // An autoscaler that scales to 0, such as KEDA, has a HorizontalPodAutoscaler.
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "op"});
    let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "keda-hpa-op", "namespace": ns}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}});
    fixture.create(&scaler).await;
    scale_as(fixture, "keda-operator", &op, 0).await;
    for _ in 0..2 {
        fixture.complete(&second).await;
        assert_eq!(replicas(fixture).await, 0);
        fixture.restart();
    }
    let mut third = fixture.revision(ns, 3, vec![phase("deploy", &[&op])]).await;
    (third.siblings, third.probes) = (vec![second.owner.uid.clone()], Default::default());
    fixture.complete(&third).await;
    assert_eq!(replicas(fixture).await, 0, "after an upgrade");
    fixture.delete(&scaler).await;
    fixture.restart();
    assert_eq!(actions(&fixture.complete(&third).await), [Action::Updated]);
    assert_eq!(replicas(fixture).await, 1);
}

// Issue: `strategy: {}` became `Recreate`, and no upgrade completed.
#[tokio::test]
async fn defaults_that_the_new_content_forbids_are_removed() {
    let fixture = &Fixture::start().await;
    let ns = "defaulted";
    fixture.namespace(ns).await;
    let mut old = deployment(ns, "op");
    old["spec"]["strategy"] = json!({});
    old["spec"]["template"]["spec"]["volumes"] = json!([{"name": "v"}]);
    let set = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "set", "namespace": ns},
        "spec": {"serviceName": "s", "selector": old["spec"]["selector"], "template": deployment(ns, "op")["spec"]["template"]}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": ns},
        "spec": {"sessionAffinity": "ClientIP", "ports": [{"port": 80}]}});
    let apply = async |number: i64, objects: &[&Value], siblings: &[String]| {
        let mut revision = fixture.revision(ns, number, vec![phase("deploy", objects)]).await;
        revision.siblings = siblings.to_vec();
        revision.probes = Default::default();
        let result = fixture.reconcile(&revision).await;
        (revision, result)
    };
    let (first, result) = apply(1, &[&old, &set, &service], &[]).await;
    assert!(result.is_complete(), "{result:?}");
    let [mut new, mut new_set, mut new_service] = [&old, &set, &service].map(Clone::clone);
    new["spec"]["strategy"] = json!({"type": "Recreate"});
    new["spec"]["template"]["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "x"}}]);
    new_set["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    new_service["spec"]["sessionAffinity"] = json!("None");
    let (second, result) =
        apply(2, &[&new, &new_set, &new_service], std::slice::from_ref(&first.owner.uid)).await;
    assert!(result.is_complete(), "{result:?}");
    let live = fixture.get(&new).await.unwrap();
    assert_eq!(live["spec"]["strategy"], json!({"type": "Recreate"}));
    assert_eq!(live["spec"]["template"]["spec"]["volumes"][0].get("emptyDir"), None);
    assert_eq!(fixture.get(&new_set).await.unwrap()["spec"]["updateStrategy"], json!({"type": "OnDelete"}));
    assert_eq!(fixture.get(&new_service).await.unwrap()["spec"].get("sessionAffinityConfig"), None);
    fixture.calls();
    assert_eq!(actions(&fixture.complete(&second).await), [Action::Idle; 3]);
    assert_eq!(fixture.calls(), [""; 0]);

    // Another field is in the way, so that nothing is moved.
    let mut third = old.clone();
    third["spec"]["selector"] = json!({"matchLabels": {"app": "other"}});
    third["spec"]["strategy"] = json!({});
    let (_, result) = apply(3, &[&third], std::slice::from_ref(&second.owner.uid)).await;
    assert!(result.blocker().unwrap().contains("spec.selector: Invalid value"), "{result:?}");
    assert_eq!(version(&fixture.get(&new).await.unwrap()), version(&live));
}

// Issue: a variable that a person has set has a value, and the new version sets valueFrom.
#[tokio::test]
async fn field_of_a_person_in_the_way_is_named() {
    let fixture = &Fixture::start().await;
    let ns = "by-hand";
    fixture.namespace(ns).await;
    let op = deployment(ns, "op");
    let mut first = fixture.revision(ns, 1, vec![phase("deploy", &[&op])]).await;
    first.probes = Default::default();
    fixture.complete(&first).await;
    let mut by_hand = fixture.get(&op).await.unwrap()["spec"]["template"]["spec"]["containers"].clone();
    by_hand[0]["env"] = json!([{"name": "B", "value": "x"}, {"name": "A", "value": "1"}]);
    fixture.edit(&op, json!({"spec": {"template": {"spec": {"containers": by_hand}}}})).await;
    let mut new = op.clone();
    let field = json!({"fieldRef": {"fieldPath": "metadata.name"}});
    new["spec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "A", "value": "1"}, {"name": "B", "valueFrom": field}]);
    let mut second = fixture.revision(ns, 2, vec![phase("deploy", &[&new])]).await;
    second.siblings = vec![first.owner.uid.clone()];
    second.probes = Default::default();
    for _ in 0..2 {
        let blocker = fixture.reconcile(&second).await.blocker().unwrap();
        let remedy = "; .spec.template.spec.containers[name=\"main\"].env[name=\"B\"].value, set by field manager \
                      \"user\", blocks the change: remove it from the object with `kubectl edit`";
        assert!(blocker.ends_with(remedy), "{blocker}");
    }
}

// Issue: an edit of `data` was not seen, and a key that a new version drops stayed.
#[tokio::test]
async fn string_data_of_secrets_is_repaired_and_dropped() {
    let fixture = &mut Fixture::start().await;
    let ns = "texts";
    fixture.namespace(ns).await;
    let secret = |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": ns}, "stringData": data});
    let old = secret(json!({"level": "info", "old": "yes"}));
    // An earlier version of the engine applied `stringData`, and so owns it.
    apply_as(fixture, OURS, &old).await;
    let mut first = fixture.revision(ns, 1, vec![phase("configuration", &[&old])]).await;
    first.phases[0].objects[0].collision_protection = olm_api::cluster_object_set::CollisionProtection::None;
    fixture.complete(&first).await;
    assert_eq!(owners_of(&fixture.get(&old).await.unwrap(), "f:stringData"), [""; 0]);
    fixture.edit(&old, json!({"data": {"level": "aGFja2Vk"}})).await;
    assert_eq!(actions(&fixture.complete(&first).await), [Action::Recovered]);
    assert_eq!(fixture.get(&old).await.unwrap()["data"], json!({"level": "aW5mbw==", "old": "eWVz"}));
    fixture.restart();
    fixture.calls();
    assert_eq!(actions(&fixture.complete(&first).await), [Action::Idle]);
    assert_eq!(fixture.calls(), [""; 0]);

    let new = secret(json!({"level": "debug"}));
    let mut second = fixture.revision(ns, 2, vec![phase("configuration", &[&new])]).await;
    second.siblings = vec![first.owner.uid.clone()];
    fixture.complete(&second).await;
    assert_eq!(fixture.get(&new).await.unwrap()["data"], json!({"level": "ZGVidWc="}));
}

// Issue: a POST accepts duplicate variables, an apply does not.
#[tokio::test]
async fn last_of_duplicate_variables_is_applied() {
    let fixture = &Fixture::start().await;
    let ns = "twice";
    fixture.namespace(ns).await;
    let op = |env: Value| {
        let mut op = deployment(ns, "op");
        op["spec"]["template"]["spec"]["containers"][0]["env"] = env;
        op
    };
    let twice =
        op(json!([{"name": "A", "value": "1"}, {"name": "B", "value": "x"}, {"name": "A", "value": "2"}]));
    let mut revision = fixture.revision(ns, 1, vec![phase("deploy", &[&twice])]).await;
    revision.probes = Default::default();
    fixture.complete(&revision).await;
    let live = fixture.get(&twice).await.unwrap();
    assert_eq!(
        live["spec"]["template"]["spec"]["containers"][0]["env"],
        json!([{"name": "B", "value": "x"}, {"name": "A", "value": "2"}])
    );
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Idle]);
    let used =
        op(json!([{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}, {"name": "A", "value": "2"}]));
    revision.phases = vec![phase("deploy", &[&used])];
    let blocker = fixture.reconcile(&revision).await.blocker().unwrap();
    assert!(
        blocker.contains("container \"main\" sets variable A twice, and B after the first uses $(A)"),
        "{blocker}"
    );
}

fn webhook(name: &str, client: Value) -> Value {
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name, "annotations": {"ext.olm.operatorframework.io/inject-ca-from": "ns/s"}},
        "webhooks": [{"name": "a.acme.example", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": client}]})
}

// Issue: the second write of a new webhook failed, and the next apply removed its CA bundle.
#[tokio::test]
async fn injected_bundle_without_other_owner_stays() {
    let fixture = &Fixture::start().await;
    let name = "injected";
    let client = |port: u16| json!({"service": {"namespace": "ns", "name": "s", "port": port}});
    let hook = webhook(name, client(0));
    let first = fixture.revision(name, 1, vec![phase("admission", &[&hook])]).await;
    fixture.complete(&first).await;
    let live = fixture.get(&hook).await.unwrap();
    assert_eq!(live["webhooks"][0]["clientConfig"]["service"]["port"], 443);
    let bundle = json!("Y2E=");
    let mut with_bundle = webhook(name, client(443));
    with_bundle["webhooks"][0]["clientConfig"]["caBundle"] = bundle.clone();
    with_bundle["metadata"] = live["metadata"].clone();
    with_bundle["metadata"]["managedFields"] = json!(null);
    apply_as(fixture, OURS, &with_bundle).await;
    assert_eq!(owners_of(&fixture.get(&hook).await.unwrap(), "f:caBundle"), [OURS]);
    let second = webhook(name, client(444));
    let mut next = fixture.revision(name, 2, vec![phase("admission", &[&second])]).await;
    next.siblings = vec![first.owner.uid.clone()];
    fixture.complete(&next).await;
    let live = fixture.get(&hook).await.unwrap();
    assert_eq!(live["webhooks"][0]["clientConfig"]["service"]["port"], 444);
    assert_eq!(live["webhooks"][0]["clientConfig"]["caBundle"], bundle);
    assert_eq!(owners_of(&live, "f:caBundle"), [""; 0]);
    assert_eq!(actions(&fixture.complete(&next).await), [Action::Idle]);
}

// docs/design/apply.md#contention
#[tokio::test]
async fn corrections_of_a_contended_field_back_off() {
    let fixture = &Fixture::start().await;
    let ns = "contended";
    fixture.namespace(ns).await;
    let map = config_map(ns, "a", json!({"k": "v"}));
    let revision = fixture.revision(ns, 1, vec![phase("a", &[&map])]).await;
    fixture.complete(&revision).await;
    for count in 1..=5 {
        fixture.edit(&map, json!({"data": {"k": "foreign"}})).await;
        let result = fixture.complete(&revision).await;
        assert_eq!(actions(&result), [Action::Recovered]);
        assert_eq!(result.phases[0].objects[0].contention.as_ref().unwrap().fields[0].count, count);
    }
    fixture.edit(&map, json!({"data": {"k": "foreign"}})).await;
    fixture.calls();
    let result = fixture.complete(&revision).await;
    assert_eq!(actions(&result), [Action::Contended]);
    assert_eq!(fixture.calls(), ["dry-run a"]);
    assert!(result.next_correction().unwrap() <= std::time::Duration::from_secs(10));
    assert_eq!(fixture.get(&map).await.unwrap()["data"]["k"], "foreign");
}

// A client removes the record of owners. A later revision could not remove a field if nobody owned it.
#[tokio::test]
async fn fields_are_owned_again_after_managed_fields_were_removed() {
    let fixture = &mut Fixture::start().await;
    let ns = "unrecorded";
    fixture.namespace(ns).await;
    let old = config_map(ns, "map", json!({"kept": "1", "dropped": "1"}));
    let first = fixture.revision(ns, 1, vec![phase("deploy", &[&old])]).await;
    fixture.complete(&first).await;
    fixture.edit(&old, json!({"data": {"other": "1"}, "metadata": {"managedFields": [{}]}})).await;
    fixture.complete(&first).await;
    let live = fixture.get(&old).await.unwrap();
    assert_eq!(owners_of(&live, "f:dropped"), [OURS]);
    assert_eq!(owners_of(&live, "f:other"), [""; 0]);
    assert_eq!(actions(&fixture.complete(&first).await), [Action::Idle]);
    fixture.restart();
    assert_eq!(actions(&fixture.complete(&first).await), [Action::Idle]);

    let new = config_map(ns, "map", json!({"kept": "2"}));
    let mut second = fixture.revision(ns, 2, vec![phase("deploy", &[&new])]).await;
    second.siblings = vec![first.owner.uid.clone()];
    fixture.complete(&second).await;
    assert_eq!(fixture.get(&new).await.unwrap()["data"], json!({"kept": "2", "other": "1"}));
}

// Another applier lists a part of an entry that a new version drops, so that the rest would be invalid.
#[tokio::test]
async fn applier_that_keeps_a_dropped_entry_is_named() {
    let fixture = &Fixture::start().await;
    let ns = "kept-entry";
    fixture.namespace(ns).await;
    let new = deployment(ns, "op");
    let mut old = new.clone();
    let sidecar = json!({"name": "sidecar", "image": "example.test/sidecar"});
    old["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().push(sidecar);
    let mut first = fixture.revision(ns, 1, vec![phase("deploy", &[&old])]).await;
    first.probes = Default::default();
    fixture.complete(&first).await;
    let env = json!([{"name": "B", "value": "x"}]);
    let part = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": old["metadata"],
        "spec": {"template": {"spec": {"containers": [{"name": "sidecar", "env": env}]}}}});
    apply_as(fixture, "gitops", &part).await;
    let mut second = fixture.revision(ns, 2, vec![phase("deploy", &[&new])]).await;
    second.siblings = vec![first.owner.uid.clone()];
    second.probes = Default::default();
    let blocker = fixture.reconcile(&second).await.blocker().unwrap();
    let remedy = "; .spec.template.spec.containers[name=\"sidecar\"], set by field manager \"gitops\", blocks the change: remove \
                  it from the object with `kubectl edit`";
    assert!(blocker.ends_with(remedy), "{blocker}");
}

// docs/design/apply.md#contention
#[tokio::test]
async fn creations_of_an_object_that_is_deleted_again_back_off() {
    let fixture = &Fixture::start().await;
    let ns = "deleted-again";
    fixture.namespace(ns).await;
    let map = config_map(ns, "a", json!({"k": "v"}));
    let revision = fixture.revision(ns, 1, vec![phase("a", &[&map])]).await;
    fixture.complete(&revision).await;
    for count in 1..=5 {
        fixture.delete(&map).await;
        let result = fixture.complete(&revision).await;
        assert_eq!(actions(&result), [Action::Created]);
        let contention = result.phases[0].objects[0].contention.clone().unwrap();
        assert_eq!((contention.fields[0].count, contention.begins()), (count, count == 5));
    }
    fixture.delete(&map).await;
    for _ in 0..2 {
        let result = fixture.reconcile(&revision).await;
        assert_eq!(actions(&result), [Action::Contended]);
        assert!(!result.is_complete() && result.next_correction().is_some());
        let line = "Object ConfigMap.v1 deleted-again/a: missing, because another client deletes it after each creation";
        assert_eq!(result.probe_failures().as_deref(), Some(line));
    }
    assert_eq!(fixture.get(&map).await, None);
}
