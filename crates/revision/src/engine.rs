//! Applying a revision: phases in order, each checked as a whole before anything of it is written
//! (spec 05 §7).
//!
//! The engine decides nothing about one object itself ([`crate::plan`] does) and sets no conditions; it
//! executes and reports. What was found right is remembered by hashes ([`crate::memory`]): a steady state costs
//! one read for each object that changed, none for those that a watch vouches for, and no write. A restarted
//! process asks with dry runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::{StreamExt, stream};
use kube::core::GroupVersionKind;
use olm_api::cluster_object_set::CollisionProtection;
use serde_json::Value;

use crate::cluster::{Cluster, ClusterError, Reason};
use crate::content::{ContentObject, ContentPhase};
pub use crate::failure::{Cause, EngineError, ObjectError};
use crate::managed_fields::{conflicts, taken_over};
use crate::memory::{Hash, Known, Memory, hash, hash_of_state};
use crate::object::{ObjectKey, resource_version};
use crate::plan::{Owner, Plan, check_body, desired, metadata_patch, plan, superseded_managers, write_body};
use crate::probes::{ProbeResult, ProbeStatus, Probes, failure_line};
use crate::report::collision;
use crate::result::{Action, ObjectResult, PhaseResult, RevisionResult};
use crate::sightings::Sightings;
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

/// Applies and removes the objects of revisions. One engine serves all revisions of a process; no two passes over
/// the same revision run at once.
pub struct Engine<C> {
    cluster: C,
    sightings: Arc<Sightings>,
    /// By UID of the owner.
    memories: Mutex<HashMap<String, Memory>>,
}

/// An object as it should be and as it is.
struct Observed {
    desired: Value,
    wanted: Hash,
    actual: Option<Value>,
    plan: Plan,
}

/// What a first look at an object came to.
enum Look {
    /// It is as it was when it was found right.
    Unchanged(ObjectResult),
    /// It has been read.
    Read(Observed),
    /// The API server will not have it.
    Refused(Observed, String),
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
        Self { cluster, sightings: Arc::default(), memories: Mutex::default() }
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

    /// A pass over a revision whose content is not at hand, and the same as at the last [`Self::reconcile`]. Reads
    /// what changed since, and nothing else. `None` where the content is needed to go on.
    pub async fn glance(
        &self,
        owner: &Owner,
        siblings: &[String],
        probes: &Probes,
    ) -> Option<RevisionResult> {
        let mut memory = self.memories().remove(&owner.uid)?;
        memory.compare_siblings(siblings);
        let result = self.glance_at(&mut memory, owner, siblings, probes).await;
        self.memories().insert(owner.uid.clone(), memory);
        result
    }

    async fn glance_at(
        &self,
        memory: &mut Memory,
        owner: &Owner,
        siblings: &[String],
        probes: &Probes,
    ) -> Option<RevisionResult> {
        let mut result = RevisionResult::new(memory.phase_count);
        for phase in &mut memory.phases {
            let mut objects = Vec::with_capacity(phase.objects.len());
            for object in &mut phase.objects {
                let known = object.as_mut()?;
                objects.push(self.look_again(known, owner, siblings, probes).await?);
            }
            result.watch(objects.iter().map(|object| object.key.gvk.clone()));
            result.phases.push(PhaseResult { name: phase.name.clone(), validation_error: None, objects });
            if !result.phases.last().is_some_and(PhaseResult::is_complete) {
                return Some(result);
            }
        }
        result.is_complete().then_some(result)
    }

    /// `None` unless the object is still right.
    async fn look_again(
        &self,
        known: &mut Known,
        owner: &Owner,
        siblings: &[String],
        probes: &Probes,
    ) -> Option<ObjectResult> {
        if let Some(result) = known.unchanged(&self.sightings) {
            return Some(result);
        }
        let actual = self.cluster.get(&known.key).await.ok()??;
        // What protects from collisions plays no part in an object that is ours or a sibling's.
        let protection = CollisionProtection::Prevent;
        let action = match plan(Some(&actual), owner, siblings, &protection).ok()? {
            Plan::Repair if known.found == hash_of_state(&actual) => Action::Idle,
            Plan::AwaitDeletion => Action::Idle,
            Plan::Leave => Action::Progressed,
            _ => return None,
        };
        let result = probed(known.key.clone(), action, &actual, probes);
        *known = Known::of(&self.sightings, &result, known.wanted, &actual)?;
        Some(result)
    }

