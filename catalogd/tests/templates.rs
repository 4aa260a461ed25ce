//! Image templates against a control plane whose version changes (docs/design/catalogd.md#image-templates).

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod fixture;

use fixture::version_proxy::VersionProxy;
use fixture::{Catalogd, Fixture, condition, eventually, image, message, reason, resolved};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use olm_api::annotations::{CLASSIC_IMAGE_TEMPLATE, EXT_IMAGE_TEMPLATE};
use olm_image::registry::Fault;
use serde_json::{Value, json};

const RESOLVED: &str = "ImageTemplateResolved";
const VARIABLES: &str = "v{kube_major_version}.{kube_minor_version}";

struct Templates {
    fixture: Fixture,
    proxy: VersionProxy,
}

impl Templates {
    async fn start() -> Self {
        let fixture = Fixture::start().await;
        let proxy = VersionProxy::start(&fixture, "v1.31.4+k3s1").await;
        Self { fixture, proxy }
    }

    /// Starts catalogd, which reads the version each second.
    async fn catalogd(&self) -> Catalogd {
        let kubeconfig = format!("--kubeconfig={}", self.proxy.kubeconfig.display());
        let flags = [kubeconfig.as_str(), "--cluster-version-interval=1s"];
        Catalogd::start_alone(&self.fixture, "pod", &flags).await
    }

    /// Pushes a catalog image. Returns its digest.
    fn push(&self, tag: &str) -> String {
        self.fixture.registry.add_image("a/cat", tag, &image(&format!("schema: {tag}\n")))
    }

    /// Annotation with a template of this tag.
    fn template(&self, key: &str, tag: &str) -> Value {
        let template = format!("{}/a/cat:{tag}", self.fixture.registry.host());
        json!({"metadata": {"annotations": {key: template}}})
    }

    async fn create(&self, name: &str, key: &str, tag: &str) {
        self.fixture.create(name, "a/cat:fallback", self.template(key, tag)).await;
    }

    async fn until_unresolved(&self, name: &str, cause: &str, progressing: &str) {
        let text = format!("cannot construct catalog image reference, because {cause}");
        let catalog = self
            .fixture
            .until(name, |catalog| {
                message(catalog, RESOLVED) == text && reason(catalog, "Serving") == "Available"
            })
            .await;
        assert_eq!(reason(&catalog, RESOLVED), "UnableToResolve");
        assert_eq!(
            (reason(&catalog, "Progressing").as_str(), message(&catalog, "Progressing")),
            (progressing, text)
        );
    }

    /// Waits until a reconcile that was requested before has ended.
    async fn settle(&self) {
        let digest = self.fixture.registry.add_image("a/barrier", "v1", &image("schema: barrier\n"));
        self.fixture.create("barrier", "a/barrier:v1", json!({})).await;
        self.fixture.until_served("barrier", &digest).await;
        self.fixture.delete("barrier").await;
    }

    /// Notes of the Events about references of this catalog, oldest first.
    async fn notes(&self, name: &str) -> Vec<String> {
        let events: Api<Event> = Api::namespaced(self.fixture.plane.client(), "default");
        let about = ListParams::default().fields("reason=ImageTemplateResolved");
        let mut all = events.list(&about).await.unwrap().items;
        all.retain(|event| event.regarding.as_ref().is_some_and(|about| about.name.as_deref() == Some(name)));
        all.sort_by_key(|event| event.event_time.clone());
        all.into_iter().filter_map(|event| event.note).collect()
    }
}

// Cases additions-t02, additions-t03, additions-t05, additions-t06, additions-t07
#[tokio::test(flavor = "multi_thread")]
async fn templated_catalog_follows_version_of_cluster() {
    let templates = Templates::start().await;
    let (fixture, proxy) = (&templates.fixture, &templates.proxy);
    let [first, second, fallback] = ["v1.31", "v1.32", "fallback"].map(|tag| templates.push(tag));
    let _catalogd = templates.catalogd().await;
    fixture.create("plain", "a/cat:fallback", json!({})).await;
    fixture.until_served("plain", &fallback).await;
    templates.settle().await;
    assert_eq!(proxy.requests(), 0, "the version is read only for templates");

    templates.create("ours", EXT_IMAGE_TEMPLATE, VARIABLES).await;
    templates.create("classic", CLASSIC_IMAGE_TEMPLATE, VARIABLES).await;
    for name in ["ours", "classic"] {
        let catalog = fixture.until_served(name, &first).await;
        let expected = json!({"status": "True", "reason": "AllTemplatesResolved",
            "message": "catalog image reference was successfully resolved", "observedGeneration": 1});
        assert_eq!(condition(&catalog, RESOLVED), Some(expected));
        assert!(catalog.spec.source.image.unwrap().ref_.ends_with("/a/cat:fallback"));
    }

    proxy.report(Some("v1.32.0-gke.100"));
    for name in ["ours", "classic"] {
        fixture.until_served(name, &second).await;
    }
    let host = fixture.registry.host();
    let expected = [("31", "4"), ("32", "0")]
        .map(|(minor, patch)| format!("image is {host}/a/cat:v1.{minor} for Kubernetes 1.{minor}.{patch}"));
    eventually("one Event for each reference", async || {
        (templates.notes("ours").await == expected).then_some(())
    })
    .await;

    // Another template with the same result: nothing is pulled.
    let _ = fixture.registry.take_requests();
    fixture.patch("ours", templates.template(EXT_IMAGE_TEMPLATE, "v1.{kube_minor_version}")).await;
    templates.settle().await;
    let requests = fixture.registry.take_requests();
    assert!(!requests.iter().any(|line| line.contains("/a/cat/")), "{requests:?}");
    assert_eq!(reason(&fixture.catalogs().get("ours").await.unwrap(), RESOLVED), "AllTemplatesResolved");

    let off = json!({"spec": {"availabilityMode": "Unavailable"}});
    fixture.patch("classic", off).await;
    fixture.until("classic", |catalog| reason(catalog, "Serving") == "UserSpecifiedUnavailable").await;
    fixture.patch("ours", json!({"metadata": {"annotations": null}})).await;
    let catalog = fixture.until_served("ours", &fallback).await;
    assert_eq!(condition(&catalog, RESOLVED), None);
}

