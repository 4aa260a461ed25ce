//! The revision controller: brings the objects of every ClusterObjectSet onto the cluster, keeps them there, and
//! removes them (spec 05 §§6–12).
//!
//! Observe ([`content`]) → the engine decides and acts → one status write ([`status`]).

mod content;
mod deadline;
mod removal;
mod status;
mod watches;

use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use kube::runtime::{Controller, Predicate, WatchStreamExt, controller, predicates, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use olm_api::cluster_object_set::LifecycleState;
use olm_api::limits::{ARCHIVAL_RETRY, COLLISION_RETRY};
use olm_api::{ClusterObjectSet, ClusterObjectSetStatus, annotations, finalizers};
use olm_revision::engine::Engine;
use olm_revision::kube_cluster::KubeCluster;
use olm_service::cluster::{describe, within_deadline};
use olm_service::metrics::Metrics;
use olm_service::reconcile::{Failure, Reconciles};
use olm_service::status::write_status;
use serde_json::json;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;

use content::{Content, Unusable};
use status::Outcome;
use watches::Watches;

const NAME: &str = "controller-operator-clusterobjectset-controller";
const CONCURRENCY: u16 = 8;
/// How often a blocked revision is looked at again: what blocks it is not watched.
const BLOCKED_RETRY: Duration = Duration::from_secs(10);

/// What every reconcile of a revision needs.
struct Context {
    client: Client,
    sets: Api<ClusterObjectSet>,
    store: Store<ClusterObjectSet>,
    engine: Engine<KubeCluster>,
    watches: Watches,
    system_namespace: String,
}

/// What a pass leaves to say and to do.
struct Pass {
    outcome: Outcome,
    next: Action,
    /// The pass broke off: wait with growing delays, under this text.
    failure: Option<String>,
    /// Phase digests to record.
    observed: Option<Vec<olm_api::cluster_object_set::ObservedPhase>>,
}

impl Pass {
    fn of(outcome: Outcome, next: Action) -> Self {
        Self { outcome, next, failure: None, observed: None }
    }

    fn broke(message: String, context: &str) -> Self {
        let failure = Some(format!("{context}: {message}"));
        Self { failure, ..Self::of(Outcome::Retrying(message), Action::await_change()) }
    }
}

/// Runs the controller until `stop`.
pub(crate) async fn run(
    client: Client,
    system_namespace: String,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let cluster = KubeCluster::new(client.clone());
    let (watches, changed) = Watches::new(client.clone(), cluster.clone());
    let sets: Api<ClusterObjectSet> = Api::all(client.clone());
    let (store, writer) = reflector::store();
    // Our own status writes are no reason to look again.
    let relevant = predicates::generation
        .combine(predicates::finalizers)
        .combine(predicates::labels)
        .combine(predicates::annotations);
    let stream = watcher(sets.clone(), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .applied_objects()
        .predicate_filter(relevant, Default::default());
    let context = Arc::new(Context {
        client,
        sets,
        store: store.clone(),
        engine: Engine::new(cluster),
        watches,
        system_namespace,
    });
    let reconciles = Arc::new(Reconciles::new(NAME, "ClusterObjectSet", CONCURRENCY, metrics));
    Controller::for_stream(stream, store)
        .with_config(controller::Config::default().concurrency(CONCURRENCY))
        .reconcile_on(UnboundedReceiverStream::new(changed))
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(
            move |set: Arc<ClusterObjectSet>, context: Arc<Context>| {
                let reconciles = Arc::clone(&reconciles);
                async move { reconciles.run(&set.name_any(), context.reconcile(&set).boxed()).await }
            },
            |_, error: &Infallible, _| match *error {},
            context,
        )
        .for_each(|_| ready(()))
        .await;
}

impl Context {
    async fn reconcile(&self, set: &ClusterObjectSet) -> Result<Action, Failure> {
        if set.metadata.deletion_timestamp.is_some() {
            return self.delete(set).await;
        }
        let now = Timestamp::now();
        let deadline = deadline::of(set);
        let (set, pass) = self.pass(set).await?;
        let version = set.annotations().get(annotations::BUNDLE_VERSION).map_or("", String::as_str);
        let exceeded = deadline.and_then(|deadline| deadline.exceeded(now));
        let mut old = set.status.clone().unwrap_or_default();
        if let Some(observed) = pass.observed {
            old.observed_phases = observed;
        }
        let next = status::next(&old, set.metadata.generation, version, &pass.outcome, exceeded, now);
        write_status(&self.sets, &set, &next)
            .await
            .map_err(|error| Failure::retry(format!("error updating status: {}", describe(&error))))?;
        match pass.outcome {
            Outcome::Complete => self.archive_previous(&set).await?,
            Outcome::Archived => self.remove_finalizer(&set).await?,
            _ => {}
        }
        if let Some(failure) = pass.failure {
            return Err(Failure::retry(failure));
        }
        // An open deadline must be noticed when it passes, whatever else happens.
        let remaining = deadline.and_then(|deadline| deadline.remaining(now));
        Ok(match remaining.filter(|_| pass.next == Action::await_change() && next_is_open(&next)) {
            Some(remaining) => Action::requeue(remaining),
            None => pass.next,
        })
    }

    /// One pass over a revision that is not being deleted. Returns the revision as last stored.
    async fn pass(&self, set: &ClusterObjectSet) -> Result<(ClusterObjectSet, Pass), Failure> {
        if set.spec.as_ref().is_some_and(|spec| spec.lifecycle_state == LifecycleState::Archived) {
            let pass = if removal::is_done(set) {
                Pass::of(Outcome::Archived, Action::await_change())
            } else {
                self.archive(set).await
            };
            return Ok((set.clone(), pass));
        }
        let content = match self.content(set).await {
            Ok(content) => content,
            Err(Unusable::Blocked(message)) => {
                return Ok((
                    set.clone(),
                    Pass::of(Outcome::Blocked(message), Action::requeue(BLOCKED_RETRY)),
                ));
            }
            Err(Unusable::Broken(message) | Unusable::Unreachable(message)) => {
                return Ok((set.clone(), Pass::broke(message, "converting to revision")));
            }
        };
        let set = self.ensure_finalizer(set).await?;
        let mut pass = self.apply(&set, &content).await;
        pass.observed = content.to_record;
        Ok((set, pass))
    }

    async fn apply(&self, set: &ClusterObjectSet, content: &Content) -> Pass {
        let result = self.engine.reconcile(&content.revision).await;
        let mut kinds = result.watch.clone();
        // The revision's own Secrets carry our label and its reference as well.
        let secret = GroupVersionKind::gvk("", "v1", "Secret");
        if !kinds.contains(&secret) {
            kinds.push(secret);
        }
        let watched = self.watches.watch(&set.name_any(), &kinds, result.is_complete()).await;
        if let Err(error) = watched {
            return Pass::broke(format!("establish watch: {error}"), "revision reconcile");
        }
        if let Some(error) = &result.failure {
            return Pass::broke(error.to_string(), "revision reconcile");
        }
        if let Some(obstacle) = result.obstacle() {
            return Pass::of(Outcome::Retrying(obstacle), Action::requeue(COLLISION_RETRY));
        }
        if !result.is_complete() {
            return Pass::of(Outcome::RollingOut(result.probe_failures()), Action::await_change());
        }
        Pass::of(Outcome::Complete, Action::await_change())
    }

    /// Archives every active revision of the same extension with a lower number (spec 05 §6.2 step 14). Comes after
    /// the status: were the predecessor archived first, nothing would count as installed in between.
    async fn archive_previous(&self, set: &ClusterObjectSet) -> Result<(), Failure> {
        let number = olm_revision::generate::number_of(set);
        for previous in self.siblings(set) {
            if olm_revision::generate::number_of(&previous) >= number {
                continue;
            }
            let patch = Patch::Merge(json!({"spec": {"lifecycleState": "Archived"}}));
            within_deadline(self.sets.patch(&previous.name_any(), &PatchParams::default(), &patch))
                .await
                .map_err(|error| {
                    Failure::retry(format!("archive previous Revision: {}", describe(&error)))
                })?;
        }
        Ok(())
    }

    async fn ensure_finalizer(&self, set: &ClusterObjectSet) -> Result<ClusterObjectSet, Failure> {
        if set.finalizers().iter().any(|name| name == finalizers::TEARDOWN) {
            return Ok(set.clone());
        }
        let mut all = set.finalizers().to_vec();
        all.push(finalizers::TEARDOWN.to_owned());
        self.set_finalizers(set, &all).await.map_err(|error| {
            Failure::retry(format!("error ensuring teardown finalizer: {}", describe(&error)))
        })
    }

    async fn remove_finalizer(&self, set: &ClusterObjectSet) -> Result<(), Failure> {
        let all: Vec<String> =
            set.finalizers().iter().filter(|name| *name != finalizers::TEARDOWN).cloned().collect();
        if all.len() == set.finalizers().len() {
            return Ok(());
        }
        // Our own status write may have moved the resource version on.
        let current = within_deadline(self.sets.get_opt(&set.name_any())).await;
        let current = current.map_err(|error| Failure::retry(describe(&error)))?;
        let Some(current) = current.filter(|current| current.metadata.uid == set.metadata.uid) else {
            return Ok(());
        };
        match self.set_finalizers(&current, &all).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => {
                Err(Failure::retry(format!("error removing teardown finalizer: {}", describe(&error))))
            }
            Ok(_) => Ok(()),
        }
    }

    async fn set_finalizers(
        &self,
        set: &ClusterObjectSet,
        all: &[String],
    ) -> Result<ClusterObjectSet, kube::Error> {
        let metadata = json!({"finalizers": all, "resourceVersion": set.metadata.resource_version});
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        within_deadline(self.sets.patch(&set.name_any(), &PatchParams::default(), &patch)).await
    }
}

/// Whether a deadline still matters after this status.
fn next_is_open(status: &ClusterObjectSetStatus) -> bool {
    !olm_api::conditions::is_true(&status.conditions, olm_api::conditions::types::SUCCEEDED)
}
