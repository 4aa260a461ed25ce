//! A control plane, a registry, and catalogd processes that end with the test.

// Each test binary uses a different part.
#![allow(dead_code)]

pub(crate) mod cgroup;
pub(crate) mod strace;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use olm_api::{ClusterCatalog, annotations, crds::crds};
use olm_control_plane::ControlPlane;
pub(crate) use olm_control_plane::{PATIENCE, eventually};
use olm_image::Image;
use olm_image::registry::Registry;
use olm_runtime::Component;
use olm_serving::builtin::BuiltinCertificates;
use olm_serving::ca_pool::{CaPool, CaSources};
use olm_serving::tls_profile::{ProfileName, TlsProfile, Version};
use serde_json::{Value, json};

pub(crate) const NAMESPACE: &str = "olmv1-system";
const LOOK: Duration = Duration::from_millis(20);
/// Number of log lines that a failed test shows.
const LOG_LINES: usize = 60;

/// An image with one file of catalog content.
pub(crate) fn image(yaml: &str) -> Image {
    image_of(&BTreeMap::from([("catalog.yaml".to_owned(), yaml.as_bytes().to_vec())]))
}

/// An image with these files as catalog content.
pub(crate) fn image_of(files: &BTreeMap<String, Vec<u8>>) -> Image {
    Image::catalog(files).unwrap()
}

/// The environment of catalogd.
pub(crate) struct World {
    pub(crate) plane: ControlPlane,
    pub(crate) registry: Registry,
    directory: tempfile::TempDir,
    webhook_port: u16,
    authority: Vec<u8>,
    client: tokio::sync::OnceCell<reqwest::Client>,
}

impl World {
    pub(crate) async fn start() -> Self {
        let registry = Registry::start().await.unwrap();
        let plane = ControlPlane::start().await.unwrap();
        plane.apply_crds(&crds()).await.unwrap();
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).unwrap();
        Api::all(plane.client()).create(&PostParams::default(), &namespace).await.unwrap();
        // Issued by operator-controller in an installation.
        let issuer = BuiltinCertificates::new(plane.client(), NAMESPACE, Component::Catalogd, NAMESPACE);
        let authority = issuer.ensure().await.unwrap().ca_bundle;
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("cas")).unwrap();
        registry.write_ca(&directory.path().join("cas")).unwrap();
        let (webhook_port, client) = (free_port(), tokio::sync::OnceCell::new());
        Self { plane, registry, directory, webhook_port, authority, client }
    }

    pub(crate) fn catalogs(&self) -> Api<ClusterCatalog> {
        Api::all(self.plane.client())
    }

    /// A path for the test's own files.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn cache(&self, pod: &str) -> PathBuf {
        self.file(&format!("cache-{pod}"))
    }

    /// The log of a pod.
    pub(crate) fn log(&self, pod: &str) -> String {
        std::fs::read_to_string(self.file(&format!("{pod}.log"))).unwrap()
    }

    /// Number of reconciles of a catalog that a pod has started.
    pub(crate) fn reconciles(&self, pod: &str, catalog: &str) -> usize {
        let name = format!("name={catalog:?}");
        let log = self.log(pod);
        log.lines().filter(|line| line.contains("reconcile starting") && line.contains(&name)).count()
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

    /// Requests a poll with the refresh annotation.
    pub(crate) async fn refresh(&self, name: &str) {
        let key = annotations::EXT_REFRESH_REQUESTED_AT;
        self.patch(name, json!({"metadata": {"annotations": {key: jiff::Timestamp::now().to_string()}}}))
            .await;
    }

    /// Waits until `holds` returns `true`, and returns the catalog.
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

    /// Waits until the content of this image digest is served according to the status.
    pub(crate) async fn until_served(&self, name: &str, digest: &str) -> ClusterCatalog {
        self.until(name, |catalog| {
            resolved(catalog).ends_with(digest)
                && reason(catalog, "Progressing") == "Succeeded"
                && reason(catalog, "Serving") == "Available"
        })
        .await
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
        let make = async || client_trusting(&self.authority);
        self.client.get_or_init(make).await.clone()
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
                "clientConfig": {"url": url, "caBundle": ByteString(self.authority.clone())},
                "rules": [{"apiGroups": ["olm.operatorframework.io"], "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"], "resources": ["clustercatalogs"]}],
                "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
            }]
        }))
        .unwrap();
        Api::all(self.plane.client()).create(&PostParams::default(), &configuration).await.unwrap();
    }
}

