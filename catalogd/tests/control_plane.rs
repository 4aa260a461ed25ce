//! The real binary with a real API server and a registry in the test process: status, content and webhook.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod fixture;

use std::collections::BTreeMap;
use std::future::ready;
use std::pin::pin;
use std::time::Duration;

use fixture::{Catalogd, Fixture, condition, image, reason, resolved};
use futures::StreamExt;
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
    let fixture = Fixture::start().await;
    fixture.create_webhook_configuration().await;
    let catalogd = Catalogd::start(&fixture, "first").await;
    new_catalog_is_served(&fixture, &catalogd).await;
    metrics_require_token(&fixture, &catalogd).await;
    webhook_sets_name_label(&fixture).await;
    restart_keeps_content(&fixture, catalogd).await;
    let catalogd = Catalogd::start(&fixture, "first").await;
    failures_keep_served_content(&fixture, &catalogd).await;
    invalid_catalogs_report_cause(&fixture, &catalogd).await;
    unavailable_catalog_is_withdrawn_and_served_again(&fixture, &catalogd).await;
    follower_serves_and_becomes_leader(&fixture, catalogd).await;
    let catalogd = Catalogd::start(&fixture, "first").await;
    deleted_catalog_is_removed(&fixture, &catalogd).await;
    catalogd.stop().await;
}

// Cases catalogd-35, catalogd-46, catalogd-52
async fn new_catalog_is_served(fixture: &Fixture, catalogd: &Catalogd) {
    let digest = fixture.registry.add_image("a/cat", "v1", &image(FIRST));
    fixture.create("cat", "a/cat:v1", json!({})).await;
    let catalog = fixture.until("cat", |catalog| condition(catalog, "Serving").is_some()).await;
    let expect = |reason: &str, message: &str| json!({"status": "True", "reason": reason, "message": message, "observedGeneration": 1});
    assert_eq!(condition(&catalog, "Progressing"), Some(expect("Succeeded", UNPACKED)));
    assert_eq!(condition(&catalog, "Serving"), Some(expect("Available", SERVING)));
    let status = serde_json::to_value(catalog.status.as_ref().unwrap()).unwrap();
    assert_eq!(
        status["urls"],
        json!({"base": format!("https://{}/catalogs/cat", catalogd.external_address())})
    );
    let resolved = format!("{}/a/cat@{digest}", fixture.registry.host());
    assert_eq!(status["resolvedSource"], json!({"type": "Image", "image": {"ref": resolved}}));
    assert!(status["lastUnpacked"].as_str().is_some_and(|time| time.len() == "2026-01-01T00:00:00Z".len()));
    assert_eq!(catalog.metadata.finalizers.unwrap(), [finalizers::DELETE_SERVER_CACHE]);
    assert_eq!(catalog.metadata.labels.unwrap()[labels::METADATA_NAME], "cat");

    assert_eq!(catalogd.get(fixture, "cat/api/v1/all").await, (200, FIRST_LINES.to_owned()));
    let metas = catalogd.get(fixture, "cat/api/v1/metas?schema=olm.package").await;
    assert_eq!(metas, (200, FIRST_LINES.lines().next().unwrap().to_owned() + "\n"));
    assert_eq!(catalogd.get(fixture, "none/api/v1/all").await, (404, "404 Not Found\n".to_owned()));
}

