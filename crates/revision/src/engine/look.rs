//! Check of the objects of a phase before any write: live state, plan, and the API server's verdict by dry run.

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

/// Maximum number of concurrent reads and dry runs of one phase.
const CONCURRENT_CALLS: usize = 8;

/// Desired and live state of an object.
pub(super) struct Observed {
    pub(super) desired: Value,
    pub(super) wanted: Hash,
    pub(super) actual: Option<Value>,
    pub(super) plan: Plan,
}

/// Result of the check of an object.
pub(super) enum Look {
    /// Unchanged since it was verified.
    Unchanged(ObjectResult),
    /// Read from the API server.
    Read(Observed),
    /// Rejected by the API server.
    Refused(Observed, ClusterError),
}

/// Error of the check of an object.
pub(super) enum Check {
    /// The dry run returned no verdict.
    DryRun(ClusterError),
    /// Reading the object failed.
    Object(ObjectError),
}

/// Objects of a phase after the check, before any write.
#[derive(Default)]
pub(super) struct Checked {
    /// Results in order. `None` where the check failed or the object was rejected.
    pub(super) looks: Vec<Option<Look>>,
    /// Rejections by the API server.
    pub(super) findings: Vec<String>,
    /// Those of the rejections that report a missing permission.
    pub(super) denials: Vec<String>,
    pub(super) failures: Vec<ObjectError>,
}

impl Checked {
    /// Adds a result. Breaks with the error of [`Engine::check`].
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
    /// Checks every object of the phase. `known` has an entry for each.
    ///
    /// # Errors
    /// A dry run failed without a verdict, or an error ends the phase.
    pub(super) async fn check(
        &self,
        revision: &Revision,
        phase: &ContentPhase,
        known: &[Option<Known>],
    ) -> Result<Checked, EngineError> {
        // Create the futures before the stream: a closure inside of it would tie the future to one lifetime, and the
        // future would not be `Send`.
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

    /// Reads the object unless the observed versions show no change, and checks a pending write with a dry run.
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
                        // A field that only another manager owns can change without our notice.
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

    /// Reads the object and plans its change. `found` is [`hash_of_ours`] of the state that agreed with `desired`.
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

/// `true` if an apply would change neither the object nor the ownership of its fields.
fn is_right(desired: &Value, actual: &Value, owner: &Owner) -> bool {
    agrees(desired, actual) && taken_over(actual, superseded_managers(actual, owner)).is_none()
}
