//! Outcome of applying a revision, with the texts of its conditions (docs/design/apply.md#revision-pass,
//! docs/design/apply.md#revision-conditions).
//!
//! Pure. The controller converts this to conditions and requeue delays.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::core::GroupVersionKind;

use crate::contention::Contention;
use crate::error::EngineError;
use crate::object::ObjectKey;
use crate::probes::ProbeResult;

/// Maximum number of skipped objects in a report.
const MAX_TAKEN: usize = 5;

/// Action on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The object did not exist and was created.
    Created,
    /// The object was adopted, or missing or different values were set.
    Updated,
    /// Fields that another field manager had changed were restored.
    Recovered,
    /// The object now belongs to a newer revision.
    Progressed,
    /// No action.
    Idle,
    /// The object belongs to another owner.
    Collision,
    /// The object has pending changes while its revision is paused.
    Held,
    /// Another client changes the object after each correction, and the next one is not due yet.
    Contended,
    /// The object is missing, and its creation is left to a newer revision for some time.
    Deferred,
    /// The object is a CustomResourceDefinition that is applied but for its storage version. Later phases go on.
    Staged,
    /// The object is being deleted: a CustomResourceDefinition, or an object that is to be created again.
    Awaited,
    /// The object is not needed: its namespace is being deleted or does not exist, or another owner has the object in a
    /// watched namespace, which [`ObjectResult::collision`] reports.
    Skipped,
}

/// Result for one object.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectResult {
    /// Identity of the object.
    pub key: ObjectKey,
    /// Action on the object.
    pub action: Action,
    /// Readiness of the object.
    pub probe: ProbeResult,
    /// Collision report.
    pub collision: Option<String>,
    /// Line for the Available condition if the object is not ready. For an awaited object, what its deletion waits
    /// for.
    pub not_ready: Option<String>,
    /// Fields that another client changed, of a corrected or contended object.
    pub contention: Option<Contention>,
}

impl ObjectResult {
    pub(crate) fn new(key: ObjectKey, action: Action, probe: ProbeResult) -> Self {
        Self { key, action, probe, collision: None, not_ready: None, contention: None }
    }

    /// `true` if this object allows the rollout to continue.
    pub fn is_complete(&self) -> bool {
        let is_open =
            matches!(self.action, Action::Collision | Action::Held | Action::Deferred | Action::Awaited);
        !is_open && self.probe.is_ready()
    }
}

/// Result for one phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PhaseResult {
    /// Name of the phase.
    pub name: String,
    /// Rejections by the API server. With any, nothing of the phase was written.
    pub validation_error: Option<String>,
    /// Rejections that report a missing permission.
    pub denials: Vec<String>,
    /// Objects in order.
    pub objects: Vec<ObjectResult>,
}

impl PhaseResult {
    /// `true` if the next phase can start.
    pub fn is_complete(&self) -> bool {
        self.validation_error.is_none() && self.objects.iter().all(ObjectResult::is_complete)
    }

    fn has(&self, action: Action) -> bool {
        self.objects.iter().any(|object| object.action == action)
    }

    /// `true` if some but not all objects moved to a newer revision, or an object collided.
    fn is_in_transition(&self) -> bool {
        let progressed = self.objects.iter().filter(|o| o.action == Action::Progressed).count();
        let is_mixed = progressed > 0 && progressed < self.objects.len();
        is_mixed || self.has(Action::Collision)
    }
}

/// Result of a pass over a revision.
#[derive(Clone, Debug, PartialEq)]
pub struct RevisionResult {
    /// Error in the revision itself. With it, nothing was done.
    pub validation_error: Option<String>,
    /// Processed phases in order. The last can be incomplete.
    pub phases: Vec<PhaseResult>,
    /// Error that ended the pass early.
    pub failure: Option<EngineError>,
    /// Kinds of all reached phases, to be watched. The API server may not know all of them.
    pub watch: Vec<GroupVersionKind>,
    phase_count: usize,
}

impl RevisionResult {
    pub(crate) fn new(phase_count: usize) -> Self {
        Self { validation_error: None, phases: Vec::new(), failure: None, watch: Vec::new(), phase_count }
    }

    pub(crate) fn watch(&mut self, kinds: impl IntoIterator<Item = GroupVersionKind>) {
        for gvk in kinds {
            if !self.watch.contains(&gvk) {
                self.watch.push(gvk);
            }
        }
    }

    /// `true` if every phase was processed and is complete, also for a revision without phases.
    pub fn is_complete(&self) -> bool {
        self.is_processed() && !self.has(Action::Staged)
    }

    /// `true` if every phase is complete, and only the storage version of a CRD is still to change. The next pass
    /// does so, and no event may start it.
    pub fn is_staged(&self) -> bool {
        self.is_processed() && !self.is_complete()
    }

    fn is_processed(&self) -> bool {
        self.validation_error.is_none()
            && self.failure.is_none()
            && self.phases.len() == self.phase_count
            && self.phases.iter().all(PhaseResult::is_complete)
    }

    /// `true` if the revision has rolled out. Objects that a newer revision owns do not count for a revision that never
    /// `succeeded`: they have the newer content.
    pub fn succeeds(&self, succeeded: bool) -> bool {
        self.is_complete() && (succeeded || !self.has(Action::Progressed))
    }