// Cases catalogd-60, operations-a4, operations-a6
async fn metrics_require_token(fixture: &Fixture, catalogd: &Catalogd) {
    let url = format!("https://localhost:{}/metrics", catalogd.metrics_port);
    let client = fixture.client().await;
    assert_eq!(client.get(&url).send().await.unwrap().status(), 401);
    let answer = client.get(&url).bearer_auth(fixture.token()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let text = answer.text().await.unwrap();
    assert!(text.contains("catalogd_http_request_duration_seconds_count{code=\"200\"} 2"), "{text}");
    assert!(text.contains("leader_election_master_status{name=\"catalogd-operator-lock\"} 1"), "{text}");
}

// Cases catalogd-59, api-13, operations-a33
async fn webhook_sets_name_label(fixture: &Fixture) {
    let catalog = fixture.catalog(
        "dry",
        "a/cat:v1",
        json!({"metadata": {"labels": {"x": "y", labels::METADATA_NAME: "wrong"}}}),
    );
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let created = fixture.catalogs().create(&dry, &catalog).await.unwrap();
    let expect = BTreeMap::from([
        ("x".to_owned(), "y".to_owned()),
        (labels::METADATA_NAME.to_owned(), "dry".to_owned()),
    ]);
    assert_eq!(created.metadata.labels, Some(expect));
    let without: Patch<Value> = Patch::Merge(json!({"metadata": {"labels": {labels::METADATA_NAME: null}}}));
    let dry = PatchParams { dry_run: true, ..PatchParams::default() };
    let answer = fixture.catalogs().patch("cat", &dry, &without).await.unwrap();
    assert_eq!(answer.metadata.labels.unwrap()[labels::METADATA_NAME], "cat");
}

// Case api-41, docs/design/architecture.md#every-replica-serves-content: a restart neither pulls nor parses, and
// preserves the date of the content
async fn restart_keeps_content(fixture: &Fixture, catalogd: Catalogd) {
    let before = fixture.until("cat", |_| true).await;
    let modified = catalogd.last_modified(fixture, "cat").await;
    let _ = fixture.registry.take_requests();
    catalogd.kill().await;
    next_second(&before).await;
    let catalogd = Catalogd::start(fixture, "first").await;
    assert_eq!(catalogd.get(fixture, "cat/api/v1/all").await, (200, FIRST_LINES.to_owned()));
    assert_eq!(catalogd.last_modified(fixture, "cat").await, modified);
    // The new leader updates lastUnpacked once.
    let unpacked = |catalog: &ClusterCatalog| catalog.status.clone().unwrap().last_unpacked;
    let after = fixture.until("cat", |catalog| unpacked(catalog) != unpacked(&before)).await;
    assert_eq!(after.status.unwrap().conditions, before.status.unwrap().conditions);
    assert_eq!(fixture.registry.take_requests(), [""; 0]);

    // A polled tag is resolved without a pull. A moved tag is pulled.
    fixture.patch("cat", json!({"spec": {"source": {"image": {"pollIntervalMinutes": 1}}}})).await;
    fixture.until("cat", |catalog| condition(catalog, "Serving").unwrap()["observedGeneration"] == 2).await;
    let requests = fixture.registry.take_requests();
    assert!(requests.iter().all(|request| !request.contains("/blobs/")), "{requests:?}");
    catalogd.stop().await;
    let digest = fixture.registry.add_image("a/cat", "v1", &image("schema: second\n"));
    let catalogd = Catalogd::start(fixture, "first").await;
    fixture.until("cat", |catalog| resolved(catalog).ends_with(&digest)).await;
    assert_eq!(catalogd.get(fixture, "cat/api/v1/all").await, (200, "{\"schema\":\"second\"}\n".to_owned()));
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
async fn failures_keep_served_content(fixture: &Fixture, catalogd: &Catalogd) {
    let host = fixture.registry.host();
    let image = |tag: &str| json!({"spec": {"source": {"image": {"ref": format!("{host}/a/cat:{tag}")}}}});
    let before = fixture.patch("cat", image("missing")).await;
    let generation = before.metadata.generation.unwrap();
    let failing = fixture.until("cat", |catalog| reason(catalog, "Progressing") == "Retrying").await;
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
    assert_eq!(catalogd.get(fixture, "cat/api/v1/all").await.0, 200);

    fixture.patch("cat", image("v1")).await;
    let healed = fixture.until("cat", |catalog| reason(catalog, "Progressing") == "Succeeded").await;
    for type_ in ["Progressing", "Serving"] {
        assert_eq!(condition(&healed, type_).unwrap()["observedGeneration"], json!(generation + 1));
    }
}

// Cases catalogd-24, catalogd-25, catalogd-53 (in part), cases api-35, api-38: neither delays the other
async fn invalid_catalogs_report_cause(fixture: &Fixture, catalogd: &Catalogd) {
    fixture.registry.add_image("a/bad", "v1", &image("schema: a\n--- foo\nschema: b\n"));
    let entries = BTreeMap::from([("configs/x.yaml".to_owned(), LayerEntry::file("schema: a\n"))]);
    let unlabeled =
        Image::new(vec![Layer::new(&entries).unwrap()], &BTreeMap::new(), &Runtime::default()).unwrap();
    let digest = fixture.registry.add_image("a/unlabeled", "v1", &unlabeled);
    fixture.registry.add_fault("/v2/a/hanging/", 100, olm_image::registry::Fault::Hang);

    fixture.create("hanging", "a/hanging:v1", json!({})).await;
    fixture.create("bad", "a/bad:v1", json!({})).await;
    fixture.create("unlabeled-tag", "a/unlabeled:v1", json!({})).await;
    fixture.create("unlabeled-digest", &format!("a/unlabeled@{digest}"), json!({})).await;
    let both = json!({"spec": {"source": {"image": {"ref": format!("{}/a/x:v1@{digest}", fixture.registry.host())}}}});
    fixture.create("both", "a/x:v1", both).await;

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
            "unlabeled-tag",
            "True",
            "Retrying",
            format!("source catalog content: error applying image: {label}"),
        ),
        (
            "unlabeled-digest",
            "False",
            "Blocked",
            format!("source catalog content: error applying image: terminal error: {label}"),
        ),
        ("both", "False", "Blocked", both_text),
    ];
    for (name, status, reason, message) in rows {
        let catalog = fixture.until(name, |catalog| condition(catalog, "Progressing").is_some()).await;
        let expect = json!({"status": status, "reason": reason, "message": message, "observedGeneration": 1});
        assert_eq!(condition(&catalog, "Progressing"), Some(expect), "{name}");
        assert_eq!(condition(&catalog, "Serving"), None, "{name}");
        assert_eq!(catalogd.get(fixture, &format!("{name}/api/v1/all")).await.0, 404);
    }
    // A fixed image under the same tag is served without user action.
    fixture.registry.add_image("a/bad", "v1", &image("schema: fixed\n"));
    fixture.until("bad", |catalog| reason(catalog, "Serving") == "Available").await;
    for name in ["hanging", "bad", "unlabeled-tag", "unlabeled-digest", "both"] {
        fixture.delete(name).await;
    }
}

