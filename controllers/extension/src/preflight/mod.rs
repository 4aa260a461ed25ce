//! Install checks, executed only when a revision is about to be created (docs/design/apply.md#crd-upgrade-safety,
//! docs/design/additions.md#several-namespaces, docs/design/additions.md#crd-checks): whether the API server would
//! accept the bundle's objects, whether the namespaces to watch exist, and whether its CRDs endanger custom
//! resources.
//!
//! ```text
//! rendered CRDs ─┐
//! live CRDs ─────┴ olm_crd_safety::check ─► findings ─┐
//! custom resources (Live only) ─ existing ► Existing ─┴ check_crds ─► CrdVerdict
//! ```
//!
//! Nothing is written to the cluster. The result of checking custom resources is cached for a while.

mod api_services;
mod crd_verdict;
mod custom_resources;
mod denials;
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
use olm_controller_core::install_error::{InstallError, api_request};
use olm_crd_safety::{LiveCheck, check, is_crd};
use olm_request::CrdCheck;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::task::block_in_place;
use tokio::time::Instant;

use crd_verdict::{ExaminedCrd, ResourceCheck};

/// Maximum total time for checking custom resources. After that, only the static findings count.
const BUDGET: Duration = Duration::from_secs(30);
/// Factor of the time that a check took, for which its result is cached while the CRDs do not change: a blocked
/// upgrade is retried continuously.
const CACHE_FACTOR: u32 = 20;
/// Minimum cache time.
const MIN_CACHE_TIME: Duration = Duration::from_secs(15);
/// Maximum number of concurrent requests.
const MAX_CONCURRENT_CALLS: usize = 8;

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
    cached: Mutex<HashMap<String, CachedResult>>,
    /// Time until which operator-controller is known to have all rights.
    unrestricted_until: Mutex<Option<Instant>>,
}

/// Cached result of checking custom resources.
struct CachedResult {
    /// Hash of the CRDs before and after.
    fingerprint: u64,
    until: Instant,
    existing: Vec<ResourceCheck>,
}

/// A live CRD and its new version.
struct CrdChange<'a> {
    name: &'a str,
    live: Value,
    new: &'a Value,
}

/// Returns how CRDs are checked for this extension, or `None` if they are not.
pub(crate) fn crd_check(extension: &ClusterExtension, annotated: Option<CrdCheck>) -> Option<CrdCheck> {
    let preflight = || extension.spec.as_ref()?.install.as_ref()?.preflight.as_ref();
    match preflight().map(|preflight| &preflight.crd_upgrade_safety.enforcement) {
        Some(CrdUpgradeSafetyEnforcement::None) => None,
        _ => Some(annotated.unwrap_or(CrdCheck::Strict)),
    }
}

/// Rejects a bundle that failed install checks.
///
/// # Errors
/// Lists every failed check.
pub(crate) fn reject_failed_checks(failed_checks: &[String]) -> Result<(), InstallError> {
    if failed_checks.is_empty() {
        return Ok(());
    }
    Err(InstallError::blocked(format!("bundle cannot be applied: {}", failed_checks.join("; "))))
}

