//! Conversion webhooks of CRDs: whose they are, and when the storage version changes.

use olm_revision::result::Action;
use serde_json::{Value, json};

use crate::fixture::{Fixture, actions, crd, deployment, owner_names, phase, until};

/// CRD with these versions, the last of which is stored.
fn versioned(plural: &str, kind: &str, versions: &[&str]) -> Value {
    let mut crd = crd(plural, kind);
    let version = |name: &&str| {
        let mut version = crd["spec"]["versions"][0].clone();
        (version["name"], version["storage"]) = (json!(name), json!(Some(name) == versions.last()));
        version
    };
    let versions: Vec<Value> = versions.iter().map(version).collect();
    crd["spec"]["versions"] = json!(versions);
    crd
}

/// Calls without repetitions after conflicts: the API server writes the status of a new CRD.
fn calls(fixture: &Fixture) -> Vec<String> {
    let mut calls = fixture.calls();
    calls.dedup();
    calls
}

fn converted(mut crd: Value, service: Value) -> Value {
    crd["spec"]["conversion"] = json!({"strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}}});
    crd
}

// docs/design/apply.md#drift: fields that no revision sets survive.
#[tokio::test]
async fn conversion_of_the_operator_survives_repair_and_upgrade() {
    let fixture = &Fixture::start().await;
    let crd = versioned("runtimes", "Runtime", &["v1", "v2"]);
    let mut revision = fixture.revision("runtime", 1, vec![phase("crds", &[&crd])]).await;
    revision.probes = Default::default();
    fixture.complete(&revision).await;
    let service = json!({"name": "own", "namespace": "default"});
    let conversion = converted(crd.clone(), service)["spec"]["conversion"].clone();
    fixture.edit(&crd, json!({"spec": {"conversion": conversion}})).await;
    let live = async || fixture.get(&crd).await.unwrap()["spec"]["conversion"].clone();
    let set_at_run_time = live().await;

    fixture.edit(&crd, json!({"metadata": {"labels": {"olm.operatorframework.io/owner-name": "x"}}})).await;
    fixture.calls();
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Recovered]);
    assert_eq!(calls(fixture), ["dry-run runtimes.acme.example", "apply runtimes.acme.example"]);
    assert_eq!(live().await, set_at_run_time);

    let mut next = fixture.revision("runtime", 2, vec![phase("crds", &[&crd])]).await;
    next.probes = Default::default();
    next.siblings = vec![revision.owner.uid.clone()];
    assert_eq!(actions(&fixture.complete(&next).await), [Action::Updated]);
    assert_eq!(live().await, set_at_run_time);
}

#[tokio::test]
async fn dropped_conversion_is_removed_with_fields_of_other_managers() {
    let fixture = &Fixture::start().await;
    // The API server defaults the port, which nobody owns.
    let service = json!({"name": "s", "namespace": "default"});
    let plain = versioned("dropped", "Dropped", &["v1"]);
    let crd = converted(plain.clone(), service);
    for (number, injected) in [(1, Some("/injected")), (3, None)] {
        let mut older = fixture.revision("dropped", number, vec![phase("crds", &[&crd])]).await;
        older.probes = Default::default();
        fixture.complete(&older).await;
        if let Some(path) = injected {
            let service = json!({"clientConfig": {"service": {"path": path}}});
            fixture.edit(&crd, json!({"spec": {"conversion": {"webhook": service}}})).await;
        }
        let mut newer = fixture.revision("dropped", number + 1, vec![phase("crds", &[&plain])]).await;
        newer.probes = Default::default();
        newer.siblings = vec![older.owner.uid.clone()];
        fixture.calls();
        assert_eq!(actions(&fixture.complete(&newer).await), [Action::Updated]);
        assert_eq!(
            calls(fixture),
            ["dry-run dropped.acme.example", "merge dropped.acme.example", "apply dropped.acme.example"]
        );
        assert_eq!(fixture.get(&plain).await.unwrap()["spec"]["conversion"], json!({"strategy": "None"}));
        fixture.delete(&plain).await;
        until(async || fixture.get(&plain).await.is_none().then_some(())).await;
    }
}

/// A version that objects may be stored in is missing.
#[tokio::test]
async fn rejected_crd_keeps_its_conversion() {
    let fixture = &Fixture::start().await;
    let service = json!({"name": "s", "namespace": "default"});
    let crd = converted(versioned("rejecteds", "Rejected", &["v2", "v1"]), service);
    let mut older = fixture.revision("rejected", 1, vec![phase("crds", &[&crd])]).await;
    older.probes = Default::default();
    fixture.complete(&older).await;
    let path = json!({"clientConfig": {"service": {"path": "/injected"}}});
    fixture.edit(&crd, json!({"spec": {"conversion": {"webhook": path}}})).await;
    let dropped = versioned("rejecteds", "Rejected", &["v2"]);
    let mut newer = fixture.revision("rejected", 2, vec![phase("crds", &[&dropped])]).await;
    newer.probes = Default::default();
    older.siblings = vec![newer.owner.uid.clone()];
    newer.siblings = vec![older.owner.uid.clone()];
    let before = fixture.get(&crd).await.unwrap();
    fixture.calls();
    for _ in 0..2 {
        let blocker = fixture.reconcile(&newer).await.blocker().unwrap();
        assert!(blocker.contains("storedVersions"), "{blocker}");
        assert_eq!(actions(&fixture.complete(&older).await), [Action::Idle]);
    }
    assert_eq!(calls(fixture), ["dry-run rejecteds.acme.example"]);
    let live = fixture.get(&crd).await.unwrap();
    assert_eq!(live["spec"], before["spec"]);
    assert_eq!(live["metadata"]["generation"], before["metadata"]["generation"]);
}

