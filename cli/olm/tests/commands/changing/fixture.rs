//! Cluster with a catalog and its bundles. The API server is real. A proxy in front of it serves the content of
//! catalogd's Service, because a control plane without pods cannot proxy to a Service. operator-controller does not
//! run: the tests write the status that it would write.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet};
use olm_bundle::{BundleContent, Certificates, RenderOptions};
use olm_control_plane::{ControlPlane, Options, eventually};
use olm_image::Image;
use olm_image::registry::Registry;
use olm_revision::engine::{Engine, Revision};
use olm_revision::generate::{BundleIdentity, Draft, Extension};
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::plan::Owner;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fixture::{Ran, bundle_files, olm_in, tests};

pub(crate) struct Fixture {
    plane: Arc<ControlPlane>,
    registry: Registry,
    folder: TempDir,
    logs: Arc<Mutex<BTreeMap<String, String>>>,
}

impl Fixture {
    /// Starts the cluster. `controllers` names the controllers of kube-controller-manager.
    pub(crate) async fn start(controllers: &'static [&'static str]) -> Self {
        let plane = ControlPlane::reused(Options { controllers }, &olm_api::crds::crds()).await.unwrap();
        let registry = Registry::start().await.unwrap();
        for (name, version, modes) in [
            ("lamp", "1.0.0", "AllNamespaces"),
            ("lamp", "1.1.0", "AllNamespaces"),
            ("lamp", "2.0.0", "AllNamespaces"),
            ("shade", "1.0.0", "AllNamespaces"),
            ("shade", "1.1.0", "AllNamespaces"),
            ("shade", "1.2.0", "AllNamespaces"),
            ("own", "1.0.0", "OwnNamespace"),
            ("base", "1.4.0", "AllNamespaces"),
            ("app", "2.0.0", "AllNamespaces"),
            ("tube", "1.0.0", "AllNamespaces"),
        ] {
            registry.add_image(name, version, &Image::bundle(&small_bundle(name, version, modes)).unwrap());
        }
        for (version, folder) in [("1.0.0", "old"), ("1.1.0", "new")] {
            registry.add_image("pipe", version, &Image::bundle(&pipe_bundle(folder)).unwrap());
        }
        registry.add_image("tube", "1.1.0", &Image::bundle(&tube_bundle()).unwrap());
        let folder = tempfile::tempdir().unwrap();
        for name in ["cas", "home", "tmp"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        registry.write_ca(&folder.path().join("cas")).unwrap();
        let fixture = Self { plane, registry, folder, logs: Arc::default() };
        fixture.play_catalogd().await;
        for name in ["olmv1-system", "pipe-system"] {
            fixture.create_namespace(name).await;
        }
        fixture.set_controller(&[]).await;
        fixture.add_catalog().await;
        fixture
    }

    pub(crate) fn client(&self) -> Client {
        self.plane.client()
    }

    pub(crate) fn extensions(&self) -> Api<ClusterExtension> {
        Api::all(self.client())
    }

    pub(crate) fn sets(&self) -> Api<ClusterObjectSet> {
        Api::all(self.client())
    }

    /// Sets the log of a pod, whose lines begin with a time.
    pub(crate) fn set_log(&self, pod: &str, text: &str) {
        self.logs.lock().unwrap().insert(pod.to_owned(), text.to_owned());
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Adds a bundle to the registry. Returns its reference.
    pub(crate) fn add_bundle(&self, name: &str, version: &str, files: &BTreeMap<String, Vec<u8>>) -> String {
        self.registry.add_image(name, version, &Image::bundle(files).unwrap());
        self.reference(&format!("{name}:{version}"))
    }

    /// Reference in the registry of the fixture.
    pub(crate) fn reference(&self, path: &str) -> String {
        format!("{}/{path}", self.registry.host())
    }

    pub(crate) async fn create_namespace(&self, name: &str) {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        Api::all(self.client()).create(&PostParams::default(), &namespace).await.unwrap();
    }

    /// Writes the Deployment of operator-controller with these arguments.
    pub(crate) async fn set_controller(&self, arguments: &[&str]) {
        let name = "operator-controller-controller-manager";
        let labels = json!({"app": "operator-controller"});
        let container =
            json!({"name": "manager", "image": "r.example/operator-controller", "args": arguments});
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}});
        let api: Api<Deployment> = Api::namespaced(self.client(), "olmv1-system");
        api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await.unwrap();
    }

    async fn add_catalog(&self) {
        let digest = format!("r.example/hub@sha256:{}", "a".repeat(64));
        let catalog: ClusterCatalog = serde_json::from_value(json!({
            "metadata": {"name": "hub", "labels": {"olm.operatorframework.io/metadata.name": "hub"}},
            "spec": {"source": {"type": "Image", "image": {"ref": "r.example/hub:v1"}}},
        }))
        .unwrap();
        let api: Api<ClusterCatalog> = Api::all(self.client());
        api.create(&PostParams::default(), &catalog).await.unwrap();
        let status = json!({"status": {
            "conditions": [condition("Serving", "True", "Available", "Serving desired content", 1)],
            "resolvedSource": {"type": "Image", "image": {"ref": digest}},
            "urls": {"base": "https://catalogd-service.olmv1-system.svc/catalogs/hub"},
        }});
        api.patch_status("hub", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    /// Serves the catalog and the logs of pods, and forwards all other requests to the API server.
    async fn play_catalogd(&self) {
        let catalog = std::fs::read_to_string(data("catalog.yaml")).unwrap();
        let catalog = catalog.replace("REGISTRY", &self.registry.host());
        let objects = olm_yaml::all_from_slice(catalog.as_bytes()).unwrap();
        let lines: String = objects.iter().map(|object| format!("{object}\n")).collect();
        let client = self.client();
        let logs = Arc::clone(&self.logs);
        let app = Router::new().fallback(move |request: Request| {
            let (client, lines, logs) = (client.clone(), lines.clone(), Arc::clone(&logs));
            async move {
                let path = request.uri().path();
                if path.ends_with("/catalogs/hub/api/v1/all") {
                    return lines.into_response();
                }
                // No kubelet serves logs.
                let pod = path.strip_suffix("/log").and_then(|path| path.rsplit('/').next());
                match pod.and_then(|pod| logs.lock().unwrap().get(pod).cloned()) {
                    Some(log) => log.into_response(),
                    None => forward(&client, request).await,
                }
            }
        });
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "main",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(self.path("kubeconfig"), config.to_string()).unwrap();
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = olm_in(&data(""), args);
        command.env("KUBECONFIG", self.path("kubeconfig")).env("HOME", self.path("home"));
        command.env("TMPDIR", self.path("tmp"));
        let pulls_nothing = ["cluster-check", "uninstall", "status", "rbac"];
        if !args.first().is_some_and(|name| pulls_nothing.contains(name)) && args.get(1) != Some(&"create") {
            command.arg("--ca-dir").arg(self.path("cas"));
        }
        command
    }

    /// Runs `olm` and waits for its end.
    pub(crate) async fn olm(&self, args: &[&str]) -> Ran {
        let mut command = self.command(args);
        let ran = tokio::task::spawn_blocking(move || Ran::from(command.output().unwrap())).await.unwrap();
        Ran {
            stdout: ran.stdout.replace(&self.registry.host(), "REGISTRY"),
            stderr: ran.stderr.replace(&self.registry.host(), "REGISTRY"),
            ..ran
        }
    }

    /// Starts `olm` without waiting.
    pub(crate) fn begin(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub(crate) async fn extension(&self, name: &str) -> ClusterExtension {
        let api = self.extensions();
        eventually(&format!("extension {name}"), async || api.get_opt(name).await.unwrap()).await
    }

    /// Waits until the extension reaches `generation`.
    pub(crate) async fn generation(&self, name: &str, generation: i64) -> ClusterExtension {
        let api = self.extensions();
        eventually(&format!("generation {generation} of {name}"), async || {
            api.get_opt(name).await.unwrap().filter(|one| one.metadata.generation == Some(generation))
        })
        .await
    }

    /// Writes conditions of an extension as operator-controller does.
    pub(crate) async fn say(
        &self,
        extension: &ClusterExtension,
        bundle: Option<(&str, &str)>,
        conditions: &[[&str; 4]],
    ) {
        let generation = extension.metadata.generation.unwrap();
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|[type_, status, reason, message]| condition(type_, status, reason, message, generation))
            .collect();
        let install = bundle.map(|(name, version)| json!({"bundle": {"name": name, "version": version}}));
        let status = json!({"status": {"conditions": conditions, "install": install}});
        let api = self.extensions();
        let name = extension.name_any();
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    /// Creates a revision without objects.
    pub(crate) async fn add_revision(
        &self,
        extension: &ClusterExtension,
        number: i64,
        bundle: &str,
        conditions: &[[&str; 4]],
    ) {
        let name = extension.name_any();
        let (package, version) = bundle.split_once(".v").unwrap();
        let set: ClusterObjectSet = serde_json::from_value(json!({
            "metadata": {
                "name": format!("{name}-{number}"),
                "labels": {
                    "olm.operatorframework.io/owner-kind": "ClusterExtension",
                    "olm.operatorframework.io/owner-name": name,
                },
                "annotations": {
                    "olm.operatorframework.io/bundle-name": bundle,
                    "olm.operatorframework.io/bundle-version": version,
                    "olm.operatorframework.io/package-name": package,
                },
            },
            "spec": {"lifecycleState": "Active", "revision": number, "collisionProtection": "Prevent"},
        }))
        .unwrap();
        let api = self.sets();
        if let Err(error) = api.create(&PostParams::default(), &set).await {
            assert!(error.to_string().contains("already exists"), "{error}");
        }
        let conditions: Vec<Value> = conditions
            .iter()
            .map(|[type_, status, reason, message]| condition(type_, status, reason, message, 1))
            .collect();
        let status = json!({"status": {"conditions": conditions}});
        let name = format!("{name}-{number}");
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    /// Writes everything that operator-controller writes once a bundle is installed.
    pub(crate) async fn settle(&self, extension: &ClusterExtension, number: i64, bundle: &str) {
        let version = bundle.split_once(".v").unwrap().1;
        let rolled_out = format!("Revision {version} has rolled out.");
        let progressing = ["Progressing", "True", "Succeeded", &rolled_out];
        let succeeded = ["Succeeded", "True", "Succeeded", "Revision succeeded rolling out."];
        self.add_revision(extension, number, bundle, &[progressing, succeeded]).await;
        let installed = ["Installed", "True", "Succeeded", "Installed bundle successfully"];
        self.say(extension, Some((bundle, version)), &[installed, progressing]).await;
    }

    /// Installs pipe.v1.0.0 with all its objects, as operator-controller does.
    pub(crate) async fn install_pipe(&self) -> ClusterExtension {
        self.install_pipe_with(false).await
    }

    /// Installs pipe.v1.0.0 with or without an OperatorCondition.
    pub(crate) async fn install_pipe_with(&self, operator_condition: bool) -> ClusterExtension {
        let client = self.client();
        let extension = self.extensions().create(&PostParams::default(), &pipe()).await.unwrap();
        let bundle = BundleContent::load(&pipe_bundle("old")).unwrap();
        let options = RenderOptions {
            install_namespace: "pipe-system",
            config: None,
            certificates: Certificates::Builtin,
            single_own_namespace: false,
            deployment_config: false,
            multi_watch_namespaces: false,
            owned_api_services: false,
            selected_namespaces: None,
            operator_condition,
            aggregate_api_roles: false,
        };
        let owner = Extension {
            name: "pipe".to_owned(),
            uid: extension.uid().unwrap(),
            progress_deadline_minutes: None,
        };
        let identity = BundleIdentity {
            name: bundle.name().to_owned(),
            package: bundle.package_name().to_owned(),
            version: bundle.version().unwrap().to_owned(),
            ..BundleIdentity::default()
        };
        let draft = Draft::new(owner, &identity, olm_bundle::render(&bundle, &options).unwrap()).unwrap();
        let revision = draft.number(1, "olmv1-system").unwrap();
        let secrets: Api<Secret> = Api::namespaced(client.clone(), "olmv1-system");
        for secret in &revision.secrets {
            secrets.create(&PostParams::default(), secret).await.unwrap();
        }
        let set = self.sets().create(&PostParams::default(), &revision.set).await.unwrap();
        let owner = Owner {
            name: "pipe-1".to_owned(),
            uid: set.uid().unwrap(),
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
        self.settle(&extension, 1, "pipe.v1.0.0").await;
        self.extensions().get("pipe").await.unwrap()
    }
}

fn pipe() -> ClusterExtension {
    let source = json!({"sourceType": "Catalog", "catalog": {"packageName": "pipe", "version": "1.0.0"}});
    let spec = json!({"namespace": "pipe-system", "source": source});
    serde_json::from_value(json!({"metadata": {"name": "pipe"}, "spec": spec})).unwrap()
}

/// Sends SIGINT.
pub(crate) fn interrupt(child: &Child) {
    let kill = Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap();
    assert!(kill.success());
}

/// Waits for the process to exit. Returns its output.
pub(crate) async fn ended(child: Child) -> Ran {
    tokio::task::spawn_blocking(move || Ran::from(child.wait_with_output().unwrap())).await.unwrap()
}

pub(crate) fn compare(name: &str, printed: &str) {
    crate::fixture::compare("commands/changing/golden", name, printed);
}

pub(crate) fn condition(type_: &str, status: &str, reason: &str, message: &str, generation: i64) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message, "observedGeneration": generation,
        "lastTransitionTime": "2026-01-02T03:04:05Z"})
}

pub(crate) async fn forward(client: &Client, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    // The client sets the host and the credentials. Bodies are forwarded unchanged.
    parts.headers.remove("host");
    parts.headers.remove("accept-encoding");
    let answer = client.send(http::Request::from_parts(parts, kube::client::Body::from(body))).await.unwrap();
    let (mut parts, body) = answer.into_parts();
    parts.headers.remove("transfer-encoding");
    parts.headers.remove("content-length");
    // A watch has no end.
    Response::from_parts(parts, Body::new(body))
}

fn data(name: &str) -> PathBuf {
    tests("commands/changing/data").join(name)
}

/// Bundle with one Deployment and the install mode `mode`.
pub(crate) fn small_bundle(name: &str, version: &str, mode: &str) -> BTreeMap<String, Vec<u8>> {
    let modes: Vec<Value> = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"]
        .iter()
        .map(|type_| json!({"type": type_, "supported": *type_ == mode}))
        .collect();
    let labels = json!({"app": name});
    let container = json!({"name": "manager", "image": format!("r.example/{name}:{version}")});
    let deployment = json!({"selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}});
    let csv = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": format!("{name}.v{version}")},
        "spec": {"version": version, "installModes": modes, "install": {"strategy": "deployment",
            "spec": {"deployments": [{"name": name, "spec": deployment}]}}},
    });
    let annotations = json!({"annotations": {"operators.operatorframework.io.bundle.package.v1": name}});
    BTreeMap::from([
        ("manifests/csv.yaml".to_owned(), csv.to_string().into_bytes()),
        ("metadata/annotations.yaml".to_owned(), annotations.to_string().into_bytes()),
    ])
}

/// Bundles of the tests of `olm diff`, which contain a CRD.
pub(crate) fn pipe_bundle(which: &str) -> BTreeMap<String, Vec<u8>> {
    bundle_files(&tests("commands/bundles/data").join(which))
}

/// Bundle of package tube with the objects of pipe.v1.0.0.
fn tube_bundle() -> BTreeMap<String, Vec<u8>> {
    let renamed = |content: Vec<u8>| {
        let text = String::from_utf8(content).unwrap();
        text.replace("name: pipe.v1.0.0", "name: tube.v1.1.0")
            .replace("package.v1: pipe", "package.v1: tube")
            .replace("version: 1.0.0", "version: 1.1.0")
            .into_bytes()
    };
    pipe_bundle("old").into_iter().map(|(path, content)| (path, renamed(content))).collect()
}
