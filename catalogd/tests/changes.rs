//! Changes that cause a reconcile of a catalog, and changes that do not.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod fixture;

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use fixture::{
    Catalogd, Fixture, NAMESPACE, condition, eventually, files_below, free_port, image, message, reason,
    resolved,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use olm_api::ClusterCatalog;
use olm_image::registry::{Access, Registry};
use olm_image::{Image, Layer, LayerEntry, Runtime};
use serde_json::{Value, json};

const POD: &str = "pod";
const FLAGS: [&str; 2] = ["--global-pull-secret=olmv1-system/pull", "--gc-interval=1s"];

#[tokio::test(flavor = "multi_thread")]
async fn only_relevant_changes_cause_polls_and_reconciles() {
    let fixture = Fixture::start().await;
    let catalogd = Catalogd::start_alone(&fixture, POD, &FLAGS).await;
    let polled = begin_polling(&fixture).await;
    own_writes_cause_no_reconcile(&fixture).await;
    status_is_restored(&fixture).await;
    refresh_annotation_causes_one_poll(&fixture).await;
    digests_are_never_polled(&fixture).await;
    terminal_error_is_retried_on_change_only(&fixture).await;
    // From here on all catalogs are requeued now and then, because inputs that all depend on change.
    let locked = begin_credentials(&fixture).await;
    catalog_recovers_when_registry_starts(&fixture).await;
    new_ca_file_retries_failing_catalogs(&fixture).await;
    poll_interval_requires_tag(&fixture).await;
    content_without_catalog_is_removed(&fixture).await;
    end_credentials(&fixture, locked).await;
    end_polling(&fixture, polled).await;
    new_pod_unpacks_all_catalogs(&fixture, catalogd).await;
}

/// A polled catalog and one that is not, both with a moved tag.
struct PolledCatalog {
    moved: Instant,
    digest: String,
}

// Case catalogd-38
async fn begin_polling(fixture: &Fixture) -> PolledCatalog {
    let poll = json!({"spec": {"source": {"image": {"pollIntervalMinutes": 1}}}});
    let first = fixture.registry.add_image("a/moving", "v1", &image("schema: first\n"));
    fixture.create("polled", "a/moving:v1", poll).await;
    fixture.create("unpolled", "a/moving:v1", json!({})).await;
    for name in ["polled", "unpolled"] {
        fixture.until_served(name, &first).await;
    }
    let digest = fixture.registry.add_image("a/moving", "v1", &image("schema: second\n"));
    PolledCatalog { moved: Instant::now(), digest }
}

async fn end_polling(fixture: &Fixture, polled: PolledCatalog) {
    fixture.until_served("polled", &polled.digest).await;
    let took = polled.moved.elapsed();
    assert!(took < Duration::from_secs(120), "{took:?}");
    let unpolled = fixture.catalogs().get("unpolled").await.unwrap();
    assert!(!resolved(&unpolled).ends_with(&polled.digest));
}

/// Waits until all pending reconciles are done.
async fn settle(fixture: &Fixture) {
    let digest = fixture.registry.add_image("a/barrier", "v1", &image("schema: barrier\n"));
    fixture.create("barrier", "a/barrier:v1", json!({})).await;
    fixture.until_served("barrier", &digest).await;
    fixture.delete("barrier").await;
}

// docs/design/catalogd.md#retries; case catalogd-43 (log lines)
async fn own_writes_cause_no_reconcile(fixture: &Fixture) {
    let digest = fixture.registry.add_image("a/cat", "v1", &image("schema: one\n"));
    fixture.create("cat", "a/cat:v1", json!({})).await;
    fixture.until_served("cat", &digest).await;
    settle(fixture).await;
    // Two reconciles: finalizer and label, then content and status. There is no webhook.
    assert_eq!(fixture.reconciles(POD, "cat"), 2);
    let log = fixture.log(POD);
    let ends = log.lines().filter(|line| line.contains("reconcile ending") && line.contains("name=\"cat\""));
    assert_eq!(ends.count(), 2);
}

// Cases catalogd-44, api-39
async fn status_is_restored(fixture: &Fixture) {
    let before = fixture.catalogs().get("cat").await.unwrap();
    let strange = json!({"type": "Strange", "status": "True", "reason": "A", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let mut conditions = serde_json::to_value(&before.status.as_ref().unwrap().conditions).unwrap();
    conditions.as_array_mut().unwrap().push(strange.clone());
    let edit = json!({"status": {"urls": null, "conditions": conditions}});
    let _ = fixture.registry.take_requests();
    let params = PatchParams::default();
    fixture.catalogs().patch_status("cat", &params, &Patch::Merge(edit)).await.unwrap();
    let mut expected = serde_json::to_value(&before.status).unwrap();
    expected["conditions"].as_array_mut().unwrap().push(strange);
    fixture.until("cat", |catalog| serde_json::to_value(&catalog.status).unwrap() == expected).await;
    let requests = fixture.registry.take_requests();
    assert!(!requests.iter().any(|line| line.contains("/a/cat/")), "{requests:?}");
    settle(fixture).await;
    assert_eq!(fixture.reconciles(POD, "cat"), 3);
}

// docs/design/additions.md#annotations, docs/design/catalogd.md#reconcile-order; case catalogd-20
async fn refresh_annotation_causes_one_poll(fixture: &Fixture) {
    let before = fixture.catalogs().get("cat").await.unwrap();
    let requests = async || {
        settle(fixture).await;
        let mut requests = fixture.registry.take_requests();
        requests.retain(|line| line.contains("/a/cat/") || line.ends_with(" /v2/"));
        requests.iter().filter(|line| line.contains("/a/cat/")).cloned().collect::<Vec<_>>()
    };
    let _ = fixture.registry.take_requests();
    fixture.refresh("cat").await;
    eventually("the registry is polled", async || (fixture.reconciles(POD, "cat") == 4).then_some(())).await;
    assert_eq!(requests().await, ["HEAD /v2/a/cat/manifests/v1"], "an unchanged digest is not fetched");
    // Other changes of the object do not cause a poll.
    fixture.patch("cat", json!({"metadata": {"labels": {"x": "y"}}})).await;
    eventually("the catalog is reconciled", async || (fixture.reconciles(POD, "cat") == 5).then_some(()))
        .await;
    assert_eq!(requests().await, [""; 0]);
    let same = fixture.catalogs().get("cat").await.unwrap();
    assert_eq!(same.status, before.status);

    let digest = fixture.registry.add_image("a/cat", "v1", &image("schema: two\n"));
    fixture.refresh("cat").await;
    fixture.until_served("cat", &digest).await;
}

// Case catalogd-21
async fn digests_are_never_polled(fixture: &Fixture) {
    let digest = fixture.registry.add_image("a/pinned", "v1", &image("schema: pinned\n"));
    fixture.create("pinned", &format!("a/pinned@{digest}"), json!({})).await;
    fixture.until_served("pinned", &digest).await;
    let _ = fixture.registry.take_requests();
    fixture.patch("pinned", json!({"spec": {"priority": 7}})).await;
    fixture.until("pinned", |catalog| observed(catalog) == Some(2)).await;
    fixture.refresh("pinned").await;
    settle(fixture).await;
    let requests = fixture.registry.take_requests();
    assert!(!requests.iter().any(|line| line.contains("/a/pinned/")), "{requests:?}");
}

fn observed(catalog: &ClusterCatalog) -> Option<i64> {
    condition(catalog, "Serving")?["observedGeneration"].as_i64()
}

// Case catalogd-24: only a change causes another attempt, and a changed label is one
async fn terminal_error_is_retried_on_change_only(fixture: &Fixture) {
    let entries = BTreeMap::from([("configs/x.yaml".to_owned(), LayerEntry::file("schema: a\n"))]);
    let layers = vec![Layer::new(&entries).unwrap()];
    let unlabeled = Image::new(layers, &BTreeMap::new(), &Runtime::default()).unwrap();
    let digest = fixture.registry.add_image("a/blocked", "v1", &unlabeled);
    fixture.create("blocked", &format!("a/blocked@{digest}"), json!({})).await;
    fixture.until("blocked", |catalog| reason(catalog, "Progressing") == "Blocked").await;
    settle(fixture).await;
    assert_eq!(fixture.reconciles(POD, "blocked"), 2);
    let _ = fixture.registry.take_requests();
    settle(fixture).await;
    let asked = |requests: &[String]| requests.iter().any(|line| line.contains("/a/blocked/"));
    assert!(!asked(&fixture.registry.take_requests()));
    fixture.patch("blocked", json!({"metadata": {"labels": {"try": "again"}}})).await;
    eventually("another attempt is made", async || asked(&fixture.registry.take_requests()).then_some(()))
        .await;
    fixture.delete("blocked").await;
}

// Case catalogd-36
async fn catalog_recovers_when_registry_starts(fixture: &Fixture) {
    let port = free_port();
    let digest = fixture.registry.add_image("a/late", "v1", &image("schema: late\n"));
    let reference = format!("127.0.0.1:{port}/a/late:v1");
    fixture.create("late", "a/late:v1", json!({"spec": {"source": {"image": {"ref": reference}}}})).await;
    let failing = fixture.until("late", |catalog| reason(catalog, "Progressing") == "Retrying").await;
    let status = serde_json::to_value(failing.status.unwrap()).unwrap();
    assert_eq!(status.as_object().unwrap().keys().collect::<Vec<_>>(), ["conditions"]);
    assert_eq!(status["conditions"].as_array().unwrap().len(), 1);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let registry = fixture.registry.host();
    let forwarding = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = tokio::net::TcpStream::connect(&registry).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
        }
    });
    fixture.until_served("late", &digest).await;
    forwarding.abort();
    fixture.delete("late").await;
}

