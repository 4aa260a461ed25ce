//! Applying a revision: phases in order, each checked as a whole before anything of it is written
//! (spec 05 §7).
//!
//! The engine decides nothing about one object itself ([`crate::plan`] does) and sets no conditions; it
//! executes and reports. A steady state costs one read per object and no write: what was found right is
//! remembered by a hash, and a restarted process asks with dry runs.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use futures::{StreamExt, stream};
use kube::core::GroupVersionKind;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::canonical::{Numbers, canonical_json};
use crate::cluster::{Cluster, ClusterError, Reason};
use crate::content::{ContentObject, ContentPhase};
use crate::managed_fields::{conflicts, taken_over};
use crate::object::{ObjectKey, resource_version};
use crate::plan::{
    Owner, Plan, RevisionAnnotationError, check_body, comparable, desired, metadata_patch, plan,
    superseded_managers, write_body,
};
use crate::probes::{Probes, failure_line};
use crate::report::collision;
use crate::result::{Action, ObjectResult, PhaseResult, RevisionResult};
use crate::validation::{phase_error, validate};

/// Reads and dry runs of one phase that are under way at a time.
const CONCURRENT_CALLS: usize = 8;
/// How often an object is looked at again when somebody else changed it in between.
const ATTEMPTS: usize = 3;

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

/// A revision that could not be applied as far as possible; the same attempt may succeed later.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// A check could not be made.
    #[error("reconciling object: validating: {0}")]
    Validating(ClusterError),
    /// Objects could not be read or written; one line each.
    #[error("reconciling object: {}", lines(.0))]
    Objects(Vec<ObjectError>),
    /// Removing objects failed.
    #[error("teardown phase: teardown {0}")]
    Teardown(ObjectError),
}

fn lines(errors: &[ObjectError]) -> String {
    errors.iter().map(|error| format!("reconciling {error}")).collect::<Vec<_>>().join("\n")
}

/// A failed step on one object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {step}{cause}")]
pub struct ObjectError {
    /// The object.
    pub key: ObjectKey,
    /// What was tried, such as `creating resource: `.
    pub step: &'static str,
    /// Why it failed.
    pub cause: Cause,
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The cluster refused.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The object carries a revision number which is none.
    #[error(transparent)]
    Annotation(#[from] RevisionAnnotationError),
}

impl ObjectError {
    pub(crate) fn new(key: &ObjectKey, step: &'static str, cause: impl Into<Cause>) -> Self {
        Self { key: key.clone(), step, cause: cause.into() }
    }

    fn is(&self, reason: Reason) -> bool {
        matches!(&self.cause, Cause::Cluster(error) if error.reason == reason)
    }
}

/// Applies and removes the objects of revisions. One engine serves all revisions of a process.
pub struct Engine<C> {
    cluster: C,
    /// By UID of the owner: hashes of desired and actual object at the time when they were found to agree.
    verified: Mutex<HashMap<String, HashMap<ObjectKey, [u8; 32]>>>,
}

/// An object as it should be and as it is.
struct Observed {
    desired: Value,
    actual: Option<Value>,
    plan: Plan,
}

impl<C: Cluster> Engine<C> {
    /// An engine on `cluster`.
    pub fn new(cluster: C) -> Self {
        Self { cluster, verified: Mutex::default() }
    }

    /// The cluster that the engine works on.
    pub fn cluster(&self) -> &C {
        &self.cluster
    }

