//! Automatic rollback on a real API server.

use kube::Api;
use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use olm_api::annotations;
use olm_api::conditions::{Status, types};
use olm_request::RolledBackContent;
use serde_json::{Value, json};

use super::fixture::{Fixture, NAMESPACE, Release, installed, version};

const LATE: &str = "Revision has not rolled out for 1 minute(s).";

/// Reports that a revision has exceeded its progress deadline.
async fn fail(fixture: &Fixture, revision: &str) {
    fixture.revision(revision).await;
    let late = (types::PROGRESSING, Status::False, "ProgressDeadlineExceeded", LATE);
    fixture.set_conditions(revision, &[late]).await;
}

fn message(failed: &str, version: &str, restored: &str, status: &str) -> String {
    format!(
        "False/ProgressDeadlineExceeded Revision {failed} of bundle demo.v{version} version {version} has exceeded its \
         progress deadline and was rolled back: revision {restored} restores bundle demo.v1.0.0 version 1.0.0; to try it \
         again, set annotation ext.olm.operatorframework.io/retry-requested-at to a new value{status}"
    )
}

/// Fixture with version 1.0.0 installed, and a rollout of 1.1.0 as `demo-2`.
async fn upgrading(annotations: &[(&str, Option<&str>)]) -> Fixture {
    let fixture = Fixture::start().await;
    installed(&fixture, &json!({})).await;
    fixture.annotate("demo", &[("on-failure", Some("Rollback"))]).await;
    fixture.publish("main", &[version("1.0.0", "a"), version("1.1.0", "b")]).await;
    fixture.revision("demo-2").await;
    fixture.annotate("demo", annotations).await;
    fixture
}

// docs/design/approvals.md#automatic-rollback
#[tokio::test(flavor = "multi_thread")]
async fn failed_upgrade_is_rolled_back_and_tried_again_only_on_request() {
    let mut fixture =
        upgrading(&[("approval", Some("Manual")), ("upgrade-window", Some("0 0 29 2 * 1m"))]).await;
    fail(&fixture, "demo-2").await;
    let restored = fixture.revision("demo-3").await;
    assert_eq!(restored.annotations()[annotations::BUNDLE_VERSION], "1.0.0");
    assert_eq!(RolledBackContent::of(&restored).unwrap().revision, "demo-2");
    let first = fixture.revision("demo-1").await;
    let phases = |set: &olm_api::ClusterObjectSet| {
        let phases = set.spec.as_ref().unwrap().phases.iter();
        let keys =
            phases.flat_map(|phase| &phase.objects).map(|object| object.ref_.as_ref().unwrap().key.clone());
        keys.collect::<Vec<_>>()
    };
    assert_eq!(phases(&restored), phases(&first));
    fixture.until_condition("demo", types::PROGRESSING, &message("demo-2", "1.1.0", "demo-3", "")).await;
    let event = "RolledBack revision demo-3 restores bundle demo.v1.0.0 version 1.0.0 in place of bundle demo.v1.1.0 \
                 version 1.1.0, because revision demo-2 exceeded its progress deadline";
    fixture.until_event("demo", event).await;
    let status = fixture.extensions.get("demo").await.unwrap().status.unwrap();
    let active: Vec<&str> = status.active_revisions.iter().map(|revision| revision.name.as_str()).collect();
    assert_eq!(active, ["demo-1", "demo-2", "demo-3"]);

    let available = "True/RolledBack bundle demo.v1.1.0 version 1.1.0 is available and was rolled back; to try it again, set \
                     annotation ext.olm.operatorframework.io/retry-requested-at to a new value";
    restored_revision_stays(&mut fixture, available).await;

    // Each request permits one attempt. Approvals and windows hold it as any upgrade.
    fixture.annotate("demo", &[("retry-requested-at", Some("1"))]).await;
    let held = "True/ApprovalRequired bundle demo.v1.1.0 version 1.1.0 from catalog main is available; plan ";
    let is_held = |extension: &olm_api::ClusterExtension| {
        let found = extension.condition(types::UPGRADE_AVAILABLE)?;
        super::fixture::line(found).starts_with(held).then_some(())
    };
    fixture.until("the approval", "demo", is_held).await;
    fixture.annotate("demo", &[("approval", None), ("upgrade-window", None)]).await;
    fail(&fixture, "demo-4").await;
    let restored = fixture.revision("demo-5").await;
    assert_eq!(RolledBackContent::of(&restored).unwrap().retry_requested_at.as_deref(), Some("1"));
    let again = message("demo-4", "1.1.0", "demo-5", "");
    fixture.until_condition("demo", types::PROGRESSING, &again).await;
    fixture.succeed("demo-5").await;
    fixture.until_condition("demo", types::UPGRADE_AVAILABLE, available).await;
    fixture.annotate("demo", &[("retry-requested-at", Some("2"))]).await;
    fixture.succeed("demo-6").await;
    let done = "True/Succeeded Revision 1.1.0 has rolled out.";
    fixture.until_condition("demo", types::PROGRESSING, done).await;
}

