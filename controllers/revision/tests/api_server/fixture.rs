//! A real API server, revisions on it, and controllers that stop with the test.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use olm_api::ClusterObjectSet;
use olm_api::conditions::find;
pub(super) use olm_control_plane::eventually;
use olm_control_plane::{ControlPlane, Options, PATIENCE};
use olm_controller_core::RevisionCache;
use olm_revision::cluster::Cluster;
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::object::ObjectKey;
use olm_revision_controller::{NAME, Pace, run};
use olm_runtime::cluster;
use olm_servers::RunningController;
use serde_json::{Value, json};

pub(super) const SYSTEM: &str = "olmv1-system";

pub(super) struct Fixture {
    pub(super) plane: Arc<ControlPlane>,
    cluster: KubeCluster,
}

/// Short durations for tests.
pub(super) const PACE: Pace = Pace {
    minute: SignedDuration::from_secs(10),
    longest_retry: Duration::from_secs(5),
    teardown: SignedDuration::from_mins(2),
    operator: Duration::from_secs(4),
    recreation: Duration::from_secs(5),
    unready: Duration::from_secs(30),
};

/// Time without a change after which counts are stable.
const STABLE: Duration = Duration::from_secs(1);

/// Starts a controller for the API server of this kubeconfig.
pub(super) fn start(kubeconfig: &Path, user: Option<&str>, pace: Pace) -> RunningController {
    let (path, user) = (kubeconfig.to_owned(), user.map(str::to_owned));
    RunningController::start(|metrics, stop| async move {
        let mut config = cluster::config(Some(&path)).await.unwrap();
        config.auth_info.impersonate = user;
        let client = cluster::client(&config, &metrics).unwrap();
        let cache = RevisionCache::new();
        let following = cache.follow(client.clone(), stop.clone());
        let running = run(pace, true, client, cache.clone(), SYSTEM.to_owned(), metrics, stop);
        tokio::join!(following, running);
    })
}

/// Returns the number of completed passes and of responses of the API server by method. A watch counts when it
/// starts.
fn counts(controller: &RunningController) -> (u64, BTreeMap<String, u64>) {
    let (mut passes, mut calls) = (0, BTreeMap::new());
    for line in controller.metrics.prometheus_text().lines() {
        let Some((series, count)) = line.rsplit_once(' ') else { continue };
        let count: u64 = count.parse().unwrap_or_default();
        if series.starts_with("controller_runtime_reconcile_total{") && series.contains(NAME) {
            passes += count;
        }
        if series.starts_with("rest_client_requests_total{") {
            let method = series.split("method=\"").nth(1).unwrap().split('"').next().unwrap();
            *calls.entry(method.to_owned()).or_default() += count;
        }
    }
    (passes, calls)
}

