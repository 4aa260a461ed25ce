//! Reconciles on a real API server while the content of the bundle cannot be had.

use std::fs;

use kube::ResourceExt;
use kube::api::{DeleteParams, PostParams};
use kube::core::ObjectMeta;
use olm_api::ClusterExtension;
use olm_api::conditions::{self, Status, types};
use serde_json::json;

use super::fixture::{DONE, Fixture, installed, version};

// docs/design/apply.md#missing-bundle-content; case apply-20: an edit that cannot be applied is reported until it
// is applied
#[tokio::test(flavor = "multi_thread")]
async fn edit_without_bundle_content_stays_pending() {
    let mut fixture = Fixture::start().await;
    installed(&fixture, &json!({})).await;
    let expected = [
        "InstallStarted revision demo-1 installs bundle demo.v1.0.0 version 1.0.0",
        "Resolved chose bundle demo.v1.0.0 version 1.0.0 from catalog main",
        "RolloutSucceeded bundle demo.v1.0.0 version 1.0.0 is installed by revision demo-1",
    ];
    for event in expected {
        fixture.until_event("demo", event).await;
    }
    let before = fixture.events("demo").await;
    fixture.stop_controller().await;
    fs::remove_dir_all(fixture.cache().join("unpack")).unwrap();
    fixture.start_controller();
    fixture.until_reconciled("first").await;
    // After a restart no Event is repeated (docs/design/additions.md#events), and the status is unchanged.
    assert_eq!(fixture.condition("demo", types::PROGRESSING).await.unwrap(), DONE);
    assert_eq!(fixture.events("demo").await, before);

    fixture.edit("demo", &json!({"spec": {"progressDeadlineMinutes": 20}})).await;
    let pending = |extension: &ClusterExtension| {
        let progressing = conditions::find(&extension.status.as_ref()?.conditions, types::PROGRESSING)?;
        let is_current = progressing.observed_generation == extension.metadata.generation;
        let start = "error for resolved bundle \"demo.v1.0.0\" with version \"1.0.0\": error copying image";
        (is_current && progressing.reason == "Retrying" && progressing.message.starts_with(start))
            .then_some(())
    };
    fixture.until("the pending edit", "demo", pending).await;
    fixture.stop_controller().await;
    fixture.start_controller();
    fixture.until_reconciled("second").await;
    fixture.until("the pending edit", "demo", pending).await;
    assert_eq!(fixture.sets.get("demo-1").await.unwrap().spec.unwrap().progress_deadline_minutes, None);
    assert!(fixture.condition("demo", types::INSTALLED).await.unwrap().starts_with("True/Succeeded"));
    // The content is available again.
    fixture.publish("main", &[version("1.0.0", "a")]).await;
    fixture.until_condition("demo", types::PROGRESSING, DONE).await;
    assert_eq!(fixture.sets.get("demo-1").await.unwrap().spec.unwrap().progress_deadline_minutes, Some(20));
}

// docs/design/apply.md#missing-bundle-content
#[tokio::test(flavor = "multi_thread")]
async fn rollout_is_reported_after_a_restart_without_bundle_content() {
    let mut fixture = Fixture::start().await;
    installed(&fixture, &json!({})).await;
    fixture.publish("main", &[version("1.0.0", "a"), version("1.1.0", "b")]).await;
    let rolling = async |fixture: &Fixture, message: &str| {
        let conditions = [(types::PROGRESSING, Status::True, "RollingOut", message)];
        fixture.set_conditions("demo-2", &conditions).await;
        fixture.until_condition("demo", types::PROGRESSING, &format!("True/RollingOut {message}")).await;
    };
    rolling(&fixture, "phase 1 of 2").await;
    fixture.stop_controller().await;
    fs::remove_dir_all(fixture.cache().join("unpack")).unwrap();
    fixture.start_controller();
    rolling(&fixture, "phase 2 of 2").await;
    fixture.succeed("demo-2").await;
    fixture
        .until_condition("demo", types::PROGRESSING, "True/Succeeded Revision 1.1.0 has rolled out.")
        .await;
    assert_eq!(fixture.revisions().await, ["demo-1", "demo-2"]);
}

// docs/design/apply.md#repair-of-content-secrets: Velero restores Secrets first, without owners, and custom resources last.
#[tokio::test(flavor = "multi_thread")]
async fn restored_backup_keeps_content_secrets() {
    let fixture = Fixture::start().await;
    installed(&fixture, &json!({})).await;
    fixture.publish("main", &[version("1.0.0", "a"), version("1.1.0", "b")]).await;
    fixture.succeed("demo-2").await;
    let done = "True/Succeeded Revision 1.1.0 has rolled out.";
    fixture.until_condition("demo", types::PROGRESSING, done).await;
    let mut set = fixture.sets.get("demo-2").await.unwrap();
    let names = fixture.content("demo-2").await;
    let mut backup = Vec::new();
    for name in &names {
        backup.push(fixture.secrets.get(name).await.unwrap());
    }
    fixture.extensions.delete("demo", &DeleteParams::default()).await.unwrap();
    let is_gone = async || fixture.extensions.get_opt("demo").await.unwrap().is_none().then_some(());
    fixture.eventually("the deletion", is_gone).await;
    for revision in ["demo-1", "demo-2"] {
        fixture.sets.delete(revision, &DeleteParams::default()).await.unwrap();
        for name in fixture.content(revision).await {
            fixture.secrets.delete(&name, &DeleteParams::default()).await.unwrap();
        }
    }
    let restored = |metadata: &ObjectMeta| ObjectMeta {
        name: metadata.name.clone(),
        labels: metadata.labels.clone(),
        annotations: metadata.annotations.clone(),
        ..ObjectMeta::default()
    };
    let mut uids = Vec::new();
    for secret in &mut backup {
        secret.metadata = restored(&secret.metadata);
        uids.push(fixture.secrets.create(&PostParams::default(), secret).await.unwrap().uid());
    }
    let secrets = &fixture.context().ref_secrets;
    let is_seen = async || secrets.abandoned(|_| false).contains("demo").then_some(());
    fixture.eventually("Secrets without owner", is_seen).await;
    secrets.sweep("demo", &[]).await.unwrap();
    assert_eq!(fixture.content("demo-2").await, names);
    fixture.create("demo", &json!({}), &json!({})).await;
    fixture.revision("demo-1").await;
    set.metadata = restored(&set.metadata);
    let set = fixture.sets.create(&PostParams::default(), &set).await.unwrap();
    for (name, uid) in names.iter().zip(&uids) {
        let is_owned = async || {
            let secret = fixture.secrets.get(name).await.unwrap();
            assert_eq!(secret.uid(), *uid);
            secret.owner_references().iter().any(|owner| Some(&owner.uid) == set.uid().as_ref()).then_some(())
        };
        fixture.eventually("the owner", is_owned).await;
    }
}