/// A client that trusts these certificates (PEM).
pub(crate) fn client_trusting(certificates: &[u8]) -> reqwest::Client {
    let trusted = tempfile::tempdir().unwrap();
    std::fs::write(trusted.path().join("ca.crt"), certificates).unwrap();
    let profile = TlsProfile::new(ProfileName::Modern, Version::Tls12, &[], &[]).unwrap();
    let sources = CaSources { system: Vec::new, directory: Some(trusted.path().to_owned()), bundle: None };
    Arc::new(CaPool::load(sources, profile).unwrap()).client()
}

/// Flags of a process without certificates and other replicas: plain HTTP, no leader election.
pub(crate) const ALONE: [&str; 2] = ["--insecure-http", "--metrics-bind-address="];

/// A running catalogd.
pub(crate) struct Catalogd {
    child: Child,
    log: PathBuf,
    scheme: &'static str,
    pub(crate) content_port: u16,
    pub(crate) metrics_port: u16,
    pub(crate) probe_port: u16,
    pub(crate) webhook_port: u16,
}

impl Catalogd {
    /// Starts the process of pod `pod` with built-in certificates and leader election, and waits until it is ready.
    pub(crate) async fn start(world: &World, pod: &str) -> Self {
        Self::start_with(world, pod, &[]).await
    }

    /// As [`Self::start`], with further flags, which take precedence.
    pub(crate) async fn start_with(world: &World, pod: &str, flags: &[&str]) -> Self {
        let standard = [
            "--leader-elect",
            "--cert-management=builtin",
            "--leader-elect-lease-duration=6s",
            "--leader-elect-renew-deadline=4s",
            "--leader-elect-retry-period=200ms",
        ];
        Self::spawn(world, pod, &[&standard, flags].concat()).await
    }

    /// Starts the process with the flags [`ALONE`] and waits until it is ready.
    pub(crate) async fn start_alone(world: &World, pod: &str, flags: &[&str]) -> Self {
        Self::spawn(world, pod, &[&ALONE, flags].concat()).await
    }

    async fn spawn(world: &World, pod: &str, flags: &[&str]) -> Self {
        Self::start_as(world, pod, &[env!("CARGO_BIN_EXE_catalogd")], flags).await
    }

    /// Starts `program`, which is catalogd or a wrapper of it, and waits until it is ready.
    pub(crate) async fn start_as(world: &World, pod: &str, program: &[&str], flags: &[&str]) -> Self {
        let mut started = Self::launch(world, pod, program, flags);
        let url = format!("http://127.0.0.1:{}/readyz", started.probe_port);
        let client = reqwest::Client::new();
        eventually("catalogd is ready", async || {
            assert_eq!(started.ended(), None, "catalogd exited");
            let answer = client.get(&url).send().await;
            answer.is_ok_and(|answer| answer.status() == 200).then_some(())
        })
        .await;
        started
    }

    /// Starts `program`, which is catalogd or a wrapper of it, without waiting.
    pub(crate) fn launch(world: &World, pod: &str, program: &[&str], flags: &[&str]) -> Self {
        let [content_port, metrics_port, probe_port] = [free_port(), free_port(), free_port()];
        let webhook_port = if pod == "first" { world.webhook_port } else { free_port() };
        let log = world.file(&format!("{pod}.log"));
        let output = File::options().create(true).append(true).open(&log).unwrap();
        let mut command = Command::new(program[0]);
        command
            .args(&program[1..])
            .args(["--feature-gates=APIV1MetasHandler=true", "-v=1"])
            .arg(format!("--kubeconfig={}", world.plane.kubeconfig().display()))
            .arg(format!("--system-namespace={NAMESPACE}"))
            .arg(format!("--cache-dir={}", world.cache(pod).display()))
            .arg(format!("--pull-cas-dir={}", world.file("cas").display()))
            .arg("--registry-deny-cidrs=")
            .arg(format!("--catalogs-server-addr=127.0.0.1:{content_port}"))
            .arg(format!("--external-address=localhost:{content_port}"))
            .arg(format!("--metrics-bind-address=127.0.0.1:{metrics_port}"))
            .arg(format!("--health-probe-bind-address=127.0.0.1:{probe_port}"))
            .arg(format!("--webhook-server-port={webhook_port}"))
            .args(flags)
            .env("POD_NAME", pod)
            .env("POD_UID", format!("uid-{pod}"))
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output);
        let child = command.spawn().unwrap();
        let scheme = if flags.contains(&"--insecure-http") { "http" } else { "https" };
        Self { child, log, scheme, content_port, metrics_port, probe_port, webhook_port }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Exit status of the process, if it has exited.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub(crate) fn external_address(&self) -> String {
        format!("localhost:{}", self.content_port)
    }

