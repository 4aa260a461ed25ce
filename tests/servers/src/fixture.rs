//! Environment of the servers: control plane, proxy, registry, certificates, content.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use olm_api::conditions::is_true;
use olm_api::crds::crds;
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet};
use olm_control_plane::ports::free_ports;
use olm_control_plane::{ControlPlane, HOUSEKEEPING, PATIENCE, check_controllers, pause};
use olm_image::Image;
use olm_image::registry::Registry;
use serde_json::{Value, json};

use crate::{Bundle, Catalog, Programs, Proxy, Published, Server};

/// System namespace.
pub const NAMESPACE: &str = "olmv1-system";

/// Environment of the servers. Drop stops and removes everything.
pub struct ServerFixture {
    /// Cluster.
    pub plane: ControlPlane,
    /// Registry of bundles and catalogs.
    pub registry: Registry,
    /// Proxy between operator-controller and the cluster.
    pub proxy: Proxy,
    programs: Programs,
    ports: [u16; 4],
    directory: tempfile::TempDir,
}

impl ServerFixture {
    /// Starts everything except for the servers. Creates the CRDs and [`NAMESPACE`].
    ///
    /// # Errors
    /// A component could not be started.
    pub async fn start(programs: Programs) -> Result<Self> {
        check_controllers()?;
        let fixture = Self::start_without_controllers(programs).await?;
        fixture.plane.start_controllers(HOUSEKEEPING)?;
        Ok(fixture)
    }

    /// Starts everything like [`ServerFixture::start`], without garbage collection.
    ///
    /// # Errors
    /// A component could not be started.
    pub async fn start_without_controllers(programs: Programs) -> Result<Self> {
        let registry = Registry::start().await?;
        let plane = ControlPlane::start().await?;
        plane.apply_crds(&crds()).await?;
        let proxy = Proxy::start(plane.kubeconfig()).await?;
        let directory = tempfile::Builder::new().prefix("olm-servers-").tempdir()?;
        let file = |name: &str| directory.path().join(name);
        std::fs::create_dir(file("registry"))?;
        std::fs::create_dir(file("tmp"))?;
        registry.write_ca(&file("registry"))?;
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
        std::fs::create_dir(file("catalogd-ca"))?;
        std::fs::write(file("catalogd-ca/ca.crt"), certified.cert.pem())?;
        std::fs::write(file("tls.crt"), certified.cert.pem())?;
        std::fs::write(file("tls.key"), certified.signing_key.serialize_pem())?;
        let fixture = Self { plane, registry, proxy, programs, ports: free_ports()?, directory };
        fixture.create_namespace(NAMESPACE).await?;
        Ok(fixture)
    }

    /// Client of the cluster with administrator rights, without the proxy.
    #[must_use]
    pub fn client(&self) -> Client {
        self.plane.client()
    }

    /// Path of a file of the fixture.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts catalogd, which connects to the cluster directly, and waits until it is ready.
    ///
    /// # Errors
    /// The process exited, or is not ready in time.
    pub async fn start_catalogd(&self) -> Result<Server> {
        let mut started = self.launch_catalogd(&[])?;
        started.ready().await?;
        Ok(started)
    }

