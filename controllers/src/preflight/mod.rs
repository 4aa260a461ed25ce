//! Install checks, executed only when a revision is about to be created (docs/design/apply.md#crd-upgrade-safety,
//! docs/design/additions.md#several-namespaces, docs/design/additions.md#crd-checks): whether the API server would
//! accept the bundle's objects, whether the namespaces to watch exist, and whether its CRDs endanger custom
//! resources.
//!
//! ```text
//! rendered CRDs ─┐
//! live CRDs ─────┴ olm_crd_safety::check ─► findings ─┐
//! custom resources (Live only) ─ existing ► Existing ─┴ definitions ─► CrdVerdict
//! ```
//!
//! Nothing is written to the cluster. The result of checking custom resources is cached for a while.

mod definitions;
mod existing;
mod rights;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use olm_api::ClusterExtension;
use olm_api::cluster_extension::CrdUpgradeSafetyEnforcement;
use olm_crd_safety::{LiveCheck, check, is_crd};
use olm_runtime::cluster::within_deadline;
use olm_request::CrdCheck;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::block_in_place;
use tokio::time::Instant;

use crate::failure::Failure;
use definitions::{Examined, Existing};

/// Maximum total time for checking custom resources. After that, only the static findings count.
const BUDGET: Duration = Duration::from_secs(30);
/// Factor of the time that a check took, for which its result is cached while the CRDs do not change: a blocked
/// upgrade is retried continuously.
const KEPT_TIMES: u32 = 20;
/// Minimum cache time.
const KEPT_AT_LEAST: Duration = Duration::from_secs(15);
/// Maximum number of concurrent requests.
const AT_ONCE: usize = 8;

/// Verdict on CRD changes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum CrdVerdict {
    /// No custom resource is endangered.
    #[default]
    Safe,
    /// Findings that the extension's settings accept.
    Accepted(String),
    /// Findings that block the upgrade.
    Held(String),
}

/// Install checks of one cluster.
pub(crate) struct Preflight {
    client: Client,
    budget: Duration,
    /// Last result of checking custom resources, by extension.
    shown: Mutex<HashMap<String, Shown>>,
}

/// Cached result of checking custom resources.
#[derive(Clone)]
struct Shown {
    /// Hash of the CRDs before and after.
    fingerprint: u64,
    until: Instant,
    existing: Vec<Existing>,
}

/// A live CRD and its new version.
struct Change<'a> {
    name: &'a str,
    live: Value,
    new: &'a Value,
}

/// Returns how CRDs are checked for this extension, or `None` if they are not.
pub(crate) fn crd_check(extension: &ClusterExtension, annotated: Option<CrdCheck>) -> Option<CrdCheck> {
    let install = extension.spec.as_ref().and_then(|spec| spec.install.as_ref());
    let enforcement = install
        .and_then(|install| install.preflight.as_ref())
        .map(|preflight| &preflight.crd_upgrade_safety.enforcement);
    match enforcement {
        Some(CrdUpgradeSafetyEnforcement::None) => None,
        _ => Some(annotated.unwrap_or(CrdCheck::Strict)),
    }
}

/// Rejects a bundle that failed install checks.
///
/// # Errors
/// Lists every obstacle.
pub(crate) fn refuse_obstacles(obstacles: &[String]) -> Result<(), Failure> {
    if obstacles.is_empty() {
        return Ok(());
    }
    Err(Failure::blocked(format!("bundle cannot be applied: {}", obstacles.join("; "))))
}