// Case catalogd-28, and failing catalogs are retried when the CA directory changes
async fn new_ca_file_retries_failing_catalogs(fixture: &Fixture) {
    let other = Registry::start().await.unwrap();
    let digest = other.add_image("a/other", "v1", &image("schema: other\n"));
    let reference = format!("{}/a/other:v1", other.host());
    fixture.create("other", "a/other:v1", json!({"spec": {"source": {"image": {"ref": reference}}}})).await;
    fixture.until("other", |catalog| reason(catalog, "Progressing") == "Retrying").await;
    std::fs::write(fixture.file("cas/other.crt"), other.ca_pem()).unwrap();
    fixture.until_served("other", &digest).await;
    fixture.delete("other").await;
    let is_logged = async || fixture.log(POD).contains("registry settings changed").then_some(());
    eventually("the change is logged", is_logged).await;
}

// Case catalogd-39
async fn poll_interval_requires_tag(fixture: &Fixture) {
    let digest = format!("a/x@sha256:{}", "0".repeat(64));
    let poll = json!({"spec": {"source": {"image": {"pollIntervalMinutes": 1}}}});
    let catalog = fixture.catalog("wrong", &digest, poll);
    let refused = fixture.catalogs().create(&PostParams::default(), &catalog).await.unwrap_err().to_string();
    assert!(
        refused.contains("cannot specify pollIntervalMinutes while using digest-based image"),
        "{refused}"
    );
}

