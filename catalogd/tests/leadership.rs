//! A leader that loses its Lease follows, and may lead again, in the same process (docs/design/operations.md#lease).

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod fixture;

use std::process::Command;

use fixture::{Catalogd, Fixture, NAMESPACE, eventually, image};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;

async fn until_holder(fixture: &Fixture, pod: &str) {
    let leases: Api<Lease> = Api::namespaced(fixture.plane.client(), NAMESPACE);
    let expected = Some(format!("{pod}_uid-{pod}"));
    eventually("the pod holds the Lease", async || {
        let lease = leases.get("catalogd-operator-lock").await.ok()?;
        (lease.spec?.holder_identity == expected).then_some(())
    })
    .await;
}

async fn until_logged(fixture: &Fixture, pod: &str, text: &str) {
    eventually("the line is logged", async || fixture.log(pod).contains(text).then_some(())).await;
}

fn signal(replica: &Catalogd, name: &str) {
    assert!(Command::new("kill").args([name, &replica.id().to_string()]).status().unwrap().success());
}

/// Creates a catalog and waits until the leader has reported it.
async fn serves_new_catalog(fixture: &Fixture, name: &str) {
    let digest = fixture.registry.add_image(&format!("a/{name}"), "v1", &image(&format!("schema: {name}\n")));
    fixture.create(name, &format!("a/{name}:v1"), json!({})).await;
    fixture.until_served(name, &digest).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn process_survives_an_outage_longer_than_its_lease_and_leads_again() {
    let fixture = Fixture::start().await;
    let mut catalogd = Catalogd::start(&fixture, "first").await;
    serves_new_catalog(&fixture, "one").await;
    fixture.plane.kill_apiserver();
    until_logged(&fixture, "first", "leader election lost").await;
    assert_eq!(catalogd.get(&fixture, "one/api/v1/all").await.0, 200);
    fixture.plane.start_apiserver().await.unwrap();
    serves_new_catalog(&fixture, "two").await;
    assert_eq!(catalogd.ended(), None);
    catalogd.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_leader_follows_its_successor_and_succeeds_it() {
    let fixture = Fixture::start().await;
    let mut first = Catalogd::start(&fixture, "first").await;
    serves_new_catalog(&fixture, "one").await;
    let second = Catalogd::start(&fixture, "second").await;
    signal(&first, "-STOP");
    until_holder(&fixture, "second").await;
    serves_new_catalog(&fixture, "two").await;
    signal(&first, "-CONT");
    until_logged(&fixture, "first", "leader election lost").await;
    eventually("the former leader mirrors the new content", async || {
        (first.get(&fixture, "two/api/v1/all").await.0 == 200).then_some(())
    })
    .await;
    assert_eq!(first.ended(), None);
    second.kill().await;
    until_holder(&fixture, "first").await;
    serves_new_catalog(&fixture, "three").await;
    first.stop().await;
}
