//! The revision controller: applies the objects of every ClusterObjectSet, corrects drift and removes them
//! (docs/design/apply.md#revision-reconcile, docs/design/apply.md#recreated-extensions).
//!
//! Observe (`content`) → the engine decides and acts → one status write (`status`). A pass sends no request if
//! the watches report no change, and reads each changed object once. A paused revision is only observed, apart from the
//! second owner of its CRDs.

mod content;
mod deadline;
mod denials;
mod drift;
mod finalizer;
mod impersonation;
mod leftovers;
mod pace;
mod pods;
mod removal;
mod status;
mod timers;
mod watches;

use std::collections::HashMap;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt};
use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, Predicate, predicates};
use kube::{Api, Client, ResourceExt};
use olm_api::cluster_object_set::ObservedPhase;
use olm_api::conditions::types;
use olm_api::limits::{ARCHIVAL_RETRY, COLLISION_RETRY};
use olm_api::{ClusterObjectSet, ClusterObjectSetStatus, annotations, finalizers, labels, summary};
use olm_controller_core::metrics::{RevisionMetrics, register_warnings};
use olm_controller_core::{RevisionCache, RevisionChange};
use olm_revision::engine::{Engine, Revision};
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::probes::Probes;
use olm_revision::result::RevisionResult;
use olm_runtime::Component;
use olm_runtime::api_warnings::listening;
use olm_runtime::cluster::{describe, within_deadline};
use olm_runtime::events::Events;
use olm_runtime::metrics::Metrics;
use olm_runtime::reconcile::{ReconcileError, Reconciles};
use olm_runtime::status::{STALE_RETRY, Writes};
use olm_webhook_certificates::CertifiedCluster;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;

use content::{ContentOrigin, UnusableContent, owner, secret_kind};
use drift::DriftReporter;
pub use pace::Pace;
use status::RevisionOutcome;
use timers::RevisionTimers;
use watches::Watches;

/// Name of the controller in logs and metrics.
pub const NAME: &str = "clusterobjectset";
/// A pass mostly waits for the API server. A slow one must not delay others.
const CONCURRENCY: u16 = 32;
/// Requeue interval of a blocked revision: the cause may not be watched.
const BLOCKED_RETRY: Duration = Duration::from_secs(10);
/// Requeue interval of a revision with skipped objects.
const SKIPPED_RETRY: Duration = Duration::from_secs(30);
/// Requeue interval of a revision whose CRDs wait for nothing but their storage version.
const STAGED_RETRY: Duration = Duration::from_secs(1);
/// Requeue interval of a revision that leaves missing objects to a newer one.
const DEFERRED_RETRY: Duration = Duration::from_secs(10);
/// Minimum time between two status writes of a rollout that differ in messages only.
const MESSAGE_INTERVAL: Duration = Duration::from_secs(5);
/// Like [`MESSAGE_INTERVAL`], for a revision with a newer active one.
const SUPERSEDED_MESSAGE_INTERVAL: Duration = Duration::from_secs(30);
/// Requeue delay after a conflict (409).
const CONFLICT_RETRY: Duration = Duration::from_millis(200);

/// Shared state of all reconciles.
struct Context {
    client: Client,
    sets: Api<ClusterObjectSet>,
    cache: RevisionCache,
    engine: Engine<CertifiedCluster>,
    watches: Watches,
    events: Events,
    drift_reporter: DriftReporter,
    revision_metrics: RevisionMetrics,
    /// UID of the second owner of retained CRDs.
    keeper: OnceCell<String>,
    /// Content sources by UID of the revision.
    origins: Mutex<HashMap<String, Arc<ContentOrigin>>>,
    writes: Writes,
    timers: RevisionTimers,
    system_namespace: String,
    pace: Pace,
    status_summary: bool,
}

/// Result of a pass.
struct Pass {
    outcome: RevisionOutcome,
    /// Requeue delay, if any.
    again: Option<Duration>,
    /// Error that ended the pass. The retry backs off under this text.
    failure: Option<String>,
    /// Phase digests to record in the status.
    observed: Option<Vec<ObservedPhase>>,
}

