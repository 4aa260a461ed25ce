//! Objects whose immutable fields differ, and objects that users delete to let a new revision in.

use std::time::Duration;

use kube::api::PostParams;
use olm_revision::content::ContentPhase;
use olm_revision::engine::Revision;
use olm_revision::immutable::remedies;
use olm_revision::object::ObjectKey;
use olm_revision::result::Action;
use serde_json::{Value, json};

use crate::fixture::{Fixture, actions, deployment, owner_names, phase, until};

/// Revisions 1 and 2 of an extension, without probes. The first one is applied.
async fn upgrade(fixture: &Fixture, name: &str, phases: [Vec<ContentPhase>; 2]) -> [Revision; 2] {
    let [old, new] = phases;
    let mut first = fixture.revision(name, 1, old).await;
    first.probes = Default::default();
    fixture.complete(&first).await;
    let mut second = fixture.revision(name, 2, new).await;
    second.probes = Default::default();
    first.siblings = vec![second.owner.uid.clone()];
    first.creation_delay = Duration::from_secs(3600);
    second.siblings = vec![first.owner.uid.clone()];
    [first, second]
}

/// Pairs of an object and its successor, which has another value in an immutable field.
fn pairs(namespace: &str) -> Vec<[Value; 2]> {
    let with = |object: &Value, changes: &[(&str, Value)]| {
        let mut object = object.clone();
        for (pointer, value) in changes {
            *object.pointer_mut(pointer).unwrap() = value.clone();
        }
        object
    };
    let op = deployment(namespace, "op");
    let selected = json!({"app": "other"});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "replaced"}, "subjects": [],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "a"}});
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": namespace},
        "spec": {"clusterIP": "10.0.0.77", "ports": [{"port": 80}]}});
    let container = json!({"name": "main", "image": "example.test/a"});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": namespace},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}});
    // Not the default: the API server admits another one only after it has seen the deletion.
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "replaced"},
        "value": 1});
    let (selector, labels) = ("/spec/selector/matchLabels", "/spec/template/metadata/labels");
    let image = "/spec/template/spec/containers/0/image";
    vec![
        [op.clone(), with(&op, &[(selector, selected.clone()), (labels, selected)])],
        [binding.clone(), with(&binding, &[("/roleRef/name", json!("b"))])],
        [service.clone(), with(&service, &[("/spec/clusterIP", json!("None"))])],
        [job.clone(), with(&job, &[(image, json!("example.test/b"))])],
        [class.clone(), with(&class, &[("/value", json!(2))])],
    ]
}

// docs/design/apply.md#immutable-fields
#[tokio::test]
async fn immutable_fields_are_replaced_only_if_allowed() {
    let fixture = &Fixture::start().await;
    let ns = "replaced";
    fixture.namespace(ns).await;
    for [old, new] in pairs(ns) {
        let name = format!("replaced-{}", old["kind"].as_str().unwrap().to_lowercase());
        let [first, mut second] =
            upgrade(fixture, &name, [vec![phase("a", &[&old])], vec![phase("a", &[&new])]]).await;
        let before = fixture.get(&old).await.unwrap();
        let blocker = fixture.reconcile(&second).await.blocker().unwrap();
        let [remedy] = &remedies(&blocker)[..] else { panic!("{blocker}") };
        let subject = format!("{} ", old["kind"].as_str().unwrap());
        assert!(remedy.starts_with(&subject) && remedy.contains(" cannot be changed. Delete "), "{remedy}");
        assert!(!remedy.contains("a field"), "{remedy}");
        assert_eq!(fixture.get(&old).await.unwrap()["metadata"]["uid"], before["metadata"]["uid"]);

        second.replaces_immutable = true;
        fixture.calls();
        assert_eq!(actions(&fixture.complete(&second).await), [Action::Created]);
        let name = old["metadata"]["name"].as_str().unwrap();
        let trial = "dry-run olm-dry-run-of-a-replacement".to_owned();
        let expected = [format!("dry-run {name}"), trial, format!("delete {name}"), format!("create {name}")];
        assert_eq!(fixture.calls(), expected);
        let live = fixture.get(&new).await.unwrap();
        assert_ne!(live["metadata"]["uid"], before["metadata"]["uid"]);
        assert_eq!(owner_names(&live), [(second.owner.name.clone(), Some(true))]);
        assert_eq!(actions(&fixture.complete(&first).await), [Action::Progressed]);
    }
}