impl Preflight {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, budget: BUDGET, cached: Mutex::default(), unrestricted_until: Mutex::default() }
    }

    /// Drops the cached result of the extension.
    pub(crate) fn forget(&self, extension: &str) {
        self.cached.lock().remove(extension);
    }

    /// Returns the namespaces that do not exist, sorted.
    ///
    /// # Errors
    /// The API server did not answer.
    pub(crate) async fn missing_namespaces(&self, names: &[&str]) -> Result<Vec<String>, InstallError> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let names: BTreeSet<&str> = names.iter().copied().collect();
        let missing = |name| {
            let found = api_request(namespaces.get_metadata_opt(name), format!("getting namespace {name:?}"));
            async move { Ok(found.await?.is_none().then(|| name.to_owned())) }
        };
        collect_some(names.into_iter().map(missing).collect(), MAX_CONCURRENT_CALLS).await
    }

    /// Returns the verdict on the CRDs among `objects`.
    ///
    /// # Errors
    /// The API server did not answer, or a CRD cannot be compared.
    pub(crate) async fn check_crds(
        &self,
        extension: &str,
        objects: &[&Value],
        mode: CrdCheck,
    ) -> Result<CrdVerdict, InstallError> {
        let changes = self.changes(objects).await?;
        let mut examined = block_in_place(|| examine(&changes))?;
        if mode == CrdCheck::Live && !examined.iter().any(ExaminedCrd::is_refused) {
            let existing = self.existing(extension, &changes, &examined).await?;
            for (examined, existing) in examined.iter_mut().zip(existing) {
                examined.existing = Some(existing);
            }
        }
        Ok(crd_verdict::verdict(&examined, mode))
    }

    /// Returns the findings after which stored custom resources would lose data, one line each, if `objects` were
    /// applied.
    ///
    /// # Errors
    /// The API server did not answer, or a CRD cannot be compared.
    pub(crate) async fn losses(&self, objects: &[&Value]) -> Result<Vec<String>, InstallError> {
        let changes = self.changes(objects).await?;
        let examined = block_in_place(|| examine(&changes))?;
        let lines = examined.iter().flat_map(|ExaminedCrd { name, findings, .. }| {
            let losses = findings.iter().filter(|finding| finding.loses_data());
            losses.map(move |finding| format!("{name}: {finding}"))
        });
        Ok(lines.collect())
    }

    /// Returns the live CRDs among `objects`, in their order.
    async fn changes<'a>(&self, objects: &[&'a Value]) -> Result<Vec<CrdChange<'a>>, InstallError> {
        let resource = ApiResource::erase::<CustomResourceDefinition>(&());
        let crds: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let change = |new: &'a Value| {
            let name = new["metadata"]["name"].as_str().unwrap_or_default();
            let getting = format!("getting existing resource for CRD {name:?}");
            let live = api_request(crds.get_opt(name), getting.clone());
            async move {
                let live = live.await?.map(serde_json::to_value).transpose();
                let live = live.map_err(|error| InstallError::retry(error).context(getting))?;
                Ok(live.map(|live| CrdChange { name, live, new }))
            }
        };
        let changes = objects.iter().copied().filter(|object| is_crd(object)).map(change);
        collect_some(changes.collect(), MAX_CONCURRENT_CALLS).await
    }

    /// Returns the result of checking the custom resources of each change.
    async fn existing(
        &self,
        extension: &str,
        changes: &[CrdChange<'_>],
        examined: &[ExaminedCrd],
    ) -> Result<Vec<ResourceCheck>, InstallError> {
        let fingerprint = fingerprint(changes);
        if let Some(cached) = self.cached.lock().get(extension)
            && cached.fingerprint == fingerprint
            && Instant::now() < cached.until
        {
            return Ok(cached.existing.clone());
        }
        let start = Instant::now();
        let deadline = start + self.budget;
        let mut existing = Vec::new();
        for (CrdChange { live, new, .. }, ExaminedCrd { findings, .. }) in changes.iter().zip(examined) {
            existing.push(match block_in_place(|| LiveCheck::new(live, new)) {
                Ok(check) => {
                    custom_resources::check_resources(&self.client, live, &check, findings, deadline).await?
                }
                // Changes that custom resources cannot judge are judged by the static findings.
                Err(error) => ResourceCheck::Unknown(error.to_string()),
            });
        }
        let until = Instant::now() + MIN_CACHE_TIME.max(start.elapsed() * CACHE_FACTOR);
        let cached = CachedResult { fingerprint, until, existing: existing.clone() };
        self.cached.lock().insert(extension.to_owned(), cached);
        Ok(existing)
    }
}

/// Returns the results of the requests, in their order. At most `width` run concurrently.
async fn collect_some<T>(
    questions: Vec<impl Future<Output = Result<Option<T>, InstallError>>>,
    width: usize,
) -> Result<Vec<T>, InstallError> {
    let answers: Vec<Option<T>> = stream::iter(questions).buffered(width).try_collect().await?;
    Ok(answers.into_iter().flatten().collect())
}

fn examine(changes: &[CrdChange<'_>]) -> Result<Vec<ExaminedCrd>, InstallError> {
    let examined = changes.iter().map(|CrdChange { name, live, new }| {
        let findings = check(Some(live), new).map_err(|error| {
            InstallError::retry(error).context(format!("validating upgrade for CRD {name:?}"))
        })?;
        Ok(ExaminedCrd { name: (*name).to_owned(), findings, existing: None })
    });
    examined.collect()
}

fn fingerprint(changes: &[CrdChange<'_>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for CrdChange { live, new, .. } in changes {
        let metadata = &live["metadata"];
        (metadata["uid"].as_str(), metadata["generation"].as_i64(), new.to_string()).hash(&mut hasher);
    }
    hasher.finish()
}
