//! Test fixture: a real API server, a real catalogd on loopback, a pre-filled bundle cache, and the real
//! controller. The tests act as the revision controller.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Instant;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::runtime::reflector::Store;
use kube::{Client, ResourceExt};
use olm_api::conditions::{self, Status, types};
use olm_api::{ClusterCatalog, ClusterObjectSet};
use olm_bundle::Certificates;
use olm_control_plane::{ControlPlane, Options, PATIENCE, pause};
use olm_controller_core::RevisionCache;
use olm_runtime::Component;
use olm_runtime::events::Events;
use olm_serving::ca_pool::{CaPool, CaSources};
use olm_serving::probes::Readiness;
use olm_serving::tls_profile::{ProfileName, TlsProfile, TlsVersion};
use olm_webhook_certificates::{Times, WebhookCertificates};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::ref_secrets::RefSecrets;
use super::*;
use crate::bundles::fixture;
use crate::catalogs::Catalogs;
use crate::catalogs::fixture::{Catalogd, loopback};
use crate::features::Features;
use crate::namespaces::Namespaces;
use crate::operator_conditions::OperatorConditions;

/// Namespace of the system.
pub(super) const SYSTEM: &str = "olmv1-system";
/// Install namespace of the extensions.
pub(super) const NAMESPACE: &str = "ns";

/// Starts an API server with our CRDs and both namespaces.
pub(super) async fn start_api_server(options: Options) -> Arc<ControlPlane> {
    let plane = ControlPlane::reused(options, &olm_api::crds::crds()).await.unwrap();
    let namespaces: Api<Namespace> = Api::all(plane.client());
    for name in [SYSTEM, NAMESPACE] {
        let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }
    plane
}

/// Dependencies of a controller on this API server, with its caches below `cache`.
pub(super) fn parts(client: Client, cache: &Path, catalog_store: Store<ClusterCatalog>) -> Parts {
    let profile = TlsProfile::new(ProfileName::Modern, TlsVersion::Tls12, &[], &[]).unwrap();
    let sources = CaSources { system: Vec::new, directory: None, bundle: None };
    let pool = CaPool::load(sources, profile, None).unwrap();
    let events = Events::new(client.clone(), Component::OperatorController);
    let cache_of_revisions = RevisionCache::new();
    Parts {
        client: client.clone(),
        cache: cache_of_revisions.clone(),
        system_namespace: SYSTEM.to_owned(),
        features: Features {
            single_own_namespace: false,
            deployment_config: true,
            multi_watch_namespaces: true,
            owned_api_services: true,
            impersonation: false,
            status_summary: false,
            extension_plans: false,
            certificates: Certificates::CertManager,
            settings: olm_request::Settings::default(),
        },
        events: events.clone(),
        catalogs: Arc::new(Catalogs::open(cache.join("catalogs"), Arc::new(pool), loopback()).unwrap()),
        catalog_store,
        bundles: fixture::open(&cache.join("unpack")),
        namespaces: Some(Arc::new(Namespaces::new(client.clone()))),
        certificates: WebhookCertificates::new(client, cache_of_revisions, SYSTEM, events, Times::DEFAULT),
        upgrade_targets: Arc::default(),
        operator_conditions: None,
        readiness: Readiness::default(),
    }
}

pub(super) struct Release {
    pub version: &'static str,
    pub manifests: Vec<Value>,
    /// Image reference. `None` means the image of `manifests`.
    pub image: Option<String>,
    /// `true` for a bundle with a deployment.
    pub operator: bool,
}

/// Returns a version whose only manifest is the ConfigMap `settings` with `data.says`.
pub(super) fn version(version: &'static str, says: &str) -> Release {
    let manifests = vec![json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"},
        "data": {"says": says}})];
    Release { version, manifests, image: None, operator: false }
}

struct RunningController {
    context: Arc<ExtensionController>,
    stop: CancellationToken,
    work: JoinHandle<()>,
}

pub(super) struct Fixture {
    pub plane: Arc<ControlPlane>,
    pub extensions: Api<ClusterExtension>,
    pub sets: Api<ClusterObjectSet>,
    pub secrets: Api<Secret>,
    /// Gates of the next controller.
    pub settings: olm_request::Settings,
    catalogd: Catalogd,
    cache: TempDir,
    running: Option<RunningController>,
    /// Gate of the next [`Self::start_controller`].
    pub status_summary: bool,
    /// Gate of the next [`Self::start_controller`].
    pub extension_plans: bool,
    published: Mutex<u32>,
}

