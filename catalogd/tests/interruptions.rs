//! Downtime and hanging pulls: missed deletions are detected, and obsolete pulls are canceled.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use harness::{ALONE, Catalogd, World, eventually, image, image_of};
use olm_image::digest_of;
use olm_image::registry::Fault;
use serde_json::json;

const FOREVER: usize = usize::MAX;

#[tokio::test(flavor = "multi_thread")]
async fn missed_deletions_and_hanging_pulls_do_not_block_catalogs() {
    let world = World::start().await;
    deletions_are_noticed_when_all_is_listed(&world).await;
    pulls_end_with_the_process(&world).await;
    hanging_catalogs_hold_up_no_other_one(&world).await;
    as_many_files_as_the_system_allows(&world).await;
}

// As after an interrupted watch: no event reports the deletion.
async fn deletions_are_noticed_when_all_is_listed(world: &World) {
    let digest = world.registry.add_image("a/gone", "v1", &image("schema: gone\n"));
    let catalogd = Catalogd::start_alone(world, "pod", &[]).await;
    world.create("gone", "a/gone:v1", json!({})).await;
    world.until_served("gone", &digest).await;
    catalogd.kill().await;
    world.patch("gone", json!({"metadata": {"finalizers": null}})).await;
    world.delete("gone").await;

    let begun = Instant::now();
    let catalogd = Catalogd::start_alone(world, "pod", &[]).await;
    let content = world.cache("pod").join("catalogs/gone");
    eventually("content is removed", async || (!content.exists()).then_some(())).await;
    assert_eq!(catalogd.get(world, "gone/api/v1/all").await.0, 404);
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    catalogd.stop().await;
}

async fn pulls_end_with_the_process(world: &World) {
    world.registry.add_fault("/v2/a/hanging/", FOREVER, Fault::Hang);
    let catalogd = Catalogd::start_alone(world, "pod", &[]).await;
    world.create("hanging", "a/hanging:v1", json!({})).await;
    let asked = async || {
        let requests = world.registry.take_requests();
        requests.iter().any(|line| line.contains("/v2/a/hanging/")).then_some(())
    };
    eventually("registry receives a request", asked).await;
    let begun = Instant::now();
    catalogd.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

/// More catalogs than concurrent reconciles, on a registry that accepts connections and never answers.
async fn hanging_catalogs_hold_up_no_other_one(world: &World) {
    let hanging = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let image_at = |number: usize| format!("{}/a/hanging-{number}:v1", hanging.local_addr().unwrap());
    let catalogd = Catalogd::start_alone(world, "pod", &[]).await;
    for number in 0..40 {
        let source = json!({"spec": {"source": {"image": {"ref": image_at(number)}}}});
        world.create(&format!("hanging-{number}"), "a/none:v1", source).await;
    }
    let digest = world.registry.add_image("a/other", "v1", &image("schema: other\n"));
    world.create("other", "a/other:v1", json!({})).await;
    world.until_served("other", &digest).await;
    // Each catalog can still be changed or deleted.
    let good =
        json!({"spec": {"source": {"image": {"ref": format!("{}/a/other:v1", world.registry.host())}}}});
    world.patch("hanging-39", good).await;
    world.until_served("hanging-39", &digest).await;
    for number in 0..39 {
        world.delete(&format!("hanging-{number}")).await;
    }
    world.delete("hanging-39").await;
    world.delete("other").await;
    let begun = Instant::now();
    catalogd.stop().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

async fn as_many_files_as_the_system_allows(world: &World) {
    let few = ["sh", "-c", "ulimit -Sn 300; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_catalogd")];
    let catalogd = Catalogd::launch(world, "few", &few, &ALONE);
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
    let world = World::start().await;
    let leader = Catalogd::start(&world, "first").await;
    let large = "schema: large\n".to_owned() + &"# padding\n".repeat(200_000);
    let large = image_of(&BTreeMap::from([("catalog.yaml".to_owned(), large.into_bytes())]));
    let stuck = image("schema: stuck\n");
    for (name, image) in [("refused", &large), ("stuck", &stuck)] {
        let digest = world.registry.add_image(&format!("a/{name}"), "v1", image);
        world.create(name, &format!("a/{name}:v1"), json!({})).await;
        world.until_served(name, &digest).await;
    }
    let layer = digest_of(&stuck.layers[0].blob);
    world.registry.add_fault(&format!("/v2/a/stuck/blobs/{layer}"), FOREVER, Fault::Hang);
    let follower = Catalogd::start_with(&world, "second", &["--image-limits=file-bytes=1Mi"]).await;
    eventually("large image is refused", async || {
        world.log("second").contains("reconcile failed permanently").then_some(())
    })
    .await;
    for name in ["refused", "stuck"] {
        assert_eq!(follower.get(&world, &format!("{name}/api/v1/all")).await.0, 503);
        let digest = world.registry.add_image(&format!("a/{name}"), "v1", &image("schema: new\n"));
        world.refresh(name).await;
        world.until_served(name, &digest).await;
        eventually("follower serves the content", async || {
            let answer = follower.get(&world, &format!("{name}/api/v1/all")).await;
            (answer == (200, "{\"schema\":\"new\"}\n".to_owned())).then_some(())
        })
        .await;
    }
    follower.stop().await;
    leader.stop().await;
}
