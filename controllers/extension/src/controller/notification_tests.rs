//! Condition `UpgradeAvailable` with gate `UpdateNotifications`, against a real API server
//! (docs/design/additions.md#update-notifications).

use olm_api::ClusterExtension;
use olm_api::conditions::find;
use olm_api::conditions::types::{PROGRESSING, UPGRADE_AVAILABLE};
use serde_json::json;

use super::fixture::{Fixture, installed, version};

const UP_TO_DATE: &str = "False/UpToDate no newer version is held back";
const WAITS: &str = "True/OutsideVersionRange bundle demo.v2.0.0 version 2.0.0 from catalog main is available and held \
                     back: outside of version range \"1.0.0\"; to release it, change spec.source.catalog.version so \
                     that it admits 2.0.0";

async fn restart(fixture: &mut Fixture, gate: bool) {
    fixture.stop_controller().await;
    fixture.settings.update_notifications = gate;
    fixture.start_controller();
}

fn available(extension: &ClusterExtension) -> Option<&str> {
    extension.status.as_ref()?.available_version.as_deref()
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_version_is_reported_only_with_the_gate_and_without_needless_writes() {
    let mut fixture = Fixture::start().await;
    installed(&fixture, &json!({"version": "1.0.0"})).await;
    let both = || [version("1.0.0", "a"), version("2.0.0", "b")];
    fixture.publish("main", &both()).await;
    fixture.until_reconciled("first").await;
    assert_eq!(fixture.condition("demo", UPGRADE_AVAILABLE).await, None);

    restart(&mut fixture, true).await;
    let waiting = fixture.until_condition("demo", UPGRADE_AVAILABLE, WAITS).await;
    assert_eq!(available(&waiting), Some("2.0.0"));
    let revisions = &waiting.status.as_ref().unwrap().active_revisions;
    assert!(revisions.iter().all(|revision| find(&revision.conditions, UPGRADE_AVAILABLE).is_none()));
    // Other content with the same answer, and a restart.
    let other = json!({"schema": "olm.channel", "package": "demo", "name": "other", "entries": [{"name": "demo.v1.0.0"}]});
    fixture.publish_with("main", &both(), &[other]).await;
    fixture.until_reconciled("second").await;
    restart(&mut fixture, true).await;
    fixture.until_reconciled("third").await;
    let unchanged = fixture.extensions.get("demo").await.unwrap();
    assert_eq!(unchanged.metadata.resource_version, waiting.metadata.resource_version);

    // The newer version is withdrawn, and offered again.
    fixture.publish("main", &[version("1.0.0", "a")]).await;
    assert_eq!(available(&fixture.until_condition("demo", UPGRADE_AVAILABLE, UP_TO_DATE).await), None);
    fixture.publish("main", &both()).await;
    fixture.until_condition("demo", UPGRADE_AVAILABLE, WAITS).await;

    restart(&mut fixture, false).await;
    let removed = |extension: &ClusterExtension| {
        let status = extension.status.as_ref()?;
        find(&status.conditions, UPGRADE_AVAILABLE).is_none().then(|| extension.clone())
    };
    let without = fixture.until("the condition is removed", "demo", removed).await;
    assert_eq!(available(&without), None);

    // The pin is lifted.
    restart(&mut fixture, true).await;
    fixture.until_condition("demo", UPGRADE_AVAILABLE, WAITS).await;
    fixture.edit("demo", &json!({"spec": {"source": {"catalog": {"version": null}}}})).await;
    fixture.succeed("demo-2").await;
    fixture.until_condition("demo", PROGRESSING, "True/Succeeded Revision 2.0.0 has rolled out.").await;
    assert_eq!(available(&fixture.until_condition("demo", UPGRADE_AVAILABLE, UP_TO_DATE).await), None);
}
