//! Application of the plan for one object.

use serde_json::Value;
use tokio::time::Instant;

use super::check::{ObjectCheck, ObservedObject};
use super::{Engine, Mode, Revision};
use crate::blocked_pods::of_deployment;
use crate::cluster::{Answer, ApiErrorReason, Cluster};
use crate::content::ContentObject;
use crate::contention::Contention;
use crate::error::ObjectError;
use crate::fields::Moves;
use crate::managed_fields::{agrees, changed, conflicts, owned};
use crate::memory::VerifiedObject;
use crate::object::{ObjectKey, is_crd, resource_version, uid};
use crate::plan::{ObjectPlan, is_controlled, metadata_patch, write_body};
use crate::probes::{ProbeResult, ProbeStatus, Probes, failure_line};
use crate::refused_names::refused_names;
use crate::report::collision;
use crate::result::{Action, ObjectResult};
use crate::teardown::finalizers;

/// Maximum number of attempts after conflicts.
const ATTEMPTS: usize = 3;
/// Readiness of an object that does not exist.
const UNKNOWN: ProbeResult = ProbeResult { status: ProbeStatus::Unknown, messages: Vec::new() };

impl<C: Cluster> Engine<C> {
    /// Executes the plan. On a conflict, reads the object again and retries.
    pub(super) async fn execute_with_retry(
        &self,
        revision: &Revision,
        content: &ContentObject,
        mut observed: ObservedObject,
        mode: Mode,
    ) -> Result<(ObjectResult, Option<VerifiedObject>), ObjectError> {
        let mut attempt = 1;
        loop {
            match self.execute(revision, &observed, mode).await {
                Err(error) if attempt < ATTEMPTS && error.is_conflict() => {
                    attempt += 1;
                    let ObservedObject { desired_hash, moves, .. } = observed;
                    let desired = self.desired(revision, content);
                    observed = self.observed(revision, content, desired, desired_hash, None).await?;
                    // Those of classic OLM follow from the dry run, which is not repeated.
                    observed.moves.superseded.extend(moves.superseded);
                    observed.moves.claims = moves.claims;
                }
                result => return result,
            }
        }
    }

    async fn execute(
        &self,
        revision: &Revision,
        observed: &ObservedObject,
        mode: Mode,
    ) -> Result<(ObjectResult, Option<VerifiedObject>), ObjectError> {
        let ObservedObject { desired, desired_hash, actual, plan, .. } = observed;
        let key = ObjectKey::of(desired);
        if let Some(result) = self.withheld(revision, observed, mode) {
            return Ok((result, None));
        }
        let (action, live) = match (plan, actual) {
            (ObjectPlan::Adopt | ObjectPlan::Repair, Some(actual)) => {
                self.write(revision, observed, actual).await?
            }
            (ObjectPlan::AwaitDeletion, Some(actual)) if is_crd(&key.gvk) => {
                return Ok((self.awaited(key, actual, &revision.probes).await, None));
            }
            (ObjectPlan::AwaitDeletion, Some(actual)) if !is_controlled(actual, &revision.owner) => {
                let held = finalizers(actual).map(|names| format!(": {names}")).unwrap_or_default();
                let waits = format!("waiting for the deletion of {}{held}", key.kind_first());
                return Ok((awaited(key, actual, &revision.probes, waits), None));
            }
            (ObjectPlan::Replace, Some(actual)) if !self.delete(&key, actual).await? => {
                let waits = format!("waiting for the deletion of {}, which is replaced", key.kind_first());
                return Ok((awaited(key, actual, &revision.probes, waits), None));
            }
            (ObjectPlan::Keep | ObjectPlan::AwaitDeletion, Some(actual)) => (Action::Idle, actual.clone()),
            (ObjectPlan::Leave, Some(actual)) => (Action::Progressed, actual.clone()),
            (ObjectPlan::Collide, Some(actual)) => {
                return Ok((collided_with(desired, actual, &revision.probes), None));
            }
            _ => (Action::Created, self.create(revision, desired).await?),
        };
        if !revision.siblings.is_empty() {
            self.share(&key, &live);
        }
        let mut result = probed(key, action, &live, &revision.probes);
        if observed.keeps_storage {
            let waits = "storage version changes when the conversion webhook is ready";
            result.action = Action::Staged;
            result.not_ready.get_or_insert_with(|| format!("Object {}: {waits}", result.key.kind_first()));
            return Ok((result, None));
        }
        result.contention = self.corrected(revision, observed, &result);
        if *plan == ObjectPlan::Create && owned(&live).is_some() && !agrees(desired, &live) {
            // Admission may change an object at its creation in another way than later. The next pass decides.
            return Ok((result, None));
        }
        let verified = VerifiedObject::of(&self.shared.observed_versions, &result, *desired_hash, &live);
        Ok((result, verified))
    }

