//! Approvals and upgrade windows on a real API server.

use kube::ResourceExt;
use olm_api::ClusterExtension;
use olm_api::conditions::{self, types};
use serde_json::json;

use super::fixture::{DONE, Fixture, installed, version};

/// Message of a condition with this type, status and reason.
fn message(extension: &ClusterExtension, type_: &str, state: &str) -> Option<String> {
    let found = conditions::find(&extension.status.as_ref()?.conditions, type_)?;
    (format!("{}/{}", found.status, found.reason) == state).then(|| found.message.clone())
}

async fn held(fixture: &Fixture, type_: &str, state: &str, begins: &str) -> String {
    let found = |extension: &ClusterExtension| {
        message(extension, type_, state).filter(|message| message.starts_with(begins))
    };
    fixture.until(&format!("{type_} {state} {begins}"), "demo", found).await
}

/// Digest of the plan in a message.
fn digest(message: &str) -> String {
    let digest = message.split_once("; plan ").unwrap().1.split_once(": ").unwrap().0.to_owned();
    assert!(digest.starts_with("sha256:"), "{message}");
    digest
}

async fn until_done(fixture: &Fixture, revision: &str, version: &str) {
    fixture.succeed(revision).await;
    let done = format!("True/Succeeded Revision {version} has rolled out.");
    fixture.until_condition("demo", types::PROGRESSING, &done).await;
}

// docs/design/approvals.md#approval
#[tokio::test(flavor = "multi_thread")]
async fn upgrade_waits_until_its_plan_is_approved() {
    let mut fixture = Fixture::start().await;
    installed(&fixture, &json!({})).await;
    fixture.annotate("demo", &[("approval", Some("ManualUpgrades"))]).await;
    let up_to_date = "False/UpToDate no newer version is held back";
    fixture.until_condition("demo", types::UPGRADE_AVAILABLE, up_to_date).await;
    fixture.publish("main", &[version("1.0.0", "a"), version("1.1.0", "b")]).await;
    let available = "bundle demo.v1.1.0 version 1.1.0 from catalog main is available; plan sha256:";
    let (type_, state) = (types::UPGRADE_AVAILABLE, "True/ApprovalRequired");
    let reported = held(&fixture, type_, state, available).await;
    assert!(
        reported.contains(": 0 objects created, 1 changed, 0 deleted; to approve it, run `olm approve demo`"),
        "{reported}"
    );
    assert_eq!(fixture.condition("demo", types::PROGRESSING).await.unwrap(), DONE);
    let plan = digest(&reported);

    // At rest nothing is written, not even by a new process.
    let before = fixture.extensions.get("demo").await.unwrap().resource_version();
    fixture.context().parts.catalogs.requeue_extensions();
    fixture.until_reconciled("other").await;
    fixture.stop_controller().await;
    fixture.start_controller();
    fixture.until_reconciled("another").await;
    assert_eq!(fixture.extensions.get("demo").await.unwrap().resource_version(), before);
    assert_eq!(fixture.revisions().await, ["demo-1"]);

    // An edit is observed, and not reported as applied.
    let edited = fixture.edit("demo", &json!({"spec": {"source": {"catalog": {"version": "1.x"}}}})).await;
    let generations = |extension: &ClusterExtension| {
        let find =
            |type_| conditions::find(&extension.status.as_ref()?.conditions, type_)?.observed_generation;
        (find(type_) == edited.metadata.generation).then(|| find(types::PROGRESSING))
    };
    let applied = fixture.until("the edit", "demo", generations).await;
    assert!(applied < edited.metadata.generation, "{applied:?}");

    // Another plan is not approved.
    let other = format!("sha256:{}", "0".repeat(64));
    fixture.annotate("demo", &[("approved", Some(&other))]).await;
    fixture.until_reconciled("third").await;
    assert_eq!(fixture.revisions().await, ["demo-1"]);
    fixture.annotate("demo", &[("approved", Some(&plan))]).await;
    fixture.revision("demo-2").await;
    until_done(&fixture, "demo-2", "1.1.0").await;
    fixture.until_condition("demo", types::UPGRADE_AVAILABLE, up_to_date).await;

    // The approval lets only its plan through. Configuration is not held in this mode.
    fixture.publish("main", &[version("1.0.0", "a"), version("1.1.0", "b"), version("1.2.0", "c")]).await;
    let next = held(&fixture, type_, state, "bundle demo.v1.2.0 ").await;
    assert_ne!(digest(&next), plan);
    fixture.annotate("demo", &[("approval", None)]).await;
    fixture.revision("demo-3").await;
    until_done(&fixture, "demo-3", "1.2.0").await;
    assert_eq!(fixture.condition("demo", types::UPGRADE_AVAILABLE).await, None);
}

