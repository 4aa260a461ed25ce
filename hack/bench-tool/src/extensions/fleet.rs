//! Many extensions of one catalog, and the servers that reconcile them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use olm_api::ClusterExtension;
use olm_api::conditions::{self, types};
use olm_image::Image;
use serde_json::json;

use super::content::{VERSIONS, bundle, name, package};
use super::requests::{self, Requests};
use crate::ControllerArguments;
use crate::content::Files;
use crate::process::{Server, Watch, memory, processor_time};
use crate::setup::{Catalogd, Setup};

pub(super) const INSTALL_NAMESPACE: &str = "bench";
const CATALOG: &str = "bench";
/// Time limit of every measurement.
const PATIENCE: Duration = Duration::from_secs(600);
/// Number of concurrent writes.
const WRITERS: usize = 16;
/// Idle duration after which the controller has settled, and the poll interval.
const QUIET: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(200);

/// Cost of an operation on many extensions.
pub(super) struct Spent {
    pub(super) extensions: usize,
    /// Seconds until the last extension was ready.
    pub(super) time: f64,
    /// CPU seconds until the controller had settled.
    pub(super) processor: f64,
    /// Requests until the controller had settled.
    pub(super) requests: Requests,
    /// Peak anonymous memory (RssAnon) in MB.
    pub(super) memory: f64,
}

/// Catalog, its extensions and the servers. Drop stops the processes.
pub(super) struct Fleet {
    extensions: Api<ClusterExtension>,
    controller: Option<Server>,
    _catalogd: Catalogd,
    pub(super) setup: Setup,
}

impl Fleet {
    /// Serves a catalog of `packages` packages, whose Deployments run the image `operand`. `elsewhere` is a number
    /// and a registry: the bundle images of packages from that number on are on this registry.
    pub(super) async fn on(
        arguments: &ControllerArguments,
        kubeconfig: Option<&Path>,
        packages: usize,
        operand: Option<&str>,
        elsewhere: Option<(usize, String)>,
    ) -> Result<Self> {
        let setup = Setup::start(kubeconfig).await?;
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": INSTALL_NAMESPACE}}))?;
        Api::all(setup.client()).create(&PostParams::default(), &namespace).await?;
        let files = catalog(&setup, packages, operand, elsewhere)?;
        let served = Catalogd::start(&setup, &arguments.servers.catalogd, arguments.servers.log).await?;
        let digest = setup.push(CATALOG, "v1", &files)?;
        setup.serve(CATALOG, "v1", &digest).await?;
        Ok(Self { extensions: Api::all(setup.client()), controller: None, _catalogd: served, setup })
    }

    /// Starts the controller. Returns its memory in MB after it has settled.
    pub(super) async fn start_controller(&mut self, arguments: &ControllerArguments) -> Result<f64> {
        self.controller = Some(self.setup.spawn_controller(&arguments.servers)?);
        self.settle().await?;
        memory(self.controller()?, "RssAnon")
    }

    /// Starts the controller again. Returns the seconds until it has settled.
    pub(super) async fn restart(&mut self, arguments: &ControllerArguments) -> Result<f64> {
        let started = Instant::now();
        self.start_controller(arguments).await?;
        Ok((started.elapsed() - QUIET).as_secs_f64())
    }

    /// Installs the first version of these extensions concurrently.
    pub(super) async fn install(&self, which: Range<usize>) -> Result<Spent> {
        self.bring(which, VERSIONS[0]).await
    }

    /// Upgrades these extensions concurrently.
    pub(super) async fn upgrade(&self, which: Range<usize>) -> Result<Spent> {
        self.bring(which, VERSIONS[1]).await
    }

    /// Creates these extensions in their first version without waiting.
    pub(super) async fn create(&self, which: Range<usize>) -> Result<()> {
        self.write(&which.map(name).collect(), VERSIONS[0]).await
    }

    /// Stops the controller. Returns the seconds until its exit.
    pub(super) async fn stop_controller(&mut self) -> Result<f64> {
        self.controller.take().context("the controller is not running")?.stop().await
    }

