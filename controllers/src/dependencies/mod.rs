//! What is installed and served in the cluster: what the dependencies of a bundle are judged by
//! (docs/design/additions.md#dependency-modes, docs/design/resolution.md#judged-dependencies).
//!
//! ```text
//! revisions in the store ─ olm_extension ► what each extension has ─┐
//! API server ─ served ► definitions of extensions, discovery ───────┴ olm_extension ► providers, served APIs, dependents
//! ```
//!
//! Nothing is read before a rule asks for it, and what the API server says is asked again after [`FRESH`] or after a
//! change. Nothing here decides whether a dependency is met.

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
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, ResourceExt};
use olm_api::ClusterObjectSet;
use olm_extension::{Installed, newest, owner, surroundings};
use olm_resolve::{ClusterFacts, Dependent, Surroundings};
use parking_lot::Mutex as SyncMutex;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::revision_cache::RevisionCache;
use changes::changes;
use served::{ReadError, Told};

/// How long an answer of the API server is good for.
const FRESH: Duration = Duration::from_secs(10);
/// How long it is good for to know that the API server gave none.
const FAILED: Duration = Duration::from_secs(1);
/// Discovery shows a new definition a moment after the definition's last change; and they come many at a time.
const SETTLE: Duration = Duration::from_secs(1);

/// Reads what is installed and served. Costs nothing until it is asked.
pub(crate) struct Dependencies {
    client: Client,
    revisions: RevisionCache,
    /// By name of the revision.
    read: SyncMutex<HashMap<String, Read>>,
    /// Held while the API server is asked, so that all who want to know share one answer.
    answer: Mutex<Option<Answer>>,
    /// Counts what makes an answer obsolete.
    changes: AtomicU64,
    /// Cancelled by the first question.
    asked: CancellationToken,
}

/// What was read of a revision at this resource version.
struct Read {
    version: Option<String>,
    installed: Arc<Installed>,
}

struct Answer {
    at: Instant,
    changes: u64,
    told: Result<Arc<Told>, Failure>,
}

impl Answer {
    fn is_good(&self, changes: u64) -> bool {
        let good = if self.told.is_ok() { FRESH } else { FAILED };
        self.changes == changes && self.at.elapsed() < good
    }
}

impl Dependencies {
    /// All `revisions` must have been listed before the first question.
    pub(crate) fn new(client: Client, revisions: RevisionCache) -> Self {
        Self {
            client,
            revisions,
            read: SyncMutex::default(),
            answer: Mutex::default(),
            changes: AtomicU64::default(),
            asked: CancellationToken::new(),
        }
    }

    /// What can meet the requirements of a bundle of the extension `except`, and which extensions now rely on what
    /// that extension or others provide. What `except` itself has installed is no part of the surroundings.
    ///
    /// `insists(extension, property_type)` says whether the extension may not be broken, as for [`surroundings`].
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn surroundings(
        &self,
        except: &str,
        insists: impl Fn(&str, &str) -> bool,
    ) -> Result<(Surroundings, Vec<Dependent>), Failure> {
        let told = self.told().await?;
        let sets = self.revisions.all();
        let owners = sets.iter().filter_map(|set| owner(set)).collect();
        let installed = self.installed(&sets);
        Ok(surroundings(installed.iter().map(Arc::as_ref), &owners, &told.served, except, insists))
    }

    /// What bundles may demand of the cluster.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn cluster_facts(&self) -> Result<ClusterFacts, Failure> {
        Ok(self.told().await?.served.facts())
    }

    /// Calls `announce` when another bundle is installed, or one is no longer installed, after the first question:
    /// extensions that wait for a dependency must resolve again. Does not end by itself.
    pub(crate) async fn follow_installed(&self, announce: impl Fn()) {
        let mut changes = pin!(changes(&self.revisions));
        while changes.next().await.is_some() {
            if self.asked.is_cancelled() {
                self.changed();
                announce();
            }
        }
    }

    /// Calls `announce` when CustomResourceDefinitions come, change or go, whoever makes them, once somebody has
    /// asked. Does not end by itself.
    pub(crate) async fn follow_definitions(&self, announce: impl Fn()) {
        self.asked.cancelled().await;
        let api = Api::<PartialObjectMeta<CustomResourceDefinition>>::all(self.client.clone());
        let mut events = pin!(watch(api, watcher::Config::default()).default_backoff());
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
                    // The first list counts too: it may show more than the answer to the first question.
                    // Later ones do not put it off: where definitions change all the time it would never come.
                    Some(Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone)) => {
                        due.get_or_insert_with(|| Instant::now() + SETTLE);
                    }
                    Some(Ok(Event::Init | Event::InitApply(_))) => {}
                    Some(Err(error)) => tracing::warn!(%error, "watching CustomResourceDefinitions"),
                    None => return,
                },
                () = settled => {
                    due = None;
                    self.changed();
                    announce();
                }
            }
        }
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    async fn told(&self) -> Result<Arc<Told>, Failure> {
        self.asked.cancel();
        let mut answer = self.answer.lock().await;
        let changes = self.changes.load(Ordering::Relaxed);
        if let Some(answer) = answer.as_ref().filter(|answer| answer.is_good(changes)) {
            return answer.told.clone();
        }
        let told = match served::read(&self.client).await {
            Ok(told) => Ok(Arc::new(told)),
            Err(error) => {
                let failure = match &error {
                    ReadError::Api(error) => Failure::api(error),
                    other => Failure::retry(other),
                };
                Err(failure.context("finding out what the cluster serves"))
            }
        };
        let before = answer.as_ref().and_then(|answer| answer.told.as_ref().ok());
        warn_of_stale(before.map(Arc::as_ref), told.as_deref().ok());
        *answer = Some(Answer { at: Instant::now(), changes, told: told.clone() });
        told
    }

    /// What each extension has installed, by name; what has been read of a revision is kept while it does not change.
    fn installed(&self, sets: &[Arc<ClusterObjectSet>]) -> Vec<Arc<Installed>> {
        let mut known = self.read.lock();
        let mut kept = HashMap::new();
        let mut installed = Vec::new();
        for set in newest(sets.iter().map(Arc::as_ref)).into_values() {
            let version = set.resource_version();
            let read = known.remove(&set.name_any()).filter(|read| read.version == version);
            let has = read.map_or_else(|| Arc::new(read_revision(set)), |read| read.installed);
            kept.insert(set.name_any(), Read { version, installed: Arc::clone(&has) });
            installed.push(has);
        }
        *known = kept;
        installed
    }
}

fn read_revision(set: &ClusterObjectSet) -> Installed {
    let (installed, unreadable) = Installed::read(set);
    for fault in unreadable {
        tracing::warn!(revision = set.name_any(), %fault, "dependencies are judged without these properties");
    }
    installed
}

/// Tells of API servers whose APIs are not known, each time they become others.
fn warn_of_stale(before: Option<&Told>, now: Option<&Told>) {
    let none = BTreeSet::new();
    let before = before.map_or(&none, |told| &told.stale);
    if let Some(now) = now.filter(|now| !now.stale.is_empty() && now.stale != *before) {
        let groups = now.stale.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        tracing::warn!(groups, "API groups do not answer: what they serve is unknown or may have changed");
    }
}