impl Preflight {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, budget: BUDGET, shown: Mutex::default() }
    }

    /// Drops the cached result of the extension.
    pub(crate) fn forget(&self, extension: &str) {
        self.shown.lock().remove(extension);
    }

    /// Returns the namespaces that do not exist, sorted.
    ///
    /// # Errors
    /// The API server did not answer.
    pub(crate) async fn missing_namespaces(&self, names: &[&str]) -> Result<Vec<String>, Failure> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let names: BTreeSet<&str> = names.iter().copied().collect();
        let missing = |name| {
            let found = within_deadline(namespaces.get_metadata_opt(name));
            async move {
                let found = found.await.map_err(|error| Failure::api(&error));
                let found = found.map_err(|error| error.context(format!("getting namespace {name:?}")))?;
                Ok(found.is_none().then(|| name.to_owned()))
            }
        };
        some_at_once(names.into_iter().map(missing).collect()).await
    }

    /// Returns the verdict on the CRDs among `objects`.
    ///
    /// # Errors
    /// The API server did not answer, or a CRD cannot be compared.
    pub(crate) async fn definitions(
        &self,
        extension: &str,
        objects: &[&Value],
        mode: CrdCheck,
    ) -> Result<CrdVerdict, Failure> {
        let changes = self.changes(objects).await?;
        let mut examined = block_in_place(|| examine(&changes))?;
        if mode == CrdCheck::Live && !examined.iter().any(Examined::is_refused) {
            let existing = self.existing(extension, &changes, &examined).await?;
            for (examined, existing) in examined.iter_mut().zip(existing) {
                examined.existing = Some(existing);
            }
        }
        Ok(definitions::verdict(&examined, mode))
    }

    /// Returns the live CRDs among `objects`, in their order.
    async fn changes<'a>(&self, objects: &[&'a Value]) -> Result<Vec<Change<'a>>, Failure> {
        let resource = ApiResource::erase::<CustomResourceDefinition>(&());
        let definitions: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let change = |new: &'a Value| {
            let name = new["metadata"]["name"].as_str().unwrap_or_default();
            let live = within_deadline(definitions.get_opt(name));
            async move {
                let getting = format!("getting existing resource for CRD {name:?}");
                let live = live.await.map_err(|error| Failure::api(&error).context(&getting))?;
                let live = live.map(serde_json::to_value).transpose();
                let live = live.map_err(|error| Failure::retry(error).context(&getting))?;
                Ok(live.map(|live| Change { name, live, new }))
            }
        };
        some_at_once(objects.iter().copied().filter(|object| is_crd(object)).map(change).collect()).await
    }

    /// Returns the result of checking the custom resources of each change.
    async fn existing(
        &self,
        extension: &str,
        changes: &[Change<'_>],
        examined: &[Examined],
    ) -> Result<Vec<Existing>, Failure> {
        let fingerprint = fingerprint(changes);
        let shown = self.shown.lock().get(extension).cloned();
        let fresh = |shown: &Shown| shown.fingerprint == fingerprint && Instant::now() < shown.until;
        if let Some(shown) = shown.filter(fresh) {
            return Ok(shown.existing);
        }
        let start = Instant::now();
        let deadline = start + self.budget;
        let mut existing = Vec::new();
        for (Change { live, new, .. }, Examined { findings, .. }) in changes.iter().zip(examined) {
            existing.push(match block_in_place(|| LiveCheck::new(live, new)) {
                Ok(check) => existing::look(&self.client, live, &check, findings, deadline).await?,
                // Changes that custom resources cannot judge are judged by the static findings.
                Err(error) => Existing::Unknown(error.to_string()),
            });
        }
        let until = Instant::now() + KEPT_AT_LEAST.max(start.elapsed() * KEPT_TIMES);
        let shown = Shown { fingerprint, until, existing: existing.clone() };
        self.shown.lock().insert(extension.to_owned(), shown);
        Ok(existing)
    }
}

/// Returns the results of the requests, in their order.
async fn some_at_once<T>(
    questions: Vec<impl Future<Output = Result<Option<T>, Failure>>>,
) -> Result<Vec<T>, Failure> {
    let answers: Vec<Option<T>> = stream::iter(questions).buffered(AT_ONCE).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}

fn examine(changes: &[Change<'_>]) -> Result<Vec<Examined>, Failure> {
    let examined = changes.iter().map(|Change { name, live, new }| {
        let findings = check(Some(live), new)
            .map_err(|error| Failure::retry(error).context(format!("validating upgrade for CRD {name:?}")))?;
        Ok(Examined { name: (*name).to_owned(), findings, existing: None })
    });
    examined.collect()
}

fn fingerprint(changes: &[Change<'_>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for Change { live, new, .. } in changes {
        let metadata = &live["metadata"];
        (metadata["uid"].as_str(), metadata["generation"].as_i64(), new.to_string()).hash(&mut hasher);
    }
    hasher.finish()
}