impl Pass {
    fn of(outcome: RevisionOutcome, again: Option<Duration>) -> Self {
        Self { outcome, again, failure: None, observed: None }
    }

    fn broke(message: String, context: &str) -> Self {
        let failure = Some(format!("{context}: {message}"));
        Self { failure, ..Self::of(RevisionOutcome::Retrying(message), None) }
    }
}

/// Returns `true` if the revision is only observed (docs/design/apply.md#pause).
fn is_paused(set: &ClusterObjectSet) -> bool {
    set.annotations().get(annotations::EXT_PAUSED).is_some_and(|value| value != "false")
}

/// Runs the controller until `stop`. With `status_summary`, revisions get one (docs/design/additions.md#status-summary).
pub async fn run(
    pace: Pace,
    status_summary: bool,
    client: Client,
    cache: RevisionCache,
    system_namespace: String,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let cluster = KubeCluster::new(client.clone());
    let engine = Engine::new(CertifiedCluster { cluster: cluster.clone(), client: client.clone() });
    let (watches, changed) = Watches::new(client.clone(), cluster, engine.observed_versions());
    let events = Events::new(client.clone(), Component::OperatorController);
    let revision_metrics = RevisionMetrics::default();
    metrics.register_collector(revision_metrics.clone());
    register_warnings(&metrics, &revision_metrics);
    let context = Arc::new(Context {
        sets: Api::all(client.clone()),
        client,
        cache: cache.clone(),
        engine,
        watches,
        drift_reporter: DriftReporter::new(events.clone(), revision_metrics.clone()),
        revision_metrics,
        events,
        keeper: OnceCell::new(),
        origins: Mutex::default(),
        writes: Writes::default(),
        timers: RevisionTimers::default(),
        system_namespace,
        pace,
        status_summary,
    });
    let controller = Controller::for_shared_stream(changed_sets(&context), cache.store())
        .reconcile_on(UnboundedReceiverStream::new(changed));
    let reconciles = Reconciles::new(NAME, "ClusterObjectSet", CONCURRENCY, metrics);
    let reconciles = Arc::new(reconciles.with_longest_delay(pace.longest_retry).with_cache(cache.synced()));
    let listed = cache.listed().clone();
    reconciles
        .drive(controller, listed, stop, move |set: Arc<ClusterObjectSet>| {
            let context = Arc::clone(&context);
            async move {
                let deadline = deadline::of(&set, context.pace.minute);
                let left = deadline.and_then(|one| one.remaining(context.age(&set, one.since)));
                let by = left.map(|left| Instant::now() + left);
                let result = context.reconcile_with_warnings(&set).boxed().await;
                result.map_err(|failure| failure.no_later_than(by))
            }
        })
        .await;
}

/// Hash of the spec and the metadata that a pass depends on.
fn state_of(set: &ClusterObjectSet) -> Option<u64> {
    predicates::generation::<ClusterObjectSet>
        .combine(predicates::finalizers)
        .combine(predicates::labels)
        .combine(predicates::annotations)
        .hash_property(set)
}

/// Stream of revisions whose spec or metadata changed. Writes of their status by this controller are left out.
fn changed_sets(context: &Arc<Context>) -> impl Stream<Item = Arc<ClusterObjectSet>> + Send + use<> {
    let (context, mut seen) = (Arc::clone(context), HashMap::new());
    let changed = context.cache.subscribe().map(move |change| {
        if let RevisionChange::Deleted(set) = &change {
            seen.remove(&set.uid());
            context.forget(set);
            context.revision_metrics.retain(|extension| !context.cache.labeled(extension).is_empty());
        }
        let set = change.applied()?;
        let state = state_of(&set);
        (seen.insert(set.uid(), state) != Some(state)).then_some(set)
    });
    changed.filter_map(ready)
}