    /// Records that the write with this result has corrected what another client did.
    fn corrected(
        &self,
        revision: &Revision,
        observed: &ObservedObject,
        ObjectResult { key, action, .. }: &ObjectResult,
    ) -> Option<Contention> {
        let (contentions, uid) = (&self.shared.contentions, &revision.owner.uid);
        match (action, &observed.actual) {
            (Action::Updated | Action::Recovered, Some(actual)) if revision.corrects(observed) => {
                let changed = changed(&observed.desired, actual);
                Some(contentions.record(key, &changed, Instant::now()))
            }
            (Action::Created, None) if observed.was_verified || contentions.was_deleted(key, uid) => {
                Some(contentions.record_deletion(key, uid, Instant::now()))
            }
            _ => None,
        }
    }

    /// Result for an object whose write has to wait: its revision is paused, or another client contends.
    fn withheld(&self, revision: &Revision, observed: &ObservedObject, mode: Mode) -> Option<ObjectResult> {
        let ObservedObject { desired, actual, plan, .. } = observed;
        let (live, probes) = (actual.as_ref(), &revision.probes);
        if !matches!(plan, ObjectPlan::Create | ObjectPlan::Adopt | ObjectPlan::Repair | ObjectPlan::Replace)
        {
            return None;
        }
        if mode == Mode::Observe {
            return Some(unapplied(desired, Action::Held, live, probes, "not applied while paused"));
        }
        let creator = (*plan == ObjectPlan::Create).then_some(revision.owner.uid.as_str());
        if creator.is_none() && !revision.corrects(observed) {
            return None;
        }
        let key = ObjectKey::of(desired);
        let contention = self.shared.contentions.delayed(&key, creator, Instant::now())?;
        let why = "missing, because another client deletes it after each creation";
        let result = match live {
            Some(actual) => probed(key, Action::Contended, actual, probes),
            None => unapplied(desired, Action::Contended, None, probes, why),
        };
        Some(ObjectResult { contention: Some(contention), ..result })
    }

    async fn create(&self, revision: &Revision, desired: &Value) -> Result<Value, ObjectError> {
        let key = &ObjectKey::of(desired);
        let failed = |step: &'static str| move |error| ObjectError::new(key, step, error);
        let created = self.cluster.create(desired).await.map_err(failed("creating resource: "))?;
        let moves = Moves::of(&created, &revision.owner);
        let moved = self.move_fields(&moves, desired, created).await;
        moved.map_err(failed("migrating to SSA after create: "))
    }

    async fn write(
        &self,
        revision: &Revision,
        ObservedObject { desired, plan, moves, .. }: &ObservedObject,
        actual: &Value,
    ) -> Result<(Action, Value), ObjectError> {
        let key = ObjectKey::of(desired);
        let contested = !conflicts(desired, actual).is_empty();
        let (step, action) = match (plan, contested) {
            (ObjectPlan::Adopt, _) => ("patching (owner change): ", Action::Updated),
            (_, true) => ("patching (conflict): ", Action::Recovered),
            (_, false) => ("patching (modified): ", Action::Updated),
        };
        let before = resource_version(actual);
        let write = async {
            let current = self.move_fields(moves, desired, actual.clone()).await?;
            self.cluster.apply(&write_body(desired, &current, &revision.owner), false).await
        };
        let live = write.await.map_err(|error| ObjectError::new(&key, step, error))?;
        let action = if resource_version(&live) == before { Action::Idle } else { action };
        Ok((action, live))
    }

