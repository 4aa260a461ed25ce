//! `olm diff` against a real API server. The engine of operator-controller installs the extension.

use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_bundle::{BundleContent, Certificates, RenderOptions};
use olm_control_plane::{ControlPlane, Options, eventually};
use olm_revision::engine::{Engine, Revision};
use olm_revision::generate::{BundleIdentity, Draft, Extension};
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::plan::Owner;
use serde_json::{Value, json};

use super::fixture::{Ran, command, data, files};

const NAMESPACE: &str = "pipe-system";

struct Fixture {
    plane: Arc<ControlPlane>,
    /// Kubeconfig of a user with read-only access to the same cluster.
    viewer: PathBuf,
    folder: tempfile::TempDir,
}

impl Fixture {
    async fn start() -> Self {
        let plane = ControlPlane::reused(Options::default(), &olm_api::crds::crds()).await.unwrap();
        for name in [NAMESPACE, "olmv1-system"] {
            create(&plane, "", "v1", "Namespace", None, &json!({"metadata": {"name": name}})).await;
        }
        let folder = tempfile::tempdir().unwrap();
        let viewer = folder.path().join("viewer");
        let kubeconfig = std::fs::read(plane.kubeconfig()).unwrap();
        let mut kubeconfig = olm_yaml::from_slice(&kubeconfig).unwrap();
        for user in kubeconfig["users"].as_array_mut().unwrap() {
            user["user"]["as"] = json!("viewer");
        }
        std::fs::write(&viewer, kubeconfig.to_string()).unwrap();
        let group = "rbac.authorization.k8s.io";
        let rules = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]);
        let role = json!({"metadata": {"name": "viewer"}, "rules": rules});
        create(&plane, group, "v1", "ClusterRole", None, &role).await;
        let binding = json!({"metadata": {"name": "viewer"},
            "subjects": [{"kind": "User", "name": "viewer", "apiGroup": group}],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "viewer"}});
        create(&plane, group, "v1", "ClusterRoleBinding", None, &binding).await;
        Self { plane, viewer, folder }
    }

    /// Installs the bundle `old` with the engine of operator-controller.
    async fn install(&self) {
        let client = self.plane.client();
        let extension = olm_yaml::from_slice(&std::fs::read(data().join("extension.yaml")).unwrap()).unwrap();
        let config = extension["spec"]["config"]["inline"].clone();
        let extension: ClusterExtension = serde_json::from_value(extension).unwrap();
        let extension = Api::all(client.clone()).create(&PostParams::default(), &extension).await.unwrap();
        let bundle = BundleContent::load(&files("old")).unwrap();
        let options = RenderOptions {
            install_namespace: NAMESPACE,
            config: Some(&config),
            certificates: Certificates::Builtin,
            single_own_namespace: true,
            deployment_config: true,
            multi_watch_namespaces: false,
            owned_api_services: false,
            selected_namespaces: None,
            operator_condition: false,
            aggregate_api_roles: false,
        };
        let objects = olm_bundle::render(&bundle, &options).unwrap();
        let owner = Extension {
            name: "pipe".to_owned(),
            uid: extension.metadata.uid.unwrap(),
            progress_deadline_minutes: None,
        };
        let identity = BundleIdentity {
            name: bundle.name().to_owned(),
            package: bundle.package_name().to_owned(),
            version: bundle.version().unwrap().to_owned(),
            ..BundleIdentity::default()
        };
        let draft = Draft::new(owner, &identity, objects).unwrap();
        let revision = draft.number(1, "olmv1-system").unwrap();
        let secrets: Api<Secret> = Api::namespaced(client.clone(), "olmv1-system");
        for secret in &revision.secrets {
            secrets.create(&PostParams::default(), secret).await.unwrap();
        }
        let sets: Api<ClusterObjectSet> = Api::all(client.clone());
        let set = sets.create(&PostParams::default(), &revision.set).await.unwrap();
        let owner = Owner {
            name: "pipe-1".to_owned(),
            uid: set.metadata.uid.unwrap(),
            number: 1,
            extension: "pipe".to_owned(),
        };
        let revision = Revision {
            owner,
            siblings: Vec::new(),
            is_migrated: false,
            phases: draft.phases().to_vec(),
            probes: Default::default(),
            selected_namespaces: Default::default(),
            watched_namespaces: Default::default(),
            creation_delay: Default::default(),
            replaces_immutable: false,
        };
        let result = Engine::new(KubeCluster::new(client)).reconcile(&revision).await;
        assert!(result.is_complete(), "{result:?}");
    }

    async fn diff(&self, kubeconfig: &std::path::Path, args: &[&str]) -> Ran {
        let mut command = command(&["diff"]);
        command.args(args).arg("--kubeconfig").arg(kubeconfig);
        tokio::task::spawn_blocking(move || Ran::from(command.output().unwrap())).await.unwrap()
    }

    /// Runs `olm diff`, which must succeed with empty standard error. Returns its output.
    async fn printed(&self, args: &[&str]) -> String {
        let ran = self.diff(self.plane.kubeconfig(), args).await;
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{args:?}");
        ran.stdout
    }
}