/// Service and Deployment of a webhook.
fn server(namespace: &str) -> [Value; 2] {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": namespace},
        "spec": {"selector": {"app": "op"}, "ports": [{"port": 443}]}});
    [service, deployment(namespace, "op")]
}

/// Versions of the live CRD, the storage version in capitals, and its stored versions.
async fn live_versions(fixture: &Fixture, crd: &Value) -> (Vec<String>, Value) {
    let live = fixture.get(crd).await.unwrap();
    let name = |version: &Value| {
        let name = version["name"].as_str().unwrap();
        if version["storage"] == true { name.to_uppercase() } else { name.to_owned() }
    };
    let versions = live["spec"]["versions"].as_array().unwrap().iter().map(name).collect();
    (versions, live["status"]["storedVersions"].clone())
}

// docs/design/apply.md#storage-version
#[tokio::test]
async fn storage_version_changes_when_the_webhook_is_ready() {
    let fixture = &Fixture::start().await;
    let ns = "storage";
    fixture.namespace(ns).await;
    let service = json!({"name": "s", "namespace": ns});
    let old = versioned("storages", "Storage", &["v1"]);
    let new = converted(versioned("storages", "Storage", &["v1", "v2"]), service);
    let [service, mut op] = server(ns);
    let of = |crd: &Value, op: &Value| vec![phase("crds", &[crd]), phase("deploy", &[&service, op])];
    let mut first = fixture.revision(ns, 1, of(&old, &op)).await;
    until(async || {
        fixture.reconcile(&first).await;
        fixture.get(&op).await
    })
    .await;
    let ready = async |op: &Value| {
        let generation = fixture.get(op).await.unwrap()["metadata"]["generation"].clone();
        let status = json!({"observedGeneration": generation, "replicas": 1, "updatedReplicas": 1,
            "conditions": [{"type": "Available", "status": "True"}]});
        fixture.edit_status(op, json!({"status": status})).await;
    };
    ready(&op).await;
    fixture.complete(&first).await;

    op["spec"]["template"]["spec"]["containers"][0]["image"] = json!("example.test/op:v2");
    let mut second = fixture.revision(ns, 2, of(&new, &op)).await;
    first.siblings = vec![second.owner.uid.clone()];
    second.siblings = vec![first.owner.uid.clone()];
    let stored_as_v1 = (vec!["V1".to_owned(), "v2".to_owned()], json!(["v1"]));
    for _ in 0..2 {
        let result = fixture.reconcile(&second).await;
        assert!(!result.is_complete() && result.blocker().is_none(), "{result:?}");
        let failures = result.probe_failures().unwrap();
        assert!(
            failures.contains("storage version changes when") && failures.contains(".apps/v1"),
            "{failures}"
        );
        assert_eq!(live_versions(fixture, &new).await, stored_as_v1);
        assert_eq!(fixture.get(&new).await.unwrap()["spec"]["conversion"]["strategy"], "Webhook");
        assert_eq!(owner_names(&fixture.get(&op).await.unwrap()).last().unwrap().0, "storage-2");
    }
    // The way back is open.
    let mut third = fixture.revision(ns, 3, of(&old, &op)).await;
    third.siblings = vec![first.owner.uid.clone(), second.owner.uid.clone()];
    fixture.reconcile(&third).await;
    assert_eq!(live_versions(fixture, &new).await, (vec!["V1".to_owned()], json!(["v1"])));

    let mut fourth = fixture.revision(ns, 4, of(&new, &op)).await;
    fourth.siblings = vec![third.owner.uid.clone()];
    assert!(!fixture.reconcile(&fourth).await.is_complete());
    assert_eq!(live_versions(fixture, &new).await, stored_as_v1);
    ready(&op).await;
    fixture.complete(&fourth).await;
    let (versions, _) = live_versions(fixture, &new).await;
    assert_eq!(versions, ["v1", "V2"]);
    until(async || {
        let (_, stored) = live_versions(fixture, &new).await;
        (stored == json!(["v1", "v2"])).then_some(())
    })
    .await;
    fixture.complete(&fourth).await;
    assert_eq!(actions(&fixture.complete(&fourth).await), [Action::Idle; 3]);
}
