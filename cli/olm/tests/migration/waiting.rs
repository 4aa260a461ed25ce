//! Waits for other clients.

use olm_servers::{Call, Fault, When};

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
