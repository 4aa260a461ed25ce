//! Status summary, and repeated server-side apply, against a real API server.

use kube::api::{Patch, PatchParams};
use olm_api::ClusterExtension;
use olm_api::conditions::types;
use serde_json::json;

use super::fixture::{DONE, Fixture, NAMESPACE, version};

const WORKS: &str = "True/ProbesSucceeded Objects are available and pass all probes.";

async fn restart(fixture: &mut Fixture, status_summary: bool) {
    fixture.stop_controller().await;
    fixture.status_summary = status_summary;
    fixture.start_controller();
}

fn observed(extension: &ClusterExtension) -> Option<i64> {
    extension.status.as_ref().and_then(|status| status.observed_generation)
}

// docs/design/additions.md#status-summary, docs/design/additions.md#opt-in
#[tokio::test(flavor = "multi_thread")]
async fn summary_follows_gate_and_repeated_apply_changes_nothing() {
    let mut fixture = Fixture::start().await;
    restart(&mut fixture, true).await;
    fixture.publish("main", &[version("1.0.0", "a")]).await;
    let object = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": {"name": "demo", "labels": {"team": "a"}},
        "spec": {"namespace": NAMESPACE,
            "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo", "version": "1.x"}}}});
    let apply = PatchParams::apply("argocd");
    fixture.extensions.patch("demo", &apply, &Patch::Apply(&object)).await.unwrap();
    let rolling = "True/RollingOut Revision 1.0.0 is rolling out.";
    fixture.until_condition("demo", types::RECONCILING, rolling).await;
    assert_eq!(fixture.condition("demo", types::READY).await.unwrap(), rolling.replace("True", "False"));

    fixture.succeed("demo-1").await;
    let ready = fixture.until_condition("demo", types::READY, WORKS).await;
    assert_eq!(observed(&ready), ready.metadata.generation);
    assert!(ready.condition(types::RECONCILING).is_none() && ready.condition(types::STALLED).is_none());
    // A server-side diff compares the live object with the answer of a dry run.
    let dry = PatchParams { dry_run: true, ..apply.clone() };
    let predicted = fixture.extensions.patch("demo", &dry, &Patch::Apply(&object)).await.unwrap();
    assert_eq!(predicted, ready);
    let again = fixture.extensions.patch("demo", &apply, &Patch::Apply(&object)).await.unwrap();
    assert_eq!(again.metadata.resource_version, ready.metadata.resource_version);

    // A pause does not matter until an edit waits.
    fixture.annotate("demo", &[("paused", Some("true"))]).await;
    fixture.until_condition("demo", types::READY, WORKS).await;
    fixture.edit("demo", &json!({"spec": {"progressDeadlineMinutes": 20}})).await;
    let is_stalled = |extension: &ClusterExtension| {
        let stalled = extension.condition(types::STALLED)?;
        (stalled.reason == "Paused" && stalled.observed_generation == extension.metadata.generation)
            .then(|| extension.clone())
    };
    let held = fixture.until("stalled", "demo", is_stalled).await;
    assert_eq!(observed(&held), held.metadata.generation);
    assert!(!held.is_true(types::READY) && held.condition(types::RECONCILING).is_none());
    fixture.annotate("demo", &[("paused", None)]).await;
    let ready = fixture.until_condition("demo", types::READY, WORKS).await;

    restart(&mut fixture, false).await;
    let is_removed = |extension: &ClusterExtension| observed(extension).is_none().then(|| extension.clone());
    let without = fixture.until("no summary", "demo", is_removed).await;
    let mut expected = ready.status.unwrap();
    expected.conditions.retain(|condition| condition.type_ != types::READY);
    expected.observed_generation = None;
    assert_eq!(without.status.unwrap(), expected);
    fixture.until_condition("demo", types::PROGRESSING, DONE).await;
}
