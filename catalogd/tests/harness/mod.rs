//! A control plane, a registry, and catalogd processes that end with the test.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use olm_api::{ClusterCatalog, crds::crds};
use olm_control_plane::ControlPlane;
use olm_image::registry::Registry;
use olm_service::ca_pool::{CaPool, CaSources};
use olm_service::tls_profile::{ProfileName, TlsProfile, Version};
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "olmv1-system";
/// Generous, because tests share the machine with compilers.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(50);

/// Everything around catalogd.
pub(crate) struct World {
    pub(crate) plane: ControlPlane,
    pub(crate) registry: Registry,
    directory: tempfile::TempDir,
    webhook_port: u16,
}

impl World {
    pub(crate) async fn start() -> Self {
        let registry = Registry::start().await.unwrap();
        let plane = ControlPlane::start().await.unwrap();
        plane.apply_crds(&crds()).await.unwrap();
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
        Api::all(plane.client()).create(&PostParams::default(), &namespace).await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("cas")).unwrap();
        registry.write_ca(&directory.path().join("cas")).unwrap();
        Self { plane, registry, directory, webhook_port: free_port() }
    }

    pub(crate) fn catalogs(&self) -> Api<ClusterCatalog> {
        Api::all(self.plane.client())
    }

    pub(crate) fn cache(&self, pod: &str) -> PathBuf {
        self.directory.path().join(format!("cache-{pod}"))
    }

    /// A catalog of `image` (path and tag in the registry) with `changes` merged in.
    pub(crate) fn catalog(&self, name: &str, image: &str, changes: Value) -> ClusterCatalog {
        let mut object = json!({
            "metadata": {"name": name},
            "spec": {"source": {"type": "Image", "image": {"ref": format!("{}/{image}", self.registry.host())}}}
        });
        merge(&mut object, changes);
        serde_json::from_value(object).unwrap()
    }

    pub(crate) async fn create(&self, name: &str, image: &str, changes: Value) {
        let catalog = self.catalog(name, image, changes);
        self.catalogs().create(&PostParams::default(), &catalog).await.unwrap();
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) -> ClusterCatalog {
        self.catalogs().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.catalogs().delete(name, &DeleteParams::default()).await.unwrap();
        self.until_gone(name, PATIENCE).await;
    }

    /// The catalog once `holds`.
    pub(crate) async fn until(&self, name: &str, holds: impl Fn(&ClusterCatalog) -> bool) -> ClusterCatalog {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let catalog = self.catalogs().get(name).await.unwrap();
            if holds(&catalog) {
                return catalog;
            }
            assert!(Instant::now() < deadline, "{name} stays {}", serde_json::to_string(&catalog).unwrap());
            tokio::time::sleep(LOOK).await;
        }
    }

    pub(crate) async fn until_gone(&self, name: &str, patience: Duration) {
        let deadline = Instant::now() + patience;
        while let Some(catalog) = self.catalogs().get_opt(name).await.unwrap() {
            assert!(Instant::now() < deadline, "{name} stays {}", serde_json::to_string(&catalog).unwrap());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// A client that trusts the built-in CA.
    pub(crate) async fn client(&self) -> reqwest::Client {
        let secrets: Api<Secret> = Api::namespaced(self.plane.client(), NAMESPACE);
        let secret = secrets.get("olmv1-ca").await.unwrap();
        let bundle = secret.data.unwrap().remove("ca.crt").unwrap().0;
        let trusted = tempfile::tempdir().unwrap();
        std::fs::write(trusted.path().join("ca.crt"), bundle).unwrap();
        let profile = TlsProfile::new(ProfileName::Modern, Version::Tls12, &[], &[]).unwrap();
        let sources = CaSources { directory: Some(trusted.path().to_owned()), bundle: None };
        Arc::new(CaPool::load(sources, profile).unwrap()).client()
    }

    /// The administrator's token.
    pub(crate) fn token(&self) -> String {
        let kubeconfig = Kubeconfig::read_from(self.plane.kubeconfig()).unwrap();
        let kubeconfig = serde_json::to_value(&kubeconfig).unwrap();
        kubeconfig["users"][0]["user"]["token"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn create_webhook_configuration(&self) {
        let url = format!(
            "https://localhost:{}/mutate-olm-operatorframework-io-v1-clustercatalog",
            self.webhook_port
        );
        let configuration: MutatingWebhookConfiguration = serde_json::from_value(json!({
            "metadata": {"name": "catalogd-mutating-webhook-configuration"},
            "webhooks": [{
                "name": "inject-metadata-name.olm.operatorframework.io",
                "clientConfig": {"url": url},
                "rules": [{"apiGroups": ["olm.operatorframework.io"], "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"], "resources": ["clustercatalogs"]}],
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
            }]
        }))
        .unwrap();
        Api::all(self.plane.client()).create(&PostParams::default(), &configuration).await.unwrap();
    }
}

/// A running catalogd.
pub(crate) struct Catalogd {
    child: Child,
    content_port: u16,
    pub(crate) metrics_port: u16,
}

impl Catalogd {
    /// Starts the process of pod `pod` and waits until it is ready.
    pub(crate) async fn start(world: &World, pod: &str) -> Self {
        let [content_port, metrics_port, probe_port] = [free_port(), free_port(), free_port()];
        let webhook_port = if pod == "first" { world.webhook_port } else { free_port() };
        let mut command = Command::new(env!("CARGO_BIN_EXE_catalogd"));
        command
            .args(["--leader-elect", "--cert-management=builtin", "--feature-gates=APIV1MetasHandler=true"])
            .args(["--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s"])
            .args(["--leader-elect-retry-period=200ms", "-v=1"])
            .arg(format!("--kubeconfig={}", world.plane.kubeconfig().display()))
            .arg(format!("--system-namespace={NAMESPACE}"))
            .arg(format!("--cache-dir={}", world.cache(pod).display()))
            .arg(format!("--pull-cas-dir={}", world.directory.path().join("cas").display()))
            .arg(format!("--catalogs-server-addr=127.0.0.1:{content_port}"))
            .arg(format!("--external-address=localhost:{content_port}"))
            .arg(format!("--metrics-bind-address=127.0.0.1:{metrics_port}"))
            .arg(format!("--health-probe-bind-address=127.0.0.1:{probe_port}"))
            .arg(format!("--webhook-server-port={webhook_port}"))
            .env("POD_NAME", pod)
            .env("POD_UID", format!("uid-{pod}"))
            .stdin(Stdio::null());
        let mut started = Self { child: command.spawn().unwrap(), content_port, metrics_port };
        let deadline = Instant::now() + PATIENCE;
        let url = format!("http://127.0.0.1:{probe_port}/readyz");
        while !reqwest::get(&url).await.is_ok_and(|answer| answer.status() == 200) {
            assert_eq!(started.child.try_wait().unwrap(), None, "catalogd ended");
            assert!(Instant::now() < deadline, "catalogd is not ready");
            tokio::time::sleep(LOOK).await;
        }
        started
    }

    pub(crate) fn external_address(&self) -> String {
        format!("localhost:{}", self.content_port)
    }

    async fn request(&self, world: &World, path: &str) -> reqwest::Response {
        let url = format!("https://{}/catalogs/{path}", self.external_address());
        world.client().await.get(url).send().await.unwrap()
    }

    /// Status and text of an answer.
    pub(crate) async fn get(&self, world: &World, path: &str) -> (u16, String) {
        let answer = self.request(world, path).await;
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    pub(crate) async fn last_modified(&self, world: &World, catalog: &str) -> String {
        let answer = self.request(world, &format!("{catalog}/api/v1/all")).await;
        answer.headers()["last-modified"].to_str().unwrap().to_owned()
    }

    /// `kill -9`.
    pub(crate) async fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; it must end well and soon.
    pub(crate) async fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            assert!(Instant::now() < deadline, "catalogd does not end");
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for Catalogd {
    fn drop(&mut self) {
        // Both fail only if it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A condition without its time.
pub(crate) fn condition(catalog: &ClusterCatalog, type_: &str) -> Option<Value> {
    let conditions = &catalog.status.as_ref()?.conditions;
    let found = conditions.iter().find(|condition| condition.type_ == type_)?;
    Some(json!({"status": found.status, "reason": found.reason, "message": found.message,
        "observedGeneration": found.observed_generation}))
}

fn merge(target: &mut Value, change: Value) {
    match change {
        Value::Object(members) => {
            members.into_iter().for_each(|(key, value)| merge(&mut target[&key], value))
        }
        other => *target = other,
    }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}
