//! Waits for other clients.

use std::sync::Arc;
use std::time::Duration;

use futures::join;
use olm_servers::{Call, Fault, When};
use serde_json::json;
use tokio::sync::Notify;

use crate::CLASSIC_VERSION;
use crate::fixture::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn finalizer_of_a_csv_that_another_client_deletes_is_named() {
    let fixture = Fixture::start(1).await;
    let name = &Fixture::name(0);
    let is_pause = |call: &Call| call.is_mutation() && call.path.contains("/subscriptions/");
    let apply = ["apply", name, "--yes", "--timeout", "1s"];
    let killed = fixture.olm_with(&apply, Fault::Kill, 0, When::Before, is_pause).await;
    assert_eq!(killed.code, -1, "{}", killed.stderr);
    // Classic OLM, which would remove its finalizer, does not run.
    fixture.delete(CLASSIC_VERSION, "ClusterServiceVersion", name, &format!("{name}.v1.0.0")).await;
    for command in ["apply", "rollback"] {
        let ran = fixture.olm(&[command, name, "--yes", "--timeout", "1s"]).await;
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        let expected = "waits for the controllers of its finalizers: operators.coreos.com/csv-cleanup";
        assert!(ran.stderr.contains(expected), "{command}: {}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn crds_of_kinds_with_one_version_are_not_read() {
    let fixture = Fixture::start(1).await;
    let name = &Fixture::name(0);
    let (ran, calls) = fixture.calls(&["apply", name, "--yes"]).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let lists = |kind: &str| calls.iter().filter(|call| call.path.ends_with(kind)).count();
    // Of all kinds, the metadata is listed.
    assert_eq!(lists("/customresourcedefinitions"), lists("/leases"));
}

#[tokio::test(flavor = "multi_thread")]
async fn object_replaced_right_before_the_extension_is_created_is_adopted() {
    let fixture = Fixture::start(1).await;
    let name = &Fixture::name(0);
    let reached = Arc::new(Notify::new());
    let signal = Arc::clone(&reached);
    let is_creation = move |call: &Call| {
        let is_it = call.is_mutation() && call.method == "POST" && call.path.ends_with("/clusterextensions");
        if is_it {
            signal.notify_one();
        }
        is_it
    };
    let delay = Fault::Delay(Duration::from_secs(5));
    let apply = ["apply", name, "--yes"];
    let ran = fixture.olm_with(&apply, delay, 0, When::Before, is_creation);
    let replace = async {
        reached.notified().await;
        fixture.delete("v1", "ServiceAccount", name, name).await;
        let metadata = json!({"namespace": name, "name": name});
        fixture.create(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})).await
    };
    let (ran, _) = join!(ran, replace);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
}