impl Context {
    /// Releases all state of a revision that no longer holds objects.
    fn forget(&self, set: &ClusterObjectSet) {
        let uid = set.uid().unwrap_or_default();
        self.watches.release(&set.name_any());
        self.engine.forget(&uid);
        self.origins.lock().remove(&uid);
        self.timers.forget(&uid);
    }

    /// Runs [`Self::reconcile`] and counts the warnings of the API server.
    async fn reconcile_with_warnings(&self, set: &ClusterObjectSet) -> Result<Action, ReconcileError> {
        let (result, warnings) = listening(self.reconcile(set)).await;
        if let Some(extension) = set.labels().get(labels::OWNER_NAME) {
            self.revision_metrics.warned(extension, warnings.len());
        }
        for warning in warnings {
            tracing::warn!(revision = set.name_any(), warning, "API server returned a warning");
        }
        result
    }

    async fn reconcile(&self, set: &ClusterObjectSet) -> Result<Action, ReconcileError> {
        if self.writes.is_stale(set) {
            return Err(ReconcileError::pending(STALE_RETRY));
        }
        if set.metadata.deletion_timestamp.is_some() {
            return self.delete(set).await;
        }
        // A later time is then measured without the wall clock.
        if let Some(created) = &set.metadata.creation_timestamp {
            self.age(set, created.0);
        }
        let (uid, state, is_limited) = (set.uid().unwrap_or_default(), state_of(set), self.is_limited(set));
        if is_limited && let Some(left) = self.timers.next_pass(&uid, state, Instant::now()) {
            return Err(ReconcileError::pending(left));
        }
        let deadline = deadline::of(set, self.pace.minute);
        let (set, pass) = self.pass(set).await?;
        // Measured after the pass, so that a deadline that passes during it is noticed.
        let age = deadline.map_or(SignedDuration::ZERO, |deadline| self.age(&set, deadline.since));
        let exceeded = deadline.and_then(|deadline| deadline.exceeded(age));
        let next = self.next_status(&set, &pass.outcome, pass.observed, exceeded);
        let deferred = self.deferred_write(&set, state, &pass.outcome, &next);
        let set = if deferred.is_some() { set } else { self.write(&set, &next).await? };
        self.timers.end_pass(&uid, state, Instant::now());
        match pass.outcome {
            RevisionOutcome::Complete | RevisionOutcome::CompleteExcept(_)
                if !is_paused(&set) && !self.archive_previous(&set).await? =>
            {
                return Ok(Action::requeue(CONFLICT_RETRY));
            }
            RevisionOutcome::Archived => self.remove_finalizer(&set).await?,
            _ => {}
        }
        if let Some(failure) = pass.failure {
            return Err(ReconcileError::retry(failure));
        }
        // Requeues at the latest when an open deadline passes.
        let is_open = !set.is_true(types::SUCCEEDED);
        let remaining = deadline.and_then(|deadline| deadline.remaining(age)).filter(|_| is_open);
        let again = pass.again.into_iter().chain(remaining).chain(deferred).min();
        Ok(again.map_or_else(Action::await_change, Action::requeue))
    }

    /// Returns `true` if events of objects start a pass only after an interval: each step of a successor triggers a pass
    /// over a superseded revision, and pending changes of a paused one disable the fast path.
    fn is_limited(&self, set: &ClusterObjectSet) -> bool {
        !set.is_archived() && (is_paused(set) || !self.is_newest(set))
    }

    /// Returns the delay of a status write that changes only messages of a rollout, if the revision is in the `state` of
    /// the last pass. Each status write triggers two controllers.
    fn deferred_write(
        &self,
        set: &ClusterObjectSet,
        state: Option<u64>,
        outcome: &RevisionOutcome,
        next: &ClusterObjectSetStatus,
    ) -> Option<Duration> {
        let uid = set.uid().unwrap_or_default();
        if !matches!(outcome, RevisionOutcome::RollingOut(_)) {
            self.timers.end_rollout(&uid);
            return None;
        }
        let is_deferrable = self.timers.is_state_of_last_pass(&uid, state)
            && set.status.as_ref().is_some_and(|old| status::differs_in_messages_only(old, next));
        let interval = if self.is_newest(set) { MESSAGE_INTERVAL } else { SUPERSEDED_MESSAGE_INTERVAL };
        is_deferrable.then(|| self.timers.next_status_write(&uid, interval, Instant::now())).flatten()
    }

