//! Fixture: a real API server with objects of the reference, and the revision controller.

use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::Scope;
use kube::{Api, Client, ResourceExt};
use olm_api::conditions;
use olm_api::{ClusterExtension, ClusterObjectSet, labels};
pub(super) use olm_control_plane::eventually;
use olm_control_plane::{ControlPlane, Options};
use olm_controller_core::install_error::InstallError;
use olm_revision::generate::{BundleIdentity, Draft, Extension};
use olm_revision::kube_cluster::KubeCluster;
use olm_servers::RunningController;
use serde_json::{Value, json};

use crate::adoption::Adoption;
use crate::fixture::run_revisions;
use crate::revision_writer::RevisionWriter;

pub(super) const SYSTEM: &str = "olmv1-system";
/// Field manager of Helm installations: the name of the reference's binary.
pub(super) const HELM_ERA: &str = "operator-controller";
/// Field manager of objects that revisions apply.
pub(super) const ENGINE: &str = "olm.operatorframework.io";

pub(super) struct Fixture {
    pub(super) plane: Arc<ControlPlane>,
    cluster: KubeCluster,
}

impl Fixture {
    pub(super) async fn start() -> Self {
        let plane = ControlPlane::reused(Options::default(), &olm_api::crds::crds()).await.unwrap();
        let namespaces: Api<Namespace> = Api::all(plane.client());
        for name in [SYSTEM, "ns1"] {
            let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            namespaces.create(&PostParams::default(), &namespace).await.unwrap();
        }
        let cluster = KubeCluster::new(plane.client());
        Self { plane, cluster }
    }

    pub(super) fn client(&self) -> Client {
        self.plane.client()
    }

    pub(super) fn adoption(&self) -> Adoption {
        Adoption::new(self.client(), SYSTEM)
    }

    pub(super) fn run_revisions(&self) -> RunningController {
        run_revisions(self.client(), SYSTEM)
    }