    /// Result for a CustomResourceDefinition that is being deleted, with the custom resources that block it.
    async fn awaited(&self, key: ObjectKey, actual: &Value, probes: &Probes) -> ObjectResult {
        let waits = match self.instances_of(actual).await {
            Ok(found) => found
                .map(|found| format!(", which waits for {}", found.summary(&key.name)))
                .unwrap_or_default(),
            Err(error) => format!(", whose custom resources cannot be listed: {error}"),
        };
        let waits = format!("waiting for the deletion of CustomResourceDefinition {}{waits}", key.name);
        awaited(key, actual, probes, waits)
    }

    /// Deletes the object that was read, to create it again. Returns `false` if finalizers block the deletion.
    async fn delete(&self, key: &ObjectKey, actual: &Value) -> Result<bool, ObjectError> {
        tracing::info!(object = %key, "deleting object to replace it");
        match self.cluster.delete(key, uid(actual), resource_version(actual)).await {
            Err(error) if error.reason == ApiErrorReason::NotFound => Ok(true),
            deleted => deleted.map_err(|error| ObjectError::new(key, "deleting resource: ", error)),
        }
    }

    /// Moves the ownership of fields by a patch of managedFields. Without any to move, makes no request.
    pub(crate) async fn move_fields(&self, moves: &Moves, desired: &Value, actual: Value) -> Answer<Value> {
        let Some(entries) = moves.managed_fields(desired, &actual) else { return Ok(actual) };
        let patch = metadata_patch(&actual, [("managedFields", entries.into())]);
        self.cluster.merge(&ObjectKey::of(desired), &patch).await
    }
}

pub(super) fn probed(key: ObjectKey, action: Action, live: &Value, probes: &Probes) -> ObjectResult {
    let probe = probes.probe(live);
    let cause = || of_deployment(live).map_or_else(|| refused_names(live), |cause| cause.text);
    let not_ready = (!probe.is_ready()).then(|| failure_line(live, &probe) + &cause());
    ObjectResult { not_ready, ..ObjectResult::new(key, action, probe) }
}

/// Result for an object that is not applied for now, with the reason.
pub(super) fn unapplied(
    desired: &Value,
    action: Action,
    live: Option<&Value>,
    probes: &Probes,
    why: &str,
) -> ObjectResult {
    let key = ObjectKey::of(desired);
    let not_ready = Some(format!("Object {}: {why}", key.kind_first()));
    let probe = live.map_or(UNKNOWN, |live| probes.probe(live));
    ObjectResult { not_ready, ..ObjectResult::new(key, action, probe) }
}

/// Result for an object that is being deleted.
fn awaited(key: ObjectKey, actual: &Value, probes: &Probes, waits: String) -> ObjectResult {
    ObjectResult { not_ready: Some(waits), ..probed(key, Action::Awaited, actual, probes) }
}

fn collided_with(desired: &Value, actual: &Value, probes: &Probes) -> ObjectResult {
    let result = probed(ObjectKey::of(desired), Action::Collision, actual, probes);
    let collision = Some(collision(desired, actual, &result.probe));
    ObjectResult { collision, ..result }
}

/// Result for the object if another owner controls it.
pub(super) fn collided(check: ObjectCheck, probes: &Probes) -> Option<ObjectResult> {
    match check {
        ObjectCheck::Read(ObservedObject {
            desired,
            actual: Some(actual),
            plan: ObjectPlan::Collide,
            ..
        }) => Some(collided_with(&desired, &actual, probes)),
        _ => None,
    }
}
