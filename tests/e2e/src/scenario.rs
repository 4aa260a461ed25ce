//! Content of one test: its own package in its own catalog.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet};
use olm_image::Image;
use sample_operator::content::Sample;
use serde_json::{Value, json};

use crate::cluster::one_file;
use crate::{Cluster, PATIENCE, condition, describe, eventually, extension, is_installed, revision_says};

/// Package, catalog, namespace and extension, all named after one test.
pub struct Scenario {
    /// Cluster under test.
    pub cluster: Cluster,
    /// Name of the package, the catalog, the namespace and the extension.
    pub name: String,
    /// Package of the sample operator.
    pub sample: Sample,
    bundles: BTreeMap<String, String>,
}

impl Scenario {
    /// Creates a namespace and pushes bundles of these versions. Creates no OLM objects. The operator is idle.
    pub async fn new(test: &str, versions: &[&str]) -> Result<Self> {
        Self::of(test, Sample::idle, versions).await
    }

    /// Scenario whose catalog offers version 1.0.0, which is installed.
    pub async fn installed(test: &str) -> Result<Self> {
        let scenario = Self::new(test, &["1.0.0"]).await?;
        scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
        scenario.install(json!({})).await?;
        scenario.wait_installed("1.0.0").await?;
        Ok(scenario)
    }

    /// Does the same as [`Scenario::new`] with a different operator, such as [`Sample::webhooks`].
    pub async fn of(test: &str, sample: fn(&str, &str) -> Sample, versions: &[&str]) -> Result<Self> {
        let cluster = Cluster::connect().await?;
        let ending: String = uuid::Uuid::new_v4().simple().to_string().chars().take(5).collect();
        let name = format!("{test}-{ending}");
        let sample = sample(&name, &cluster.operator_image);
        cluster.create_namespace(&name).await?;
        let mut scenario = Self { cluster, name, sample, bundles: BTreeMap::new() };
        for version in versions {
            scenario.push_bundle(version, |_| ()).await?;
        }
        Ok(scenario)
    }

    /// Pushes the bundle of this version with the changes of `change`.
    pub async fn push_bundle(
        &mut self,
        version: &str,
        change: impl FnOnce(&mut BTreeMap<String, Vec<u8>>),
    ) -> Result<()> {
        let mut files = self.sample.bundle(version);
        change(&mut files);
        let image = Image::bundle(&files)?;
        let pushed = self.cluster.push(&format!("e2e/{}", self.name), &format!("v{version}"), &image).await?;
        self.bundles.insert(version.to_owned(), pushed);
        Ok(())
    }

    /// Image reference of this version's bundle.
    pub fn bundle_image(&self, version: &str) -> &str {
        self.bundles.get(version).map_or("", String::as_str)
    }

    /// `olm.channel` entry of this version. `more` is merged into it, such as `replaces`.
    pub fn entry(&self, version: &str, more: Value) -> Value {
        let mut entry = json!({"name": self.sample.bundle_name(version)});
        if let (Some(entry), Some(more)) = (entry.as_object_mut(), more.as_object()) {
            entry.extend(more.clone());
        }
        entry
    }

    /// Entries of a channel in which each version replaces the previous one.
    pub fn chain(&self, versions: &[&str]) -> Vec<Value> {
        let before = std::iter::once(None).chain(versions.iter().map(Some));
        let entry = |(version, before): (&&str, Option<&&str>)| {
            let replaces = before.map(|older| json!({"replaces": self.sample.bundle_name(older)}));
            self.entry(version, replaces.unwrap_or_else(|| json!({})))
        };
        versions.iter().zip(before).map(entry).collect()
    }

    /// Catalog with these channels and all bundles pushed so far.
    pub fn catalog_text(&self, channels: &[(&str, Vec<Value>)]) -> String {
        let bundles: Vec<(&str, String)> =
            self.bundles.iter().map(|(version, image)| (version.as_str(), image.clone())).collect();
        self.sample.catalog(channels, &bundles)
    }

    /// Tag reference of the catalog image.
    pub fn catalog_tag(&self) -> String {
        format!("{}/e2e/{}-catalog:latest", self.cluster.registry, self.name)
    }

    /// Pushes a catalog under the tag. Returns the digest reference.
    pub async fn push_catalog(&self, text: &str) -> Result<String> {
        self.push_catalog_as("latest", text).await
    }

    /// Pushes a catalog under another tag of its repository. Returns the digest reference.
    pub async fn push_catalog_as(&self, tag: &str, text: &str) -> Result<String> {
        let image = Image::catalog(&one_file("catalog.json", text))?;
        self.cluster.push(&format!("e2e/{}-catalog", self.name), tag, &image).await
    }

