//! The real binary with a real API server and a registry in the test process: status, content and webhook.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::collections::BTreeMap;
use std::future::ready;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use harness::{Catalogd, World, condition, image, reason, resolved};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use olm_api::{ClusterCatalog, finalizers, labels};
use olm_image::{Image, Layer, LayerEntry, Runtime};
use serde_json::{Value, json};

const FIRST: &str = "schema: olm.package\nname: foo\n---\nschema: olm.bundle\npackage: foo\nname: foo.v1\n";
const FIRST_LINES: &str = "{\"name\":\"foo\",\"schema\":\"olm.package\"}\n{\"name\":\"foo.v1\",\"package\":\"foo\",\"schema\":\"olm.bundle\"}\n";
const UNPACKED: &str = "Successfully unpacked and stored content from resolved source";
const SERVING: &str = "Serving desired content from resolved source";
const SWITCHED_OFF: &str = "Catalog availability mode is set to Unavailable";

#[tokio::test(flavor = "multi_thread")]
async fn catalog_lifecycle_is_served_and_reported_in_status() {
    let world = World::start().await;
    world.create_webhook_configuration().await;
    let catalogd = Catalogd::start(&world, "first").await;
    new_catalog_is_served(&world, &catalogd).await;
    metrics_need_a_token(&world, &catalogd).await;
    webhook_labels(&world).await;
    restart_keeps_content(&world, catalogd).await;
    let catalogd = Catalogd::start(&world, "first").await;
    failures_keep_what_is_served(&world, &catalogd).await;
    broken_catalogs_say_why(&world, &catalogd).await;
    switched_off_and_on_again(&world, &catalogd).await;
    follower_serves_and_takes_over(&world, catalogd).await;
    let catalogd = Catalogd::start(&world, "first").await;
    deleted_catalog_is_gone(&world, &catalogd).await;
    catalogd.stop().await;
}

// Cases catalogd-35, catalogd-46, catalogd-52
async fn new_catalog_is_served(world: &World, catalogd: &Catalogd) {
    let digest = world.registry.add_image("a/cat", "v1", &image(FIRST));
    world.create("cat", "a/cat:v1", json!({})).await;
    let catalog = world.until("cat", |catalog| condition(catalog, "Serving").is_some()).await;
    let expect = |reason: &str, message: &str| json!({"status": "True", "reason": reason, "message": message, "observedGeneration": 1});
    assert_eq!(condition(&catalog, "Progressing"), Some(expect("Succeeded", UNPACKED)));
    assert_eq!(condition(&catalog, "Serving"), Some(expect("Available", SERVING)));
    let status = serde_json::to_value(catalog.status.as_ref().unwrap()).unwrap();
    assert_eq!(
        status["urls"],
        json!({"base": format!("https://{}/catalogs/cat", catalogd.external_address())})
    );
    let resolved = format!("{}/a/cat@{digest}", world.registry.host());
    assert_eq!(status["resolvedSource"], json!({"type": "Image", "image": {"ref": resolved}}));
    assert!(status["lastUnpacked"].as_str().is_some_and(|time| time.len() == "2026-01-01T00:00:00Z".len()));
    assert_eq!(catalog.metadata.finalizers.unwrap(), [finalizers::DELETE_SERVER_CACHE]);
    assert_eq!(catalog.metadata.labels.unwrap()[labels::METADATA_NAME], "cat");

    assert_eq!(catalogd.get(world, "cat/api/v1/all").await, (200, FIRST_LINES.to_owned()));
    let metas = catalogd.get(world, "cat/api/v1/metas?schema=olm.package").await;
    assert_eq!(metas, (200, FIRST_LINES.lines().next().unwrap().to_owned() + "\n"));
    assert_eq!(catalogd.get(world, "none/api/v1/all").await, (404, "404 Not Found\n".to_owned()));
}

