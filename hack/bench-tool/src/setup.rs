//! Environment of the measured server: a control plane, a registry, and the server's process.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Config};
use olm_api::conditions::{is_true, types};
use olm_api::{ClusterCatalog, crds::crds};
use olm_control_plane::ControlPlane;
use olm_control_plane::ports::free_ports;
use olm_image::Image;
use olm_image::registry::Registry;
use serde_json::json;

use crate::Servers;
use crate::content::Files;
use crate::load::client;
use crate::process::{PATIENCE, Server};

const NAMESPACE: &str = "olmv1-system";
const LOOK: Duration = Duration::from_millis(1);

/// Control plane, registry and certificate. Drop stops and removes them.
pub(crate) struct Setup {
    pub(crate) registry: Registry,
    /// CA certificate for clients of the server, PEM.
    ca: String,
    client: Client,
    kubeconfig: PathBuf,
    _plane: Option<ControlPlane>,
    directory: tempfile::TempDir,
}

impl Setup {
    /// Uses an existing cluster without any OLM objects, or else starts a control plane.
    pub(crate) async fn start(cluster: Option<&Path>) -> Result<Self> {
        let (client, kubeconfig, plane) = match cluster {
            Some(path) => {
                let config = Kubeconfig::read_from(path)?;
                let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
                (Client::try_from(config)?, path.to_owned(), None)
            }
            None => {
                let plane = ControlPlane::start().await?;
                (plane.client(), plane.kubeconfig().to_owned(), Some(plane))
            }
        };
        let registry = Registry::start().await?;
        olm_control_plane::apply_crds(&client, &crds()).await?;
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        let directory = tempfile::Builder::new().prefix("olm-bench-").tempdir()?;
        std::fs::create_dir(directory.path().join("registry"))?;
        registry.write_ca(&directory.path().join("registry"))?;
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        std::fs::write(directory.path().join("tls.crt"), certified.cert.pem())?;
        std::fs::create_dir(directory.path().join("catalogd-ca"))?;
        std::fs::write(directory.path().join("catalogd-ca/ca.crt"), certified.cert.pem())?;
        std::fs::write(directory.path().join("tls.key"), certified.signing_key.serialize_pem())?;
        Ok(Self { registry, ca: certified.cert.pem(), client, kubeconfig, _plane: plane, directory })
    }

    /// Pushes a catalog image and returns its digest.
    pub(crate) fn push(&self, repository: &str, tag: &str, files: &Files) -> Result<String> {
        Ok(self.registry.add_image(repository, tag, &Image::catalog(files)?))
    }

    /// Applies a ClusterCatalog of the image `repository:tag` and waits until the content of `digest` is served.
    /// Returns the duration.
    pub(crate) async fn serve(&self, name: &str, tag: &str, digest: &str) -> Result<Duration> {
        let catalog = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": name},
            "spec": {"source": {"type": "Image", "image": {"ref": format!("{}/{name}:{tag}", self.registry.host())}}},
        });
        let catalogs: Api<ClusterCatalog> = Api::all(self.client());
        let started = Instant::now();
        catalogs.patch(name, &PatchParams::apply("olm-bench"), &Patch::Apply(&catalog)).await?;
        let is_served =
            |catalog: Option<&ClusterCatalog>| catalog.is_some_and(|catalog| serves(catalog, digest));
        let served = tokio::time::timeout(PATIENCE, await_condition(catalogs.clone(), name, is_served)).await;
        let took = started.elapsed();
        if served.is_err() {
            bail!("{name} is not served: {}", serde_json::to_string(&catalogs.get(name).await?.status)?);
        }
        Ok(took)
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Path of a file in the setup's directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Cache directory of operator-controller for catalog content, with one directory per catalog.
    pub(crate) fn package_cache(&self) -> PathBuf {
        self.file("operator-controller/catalogs")
    }

    /// Starts operator-controller.
    pub(crate) fn spawn_controller(&self, servers: &Servers) -> Result<Server> {
        let arguments = [
            format!("--cache-path={}", self.file("operator-controller").display()),
            format!("--catalogd-cas-dir={}", self.file("catalogd-ca").display()),
            "--catalogd-hosts=localhost".to_owned(),
        ];
        self.spawn("operator-controller", &servers.controller, servers.log, &arguments)
    }

    /// Starts a server with these arguments besides those that both servers have.
    fn spawn(&self, name: &'static str, binary: &Path, log: bool, arguments: &[String]) -> Result<Server> {
        let [probe_port] = free_ports()?;
        let common = [
            format!("--kubeconfig={}", self.kubeconfig.display()),
            format!("--system-namespace={NAMESPACE}"),
            format!("--pull-cas-dir={}", self.file("registry").display()),
            "--registry-deny-cidrs=".to_owned(),
            format!("--health-probe-bind-address=127.0.0.1:{probe_port}"),
        ];
        let file = self.file(&format!("{name}.log"));
        Server::spawn(name, binary, (!log).then_some(&*file), &[&common, arguments].concat())
    }
}

fn serves(catalog: &ClusterCatalog, digest: &str) -> bool {
    let Some(status) = &catalog.status else { return false };
    let is_resolved =
        status.resolved_source.as_ref().is_some_and(|source| source.image.ref_.ends_with(digest));
    is_resolved && is_true(&status.conditions, types::SERVING)
}

/// Running catalogd.
pub(crate) struct Catalogd {
    pub(crate) server: Server,
    pub(crate) client: reqwest::Client,
    port: u16,
    /// Start time of the process.
    pub(crate) started: Instant,
}

impl Catalogd {
    /// Starts the process with the content in the setup's directory.
    pub(crate) fn spawn(setup: &Setup, binary: &Path, log: bool) -> Result<Self> {
        let [port, webhook_port] = free_ports()?;
        let file = |name: &str| setup.file(name).display().to_string();
        let arguments = [
            "--feature-gates=APIV1MetasHandler=true".to_owned(),
            format!("--cache-dir={}", file("catalogd")),
            format!("--tls-cert={}", file("tls.crt")),
            format!("--tls-key={}", file("tls.key")),
            format!("--catalogs-server-addr=127.0.0.1:{port}"),
            format!("--external-address=localhost:{port}"),
            format!("--webhook-server-port={webhook_port}"),
            "--metrics-bind-address=0".to_owned(),
        ];
        let client = client(&setup.ca)?;
        let started = Instant::now();
        Ok(Self { server: setup.spawn("catalogd", binary, log, &arguments)?, client, port, started })
    }

    /// Starts the process and waits until it responds.
    pub(crate) async fn start(setup: &Setup, binary: &Path, log: bool) -> Result<Self> {
        let mut started = Self::spawn(setup, binary, log)?;
        started.until("none/api/v1/all", 404).await?;
        Ok(started)
    }

    /// URL of an endpoint, `CATALOG/api/v1/...`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}/catalogs/{path}", self.port)
    }

    /// Waits until the response to a request for `path` has `status`. Returns the time.
    pub(crate) async fn until(&mut self, path: &str, status: u16) -> Result<Instant> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answered =
                self.client.head(self.url(path)).send().await.is_ok_and(|answer| answer.status() == status);
            if answered {
                return Ok(Instant::now());
            }
            self.server.check()?;
            ensure!(
                Instant::now() < deadline,
                "catalogd does not respond to {path} with {status}; --log shows why"
            );
            tokio::time::sleep(LOOK).await;
        }
    }
}