// docs/design/approvals.md#automatic-rollback
#[tokio::test(flavor = "multi_thread")]
async fn failed_upgrade_is_rolled_back_after_its_successor_was_archived_by_hand() {
    let fixture = upgrading(&[]).await;
    fixture.publish("main", &[version("1.0.0", "a"), version("1.1.0", "c")]).await;
    fixture.edit("demo", &json!({"spec": {"source": {"catalog": {"version": "1.1.0"}}}})).await;
    fixture.revision("demo-3").await;
    fixture.annotate("demo", &[("approval", Some("Manual"))]).await;
    fail(&fixture, "demo-2").await;
    fixture.archive("demo-3").await;
    let restored = fixture.revision("demo-4").await;
    assert_eq!(restored.annotations()[annotations::BUNDLE_VERSION], "1.0.0");
    assert_eq!(RolledBackContent::of(&restored).unwrap().revision, "demo-2");
}

/// Neither a new process nor a failure of the restored revision makes another revision. Nothing is written afterwards.
async fn restored_revision_stays(fixture: &mut Fixture, available: &str) {
    fixture.stop_controller().await;
    fixture.start_controller();
    fixture.until_reconciled("other").await;
    let late = message("demo-2", "1.1.0", "demo-3", &format!("; last status: {LATE}"));
    fail(fixture, "demo-3").await;
    fixture.until_condition("demo", types::PROGRESSING, &late).await;
    fixture.succeed("demo-3").await;
    fixture.archive("demo-1").await;
    fixture.archive("demo-2").await;
    let done = message("demo-2", "1.1.0", "demo-3", "");
    fixture.until_condition("demo", types::PROGRESSING, &done).await;
    fixture.until_condition("demo", types::UPGRADE_AVAILABLE, available).await;

    // At rest nothing is written.
    let before = fixture.extensions.get("demo").await.unwrap().resource_version();
    fixture.context().parts.catalogs.requeue_extensions();
    fixture.until_reconciled("another").await;
    fixture.stop_controller().await;
    fixture.start_controller();
    fixture.until_reconciled("third").await;
    assert_eq!(fixture.extensions.get("demo").await.unwrap().resource_version(), before);
    assert_eq!(fixture.revisions().await, ["demo-1", "demo-2", "demo-3"]);
}

// docs/design/approvals.md#automatic-rollback
#[tokio::test(flavor = "multi_thread")]
async fn other_bundle_is_tried_after_a_rollback_without_registry_or_catalog() {
    let fixture = upgrading(&[]).await;
    fixture.delete_catalog("main").await;
    fail(&fixture, "demo-2").await;
    fixture.succeed("demo-3").await;
    let done = message("demo-2", "1.1.0", "demo-3", "");
    fixture.until_condition("demo", types::PROGRESSING, &done).await;
    assert_eq!(fixture.revisions().await, ["demo-1", "demo-2", "demo-3"]);
    fixture.publish("main", &[version("1.0.0", "a"), version("1.2.0", "c")]).await;
    let next = fixture.revision("demo-4").await;
    assert_eq!(next.annotations()[annotations::BUNDLE_VERSION], "1.2.0");
    assert_eq!(RolledBackContent::of(&next), None);
    fixture
        .until_condition("demo", types::PROGRESSING, "True/RollingOut Revision 1.2.0 is rolling out.")
        .await;
}

// docs/design/approvals.md#automatic-rollback
#[tokio::test(flavor = "multi_thread")]
async fn waiting_edit_does_not_delay_a_rollback() {
    let fixture = upgrading(&[("approval", Some("Manual"))]).await;
    let all = [version("1.0.0", "a"), version("1.1.0", "b"), version("1.2.0", "c")];
    fixture.publish("main", &all).await;
    let catalog = json!({"version": "1.2.0", "upgradeConstraintPolicy": "SelfCertified"});
    fixture.edit("demo", &json!({"spec": {"source": {"catalog": catalog}}})).await;
    let waits = |extension: &olm_api::ClusterExtension| {
        let found = extension.condition(types::UPGRADE_AVAILABLE)?;
        let begins = "True/ApprovalRequired bundle demo.v1.2.0 ";
        super::fixture::line(found).starts_with(begins).then_some(())
    };
    fixture.until("the approval", "demo", waits).await;
    fail(&fixture, "demo-2").await;
    let restored = fixture.revision("demo-3").await;
    assert_eq!(restored.annotations()[annotations::BUNDLE_VERSION], "1.0.0");
    assert_eq!(RolledBackContent::of(&restored).unwrap().revision, "demo-2");
    fixture.succeed("demo-3").await;
    fixture.until("the approval", "demo", waits).await;
    assert_eq!(fixture.revisions().await, ["demo-1", "demo-2", "demo-3"]);
}

