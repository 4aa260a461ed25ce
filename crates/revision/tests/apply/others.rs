//! Clients that change objects again and again, and admission that changes them at their creation only.

use std::time::Duration;

use olm_revision::result::Action;
use serde_json::{Value, json};

use crate::fixture::{Fixture, actions, config_map, deployment, owner_names, phase, until};

// docs/design/apply.md#contention
#[tokio::test]
async fn adoptions_of_an_object_whose_owner_is_removed_again_back_off() {
    let fixture = &Fixture::start().await;
    let ns = "disowned-again";
    fixture.namespace(ns).await;
    let map = config_map(ns, "a", json!({"k": "v"}));
    let first = fixture.revision(ns, 1, vec![phase("a", &[&map])]).await;
    fixture.complete(&first).await;
    for stripped in [json!({"ownerReferences": null}), json!({"ownerReferences": null, "annotations": null})]
    {
        let mut count = 0;
        loop {
            fixture.edit(&map, json!({ "metadata": stripped })).await;
            let result = fixture.complete(&first).await;
            if actions(&result) == [Action::Contended] {
                assert!(result.next_correction().unwrap() > Duration::ZERO);
                break;
            }
            count += 1;
            assert!(count <= 5, "{stripped}: {result:?}");
        }
    }
    // A new revision is applied at once.
    let mut second = fixture.revision(ns, 2, vec![phase("a", &[&map])]).await;
    second.siblings = vec![first.owner.uid.clone()];
    fixture
        .edit(&map, json!({"metadata": {"annotations": {"olm.operatorframework.io/revision": "1"}}}))
        .await;
    fixture.complete(&second).await;
    let owners = owner_names(&fixture.get(&map).await.unwrap());
    assert_eq!(owners, [(second.owner.name.clone(), Some(true))]);
}

/// Creates a policy that sets `.data.k` of the ConfigMaps in this namespace at their creation, and waits for it.
async fn inject_at_creation(fixture: &Fixture, ns: &str) {
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": ns}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["configmaps"]}]},
            "matchConditions": [{"name": "namespace", "expression": format!("request.namespace == '{ns}'")}],
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": "Object{data: {'k': 'injected'}}"}}]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": ns}, "spec": {"policyName": ns}});
    fixture.create(&policy).await;
    fixture.create(&binding).await;
    let mut number = 0;
    until(async || {
        number += 1;
        let created = fixture.create(&config_map(ns, &format!("probe-{number}"), json!({"k": "v"}))).await;
        (created["data"]["k"] == "injected").then_some(())
    })
    .await;
}

// What admission made of an object at its creation counted as its content until the next restart.
#[tokio::test]
async fn field_that_admission_changes_only_at_creation_is_restored_once() {
    let fixture = &mut Fixture::start().await;
    let ns = "created-otherwise";
    fixture.namespace(ns).await;
    inject_at_creation(fixture, ns).await;
    let map = config_map(ns, "a", json!({"k": "v"}));
    let revision = fixture.revision(ns, 1, vec![phase("a", &[&map])]).await;
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Created]);
    let value = async |fixture: &Fixture| -> Value { fixture.get(&map).await.unwrap()["data"]["k"].clone() };
    assert_eq!(value(fixture).await, "injected");
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Updated]);
    assert_eq!(value(fixture).await, "v");
    fixture.calls();
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Idle]);
    fixture.restart();
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Idle]);
    assert_eq!(fixture.calls(), [""; 0]);
}

// The API server refuses a second default class until it has seen the deletion of the first one, here the same.
#[tokio::test]
async fn default_priority_class_is_replaced() {
    let fixture = &Fixture::start().await;
    let class = |value: u32| {
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": "default-class"}, "globalDefault": true, "value": value})
    };
    let first = fixture.revision("default-class", 1, vec![phase("a", &[&class(1)])]).await;
    fixture.complete(&first).await;
    let mut before = first;
    for value in 2..6 {
        let mut next =
            fixture.revision("default-class", i64::from(value), vec![phase("a", &[&class(value)])]).await;
        (next.siblings, next.replaces_immutable) = (vec![before.owner.uid.clone()], true);
        // The admission plugin sees the deletion of the former class with a delay.
        let replaced = async || Some(fixture.reconcile(&next).await).filter(|result| result.is_complete());
        assert_eq!(actions(&until(replaced).await), [Action::Created], "{value}");
        before = next;
    }
    fixture.delete(&class(1)).await;
}

