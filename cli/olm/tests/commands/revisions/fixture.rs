//! Cluster with revisions, and golden files of the tests.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_control_plane::{ControlPlane, Options};
use olm_revision::engine::{Engine, Revision};
use olm_revision::generate::{BundleIdentity, Draft, Extension};
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::plan::Owner;
use serde_json::{Value, json};

pub(crate) use crate::fixture::Ran;
use crate::fixture::{olm_in, tests};

pub(crate) const NAMESPACE: &str = "pipe-system";
const SYSTEM: &str = "olmv1-system";

/// Working directory of the commands.
pub(crate) fn data() -> PathBuf {
    tests("commands/revisions/data")
}

/// Runs `olm` without a cluster.
pub(crate) fn olm(args: &[&str]) -> Ran {
    olm_in(&data(), args).output().unwrap().into()
}

/// Compares with a golden file, ignoring durations.
pub(crate) fn compare(name: &str, printed: &str) {
    let times = regex::Regex::new(r"\b\d+[smhd]\b( +)?").unwrap();
    let timeless = match name.ends_with("-help.txt") {
        true => printed.to_owned(),
        false => times.replace_all(printed, "TIME$1").into_owned(),
    };
    crate::fixture::compare("commands/revisions/golden", name, &timeless);
}

/// Cluster with the CRDs and namespaces of OLM.
pub(crate) struct Fixture {
    pub(crate) plane: Arc<ControlPlane>,
    folder: tempfile::TempDir,
}

impl Fixture {
    pub(crate) async fn start() -> Self {
        let plane = ControlPlane::reused(Options::default(), &olm_api::crds::crds()).await.unwrap();
        let fixture = Self { plane, folder: tempfile::tempdir().unwrap() };
        for name in [NAMESPACE, SYSTEM] {
            fixture
                .create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
                .await;
        }
        fixture
    }

