//! Extensions whose bundle is in a registry that accepts connections and never answers.

use std::time::Duration;

use kube::api::DeleteParams;
use olm_api::conditions::types;
use serde_json::json;
use tokio::time::timeout;

use super::CONCURRENCY;
use super::fixture::{DONE, Fixture, Release, version};
use crate::bundles::fixture::HangingRegistry;

/// Time limit for the shutdown, far below the deadlines of pulls.
const STOP: Duration = Duration::from_secs(5);

fn release(version_: &'static str, image: String) -> Release {
    Release { image: Some(image), ..version(version_, "a") }
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_registry_delays_no_other_extension() {
    let mut fixture = Fixture::start().await;
    let registry = HangingRegistry::start().await;
    let (first, last) = (registry.image("first"), registry.tagged("last"));
    let versions = [release("1.0.0", first.clone()), version("2.0.0", "a"), release("3.0.0", last.clone())];
    fixture.publish("main", &versions).await;
    let exactly = |version: &str| json!({"version": version});
    // With the catalog in the cache, no resolution fails.
    fixture.create("first", &exactly("2.0.0"), &json!({})).await;
    fixture.revision("first-1").await;
    let names: Vec<String> = (0..CONCURRENCY + 8).map(|number| format!("hanging-{number}")).collect();
    for name in &names {
        fixture.create(name, &exactly("1.0.0"), &json!({})).await;
    }
    fixture.create("demo", &exactly("2.0.0"), &json!({})).await;
    fixture.succeed("demo-1").await;
    fixture
        .until_condition("demo", types::PROGRESSING, "True/Succeeded Revision 2.0.0 has rolled out.")
        .await;

    let pulling = format!("True/RollingOut pulling {first}");
    for name in &names {
        fixture.until_condition(name, types::PROGRESSING, &pulling).await;
        fixture.until_condition(name, types::INSTALLED, "False/Absent No bundle installed").await;
    }
    // The message does not change during the pull.
    let before = fixture.extensions.get("hanging-0").await.unwrap();
    fixture.context().parts.catalogs.requeue_extensions();
    fixture.until_reconciled("other").await;
    let after = fixture.extensions.get("hanging-0").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);

    // Deletion and edit of a waiting extension end its pull.
    registry.until_connections(names.len()).await;
    fixture.extensions.delete("hanging-0", &DeleteParams::default()).await.unwrap();
    fixture
        .eventually("the deletion", async || {
            fixture.extensions.get_opt("hanging-0").await.unwrap().is_none().then_some(())
        })
        .await;
    registry.until_connections(names.len() - 1).await;
    let narrowed = json!({"spec": {"source": {"catalog": exactly("2.0.0")}}});
    fixture.edit("hanging-1", &narrowed).await;
    fixture.revision("hanging-1-1").await;
    registry.until_connections(names.len() - 2).await;

    // The installed bundle remains installed during the pull of an upgrade.
    let narrowed = json!({"spec": {"source": {"catalog": exactly("3.0.0")}}});
    fixture.edit("demo", &narrowed).await;
    fixture.until_condition("demo", types::PROGRESSING, &format!("True/RollingOut pulling {last}")).await;
    assert!(fixture.condition("demo", types::INSTALLED).await.unwrap().starts_with("True/Succeeded"));
    assert_eq!(fixture.extensions.get("demo").await.unwrap().status.unwrap().active_revisions.len(), 1);

    timeout(STOP, fixture.stop_controller()).await.expect("the controller did not stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_pull_of_installed_bundle_keeps_status() {
    let mut fixture = Fixture::start().await;
    let registry = HangingRegistry::start().await;
    super::fixture::installed(&fixture, &json!({})).await;
    let installed = fixture.extensions.get("demo").await.unwrap();
    fixture.stop_controller().await;
    // The same bundle, but its content must be pulled.
    std::fs::remove_dir_all(fixture.cache().join("unpack")).unwrap();
    fixture.start_controller();
    fixture.publish("main", &[release("1.0.0", registry.tagged("demo"))]).await;
    registry.until_connections(1).await;
    fixture.until_reconciled("other").await;
    assert_eq!(fixture.condition("demo", types::PROGRESSING).await.unwrap(), DONE);
    let again = fixture.extensions.get("demo").await.unwrap();
    assert_eq!(again.metadata.resource_version, installed.metadata.resource_version);
    assert_eq!(fixture.revisions().await, ["demo-1"]);
}