/// Returns the counts once they are stable.
pub(super) async fn stable_counts(controller: &RunningController) -> (u64, BTreeMap<String, u64>) {
    let (mut last, mut since) = (counts(controller), Instant::now());
    let deadline = since + PATIENCE;
    while since.elapsed() < STABLE {
        assert!(Instant::now() < deadline, "request counts are not stable");
        tokio::time::sleep(STABLE / 100).await;
        let now = counts(controller);
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}

/// Returns the requests that `change` causes, by method.
pub(super) async fn calls_for(
    controller: &RunningController,
    change: impl AsyncFnOnce(),
) -> BTreeMap<String, u64> {
    let (passes, mut before) = stable_counts(controller).await;
    change().await;
    eventually("a pass completes", async || (counts(controller).0 > passes).then_some(())).await;
    let (_, mut calls) = stable_counts(controller).await;
    for (method, count) in &mut calls {
        *count -= before.remove(method).unwrap_or_default();
    }
    calls.retain(|_, count| *count > 0);
    calls
}

impl Fixture {
    pub(super) async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    pub(super) async fn start_with(options: Options) -> Self {
        let mut crds = olm_api::crds::crds();
        for crd in &mut crds {
            shorten_deadlines(crd);
        }
        let plane = ControlPlane::reused(options, &crds).await.unwrap();
        let cluster = KubeCluster::new(plane.client());
        let fixture = Self { plane, cluster };
        fixture.namespace(SYSTEM).await;
        fixture
    }

    pub(super) fn controller(&self) -> RunningController {
        self.controller_as(None)
    }

    /// Starts a controller that impersonates `user`, or has all rights without one.
    pub(super) fn controller_as(&self, user: Option<&str>) -> RunningController {
        start(self.plane.kubeconfig(), user, PACE)
    }

    /// Starts a controller that leaves every removal to garbage collection at once.
    pub(super) fn controller_without_ordered_removal(&self) -> RunningController {
        start(self.plane.kubeconfig(), None, Pace { teardown: SignedDuration::ZERO, ..PACE })
    }

    pub(super) fn client(&self) -> Client {
        self.plane.client()
    }

    pub(super) fn sets(&self) -> Api<ClusterObjectSet> {
        Api::all(self.client())
    }

    pub(super) async fn namespace(&self, name: &str) {
        self.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await;
    }

    async fn api(&self, key: &ObjectKey) -> Api<DynamicObject> {
        let found = eventually("the kind is served", async || self.cluster.discover(&key.gvk).await.ok());
        let (resource, scope) = found.await;
        Api::dynamic(self.client(), &resource, &scope).constrain(&key.namespace)
    }

    /// Creates an object like any other client.
    pub(super) async fn create(&self, object: &Value) -> Value {
        let api = self.api(&ObjectKey::of(object)).await;
        let typed = serde_json::from_value(object.clone()).unwrap();
        serde_json::to_value(api.create(&PostParams::default(), &typed).await.unwrap()).unwrap()
    }

    pub(super) async fn get(&self, object: &Value) -> Option<Value> {
        self.cluster.get(&ObjectKey::of(object)).await.ok().flatten()
    }

    pub(super) async fn edit(&self, object: &Value, patch: Value) {
        let key = ObjectKey::of(object);
        let params = PatchParams::default();
        self.api(&key).await.patch(&key.name, &params, &Patch::Merge(patch)).await.unwrap();
    }

    pub(super) async fn edit_status(&self, object: &Value, patch: Value) {
        let key = ObjectKey::of(object);
        let params = PatchParams::default();
        self.api(&key).await.patch_status(&key.name, &params, &Patch::Merge(patch)).await.unwrap();
    }

    pub(super) async fn delete(&self, object: &Value) {
        let key = ObjectKey::of(object);
        self.api(&key).await.delete(&key.name, &DeleteParams::default()).await.unwrap();
    }

    pub(super) async fn until_exists(&self, object: &Value) {
        eventually(&format!("{object} exists"), async || self.get(object).await.map(drop)).await;
    }

    pub(super) async fn until_object_deleted(&self, object: &Value) {
        eventually(&format!("{object} is deleted"), async || self.get(object).await.is_none().then_some(()))
            .await;
    }

    /// Creates the revision `<extension>-<number>` with these phases, modified by `change`.
    pub(super) async fn revision(
        &self,
        extension: &str,
        number: i64,
        phases: Value,
        change: impl FnOnce(&mut Value),
    ) -> String {
        let name = format!("{extension}-{number}");
        let mut set = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": {"name": name, "labels": {"olm.operatorframework.io/owner-name": extension},
                "annotations": {"olm.operatorframework.io/bundle-version": "1.0.0"}},
            "spec": {"lifecycleState": "Active", "revision": number, "collisionProtection": "Prevent",
                "phases": phases}});
        change(&mut set);
        let set = serde_json::from_value(set).unwrap();
        self.sets().create(&PostParams::default(), &set).await.unwrap();
        name
    }

    pub(super) async fn patch(&self, name: &str, patch: Value) {
        self.sets().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(super) async fn delete_revision(&self, name: &str) {
        self.sets().delete(name, &DeleteParams::background()).await.unwrap();
    }

    /// Returns the names of an object's owners.
    pub(super) async fn owners(&self, object: &Value) -> Option<Vec<String>> {
        let live = self.get(object).await?;
        let owners = live["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        Some(owners.iter().map(|owner| owner["name"].as_str().unwrap().to_owned()).collect())
    }

    /// Returns a condition as `Status/Reason message`.
    pub(super) async fn condition(&self, name: &str, type_: &str) -> Option<String> {
        let set = self.sets().get_opt(name).await.ok()??;
        let status = set.status?;
        find(&status.conditions, type_).map(|c| format!("{}/{} {}", c.status, c.reason, c.message))
    }

    /// Waits until the condition begins with this text, and returns it.
    pub(super) async fn until_condition(&self, name: &str, type_: &str, begins: &str) -> String {
        eventually(&format!("{name}: {type_} {begins}"), async || {
            self.condition(name, type_).await.filter(|text| text.starts_with(begins))
        })
        .await
    }

    pub(super) async fn until_succeeded(&self, name: &str) {
        self.until_condition(name, "Progressing", "True/Succeeded ").await;
    }

    /// Waits until the revision is deleted.
    pub(super) async fn until_deleted(&self, name: &str) {
        eventually(&format!("{name} is deleted"), async || {
            let set = self.sets().get_opt(name).await.ok()?;
            set.is_none().then_some(())
        })
        .await;
    }

    /// Returns the first Event about the object with this UID, as `Reason note`.
    pub(super) async fn event(&self, uid: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.client(), "default");
        eventually("an Event", async || {
            let events = events.list(&ListParams::default()).await.ok()?.items;
            let is_about = |event: &&Event| {
                event.regarding.as_ref().is_some_and(|object| object.uid.as_deref() == Some(uid))
            };
            let found = events.iter().find(is_about)?;
            Some(format!("{} {}", found.reason.as_deref()?, found.note.as_deref()?))
        })
        .await
    }

    /// Creates a Secret with objects, replacing one of that name.
    pub(super) async fn secret(
        &self,
        namespace: &str,
        name: &str,
        immutable: bool,
        data: &[(&str, Vec<u8>)],
    ) {
        let api: Api<Secret> = Api::namespaced(self.client(), namespace);
        if api.get_opt(name).await.unwrap().is_some() {
            api.delete(name, &DeleteParams::default()).await.unwrap();
        }
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.clone()))).collect();
        let mut secret = Secret { immutable: Some(immutable), data: Some(data), ..Secret::default() };
        secret.metadata.name = Some(name.to_owned());
        assert_eq!(api.create(&PostParams::default(), &secret).await.unwrap().name_any(), name);
    }
}

