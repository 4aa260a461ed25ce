//! What came of applying a revision, in the words of its conditions (docs/design/apply.md#revision-pass,
//! docs/design/apply.md#revision-conditions).
//!
//! Pure. The controller turns this into conditions and waiting times.

use std::collections::BTreeSet;

use kube::core::GroupVersionKind;

use crate::engine::EngineError;
use crate::object::ObjectKey;
use crate::probes::ProbeResult;

/// What was done about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It did not exist and was created.
    Created,
    /// It was adopted, or values that were missing or different were set.
    Updated,
    /// Fields that somebody else had taken were set back.
    Recovered,
    /// It belongs to a newer revision now.
    Progressed,
    /// Nothing.
    Idle,
    /// It belongs to somebody else.
    Collision,
    /// It would be written if its revision were not paused.
    Held,
    /// A CustomResourceDefinition that is being deleted.
    Awaited,
}

/// One object.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectResult {
    /// Which object.
    pub key: ObjectKey,
    /// What was done.
    pub action: Action,
    /// Whether it is ready.
    pub probe: ProbeResult,
    /// Report on a collision.
    pub collision: Option<String>,
    /// Line for the Available condition if it is not ready; what an awaited object waits for.
    pub not_ready: Option<String>,
}

impl ObjectResult {
    /// Whether the rollout may go on, as far as this object is concerned.
    pub fn is_complete(&self) -> bool {
        !matches!(self.action, Action::Collision | Action::Held | Action::Awaited) && self.probe.is_ready()
    }
}

/// One phase.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PhaseResult {
    /// Its name.
    pub name: String,
    /// Objections of the API server; nothing of the phase was written then.
    pub validation_error: Option<String>,
    /// Those of them that say that a right is missing.
    pub denials: Vec<String>,
    /// Its objects in order.
    pub objects: Vec<ObjectResult>,
}

impl PhaseResult {
    /// Whether the next phase may start.
    pub fn is_complete(&self) -> bool {
        self.validation_error.is_none() && self.objects.iter().all(ObjectResult::is_complete)
    }

    /// Some objects have moved on to a newer revision and some have not, or somebody is in the way.
    fn is_in_transition(&self) -> bool {
        let progressed = self.objects.iter().filter(|o| o.action == Action::Progressed).count();
        let is_mixed = progressed > 0 && progressed < self.objects.len();
        is_mixed || self.objects.iter().any(|object| object.action == Action::Collision)
    }
}

/// All that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct RevisionResult {
    /// What is wrong with the revision itself; nothing was done then.
    pub validation_error: Option<String>,
    /// The phases that were processed, in order; the last may be incomplete.
    pub phases: Vec<PhaseResult>,
    /// The attempt broke off.
    pub failure: Option<EngineError>,
    /// Kinds of all phases that were reached: the ones to watch. The server may not know all of them.
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

    /// Every phase was processed and is complete. So is a revision without phases.
    pub fn is_complete(&self) -> bool {
        self.validation_error.is_none()
            && self.failure.is_none()
            && self.phases.len() == self.phase_count
            && self.phases.iter().all(PhaseResult::is_complete)
    }

    /// Objects are on their way from or to another revision, or not all phases were processed.
    pub fn is_in_transition(&self) -> bool {
        self.phases.len() < self.phase_count || self.phases.iter().any(PhaseResult::is_in_transition)
    }

    /// The message of what only somebody else can resolve, to be looked at again after
    /// [`olm_api::limits::COLLISION_RETRY`]: a revision that is wrong in itself, else whose objects are in the way, else
    /// what the API server objects to (docs/design/apply.md#collision-protection: ownership comes first).
    pub fn obstacle(&self) -> Option<String> {
        if let Some(error) = &self.validation_error {
            return Some(format!("revision validation error: {error}"));
        }
        for (index, phase) in self.phases.iter().enumerate() {
            let reports: Vec<&str> = phase.objects.iter().filter_map(|o| o.collision.as_deref()).collect();
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

    /// What the API server says about rights that are missing, each once, sorted.
    pub fn denials(&self) -> BTreeSet<&str> {
        let of_phases = self.phases.iter().flat_map(|phase| &phase.denials).map(String::as_str);
        of_phases.chain(self.failure.iter().flat_map(EngineError::denials)).collect()
    }

    /// The message of the Available condition with reason ProbeFailure: the first object of each incomplete
    /// phase that is not ready. `None` if no such object is known.
    pub fn probe_failures(&self) -> Option<String> {
        let incomplete = self.phases.iter().filter(|phase| !phase.is_complete());
        let lines: Vec<&str> = incomplete
            .filter_map(|phase| phase.objects.iter().find_map(|object| object.not_ready.as_deref()))
            .collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}