// Cases catalogd-40, api-37
async fn unavailable_catalog_is_withdrawn_and_served_again(fixture: &Fixture, catalogd: &Catalogd) {
    fixture.patch("cat", json!({"spec": {"availabilityMode": "Unavailable"}})).await;
    let off = fixture.until("cat", |catalog| catalog.metadata.finalizers.is_none()).await;
    let generation = off.metadata.generation.unwrap();
    let expect = |status: &str, reason: &str| json!({"status": status, "reason": reason, "message": SWITCHED_OFF, "observedGeneration": generation});
    assert_eq!(condition(&off, "Serving"), Some(expect("False", "UserSpecifiedUnavailable")));
    assert_eq!(condition(&off, "Progressing"), Some(expect("True", "Succeeded")));
    let status = off.status.unwrap();
    assert!(status.resolved_source.is_none() && status.urls.is_none() && status.last_unpacked.is_none());
    assert_eq!(catalogd.get(fixture, "cat/api/v1/all").await, (404, "404 Not Found\n".to_owned()));

    fixture.patch("cat", json!({"spec": {"availabilityMode": "Available"}})).await;
    fixture.until("cat", |catalog| reason(catalog, "Serving") == "Available").await;
    assert_eq!(catalogd.get(fixture, "cat/api/v1/all").await.0, 200);
}

// docs/design/architecture.md#every-replica-serves-content, docs/design/operations.md#catalogd-followers; case
// catalogd-58 (in part)
async fn follower_serves_and_becomes_leader(fixture: &Fixture, leader: Catalogd) {
    let follower = Catalogd::start(fixture, "second").await;
    let content = leader.get(fixture, "cat/api/v1/all").await;
    assert_eq!(follower.get(fixture, "cat/api/v1/all").await, content);
    let leases: Api<Lease> = Api::namespaced(fixture.plane.client(), fixture::NAMESPACE);
    let holder = async || {
        let lease = leases.get("catalogd-operator-lock").await.unwrap();
        lease.spec.unwrap().holder_identity.unwrap()
    };
    assert_eq!(holder().await, "first_uid-first");

    let before = fixture.until("cat", |_| true).await;
    let _ = fixture.registry.take_requests();
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
    let after = fixture
        .until("cat", |catalog| {
            catalog.status.as_ref().unwrap().last_unpacked != before.status.as_ref().unwrap().last_unpacked
        })
        .await;
    assert_eq!(holder().await, "second_uid-second");
    assert_eq!(after.status.unwrap().conditions, before.status.unwrap().conditions);
    let requests = fixture.registry.take_requests();
    assert!(requests.iter().all(|request| !request.contains("/blobs/")), "{requests:?}");
    follower.stop().await;
}

