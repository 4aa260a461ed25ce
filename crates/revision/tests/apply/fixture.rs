//! A control plane, an engine with recorded calls, and revisions to apply.

use std::sync::{Arc, Mutex};

use kube::api::{DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use olm_api::cluster_object_set::{CollisionProtection, LifecycleState};
use olm_api::{ClusterObjectSet, ClusterObjectSetSpec};
use olm_control_plane::{ControlPlane, Options};
use olm_revision::cluster::{Cluster, ClusterError, Instances};
use olm_revision::content::ContentPhase;
use olm_revision::engine::{Engine, Revision};
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::object::ObjectKey;
use olm_revision::plan::Owner;
use olm_revision::probes::{Probes, default_probes};
use olm_revision::result::{Action, RevisionResult};
use serde_json::{Value, json};

pub(crate) type Recorded = Recorder<KubeCluster>;

/// Forwards every call and records all but plain reads.
pub(crate) struct Recorder<C> {
    inner: C,
    calls: Mutex<Vec<String>>,
}

impl<C> Recorder<C> {
    fn record(&self, verb: &str, name: &str) {
        self.calls.lock().unwrap().push(format!("{verb} {name}"));
    }
}

fn name(object: &Value) -> String {
    ObjectKey::of(object).name
}

impl<C: Cluster> Cluster for Recorder<C> {
    async fn get(&self, key: &ObjectKey) -> Result<Option<Value>, ClusterError> {
        self.inner.get(key).await
    }

    async fn create(&self, object: &Value) -> Result<Value, ClusterError> {
        self.record("create", &name(object));
        self.inner.create(object).await
    }

    async fn apply(&self, object: &Value, dry_run: bool) -> Result<Value, ClusterError> {
        self.record(if dry_run { "dry-run" } else { "apply" }, &name(object));
        self.inner.apply(object, dry_run).await
    }

    async fn merge(&self, key: &ObjectKey, patch: &Value) -> Result<Value, ClusterError> {
        self.record("merge", &key.name);
        self.inner.merge(key, patch).await
    }

    async fn delete(&self, key: &ObjectKey, uid: &str, resource_version: &str) -> Result<bool, ClusterError> {
        self.record("delete", &key.name);
        self.inner.delete(key, uid, resource_version).await
    }

    async fn instances(&self, gvk: &GroupVersionKind) -> Result<Option<Instances>, ClusterError> {
        self.inner.instances(gvk).await
    }

    async fn is_autoscaled(&self, key: &ObjectKey) -> bool {
        self.inner.is_autoscaled(key).await
    }
}

pub(crate) struct Fixture {
    plane: Arc<ControlPlane>,
    cluster: KubeCluster,
    pub(crate) engine: Engine<Recorded>,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts with controllers of kube-controller-manager.
    pub(crate) async fn start_with(controllers: &'static [&'static str]) -> Self {
        let plane = ControlPlane::reused(Options { controllers }, &olm_api::crds::crds()).await.unwrap();
        let (cluster, engine) = (KubeCluster::new(plane.client()), engine(plane.client()));
        Self { plane, cluster, engine }
    }

    pub(crate) fn client(&self) -> Client {
        self.plane.client()
    }

    /// Creates an engine without memory, as after a restart.
    pub(crate) fn restart(&mut self) {
        self.engine = engine(self.plane.client());
    }

    /// Calls other than plain reads since the last request.
    pub(crate) fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.engine.cluster().calls.lock().unwrap())
    }

    pub(crate) async fn namespace(&self, name: &str) {
        self.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await;
    }

    /// Creates an object as a user.
    pub(crate) async fn create(&self, object: &Value) -> Value {
        let key = ObjectKey::of(object);
        let params = PostParams { field_manager: Some("user".to_owned()), ..PostParams::default() };
        let created =
            self.api(&key).await.create(&params, &serde_json::from_value(object.clone()).unwrap()).await;
        serde_json::to_value(created.unwrap()).unwrap()
    }

    pub(crate) async fn api(&self, key: &ObjectKey) -> Api<DynamicObject> {
        // A new kind is discovered a moment after its CRD is established.
        let (resource, scope) = until(async || self.cluster.discover(&key.gvk).await.ok()).await;
        Api::dynamic(self.client(), &resource, &scope).constrain(&key.namespace)
    }

    pub(crate) async fn get(&self, object: &Value) -> Option<Value> {
        self.cluster.get(&ObjectKey::of(object)).await.unwrap()
    }

    /// Applies a merge patch as a user.
    pub(crate) async fn edit(&self, object: &Value, patch: Value) {
        use kube::api::{Patch, PatchParams};
        let key = ObjectKey::of(object);
        let params = PatchParams { field_manager: Some("user".to_owned()), ..PatchParams::default() };
        self.api(&key).await.patch(&key.name, &params, &Patch::Merge(patch)).await.unwrap();
    }

    /// Applies a merge patch to the status as a user.
    pub(crate) async fn edit_status(&self, object: &Value, patch: Value) {
        use kube::api::{Patch, PatchParams};
        let key = ObjectKey::of(object);
        let patched = self.api(&key).await;
        patched.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn delete(&self, object: &Value) {
        let key = ObjectKey::of(object);
        self.api(&key).await.delete(&key.name, &Default::default()).await.unwrap();
    }

    /// Creates a revision `<extension>-<number>` that exists in the cluster, with the default probes.
    pub(crate) async fn revision(&self, extension: &str, number: i64, phases: Vec<ContentPhase>) -> Revision {
        let set = ClusterObjectSet::new(
            &format!("{extension}-{number}"),
            ClusterObjectSetSpec {
                lifecycle_state: LifecycleState::Active,
                revision: number,
                collision_protection: CollisionProtection::Prevent,
                phases: Vec::new(),
                progress_deadline_minutes: None,
                progression_probes: Vec::new(),
            },
        );
        let sets: Api<ClusterObjectSet> = Api::all(self.client());
        let set = sets.create(&PostParams::default(), &set).await.unwrap();
        Revision {
            owner: Owner {
                name: set.metadata.name.unwrap(),
                uid: set.metadata.uid.unwrap(),
                number,
                extension: extension.to_owned(),
            },
            siblings: Vec::new(),
            is_migrated: true,
            phases,
            probes: Probes::new(&default_probes()).unwrap(),
            selected_namespaces: Default::default(),
            watched_namespaces: Default::default(),
            creation_delay: Default::default(),
            replaces_immutable: false,
        }
    }

    pub(crate) async fn reconcile(&self, revision: &Revision) -> RevisionResult {
        self.engine.reconcile(revision).await
    }

    /// Reconciles and requires a complete result.
    pub(crate) async fn complete(&self, revision: &Revision) -> RevisionResult {
        let result = self.reconcile(revision).await;
        assert!(result.is_complete(), "{result:?}");
        result
    }
}

