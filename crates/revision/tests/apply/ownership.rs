//! Objects with another owner: collisions, adoption, handover.

use kube::api::{Patch, PatchParams, PostParams};
use olm_api::cluster_object_set::CollisionProtection;
use olm_revision::engine::Revision;
use olm_revision::object::ObjectKey;
use olm_revision::result::Action;
use olm_revision::teardown::{NewOwner, TeardownOptions};
use serde_json::{Value, json};

use crate::fixture::{Fixture, actions, config_map, deployment, our_managers, owner_names, phase, protected};

// Cases apply-24, apply-26
#[tokio::test]
async fn foreign_object_collides() {
    let fixture = &Fixture::start().await;
    let ns = "collide";
    fixture.namespace(ns).await;
    let op = deployment(ns, "op");
    fixture.create(&op).await;
    let mut revision = fixture.revision("collide", 1, vec![phase("deploy", &[&op])]).await;
    revision.probes = Default::default();
    fixture.calls();
    let result = fixture.reconcile(&revision).await;
    assert_eq!(actions(&result), [Action::Collision]);
    assert!(!result.is_complete() && result.is_in_transition());
    assert_eq!(fixture.calls(), [""; 0]);
    let obstacle = result.blocker().unwrap();
    let head = "revision object collisions in phase 0\nObject Deployment.apps/v1 collide/op\nAction: \"Collision\"\n";
    assert!(obstacle.starts_with(head), "{obstacle}");
    assert!(obstacle.contains("- \"user\"\n  .spec.selector\n"), "{obstacle}");
    assert!(obstacle.ends_with("\nConflicting Owner: nil\n"), "{obstacle}");
    fixture.delete(&op).await;
    fixture.complete(&revision).await;

    let mut second = fixture.revision("collide-too", 1, vec![phase("deploy", &[&op])]).await;
    second.probes = Default::default();
    let obstacle = fixture.reconcile(&second).await.blocker().unwrap();
    let owner = format!(
        "Conflicting Owner: &OwnerReference{{Kind:ClusterObjectSet,Name:collide-1,UID:{},",
        revision.owner.uid
    );
    assert!(obstacle.contains(&owner), "{obstacle}");
}

// Cases apply-27, apply-28, apply-29
#[tokio::test]
async fn existing_objects_are_adopted_by_protection() {
    let fixture = &Fixture::start().await;
    let ns = "adopt";
    fixture.namespace(ns).await;
    let unowned = config_map(ns, "unowned", json!({"k": "old", "other": "o"}));
    fixture.create(&unowned).await;
    let holder = fixture.create(&config_map(ns, "holder", json!({}))).await;
    let mut owned = config_map(ns, "owned", json!({"k": "old"}));
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "holder",
        "uid": holder["metadata"]["uid"], "controller": true}]);
    fixture.create(&owned).await;
    let desired = ["unowned", "owned"].map(|name| config_map(ns, name, json!({"k": "new"})));
    let phases = vec![
        protected(phase("a", &[&desired[0]]), CollisionProtection::IfNoController),
        protected(phase("b", &[&desired[1]]), CollisionProtection::None),
    ];
    let revision = fixture.revision("adopt", 1, phases).await;
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Updated, Action::Updated]);
    let live = fixture.get(&unowned).await.unwrap();
    assert_eq!(live["data"], json!({"k": "new", "other": "o"}));
    assert_eq!(owner_names(&live), [("adopt-1".to_owned(), Some(true))]);
    let live = fixture.get(&owned).await.unwrap();
    assert_eq!(live["data"], json!({"k": "new"}));
    assert_eq!(owner_names(&live), [("holder".to_owned(), Some(false)), ("adopt-1".to_owned(), Some(true))]);
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Idle, Action::Idle]);
}

