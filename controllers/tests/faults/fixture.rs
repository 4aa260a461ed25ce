//! Fixture of both parts of the test: the servers, their packages, and the process that is killed.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ResourceQuota};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use olm_api::conditions;
use olm_servers::{
    Bundle, Catalog, PATIENCE, Programs, Published, Server, ServerFixture, Workloads, extension,
};
use serde_json::json;

use crate::snapshot::{Snapshot, difference, take};

/// Installed version, and version of the upgrade.
pub(crate) const VERSIONS: [&str; 2] = ["1.0.0", "1.1.0"];
/// Duration without calls about an extension after which none is expected.
pub(crate) const SILENCE: Duration = Duration::from_millis(700);
/// Poll interval for the cluster.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Change of an extension under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    Install,
    Upgrade,
    Uninstall,
}

/// ServerFixture with both servers.
pub(crate) struct Fixture {
    pub(crate) servers: ServerFixture,
    pub(crate) controller: Server,
    _workloads: Workloads,
    _catalogd: Server,
}

impl Fixture {
    pub(crate) async fn start() -> Result<Self> {
        let servers = ServerFixture::start(Programs::beside(crate::PROGRAM)?).await?;
        let workloads = Workloads::start(servers.client());
        let catalogd = servers.start_catalogd().await?;
        let controller = servers.start_controller().await?;
        Ok(Self { servers, controller, _workloads: workloads, _catalogd: catalogd })
    }

    /// Serves one package for each of these names.
    pub(crate) async fn serve(&self, names: impl IntoIterator<Item = String>) -> Result<()> {
        let mut catalog = Catalog::default();
        for name in names {
            let bundles = VERSIONS.map(|version| self.servers.publish(&bundle(&name, version)));
            let bundles: Vec<Published> = bundles.into_iter().collect::<Result<_>>()?;
            catalog = catalog.chain(&bundles);
        }
        self.servers.serve("packages", &catalog).await
    }

    /// Creates the namespace `name`, a foreign object that resembles one of the extension, and the preconditions of
    /// `change`.
    pub(crate) async fn prepare(&self, name: &str, change: Change) -> Result<()> {
        self.servers.create_namespace(name).await?;
        self.create_foreign(name).await?;
        if change != Change::Install {
            self.begin(Change::Install, name).await?;
            self.until_done(Change::Install, name).await?;
        }
        Ok(())
    }

    async fn create_foreign(&self, name: &str) -> Result<()> {
        let foreign: ConfigMap = serde_json::from_value(json!({
            "metadata": {"name": format!("{name}-foreign"), "labels": {"olm.operatorframework.io/owner-name": name,
                "app.kubernetes.io/managed-by": "olm.operatorframework.io"}},
        }))?;
        self.config_maps(name).create(&PostParams::default(), &foreign).await?;
        Ok(())
    }

