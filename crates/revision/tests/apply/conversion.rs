//! Conversion webhooks of CRDs: whose they are, and when the storage version changes.

use olm_revision::result::Action;
use serde_json::{Value, json};

use crate::fixture::{Fixture, actions, crd, phase, until};

/// CRD with these versions, the last of which is stored.
fn versioned(plural: &str, kind: &str, versions: &[&str]) -> Value {
    let mut definition = crd(plural, kind);
    let version = |name: &&str| {
        let mut version = definition["spec"]["versions"][0].clone();
        (version["name"], version["storage"]) = (json!(name), json!(Some(name) == versions.last()));
        version
    };
    let versions: Vec<Value> = versions.iter().map(version).collect();
    definition["spec"]["versions"] = json!(versions);
    definition
}

/// Calls without repetitions after conflicts: the API server writes the status of a new CRD.
fn calls(fixture: &Fixture) -> Vec<String> {
    let mut calls = fixture.calls();
    calls.dedup();
    calls
}

fn converted(mut definition: Value, service: Value) -> Value {
    definition["spec"]["conversion"] = json!({"strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}}});
    definition
}

// docs/design/apply.md#drift: fields that no revision sets survive.
pub(crate) async fn conversion_of_the_operator_survives_repair_and_upgrade(fixture: &Fixture) {
    let definition = versioned("runtimes", "Runtime", &["v1", "v2"]);
    let mut revision = fixture.revision("runtime", 1, vec![phase("crds", &[&definition])]).await;
    revision.probes = Default::default();
    fixture.complete(&revision).await;
    let service = json!({"name": "own", "namespace": "default"});
    let conversion = converted(definition.clone(), service)["spec"]["conversion"].clone();
    fixture.edit(&definition, json!({"spec": {"conversion": conversion}})).await;
    let live = async || fixture.get(&definition).await.unwrap()["spec"]["conversion"].clone();
    let set_at_run_time = live().await;

    fixture
        .edit(&definition, json!({"metadata": {"labels": {"olm.operatorframework.io/owner-name": "x"}}}))
        .await;
    fixture.calls();
    assert_eq!(actions(&fixture.complete(&revision).await), [Action::Recovered]);
    assert_eq!(calls(fixture), ["dry-run runtimes.acme.example", "apply runtimes.acme.example"]);
    assert_eq!(live().await, set_at_run_time);

    let mut next = fixture.revision("runtime", 2, vec![phase("crds", &[&definition])]).await;
    next.probes = Default::default();
    next.siblings = vec![revision.owner.uid.clone()];
    assert_eq!(actions(&fixture.complete(&next).await), [Action::Updated]);
    assert_eq!(live().await, set_at_run_time);
}

pub(crate) async fn dropped_conversion_is_removed_with_fields_of_other_managers(fixture: &Fixture) {
    // The API server defaults the port, which nobody owns.
    let service = json!({"name": "s", "namespace": "default"});
    let plain = versioned("dropped", "Dropped", &["v1"]);
    let definition = converted(plain.clone(), service);
    for (number, injected) in [(1, Some("/injected")), (3, None)] {
        let mut older = fixture.revision("dropped", number, vec![phase("crds", &[&definition])]).await;
        older.probes = Default::default();
        fixture.complete(&older).await;
        if let Some(path) = injected {
            let service = json!({"clientConfig": {"service": {"path": path}}});
            fixture.edit(&definition, json!({"spec": {"conversion": {"webhook": service}}})).await;
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
pub(crate) async fn rejected_crd_keeps_its_conversion(fixture: &Fixture) {
    let service = json!({"name": "s", "namespace": "default"});
    let definition = converted(versioned("rejecteds", "Rejected", &["v2", "v1"]), service);
    let mut older = fixture.revision("rejected", 1, vec![phase("crds", &[&definition])]).await;
    older.probes = Default::default();
    fixture.complete(&older).await;
    let path = json!({"clientConfig": {"service": {"path": "/injected"}}});
    fixture.edit(&definition, json!({"spec": {"conversion": {"webhook": path}}})).await;
    let dropped = versioned("rejecteds", "Rejected", &["v2"]);
    let mut newer = fixture.revision("rejected", 2, vec![phase("crds", &[&dropped])]).await;
    newer.probes = Default::default();
    older.siblings = vec![newer.owner.uid.clone()];
    newer.siblings = vec![older.owner.uid.clone()];
    let before = fixture.get(&definition).await.unwrap();
    fixture.calls();
    for _ in 0..2 {
        let blocker = fixture.reconcile(&newer).await.blocker().unwrap();
        assert!(blocker.contains("storedVersions"), "{blocker}");
        assert_eq!(actions(&fixture.complete(&older).await), [Action::Idle]);
    }
    assert_eq!(calls(fixture), ["dry-run rejecteds.acme.example"]);
    let live = fixture.get(&definition).await.unwrap();
    assert_eq!(live["spec"], before["spec"]);
    assert_eq!(live["metadata"]["generation"], before["metadata"]["generation"]);
}