// docs/design/apply.md#handover; case apply-10
#[tokio::test]
async fn objects_are_handed_over_to_the_next_revision() {
    let fixture = &Fixture::start().await;
    let ns = "handover";
    fixture.namespace(ns).await;
    let both = |data| config_map(ns, "both", data);
    let dropped = config_map(ns, "dropped", json!({}));
    let old = both(json!({"k": "1", "gone": "x"}));
    let mut first = fixture.revision("handover", 1, vec![phase("a", &[&old, &dropped])]).await;
    fixture.complete(&first).await;
    let new = both(json!({"k": "2"}));
    let mut second = fixture.revision("handover", 2, vec![phase("a", &[&new])]).await;
    second.siblings = vec![first.owner.uid.clone()];
    first.siblings = vec![second.owner.uid.clone()];
    assert_eq!(actions(&fixture.complete(&second).await), [Action::Updated]);
    let live = fixture.get(&new).await.unwrap();
    assert_eq!(live["data"], json!({"k": "2"}));
    assert_eq!(
        owner_names(&live),
        [("handover-1".to_owned(), Some(false)), ("handover-2".to_owned(), Some(true))]
    );
    let result = fixture.reconcile(&first).await;
    assert_eq!(actions(&result), [Action::Progressed, Action::Idle]);
    assert!(result.is_in_transition());
    // The next pass of the new revision has no changes.
    fixture.calls();
    assert_eq!(actions(&fixture.complete(&second).await), [Action::Idle]);
    assert_eq!(fixture.calls(), [""; 0]);

    // Without finalizers, the deletion is complete when the API server answers.
    assert!(fixture.engine.teardown(&first, &TeardownOptions::default()).await.unwrap().is_complete());
    assert_eq!(fixture.calls(), ["merge both", "delete dropped"]);
    assert!(fixture.engine.teardown(&first, &TeardownOptions::default()).await.unwrap().is_complete());
    assert_eq!(fixture.calls(), [""; 0]);
    assert_eq!(fixture.get(&dropped).await, None);
    let live = fixture.get(&new).await.unwrap();
    assert_eq!(owner_names(&live), [("handover-2".to_owned(), Some(true))]);
    assert_eq!(our_managers(&live), ["Apply"]);
    assert_eq!(actions(&fixture.complete(&second).await), [Action::Idle]);
}

// docs/design/apply.md#orphaned-objects
#[tokio::test]
async fn orphaned_objects_are_adopted() {
    let fixture = &Fixture::start().await;
    let ns = "abandoned";
    fixture.namespace(ns).await;
    let map = config_map(ns, "a", json!({"k": "v"}));
    let revision = fixture.revision("abandoned", 1, vec![phase("a", &[&map])]).await;
    fixture.complete(&revision).await;
    fixture.edit(&map, json!({"metadata": {"ownerReferences": null}})).await;
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Updated]);
    assert_eq!(owner_names(&fixture.get(&map).await.unwrap()), [("abandoned-1".to_owned(), Some(true))]);
}