    pub(super) async fn extension(&self, name: &str, annotations: Value) -> ClusterExtension {
        let extension = serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"namespace": "ns1",
                     "source": {"sourceType": "Catalog", "catalog": {"packageName": "demo"}}},
        }))
        .unwrap();
        Api::all(self.client()).create(&PostParams::default(), &extension).await.unwrap()
    }

    pub(super) fn sets(&self) -> Api<ClusterObjectSet> {
        Api::all(self.client())
    }

    pub(super) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client(), SYSTEM)
    }

    pub(super) async fn revisions(&self, extension: &str) -> Vec<Arc<ClusterObjectSet>> {
        let of = ListParams::default().labels(&format!("{}={extension}", labels::OWNER_NAME));
        self.sets().list(&of).await.unwrap().items.into_iter().map(Arc::new).collect()
    }

    /// Waits until a condition of the revision reads `status/reason: message`, and returns the revision.
    pub(super) async fn until(&self, name: &str, type_: &str, expected: &str) -> ClusterObjectSet {
        let mut last = String::new();
        eventually(&format!("{name} {type_} {expected}"), async || {
            let set = self.sets().get_opt(name).await.unwrap()?;
            let condition = conditions::find(&set.status.as_ref()?.conditions, type_)?;
            let got = format!("{}/{}: {}", condition.status, condition.reason, condition.message);
            if got != last {
                eprintln!("{name} {type_}: {got}");
                last.clone_from(&got);
            }
            (got == expected).then_some(set)
        })
        .await
    }

    pub(super) async fn api(&self, object: &Value) -> Api<DynamicObject> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (group, version) =
            text("/apiVersion").split_once('/').unwrap_or_else(|| ("", text("/apiVersion")));
        let gvk = GroupVersionKind::gvk(group, version, text("/kind"));
        match self.cluster.discover(&gvk).await.unwrap() {
            (resource, Scope::Cluster) => Api::all_with(self.client(), &resource),
            (resource, Scope::Namespaced) => {
                Api::namespaced_with(self.client(), text("/metadata/namespace"), &resource)
            }
        }
    }

    /// Current state of the object.
    pub(super) async fn live(&self, object: &Value) -> Value {
        let name = object["metadata"]["name"].as_str().unwrap();
        serde_json::to_value(self.api(object).await.get(name).await.unwrap()).unwrap()
    }

    pub(super) async fn create(&self, object: &Value, manager: &str) {
        let params = PostParams { field_manager: Some(manager.to_owned()), ..PostParams::default() };
        let typed = serde_json::from_value(object.clone()).unwrap();
        self.api(object).await.create(&params, &typed).await.unwrap();
    }

    pub(super) async fn edit(&self, object: &Value, patch: Value, manager: &str) {
        let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        let name = object["metadata"]["name"].as_str().unwrap();
        self.api(object).await.patch(name, &params, &Patch::Merge(patch)).await.unwrap();
    }

    /// Reports all pods of a Deployment as available, as its controller would.
    pub(super) async fn make_available(&self, deployment: &Value) {
        let live = self.live(deployment).await;
        let status = json!({"status": {
            "observedGeneration": live["metadata"]["generation"], "replicas": 1, "updatedReplicas": 1,
            "readyReplicas": 1, "availableReplicas": 1,
            "conditions": [{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"}],
        }});
        let params = PatchParams {
            field_manager: Some("kube-controller-manager".to_owned()),
            ..PatchParams::default()
        };
        let name = deployment["metadata"]["name"].as_str().unwrap();
        self.api(deployment).await.patch_status(name, &params, &Patch::Merge(status)).await.unwrap();
    }

    /// Installs these objects as Helm does for the extension.
    pub(super) async fn install_with_helm(&self, extension: &ClusterExtension, objects: &[Value]) {
        for object in objects {
            let mut object = of_release(extension, object);
            object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm".into();
            object["metadata"]["annotations"]["meta.helm.sh/release-name"] = extension.name_any().into();
            object["metadata"]["annotations"]["meta.helm.sh/release-namespace"] = "ns1".into();
            self.create(&object, HELM_ERA).await;
        }
    }

    pub(super) async fn store_release(&self, extension: &ClusterExtension, release: &Release<'_>) {
        release.store(&self.client(), extension).await;
    }

    /// Makes these objects the newest revision, unless they already are. Returns `true` if a revision was created.
    pub(super) async fn upgrade(
        &self,
        extension: &ClusterExtension,
        version: &str,
        objects: &[Value],
    ) -> bool {
        self.try_upgrade(extension, version, objects).await.unwrap()
    }

    pub(super) async fn try_upgrade(
        &self,
        extension: &ClusterExtension,
        version: &str,
        objects: &[Value],
    ) -> Result<bool, InstallError> {
        let name = extension.name_any();
        let owner =
            Extension { name: name.clone(), uid: extension.uid().unwrap(), progress_deadline_minutes: None };
        let bundle = BundleIdentity {
            name: format!("{name}.v{version}"),
            package: "demo".to_owned(),
            version: version.to_owned(),
            image: format!("r.example/{name}:v{version}"),
            ..BundleIdentity::default()
        };
        let draft = Draft::new(owner, &bundle, objects.to_vec()).unwrap();
        let revisions = RevisionWriter::new(self.client(), SYSTEM);
        let plan = revisions.plan(&name, &draft, None).await.unwrap();
        Ok(revisions.carry_out(&name, &draft, plan).await?.created)
    }
}

/// Release in the form of Helm's storage.
pub(crate) struct Release<'a> {
    pub number: u64,
    pub status: &'a str,
    /// Version of its bundle `<extension>.v<version>`.
    pub version: &'a str,
    pub objects: &'a [Value],
    /// Maximum bytes of a piece.
    pub piece: usize,
}