    /// URL of a path below `/catalogs/`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}://{}/catalogs/{path}", self.scheme, self.external_address())
    }

    async fn request(&self, world: &World, path: &str) -> reqwest::Response {
        let client = if self.scheme == "https" { world.client().await } else { reqwest::Client::new() };
        client.get(self.url(path)).send().await.unwrap()
    }

    /// Status and body of the answer to a GET request.
    pub(crate) async fn get(&self, world: &World, path: &str) -> (u16, String) {
        let answer = self.request(world, path).await;
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    pub(crate) async fn last_modified(&self, world: &World, catalog: &str) -> String {
        let answer = self.request(world, &format!("{catalog}/api/v1/all")).await;
        answer.headers()["last-modified"].to_str().unwrap().to_owned()
    }

    /// Sends SIGKILL.
    pub(crate) async fn kill(mut self) {
        self.kill_and_wait();
    }

    /// Sends SIGKILL, for callers that still use the process afterwards.
    pub(crate) fn kill_and_wait(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends SIGTERM and waits for a successful exit.
    pub(crate) async fn stop(mut self) {
        let pid = self.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = eventually("catalogd exits", async || self.ended()).await;
        assert!(status.success(), "{status}");
    }
}

impl Drop for Catalogd {
    fn drop(&mut self) {
        // Both fail only if it has exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("last lines of {}:", self.log.display());
            lines[lines.len().saturating_sub(LOG_LINES)..].iter().for_each(|line| eprintln!("{line}"));
        }
    }
}

/// Files and directories of the cache while one catalog, `cat`, is served and no image is being unpacked.
pub(crate) const AT_REST: [&str; 6] =
    ["attempts", "catalogs", "catalogs/cat", "catalogs/cat/content", "catalogs/cat/verified", "unpack"];

/// All paths below a directory, relative to it and sorted. Empty if it does not exist.
pub(crate) fn files_below(directory: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(next) = open.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten() {
            let path = entry.unwrap().path();
            files.push(path.strip_prefix(directory).unwrap().display().to_string());
            if path.is_dir() {
                open.push(path);
            }
        }
    }
    files.sort();
    files
}

/// A condition without its time.
pub(crate) fn condition(catalog: &ClusterCatalog, type_: &str) -> Option<Value> {
    let conditions = &catalog.status.as_ref()?.conditions;
    let found = conditions.iter().find(|condition| condition.type_ == type_)?;
    Some(json!({"status": found.status, "reason": found.reason, "message": found.message,
        "observedGeneration": found.observed_generation}))
}

/// The reason of a condition, empty if absent.
pub(crate) fn reason(catalog: &ClusterCatalog, type_: &str) -> String {
    text_of(catalog, type_, "reason")
}

/// The message of a condition, empty if absent.
pub(crate) fn message(catalog: &ClusterCatalog, type_: &str) -> String {
    text_of(catalog, type_, "message")
}

fn text_of(catalog: &ClusterCatalog, type_: &str, member: &str) -> String {
    condition(catalog, type_)
        .map_or_else(String::new, |condition| condition[member].as_str().unwrap().to_owned())
}

/// `status.resolvedSource`, empty if absent.
pub(crate) fn resolved(catalog: &ClusterCatalog) -> &str {
    let source = catalog.status.as_ref().and_then(|status| status.resolved_source.as_ref());
    source.map_or("", |source| &source.image.ref_)
}

fn merge(target: &mut Value, change: Value) {
    match change {
        Value::Object(members) => {
            members.into_iter().for_each(|(key, value)| merge(&mut target[&key], value))
        }
        other => *target = other,
    }
}

pub(crate) fn free_port() -> u16 {
    olm_control_plane::ports::free_port().unwrap()
}