// docs/design/approvals.md#automatic-rollback
#[tokio::test(flavor = "multi_thread")]
async fn unresolved_edit_does_not_prevent_a_rollback() {
    let fixture = upgrading(&[]).await;
    fixture.edit("demo", &json!({"spec": {"source": {"catalog": {"version": "9.9.9"}}}})).await;
    let refused = |extension: &olm_api::ClusterExtension| {
        let found = extension.condition(types::PROGRESSING)?;
        (found.reason == "Retrying" && found.message.contains("9.9.9")).then_some(())
    };
    fixture.until("the resolution error", "demo", refused).await;
    fail(&fixture, "demo-2").await;
    let restored = fixture.revision("demo-3").await;
    assert_eq!(restored.annotations()[annotations::BUNDLE_VERSION], "1.0.0");
    assert_eq!(RolledBackContent::of(&restored).unwrap().revision, "demo-2");
    let event = "RolledBack revision demo-3 restores bundle demo.v1.0.0 version 1.0.0 in place of bundle demo.v1.1.0 \
                 version 1.1.0, because revision demo-2 exceeded its progress deadline";
    fixture.until_event("demo", event).await;
    fixture.succeed("demo-3").await;
    fixture.until_reconciled("other").await;
    fixture.until("the resolution error", "demo", refused).await;
    assert_eq!(fixture.revisions().await, ["demo-1", "demo-2", "demo-3"]);
}

fn crd(plural: &str, kind: &str, fields: &Value) -> Value {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}

// docs/design/approvals.md#automatic-rollback
#[tokio::test(flavor = "multi_thread")]
async fn rollback_that_would_lose_data_is_forbidden() {
    let fixture = Fixture::start().await;
    let text = || json!({"type": "string"});
    let (old, new) = (json!({"a": text()}), json!({"a": text(), "b": text()}));
    let release = |version, manifests| Release { version, manifests, image: None, operator: false };
    let before = || release("1.0.0", vec![crd("lamps", "Lamp", &old)]);
    let after = vec![crd("lamps", "Lamp", &new), crd("shades", "Shade", &old)];
    fixture.publish("main", &[before()]).await;
    fixture.create("demo", &json!({}), &json!({})).await;
    fixture.annotate("demo", &[("on-failure", Some("Rollback"))]).await;
    fixture.succeed("demo-1").await;
    fixture.publish("main", &[before(), release("1.1.0", after.clone())]).await;
    fixture.revision("demo-2").await;
    fixture.plane.apply_crds(&after).await.unwrap();
    let kind =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Shade"), "shades");
    let shades: Api<DynamicObject> = Api::namespaced_with(fixture.plane.client(), NAMESPACE, &kind);
    let shade = DynamicObject::new("dark", &kind);
    shades.create(&PostParams::default(), &shade).await.unwrap();

    fail(&fixture, "demo-2").await;
    let forbidden = format!(
        "False/ProgressDeadlineExceeded {LATE}; not rolled back to bundle demo.v1.0.0 version 1.0.0: lamps.example.com: \
         existingFieldRemoval: removed field : v1.^.spec.b; shades.example.com is deleted, with 1 custom resource (first: \
         ns/dark); back up your data, then run `olm rollback demo --accept-risk`"
    );
    fixture.until_condition("demo", types::PROGRESSING, &forbidden).await;
    assert_eq!(fixture.revisions().await, ["demo-1", "demo-2"]);

    // The rollback no longer loses data.
    shades.delete("dark", &DeleteParams::default()).await.unwrap();
    fixture.plane.apply_crds(&[crd("lamps", "Lamp", &old)]).await.unwrap();
    fixture.annotate("demo", &[("retry-requested-at", Some("1"))]).await;
    fixture.revision("demo-3").await;
    fixture.until_condition("demo", types::PROGRESSING, &message("demo-2", "1.1.0", "demo-3", "")).await;
}

// docs/design/approvals.md#automatic-rollback
#[tokio::test(flavor = "multi_thread")]
async fn first_installation_is_not_rolled_back() {
    let fixture = Fixture::start().await;
    fixture.publish("main", &[version("1.0.0", "a")]).await;
    fixture.create("demo", &json!({}), &json!({})).await;
    fixture.annotate("demo", &[("on-failure", Some("Rollback"))]).await;
    fail(&fixture, "demo-1").await;
    let none = format!(
        "False/ProgressDeadlineExceeded {LATE}; not rolled back: no earlier revision has rolled out; correct the cause, or \
         install another version"
    );
    fixture.until_condition("demo", types::PROGRESSING, &none).await;
    assert_eq!(fixture.revisions().await, ["demo-1"]);
}