    /// Returns the status that follows from the outcome.
    fn next_status(
        &self,
        set: &ClusterObjectSet,
        outcome: &RevisionOutcome,
        observed: Option<Vec<ObservedPhase>>,
        exceeded: Option<i32>,
    ) -> ClusterObjectSetStatus {
        let version = set.annotations().get(annotations::BUNDLE_VERSION).map_or("", String::as_str);
        let mut old = set.status.clone().unwrap_or_default();
        if let Some(observed) = observed {
            old.observed_phases = observed;
        }
        let (generation, now) = (set.metadata.generation, Timestamp::now());
        let mut next = status::next(&old, generation, version, outcome, exceeded, now);
        summary::update(&mut next, self.status_summary, generation, now);
        next
    }

    /// Writes the status, if it differs. Returns the revision as last stored.
    async fn write(
        &self,
        set: &ClusterObjectSet,
        next: &ClusterObjectSetStatus,
    ) -> Result<ClusterObjectSet, ReconcileError> {
        let written = self.writes.write_status(&self.sets, set, next).await;
        let written = written.map_err(|error| ReconcileError::write("error updating status", &error))?;
        Ok(written.unwrap_or_else(|| set.clone()))
    }

    /// Runs one pass over a revision that is not being deleted. Returns the revision as last stored.
    async fn pass(&self, set: &ClusterObjectSet) -> Result<(ClusterObjectSet, Pass), ReconcileError> {
        if set.is_archived() {
            let pass = if removal::is_done(set) {
                Pass::of(RevisionOutcome::Archived, None)
            } else {
                self.archive(set).await
            };
            return Ok((set.clone(), pass));
        }
        if let Some(result) = self.fast_path(set).await {
            return Ok((set.clone(), self.derive_pass(set, &result).await));
        }
        // Must precede `content`: once the content is cached, later passes may take the fast path.
        let keeper = match self.keeper(set).await {
            Ok(keeper) => keeper,
            Err(error) => return Ok((set.clone(), Pass::broke(error.message, "revision reconcile"))),
        };
        let content = match self.content(set).await {
            Ok(content) => content,
            Err(UnusableContent::Blocked(message)) => {
                let pass = Pass::of(RevisionOutcome::Blocked(message), Some(BLOCKED_RETRY));
                return Ok((set.clone(), pass));
            }
            Err(UnusableContent::Broken(message) | UnusableContent::Unreachable(message)) => {
                return Ok((set.clone(), Pass::broke(message, "converting to revision")));
            }
        };
        let engine = match self.engine_of(set) {
            Ok(engine) => engine,
            Err(message) => {
                return Ok((set.clone(), Pass::of(RevisionOutcome::Blocked(message), Some(BLOCKED_RETRY))));
            }
        };
        let engine = engine.with_keeper(keeper);
        let revision = &content.revision;
        let set = self.add_finalizer(set, &revision.phases).await?;
        let mut pass = self.apply(&set, &engine, revision).await;
        if pass.failure.is_some() || matches!(pass.outcome, RevisionOutcome::Retrying(_)) {
            // The fast path knows nothing of objects that this pass has not reached.
            self.origins.lock().remove(&revision.owner.uid);
        }
        pass.observed = content.to_record;
        Ok((set, pass))
    }

    /// Applies a revision, or observes it if it is paused.
    async fn apply(
        &self,
        set: &ClusterObjectSet,
        engine: &Engine<CertifiedCluster>,
        revision: &Revision,
    ) -> Pass {
        let result = if is_paused(set) {
            if let Err(error) = engine.protect_crds(revision).await {
                return Pass::broke(error.to_string(), "revision reconcile");
            }
            engine.observe(revision).await
        } else {
            engine.reconcile(revision).await
        };
        self.drift_reporter.report(set, &result);
        self.derive_pass(set, &result).await
    }