    /// Starts catalogd with additional flags, without waiting.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn launch_catalogd(&self, flags: &[&str]) -> Result<Server> {
        self.launch_catalogd_in(&[], flags)
    }

    /// Starts catalogd like [`ServerFixture::launch_catalogd`], with additional environment variables.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn launch_catalogd_in(&self, environment: &[(&str, String)], flags: &[&str]) -> Result<Server> {
        let file = |name: &str| self.file(name).display().to_string();
        let [content_port, webhook_port, probe_port, _] = self.ports;
        let mut arguments = vec![
            format!("--kubeconfig={}", self.plane.kubeconfig().display()),
            format!("--system-namespace={NAMESPACE}"),
            "--feature-gates=APIV1MetasHandler=true".to_owned(),
            format!("--cache-dir={}", file("catalogd")),
            format!("--pull-cas-dir={}", file("registry")),
            "--registry-deny-cidrs=".to_owned(),
            format!("--tls-cert={}", file("tls.crt")),
            format!("--tls-key={}", file("tls.key")),
            format!("--catalogs-server-addr=127.0.0.1:{content_port}"),
            format!("--external-address=localhost:{content_port}"),
            format!("--webhook-server-port={webhook_port}"),
            "--metrics-bind-address=0".to_owned(),
        ];
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let (program, log) = (&self.programs.catalogd, self.file("catalogd.log"));
        let environment = [&[("TMPDIR", file("tmp"))], environment].concat();
        Server::spawn("catalogd", program, &arguments, &environment, log, probe_port)
    }

    /// Starts operator-controller behind the proxy and waits until it is ready. Its cache folder is that of earlier
    /// processes.
    ///
    /// # Errors
    /// The process exited, or is not ready in time.
    pub async fn start_controller(&self) -> Result<Server> {
        let mut started = self.launch_controller(&[])?;
        started.ready().await?;
        Ok(started)
    }

    /// Starts operator-controller with additional flags, without waiting.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn launch_controller(&self, flags: &[&str]) -> Result<Server> {
        self.launch_controller_in(&[], flags)
    }

    /// Starts operator-controller like [`ServerFixture::launch_controller`], with additional environment variables.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn launch_controller_in(&self, environment: &[(&str, String)], flags: &[&str]) -> Result<Server> {
        let file = |name: &str| self.file(name).display().to_string();
        let [.., probe_port] = self.ports;
        let mut arguments = vec![
            format!("--kubeconfig={}", self.proxy.kubeconfig().display()),
            format!("--system-namespace={NAMESPACE}"),
            "--leader-elect=false".to_owned(),
            format!("--cache-path={}", file("operator-controller")),
            format!("--catalogd-cas-dir={}", file("catalogd-ca")),
            "--catalogd-hosts=localhost".to_owned(),
            format!("--pull-cas-dir={}", file("registry")),
            "--registry-deny-cidrs=".to_owned(),
        ];
        arguments.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let (program, log) = (&self.programs.operator_controller, self.file("operator-controller.log"));
        let environment = [&[("TMPDIR", file("tmp"))], environment].concat();
        let started =
            Server::spawn("operator-controller", program, &arguments, &environment, log, probe_port)?;
        self.proxy.set_process(started.pid());
        Ok(started)
    }

    /// Pushes the bundle's image to the registry.
    ///
    /// # Errors
    /// The image cannot be built.
    pub fn publish(&self, bundle: &Bundle) -> Result<Published> {
        let repository = format!("bundles/{}", bundle.package);
        let digest = self.registry.add_image(&repository, &format!("v{}", bundle.version), &bundle.image()?);
        Ok(Published::new(bundle, format!("{}/{repository}@{digest}", self.registry.host())))
    }

    /// Pushes the catalog's image to the registry. Returns its digest reference.
    ///
    /// # Errors
    /// The image cannot be built.
    pub fn push_catalog(&self, name: &str, catalog: &Catalog) -> Result<String> {
        let files = BTreeMap::from([("catalog.json".to_owned(), catalog.text().into_bytes())]);
        let repository = format!("catalogs/{name}");
        let digest = self.registry.add_image(&repository, "latest", &Image::catalog(&files)?);
        Ok(format!("{}/{repository}@{digest}", self.registry.host()))
    }

    /// Creates or updates the ClusterCatalog `name`, and waits until catalogd serves this content.
    ///
    /// # Errors
    /// The content is not served in time. Contains the status.
    pub async fn serve(&self, name: &str, catalog: &Catalog) -> Result<()> {
        let image = self.push_catalog(name, catalog)?;
        let object = json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": name, "labels": {"olm.operatorframework.io/metadata.name": name}},
            "spec": {"source": {"type": "Image", "image": {"ref": image}}},
        });
        let catalogs: Api<ClusterCatalog> = Api::all(self.client());
        catalogs.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object)).await?;
        self.until_served(name, &image).await
    }

    /// Waits until catalogd serves the content of this image as the ClusterCatalog `name`.
    ///
    /// # Errors
    /// The content is not served in time. Contains the status.
    pub async fn until_served(&self, name: &str, image: &str) -> Result<()> {
        let catalogs: Api<ClusterCatalog> = Api::all(self.client());
        let start = Instant::now();
        loop {
            let status = catalogs.get(name).await?.status.unwrap_or_default();
            let resolved = status.resolved_source.as_ref().map(|source| source.image.ref_.as_str());
            if resolved == Some(image) && is_true(&status.conditions, "Serving") {
                return Ok(());
            }
            ensure!(
                start.elapsed() < PATIENCE,
                "catalog {name} is not served: {}",
                serde_json::to_string(&status)?
            );
            pause(start).await;
        }
    }

    /// Creates a namespace.
    ///
    /// # Errors
    /// The API server rejects it.
    pub async fn create_namespace(&self, name: &str) -> Result<()> {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        Api::all(self.client()).create(&PostParams::default(), &namespace).await?;
        Ok(())
    }

    /// API of the ClusterExtensions.
    #[must_use]
    pub fn extensions(&self) -> Api<ClusterExtension> {
        Api::all(self.client())
    }

    /// API of the ClusterObjectSets.
    #[must_use]
    pub fn revisions(&self) -> Api<ClusterObjectSet> {
        Api::all(self.client())
    }

    /// Applies a merge patch to an extension.
    ///
    /// # Errors
    /// The API server rejects it.
    pub async fn edit(&self, name: &str, patch: Value) -> Result<ClusterExtension> {
        Ok(self.extensions().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    /// Waits until the extension satisfies `holds`, and returns it.
    ///
    /// # Errors
    /// The wait times out. Contains the extension.
    pub async fn until(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&ClusterExtension) -> bool,
    ) -> Result<ClusterExtension> {
        let start = Instant::now();
        loop {
            let extension = self.extensions().get(name).await?;
            if holds(&extension) {
                return Ok(extension);
            }
            if start.elapsed() > PATIENCE {
                bail!("timed out: {name} {what}: {}", serde_json::to_string(&extension)?);
            }
            pause(start).await;
        }
    }

    /// Waits until this version is installed, its rollout has ended and the status has the latest generation.
    ///
    /// # Errors
    /// The wait times out. Contains the extension.
    pub async fn until_installed(&self, name: &str, version: &str) -> Result<ClusterExtension> {
        self.until(name, &format!("has {version} installed"), |extension| is_installed(extension, version))
            .await
    }

    /// Deletes the extension and waits until it and its revisions are deleted.
    ///
    /// # Errors
    /// The wait times out.
    pub async fn remove(&self, name: &str) -> Result<()> {
        self.extensions().delete(name, &DeleteParams::default()).await.context("delete")?;
        let start = Instant::now();
        let selector = format!("{}={name}", olm_api::labels::OWNER_NAME);
        let owned = kube::api::ListParams::default().labels(&selector);
        loop {
            let extension = self.extensions().get_opt(name).await?;
            let revisions = self.revisions().list(&owned).await?.items;
            if extension.is_none() && revisions.is_empty() {
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                bail!("{name} was not deleted: {}", serde_json::to_string(&(extension, revisions))?);
            }
            pause(start).await;
        }
    }
}

/// Builds an extension of `package` in `namespace`. `version` is a version range.
#[must_use]
pub fn extension(name: &str, namespace: &str, package: &str, version: Option<&str>) -> Value {
    let mut catalog = json!({"packageName": package});
    if let Some(version) = version {
        catalog["version"] = version.into();
    }
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name},
        "spec": {"namespace": namespace, "source": {"sourceType": "Catalog", "catalog": catalog}},
    })
}

fn is_installed(extension: &ClusterExtension, version: &str) -> bool {
    let Some(status) = &extension.status else { return false };
    let is_current = |type_: &str| {
        let condition = olm_api::conditions::find(&status.conditions, type_);
        condition.is_some_and(|condition| {
            condition.reason == "Succeeded" && condition.observed_generation == extension.metadata.generation
        })
    };
    let installed = status.install.as_ref().map(|install| install.bundle.version.as_str());
    installed == Some(version) && is_current("Installed") && is_current("Progressing")
}
