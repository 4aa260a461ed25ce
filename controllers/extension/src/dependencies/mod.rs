//! Installed bundles and served APIs, by which the dependencies of a bundle are judged
//! (docs/design/additions.md#dependency-modes, docs/design/resolution.md#judged-dependencies).
//!
//! ```text
//! cached revisions ─ olm_request ► installed bundles ─┐
//! API server ─ served ► CRDs of extensions, discovery ──┴ olm_request ► providers, served APIs, dependents
//! ```
//!
//! Nothing is read before a rule needs it. Results of the API server are read again after [`FRESH`] or after a
//! change. This module does not decide whether a dependency is met.

mod changes;
#[cfg(test)]
mod fixture;
mod served;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PartialObjectMeta;
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt};
use olm_api::ClusterObjectSet;
use olm_controller_core::RevisionCache;
use olm_controller_core::install_error::InstallError;
use olm_request::{ExtensionBundle, newest, owner, providers};
use olm_resolve::{AvailableProviders, ClusterFacts, Dependent};
use olm_runtime::listing;
use olm_runtime::watches::watch;
use parking_lot::Mutex as SyncMutex;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use changes::changes;
use served::{ClusterApis, ReadError};

/// Maximum age of a result of the API server.
const FRESH: Duration = Duration::from_secs(10);
/// Maximum age of an error of the API server.
const FAILED: Duration = Duration::from_secs(1);
/// Delay after a change of CRDs: discovery shows a new CRD late, and several often change together.
const SETTLE: Duration = Duration::from_secs(1);

/// Reader of installed bundles and served APIs. Idle until its first use.
pub(crate) struct Dependencies {
    client: Client,
    revisions: RevisionCache,
    /// Installed bundles by name of the revision.
    read: SyncMutex<HashMap<String, InstalledBundle>>,
    /// Last result. Locked during requests, so that concurrent callers share one result.
    cached: Mutex<Option<CachedApis>>,
    /// Number of changes that make a result obsolete.
    changes: AtomicU64,
    /// Cancelled on the first use.
    used: CancellationToken,
}

/// Installed bundle of a revision at this resourceVersion.
struct InstalledBundle {
    version: Option<String>,
    installed: Arc<ExtensionBundle>,
}

struct CachedApis {
    at: Instant,
    changes: u64,
    apis: Result<Arc<ClusterApis>, InstallError>,
}

impl CachedApis {
    fn is_good(&self, changes: u64) -> bool {
        let good = if self.apis.is_ok() { FRESH } else { FAILED };
        self.changes == changes && self.at.elapsed() < good
    }
}

impl Dependencies {
    /// Creates a reader. All `revisions` must be listed before its first use.
    pub(crate) fn new(client: Client, revisions: RevisionCache) -> Self {
        Self {
            client,
            revisions,
            read: SyncMutex::default(),
            cached: Mutex::default(),
            changes: AtomicU64::default(),
            used: CancellationToken::new(),
        }
    }

    /// Returns the providers that can meet requirements of a bundle of the extension `except`, and the extensions
    /// that rely on APIs of that extension or others. The providers exclude the bundle that `except` has
    /// installed.
    ///
    /// `protects(extension, property_type)` reports whether the extension must not be broken, as for [`providers`].
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn available_providers(
        &self,
        except: &str,
        protects: impl Fn(&str, &str) -> bool,
    ) -> Result<(AvailableProviders, Vec<Dependent>), InstallError> {
        let apis = self.apis().await?;
        let sets = self.revisions.all();
        let owners = sets.iter().filter_map(|set| owner(set)).collect();
        let installed = self.installed(&sets);
        Ok(providers(installed.iter().map(Arc::as_ref), &owners, &apis.served, except, protects))
    }