// Case catalogd-44: content without a catalog is removed, unless it is too young
async fn content_without_catalog_is_removed(fixture: &Fixture) {
    let catalogs = fixture.cache(POD).join("catalogs");
    for name in ["ghost", "young"] {
        std::fs::create_dir(catalogs.join(name)).unwrap();
    }
    let old = SystemTime::now() - Duration::from_secs(120);
    std::fs::File::open(catalogs.join("ghost")).unwrap().set_modified(old).unwrap();
    eventually("the ghost is removed", async || (!catalogs.join("ghost").exists()).then_some(())).await;
    assert!(catalogs.join("young").exists() && catalogs.join("cat/content").exists());
}

/// A catalog on a registry that requires credentials, which were created later.
struct PrivateCatalog {
    /// Kept running until dropped.
    _registry: Registry,
    digest: String,
}

// docs/design/images.md#pull-secrets; case catalogd-29
async fn begin_credentials(fixture: &Fixture) -> PrivateCatalog {
    let registry = Registry::start().await.unwrap();
    std::fs::write(fixture.file("cas/locked.crt"), registry.ca_pem()).unwrap();
    registry.set_access(Access::Basic("user".to_owned(), "password".to_owned()));
    let digest = registry.add_image("a/secret", "v1", &image("schema: secret\n"));
    let reference = format!("{}/a/secret:v1", registry.host());
    fixture.create("secret", "a/secret:v1", json!({"spec": {"source": {"image": {"ref": reference}}}})).await;
    let failing = fixture.until("secret", |catalog| reason(catalog, "Progressing") == "Retrying").await;
    assert!(
        message(&failing, "Progressing").contains("unauthorized"),
        "{}",
        message(&failing, "Progressing")
    );
    let auths = json!({"auths": {registry.host(): {"username": "user", "password": "password"}}});
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": "pull"}, "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": auths.to_string()},
    }))
    .unwrap();
    let secrets: Api<Secret> = Api::namespaced(fixture.plane.client(), NAMESPACE);
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    PrivateCatalog { _registry: registry, digest }
}

async fn end_credentials(fixture: &Fixture, locked: PrivateCatalog) {
    fixture.until_served("secret", &locked.digest).await;
    assert!(!fixture.log(POD).contains("password"));
}

// Case catalogd-43
async fn new_pod_unpacks_all_catalogs(fixture: &Fixture, catalogd: Catalogd) {
    let names = ["cat", "pinned"];
    let mut before = BTreeMap::new();
    for name in names {
        before.insert(name, fixture.catalogs().get(name).await.unwrap());
    }
    catalogd.stop().await;
    olm_oci::remove_folder(&fixture.cache(POD)).unwrap();
    let started = Timestamp::now();
    let catalogd = Catalogd::start_alone(fixture, "new", &FLAGS).await;
    for name in names {
        let unpacked = |catalog: &ClusterCatalog| catalog.status.clone().unwrap().last_unpacked.unwrap().0;
        let after = fixture.until(name, |catalog| unpacked(catalog) != unpacked(&before[name])).await;
        assert!(unpacked(&after).as_second() >= started.as_second());
        let all: Value =
            serde_json::from_str(&catalogd.get(fixture, &format!("{name}/api/v1/all")).await.1).unwrap();
        assert!(all["schema"].is_string());
        assert!(fixture.reconciles("new", name) > 0);
    }
    assert!(files_below(&fixture.cache("new")).contains(&"catalogs/cat/content".to_owned()));
    catalogd.stop().await;
}