// Defaults below a dropped field, such as the scheme of a probe, must not outlive it.
#[tokio::test]
async fn kinds_of_probes_and_sources_change() {
    let fixture = &Fixture::start().await;
    let ns = "other-kinds";
    fixture.namespace(ns).await;
    let op = |probe: Value, env: Value, volume: Value| {
        let mut op = deployment(ns, "op");
        let pod = &mut op["spec"]["template"]["spec"];
        pod["containers"][0]["livenessProbe"] = probe;
        pod["containers"][0]["env"] = env;
        pod["volumes"] = json!([{"name": "v", "projected": {"sources": [volume]}}]);
        op
    };
    let field = json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    let token = json!({"serviceAccountToken": {"path": "t"}});
    let old = op(json!({"httpGet": {"path": "/", "port": 80}}), field, token);
    let mut first = fixture.revision(ns, 1, vec![phase("deploy", &[&old])]).await;
    first.probes = Default::default();
    fixture.complete(&first).await;
    let values = json!([{"name": "A", "value": "x"},
        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}]);
    let mut new = op(json!({"tcpSocket": {"port": 80}}), values, json!({"secret": {"name": "s"}}));
    for number in 2..4 {
        let mut next = fixture.revision(ns, number, vec![phase("deploy", &[&new])]).await;
        (next.siblings, next.probes) = (vec![first.owner.uid.clone()], Default::default());
        fixture.complete(&next).await;
        let live = fixture.get(&new).await.unwrap();
        let container = &live["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["env"], new["spec"]["template"]["spec"]["containers"][0]["env"]);
        assert_eq!(container["livenessProbe"].get("httpGet"), None);
        assert_eq!(container.get("livenessProbe").is_some(), number == 2);
        first = next;
        new["spec"]["template"]["spec"]["containers"][0].as_object_mut().unwrap().remove("livenessProbe");
    }
}

// A PUT accepts variables of one name, also beside one of the revision.
#[tokio::test]
async fn duplicates_of_another_client_stop_no_correction() {
    let fixture = &mut Fixture::start().await;
    let ns = "duplicates";
    fixture.namespace(ns).await;
    let op = deployment(ns, "op");
    let mut first = fixture.revision(ns, 1, vec![phase("deploy", &[&op])]).await;
    first.probes = Default::default();
    fixture.complete(&first).await;
    let mut edited = fixture.get(&op).await.unwrap()["spec"]["template"]["spec"]["containers"].clone();
    let variable = |name: &str, value: &str| json!({"name": name, "value": value});
    edited[0]["env"] =
        json!([variable("A", "1"), variable("A", "2"), variable("B", "1"), variable("B", "2")]);
    fixture.edit(&op, json!({"spec": {"template": {"spec": {"containers": edited}}}})).await;
    let env = async |fixture: &Fixture| -> Value {
        fixture.get(&op).await.unwrap()["spec"]["template"]["spec"]["containers"][0]["env"].clone()
    };
    fixture.complete(&first).await;
    let expected = json!([variable("A", "1"), variable("B", "1"), variable("B", "2")]);
    assert_eq!(env(fixture).await, expected);
    fixture.restart();
    assert_eq!(actions(&fixture.complete(&first).await), [Action::Idle]);
    let mut new = op.clone();
    new["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = json!("3");
    let mut second = fixture.revision(ns, 2, vec![phase("deploy", &[&new])]).await;
    (second.siblings, second.probes) = (vec![first.owner.uid.clone()], Default::default());
    fixture.complete(&second).await;
    assert_eq!(env(fixture).await, json!([variable("A", "3"), variable("B", "1"), variable("B", "2")]));
}
