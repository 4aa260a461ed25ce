//! Downtime and hanging pulls: missed deletions are detected, and obsolete pulls are canceled.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod fixture;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fixture::{Catalogd, Fixture, STANDALONE, eventually, image, image_of};
use olm_image::digest_of;
use olm_image::registry::Fault;
use serde_json::json;
use tokio::sync::watch;

const FOREVER: usize = usize::MAX;

#[tokio::test(flavor = "multi_thread")]
async fn missed_deletions_and_hanging_pulls_do_not_block_catalogs() {
    let fixture = Fixture::start().await;
    missed_deletion_is_detected_after_list(&fixture).await;
    pull_is_cancelled_on_shutdown(&fixture).await;
    hanging_pulls_do_not_delay_other_catalogs(&fixture).await;
    refresh_requested_during_a_pull_causes_another_poll(&fixture).await;
    open_file_limit_is_raised(&fixture).await;
}

// As after an interrupted watch: no event reports the deletion.
async fn missed_deletion_is_detected_after_list(fixture: &Fixture) {
    let digest = fixture.registry.add_image("a/gone", "v1", &image("schema: gone\n"));
    let catalogd = Catalogd::start_alone(fixture, "pod", &[]).await;
    fixture.create("gone", "a/gone:v1", json!({})).await;
    fixture.until_served("gone", &digest).await;
    catalogd.kill().await;
    fixture.patch("gone", json!({"metadata": {"finalizers": null}})).await;
    fixture.delete("gone").await;

    let begun = Instant::now();
    let catalogd = Catalogd::start_alone(fixture, "pod", &[]).await;
    let content = fixture.cache("pod").join("catalogs/gone");
    eventually("content is removed", async || (!content.exists()).then_some(())).await;
    assert_eq!(catalogd.get(fixture, "gone/api/v1/all").await.0, 404);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    catalogd.stop().await;
}

async fn pull_is_cancelled_on_shutdown(fixture: &Fixture) {
    fixture.registry.add_fault("/v2/a/hanging/", FOREVER, Fault::Hang);
    let catalogd = Catalogd::start_alone(fixture, "pod", &[]).await;
    fixture.create("hanging", "a/hanging:v1", json!({})).await;
    let asked = async || {
        let requests = fixture.registry.take_requests();
        requests.iter().any(|line| line.contains("/v2/a/hanging/")).then_some(())
    };
    eventually("registry receives a request", asked).await;
    let begun = Instant::now();
    catalogd.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// More catalogs than concurrent reconciles, on a registry that accepts connections and never answers.
async fn hanging_pulls_do_not_delay_other_catalogs(fixture: &Fixture) {
    let hanging = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let image_at = |number: usize| format!("{}/a/hanging-{number}:v1", hanging.local_addr().unwrap());
    let catalogd = Catalogd::start_alone(fixture, "pod", &[]).await;
    for number in 0..40 {
        let source = json!({"spec": {"source": {"image": {"ref": image_at(number)}}}});
        fixture.create(&format!("hanging-{number}"), "a/none:v1", source).await;
    }
    let digest = fixture.registry.add_image("a/other", "v1", &image("schema: other\n"));
    fixture.create("other", "a/other:v1", json!({})).await;
    fixture.until_served("other", &digest).await;
    // Each catalog can still be changed or deleted.
    let good =
        json!({"spec": {"source": {"image": {"ref": format!("{}/a/other:v1", fixture.registry.host())}}}});
    fixture.patch("hanging-39", good).await;
    fixture.until_served("hanging-39", &digest).await;
    for number in 0..39 {
        fixture.delete(&format!("hanging-{number}")).await;
    }
    fixture.delete("hanging-39").await;
    fixture.delete("other").await;
    let begun = Instant::now();
    catalogd.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

// A running pull may have resolved the tag before the tag moved.
async fn refresh_requested_during_a_pull_causes_another_poll(fixture: &Fixture) {
    let first = image("schema: first\n");
    let layer = format!("/v2/a/moved/blobs/{}", digest_of(&first.layers[0].blob));
    fixture.registry.add_image("a/moved", "v1", &first);
    let (release, held) = watch::channel(());
    fixture.registry.add_fault(&layer, 1, Fault::Held(held));
    let catalogd = Catalogd::start_alone(fixture, "pod", &[]).await;
    fixture.create("moved", "a/moved:v1", json!({})).await;
    let asked =
        async || fixture.registry.take_requests().iter().any(|line| line.contains(&layer)).then_some(());
    eventually("registry receives a request", asked).await;
    let second = fixture.registry.add_image("a/moved", "v1", &image("schema: second\n"));
    let ended = || {
        let log = std::fs::read_to_string(fixture.file("pod.log")).unwrap();
        let is_end = |line: &&str| line.contains("reconcile ending") && line.contains("\"moved\"");
        log.lines().filter(is_end).count()
    };
    let before = ended();
    fixture.refresh("moved").await;
    eventually("a reconcile ends while the pull runs", async || (ended() > before).then_some(())).await;
    drop(release);
    fixture.until_served("moved", &second).await;
    fixture.delete("moved").await;
    catalogd.stop().await;
}

async fn open_file_limit_is_raised(fixture: &Fixture) {
    let few = ["sh", "-c", "ulimit -Sn 300; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_catalogd")];
    let catalogd = Catalogd::launch(fixture, "few", &few, &STANDALONE);
    let limits = format!("/proc/{}/limits", catalogd.id());
    eventually("file limit is raised", async || {
        let text = std::fs::read_to_string(&limits).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap().to_owned();
        let mut values = line.split_whitespace();
        (values.next() == values.next()).then_some(())
    })
    .await;
}

// docs/design/architecture.md#every-replica-serves-content: a replica that cannot hold the served content continues
// when other content is served.
#[tokio::test(flavor = "multi_thread")]
async fn follower_recovers_after_refused_or_hanging_content() {
    let fixture = Fixture::start().await;
    let leader = Catalogd::start(&fixture, "first").await;
    let large = "schema: large\n".to_owned() + &"# padding\n".repeat(200_000);
    let large = image_of(&BTreeMap::from([("catalog.yaml".to_owned(), large.into_bytes())]));
    let stuck = image("schema: stuck\n");
    for (name, image) in [("refused", &large), ("stuck", &stuck)] {
        let digest = fixture.registry.add_image(&format!("a/{name}"), "v1", image);
        fixture.create(name, &format!("a/{name}:v1"), json!({})).await;
        fixture.until_served(name, &digest).await;
    }
    let layer = digest_of(&stuck.layers[0].blob);
    fixture.registry.add_fault(&format!("/v2/a/stuck/blobs/{layer}"), FOREVER, Fault::Hang);
    let follower = Catalogd::start_with(&fixture, "second", &["--image-limits=file-bytes=1Mi"]).await;
    eventually("large image is refused", async || {
        fixture.log("second").contains("reconcile failed permanently").then_some(())
    })
    .await;
    for name in ["refused", "stuck"] {
        assert_eq!(follower.get(&fixture, &format!("{name}/api/v1/all")).await.0, 503);
        let digest = fixture.registry.add_image(&format!("a/{name}"), "v1", &image("schema: new\n"));
        fixture.refresh(name).await;
        fixture.until_served(name, &digest).await;
        eventually("follower serves the content", async || {
            let answer = follower.get(&fixture, &format!("{name}/api/v1/all")).await;
            (answer == (200, "{\"schema\":\"new\"}\n".to_owned())).then_some(())
        })
        .await;
    }
    follower.stop().await;
    leader.stop().await;
}
