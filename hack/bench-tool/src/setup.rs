//! Environment of the measured server: a control plane, a registry, and the server's process.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Config};
use olm_api::{ClusterCatalog, crds::crds};
use olm_control_plane::ControlPlane;
use olm_control_plane::ports::free_ports;
use olm_image::Image;
use olm_image::registry::Registry;
use serde_json::json;

use crate::content::Files;

pub(crate) const NAMESPACE: &str = "olmv1-system";
/// Time limit of every measurement.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(1);

/// Control plane, registry and certificate. Drop stops and removes them.
pub(crate) struct Setup {
    pub(crate) registry: Registry,
    /// CA certificate for clients of the server, PEM.
    pub(crate) ca: String,
    client: Client,
    kubeconfig: PathBuf,
    _plane: Option<ControlPlane>,
    directory: tempfile::TempDir,
}

impl Setup {
    /// Starts a control plane.
    pub(crate) async fn start() -> Result<Self> {
        let plane = ControlPlane::start().await?;
        let (client, kubeconfig) = (plane.client(), plane.kubeconfig().to_owned());
        Self::beside(client, kubeconfig, Some(plane)).await
    }

    /// Uses an existing cluster without any OLM objects.
    pub(crate) async fn on(kubeconfig: &Path) -> Result<Self> {
        let config = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        Self::beside(Client::try_from(config)?, kubeconfig.to_owned(), None).await
    }

    async fn beside(client: Client, kubeconfig: PathBuf, plane: Option<ControlPlane>) -> Result<Self> {
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

    /// Kubeconfig of the servers.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Path of a file in the setup's directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Cache directory of the server.
    pub(crate) fn cache(&self) -> PathBuf {
        self.file("cache")
    }
}

fn serves(catalog: &ClusterCatalog, digest: &str) -> bool {
    let Some(status) = catalog.status.as_ref().and_then(|status| serde_json::to_value(status).ok()) else {
        return false;
    };
    let resolved = status["resolvedSource"]["image"]["ref"].as_str().unwrap_or_default();
    let serving =
        |condition: &serde_json::Value| condition["type"] == "Serving" && condition["status"] == "True";
    resolved.ends_with(digest) && status["conditions"].as_array().is_some_and(|all| all.iter().any(serving))
}

/// Running catalogd. Killed on drop.
pub(crate) struct Catalogd {
    child: Child,
    port: u16,
    /// Start time of the process.
    pub(crate) started: Instant,
}

impl Catalogd {
    /// Starts the process with the content in the setup's directory.
    pub(crate) fn spawn(setup: &Setup, binary: &Path, log: bool) -> Result<Self> {
        let [port, probe_port, webhook_port] = free_ports()?;
        let file = |name: &str| setup.file(name).display().to_string();
        let output = if log { Stdio::inherit() } else { File::create(file("catalogd.log"))?.into() };
        let started = Instant::now();
        let child = Command::new(binary)
            .arg(format!("--kubeconfig={}", setup.kubeconfig().display()))
            .arg(format!("--system-namespace={NAMESPACE}"))
            .arg("--feature-gates=APIV1MetasHandler=true")
            .arg(format!("--cache-dir={}", setup.cache().display()))
            .arg(format!("--pull-cas-dir={}", file("registry")))
            .arg("--registry-deny-cidrs=")
            .arg(format!("--tls-cert={}", file("tls.crt")))
            .arg(format!("--tls-key={}", file("tls.key")))
            .arg(format!("--catalogs-server-addr=127.0.0.1:{port}"))
            .arg(format!("--external-address=localhost:{port}"))
            .arg(format!("--health-probe-bind-address=127.0.0.1:{probe_port}"))
            .arg(format!("--webhook-server-port={webhook_port}"))
            .arg("--metrics-bind-address=0")
            .stdin(Stdio::null())
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {}", binary.display()))?;
        Ok(Self { child, port, started })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// URL of an endpoint, `CATALOG/api/v1/...`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}/catalogs/{path}", self.port)
    }

    /// Waits until the response to a request for `path` has `status`. Returns the time.
    pub(crate) async fn until(
        &mut self,
        client: &reqwest::Client,
        path: &str,
        status: u16,
    ) -> Result<Instant> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answered =
                client.head(self.url(path)).send().await.is_ok_and(|answer| answer.status() == status);
            if answered {
                return Ok(Instant::now());
            }
            if let Some(ended) = self.child.try_wait()? {
                bail!("catalogd exited with {ended}; --log shows why");
            }
            ensure!(
                Instant::now() < deadline,
                "catalogd does not respond to {path} with {status}; --log shows why"
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Sends SIGTERM and waits for the exit.
    pub(crate) async fn stop(mut self) -> Result<()> {
        let sent = Command::new("kill").args(["-TERM", &self.pid().to_string()]).status()?;
        ensure!(sent.success(), "catalogd has exited");
        let deadline = Instant::now() + PATIENCE;
        while self.child.try_wait()?.is_none() {
            ensure!(Instant::now() < deadline, "catalogd does not exit");
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }
}

impl Drop for Catalogd {
    fn drop(&mut self) {
        // Both fail only if the process has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