/// Lowers the minimum deadline of the CRD to one minute.
fn shorten_deadlines(crd: &mut Value) {
    let deadline =
        "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/progressDeadlineMinutes/minimum";
    if let Some(minimum) = crd.pointer_mut(deadline) {
        *minimum = json!(1);
    }
}

pub(super) fn config_map(namespace: &str, name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data})
}

pub(super) fn deployment(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace}, "spec": {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [
            {"name": "main", "image": "example.test/op:v1"}]}}}})
}

pub(super) fn crd(plural: &str, kind: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.acme.example")},
        "spec": {"group": "acme.example", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

pub(super) fn custom_resource(kind: &str, namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "acme.example/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}})
}

/// Returns a phase with inline objects.
pub(super) fn phase(name: &str, objects: &[&Value]) -> Value {
    let objects: Vec<Value> = objects.iter().map(|object| json!({ "object": object })).collect();
    json!({"name": name, "objects": objects})
}

/// Returns a probe for one kind that compares a field with a value.
pub(super) fn field_value(group: &str, kind: &str, path: &str, value: &str) -> Value {
    json!({"selector": {"type": "GroupKind", "groupKind": {"group": group, "kind": kind}},
        "assertions": [{"type": "FieldValue", "fieldValue": {"fieldPath": path, "value": value}}]})
}

/// Leaves the revision unmodified.
pub(super) fn unmodified(_: &mut Value) {}