// docs/design/apply.md#objects-handed-over
#[tokio::test]
async fn teardown_hands_objects_over_to_the_older_revision() {
    let fixture = &Fixture::start().await;
    let ns = "heirs";
    fixture.namespace(ns).await;
    let map = |value| config_map(ns, "a", json!({"k": value}));
    let (old, new) = (map("1"), map("2"));
    let first = fixture.revision("heirs", 1, vec![phase("a", &[&old])]).await;
    fixture.complete(&first).await;
    let mut second = fixture.revision("heirs", 2, vec![phase("a", &[&new])]).await;
    second.siblings = vec![first.owner.uid.clone()];
    fixture.complete(&second).await;
    let before = fixture.get(&new).await.unwrap();
    let new_owners = vec![NewOwner::new(first.owner.clone(), &first.phases)];
    let options = TeardownOptions { new_owners, ..TeardownOptions::default() };
    assert!(fixture.engine.teardown(&second, &options).await.unwrap().is_complete());
    let live = fixture.get(&new).await.unwrap();
    assert_eq!(live["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(owner_names(&live), [("heirs-1".to_owned(), Some(true))]);
    fixture.complete(&first).await;
    let live = fixture.get(&new).await.unwrap();
    assert_eq!(live["data"], json!({"k": "1"}));
    assert_eq!(our_managers(&live), ["Apply"]);
}

// Cases apply-60, apply-62
#[tokio::test]
async fn helm_era_objects_are_adopted_without_restart() {
    let fixture = &Fixture::start().await;
    let ns = "helm";
    fixture.namespace(ns).await;
    let mut op = deployment(ns, "op");
    op["metadata"]["ownerReferences"] = json!([{"apiVersion": "olm.operatorframework.io/v1",
        "kind": "ClusterExtension", "name": "helm", "uid": "ce-uid", "controller": true}]);
    let deployments: kube::Api<k8s_openapi::api::apps::v1::Deployment> =
        kube::Api::namespaced(fixture.client(), ns);
    let params =
        PostParams { field_manager: Some("operator-controller".to_owned()), ..PostParams::default() };
    deployments.create(&params, &serde_json::from_value(op.clone()).unwrap()).await.unwrap();
    let before = fixture.get(&op).await.unwrap();
    let desired = deployment(ns, "op");
    let mut first = fixture
        .revision("helm", 1, vec![protected(phase("deploy", &[&desired]), CollisionProtection::None)])
        .await;
    first.probes = Default::default();
    assert_eq!(actions(&fixture.complete(&first).await), [Action::Updated]);
    let live = fixture.get(&op).await.unwrap();
    assert_eq!(owner_names(&live), [("helm-1".to_owned(), Some(true))]);
    assert_eq!(live["metadata"]["managedFields"].as_array().unwrap().len(), 1);
    assert_eq!(live["spec"], before["spec"], "adoption must not restart pods");

    let mut without_env = desired.clone();
    without_env["spec"]["template"]["spec"]["containers"][0].as_object_mut().unwrap().remove("env");
    let mut second = fixture.revision("helm", 2, vec![phase("deploy", &[&without_env])]).await;
    second.siblings = vec![first.owner.uid.clone()];
    second.probes = Default::default();
    fixture.complete(&second).await;
    let live = fixture.get(&op).await.unwrap();
    assert_eq!(live["spec"]["template"]["spec"]["containers"][0]["env"], Value::Null);
}

/// Creates a Deployment and a Service as classic OLM writes them, with fields that no bundle renders.
async fn create_classic(fixture: &Fixture, ns: &str) -> (Value, Value) {
    let mut op = deployment(ns, "op");
    op["metadata"]["labels"] = json!({"olm.owner": "op.v1.0.0"});
    let template = &mut op["spec"]["template"];
    template["metadata"]["labels"]["team"] = json!("a");
    template["metadata"]["annotations"] = json!({"olm.operatorGroup": "og"});
    let container = &mut template["spec"]["containers"][0];
    container["env"] = json!([{"name": "FIRST", "value": "1"}, {"name": "A", "value": "1"},
        {"name": "OPERATOR_CONDITION_NAME", "value": "op.v1.0.0"}]);
    container["volumeMounts"] = json!([{"name": "cert", "mountPath": "/cert"}]);
    template["spec"]["volumes"] = json!([{"name": "cert", "secret": {"secretName": "op-cert"}}]);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "op", "namespace": ns},
        "spec": {"selector": {"app": "op"}, "ports": [{"name": "a", "port": 443}, {"name": "b", "port": 444}]}});
    let params = PostParams { field_manager: Some("olm".to_owned()), ..PostParams::default() };
    let deployments = fixture.api(&ObjectKey::of(&op)).await;
    deployments.create(&params, &serde_json::from_value(op.clone()).unwrap()).await.unwrap();
    let services = fixture.api(&ObjectKey::of(&service)).await;
    services.patch("op", &PatchParams::apply("olm.install"), &Patch::Apply(&service)).await.unwrap();
    (op, service)
}