fn api(
    plane: &ControlPlane,
    group: &str,
    version: &str,
    kind: &str,
    namespace: Option<&str>,
) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(plane.client(), namespace, &resource),
        None => Api::all_with(plane.client(), &resource),
    }
}

async fn create(
    plane: &ControlPlane,
    group: &str,
    version: &str,
    kind: &str,
    namespace: Option<&str>,
    object: &Value,
) {
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let api = api(plane, group, version, kind, namespace);
    let mut object = object;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    object.types = Some(kube::core::TypeMeta { api_version: resource.api_version, kind: resource.kind });
    api.create(&PostParams::default(), &object).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn diff_against_a_cluster_shows_changes_drift_and_collisions() {
    let fixture = Fixture::start().await;
    nothing_is_installed(&fixture).await;
    fixture.install().await;
    installed_bundle_has_no_difference(&fixture).await;
    a_new_bundle(&fixture).await;
    viewers_get_the_same_diff(&fixture).await;
    drift_and_collisions(&fixture).await;
    version_that_vanishes_has_its_writers(&fixture).await;
}

async fn nothing_is_installed(fixture: &Fixture) {
    let printed = fixture.printed(&["new", "-f", "extension.yaml"]).await;
    assert!(
        printed.starts_with("Old:  nothing is installed\nNew:  pipe.v1.1.0, version 1.1.0 (new)\n"),
        "{printed}"
    );
    assert!(printed.contains("\nObjects: 9 created, 0 changed, 0 deleted\n"), "{printed}");
    assert!(printed.contains("+ get, update on configmaps cluster-wide\n"), "{printed}");
    let missing = fixture.diff(fixture.plane.kubeconfig(), &["new", "--extension", "pipe"]).await;
    assert_eq!(missing.code, 4);
    assert!(missing.stderr.contains("there is no ClusterExtension \"pipe\""), "{}", missing.stderr);
    // A dry run creates nothing.
    let services = api(&fixture.plane, "", "v1", "Service", Some(NAMESPACE));
    assert!(services.get_opt("pipe-metrics").await.unwrap().is_none());
}

async fn installed_bundle_has_no_difference(fixture: &Fixture) {
    for which in [["--extension", "pipe"], ["-f", "extension.yaml"]] {
        let printed = fixture.printed(&["old", which[0], which[1], "--exit-code"]).await;
        let expected = "\
Old:  pipe.v1.0.0, version 1.0.0 (revision pipe-1 on the cluster)
New:  pipe.v1.0.0, version 1.0.0 (old)

Objects: no difference

Permissions: no difference

CRDs: no difference

Config: no difference
";
        assert_eq!(printed, expected);
    }
    let ran = fixture.diff(&fixture.viewer, &["old", "--extension", "pipe", "--exit-code"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{}", ran.stdout);
}

async fn a_new_bundle(fixture: &Fixture) {
    let printed = fixture.printed(&["new", "--extension", "pipe"]).await;
    let two = super::fixture::olm(&["diff", "old", "new", "-f", "extension.yaml"]).stdout;
    let below =
        |text: &str| text[text.find("\nPermissions").unwrap()..text.find("\nConfig").unwrap()].to_owned();
    assert_eq!(below(&printed), below(&two));
    for line in [
        "Objects: 5 created, 3 changed, 5 deleted\n",
        "  + Service pipe-system/pipe-metrics\n",
        "      data.password: differs (not shown)\n",
        "      spec.template.spec.containers[manager].image: \"registry.example.com/pipe:1.0.0\" -> ",
        "      spec.versions[v1].schema.openAPIV3Schema.properties.spec.properties.length.maximum: 100 -> 50\n",
        "  - ConfigMap pipe-system/pipe-dashboard\n",
        "\nConfig: no difference\n",
    ] {
        assert!(printed.contains(line), "{line}{printed}");
    }
    let config = fixture.folder.path().join("config.yaml");
    std::fs::write(&config, "deploymentConfig: {nodeSelector: {disk: hdd}}\n").unwrap();
    let printed =
        fixture.printed(&["old", "--extension", "pipe", "--config", config.to_str().unwrap()]).await;
    for line in [
        "      spec.template.spec.nodeSelector.disk: \"ssd\" -> \"hdd\"\n",
        "\nConfig\n  inline.deploymentConfig.nodeSelector.disk: \"ssd\" -> \"hdd\"\n",
    ] {
        assert!(printed.contains(line), "{line}{printed}");
    }
}

async fn viewers_get_the_same_diff(fixture: &Fixture) {
    let ran =
        fixture.diff(&fixture.viewer, &["new", "--extension", "pipe", "--exit-code", "-o", "json"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (5, ""));
    let looked: Value = serde_json::from_str(&ran.stdout).unwrap();
    let asked = fixture.printed(&["new", "--extension", "pipe", "-o", "json"]).await;
    let mut asked: Value = serde_json::from_str(&asked).unwrap();
    let deployment = |answer: &Value| {
        let objects = answer["objects"].as_array().unwrap();
        objects.iter().find(|object| object["kind"] == "Deployment").unwrap().clone()
    };
    assert_eq!(deployment(&looked)["fields"], deployment(&asked)["fields"]);
    let note = deployment(&looked)["notes"][0].as_str().unwrap().to_owned();
    assert!(
        note.starts_with("only fields that the bundle sets are compared, because of this error: "),
        "{note}"
    );
    assert!(note.contains("User \"viewer\" cannot patch resource \"deployments\""), "{note}");
    for (part, value) in asked.as_object_mut().unwrap() {
        if part != "objects" {
            assert_eq!(looked[part], *value, "{part}");
        }
    }
    let names = |answer: &Value| -> Vec<Value> {
        let objects = answer["objects"].as_array().unwrap().iter();
        objects.map(|object| json!([object["change"], object["kind"], object["name"]])).collect()
    };
    assert_eq!(names(&looked), names(&asked));
}

async fn drift_and_collisions(fixture: &Fixture) {
    let deployments = api(&fixture.plane, "apps", "v1", "Deployment", Some(NAMESPACE));
    let patch = Patch::Merge(json!({"spec": {"replicas": 3}}));
    deployments.patch("pipe-manager", &PatchParams::default(), &patch).await.unwrap();
    let before = deployments.get("pipe-manager").await.unwrap().metadata.resource_version;
    let service = json!({"metadata": {"name": "pipe-metrics"}, "spec": {"ports": [{"port": 1}]}});
    create(&fixture.plane, "", "v1", "Service", Some(NAMESPACE), &service).await;

    let printed = fixture.printed(&["old", "--extension", "pipe"]).await;
    assert!(
        printed.contains("  ~ Deployment pipe-system/pipe-manager\n      spec.replicas: 3 -> 1\n\n"),
        "{printed}"
    );
    let printed = fixture.printed(&["new", "--extension", "pipe"]).await;
    let collision = "  ~ Service pipe-system/pipe-metrics\n      ! the object exists and does not belong to the \
                     extension";
    assert!(printed.contains(collision), "{printed}");
    assert_eq!(deployments.get("pipe-manager").await.unwrap().metadata.resource_version, before);
}

async fn version_that_vanishes_has_its_writers(fixture: &Fixture) {
    let crds = api(&fixture.plane, "apiextensions.k8s.io", "v1", "CustomResourceDefinition", None);
    let mut crd = crds.get("pipes.example.com").await.unwrap();
    let versions = crd.data["spec"]["versions"].as_array_mut().unwrap();
    let mut beta = versions[0].clone();
    beta["name"] = json!("v1beta1");
    beta["storage"] = json!(false);
    versions.push(beta);
    crds.replace("pipes.example.com", &PostParams::default(), &crd).await.unwrap();
    let pipe = |name: &str| json!({"metadata": {"name": name}, "spec": {"length": 1}});
    create(&fixture.plane, "example.com", "v1", "Pipe", Some(NAMESPACE), &pipe("current")).await;
    let written = json!({"apiVersion": "example.com/v1beta1", "kind": "Pipe", "metadata": {"name": "former"}, "spec": {"length": 2}});
    let pipes = api(&fixture.plane, "example.com", "v1beta1", "Pipe", Some(NAMESPACE));
    let client = PatchParams::apply("plumber");
    eventually("version v1beta1 is served", async || {
        pipes.patch("former", &client, &Patch::Apply(&written)).await.ok()
    })
    .await;
    let printed = fixture.printed(&["old", "--extension", "pipe"]).await;
    let line = "  ~ pipes.example.com: safe\n      v1beta1 is no longer served: clients that use it fail; 1 custom resource \
                was written in it, by plumber\n";
    assert!(printed.contains(line), "{printed}");
}