// Cases catalogd-60, operations-a4, operations-a6
async fn metrics_need_a_token(world: &World, catalogd: &Catalogd) {
    let url = format!("https://localhost:{}/metrics", catalogd.metrics_port);
    let client = world.client().await;
    assert_eq!(client.get(&url).send().await.unwrap().status(), 401);
    let answer = client.get(&url).bearer_auth(world.token()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let text = answer.text().await.unwrap();
    assert!(text.contains("catalogd_http_request_duration_seconds_count{code=\"200\"} 2"), "{text}");
    assert!(text.contains("leader_election_master_status{name=\"catalogd-operator-lock\"} 1"), "{text}");
}

// Cases catalogd-59, api-13, operations-a33
async fn webhook_labels(world: &World) {
    let catalog = world.catalog(
        "dry",
        "a/cat:v1",
        json!({"metadata": {"labels": {"x": "y", labels::METADATA_NAME: "wrong"}}}),
    );
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let created = world.catalogs().create(&dry, &catalog).await.unwrap();
    let expect = BTreeMap::from([
        ("x".to_owned(), "y".to_owned()),
        (labels::METADATA_NAME.to_owned(), "dry".to_owned()),
    ]);
    assert_eq!(created.metadata.labels, Some(expect));
    let without: Patch<Value> = Patch::Merge(json!({"metadata": {"labels": {labels::METADATA_NAME: null}}}));
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let answer = world.catalogs().patch("cat", &dry, &without).await.unwrap();
    assert_eq!(answer.metadata.labels.unwrap()[labels::METADATA_NAME], "cat");
}

// Case api-41, docs/design/architecture.md#every-replica-serves-content: a restart neither pulls nor parses, and
// preserves the date of the content
async fn restart_keeps_content(world: &World, catalogd: Catalogd) {
    let before = world.until("cat", |_| true).await;
    let modified = catalogd.last_modified(world, "cat").await;
    let _ = world.registry.take_requests();
    catalogd.kill().await;
    next_second(&before).await;
    let catalogd = Catalogd::start(world, "first").await;
    assert_eq!(catalogd.get(world, "cat/api/v1/all").await, (200, FIRST_LINES.to_owned()));
    assert_eq!(catalogd.last_modified(world, "cat").await, modified);
    // The new leader updates lastUnpacked once.
    let unpacked = |catalog: &ClusterCatalog| catalog.status.clone().unwrap().last_unpacked;
    let after = world.until("cat", |catalog| unpacked(catalog) != unpacked(&before)).await;
    assert_eq!(after.status.unwrap().conditions, before.status.unwrap().conditions);
    assert_eq!(world.registry.take_requests(), [""; 0]);

    // A polled tag is resolved without a pull. A moved tag is pulled.
    world.patch("cat", json!({"spec": {"source": {"image": {"pollIntervalMinutes": 1}}}})).await;
    world.until("cat", |catalog| condition(catalog, "Serving").unwrap()["observedGeneration"] == 2).await;
    let requests = world.registry.take_requests();
    assert!(requests.iter().all(|request| !request.contains("/blobs/")), "{requests:?}");
    catalogd.stop().await;
    let digest = world.registry.add_image("a/cat", "v1", &image("schema: second\n"));
    let catalogd = Catalogd::start(world, "first").await;
    world.until("cat", |catalog| resolved(catalog).ends_with(&digest)).await;
    assert_eq!(catalogd.get(world, "cat/api/v1/all").await, (200, "{\"schema\":\"second\"}\n".to_owned()));
    catalogd.stop().await;
}

/// Waits until the time in whole seconds is after `lastUnpacked`.
async fn next_second(catalog: &ClusterCatalog) {
    let unpacked = catalog.status.as_ref().unwrap().last_unpacked.as_ref().unwrap().0;
    while Timestamp::now().as_second() <= unpacked.as_second() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

// Cases catalogd-37, api-36
async fn failures_keep_what_is_served(world: &World, catalogd: &Catalogd) {
    let host = world.registry.host();
    let image = |tag: &str| json!({"spec": {"source": {"image": {"ref": format!("{host}/a/cat:{tag}")}}}});
    let before = world.patch("cat", image("missing")).await;
    let generation = before.metadata.generation.unwrap();
    let failing = world.until("cat", |catalog| reason(catalog, "Progressing") == "Retrying").await;
    let progressing = condition(&failing, "Progressing").unwrap();
    assert_eq!(
        (&progressing["status"], &progressing["observedGeneration"]),
        (&json!("True"), &json!(generation))
    );
    let message = progressing["message"].as_str().unwrap();
    let start = format!(
        "source catalog content: error creating image source: reading manifest missing in {host}/a/cat: manifest unknown"
    );
    assert!(message.starts_with(&start), "{message}");
    assert_eq!(condition(&failing, "Serving").unwrap()["observedGeneration"], json!(generation - 1));
    assert_eq!(resolved(&failing), resolved(&before));
    assert_eq!(catalogd.get(world, "cat/api/v1/all").await.0, 200);

    world.patch("cat", image("v1")).await;
    let healed = world.until("cat", |catalog| reason(catalog, "Progressing") == "Succeeded").await;
    for type_ in ["Progressing", "Serving"] {
        assert_eq!(condition(&healed, type_).unwrap()["observedGeneration"], json!(generation + 1));
    }
}

// Cases catalogd-24, catalogd-25, catalogd-53 (in part), cases api-35, api-38: neither delays the other
async fn broken_catalogs_say_why(world: &World, catalogd: &Catalogd) {
    world.registry.add_image("a/bad", "v1", &image("schema: a\n--- foo\nschema: b\n"));
    let entries = BTreeMap::from([("configs/x.yaml".to_owned(), LayerEntry::file("schema: a\n"))]);
    let unlabelled =
        Image::new(vec![Layer::new(&entries).unwrap()], &BTreeMap::new(), &Runtime::default()).unwrap();
    let digest = world.registry.add_image("a/unlabelled", "v1", &unlabelled);
    world.registry.add_fault("/v2/a/hanging/", 100, olm_image::registry::Fault::Hang);

    world.create("hanging", "a/hanging:v1", json!({})).await;
    world.create("bad", "a/bad:v1", json!({})).await;
    world.create("unlabelled-tag", "a/unlabelled:v1", json!({})).await;
    world.create("unlabelled-digest", &format!("a/unlabelled@{digest}"), json!({})).await;
    let both =
        json!({"spec": {"source": {"image": {"ref": format!("{}/a/x:v1@{digest}", world.registry.host())}}}});
    world.create("both", "a/x:v1", both).await;

    let label =
        "catalog image is missing the required label \"operators.operatorframework.io.index.configs.v1\"";
    let both_text = "source catalog content: terminal error: error creating reference: \
                     Docker references with both a tag and digest are currently not supported"
        .to_owned();
    let rows = [
        (
            "bad",
            "True",
            "Retrying",
            "error storing fbc: error walking FBC root: catalog.yaml:2: document 1: invalid Yaml document separator: foo"
                .to_owned(),
        ),
        (
            "unlabelled-tag",
            "True",
            "Retrying",
            format!("source catalog content: error applying image: {label}"),
        ),
        (
            "unlabelled-digest",
            "False",
            "Blocked",
            format!("source catalog content: error applying image: terminal error: {label}"),
        ),
        ("both", "False", "Blocked", both_text),
    ];
    for (name, status, reason, message) in rows {
        let catalog = world.until(name, |catalog| condition(catalog, "Progressing").is_some()).await;
        let expect = json!({"status": status, "reason": reason, "message": message, "observedGeneration": 1});
        assert_eq!(condition(&catalog, "Progressing"), Some(expect), "{name}");
        assert_eq!(condition(&catalog, "Serving"), None, "{name}");
        assert_eq!(catalogd.get(world, &format!("{name}/api/v1/all")).await.0, 404);
    }
    // A fixed image under the same tag is served without user action.
    world.registry.add_image("a/bad", "v1", &image("schema: mended\n"));
    world.until("bad", |catalog| reason(catalog, "Serving") == "Available").await;
    for name in ["hanging", "bad", "unlabelled-tag", "unlabelled-digest", "both"] {
        world.delete(name).await;
    }
}

// Cases catalogd-40, api-37
async fn switched_off_and_on_again(world: &World, catalogd: &Catalogd) {
    world.patch("cat", json!({"spec": {"availabilityMode": "Unavailable"}})).await;
    let off = world.until("cat", |catalog| catalog.metadata.finalizers.is_none()).await;
    let generation = off.metadata.generation.unwrap();
    let expect = |status: &str, reason: &str| json!({"status": status, "reason": reason, "message": SWITCHED_OFF, "observedGeneration": generation});
    assert_eq!(condition(&off, "Serving"), Some(expect("False", "UserSpecifiedUnavailable")));
    assert_eq!(condition(&off, "Progressing"), Some(expect("True", "Succeeded")));
    let status = off.status.unwrap();
    assert!(status.resolved_source.is_none() && status.urls.is_none() && status.last_unpacked.is_none());
    assert_eq!(catalogd.get(world, "cat/api/v1/all").await, (404, "404 Not Found\n".to_owned()));

    world.patch("cat", json!({"spec": {"availabilityMode": "Available"}})).await;
    world.until("cat", |catalog| reason(catalog, "Serving") == "Available").await;
    assert_eq!(catalogd.get(world, "cat/api/v1/all").await.0, 200);
}

// docs/design/architecture.md#every-replica-serves-content, docs/design/operations.md#catalogd-followers; case
// catalogd-58 (in part)
async fn follower_serves_and_takes_over(world: &World, leader: Catalogd) {
    let follower = Catalogd::start(world, "second").await;
    let content = leader.get(world, "cat/api/v1/all").await;
    assert_eq!(follower.get(world, "cat/api/v1/all").await, content);
    let leases: Api<Lease> = Api::namespaced(world.plane.client(), harness::NAMESPACE);
    let holder = async || {
        let lease = leases.get("catalogd-operator-lock").await.unwrap();
        lease.spec.unwrap().holder_identity.unwrap()
    };
    assert_eq!(holder().await, "first_uid-first");

    let before = world.until("cat", |_| true).await;
    let _ = world.registry.take_requests();
    next_second(&before).await;
    // The follower may acquire the Lease at once, so the Lease is watched.
    let only = WatchParams::default().fields("metadata.name=catalogd-operator-lock");
    let changes = leases.watch(&only, "0").await.unwrap();
    leader.stop().await;
    let released = changes.filter_map(|change| {
        let WatchEvent::Modified(lease) = change.unwrap() else { return ready(None) };
        ready(lease.spec.unwrap().holder_identity.filter(String::is_empty))
    });
    let released = tokio::time::timeout(Duration::from_secs(10), pin!(released).next()).await;
    assert_eq!(released.unwrap().as_deref(), Some(""), "lease must be released");
    let after = world
        .until("cat", |catalog| {
            catalog.status.as_ref().unwrap().last_unpacked != before.status.as_ref().unwrap().last_unpacked
        })
        .await;
    assert_eq!(holder().await, "second_uid-second");
    assert_eq!(after.status.unwrap().conditions, before.status.unwrap().conditions);
    let requests = world.registry.take_requests();
    assert!(requests.iter().all(|request| !request.contains("/blobs/")), "{requests:?}");
    follower.stop().await;
}

// Cases catalogd-41, catalogd-42, catalogd-44, api-40
async fn deleted_catalog_is_gone(world: &World, catalogd: &Catalogd) {
    world
        .patch(
            "cat",
            json!({"metadata": {"finalizers": [finalizers::DELETE_SERVER_CACHE, "example.org/keep"]}}),
        )
        .await;
    world.catalogs().delete("cat", &DeleteParams::default()).await.unwrap();
    let kept = world
        .until("cat", |catalog| {
            catalog.metadata.finalizers.as_ref().is_some_and(|all| all == &["example.org/keep"])
        })
        .await;
    let serving = condition(&kept, "Serving").unwrap();
    assert_eq!(
        (&serving["status"], &serving["reason"], &serving["message"]),
        (&json!("False"), &json!("Unavailable"), &json!(""))
    );
    assert_eq!(catalogd.get(world, "cat/api/v1/all").await.0, 404);
    let content = world.cache("first").join("catalogs");
    assert_eq!(std::fs::read_dir(content).unwrap().count(), 0);
    let patch: Patch<Value> = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    world.catalogs().patch("cat", &PatchParams::default(), &patch).await.unwrap();
    world.until_gone("cat", Duration::from_secs(60)).await;
}