    /// Brings the cluster as near to `revision` as it lets us: phase after phase, up to the first that is
    /// not complete.
    pub async fn reconcile(&self, revision: &Revision) -> RevisionResult {
        let mut result = RevisionResult::new(revision.phases.len());
        let owner = &revision.owner;
        result.validation_error = validate(&owner.name, owner.number, &revision.phases);
        if result.validation_error.is_some() {
            return result;
        }
        for phase in &revision.phases {
            result.watch(phase);
            match self.phase(revision, phase).await {
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
        result
    }

    async fn phase(&self, revision: &Revision, phase: &ContentPhase) -> Result<PhaseResult, EngineError> {
        // Made before they are awaited: a closure inside the stream would tie the future to one lifetime and
        // keep it from being sent between threads.
        let checks: Vec<_> =
            phase.objects.iter().map(|content| self.observe_and_check(revision, content)).collect();
        let observed: Vec<_> = stream::iter(checks).buffered(CONCURRENT_CALLS).collect().await;
        let mut result = PhaseResult { name: phase.name.clone(), ..PhaseResult::default() };
        let (mut findings, mut failures, mut checked) = (Vec::new(), Vec::new(), Vec::new());
        for (content, observed) in phase.objects.iter().zip(observed) {
            match observed {
                Ok((observed, None)) => checked.push((content, observed)),
                Ok((_, Some(verdict))) => {
                    findings.push(format!("{}: {verdict}", ObjectKey::of(&content.object)));
                }
                Err(Check::DryRun(error)) => return Err(EngineError::Validating(error)),
                Err(Check::Object(error)) => failures.push(error),
            }
        }
        if !findings.is_empty() {
            result.validation_error = Some(phase_error(&phase.name, &findings));
            return Ok(result);
        }
        if failures.iter().any(|error| error.is(Reason::TooManyRequests)) {
            return Err(EngineError::Objects(failures));
        }
        for (content, observed) in checked {
            match self.settle(revision, content, observed).await {
                Ok(object) => result.objects.push(object),
                Err(error) => {
                    let stop = error.is(Reason::TooManyRequests);
                    failures.push(error);
                    if stop {
                        break;
                    }
                }
            }
        }
        if failures.is_empty() { Ok(result) } else { Err(EngineError::Objects(failures)) }
    }

    /// Reads the object, and lets the API server check it if it is to be written. The second part of the
    /// answer is the server's objection.
    async fn observe_and_check(
        &self,
        revision: &Revision,
        content: &ContentObject,
    ) -> Result<(Observed, Option<String>), Check> {
        let mut observed = self.observe(revision, content).await.map_err(Check::Object)?;
        let body = match (&observed.plan, &observed.actual) {
            (Plan::Create, _) => observed.desired.clone(),
            (Plan::Adopt | Plan::Repair, Some(actual)) => {
                check_body(&observed.desired, actual, &revision.owner)
            }
            _ => return Ok((observed, None)),
        };
        match self.cluster.apply(&body, true).await {
            Ok(outcome) => {
                let is_same = |actual| comparable(actual) == comparable(&outcome);
                if observed.plan == Plan::Repair && observed.actual.as_ref().is_some_and(is_same) {
                    observed.plan = Plan::Keep;
                }
                Ok((observed, None))
            }
            Err(error) if error.reason.is_verdict() => Ok((observed, Some(error.message))),
            Err(error) if error.reason == Reason::NoDryRun => Ok((observed, None)),
            Err(error) => Err(Check::DryRun(error)),
        }
    }

    async fn observe(&self, revision: &Revision, content: &ContentObject) -> Result<Observed, ObjectError> {
        let desired = desired(content, &revision.owner);
        let key = ObjectKey::of(&desired);
        let actual = match self.cluster.get(&key).await {
            Ok(actual) => actual,
            Err(error) if error.reason == Reason::UnknownKind => None,
            Err(error) => return Err(ObjectError::new(&key, "getting object: ", error)),
        };
        let mut plan =
            plan(actual.as_ref(), &revision.owner, &revision.siblings, &content.collision_protection)
                .map_err(|error| ObjectError::new(&key, "", error))?;
        if let (Plan::Repair, Some(actual)) = (&plan, &actual)
            && self.is_verified(&revision.owner.uid, &key, fingerprint(&desired, actual))
        {
            plan = Plan::Keep;
        }
        Ok(Observed { desired, actual, plan })
    }

    /// Executes the plan. If somebody else was faster, looks again.
    async fn settle(
        &self,
        revision: &Revision,
        content: &ContentObject,
        mut observed: Observed,
    ) -> Result<ObjectResult, ObjectError> {
        let mut attempt = 1;
        loop {
            match self.execute(revision, &observed).await {
                Err(error)
                    if attempt < ATTEMPTS
                        && (error.is(Reason::Conflict) || error.is(Reason::AlreadyExists)) =>
                {
                    attempt += 1;
                    observed = self.observe(revision, content).await?;
                }
                result => return result,
            }
        }
    }

    async fn execute(&self, revision: &Revision, observed: &Observed) -> Result<ObjectResult, ObjectError> {
        let Observed { desired, actual, plan } = observed;
        let (action, live) = match (plan, actual) {
            (Plan::Adopt | Plan::Repair, Some(actual)) => self.write(revision, desired, actual, plan).await?,
            (Plan::Keep, Some(actual)) => (Action::Idle, actual.clone()),
            (Plan::AwaitDeletion, Some(actual)) => (Action::Idle, actual.clone()),
            (Plan::Leave, Some(actual)) => (Action::Progressed, actual.clone()),
            (Plan::Collide, Some(actual)) => (Action::Collision, actual.clone()),
            _ => (Action::Created, self.create(revision, desired).await?),
        };
        let key = ObjectKey::of(desired);
        if matches!(action, Action::Idle | Action::Created | Action::Updated | Action::Recovered) {
            self.remember(&revision.owner.uid, &key, fingerprint(desired, &live));
        }
        let probe = revision.probes.probe(&live);
        let collision = (action == Action::Collision).then(|| collision(desired, &live, &probe));
        let not_ready = (!probe.is_ready()).then(|| failure_line(&live, &probe));
        Ok(ObjectResult { key, action, probe, collision, not_ready })
    }

    async fn create(&self, revision: &Revision, desired: &Value) -> Result<Value, ObjectError> {
        let key = ObjectKey::of(desired);
        let created = self
            .cluster
            .create(desired)
            .await
            .map_err(|error| ObjectError::new(&key, "creating resource: ", error))?;
        self.take_over(revision, &key, created)
            .await
            .map_err(|error| ObjectError::new(&key, "migrating to SSA after create: ", error))
    }

    async fn write(
        &self,
        revision: &Revision,
        desired: &Value,
        actual: &Value,
        plan: &Plan,
    ) -> Result<(Action, Value), ObjectError> {
        let key = ObjectKey::of(desired);
        let contested = !conflicts(desired, actual).is_empty();
        let (step, action) = match (plan, contested) {
            (Plan::Adopt, _) => ("patching (owner change): ", Action::Updated),
            (_, true) => ("patching (conflict): ", Action::Recovered),
            (_, false) => ("patching (modified): ", Action::Updated),
        };
        let before = resource_version(actual);
        let write = async {
            let current = self.take_over(revision, &key, actual.clone()).await?;
            self.cluster.apply(&write_body(desired, &current, &revision.owner), false).await
        };
        let live = write.await.map_err(|error| ObjectError::new(&key, step, error))?;
        let action = if resource_version(&live) == before { Action::Idle } else { action };
        Ok((action, live))
    }

    /// Makes plain updates of ours server-side applies; without any there is no request.
    async fn take_over(
        &self,
        revision: &Revision,
        key: &ObjectKey,
        actual: Value,
    ) -> Result<Value, ClusterError> {
        match taken_over(&actual, superseded_managers(&actual, &revision.owner)) {
            Some(entries) => {
                let patch = metadata_patch(&actual, [("managedFields", entries.into())]);
                self.cluster.merge(key, &patch).await
            }
            None => Ok(actual),
        }
    }

    fn is_verified(&self, owner: &str, key: &ObjectKey, fingerprint: [u8; 32]) -> bool {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        verified.get(owner).and_then(|objects| objects.get(key)) == Some(&fingerprint)
    }

    fn remember(&self, owner: &str, key: &ObjectKey, fingerprint: [u8; 32]) {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        verified.entry(owner.to_owned()).or_default().insert(key.clone(), fingerprint);
    }

    /// Forgets what was verified for a revision; for revisions that are archived or gone.
    pub fn forget(&self, owner_uid: &str) {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner).remove(owner_uid);
    }
}

/// Why an object could not be checked.
enum Check {
    /// The dry run gave no verdict.
    DryRun(ClusterError),
    /// The object could not be read.
    Object(ObjectError),
}

/// A hash over what should be and what is.
fn fingerprint(desired: &Value, actual: &Value) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(canonical_json(desired, Numbers::Exact));
    hash.update([0]);
    hash.update(canonical_json(&comparable(actual), Numbers::Exact));
    hash.finalize().into()
}

/// The kinds of a phase, for watches.
pub(crate) fn kinds(phase: &ContentPhase) -> impl Iterator<Item = GroupVersionKind> + '_ {
    phase.objects.iter().map(|content| ObjectKey::of(&content.object).gvk)
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