    /// `true` if an object is skipped. No watch reports that its namespace is created again, or that its owner is gone.
    pub fn has_skipped(&self) -> bool {
        self.has(Action::Skipped)
    }

    /// Reports on the first skipped objects that other owners have, one line each.
    pub fn taken(&self) -> Option<String> {
        let skipped = self.phases.iter().flat_map(|phase| &phase.objects);
        let skipped = skipped.filter(|object| object.action == Action::Skipped);
        let mut lines: Vec<_> = skipped.filter_map(|object| object.collision.clone()).collect();
        let more = lines.len().saturating_sub(MAX_TAKEN);
        lines.truncate(MAX_TAKEN);
        lines.extend((more > 0).then(|| format!("{more} more objects: skipped")));
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// `true` if the creation of an object is left to a newer revision. No event ends this.
    pub fn has_deferred(&self) -> bool {
        self.has(Action::Deferred)
    }

    fn has(&self, action: Action) -> bool {
        self.phases.iter().any(|phase| phase.has(action))
    }

    /// Results for all objects, in order.
    pub fn objects(&self) -> impl Iterator<Item = &ObjectResult> {
        self.phases.iter().flat_map(|phase| &phase.objects)
    }

    /// Time until the next correction of a contended object.
    pub fn next_correction(&self) -> Option<Duration> {
        let contended = self.objects().filter(|object| object.action == Action::Contended);
        contended.filter_map(|object| object.contention.as_ref()).map(|contention| contention.delay).min()
    }

    /// `true` if objects are moving from or to another revision, or not all phases were processed.
    pub fn is_in_transition(&self) -> bool {
        self.phases.len() < self.phase_count || self.phases.iter().any(PhaseResult::is_in_transition)
    }

    /// Message about a problem that only users can resolve, to be retried after [`olm_api::limits::COLLISION_RETRY`]:
    /// an invalid revision, else the owners of conflicting objects, else the API server's rejections
    /// (docs/design/apply.md#collision-protection: ownership precedes).
    pub fn blocker(&self) -> Option<String> {
        if let Some(error) = &self.validation_error {
            return Some(format!("revision validation error: {error}"));
        }
        for (index, phase) in self.phases.iter().enumerate() {
            let collided = phase.objects.iter().filter(|object| object.action == Action::Collision);
            let reports: Vec<&str> = collided.filter_map(|object| object.collision.as_deref()).collect();
            if !reports.is_empty() {
                return Some(format!(
                    "revision object collisions in phase {index}\n{}",
                    reports.join("\n\n")
                ));
            }
            if let Some(error) = &phase.validation_error {
                return Some(format!("phase {index} validation error: {error}"));
            }
            let awaited = phase.objects.iter().find(|object| object.action == Action::Awaited);
            if let Some(waits) = awaited.and_then(|object| object.not_ready.clone()) {
                return Some(waits);
            }
        }
        None
    }

    /// Distinct messages of the API server about missing permissions, sorted.
    pub fn denials(&self) -> BTreeSet<&str> {
        let of_phases = self.phases.iter().flat_map(|phase| &phase.denials).map(String::as_str);
        of_phases.chain(self.failure.iter().flat_map(EngineError::denials)).collect()
    }

    /// First unready object with its line in [`Self::probe_failures`].
    pub fn first_unready(&self) -> Option<(&ObjectKey, &str)> {
        let mut incomplete = self.phases.iter().filter(|phase| !phase.is_complete());
        incomplete.find_map(|phase| {
            phase.objects.iter().find_map(|object| Some((&object.key, object.not_ready.as_deref()?)))
        })
    }

    /// Message of the Available condition with reason ProbeFailure: the first unready object of each incomplete
    /// phase. `None` if no such object is known.
    pub fn probe_failures(&self) -> Option<String> {
        let incomplete = self.phases.iter().filter(|phase| !phase.is_complete() || phase.has(Action::Staged));
        let lines: Vec<&str> = incomplete
            .filter_map(|phase| phase.objects.iter().find_map(|object| object.not_ready.as_deref()))
            .collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::ProbeStatus;

    #[test]
    fn objects_of_newer_revision_do_not_let_revision_succeed() {
        let result = |actions: &[Action], status| {
            let key = || ObjectKey::of(&serde_json::json!({"kind": "ConfigMap", "metadata": {"name": "a"}}));
            let probe = || ProbeResult { status, messages: Vec::new() };
            let object = |action: &Action| ObjectResult::new(key(), *action, probe());
            let objects = actions.iter().map(object).collect();
            let phases = vec![PhaseResult { objects, ..PhaseResult::default() }];
            RevisionResult { phases, ..RevisionResult::new(1) }
        };
        use Action::{Created, Idle, Progressed};
        for (actions, status, never, before) in [
            (&[Created, Idle][..], ProbeStatus::True, true, true),
            (&[Idle, Progressed], ProbeStatus::True, false, true),
            (&[Progressed], ProbeStatus::True, false, true),
            (&[Progressed], ProbeStatus::False, false, false),
            (&[], ProbeStatus::True, true, true),
        ] {
            let result = result(actions, status);
            assert_eq!(
                (result.succeeds(false), result.succeeds(true)),
                (never, before),
                "{actions:?} {status:?}"
            );
        }
    }
}