// Cases additions-t04, additions-t08, additions-t09
#[tokio::test(flavor = "multi_thread")]
async fn old_content_is_served_while_template_or_image_fails() {
    let templates = Templates::start().await;
    let (fixture, proxy) = (&templates.fixture, &templates.proxy);
    let [first, fallback] = ["v1.31", "fallback"].map(|tag| templates.push(tag));
    let catalogd = templates.catalogd().await;
    let improper = "one or more template(s) has improper syntax";
    templates.create("new", EXT_IMAGE_TEMPLATE, "v{foo}").await;
    templates.until_unresolved("new", improper, "Blocked").await;
    assert!(resolved(&fixture.catalogs().get("new").await.unwrap()).ends_with(&fallback));
    fixture.patch("new", templates.template(EXT_IMAGE_TEMPLATE, VARIABLES)).await;
    fixture.until_served("new", &first).await;

    templates.create("cat", EXT_IMAGE_TEMPLATE, VARIABLES).await;
    fixture.until_served("cat", &first).await;
    fixture.patch("cat", templates.template(EXT_IMAGE_TEMPLATE, "v{foo}")).await;
    templates.until_unresolved("cat", improper, "Blocked").await;
    let digest = format!("v{{kube_minor_version}}@{first}");
    fixture.patch("cat", templates.template(EXT_IMAGE_TEMPLATE, &digest)).await;
    let refused = format!("{improper}: digest not allowed in template");
    templates.until_unresolved("cat", &refused, "Blocked").await;
    other_repository_is_never_requested(&templates).await;

    // After the loss of the cache, the old content is pulled again, and not that of the spec.
    catalogd.kill().await;
    let catalogd = old_content_is_pulled_after_loss_of_cache(&templates, &first).await;

    // The registry does not have the image of the new version.
    proxy.report(Some("v1.33.0"));
    let missing = |catalog: &olm_api::ClusterCatalog| reason(catalog, "Progressing") == "Retrying";
    let catalog = fixture.until("cat", missing).await;
    assert!(message(&catalog, "Progressing").contains("v1.33"), "{catalog:?}");
    assert!(resolved(&catalog).ends_with(&first));
    assert_eq!(
        (reason(&catalog, RESOLVED).as_str(), reason(&catalog, "Serving").as_str()),
        ("AllTemplatesResolved", "Available")
    );
    let third = templates.push("v1.33");
    fixture.until_served("cat", &third).await;

    // A restart while the registry is down.
    catalogd.kill().await;
    let down = Fault::Status(503, Vec::new(), String::new());
    fixture.registry.add_fault("/v2/a/cat/", usize::MAX, down);
    let catalogd = templates.catalogd().await;
    fixture.until("cat", missing).await;
    assert_eq!(catalogd.get(fixture, "cat/api/v1/all").await, (200, "{\"schema\":\"v1.33\"}\n".to_owned()));
    fixture.registry.clear_faults();
    fixture.until_served("cat", &third).await;
}

/// Annotates `cat`, which is served, with templates of other repositories.
async fn other_repository_is_never_requested(templates: &Templates) {
    let (fixture, host) = (&templates.fixture, templates.fixture.registry.host());
    fixture.registry.add_image("evil/cat", "v1.31", &image("schema: evil\n"));
    let _ = fixture.registry.take_requests();
    let other = format!("the template names another repository than {host}/a/cat of spec.source.image.ref");
    for (key, empty) in
        [(EXT_IMAGE_TEMPLATE, CLASSIC_IMAGE_TEMPLATE), (CLASSIC_IMAGE_TEMPLATE, EXT_IMAGE_TEMPLATE)]
    {
        let template = format!("{host}/evil/cat:{VARIABLES}");
        fixture.patch("cat", json!({"metadata": {"annotations": {key: template, empty: ""}}})).await;
        templates.settle().await;
        templates.until_unresolved("cat", &other, "Blocked").await;
    }
    let requests = fixture.registry.take_requests();
    assert!(!requests.iter().any(|line| line.contains("/evil/")), "{requests:?}");
}

/// Restarts catalogd with an empty cache, then while the version of the cluster is unknown.
async fn old_content_is_pulled_after_loss_of_cache(templates: &Templates, first: &str) -> Catalogd {
    let (fixture, proxy) = (&templates.fixture, &templates.proxy);
    std::fs::remove_dir_all(fixture.cache("pod")).unwrap();
    let catalogd = templates.catalogd().await;
    eventually("old content is served", async || {
        let answer = catalogd.get(fixture, "cat/api/v1/all").await;
        (answer == (200, "{\"schema\":\"v1.31\"}\n".to_owned())).then_some(())
    })
    .await;

    // The version is not known.
    catalogd.kill().await;
    proxy.report(None);
    fixture.patch("cat", templates.template(EXT_IMAGE_TEMPLATE, VARIABLES)).await;
    let catalogd = templates.catalogd().await;
    let unknown = "variable(s) \"{kube_major_version}\", \"{kube_minor_version}\" could not be resolved";
    templates.until_unresolved("cat", unknown, "Retrying").await;
    proxy.report(Some("v1.31.9"));
    fixture.until_served("cat", first).await;
    catalogd
}