    pub(crate) fn config_maps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.servers.client(), namespace)
    }

    /// Starts this change for the extension `name` of the package `name` in the namespace `name`.
    pub(crate) async fn begin(&self, change: Change, name: &str) -> Result<()> {
        let extensions = self.servers.extensions();
        match change {
            Change::Install => {
                let object = serde_json::from_value(extension(name, name, name, Some(VERSIONS[0])))?;
                extensions.create(&PostParams::default(), &object).await.map(drop)?;
            }
            Change::Upgrade => {
                let patch = json!({"spec": {"source": {"catalog": {"version": VERSIONS[1]}}}});
                self.servers.edit(name, patch).await.map(drop)?;
            }
            Change::Uninstall => extensions.delete(name, &DeleteParams::default()).await.map(drop)?,
        }
        Ok(())
    }

    pub(crate) async fn until_done(&self, change: Change, name: &str) -> Result<()> {
        match change {
            Change::Install => self.servers.until_installed(name, VERSIONS[0]).await.map(drop),
            Change::Upgrade => self.servers.until_installed(name, VERSIONS[1]).await.map(drop),
            Change::Uninstall => self.until_removed(name).await,
        }
    }

    /// Waits until no call about the extension has arrived for [`SILENCE`].
    pub(crate) async fn until_silent(&self, name: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.servers.proxy.last_about(name).is_some_and(|last| last.elapsed() < SILENCE) {
            ensure!(Instant::now() < deadline, "calls about {name} continue");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Messages of the condition Progressing of the extension and its revisions.
    pub(crate) async fn progress(&self, name: &str) -> Result<Vec<String>> {
        let selector = format!("{}={name}", olm_api::labels::OWNER_NAME);
        let revisions = self.servers.revisions().list(&ListParams::default().labels(&selector)).await?;
        let extension = self.servers.extensions().get_opt(name).await?;
        let extension = extension.and_then(|extension| extension.status).map(|status| status.conditions);
        let revisions = revisions.into_iter().filter_map(|revision| revision.status);
        let all = extension.into_iter().chain(revisions.map(|status| status.conditions));
        let progress = all.filter_map(|all| {
            conditions::find(&all, "Progressing").map(|condition| condition.message.clone())
        });
        Ok(progress.collect())
    }

    /// Waits until the API server rejects ConfigMaps in the namespace.
    pub(crate) async fn until_refused(&self, namespace: &str) -> Result<()> {
        let probe: ConfigMap = serde_json::from_value(json!({"metadata": {"generateName": "probe-"}}))?;
        let parameters = PostParams { dry_run: true, ..PostParams::default() };
        let deadline = Instant::now() + PATIENCE;
        while self.config_maps(namespace).create(&parameters, &probe).await.is_ok() {
            ensure!(Instant::now() < deadline, "ConfigMaps still fit into {namespace}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Makes the namespace accept every object: existing, not terminating, without quota.
    pub(crate) async fn give_room(&self, name: &str) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.servers.client());
        let namespace = namespaces.get_opt(name).await?;
        if namespace.as_ref().is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some()) {
            let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let foreign = format!("{name}-foreign");
            self.config_maps(name).patch(&foreign, &PatchParams::default(), &release).await?;
            let deadline = Instant::now() + PATIENCE;
            while namespaces.get_opt(name).await?.is_some() {
                ensure!(Instant::now() < deadline, "namespace {name} was not deleted");
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        } else if namespace.is_some() {
            let quotas: Api<ResourceQuota> = Api::namespaced(self.servers.client(), name);
            quotas.delete("full", &DeleteParams::default()).await?;
            return Ok(());
        }
        self.servers.create_namespace(name).await?;
        // The API server may still hold the former namespace in its cache.
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.create_foreign(name).await {
                Err(error) if error.to_string().contains("being terminated") && Instant::now() < deadline => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                created => return created,
            }
        }
    }

    /// Waits until all objects of the extension are deleted, except for the foreign one.
    pub(crate) async fn until_removed(&self, name: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let foreign = "ConfigMap NAME/NAME-foreign";
        loop {
            let left: Vec<String> = match take(&self.servers.client(), name).await {
                Ok(found) => found.into_keys().filter(|key| key != foreign).collect(),
                // Objects that are about to be garbage-collected have already lost their owner.
                Err(error) => vec![error.to_string()],
            };
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("objects of {name} remain: {left:?}");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the objects of an extension equal `expected`. Fails with the difference.
    pub(crate) async fn until_like(&self, name: &str, expected: &Snapshot) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = take(&self.servers.client(), name).await;
            let lines = match &found {
                Ok(found) => difference(expected, found),
                // Objects that are about to be garbage-collected may have lost their owner for a moment.
                Err(error) => vec![error.to_string()],
            };
            if lines.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("{name} differs from the expected outcome:\n{}", lines.join("\n"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Fails if the foreign object has changed.
    pub(crate) async fn foreign_is_untouched(&self, name: &str) -> Result<()> {
        let foreign = self.config_maps(name).get(&format!("{name}-foreign")).await?;
        ensure!(
            foreign.owner_references().is_empty() && foreign.managed_fields().len() == 1,
            "{name}: the foreign object has changed: {foreign:?}"
        );
        Ok(())
    }
}

/// Bundle of the tests. An upgrade changes one object, drops one and adds one.
fn bundle(package: &str, version: &str) -> Bundle {
    let bundle = Bundle::sample(package, version);
    if version == VERSIONS[0] {
        bundle.config_map(&format!("{package}-old"), &[("only-in", version)])
    } else {
        bundle.config_map(&format!("{package}-new"), &[("only-in", version)])
    }
}