impl Fixture {
    pub(super) async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    pub(super) async fn start_with(options: Options) -> Self {
        let plane = start_api_server(options).await;
        let client = plane.client();
        let mut fixture = Self {
            extensions: Api::all(client.clone()),
            sets: Api::all(client.clone()),
            secrets: Api::namespaced(client, SYSTEM),
            plane,
            settings: olm_request::Settings::default(),
            catalogd: Catalogd::start(),
            cache: tempfile::tempdir().unwrap(),
            running: None,
            status_summary: false,
            extension_plans: false,
            published: Mutex::default(),
        };
        fixture.start_controller();
        fixture
    }

    /// Starts the controller, as a new process would.
    pub(super) fn start_controller(&mut self) {
        let (client, stop) = (self.plane.client(), CancellationToken::new());
        let mut parts = parts(client.clone(), self.cache.path(), reflector::store().0);
        parts.features.settings = self.settings;
        parts.operator_conditions =
            OperatorConditions::of_gate(parts.features, &client, &parts.upgrade_targets);
        let (listed, metrics) = (CancellationToken::new(), Arc::new(Metrics::new()));
        let catalogs = Arc::clone(&parts.catalogs);
        let events = watcher(Api::all(client.clone()), watcher::Config::default()).default_backoff();
        let (catalog_store, following) =
            crate::catalogs::run(events, catalogs, Arc::clone(&metrics), listed.clone(), stop.clone());
        parts.catalog_store = catalog_store;
        parts.features.status_summary = self.status_summary;
        parts.features.extension_plans = self.extension_plans;
        let (store, writer) = reflector::store();
        let mut context = ExtensionController::new(parts, store);
        context.ref_secrets = RefSecrets::new(&client, SYSTEM, std::time::Duration::ZERO);
        let context = Arc::new(context);
        let (passes, ended) = (Arc::clone(&context), stop.clone());
        let cache = context.parts.cache.clone();
        let work = tokio::spawn(async move {
            let cached = cache.follow(client, ended.clone());
            let extensions = async {
                if ended.run_until_cancelled(listed.cancelled()).await.is_some() {
                    follow(passes, writer, metrics, ended.clone()).await;
                }
            };
            tokio::join!(following, cached, extensions);
        });
        self.running = Some(RunningController { context, stop, work });
    }

    /// Stops the controller.
    pub(super) async fn stop_controller(&mut self) {
        let RunningController { stop, work, .. } = self.running.take().unwrap();
        stop.cancel();
        work.await.unwrap();
    }

    pub(super) fn context(&self) -> &Arc<ExtensionController> {
        &self.running.as_ref().unwrap().context
    }

    pub(super) fn cache(&self) -> &Path {
        self.cache.path()
    }

    /// Serves the versions from this catalog. Each replaces the one before.
    pub(super) async fn publish(&self, catalog: &str, versions: &[Release]) {
        self.publish_with(catalog, versions, &[]).await;
    }

