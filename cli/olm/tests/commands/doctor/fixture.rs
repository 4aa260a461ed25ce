//! Cluster with the objects of a healthy installation, and a kubelet that serves logs.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use olm_serving::https::{HttpServer, RustlsConfig};
use olm_serving::issue::{new_ca, new_leaf};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::sign::SingleCertAndKey;
use serde_json::{Value, json};

use crate::fixture::Ran;
use crate::revisions::fixture::Fixture;

pub(super) const SYSTEM: &str = "olmv1-system";
pub(super) const HEALTHY: [&str; 3] =
    ["Progressing=True/Succeeded ok", "Installed=True/Succeeded ok", "Available=True/ProbesSucceeded ok"];

/// Healthy installation.
pub(super) struct Installation {
    pub(super) fixture: Fixture,
    /// Text of every log.
    pub(super) log: Arc<Mutex<String>>,
    /// CA of the serving certificates (PEM).
    pub(super) ca: Vec<u8>,
    _kubelet: HttpServer,
}

fn object(api_version: &str, kind: &str, name: &str, rest: Value) -> Value {
    let mut object = rest;
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    object["metadata"]["name"] = json!(name);
    if !["ClusterCatalog", "Node"].contains(&kind) {
        object["metadata"]["namespace"] = json!(SYSTEM);
    }
    object
}

pub(super) fn named(api_version: &str, kind: &str, name: &str) -> Value {
    object(api_version, kind, name, json!({}))
}