    /// Pushes the channels, applies a ClusterCatalog with their digest, and waits until it is Serving.
    pub async fn serve(&self, channels: &[(&str, Vec<Value>)]) -> Result<()> {
        let digest = self.push_catalog(&self.catalog_text(channels)).await?;
        self.apply_catalog(json!({"ref": digest})).await?;
        self.wait_served(&digest).await
    }

    /// Applies the ClusterCatalog with this `spec.source.image`.
    pub async fn apply_catalog(&self, image: Value) -> Result<()> {
        self.apply_catalog_as(&self.name, json!({"source": {"type": "Image", "image": image}})).await
    }

    /// Applies a ClusterCatalog with this name and `spec`, which the extension's selector matches.
    pub async fn apply_catalog_as(&self, name: &str, spec: Value) -> Result<()> {
        let catalog = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": name, "labels": {"e2e": self.name}},
            "spec": spec,
        });
        let apply = PatchParams::apply("olm-e2e").force();
        let until = Instant::now() + PATIENCE;
        let mut again = tokio::time::interval(Duration::from_millis(500));
        loop {
            again.tick().await;
            match self.catalogs().patch(name, &apply, &Patch::Apply(&catalog)).await {
                Ok(_) => return Ok(()),
                // catalogd's webhook is unavailable while catalogd restarts. A user would retry, too.
                Err(kube::Error::Api(status))
                    if status.message.contains("webhook") && Instant::now() < until => {}
                Err(error) => return Err(error).context("applying the catalog"),
            }
        }
    }

    /// Waits until the catalog serves the content of this digest reference.
    pub async fn wait_served(&self, digest_reference: &str) -> Result<()> {
        self.wait_served_by(&self.name, digest_reference).await
    }

    /// Waits until the catalog with this name serves the content of this digest reference.
    pub async fn wait_served_by(&self, name: &str, digest_reference: &str) -> Result<()> {
        let expected = digest_reference.to_owned();
        let served = move |catalog: Option<&ClusterCatalog>| {
            catalog.and_then(|catalog| catalog.status.as_ref()).is_some_and(|status| {
                olm_api::conditions::is_true(&status.conditions, "Serving")
                    && status.resolved_source.as_ref().is_some_and(|source| source.image.ref_ == expected)
            })
        };
        self.cluster.wait(&self.catalogs(), name, "serving the pushed content", served).await?;
        Ok(())
    }

    /// Creates the extension. `catalog` is merged into `spec.source.catalog`.
    pub async fn install(&self, catalog: Value) -> Result<()> {
        let mut selected = json!({"selector": {"matchLabels": {"e2e": self.name}}});
        if let (Some(selected), Some(more)) = (selected.as_object_mut(), catalog.as_object()) {
            selected.extend(more.clone());
        }
        let extension = extension(&self.name, &self.name, &self.name, selected);
        self.extensions()
            .create(&PostParams::default(), &extension)
            .await
            .context("creating the extension")?;
        Ok(())
    }

    /// Merges `catalog` into `spec.source.catalog` of the extension.
    pub async fn edit(&self, catalog: Value) -> Result<()> {
        let patch = json!({"spec": {"source": {"catalog": catalog}}});
        self.cluster.merge(&self.extensions(), &self.name, patch).await?;
        Ok(())
    }

    /// Merges annotations, given without the prefix of this implementation, into the extension. `null` removes one.
    pub async fn annotate(&self, annotations: Value) -> Result<()> {
        let prefix = olm_api::annotations::EXT_PREFIX;
        let given = annotations.as_object().cloned().unwrap_or_default();
        let all: Value = given.into_iter().map(|(key, value)| (format!("{prefix}{key}"), value)).collect();
        self.cluster.merge(&self.extensions(), &self.name, json!({"metadata": {"annotations": all}})).await?;
        Ok(())
    }

    /// Waits until the extension has no condition of this type.
    pub async fn wait_without(&self, type_: &'static str) -> Result<ClusterExtension> {
        let gone =
            move |found: Option<&ClusterExtension>| found.is_some_and(|found| describe(found, type_) == "-");
        self.cluster.wait(&self.extensions(), &self.name, &format!("no condition {type_}"), gone).await
    }

    /// Waits until this version is installed and no change is in progress.
    pub async fn wait_installed(&self, version: &str) -> Result<ClusterExtension> {
        let what = format!("version {version} installed");
        self.cluster.wait(&self.extensions(), &self.name, &what, is_installed(version)).await
    }

    /// Waits until the condition, as `Status/Reason: message`, has this prefix and the latest generation.
    pub async fn wait_condition(&self, type_: &'static str, begins: &str) -> Result<ClusterExtension> {
        let what = format!("{type_} {begins}");
        self.cluster.wait(&self.extensions(), &self.name, &what, condition(type_, begins)).await
    }

    /// Current condition as `Status/Reason: message`.
    pub async fn condition_now(&self, type_: &str) -> Result<String> {
        Ok(describe(&self.extensions().get(&self.name).await?, type_))
    }

    /// Waits until a condition of the extension's revision `number`, as `Status/Reason: message`, has this prefix.
    pub async fn wait_revision(
        &self,
        number: u32,
        type_: &'static str,
        begins: &str,
    ) -> Result<ClusterObjectSet> {
        let (name, what) = (format!("{}-{number}", self.name), format!("{type_} {begins}"));
        self.cluster.wait(&self.cluster.all(), &name, &what, revision_says(type_, begins)).await
    }

    /// Waits for an Event with this reason about the extension. Returns its note.
    pub async fn wait_event(&self, reason: &str) -> Result<String> {
        let events: Api<Event> = self.cluster.within("default");
        let about = ListParams::default().fields(&format!("regarding.name={},reason={reason}", self.name));
        let what = format!("event {reason} of {}", self.name);
        eventually(&what, PATIENCE, async || {
            let event = events.list(&about).await?.items.pop();
            event.and_then(|event| event.note).context("no such Event")
        })
        .await
    }

    /// Replaces `spec.config.inline` of the extension.
    pub async fn configure(&self, inline: Value) -> Result<()> {
        let config = json!({"configType": "Inline", "inline": inline});
        let patch = serde_json::from_value(json!([{"op": "add", "path": "/spec/config", "value": config}]))?;
        let patch: Patch<()> = Patch::Json(patch);
        self.extensions().patch(&self.name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// API of the package's greetings in a namespace, in this version.
    pub fn greetings(&self, version: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = sample_operator::greetings(&self.sample.group, version);
        Api::namespaced_with(self.cluster.client.clone(), namespace, &resource)
    }

    /// Creates a greeting with this `spec` in the API version `version`. Waits for webhooks that cannot be called yet: a
    /// node learns of the endpoint of a Service some time after the pod is ready.
    pub async fn greet(
        &self,
        version: &str,
        namespace: &str,
        name: &str,
        spec: Value,
    ) -> kube::Result<DynamicObject> {
        let until = Instant::now() + PATIENCE;
        let mut again = tokio::time::interval(Duration::from_millis(200));
        loop {
            again.tick().await;
            match self.greet_once(version, namespace, name, spec.clone()).await {
                Err(kube::Error::Api(status)) if status.code == 500 && Instant::now() < until => {}
                result => return result,
            }
        }
    }

    /// Does the same as [`Scenario::greet`] without waiting.
    pub async fn greet_once(
        &self,
        version: &str,
        namespace: &str,
        name: &str,
        spec: Value,
    ) -> kube::Result<DynamicObject> {
        let resource = sample_operator::greetings(&self.sample.group, version);
        let greeting = DynamicObject::new(name, &resource).data(json!({ "spec": spec }));
        self.greetings(version, namespace).create(&PostParams::default(), &greeting).await
    }

    /// Deletes all objects of the scenario and waits for that.
    pub async fn finish(self) -> Result<()> {
        self.cluster.delete(&self.extensions(), &self.name).await?;
        self.cluster.wait_gone(&self.extensions(), &self.name).await?;
        let theirs = ListParams::default().labels(&format!("e2e={}", self.name));
        self.catalogs().delete_collection(&DeleteParams::default(), &theirs).await?;
        self.cluster.delete(&self.cluster.all::<k8s_openapi::api::core::v1::Namespace>(), &self.name).await
    }

    /// API of the ClusterExtensions.
    pub fn extensions(&self) -> Api<ClusterExtension> {
        self.cluster.all()
    }

    /// API of the ClusterCatalogs.
    pub fn catalogs(&self) -> Api<ClusterCatalog> {
        self.cluster.all()
    }
}

/// Replaces text in a file of a bundle.
///
/// # Panics
/// The file does not contain the text.
pub fn replace_in(files: &mut BTreeMap<String, Vec<u8>>, path: &str, from: &str, to: &str) {
    let text = files.get(path).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
    assert!(text.contains(from), "{path} does not contain {from:?}");
    files.insert(path.to_owned(), text.replace(from, to).into_bytes());
}
