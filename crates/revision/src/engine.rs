//! Applying a revision: phases in order, each checked as a whole before anything of it is written
//! (docs/design/apply.md#engine).
//!
//! The engine decides nothing about one object itself ([`crate::plan`] does) and sets no conditions; it
//! executes and reports. What was found right is remembered by hashes ([`crate::memory`]): a steady state costs
//! one read for each object that changed, none for those that a watch vouches for, and no write. A restarted
//! process asks with dry runs.

mod glance;
mod look;
mod settle;

use std::collections::HashMap;
use std::sync::Arc;

use kube::core::GroupVersionKind;
use parking_lot::Mutex;

use crate::cluster::Cluster;
use crate::content::ContentPhase;
pub use crate::failure::{EngineError, ObjectError};
use crate::memory::{Known, Memory};
use crate::object::ObjectKey;
use crate::plan::Owner;
use crate::probes::Probes;
use crate::result::{PhaseResult, RevisionResult};
use crate::sightings::Sightings;
use crate::validation::{phase_error, validate};
use look::Look;
use settle::collided;

/// A revision to apply.
#[derive(Clone, Debug)]
pub struct Revision {
    /// On whose behalf.
    pub owner: Owner,
    /// UIDs of the other revisions of the extension that are neither archived nor being deleted.
    pub siblings: Vec<String>,
    /// The resolved content.
    pub phases: Vec<ContentPhase>,
    /// When an object counts as ready.
    pub probes: Probes,
}

/// Applies and removes the objects of revisions. One engine serves all revisions of a process; no two passes over
/// the same revision run at once.
pub struct Engine<C> {
    cluster: C,
    sightings: Arc<Sightings>,
    /// By UID of the owner.
    pub(crate) memories: Arc<Mutex<HashMap<String, Memory>>>,
    /// UID of the keeper that CustomResourceDefinitions get as a second owner.
    keeper: Option<String>,
}

/// Whether anything may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Apply,
    Observe,
}

impl<C: Cluster> Engine<C> {
    /// An engine on `cluster`.
    pub fn new(cluster: C) -> Self {
        Self { cluster, sightings: Arc::default(), memories: Arc::default(), keeper: None }
    }

    /// This engine with another way to the same cluster. What is known of revisions is shared.
    pub fn on(&self, cluster: C) -> Self {
        Self { cluster, sightings: self.sightings(), memories: Arc::clone(&self.memories), keeper: None }
    }

    /// This engine, which makes the Namespace [`olm_api::names::KEEPER`] with this UID a second owner of
    /// CustomResourceDefinitions, or takes it off.
    pub fn with_keeper(self, keeper: Option<String>) -> Self {
        Self { keeper, ..self }
    }

    /// The cluster that the engine works on.
    pub fn cluster(&self) -> &C {
        &self.cluster
    }

    /// Where watches tell what they see. An engine that is told nothing reads every object on every pass.
    pub fn sightings(&self) -> Arc<Sightings> {
        Arc::clone(&self.sightings)
    }

    /// Brings the cluster as near to `revision` as it lets us: phase after phase, up to the first that is
    /// not complete.
    pub async fn reconcile(&self, revision: &Revision) -> RevisionResult {
        self.pass(revision, Mode::Apply).await
    }

    /// Looks and writes nothing: for a revision that is paused. What would be written is [`Action::Held`] and not
    /// complete. Dry runs are made as always.
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
        let mut memory = self.memories.lock().remove(&owner.uid).unwrap_or_default();
        memory.removed.clear();
        memory.compare_siblings(&revision.siblings);
        memory.phase_count = revision.phases.len();
        for (index, phase) in revision.phases.iter().enumerate() {
            result.watch(kinds(phase));
            let known = memory.phase(index, &phase.name, phase.objects.len());
            match self.phase(revision, phase, &mut known.objects, mode).await {
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
        self.memories.lock().insert(owner.uid.clone(), memory);
        result
    }

    /// `known` has a place for each object of the phase.
    async fn phase(
        &self,
        revision: &Revision,
        phase: &ContentPhase,
        known: &mut [Option<Known>],
        mode: Mode,
    ) -> Result<PhaseResult, EngineError> {
        let checked = self.check(revision, phase, known).await?;
        let mut result = PhaseResult { name: phase.name.clone(), ..PhaseResult::default() };
        if !checked.findings.is_empty() {
            result.validation_error = Some(phase_error(&phase.name, &checked.findings));
            result.denials = checked.denials;
            // Whose objects are in the way is worth more than what the server says about the others.
            let read = checked.looks.into_iter().flatten();
            result.objects = read.filter_map(|look| collided(look, &revision.probes)).collect();
            return Ok(result);
        }
        let mut failures = checked.failures;
        for ((content, look), known) in phase.objects.iter().zip(checked.looks).zip(known) {
            let settled = match look {
                None => continue,
                Some(Look::Unchanged(object)) => Ok((object, known.take())),
                Some(Look::Read(observed) | Look::Refused(observed, _)) => {
                    self.settle(revision, content, observed, mode).await
                }
            };
            match settled {
                Ok((object, found)) => {
                    *known = found;
                    result.objects.push(object);
                }
                Err(error) => {
                    *known = None;
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

    /// Forgets what was found of a revision; for revisions that are archived or gone.
    pub fn forget(&self, owner_uid: &str) {
        self.memories.lock().remove(owner_uid);
    }
}

/// The kinds of a phase, for watches.
pub(crate) fn kinds(phase: &ContentPhase) -> impl Iterator<Item = GroupVersionKind> + '_ {
    phase.objects.iter().map(|content| ObjectKey::of(&content.object).gvk)
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
