//! The first look at the objects of a phase, before anything of it is written: how each one is, what is to be done about
//! it, and whether the API server will have it.

use std::ops::ControlFlow;

use futures::{StreamExt, stream};
use serde_json::Value;

use super::{Engine, Revision};
use crate::cluster::{Cluster, ClusterError, Reason};
use crate::content::{ContentObject, ContentPhase};
use crate::failure::{EngineError, ObjectError};
use crate::managed_fields::{agrees, conflicts, taken_over};
use crate::memory::{Hash, Known, hash, hash_of_ours, hash_of_state};
use crate::object::ObjectKey;
use crate::plan::{Owner, Plan, check_body, desired, keep, plan, superseded_managers};
use crate::result::ObjectResult;

/// Reads and dry runs of one phase that are under way at a time.
const CONCURRENT_CALLS: usize = 8;

/// An object as it should be and as it is.
pub(super) struct Observed {
    pub(super) desired: Value,
    pub(super) wanted: Hash,
    pub(super) actual: Option<Value>,
    pub(super) plan: Plan,
}

/// What a first look at an object came to.
pub(super) enum Look {
    /// It is as it was when it was found right.
    Unchanged(ObjectResult),
    /// It has been read.
    Read(Observed),
    /// The API server will not have it.
    Refused(Observed, ClusterError),
}

/// Why an object could not be checked.
pub(super) enum Check {
    /// The dry run gave no verdict.
    DryRun(ClusterError),
    /// The object could not be read.
    Object(ObjectError),
}

/// The objects of a phase after the first look, before anything of it is written.
#[derive(Default)]
pub(super) struct Checked {
    /// In order; `None` where an object cannot be settled.
    pub(super) looks: Vec<Option<Look>>,
    /// Objections of the API server.
    pub(super) findings: Vec<String>,
    /// Those that say that a right is missing.
    pub(super) denials: Vec<String>,
    pub(super) failures: Vec<ObjectError>,
}

impl Checked {
    /// Breaks with the error of [`Engine::check`].
    fn add(&mut self, look: Result<Look, Check>) -> ControlFlow<EngineError> {
        let look = match look {
            Ok(Look::Refused(observed, verdict)) => {
                self.findings.push(format!("{}: {}", ObjectKey::of(&observed.desired), verdict.message));
                if verdict.reason == Reason::NotPermitted {
                    self.denials.push(verdict.message);
                }
                None
            }
            Ok(look) => Some(look),
            Err(Check::DryRun(error)) => return ControlFlow::Break(EngineError::Validating(error)),
            Err(Check::Object(error)) => {
                let ends = error.ends_phase();
                self.failures.push(error);
                if ends {
                    return ControlFlow::Break(EngineError::Objects(std::mem::take(&mut self.failures)));
                }
                None
            }
        };
        self.looks.push(look);
        ControlFlow::Continue(())
    }
}

impl<C: Cluster> Engine<C> {
    /// Looks at every object of the phase. `known` has a place for each.
    ///
    /// # Errors
    /// The API server could not be asked for its verdict, or it is of no use to go on.
    pub(super) async fn check(
        &self,
        revision: &Revision,
        phase: &ContentPhase,
        known: &[Option<Known>],
    ) -> Result<Checked, EngineError> {
        // Made before they are awaited: a closure inside the stream would tie the future to one lifetime and
        // keep it from being sent between threads.
        let looks: Vec<_> = phase
            .objects
            .iter()
            .zip(known)
            .map(|(content, known)| self.look(revision, content, known.as_ref()))
            .collect();
        let mut looks = stream::iter(looks).buffered(CONCURRENT_CALLS);
        let mut checked = Checked::default();
        while let Some(look) = looks.next().await {
            if let ControlFlow::Break(error) = checked.add(look) {
                return Err(error);
            }
        }
        Ok(checked)
    }

    /// Reads the object unless a watch vouches for it, and lets the API server check it if it is to be written.
    async fn look(
        &self,
        revision: &Revision,
        content: &ContentObject,
        known: Option<&Known>,
    ) -> Result<Look, Check> {
        let mut desired = desired(content, &revision.owner);
        if let Some(keeper) = &self.keeper {
            keep(&mut desired, keeper);
        }
        let wanted = hash(&desired);
        let known = known.filter(|known| known.wanted == wanted && known.key == ObjectKey::of(&desired));
        if let Some(result) = known.and_then(|known| known.unchanged(&self.sightings)) {
            return Ok(Look::Unchanged(result));
        }
        let found = known.map(|known| known.found);
        let mut observed =
            self.observed(revision, content, desired, wanted, found).await.map_err(Check::Object)?;
        let body = match (&observed.plan, &observed.actual) {
            (Plan::Create, _) => observed.desired.clone(),
            (Plan::Adopt | Plan::Repair, Some(actual)) => {
                check_body(&observed.desired, actual, &revision.owner)
            }
            _ => return Ok(Look::Read(observed)),
        };
        match self.cluster.apply(&body, true).await {
            Ok(outcome) => {
                let is_settled = |actual| {
                    let superseded = superseded_managers(actual, &revision.owner);
                    hash_of_state(actual) == hash_of_state(&outcome)
                        && taken_over(actual, superseded).is_none()
                        // A field that another manager alone holds may change unnoticed.
                        && conflicts(&observed.desired, actual).is_empty()
                };
                if observed.plan == Plan::Repair && observed.actual.as_ref().is_some_and(is_settled) {
                    observed.plan = Plan::Keep;
                }
                Ok(Look::Read(observed))
            }
            Err(error) if error.reason.is_verdict() => Ok(Look::Refused(observed, error)),
            Err(error) if error.reason == Reason::NoDryRun => Ok(Look::Read(observed)),
            Err(error) => Err(Check::DryRun(error)),
        }
    }

    /// `found` is [`hash_of_ours`] of the state in which the object agreed with `desired`.
    pub(super) async fn observed(
        &self,
        revision: &Revision,
        content: &ContentObject,
        desired: Value,
        wanted: Hash,
        found: Option<Hash>,
    ) -> Result<Observed, ObjectError> {
        let key = ObjectKey::of(&desired);
        let actual = match self.cluster.get(&key).await {
            Ok(actual) => actual,
            Err(error) if error.reason == Reason::UnknownKind => None,
            Err(error) => return Err(ObjectError::new(&key, "getting object: ", error)),
        };
        let mut plan =
            plan(actual.as_ref(), &revision.owner, &revision.siblings, &content.collision_protection);
        if let (Plan::Repair, Some(actual)) = (&plan, &actual)
            && (found == Some(hash_of_ours(actual)) || is_right(&desired, actual, &revision.owner))
        {
            plan = Plan::Keep;
        }
        Ok(Observed { desired, wanted, actual, plan })
    }
}

/// Whether an apply would neither change the object nor who manages its fields.
fn is_right(desired: &Value, actual: &Value, owner: &Owner) -> bool {
    agrees(desired, actual) && taken_over(actual, superseded_managers(actual, owner)).is_none()
}