// Cases catalogd-41, catalogd-42, catalogd-44, api-40
async fn deleted_catalog_is_removed(fixture: &Fixture, catalogd: &Catalogd) {
    fixture
        .patch(
            "cat",
            json!({"metadata": {"finalizers": [finalizers::DELETE_SERVER_CACHE, "example.org/keep"]}}),
        )
        .await;
    fixture.catalogs().delete("cat", &DeleteParams::default()).await.unwrap();
    let kept = fixture
        .until("cat", |catalog| {
            catalog.metadata.finalizers.as_ref().is_some_and(|all| all == &["example.org/keep"])
        })
        .await;
    let serving = condition(&kept, "Serving").unwrap();
    assert_eq!(
        (&serving["status"], &serving["reason"], &serving["message"]),
        (&json!("False"), &json!("Unavailable"), &json!(""))
    );
    assert_eq!(catalogd.get(fixture, "cat/api/v1/all").await.0, 404);
    let content = fixture.cache("first").join("catalogs");
    assert_eq!(std::fs::read_dir(content).unwrap().count(), 0);
    let patch: Patch<Value> = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    fixture.catalogs().patch("cat", &PatchParams::default(), &patch).await.unwrap();
    fixture.until_gone("cat", Duration::from_secs(60)).await;
}

// docs/design/additions.md#status-summary, docs/design/additions.md#opt-in
#[tokio::test(flavor = "multi_thread")]
async fn summary_follows_gate_and_repeated_apply_changes_nothing() {
    let fixture = Fixture::start().await;
    let catalogd = Catalogd::start_alone(&fixture, "pod", &["--feature-gates=StatusSummary=true"]).await;
    fixture.registry.add_image("a/cat", "v1", &image(FIRST));
    let mut object = serde_json::to_value(fixture.catalog("cat", "a/cat:v1", json!({}))).unwrap();
    object["metadata"]["labels"] = json!({"team": "a"});
    let apply = PatchParams::apply("argocd");
    fixture.catalogs().patch("cat", &apply, &Patch::Apply(&object)).await.unwrap();
    let observed = |catalog: &ClusterCatalog| catalog.status.as_ref().and_then(|one| one.observed_generation);
    let is_ready = |catalog: &ClusterCatalog| {
        observed(catalog) == catalog.metadata.generation
            && condition(catalog, "Ready").is_some_and(|ready| ready["status"] == "True")
    };
    let served = fixture.until("cat", is_ready).await;
    let expected =
        json!({"status": "True", "reason": "Available", "message": SERVING, "observedGeneration": 1});
    assert_eq!(condition(&served, "Ready"), Some(expected));
    assert_eq!((reason(&served, "Reconciling"), reason(&served, "Stalled")), (String::new(), String::new()));

    // A server-side diff compares the live object with the answer of a dry run.
    let dry = PatchParams { dry_run: true, ..apply.clone() };
    let predicted = fixture.catalogs().patch("cat", &dry, &Patch::Apply(&object)).await.unwrap();
    assert_eq!(predicted, served);
    let again = fixture.catalogs().patch("cat", &apply, &Patch::Apply(&object)).await.unwrap();
    assert_eq!(again.metadata.resource_version, served.metadata.resource_version);

    let missing = format!("{}/a/cat:missing", fixture.registry.host());
    fixture.patch("cat", json!({"spec": {"source": {"image": {"ref": missing}}}})).await;
    let failing = fixture.until("cat", |catalog| reason(catalog, "Reconciling") == "Retrying").await;
    assert_eq!(condition(&failing, "Ready").unwrap()["status"], "False");
    assert_eq!((observed(&failing), reason(&failing, "Serving")), (Some(2), "Available".to_owned()));
    fixture.patch("cat", json!({"spec": {"availabilityMode": "Unavailable"}})).await;
    let off = fixture.until("cat", |catalog| reason(catalog, "Serving") == "UserSpecifiedUnavailable").await;
    assert_eq!((observed(&off), condition(&off, "Ready")), (Some(3), None));

    catalogd.stop().await;
    let catalogd = Catalogd::start_alone(&fixture, "pod", &[]).await;
    let without = fixture.until("cat", |catalog| observed(catalog).is_none()).await;
    assert_eq!(without.status.unwrap().conditions, off.status.unwrap().conditions);
    catalogd.stop().await;
}