    async fn bring(&self, which: Range<usize>, version: &str) -> Result<Spent> {
        let pid = self.controller()?;
        let before = processor_time(pid)?;
        let asked = requests::count(self.setup.client()).await?;
        let peak = Watch::start(pid, Path::new("/nonexistent"));
        let started = Instant::now();
        let names: BTreeSet<String> = which.map(name).collect();
        let extensions = names.len();
        let all = tokio::time::timeout(PATIENCE, async {
            tokio::try_join!(self.write(&names, version), self.until_done(names.clone(), version))
        });
        let done = all.await;
        let time = started.elapsed().as_secs_f64();
        if done.is_err() {
            self.explain(version).await?;
        }
        done.context("timed out")??;
        self.settle().await?;
        Ok(Spent {
            extensions,
            time,
            processor: processor_time(pid)? - before,
            requests: requests::count(self.setup.client()).await? - asked,
            memory: peak.finish().anonymous,
        })
    }

    async fn write(&self, names: &BTreeSet<String>, version: &str) -> Result<()> {
        let writes = names.iter().map(|name| async move {
            let extension = json!({
                "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name},
                "spec": {"namespace": INSTALL_NAMESPACE, "source": {"sourceType": "Catalog", "catalog": {
                    "packageName": name, "version": version,
                }}},
            });
            self.extensions.patch(name, &PatchParams::apply("olm-bench"), &Patch::Apply(&extension)).await.map(drop)
        });
        Ok(stream::iter(writes).buffer_unordered(WRITERS).try_collect().await?)
    }

    async fn until_done(&self, mut names: BTreeSet<String>, version: &str) -> Result<()> {
        let events =
            watcher(self.extensions.clone(), watcher::Config::default()).default_backoff().applied_objects();
        let mut events = std::pin::pin!(events);
        while !names.is_empty() {
            let extension = events.try_next().await?.context("the watch ended")?;
            if is_done(&extension, version) {
                names.remove(&extension.name_any());
            }
        }
        Ok(())
    }

    /// Prints the status of an extension that is not ready.
    async fn explain(&self, version: &str) -> Result<()> {
        let all = self.extensions.list(&ListParams::default()).await?;
        if let Some(stuck) = all.iter().find(|extension| !is_done(extension, version)) {
            eprintln!("{}: {}", stuck.name_any(), serde_json::to_string(&stuck.status)?);
        }
        Ok(())
    }

    /// Waits until the controller has been almost idle for a while.
    pub(super) async fn settle(&self) -> Result<()> {
        let pid = self.controller()?;
        let deadline = Instant::now() + PATIENCE;
        let (mut since, mut used) = (Instant::now(), processor_time(pid)?);
        while since.elapsed() < QUIET {
            ensure!(Instant::now() < deadline, "operator-controller does not settle");
            tokio::time::sleep(LOOK).await;
            let now = processor_time(pid)?;
            if now - used > 0.02 {
                (since, used) = (Instant::now(), now);
            }
        }
        Ok(())
    }

    pub(super) fn controller(&self) -> Result<u32> {
        self.controller.as_ref().map(Server::pid).context("the controller is not running")
    }
}

fn is_done(extension: &ClusterExtension, version: &str) -> bool {
    let Some(status) = &extension.status else { return false };
    let installed = status.install.as_ref().map(|install| install.bundle.version.as_str());
    let is = |type_, reason: &str| {
        conditions::find(&status.conditions, type_)
            .is_some_and(|condition| condition.status == "True" && condition.reason == reason)
    };
    installed == Some(version) && is(types::INSTALLED, "Succeeded") && is(types::PROGRESSING, "Succeeded")
}

/// Pushes the bundles and returns the files of their catalog.
fn catalog(
    setup: &Setup,
    packages: usize,
    operand: Option<&str>,
    elsewhere: Option<(usize, String)>,
) -> Result<Files> {
    let mut files = Files::new();
    let (first, other) = elsewhere.unwrap_or((packages, String::new()));
    for number in 0..packages {
        let package_name = name(number);
        let mut images = Vec::new();
        for version in VERSIONS {
            let image = Image::bundle(&bundle(number, version, operand))?;
            let repository = format!("bundles/{package_name}");
            let digest = setup.registry.add_image(&repository, version, &image);
            let host = if number < first { setup.registry.host() } else { other.clone() };
            images.push(format!("{host}/{repository}@{digest}"));
        }
        let metas: String = package(number, &images).iter().map(|meta| format!("{meta}\n")).collect();
        files.insert(format!("{package_name}/catalog.json"), metas.into_bytes());
    }
    Ok(files)
}