    /// Like [`Self::publish`], with additional catalog lines.
    pub(super) async fn publish_with(&self, catalog: &str, versions: &[Release], more: &[Value]) {
        let mut lines = vec![json!({"schema": "olm.package", "name": "demo", "defaultChannel": "stable"})];
        let mut entries: Vec<Value> = Vec::new();
        for Release { version, manifests, image, operator } in versions {
            let files = fixture::files(version, manifests);
            let files = if *operator { fixture::with_operator(files) } else { files };
            let image = image.clone().unwrap_or_else(|| {
                self.context().parts.bundles.store_pulled(&files);
                fixture::image(&files)
            });
            let name = format!("demo.v{version}");
            let identity = json!({"packageName": "demo", "version": version});
            lines.push(json!({"schema": "olm.bundle", "package": "demo", "name": name, "image": image,
                "properties": [{"type": "olm.package", "value": identity}]}));
            let before = entries.last().map(|entry| entry["name"].clone());
            let mut entry = json!({"name": name});
            if let Some(before) = before {
                entry["replaces"] = before;
            }
            entries.push(entry);
        }
        lines.push(json!({"schema": "olm.channel", "package": "demo", "name": "stable", "entries": entries}));
        lines.extend(more.iter().cloned());
        let folder = tempfile::tempdir().unwrap();
        let text: Vec<String> = lines.iter().map(Value::to_string).collect();
        fs::write(folder.path().join("catalog.json"), text.join("\n")).unwrap();
        let number = {
            let mut published = self.published.lock().unwrap();
            *published += 1;
            *published
        };
        let mut served = self.catalogd.publish_folder(catalog, number, folder.path());
        served.metadata.generation = None;
        let api: Api<ClusterCatalog> = Api::all(self.plane.client());
        if api.get_opt(catalog).await.unwrap().is_none() {
            api.create(&PostParams::default(), &served).await.unwrap();
        }
        let patch = Patch::Merge(json!({"status": served.status}));
        api.patch_status(catalog, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(super) async fn delete_catalog(&self, catalog: &str) {
        let api: Api<ClusterCatalog> = Api::all(self.plane.client());
        api.delete(catalog, &DeleteParams::default()).await.unwrap();
    }

    /// Creates an extension that installs `demo`, with additional fields in `spec.source.catalog` and `spec`.
    pub(super) async fn create(&self, name: &str, catalog: &Value, spec: &Value) -> ClusterExtension {
        self.create_annotated(name, &json!({}), catalog, spec).await
    }

    /// [`Self::create`] with annotations from the beginning, which no pass can miss.
    pub(super) async fn create_annotated(
        &self,
        name: &str,
        annotations: &Value,
        catalog: &Value,
        spec: &Value,
    ) -> ClusterExtension {
        let mut filter = json!({"packageName": "demo"});
        filter.as_object_mut().unwrap().extend(catalog.as_object().unwrap().clone());
        let mut extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"namespace": NAMESPACE, "source": {"sourceType": "Catalog", "catalog": filter}}});
        extension["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let extension = serde_json::from_value(extension).unwrap();
        self.extensions.create(&PostParams::default(), &extension).await.unwrap()
    }

