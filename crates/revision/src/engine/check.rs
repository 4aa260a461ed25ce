//! Check of the objects of a phase before any write: live state, plan, and the API server's verdict by dry run.

use futures::{StreamExt, stream};
use serde_json::Value;

use super::{Engine, Revision};
use crate::cluster::{ApiErrorReason, Cluster, ClusterError};
use crate::content::{ContentObject, ContentPhase};
use crate::error::{EngineError, ObjectError};
use crate::fields::{Moves, blocking, classic_managers, is_scaled_to_zero, without_scaled};
use crate::immutable::{about_object, is_replaceable, trial};
use crate::managed_fields::{agrees, conflicts, drops_conversion, unrecorded};
use crate::memory::{Hash, VerifiedObject, hash, hash_of_ours, hash_of_state};
use crate::object::{ObjectKey, is_built_in};
use crate::plan::{ObjectPlan, check_body, controller, is_controlled, plan, revision_of};
use crate::probes::{ProbeResult, ProbeStatus};
use crate::result::{Action, ObjectResult};
use crate::storage_version::{backends, with_live_storage};

/// Maximum number of concurrent reads and dry runs of one phase.
const CONCURRENT_CALLS: usize = 8;
/// Group of Roles and RoleBindings.
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// Desired and live state of an object.
pub(super) struct ObservedObject {
    /// Desired object without the fields that an autoscaler holds.
    pub(super) desired: Value,
    pub(super) desired_hash: Hash,
    pub(super) actual: Option<Value>,
    pub(super) plan: ObjectPlan,
    /// Ownership that a write moves first.
    pub(super) moves: Moves,
    /// `true` if the revision has applied the object before.
    pub(super) was_verified: bool,
    /// `true` if `desired` has the storage version of the live CRD instead of that of the revision.
    pub(super) keeps_storage: bool,
}

/// State of an object that was checked.
pub(super) enum ObjectCheck {
    /// Unchanged since it was verified.
    Unchanged(ObjectResult),
    /// Not needed, because its namespace is gone, or another owner has it there.
    Skipped(ObjectResult),
    /// Read from the API server.
    Read(ObservedObject),
}

/// Use of dry runs for new and adopted objects. Repairs always need one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DryRuns {
    Made,
    /// Made only where the write is not one apply, or needs the outcome.
    Omitted,
}

/// Request that asks the API server for its verdict.
struct DryRun {
    body: Value,
    /// `true` if the write moves the ownership of fields first.
    moves_fields: bool,
}

/// Error of the check of an object.
enum CheckError {
    /// The API server rejects the object.
    Rejected(Box<(ObjectKey, ClusterError)>),
    /// Reading the object failed.
    Read(Box<ObjectError>),
    /// The dry run returned no verdict.
    DryRun(ClusterError),
}

/// Objects of a phase after the check, before any write.
#[derive(Default)]
pub(super) struct CheckedPhase {
    /// Results in order. `None` where the check failed or the object was rejected.
    pub(super) checks: Vec<Option<ObjectCheck>>,
    /// Rejections by the API server.
    pub(super) findings: Vec<String>,
    /// Rejections that report a missing permission.
    pub(super) denials: Vec<String>,
    pub(super) failures: Vec<ObjectError>,
}

impl CheckedPhase {
    /// `true` if an object is to be created or adopted.
    pub(super) fn creates_or_adopts(&self) -> bool {
        self.checks.iter().flatten().any(|check| match check {
            ObjectCheck::Read(observed) => matches!(observed.plan, ObjectPlan::Create | ObjectPlan::Adopt),
            ObjectCheck::Unchanged(_) | ObjectCheck::Skipped(_) => false,
        })
    }
}

