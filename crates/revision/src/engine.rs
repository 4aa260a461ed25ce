//! Application of a revision: phases in order, each checked as a whole before any write to it
//! (docs/design/apply.md#engine).
//!
//! [`crate::plan`] decides about single objects and the controller sets conditions. The engine executes and reports.
//! It remembers verified states by hashes (`crate::memory`): the steady state costs one read for each changed
//! object, none for unchanged objects under a watch, and no write. After a restart it checks objects with dry runs.

mod check;
mod execute;
mod fast_path;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kube::core::GroupVersionKind;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;
use tracing::Instrument;

use crate::cluster::{Answer, Cluster, Instances};
use crate::content::{ContentObject, ContentPhase};
use crate::contention::Contentions;
use crate::error::EngineError;
use crate::memory::{Memory, VerifiedPhase};
use crate::object::{ObjectKey, served_kind};
use crate::observed_versions::ObservedVersions;
use crate::plan::{ObjectPlan, Owner, add_keeper, desired};
use crate::probes::Probes;
use crate::recent_objects::RecentObjects;
use crate::result::{Action, PhaseResult, RevisionResult};
use crate::validation::{phase_error, validate};
use check::{CheckedPhase, DryRuns, ObjectCheck, ObservedObject, taken};
use execute::{collided, unapplied};

/// Revision to apply.
#[derive(Clone, Debug)]
pub struct Revision {
    /// Owner of the objects.
    pub owner: Owner,
    /// UIDs of the other revisions of the extension that are neither archived nor being deleted.
    pub siblings: Vec<String>,
    /// `true` if this revision or an older one adopted objects of classic OLM.
    pub is_migrated: bool,
    /// Resolved content.
    pub phases: Vec<ContentPhase>,
    /// Readiness probes of the objects.
    pub probes: Probes,
    /// Namespaces that a label selects. Their Roles and RoleBindings are skipped while the namespace is being deleted
    /// or missing (docs/design/namespaces.md#deleted-namespaces).
    pub selected_namespaces: BTreeSet<String>,
    /// Namespaces that the operator watches beside its own. Their Roles and RoleBindings are skipped while another owner
    /// has them (docs/design/namespaces.md#taken-permissions).
    pub watched_namespaces: BTreeSet<String>,
    /// Time for which a missing object is left to newer active revisions. Zero without one.
    pub creation_delay: Duration,
    /// `true` to delete and create again objects without data of their own whose immutable fields differ.
    pub replaces_immutable: bool,
}

/// Applies and removes the objects of revisions. One engine serves all revisions of a process. No two passes over the
/// same revision run concurrently.
pub struct Engine<C> {
    cluster: C,
    pub(crate) shared: Arc<Shared>,
    /// UID of the keeper, which becomes a second owner of CustomResourceDefinitions.
    pub(crate) keeper: Option<String>,
}

/// State of an engine, also for its other clients.
#[derive(Default)]
pub(crate) struct Shared {
    observed_versions: Arc<ObservedVersions>,
    recent_objects: RecentObjects,
    contentions: Contentions,
    /// Memories by UID of the owner.
    pub(crate) memories: Mutex<HashMap<String, Memory>>,
}

/// Write mode of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Apply,
    Observe,
}

impl<C: Cluster> Engine<C> {
    /// Creates an engine on `cluster`.
    pub fn new(cluster: C) -> Self {
        Self { cluster, shared: Arc::default(), keeper: None }
    }

    /// Engine with another client of the same cluster, which shares the memories of revisions.
    pub fn on(&self, cluster: C) -> Self {
        Self { cluster, shared: Arc::clone(&self.shared), keeper: None }
    }

    /// Sets the UID of the Namespace [`olm_api::names::KEEPER`], which becomes a second owner of
    /// CustomResourceDefinitions. `None` removes that owner.
    pub fn with_keeper(self, keeper: Option<String>) -> Self {
        Self { keeper, ..self }
    }

    /// Cluster of the engine.
    pub fn cluster(&self) -> &C {
        &self.cluster
    }

    /// Observed versions, to be updated by watches. Without updates, the engine reads every object on every pass.
    pub fn observed_versions(&self) -> Arc<ObservedVersions> {
        Arc::clone(&self.shared.observed_versions)
    }

    /// Applies `revision` as far as possible: phase after phase, up to the first incomplete one.
    pub async fn reconcile(&self, revision: &Revision) -> RevisionResult {
        self.pass(revision, Mode::Apply).await
    }

    /// Reads without writing, for a paused revision. An object with pending changes gets [`Action::Held`] and is not
    /// complete. Dry runs are made as usual.
    pub async fn observe(&self, revision: &Revision) -> RevisionResult {
        self.pass(revision, Mode::Observe).await
    }

    async fn pass(&self, revision: &Revision, mode: Mode) -> RevisionResult {
        let owner = &revision.owner;
        let mut result = RevisionResult::new(revision.phases.len());
        result.validation_error = validate(&owner.name, owner.number, &revision.phases);
        if result.validation_error.is_some() {
            return result;
        }
        let mut memory = self.shared.memories.lock().remove(&owner.uid).unwrap_or_default();
        memory.removed.clear();
        memory.compare_siblings(&revision.siblings);
        memory.phase_count = revision.phases.len();
        for (index, phase) in revision.phases.iter().enumerate() {
            result.watch(kinds(phase));
            let verified = memory.phase(index, &phase.name, phase.objects.len());
            // The target is that of `olm_runtime::traces`.
            let span = tracing::info_span!(target: "olm_traces", "phase", phase = phase.name);
            match self.phase(revision, phase, verified, mode).instrument(span).await {
                Ok(phase) => {
                    let complete = phase.is_complete();
                    result.phases.push(phase);
                    if !complete {
                        break;
                    }
                }
                Err(error) => {
                    result.failure = Some(error);
                    break;
                }
            }
        }
        self.shared.memories.lock().insert(owner.uid.clone(), memory);
        result
    }