fn engine(client: Client) -> Engine<Recorded> {
    Engine::new(Recorder { inner: KubeCluster::new(client), calls: Mutex::default() })
}

pub(crate) fn phase(name: &str, objects: &[&Value]) -> ContentPhase {
    ContentPhase::inline(name, objects.iter().map(|object| (*object).clone()).collect())
}

pub(crate) fn protected(mut phase: ContentPhase, protection: CollisionProtection) -> ContentPhase {
    for object in &mut phase.objects {
        object.collision_protection = protection.clone();
    }
    phase
}

pub(crate) fn config_map(namespace: &str, name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data})
}

pub(crate) fn deployment(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace}, "spec": {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [
            {"name": "main", "image": "example.test/op:v1", "args": ["serve"], "env": [{"name": "A", "value": "1"}]}]}}}})
}

pub(crate) fn crd(plural: &str, kind: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.acme.example")},
        "spec": {"group": "acme.example", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

pub(crate) fn actions(result: &RevisionResult) -> Vec<Action> {
    result.phases.iter().flat_map(|phase| &phase.objects).map(|object| object.action).collect()
}

/// Retries until there is a result.
pub(crate) async fn until<T>(mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(std::time::Instant::now() < deadline, "timeout");
        tokio::task::yield_now().await;
    }
}

pub(crate) fn owner_names(object: &Value) -> Vec<(String, Option<bool>)> {
    let owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    owners.iter().map(|o| (o["name"].as_str().unwrap().to_owned(), o["controller"].as_bool())).collect()
}

pub(crate) fn our_managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let ours = entries.iter().filter(|e| e["manager"] == "olm.operatorframework.io");
    ours.map(|e| e["operation"].as_str().unwrap().to_owned()).collect()
}

pub(crate) fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap()
}