    /// Runs the fast path, which reads only objects that have changed. `None` if that is not enough.
    async fn fast_path(&self, set: &ClusterObjectSet) -> Option<RevisionResult> {
        if !removal::has_finalizer(set, finalizers::TEARDOWN) || !self.is_content_unchanged(set).await {
            return None;
        }
        let probes = Probes::new(&set.spec.as_ref()?.progression_probes).ok()?;
        self.engine_of(set).ok()?.fast_path(&owner(set), &self.sibling_uids(set), &probes).await
    }

    /// Derives the pass from the result of the engine, and starts the watches that the result needs.
    async fn derive_pass(&self, set: &ClusterObjectSet, result: &RevisionResult) -> Pass {
        let mut kinds = result.watch.clone();
        // The revision's own Secrets carry our label and its owner reference as well.
        if !kinds.contains(&secret_kind()) {
            kinds.push(secret_kind());
        }
        let watched = self.watches.watch(&set.name_any(), &kinds, result.is_complete()).await;
        if self.is_newest(set) {
            denials::report(&self.events, set, result, watched.as_ref().err());
            denials::report_taken(&self.events, set, result);
        }
        if let Err(error) = watched {
            return Pass::broke(format!("establish watch: {error}"), "revision reconcile");
        }
        if let Some(error) = &result.failure {
            return Pass::broke(error.to_string(), "revision reconcile");
        }
        if let Some(blocker) = result.blocker() {
            return Pass::of(RevisionOutcome::Retrying(blocker), Some(COLLISION_RETRY));
        }
        if !result.succeeds(set.is_true(types::SUCCEEDED)) {
            let staged = result.is_staged().then_some(STAGED_RETRY);
            let deferred = result.has_deferred().then_some(DEFERRED_RETRY);
            let (lines, explained) = self.explained(set, result).await;
            let again = [staged, deferred, result.next_correction(), explained].into_iter().flatten().min();
            return Pass::of(RevisionOutcome::RollingOut(lines), again);
        }
        self.pods_are_ready(set);
        let skipped = result.has_skipped().then_some(SKIPPED_RETRY);
        let outcome = result.taken().map_or(RevisionOutcome::Complete, RevisionOutcome::CompleteExcept);
        Pass::of(outcome, skipped.into_iter().chain(result.next_correction()).min())
    }

    /// Returns `true` if no active revision of the same extension has a higher number.
    fn is_newest(&self, set: &ClusterObjectSet) -> bool {
        self.siblings(set).iter().all(|other| other.number() < set.number())
    }

    /// Archives every active revision of the same extension with a lower number, oldest first
    /// (docs/design/apply.md#revision-pass). Must follow the status write: if the predecessor were archived first, no
    /// revision would count as installed in between. Returns `false` if one has changed and must be read again.
    async fn archive_previous(&self, set: &ClusterObjectSet) -> Result<bool, ReconcileError> {
        let mut is_done = true;
        for previous in self.siblings(set).iter().filter(|other| other.number() < set.number()) {
            // No resourceVersion precondition: status changes of the previous revision do not matter.
            let metadata = json!({"uid": previous.uid()});
            let patch = Patch::Merge(json!({"metadata": metadata, "spec": {"lifecycleState": "Archived"}}));
            let name = previous.name_any();
            match within_deadline(self.sets.patch(&name, &PatchParams::default(), &patch)).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                Err(kube::Error::Api(status)) if status.is_conflict() => is_done = false,
                Err(error) => {
                    return Err(ReconcileError::retry(format!(
                        "archive previous Revision: {}",
                        describe(&error)
                    )));
                }
                Ok(_) => {}
            }
        }
        Ok(is_done)
    }

    /// Returns the age of `since`, a time that the API server wrote on the revision.
    fn age(&self, set: &ClusterObjectSet, since: Timestamp) -> SignedDuration {
        let is_new = set.condition(types::PROGRESSING).is_none();
        self.timers.age(&set.uid().unwrap_or_default(), since, is_new)
    }
}