    /// Applies one phase. `verified` has an entry for each object of the phase.
    async fn phase(
        &self,
        revision: &Revision,
        phase: &ContentPhase,
        verified: &mut VerifiedPhase,
        mode: Mode,
    ) -> Result<PhaseResult, EngineError> {
        // The write of a single object cannot follow another one of its phase.
        let may_omit = mode == Mode::Apply && phase.objects.len() == 1 && !verified.has_failed;
        let dry_runs = if may_omit { DryRuns::Omitted } else { DryRuns::Made };
        // Remains set if the check fails.
        verified.has_failed = true;
        let checked = self.check_phase(revision, phase, &verified.objects, dry_runs).await?;
        let is_unchecked = may_omit && checked.creates_or_adopts();
        let mut result = self.execute_phase(revision, phase, verified, mode, checked).await;
        if is_unchecked && result.as_ref().is_err_and(EngineError::is_explained_by_dry_run) {
            // Repeats the check, to report the error of the dry run.
            let checked = self.check_phase(revision, phase, &verified.objects, DryRuns::Made).await?;
            result = self.execute_phase(revision, phase, verified, mode, checked).await;
        }
        verified.has_failed = result.as_ref().map_or(true, |phase| phase.validation_error.is_some());
        result
    }

    /// Writes the objects of a checked phase, unless one is rejected.
    async fn execute_phase(
        &self,
        revision: &Revision,
        phase: &ContentPhase,
        VerifiedPhase { objects: verified, missing, .. }: &mut VerifiedPhase,
        mode: Mode,
        checked: CheckedPhase,
    ) -> Result<PhaseResult, EngineError> {
        let mut result = PhaseResult { name: phase.name.clone(), ..PhaseResult::default() };
        if !checked.findings.is_empty() {
            result.validation_error = Some(phase_error(&phase.name, &checked.findings));
            result.denials = checked.denials;
            // Collisions are more useful than the API server's verdict on the other objects.
            let read = checked.checks.into_iter().flatten();
            result.objects = read.filter_map(|check| collided(check, &revision.probes)).collect();
            return Ok(result);
        }
        let mut failures = checked.failures;
        for ((content, check), verified) in phase.objects.iter().zip(checked.checks).zip(verified) {
            let executed = match check {
                None => continue,
                Some(ObjectCheck::Unchanged(object)) => Ok((object, verified.take())),
                Some(ObjectCheck::Skipped(object)) => Ok((object, None)),
                Some(ObjectCheck::Read(observed)) if defers(revision, &observed, missing) => {
                    let seconds = revision.creation_delay.as_secs();
                    let why = format!("missing, and left to a newer revision for {seconds} seconds");
                    Ok((unapplied(&observed.desired, Action::Deferred, None, &revision.probes, &why), None))
                }
                Some(ObjectCheck::Read(observed)) => {
                    let yielding = revision.yields(&observed).then(|| ObjectKey::of(&observed.desired));
                    match (self.execute_with_retry(revision, content, observed, mode).await, yielding) {
                        (Err(error), Some(key)) if error.cause.is_rejection() => {
                            Ok((taken(key, &error.cause.message), None))
                        }
                        (executed, _) => executed,
                    }
                }
            };
            match executed {
                Ok((object, found)) => {
                    *verified = found;
                    result.objects.push(object);
                }
                Err(error) => {
                    *verified = None;
                    let ends = error.ends_phase();
                    failures.push(error);
                    if ends {
                        break;
                    }
                }
            }
        }
        if failures.is_empty() { Ok(result) } else { Err(EngineError::Objects(failures)) }
    }

    /// Desired object of the revision, with the keeper of a CustomResourceDefinition.
    fn desired(&self, revision: &Revision, content: &ContentObject) -> Value {
        let mut desired = desired(content, &revision.owner);
        if let Some(keeper) = &self.keeper {
            add_keeper(&mut desired, keeper);
        }
        desired
    }

    /// Keeps a live object for the rechecks of other revisions.
    pub(crate) fn share(&self, key: &ObjectKey, live: &Value) {
        self.shared.recent_objects.add(&self.shared.observed_versions, key, live);
    }

    /// Custom resources of a CustomResourceDefinition.
    pub(crate) async fn instances_of(&self, crd: &Value) -> Answer<Option<Instances>> {
        match served_kind(crd) {
            Some(kind) => self.cluster().instances(&kind).await,
            None => Ok(None),
        }
    }

    /// Forgets the memory of an archived or deleted revision.
    pub fn forget(&self, owner_uid: &str) {
        self.shared.memories.lock().remove(owner_uid);
    }
}

/// `true` while a missing object is left to a newer revision: a superseded one must not recreate what a user deleted to
/// let the newer one in (docs/design/apply.md#handover). `missing` has the time since which objects are missing.
fn defers(revision: &Revision, observed: &ObservedObject, missing: &mut HashMap<ObjectKey, Instant>) -> bool {
    let key = ObjectKey::of(&observed.desired);
    let now = Instant::now();
    let waits = observed.plan == ObjectPlan::Create
        && now.duration_since(*missing.entry(key.clone()).or_insert(now)) < revision.creation_delay;
    if !waits {
        missing.remove(&key);
    }
    waits
}

/// Kinds of a phase, for watches.
pub(crate) fn kinds(phase: &ContentPhase) -> impl Iterator<Item = GroupVersionKind> + '_ {
    phase.objects.iter().map(|content| ObjectKey::of(&content.object).gvk)
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