    pub(super) async fn edit(&self, name: &str, patch: &Value) -> ClusterExtension {
        self.extensions.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    /// Sets our annotations, whose keys are given without the prefix.
    pub(super) async fn annotate(&self, name: &str, annotations: &[(&str, Option<&str>)]) {
        let key = |key: &str| format!("{}{key}", olm_api::annotations::EXT_PREFIX);
        let all: BTreeMap<String, Option<&str>> =
            annotations.iter().map(|(name, value)| (key(name), *value)).collect();
        self.edit(name, &json!({"metadata": {"annotations": all}})).await;
    }

    /// Waits until the extension fulfills `is_so`.
    pub(super) async fn until<T>(
        &self,
        what: &str,
        name: &str,
        is_so: impl Fn(&ClusterExtension) -> Option<T>,
    ) -> T {
        self.eventually(what, async || self.extensions.get_opt(name).await.unwrap().as_ref().and_then(&is_so))
            .await
    }

    /// All extensions and revisions, for the message of a timeout.
    async fn dump_state(&self) -> String {
        let extensions = self.extensions.list(&ListParams::default()).await.unwrap().items;
        let sets = self.sets.list(&ListParams::default()).await.unwrap().items;
        let dump_state = |meta: &ObjectMeta, status: &dyn std::fmt::Debug| {
            let (name, generation) = (meta.name.as_deref().unwrap_or_default(), meta.generation);
            format!("\n{name} {generation:?} {:?} {status:#?}", meta.annotations)
        };
        let all = extensions.iter().map(|one| dump_state(&one.metadata, &one.status));
        all.chain(sets.iter().map(|one| dump_state(&one.metadata, &one.status))).collect()
    }

    /// Waits until a condition of the extension reads `status/reason message` at the current generation.
    pub(super) async fn until_condition(&self, name: &str, type_: &str, text: &str) -> ClusterExtension {
        let shown = |extension: &ClusterExtension| {
            let status = extension.status.as_ref()?;
            let condition = conditions::find(&status.conditions, type_)?;
            let current = condition.observed_generation == extension.metadata.generation;
            (current && line(condition) == text).then(|| extension.clone())
        };
        self.until(&format!("{name} {type_} {text}"), name, shown).await
    }

    /// Current condition as `status/reason message`.
    pub(super) async fn condition(&self, name: &str, type_: &str) -> Option<String> {
        let extension = self.extensions.get(name).await.unwrap();
        conditions::find(&extension.status?.conditions, type_).map(line)
    }

    pub(super) async fn revision(&self, name: &str) -> ClusterObjectSet {
        self.eventually(name, async || self.sets.get_opt(name).await.unwrap()).await
    }

    /// Polls until there is an answer.
    pub(super) async fn eventually<T>(&self, what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
        let start = Instant::now();
        let found = timeout(PATIENCE, async {
            loop {
                if let Some(found) = ask().await {
                    return found;
                }
                pause(start).await;
            }
        });
        match found.await {
            Ok(found) => found,
            Err(_) => panic!("timed out: {what}; {}", self.dump_state().await),
        }
    }

    /// Names of all revisions, sorted.
    pub(super) async fn revisions(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.sets.list(&ListParams::default()).await.unwrap().iter().map(ResourceExt::name_any).collect();
        names.sort();
        names
    }

    pub(super) async fn content(&self, revision: &str) -> Vec<String> {
        let of = format!("{}={revision}", olm_api::labels::REVISION_NAME);
        let secrets = self.secrets.list(&ListParams::default().labels(&of)).await.unwrap();
        secrets.iter().map(ResourceExt::name_any).collect()
    }

    /// Sets conditions of a revision, as the revision controller would.
    pub(super) async fn set_conditions(&self, revision: &str, all: &[(&str, Status, &str, &str)]) {
        let set = self.revision(revision).await;
        let mut conditions = set.status.map(|status| status.conditions).unwrap_or_default();
        for (type_, status, reason, message) in all {
            let generation = set.metadata.generation;
            conditions::set(&mut conditions, type_, *status, reason, message, generation, Timestamp::now());
        }
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        self.sets.patch_status(revision, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Reports a revision as rolled out.
    pub(super) async fn succeed(&self, revision: &str) {
        let set = self.revision(revision).await;
        let version = &set.annotations()[olm_api::annotations::BUNDLE_VERSION];
        let done = format!("Revision {version} has rolled out.");
        let available = "Objects are available and pass all probes.";
        self.set_conditions(
            revision,
            &[
                (types::PROGRESSING, Status::True, "Succeeded", &done),
                (types::AVAILABLE, Status::True, "ProbesSucceeded", available),
                (types::SUCCEEDED, Status::True, "Succeeded", "Revision succeeded rolling out."),
            ],
        )
        .await;
    }

    /// Waits until all earlier changes are reconciled: creates an extension and waits for its status.
    pub(super) async fn until_reconciled(&self, name: &str) {
        let nothing = json!({"packageName": "nothing"});
        self.create(name, &nothing, &json!({})).await;
        let has_status = |extension: &ClusterExtension| extension.status.is_some().then_some(());
        self.until(name, name, has_status).await;
    }

    /// Archives the revision.
    pub(super) async fn archive(&self, revision: &str) {
        let patch = Patch::Merge(json!({"spec": {"lifecycleState": "Archived"}}));
        self.sets.patch(revision, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Events of an extension as `reason note`, sorted.
    pub(super) async fn events(&self, extension: &str) -> Vec<String> {
        let api: Api<Event> = Api::namespaced(self.plane.client(), "default");
        let all = api.list(&ListParams::default()).await.unwrap();
        let about = all.items.into_iter().filter(|event| {
            event.regarding.as_ref().and_then(|about| about.name.as_deref()) == Some(extension)
        });
        let mut lines: Vec<String> = about
            .map(|event| format!("{} {}", event.reason.unwrap_or_default(), event.note.unwrap_or_default()))
            .collect();
        lines.sort();
        lines
    }

    pub(super) async fn until_event(&self, extension: &str, line: &str) {
        self.eventually(line, async || {
            self.events(extension).await.iter().any(|one| one == line).then_some(())
        })
        .await;
    }
}

/// `Progressing` condition of `demo` after the rollout of its first version.
pub(super) const DONE: &str = "True/Succeeded Revision 1.0.0 has rolled out.";

/// Installs the first version of `demo` from the catalog `main`.
pub(super) async fn installed(fixture: &Fixture, catalog: &Value) {
    fixture.publish("main", &[version("1.0.0", "a")]).await;
    fixture.create("demo", catalog, &json!({})).await;
    fixture.succeed("demo-1").await;
    fixture.until_condition("demo", types::PROGRESSING, DONE).await;
}

/// Formats a condition as `status/reason message`.
pub(super) fn line(condition: &olm_api::Condition) -> String {
    format!("{}/{} {}", condition.status, condition.reason, condition.message)
}