impl<C: Cluster> Engine<C> {
    /// Checks every object of the phase. `verified` has an entry for each.
    ///
    /// # Errors
    /// A dry run failed without a verdict, or an error ends the phase.
    pub(super) async fn check_phase(
        &self,
        revision: &Revision,
        phase: &ContentPhase,
        verified: &[Option<VerifiedObject>],
        dry_runs: DryRuns,
    ) -> Result<CheckedPhase, EngineError> {
        // Create the futures before the stream: a closure inside of it would tie the future to one lifetime, and the
        // future would not be `Send`.
        let objects = phase.objects.iter().zip(verified);
        let checks: Vec<_> = objects
            .map(|(content, verified)| self.check_object(revision, content, verified.as_ref(), dry_runs))
            .collect();
        let mut checks = stream::iter(checks).buffered(CONCURRENT_CALLS);
        let mut checked = CheckedPhase::default();
        while let Some(check) = checks.next().await {
            let check = match check {
                Ok(check) => Some(check),
                Err(CheckError::Rejected(rejected)) => {
                    let (key, verdict) = *rejected;
                    checked.findings.push(format!("{key}: {}", verdict.message));
                    if verdict.reason == ApiErrorReason::NotPermitted {
                        checked.denials.push(verdict.message);
                    }
                    None
                }
                Err(CheckError::Read(error)) => {
                    let ends = error.ends_phase();
                    checked.failures.push(*error);
                    if ends {
                        return Err(EngineError::Objects(checked.failures));
                    }
                    None
                }
                Err(CheckError::DryRun(error)) => return Err(EngineError::Validating(error)),
            };
            checked.checks.push(check);
        }
        Ok(checked)
    }

    /// Reads the object unless the observed versions show no change, and checks a pending write with a dry run.
    async fn check_object(
        &self,
        revision: &Revision,
        content: &ContentObject,
        verified: Option<&VerifiedObject>,
        dry_runs: DryRuns,
    ) -> Result<ObjectCheck, CheckError> {
        let desired = self.desired(revision, content);
        let desired_hash = hash(&desired);
        let verified = verified.filter(|verified| {
            verified.desired_hash == desired_hash && verified.result.key == ObjectKey::of(&desired)
        });
        if let Some(result) = verified.and_then(|verified| verified.unchanged(&self.shared.observed_versions))
        {
            return Ok(ObjectCheck::Unchanged(result));
        }
        let live_hash = verified.map(|verified| verified.live_hash);
        let observed = self.observed(revision, content, desired, desired_hash, live_hash).await;
        let mut observed = observed.map_err(|error| CheckError::Read(Box::new(error)))?;
        if revision.is_taken(&observed) {
            return Ok(ObjectCheck::Skipped(taken(ObjectKey::of(&observed.desired), "it has another owner")));
        }
        let Some(DryRun { body, moves_fields }) = revision.dry_run(&observed, dry_runs) else {
            return Ok(ObjectCheck::Read(observed));
        };
        let mut verdict = self.cluster.apply(&body, true).await;
        if verdict.as_ref().is_err_and(|error| revision.may_replace(error, &observed)) {
            let tried = self.cluster.apply(&trial(&observed.desired), true).await;
            verdict = tried.map_err(|error| about_object(error, &body));
            observed.plan = ObjectPlan::Replace;
            // The new object has no autoscaler yet.
            observed.desired = self.desired(revision, content);
        }
        match verdict {
            Ok(outcome) => Ok(ObjectCheck::Read(revision.accepted(observed, &outcome, moves_fields))),
            Err(error) => revision.rejected(observed, &body, error),
        }
    }

    /// Reads the object and plans its change. `live_hash` is [`hash_of_ours`] of the state that agreed with `desired`.
    pub(super) async fn observed(
        &self,
        revision: &Revision,
        content: &ContentObject,
        desired: Value,
        desired_hash: Hash,
        live_hash: Option<Hash>,
    ) -> Result<ObservedObject, ObjectError> {
        let key = ObjectKey::of(&desired);
        let actual = match self.cluster.get(&key).await {
            Ok(actual) => actual,
            Err(error) if error.reason == ApiErrorReason::UnknownKind => None,
            Err(error) => return Err(ObjectError::new(&key, "getting object: ", error)),
        };
        let mut plan =
            plan(actual.as_ref(), &revision.owner, &revision.siblings, &content.collision_protection);
        let (mut desired, mut moves, mut keeps_storage) = (desired, Moves::default(), false);
        if let Some(actual) = &actual {
            if matches!(plan, ObjectPlan::Adopt | ObjectPlan::Repair)
                && let Some(staged) = self.staged(revision, &desired, actual).await?
            {
                (desired, keeps_storage) = (staged, true);
            }
            desired = without_scaled(&desired, actual);
            if is_scaled_to_zero(&desired, actual) && self.cluster.is_autoscaled(&key).await {
                desired["spec"].as_object_mut().map(|spec| spec.remove("replicas"));
            }
            moves = Moves::of(actual, &revision.owner);
            let is_same = || live_hash == Some(hash_of_ours(actual)) || is_applied(&desired, actual, &moves);
            if plan == ObjectPlan::Repair && is_same() {
                plan = ObjectPlan::Keep;
            }
        }
        let was_verified = live_hash.is_some();
        Ok(ObservedObject { desired, desired_hash, actual, plan, moves, was_verified, keeps_storage })
    }