// docs/design/migration.md#fields-of-classic-olm
#[tokio::test]
async fn classic_fields_stay_until_the_pod_template_changes() {
    let fixture = &Fixture::start().await;
    let ns = "classic";
    fixture.namespace(ns).await;
    let (op, service) = create_classic(fixture, ns).await;
    let live = async |object: &Value| fixture.get(object).await.unwrap();
    let before = [live(&op).await, live(&service).await];
    let (mut wanted, mut wanted_service) = (deployment(ns, "op"), service.clone());
    let mut revisions: Vec<Revision> = Vec::new();
    let mut apply = async |deployment: &Value, service: &Value| {
        let number = i64::try_from(revisions.len()).unwrap() + 1;
        let protection = match number {
            1 => CollisionProtection::IfNoController,
            _ => CollisionProtection::Prevent,
        };
        let phases = vec![protected(phase("deploy", &[deployment, service]), protection)];
        let mut revision = fixture.revision(ns, number, phases).await;
        revision.siblings = revisions.iter().map(|revision| revision.owner.uid.clone()).collect();
        revision.probes = Default::default();
        fixture.complete(&revision).await;
        assert_eq!(actions(&fixture.complete(&revision).await), [Action::Idle, Action::Idle]);
        revisions.push(revision);
    };
    apply(&wanted, &wanted_service).await;
    let adopted = live(&op).await;
    assert_eq!(owner_names(&adopted), [("classic-1".to_owned(), Some(true))]);
    assert_eq!(adopted["spec"], before[0]["spec"], "adoption must not restart pods");
    assert_eq!(live(&service).await["spec"], before[1]["spec"]);

    // The template is unchanged, so its pods stay. A port that the Service no longer lists disappears.
    wanted["metadata"]["labels"] = json!({"new": "x"});
    wanted_service["spec"]["ports"].as_array_mut().unwrap().pop();
    apply(&wanted, &wanted_service).await;
    assert_eq!(live(&op).await["spec"], before[0]["spec"], "an unchanged template must not restart pods");
    assert_eq!(live(&service).await["spec"]["ports"].as_array().unwrap().len(), 1);

    wanted["spec"]["template"]["spec"]["containers"][0]["image"] = json!("example.test/op:v2");
    apply(&wanted, &wanted_service).await;
    let third = live(&op).await;
    let container = &third["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["env"], json!([{"name": "A", "value": "1"}]));
    assert_eq!(
        (&container["volumeMounts"], &third["spec"]["template"]["spec"]["volumes"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(third["spec"]["template"]["metadata"], json!({"labels": {"app": "op"}}));
    assert_eq!(third["metadata"]["labels"].get("olm.owner"), None);
}

// docs/design/migration.md#fields-of-classic-olm
#[tokio::test]
async fn reordered_environment_changes_the_pod_template() {
    let fixture = &Fixture::start().await;
    let ns = "order";
    fixture.namespace(ns).await;
    let env =
        |names: &[&str]| -> Value { names.iter().map(|name| json!({"name": name, "value": "1"})).collect() };
    for (case, (live, wanted, after)) in [
        (&["A", "B", "X"][..], &["A", "B"][..], &["A", "B", "X"][..]),
        (&["X", "A", "B"], &["A", "B"], &["X", "A", "B"]),
        (&["A", "X", "B"], &["A", "B"], &["A", "X", "B"]),
        (&["B", "A"], &["A", "B"], &["A", "B"]),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("order-{case}");
        let mut op = deployment(ns, &name);
        op["spec"]["template"]["spec"]["containers"][0]["env"] = env(live);
        fixture.create(&op).await;
        op["spec"]["template"]["spec"]["containers"][0]["env"] = env(wanted);
        let phases = vec![protected(phase("deploy", &[&op]), CollisionProtection::IfNoController)];
        let mut revision = fixture.revision(&name, 1, phases).await;
        revision.probes = Default::default();
        fixture.complete(&revision).await;
        let found = fixture.get(&op).await.unwrap();
        assert_eq!(found["spec"]["template"]["spec"]["containers"][0]["env"], env(after), "{case}");
    }
}

// A backup is restored by a client that then owns every field, so that no later version could remove one.
#[tokio::test]
async fn restored_copy_loses_what_the_next_version_drops() {
    let fixture = &mut Fixture::start().await;
    let ns = "restored-copy";
    fixture.namespace(ns).await;
    let mut old = deployment(ns, "op");
    let proxy = json!({"name": "proxy", "image": "example.test/proxy"});
    old["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().push(proxy);
    let map = config_map(ns, "a", json!({"k": "v", "dropped": "v"}));
    let objects = [&old, &map];
    let mut first = fixture.revision(ns, 1, vec![phase("deploy", &objects)]).await;
    first.probes = Default::default();
    fixture.complete(&first).await;
    for object in objects {
        let mut copy = fixture.get(object).await.unwrap();
        for field in ["managedFields", "ownerReferences", "uid", "resourceVersion"] {
            copy["metadata"].as_object_mut().unwrap().remove(field);
        }
        copy["metadata"]["annotations"]["note"] = json!("by hand");
        fixture.delete(object).await;
        fixture.create(&copy).await;
    }
    fixture.restart();
    fixture.complete(&first).await;
    assert_eq!(actions(&fixture.complete(&first).await), [Action::Idle, Action::Idle]);
    let new = deployment(ns, "op");
    let smaller = config_map(ns, "a", json!({"k": "v"}));
    let mut second = fixture.revision(ns, 2, vec![phase("deploy", &[&new, &smaller])]).await;
    second.siblings = vec![first.owner.uid.clone()];
    second.probes = Default::default();
    fixture.complete(&second).await;
    let live = fixture.get(&new).await.unwrap();
    assert_eq!(live["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(), 1, "{live}");
    let live = fixture.get(&smaller).await.unwrap();
    assert_eq!(live["data"], json!({"k": "v"}));
    assert_eq!(live["metadata"]["annotations"]["note"], "by hand");
}