#[tokio::test]
async fn object_stays_if_its_successor_is_invalid_or_may_lose_data() {
    let fixture = &Fixture::start().await;
    let ns = "irreplaceable";
    fixture.namespace(ns).await;
    let op = deployment(ns, "op");
    let mut invalid = op.clone();
    invalid["spec"]["selector"]["matchLabels"] = json!({"app": "other"});
    let mut set = op.clone();
    set["kind"] = json!("StatefulSet");
    set["spec"]["serviceName"] = json!("a");
    let mut renamed = set.clone();
    renamed["spec"]["serviceName"] = json!("b");
    for (number, (old, new, expected)) in [
        (op, invalid, "Deployment.apps \"op\" is invalid: spec.template.metadata.labels: Invalid value: "),
        (set, renamed, "StatefulSet.apps \"op\" is invalid: spec: Forbidden: updates to statefulset"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("irreplaceable{number}");
        let [_, mut second] =
            upgrade(fixture, &name, [vec![phase("a", &[&old])], vec![phase("a", &[&new])]]).await;
        second.replaces_immutable = true;
        let before = fixture.get(&old).await.unwrap();
        let blocker = fixture.reconcile(&second).await.blocker().unwrap();
        assert!(blocker.contains(expected), "{blocker}");
        assert_eq!(fixture.get(&old).await.unwrap()["metadata"]["uid"], before["metadata"]["uid"]);
    }
}

// docs/design/apply.md#handover
#[tokio::test]
async fn deleted_object_is_left_to_the_newer_revision() {
    let fixture = &Fixture::start().await;
    let ns = "deleted";
    fixture.namespace(ns).await;
    let [old, new] = pairs(ns).remove(0);
    let [mut first, second] =
        upgrade(fixture, ns, [vec![phase("a", &[&old])], vec![phase("a", &[&new])]]).await;
    assert!(fixture.reconcile(&second).await.blocker().is_some());
    fixture.delete(&old).await;
    let result = fixture.reconcile(&first).await;
    assert!(result.has_deferred() && !result.is_complete(), "{result:?}");
    assert_eq!(
        result.probe_failures().unwrap(),
        "Object Deployment.apps/v1 deleted/op: missing, and left to a newer revision for 3600 seconds"
    );
    assert_eq!(fixture.get(&old).await, None);
    assert_eq!(actions(&fixture.complete(&second).await), [Action::Created]);
    assert_eq!(actions(&fixture.complete(&first).await), [Action::Progressed]);

    fixture.delete(&old).await;
    assert!(fixture.reconcile(&first).await.has_deferred());
    first.creation_delay = Duration::from_nanos(1);
    assert_eq!(
        actions(&fixture.complete(&first).await),
        [Action::Created],
        "the newer one did not create it"
    );
}

// The user deletes or edits the class that is in the way.
#[tokio::test]
async fn second_default_priority_class_names_the_first_one() {
    let fixture = &Fixture::start().await;
    let class = |name: &str| {
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 10,
            "globalDefault": true})
    };
    // The admission plugin learns of classes from a watch.
    let admits = async |class: &Value| {
        let api = fixture.api(&ObjectKey::of(class)).await;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        api.create(&dry_run, &serde_json::from_value(class.clone()).unwrap()).await.is_ok()
    };
    let (old, new) = (class("default-a"), class("default-b"));
    until(async || admits(&old).await.then_some(())).await;
    let [first, second] =
        upgrade(fixture, "default", [vec![phase("a", &[&old])], vec![phase("a", &[&new])]]).await;
    until(async || (!admits(&new).await).then_some(())).await;
    let blocker = fixture.reconcile(&second).await.blocker().unwrap();
    let [remedy] = &remedies(&blocker)[..] else { panic!("{blocker}") };
    assert!(remedy.ends_with("kubectl delete priorityclass default-a"), "{remedy}");
    fixture.delete(&old).await;
    assert!(fixture.reconcile(&first).await.has_deferred());
    until(async || fixture.reconcile(&second).await.is_complete().then_some(())).await;
}