// docs/design/approvals.md#approval
#[tokio::test(flavor = "multi_thread")]
async fn manual_mode_holds_first_install_and_changed_content() {
    let fixture = Fixture::start().await;
    fixture.publish("main", &[version("1.0.0", "a")]).await;
    let manual = ("ext.olm.operatorframework.io/approval".to_owned(), "Manual".to_owned());
    let mut extension: ClusterExtension = serde_json::from_value(json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": "demo"},
        "spec": {"namespace": "ns", "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo"}}}}))
    .unwrap();
    extension.metadata.annotations = Some([manual].into());
    fixture.extensions.create(&Default::default(), &extension).await.unwrap();
    let begins =
        "installation of bundle demo.v1.0.0 version 1.0.0 from catalog main requires approval; plan sha256:";
    let reported = held(&fixture, types::PROGRESSING, "False/Blocked", begins).await;
    assert_eq!(
        fixture.condition("demo", types::INSTALLED).await.unwrap(),
        "False/Absent No bundle installed"
    );
    assert_eq!(fixture.revisions().await, Vec::<String>::new());
    fixture.annotate("demo", &[("approved", Some(&digest(&reported)))]).await;
    fixture.revision("demo-1").await;
    until_done(&fixture, "demo-1", "1.0.0").await;
    // What is installed is not planned again.
    let up_to_date = "False/UpToDate no newer version is held back";
    fixture.until_condition("demo", types::UPGRADE_AVAILABLE, up_to_date).await;
}

// docs/design/approvals.md#upgrade-windows
#[tokio::test(flavor = "multi_thread")]
async fn closed_window_holds_an_upgrade_and_an_open_one_does_not() {
    let fixture = Fixture::start().await;
    installed(&fixture, &json!({})).await;
    fixture.annotate("demo", &[("upgrade-window", Some("0 0 29 2 * 1h"))]).await;
    fixture.publish("main", &[version("1.0.0", "a"), version("1.1.0", "b")]).await;
    let begins = "bundle demo.v1.1.0 version 1.1.0 from catalog main is available; plan sha256:";
    let reported = held(&fixture, types::UPGRADE_AVAILABLE, "True/OutsideWindow", begins).await;
    assert!(reported.ends_with("-02-29T00:00:00Z"), "{reported}");
    assert_eq!(fixture.revisions().await, ["demo-1"]);
    // An invalid window never opens.
    fixture.annotate("demo", &[("upgrade-window", Some("sometimes"))]).await;
    let events = "InvalidAnnotation annotation ext.olm.operatorframework.io/upgrade-window holds upgrades: unknown \
                  value \"sometimes\", allowed: windows such as `0 22 * * 6 4h Europe/Berlin`, separated by semicolons";
    fixture.until_event("demo", events).await;
    let closed = |extension: &ClusterExtension| {
        message(extension, types::UPGRADE_AVAILABLE, "True/OutsideWindow")
            .filter(|message| message.ends_with("; no upgrade window opens"))
    };
    fixture.until("no window", "demo", closed).await;
    fixture.annotate("demo", &[("upgrade-window", Some("* * * * * 2m"))]).await;
    fixture.revision("demo-2").await;
    until_done(&fixture, "demo-2", "1.1.0").await;
    let all = [version("1.0.0", "a"), version("1.1.0", "b"), version("1.2.0", "c")];
    fixture.publish("main", &all).await;
    fixture.revision("demo-3").await;
}