    /// Returns the facts about the cluster that bundles may constrain.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn cluster_facts(&self) -> Result<ClusterFacts, InstallError> {
        Ok(self.apis().await?.served.facts())
    }

    /// Calls `on_change` after each change of the installed bundles since the first use: extensions that wait for a
    /// dependency must resolve again. Never returns.
    pub(crate) async fn follow_installed(&self, on_change: impl Fn()) {
        let mut changes = pin!(changes(&self.revisions));
        while changes.next().await.is_some() {
            if self.used.is_cancelled() {
                self.changed();
                on_change();
            }
        }
    }

    /// Calls `on_change` after CRDs of any owner were created, changed or deleted, from the first use on. Never
    /// returns.
    pub(crate) async fn follow_crds(&self, on_change: impl Fn()) {
        self.used.cancelled().await;
        let api = Api::<PartialObjectMeta<CustomResourceDefinition>>::all(self.client.clone());
        let mut events = pin!(watch(api, listing::config()));
        let mut due: Option<Instant> = None;
        loop {
            let settled = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = events.next() => match event {
                    // The first list counts too: it may contain more than the first result. Later events do not
                    // extend the delay, or continuous changes would postpone it forever.
                    Some(Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone)) => {
                        due.get_or_insert_with(|| Instant::now() + SETTLE);
                    }
                    Some(Ok(Event::Init | Event::InitApply(_))) => {}
                    Some(Err(error)) => tracing::warn!(%error, "watch of CustomResourceDefinitions failed"),
                    None => return,
                },
                () = settled => {
                    due = None;
                    self.changed();
                    on_change();
                }
            }
        }
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    async fn apis(&self) -> Result<Arc<ClusterApis>, InstallError> {
        self.used.cancel();
        let mut cached = self.cached.lock().await;
        let changes = self.changes.load(Ordering::Relaxed);
        if let Some(cached) = cached.as_ref().filter(|cached| cached.is_good(changes)) {
            return cached.apis.clone();
        }
        let apis = match served::read(&self.client).await {
            Ok(apis) => Ok(Arc::new(apis)),
            Err(error) => {
                let failure = match &error {
                    ReadError::Api(error) => InstallError::api(error),
                    other => InstallError::retry(other),
                };
                Err(failure.context("reading the APIs that the cluster serves"))
            }
        };
        let before = cached.as_ref().and_then(|cached| cached.apis.as_ref().ok());
        warn_of_stale(before.map(Arc::as_ref), apis.as_deref().ok());
        *cached = Some(CachedApis { at: Instant::now(), changes, apis: apis.clone() });
        apis
    }

    /// Returns the installed bundle of each extension, by name. Unchanged revisions are not read again.
    fn installed(&self, sets: &[Arc<ClusterObjectSet>]) -> Vec<Arc<ExtensionBundle>> {
        let mut known = self.read.lock();
        let mut kept = HashMap::new();
        let mut installed = Vec::new();
        for set in newest(sets.iter().map(Arc::as_ref)).into_values() {
            let version = set.resource_version();
            let read = known.remove(&set.name_any()).filter(|read| read.version == version);
            let has = read.map_or_else(|| Arc::new(read_revision(set)), |read| read.installed);
            kept.insert(set.name_any(), InstalledBundle { version, installed: Arc::clone(&has) });
            installed.push(has);
        }
        *known = kept;
        installed
    }
}

fn read_revision(set: &ClusterObjectSet) -> ExtensionBundle {
    let (installed, unreadable) = ExtensionBundle::read(set);
    for fault in unreadable {
        tracing::warn!(revision = set.name_any(), %fault, "ignored unreadable properties in the dependency check");
    }
    installed
}

/// Logs the stale API groups whenever they change.
fn warn_of_stale(before: Option<&ClusterApis>, now: Option<&ClusterApis>) {
    let none = BTreeSet::new();
    let before = before.map_or(&none, |apis| &apis.stale);
    if let Some(now) = now.filter(|now| !now.stale.is_empty() && now.stale != *before) {
        let groups = now.stale.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        tracing::warn!(groups, "API groups do not answer, so their served APIs may be unknown or outdated");
    }
}