    /// The CRD `desired` with the live storage version, until every Deployment behind its conversion webhook is
    /// applied and ready. `None` if there is nothing to wait for.
    async fn staged(
        &self,
        revision: &Revision,
        desired: &Value,
        actual: &Value,
    ) -> Result<Option<Value>, ObjectError> {
        let Some(staged) = with_live_storage(desired, actual) else { return Ok(None) };
        for key in backends(desired, &revision.phases) {
            let read = self.cluster.get(&key).await;
            let live = read.map_err(|error| ObjectError::new(&key, "getting object: ", error))?;
            let is_ready =
                |live: &Value| is_controlled(live, &revision.owner) && revision.probes.probe(live).is_ready();
            if !live.as_ref().is_some_and(is_ready) {
                return Ok(Some(staged));
            }
        }
        Ok(None)
    }
}

impl Revision {
    /// The dry run of a planned write. `None` if nothing is written, or the write itself gives the verdict.
    fn dry_run(&self, observed: &ObservedObject, dry_runs: DryRuns) -> Option<DryRun> {
        let ObservedObject { desired, moves, plan, .. } = observed;
        let is_omitted = dry_runs == DryRuns::Omitted;
        match (plan, &observed.actual) {
            (ObjectPlan::Create, _) => {
                let is_needed = !is_omitted || !is_built_in(&ObjectKey::of(desired).gvk);
                is_needed.then(|| DryRun { body: desired.clone(), moves_fields: false })
            }
            (ObjectPlan::Adopt | ObjectPlan::Repair, Some(actual)) => {
                let moves_fields = moves.managed_fields(desired, actual).is_some();
                // Moves from managers of classic OLM follow from the dry run.
                let may_omit = is_omitted && !self.is_migrated;
                if *plan == ObjectPlan::Adopt && may_omit && !moves_fields {
                    return None;
                }
                let mut body = check_body(desired, actual, &self.owner);
                if moves_fields && drops_conversion(desired, actual, &moves.superseded) {
                    // Valid without it only after its takeover, which must follow the verdict.
                    body["spec"]["conversion"] = actual["spec"]["conversion"].clone();
                }
                Some(DryRun { body, moves_fields })
            }
            _ => None,
        }
    }

    /// The plan after a dry run with this outcome: a repair without effect is none.
    fn accepted(
        &self,
        mut observed: ObservedObject,
        outcome: &Value,
        mut moves_fields: bool,
    ) -> ObservedObject {
        let ObservedObject { desired, actual: Some(actual), plan, moves, .. } = &mut observed else {
            return observed;
        };
        match plan {
            ObjectPlan::Repair => {
                moves.claims = unrecorded(actual, outcome);
                moves_fields |= !moves.claims.is_null();
                // A field that only another manager owns can change without our notice.
                if !moves_fields
                    && hash_of_state(actual) == hash_of_state(outcome)
                    && conflicts(desired, actual).is_empty()
                {
                    *plan = ObjectPlan::Keep;
                }
            }
            ObjectPlan::Adopt if self.is_migrated => {
                moves.superseded.extend(classic_managers(actual, outcome, &self.siblings));
            }
            _ => {}
        }
        observed
    }