    async fn pass(&self, revision: &Revision, mode: Mode) -> RevisionResult {
        let owner = &revision.owner;
        let mut result = RevisionResult::new(revision.phases.len());
        result.validation_error = validate(&owner.name, owner.number, &revision.phases);
        if result.validation_error.is_some() {
            return result;
        }
        let mut memory = self.memories().remove(&owner.uid).unwrap_or_default();
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
        self.memories().insert(owner.uid.clone(), memory);
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
        // Made before they are awaited: a closure inside the stream would tie the future to one lifetime and
        // keep it from being sent between threads.
        let looks: Vec<_> = phase
            .objects
            .iter()
            .zip(&*known)
            .map(|(content, known)| self.look(revision, content, known.as_ref()))
            .collect();
        let looks: Vec<_> = stream::iter(looks).buffered(CONCURRENT_CALLS).collect().await;
        let mut checked = Checked::default();
        for look in looks {
            checked.add(look).map_err(EngineError::Validating)?;
        }
        let mut result = PhaseResult { name: phase.name.clone(), ..PhaseResult::default() };
        if !checked.findings.is_empty() {
            result.validation_error = Some(phase_error(&phase.name, &checked.findings));
            // Whose objects are in the way is worth more than what the server says about the others.
            let read = checked.looks.into_iter().flatten();
            result.objects = read.filter_map(|look| collided(look, &revision.probes)).collect();
            return Ok(result);
        }
        let mut failures = checked.failures;
        if failures.iter().any(|error| error.is(Reason::TooManyRequests)) {
            return Err(EngineError::Objects(failures));
        }
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

    /// Reads the object unless a watch vouches for it, and lets the API server check it if it is to be written.
    async fn look(
        &self,
        revision: &Revision,
        content: &ContentObject,
        known: Option<&Known>,
    ) -> Result<Look, Check> {
        let desired = desired(content, &revision.owner);
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
                };
                if observed.plan == Plan::Repair && observed.actual.as_ref().is_some_and(is_settled) {
                    observed.plan = Plan::Keep;
                }
                Ok(Look::Read(observed))
            }
            Err(error) if error.reason.is_verdict() => Ok(Look::Refused(observed, error.message)),
            Err(error) if error.reason == Reason::NoDryRun => Ok(Look::Read(observed)),
            Err(error) => Err(Check::DryRun(error)),
        }
    }

    /// `found` is the hash of the state in which the object agreed with `desired`.
    async fn observed(
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
            plan(actual.as_ref(), &revision.owner, &revision.siblings, &content.collision_protection)
                .map_err(|error| ObjectError::new(&key, "", error))?;
        if let (Plan::Repair, Some(actual)) = (&plan, &actual)
            && found == Some(hash_of_state(actual))
        {
            plan = Plan::Keep;
        }
        Ok(Observed { desired, wanted, actual, plan })
    }

    /// Executes the plan. If somebody else was faster, looks again.
    async fn settle(
        &self,
        revision: &Revision,
        content: &ContentObject,
        mut observed: Observed,
        mode: Mode,
    ) -> Result<(ObjectResult, Option<Known>), ObjectError> {
        let mut attempt = 1;
        loop {
            match self.execute(revision, &observed, mode).await {
                Err(error)
                    if attempt < ATTEMPTS
                        && (error.is(Reason::Conflict) || error.is(Reason::AlreadyExists)) =>
                {
                    attempt += 1;
                    let Observed { desired, wanted, .. } = observed;
                    observed = self.observed(revision, content, desired, wanted, None).await?;
                }
                result => return result,
            }
        }
    }

    async fn execute(
        &self,
        revision: &Revision,
        observed: &Observed,
        mode: Mode,
    ) -> Result<(ObjectResult, Option<Known>), ObjectError> {
        let Observed { desired, wanted, actual, plan } = observed;
        let key = ObjectKey::of(desired);
        let (action, live) = match (plan, actual) {
            (Plan::Create | Plan::Adopt | Plan::Repair, _) if mode == Mode::Observe => {
                return Ok((held(key, actual.as_ref(), &revision.probes), None));
            }
            (Plan::Adopt | Plan::Repair, Some(actual)) => self.write(revision, desired, actual, plan).await?,
            (Plan::Keep | Plan::AwaitDeletion, Some(actual)) => (Action::Idle, actual.clone()),
            (Plan::Leave, Some(actual)) => (Action::Progressed, actual.clone()),
            (Plan::Collide, Some(actual)) => {
                return Ok((collided_with(desired, actual, &revision.probes), None));
            }
            _ => (Action::Created, self.create(revision, desired).await?),
        };
        let result = probed(key, action, &live, &revision.probes);
        let known = Known::of(&self.sightings, &result, *wanted, &live);
        Ok((result, known))
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

    /// Forgets what was found of a revision; for revisions that are archived or gone.
    pub fn forget(&self, owner_uid: &str) {
        self.memories().remove(owner_uid);
    }

    /// Forgets all revisions but these.
    pub fn retain(&self, is_alive: impl Fn(&str) -> bool) {
        self.memories().retain(|uid, _| is_alive(uid));
    }

    fn memories(&self) -> MutexGuard<'_, HashMap<String, Memory>> {
        self.memories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn probed(key: ObjectKey, action: Action, live: &Value, probes: &Probes) -> ObjectResult {
    let probe = probes.probe(live);
    let not_ready = (!probe.is_ready()).then(|| failure_line(live, &probe));
    ObjectResult { key, action, probe, collision: None, not_ready }
}

/// An object that would be written were the revision not paused.
fn held(key: ObjectKey, actual: Option<&Value>, probes: &Probes) -> ObjectResult {
    let probe = match actual {
        Some(actual) => probes.probe(actual),
        None => ProbeResult { status: ProbeStatus::Unknown, messages: Vec::new() },
    };
    let not_ready = Some(format!("Object {}: not applied while paused", key.kind_first()));
    ObjectResult { key, action: Action::Held, probe, collision: None, not_ready }
}

fn collided_with(desired: &Value, actual: &Value, probes: &Probes) -> ObjectResult {
    let result = probed(ObjectKey::of(desired), Action::Collision, actual, probes);
    let collision = Some(collision(desired, actual, &result.probe));
    ObjectResult { collision, ..result }
}

/// The object if it is somebody else's.
fn collided(look: Look, probes: &Probes) -> Option<ObjectResult> {
    match look {
        Look::Read(Observed { desired, actual: Some(actual), plan: Plan::Collide, .. }) => {
            Some(collided_with(&desired, &actual, probes))
        }
        _ => None,
    }
}

/// The objects of a phase after the first look, before anything of it is written.
#[derive(Default)]
struct Checked {
    /// In order; `None` where an object cannot be settled.
    looks: Vec<Option<Look>>,
    /// Objections of the API server.
    findings: Vec<String>,
    failures: Vec<ObjectError>,
}

impl Checked {
    /// # Errors
    /// The API server could not be asked for its verdict.
    fn add(&mut self, look: Result<Look, Check>) -> Result<(), ClusterError> {
        let look = match look {
            Ok(Look::Refused(observed, verdict)) => {
                self.findings.push(format!("{}: {verdict}", ObjectKey::of(&observed.desired)));
                None
            }
            Ok(look) => Some(look),
            Err(Check::DryRun(error)) => return Err(error),
            Err(Check::Object(error)) => {
                self.failures.push(error);
                None
            }
        };
        self.looks.push(look);
        Ok(())
    }
}

/// Why an object could not be checked.
enum Check {
    /// The dry run gave no verdict.
    DryRun(ClusterError),
    /// The object could not be read.
    Object(ObjectError),
}

/// The kinds of a phase, for watches.
pub(crate) fn kinds(phase: &ContentPhase) -> impl Iterator<Item = GroupVersionKind> + '_ {
    phase.objects.iter().map(|content| ObjectKey::of(&content.object).gvk)
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