    /// Path of a file or directory of the test.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = olm_in(&data(), args);
        command.arg("--kubeconfig").arg(self.plane.kubeconfig());
        command
    }

    pub(crate) async fn olm(&self, args: &[&str]) -> Ran {
        let mut command = self.command(args);
        tokio::task::spawn_blocking(move || Ran::from(command.output().unwrap())).await.unwrap()
    }

    /// Runs `olm` as `user`.
    pub(crate) async fn olm_as(&self, user: &str, args: &[&str]) -> Ran {
        let mut command = self.command_as(user, args);
        tokio::task::spawn_blocking(move || Ran::from(command.output().unwrap())).await.unwrap()
    }

    /// Command that impersonates a user.
    pub(crate) fn command_as(&self, user: &str, args: &[&str]) -> Command {
        let kubeconfig = std::fs::read(self.plane.kubeconfig()).unwrap();
        let mut kubeconfig = olm_yaml::from_slice(&kubeconfig).unwrap();
        for entry in kubeconfig["users"].as_array_mut().unwrap() {
            entry["user"]["as"] = json!(user);
        }
        let file = self.path(user);
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let mut command = olm_in(&data(), args);
        command.arg("--kubeconfig").arg(file);
        command
    }

    /// Grants `user` read access to these resources, each as `group/resource`.
    pub(crate) async fn allow(&self, user: &str, resources: &[&str]) {
        let group = "rbac.authorization.k8s.io";
        let rule = |resource: &&str| {
            let (group, resource) = resource.split_once('/').unwrap();
            json!({"apiGroups": [group], "resources": [resource], "verbs": ["get", "list"]})
        };
        let rules: Vec<Value> = resources.iter().map(rule).collect();
        let api_version = format!("{group}/v1");
        self.create(&json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": {"name": user}, "rules": rules}))
            .await;
        self.create(
            &json!({"apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": {"name": user},
            "subjects": [{"kind": "User", "name": user, "apiGroup": group}],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": user}}),
        )
        .await;
    }

    pub(crate) fn api(&self, object: &Value) -> Api<DynamicObject> {
        let (group, version) = match object["apiVersion"].as_str().unwrap().split_once('/') {
            Some((group, version)) => (group, version),
            None => ("", object["apiVersion"].as_str().unwrap()),
        };
        let kind = object["kind"].as_str().unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(self.plane.client(), namespace, &resource),
            None => Api::all_with(self.plane.client(), &resource),
        }
    }

    pub(crate) async fn create(&self, object: &Value) -> DynamicObject {
        let parsed: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        self.api(object).create(&PostParams::default(), &parsed).await.unwrap()
    }

    /// Writes the status of an object as its controller does.
    pub(crate) async fn set_status(&self, object: &Value, status: Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let patch = Patch::Merge(json!({"status": status}));
        self.api(object).patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn extension(&self, name: &str) -> ClusterExtension {
        Api::all(self.plane.client()).get(name).await.unwrap()
    }

    /// Creates an extension with the version range `version`.
    pub(crate) async fn create_extension(&self, name: &str, version: &str) {
        self.create(&json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name},
            "spec": {"namespace": NAMESPACE, "source": {"sourceType": "Catalog",
                "catalog": {"packageName": "pipe", "version": version}}},
        }))
        .await;
    }

    /// Writes the status of an extension as operator-controller does.
    pub(crate) async fn set_installed(&self, name: &str, version: &str, texts: &[&str], revisions: &[&str]) {
        let generation = self.extension(name).await.metadata.generation.unwrap();
        let active: Vec<Value> = revisions.iter().map(|name| json!({"name": name})).collect();
        let object = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
            "metadata": {"name": name}});
        let status = json!({"conditions": conditions(texts, generation), "activeRevisions": active,
            "install": {"bundle": {"name": format!("pipe.v{version}"), "version": version}}});
        self.set_status(&object, status).await;
    }

    /// Writes the conditions of a revision as operator-controller does.
    pub(crate) async fn set_revision(&self, name: &str, texts: &[&str]) {
        let object = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": {"name": name}});
        self.set_status(&object, json!({"conditions": conditions(texts, 1)})).await;
    }

    pub(crate) async fn archive(&self, name: &str) {
        let sets: Api<ClusterObjectSet> = Api::all(self.plane.client());
        let patch = Patch::Merge(json!({"spec": {"lifecycleState": "Archived"}}));
        sets.patch(name, &PatchParams::default(), &patch).await.unwrap();
        let texts = ["Progressing=False/Archived revision is archived", "Succeeded=True/Succeeded done"];
        self.set_revision(name, &texts).await;
    }

    /// Creates revision `number` of the extension `name` with these objects, and applies those without a collision.
    pub(crate) async fn make(&self, name: &str, number: i64, version: &str, objects: Vec<Value>) {
        let client = self.plane.client();
        let uid = self.extension(name).await.metadata.uid.unwrap();
        let extension = Extension { name: name.to_owned(), uid, progress_deadline_minutes: None };
        let identity = BundleIdentity {
            name: format!("pipe.v{version}"),
            package: "pipe".to_owned(),
            version: version.to_owned(),
            image: format!("127.0.0.1:1/pipe:{version}"),
            ..BundleIdentity::default()
        };
        let draft = Draft::new(extension, &identity, objects).unwrap();
        let revision = draft.number(number, SYSTEM).unwrap();
        let secrets: Api<Secret> = Api::namespaced(client.clone(), SYSTEM);
        for secret in &revision.secrets {
            secrets.create(&PostParams::default(), secret).await.unwrap();
        }
        let sets: Api<ClusterObjectSet> = Api::all(client.clone());
        let before = sets.list(&Default::default()).await.unwrap().items;
        let siblings = before.into_iter().filter_map(|set| set.metadata.uid).collect();
        let set = sets.create(&PostParams::default(), &revision.set).await.unwrap();
        let owner = Owner {
            name: set.metadata.name.clone().unwrap(),
            uid: set.metadata.uid.unwrap(),
            number,
            extension: name.to_owned(),
        };
        let revision = Revision {
            owner,
            siblings,
            is_migrated: false,
            phases: draft.phases().to_vec(),
            probes: Default::default(),
            selected_namespaces: Default::default(),
            watched_namespaces: Default::default(),
            creation_delay: Default::default(),
            replaces_immutable: false,
        };
        let _ = Engine::new(KubeCluster::new(client)).reconcile(&revision).await;
    }
}

/// Parses conditions of the form `Type=Status/Reason message`.
pub(crate) fn conditions(texts: &[&str], generation: i64) -> Value {
    let condition = |text: &&str| {
        let (head, message) = text.split_once(' ').unwrap();
        let (type_, head) = head.split_once('=').unwrap();
        let (status, reason) = head.split_once('/').unwrap();
        json!({"type": type_, "status": status, "reason": reason, "message": message,
            "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    texts.iter().map(condition).collect()
}

pub(crate) fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}})
}

pub(crate) fn deployment(name: &str) -> Value {
    let mut deployment = object("apps/v1", "Deployment", name);
    deployment["spec"] = json!({"selector": {"matchLabels": {"app": name}}, "template": {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "registry.example.com/pipe"}]}}});
    deployment
}

/// CRD of a kind whose spec has these string fields.
pub(crate) fn crd(plural: &str, kind: &str, fields: &[&str]) -> Value {
    let fields: serde_json::Map<String, Value> =
        fields.iter().map(|field| ((*field).to_owned(), json!({"type": "string"}))).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}}}]},
    })
}