impl Installation {
    pub(super) async fn start() -> Self {
        let fixture = Fixture::start().await;
        let now = Timestamp::now();
        let ca = new_ca("test", now).unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let kubelet = kubelet(&log);
        let node = json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.address.port()}}}});
        let node = object("v1", "Node", "node", node);
        fixture.create(&node).await;
        fixture.set_status(&node, node["status"].clone()).await;
        let this = Self { fixture, log, ca: ca.certificate.clone(), _kubelet: kubelet };
        for (server, lease) in
            [("catalogd", "catalogd-operator-lock"), ("operator-controller", "9c4404e7.operatorframework.io")]
        {
            this.create_server(server, lease).await;
            let names = [format!("{server}-service.{SYSTEM}.svc")];
            let leaf = new_leaf(&ca, "test", &names, now).unwrap();
            let data = json!({"tls.crt": BASE64_STANDARD.encode(&leaf.certificate), "tls.key": BASE64_STANDARD.encode(&leaf.key)});
            let secret = json!({"type": "kubernetes.io/tls", "data": data});
            this.create(object("v1", "Secret", &format!("{server}-service-cert"), secret)).await;
        }
        let spec = json!({"source": {"type": "Image", "image": {"ref": "registry.example.com/hub:v1"}}});
        let catalog = object("olm.operatorframework.io/v1", "ClusterCatalog", "hub", json!({"spec": spec}));
        this.create(catalog).await;
        this.set_catalog("Progressing=True/Succeeded ok").await;
        this.create_pull_secret().await;
        this.fixture.create_extension("demo", "1.x").await;
        this.fixture.set_installed("demo", "1.0.0", &HEALTHY, &[]).await;
        this
    }

    async fn create_server(&self, server: &str, lease: &str) {
        let manager = format!("{server}-controller-manager");
        let labels = json!({"control-plane": manager, "app.kubernetes.io/part-of": "olm"});
        let container = json!({"name": "manager", "image": format!("registry.example.com/{server}:v1.2.3"),
            "args": ["--leader-elect", format!("--global-pull-secret={SYSTEM}/pull")],
            "env": [{"name": "DB_PASSWORD", "value": "planted-env"}, {"name": "HTTPS_PROXY", "value": "http://u:planted-proxy@proxy:1"}]});
        let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
        let spec = json!({"selector": {"matchLabels": labels}, "template": template});
        self.create(object(
            "apps/v1",
            "Deployment",
            &manager,
            json!({"metadata": {"labels": labels}, "spec": spec}),
        ))
        .await;
        let pod =
            json!({"metadata": {"labels": labels}, "spec": {"nodeName": "node", "containers": [container]}});
        self.create(object("v1", "Pod", &manager, pod)).await;
        self.set_pod(server, 0, json!({"running": {}}), "True").await;
        let spec = json!({"holderIdentity": "a", "renewTime": now_micro(), "leaseDurationSeconds": 3600});
        self.create(object("coordination.k8s.io/v1", "Lease", lease, json!({"spec": spec}))).await;
        let service = format!("{server}-service");
        let spec = json!({"selector": labels, "ports": [{"port": 9443}]});
        self.create(object("v1", "Service", &service, json!({"spec": spec}))).await;
        let slice = json!({"metadata": {"labels": {"kubernetes.io/service-name": service}}, "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.1.1.1"], "conditions": {"ready": true}}], "ports": []});
        self.create(object("discovery.k8s.io/v1", "EndpointSlice", &service, slice)).await;
    }

    /// Creates the pull Secret of both servers.
    async fn create_pull_secret(&self) {
        let auth = BASE64_STANDARD.encode("user:planted-pull");
        let credentials = json!({"username": "user", "password": "planted-pull", "auth": auth});
        let config = json!({"auths": {"registry.example.com": credentials}});
        let data = json!({".dockerconfigjson": BASE64_STANDARD.encode(config.to_string())});
        let secret = json!({"type": "kubernetes.io/dockerconfigjson", "data": data});
        self.create(object("v1", "Secret", "pull", secret)).await;
    }

    pub(super) async fn create(&self, object: Value) {
        self.fixture.create(&object).await;
    }

    pub(super) async fn delete(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        self.fixture.api(object).delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(super) async fn merge(&self, object: &Value, patch: Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let api = self.fixture.api(object);
        api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    /// Writes the status of the pod of a server as a kubelet does.
    pub(super) async fn set_pod(&self, server: &str, restarts: u32, state: Value, ready: &str) {
        let container = json!({"name": "manager", "image": "i", "imageID": "", "ready": ready == "True",
            "restartCount": restarts, "state": state});
        let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [container]});
        let pod = named("v1", "Pod", &format!("{server}-controller-manager"));
        self.fixture.set_status(&pod, status).await;
    }

    /// Writes condition `Progressing` of the catalog. It is not served, because no catalogd would answer.
    pub(super) async fn set_catalog(&self, progressing: &str) {
        let catalog = named("olm.operatorframework.io/v1", "ClusterCatalog", "hub");
        let texts = ["Serving=False/Unavailable no catalogd", progressing];
        let conditions = crate::revisions::fixture::conditions(&texts, 1);
        self.fixture.set_status(&catalog, json!({"conditions": conditions})).await;
    }

    pub(super) async fn doctor(&self, args: &[&str]) -> Ran {
        self.fixture.olm(&[&["doctor"], args].concat()).await
    }

    /// Rules of all findings, each with its cause and object.
    pub(super) async fn findings(&self) -> Vec<String> {
        let ran = self.doctor(&["-o", "json"]).await;
        let report: Value = serde_json::from_str(&ran.stdout).unwrap();
        let findings = report["findings"].as_array().unwrap();
        let has_errors = findings.iter().any(|one| one["level"] == "error");
        assert_eq!(ran.code, if has_errors { 3 } else { 0 }, "{}", ran.stdout);
        let line = |one: &Value| {
            let cause = one["cause"].as_str().map(|cause| format!(" {cause}")).unwrap_or_default();
            format!("{}{cause}: {}", one["rule"].as_str().unwrap(), one["object"].as_str().unwrap())
        };
        findings.iter().map(line).collect()
    }
}

fn now_micro() -> String {
    format!("{:.6}", Timestamp::now())
}

/// Server of logs, as the API server expects it on a node.
fn kubelet(log: &Arc<Mutex<String>>) -> HttpServer {
    let _ = default_provider().install_default();
    let names = ["127.0.0.1".to_owned()];
    let ca = new_ca("kubelet", Timestamp::now()).unwrap();
    let leaf = new_leaf(&ca, "test", &names, Timestamp::now()).unwrap();
    let certified = leaf.parse("test", &default_provider()).unwrap();
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let log = Arc::clone(log);
    let logs = get(move || {
        let text = log.lock().unwrap().clone();
        async move { text }
    });
    let router = Router::new().route("/containerLogs/{namespace}/{pod}/{container}", logs);
    let tls = RustlsConfig::from_config(Arc::new(config));
    HttpServer::start("127.0.0.1:0".parse().unwrap(), Some(tls), router).unwrap()
}