    /// The check of an object whose dry run failed.
    fn rejected(
        &self,
        mut observed: ObservedObject,
        body: &Value,
        mut error: ClusterError,
    ) -> Result<ObjectCheck, CheckError> {
        if error.is_namespace_gone() && self.may_skip(body) {
            return Ok(ObjectCheck::Skipped(skipped(ObjectKey::of(body))));
        }
        let is_replaced = observed.plan == ObjectPlan::Replace;
        if error.reason.is_verdict() {
            if !is_replaced && claim_blocking(&mut observed, &mut error) {
                return Ok(ObjectCheck::Read(observed));
            }
            if error.is_rejection() && self.yields(&observed) {
                return Ok(ObjectCheck::Skipped(taken(ObjectKey::of(body), &error.message)));
            }
            return Err(CheckError::Rejected(Box::new((ObjectKey::of(&observed.desired), error))));
        }
        // A replacement deletes the object, so its creation has to be checked.
        if error.reason == ApiErrorReason::NoDryRun && !is_replaced {
            return Ok(ObjectCheck::Read(observed));
        }
        Err(CheckError::DryRun(error))
    }

    /// `true` if an object with this verdict is to be deleted and created again
    /// (docs/design/apply.md#immutable-fields).
    fn may_replace(&self, verdict: &ClusterError, observed: &ObservedObject) -> bool {
        let is_replaceable =
            || is_replaceable(&observed.desired) && observed.actual.as_ref().is_some_and(is_replaceable);
        self.replaces_immutable && verdict.reason == ApiErrorReason::Immutable && is_replaceable()
    }

    /// `true` for permissions in a selected namespace.
    fn may_skip(&self, object: &Value) -> bool {
        let ObjectKey { gvk, namespace, .. } = ObjectKey::of(object);
        gvk.group == RBAC_GROUP && self.selected_namespaces.contains(&namespace)
    }

    /// `true` for existing permissions in a watched namespace, whose administrators must not stop the revision.
    pub(super) fn yields(&self, observed: &ObservedObject) -> bool {
        let ObjectKey { gvk, namespace, .. } = ObjectKey::of(&observed.desired);
        observed.actual.is_some() && gvk.group == RBAC_GROUP && self.watched_namespaces.contains(&namespace)
    }

    /// `true` if the write of an object restores what another client changed, also the owner.
    pub(super) fn corrects(&self, observed: &ObservedObject) -> bool {
        let is_ours_without_owner = |actual: &Value| {
            controller(actual).is_none() && [0, self.owner.number].contains(&revision_of(actual))
        };
        match observed.plan {
            ObjectPlan::Repair => true,
            ObjectPlan::Adopt => observed.actual.as_ref().is_some_and(is_ours_without_owner),
            _ => false,
        }
    }

    /// `true` if another owner has such permissions. Without a newer revision, none can own them.
    fn is_taken(&self, observed: &ObservedObject) -> bool {
        let has_newer = !self.creation_delay.is_zero();
        let is_foreign =
            observed.plan == ObjectPlan::Collide || observed.plan == ObjectPlan::Leave && !has_newer;
        is_foreign && self.yields(observed)
    }
}

fn skipped(key: ObjectKey) -> ObjectResult {
    let probe = ProbeResult { status: ProbeStatus::True, messages: Vec::new() };
    ObjectResult::new(key, Action::Skipped, probe)
}

/// Result for permissions in a watched namespace that another owner has.
pub(super) fn taken(key: ObjectKey, why: &str) -> ObjectResult {
    let collision = Some(format!("Object {}: skipped, because {why}", key.kind_first()));
    ObjectResult { collision, ..skipped(key) }
}

/// Claims the fields that alone are in the way of a rejected object, and returns `true`. Otherwise the error names those
/// of other managers.
fn claim_blocking(observed: &mut ObservedObject, error: &mut ClusterError) -> bool {
    let Some(actual) = &observed.actual else { return false };
    let blocking = blocking(&observed.desired, actual, &error.fields);
    if let Some(remedy) = blocking.remedy() {
        error.message = format!("{}; {remedy}", error.message);
    }
    observed.moves.claims = blocking.claims;
    !observed.moves.claims.is_null()
}

/// `true` if an apply would change neither the object nor the ownership of its fields.
fn is_applied(desired: &Value, actual: &Value, moves: &Moves) -> bool {
    agrees(desired, actual) && moves.managed_fields(desired, actual).is_none()
}