impl Release<'_> {
    pub(crate) async fn store(&self, client: &Client, extension: &ClusterExtension) {
        let (name, version) = (extension.name_any(), self.version);
        let number = self.number.to_string();
        let key = format!("sh.helm.release.v1.{name}.v{number}");
        let bytes = self.compressed(extension);
        let pieces: Vec<&[u8]> = bytes.chunks(self.piece).collect();
        let further: Vec<String> = (1..pieces.len()).map(|n| format!("{key}-{n}")).collect();
        let data = [("chunk", pieces[0]), ("extraChunks", &serde_json::to_vec(&further).unwrap())];
        let labels = json!({"name": name, "owner": "operator-controller", "status": self.status, "version": number,
                            "key": key, "type": "index", "createdAt": "1795308322"});
        let index = store(client, &key, "index", labels, owner(extension), &data).await;
        for (name, piece) in further.iter().zip(&pieces[1..]) {
            let owner = json!({"apiVersion": "v1", "kind": "Secret", "name": key, "uid": index.uid(),
                               "controller": true, "blockOwnerDeletion": false});
            let labels = json!({"owner": "operator-controller", "key": key, "type": "chunk",
                                "createdAt": "1795308322"});
            store(client, name, "chunk", labels, owner, &[("chunk", piece)]).await;
        }
        eprintln!("release {number} of {name} {version}: {} pieces", pieces.len());
    }

    fn compressed(&self, extension: &ClusterExtension) -> Vec<u8> {
        let (name, version) = (extension.name_any(), self.version);
        let lines: Vec<String> =
            self.objects.iter().map(|object| of_release(extension, object).to_string()).collect();
        let release = json!({
            "name": name, "namespace": "ns1", "version": self.number, "hooks": null,
            "info": {"status": self.status, "description": "Install complete", "deleted": ""},
            "chart": {"metadata": {"annotations": {"capabilities": "Basic Install", "olm.properties": "[]"}}},
            "manifest": lines.join("\n"),
            "labels": {
                "olm.operatorframework.io/bundle-name": format!("{name}.v{version}"),
                "olm.operatorframework.io/bundle-reference": format!("r.example/{name}:v{version}"),
                "olm.operatorframework.io/bundle-version": version,
                "olm.operatorframework.io/package-name": "demo",
            },
        });
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(format!("{release}\n").as_bytes()).unwrap();
        encoder.finish().unwrap()
    }
}

async fn store(
    client: &Client,
    name: &str,
    kind: &str,
    labels: Value,
    owner: Value,
    data: &[(&str, &[u8])],
) -> Secret {
    let metadata = json!({"name": name, "labels": labels, "ownerReferences": [owner]});
    let type_ = format!("operatorframework.io/{kind}.v1");
    let mut secret: Secret = serde_json::from_value(json!({"metadata": metadata, "type": type_})).unwrap();
    let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec())));
    secret.data = Some(data.collect());
    let secrets: Api<Secret> = Api::namespaced(client.clone(), SYSTEM);
    secrets.create(&PostParams::default(), &secret).await.unwrap()
}

fn owner(extension: &ClusterExtension) -> Value {
    json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "controller": true,
           "blockOwnerDeletion": true, "name": extension.name_any(), "uid": extension.uid()})
}

/// The object as in the manifest of a release.
fn of_release(extension: &ClusterExtension, object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["labels"]["olm.operatorframework.io/owner-kind"] = "ClusterExtension".into();
    object["metadata"]["labels"]["olm.operatorframework.io/owner-name"] = extension.name_any().into();
    object["metadata"]["ownerReferences"] = json!([owner(extension)]);
    object
}

/// Objects of a bundle: a ConfigMap, a ClusterRole and a Deployment named after the extension. The Deployment has
/// the form that the reference renders, without replicas, and with these environment variables.
pub(super) fn objects(name: &str, variables: &[&str]) -> Vec<Value> {
    let variables: Vec<Value> = variables.iter().map(|name| json!({"name": name, "value": "x"})).collect();
    vec![
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ns1"},
               "data": {"k": "<v>"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
               "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "ns1"},
               "spec": {"selector": {"matchLabels": {"app": name}}, "strategy": {}, "revisionHistoryLimit": 1,
                        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{
                            "name": "m", "image": "r.example/m", "env": variables, "resources": {}}]}}}}),
    ]
}

/// Field managers of the object, with their operations.
pub(super) fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let plain = entries.iter().filter(|entry| entry.get("subresource").is_none());
    plain.map(|entry| format!("{} {}", entry["manager"], entry["operation"]).replace('"', "")).collect()
}

/// Owner names of the object, with a star after the controller.
pub(super) fn owners(object: &Value) -> Vec<String> {
    let all = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let shown = |owner: &Value| {
        let star = if owner["controller"] == true { "*" } else { "" };
        format!("{}{star}", owner["name"].as_str().unwrap())
    };
    all.iter().map(shown).collect()
}
