//! Extension controller: reconciles a ClusterExtension into the revision that installs its bundle, and reports its
//! status (docs/design/apply.md#extension-reconcile).
//!
//! ```text
//! observe      decide                                  act                          report
//! observed ─► resolver ─► choice ─► decide ─► Decision ─► install ─► write ─► outcome ─► status ─► events, rollout_events
//! ```
//!
//! [`reconcile`] runs these steps. [`resolver`] reads catalogs and cluster, and [`choice`] selects a bundle from them
//! by the rules of the extension ([`olm_request`]). [`install`] renders the bundle and runs the install checks, unless its
//! plan is [`held`] or a member of its upgrade [`group`] is not ready. Its result is an [`installation`]. [`plans`]
//! writes the plans that wait as objects. [`adopting`] lets a revision adopt existing objects. After a failed rollout,
//! [`rollback`] may decide on a [`restoration`] instead. [`crate::revision_writer`] writes the revision, and [`reporter`]
//! the status and Events. [`memory`] is the state kept between reconciles. [`removal`] finalizes a deleted extension,
//! and [`orphans`] adopts revisions without an owner. [`ref_secrets`] and [`garbage_collection`] run beside the
//! reconciles.

mod adopting;
#[cfg(test)]
mod adopting_tests;
#[cfg(test)]
mod adoption_tests;
#[cfg(test)]
mod api_role_tests;
#[cfg(test)]
mod approval_tests;
mod choice;
mod decide;
mod delays;
mod events;
mod findings;
#[cfg(test)]
mod fixture;
mod garbage_collection;
mod group;
mod held;
mod in_use;
mod install;
mod installation;
mod memory;
mod mirroring;
#[cfg(test)]
mod missing_content_tests;
mod namespaces;
#[cfg(test)]
mod namespaces_api_tests;
#[cfg(test)]
mod namespaces_tests;
#[cfg(test)]
mod notification_tests;
mod observed;
#[cfg(test)]
mod operator_condition_tests;
mod orphans;
mod outcome;
mod parts;
mod plan_keeper;
#[cfg(test)]
mod plan_object_tests;
mod plans;
#[cfg(test)]
mod pulling_tests;
mod reconcile;
mod ref_secrets;
mod removal;
mod reporter;
mod resolver;
mod restoration;
mod revisions;
mod rollback;
#[cfg(test)]
mod rollback_api_tests;
mod rollout_events;
#[cfg(test)]
mod signature_tests;
mod status;
#[cfg(test)]
mod summary_tests;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join5;
use futures::{FutureExt, StreamExt};
use kube::ResourceExt;
use kube::runtime::reflector::store::Writer;
use kube::runtime::{Controller, Predicate, WatchStreamExt, predicates, reflector, watcher};
use olm_api::ClusterExtension;
use olm_runtime::cluster::announce_listed;
use olm_runtime::listing;
use olm_runtime::metrics::Metrics;
use olm_runtime::reconcile::Reconciles;
use olm_runtime::watches::{self, is_interruption};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{UnboundedReceiverStream, WatchStream};
use tokio_util::sync::CancellationToken;

pub use self::parts::Parts;
use garbage_collection::{RequeueSender, requeue_extension};
use parts::ExtensionController;

const NAME: &str = "controller-operator-cluster-extension-controller";
/// Most of a reconcile is waiting for registries and the API server. A slow one must not delay others.
const CONCURRENCY: u16 = 32;
/// Limit of the retry backoff. No event reports that a registry or a webhook answers again.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// Readiness check of the leader: the watched kinds have been listed once.
pub const INFORMERS: &str = "informers";

/// Runs the controller until `stop`. Catalog content must have been listed once.
pub async fn run(parts: Parts, metrics: Arc<Metrics>, stop: CancellationToken) {
    let (store, writer) = reflector::store();
    let context = Arc::new(ExtensionController::new(parts, store));
    follow(context, writer, metrics, stop).await;
}

/// Runs the controller with a given context. `writer` fills its store of extensions.
async fn follow(
    context: Arc<ExtensionController>,
    writer: Writer<ClusterExtension>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let (requeue, requeued) = mpsc::unbounded_channel();
    let synced = Arc::clone(&context);
    tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
        synced.extensions_listed.cancelled().await;
        synced.parts.cache.listed().cancelled().await;
        synced.parts.readiness.ready(INFORMERS);
    }));
    start_background_tasks(&context, &requeue, &metrics, &stop);
    // Our own status writes trigger no reconcile.
    let relevant = predicates::generation.combine(predicates::finalizers).combine(predicates::annotations);
    let events = watches::watch(context.extensions.clone(), listing::config())
        .modify(|extension| extension.metadata.managed_fields = None)
        .reflect(writer);
    context.metrics.register(&metrics);
    let (noticing, synced) = (Arc::clone(&context), watch::Sender::new(false));
    let extensions_synced = synced.subscribe();
    let events = events.inspect(move |event| {
        if matches!(event, Ok(watcher::Event::InitDone)) || event.as_ref().is_err_and(is_interruption) {
            synced.send_replace(event.is_ok());
        }
        let Ok(event) = event else { return };
        noticing.metrics.notice(event);
        // An extension without our finalizers gets no finalize reconcile, so its pulls end here.
        if let watcher::Event::Delete(extension) = event {
            let name = extension.name_any();
            noticing.parts.bundles.pulls.release(&name);
            noticing.parts.bundles.verifications.release(&name);
            noticing.memories.forget(&name);
            noticing.parts.upgrade_targets.forget(&name);
        }
    });
    let stream = announce_listed(events, context.extensions_listed.clone())
        .applied_objects()
        .predicate_filter(relevant, Default::default());
    let catalogs = WatchStream::from_changes(context.parts.catalogs.changes()).map(drop);
    let reconciles = Reconciles::new(NAME, "ClusterExtension", CONCURRENCY, metrics);
    let reconciles = reconciles.with_longest_delay(LONGEST_RETRY).with_cache(extensions_synced);
    let reconciles = reconciles.with_cache(context.parts.catalogs.synced());
    let reconciles = Arc::new(reconciles.with_cache(context.parts.cache.synced()));
    let revisions = context.parts.cache.subscribe().map(|change| Arc::clone(change.set()));
    let controller = Controller::for_stream(stream, context.extensions_in_store.clone())
        .owns_shared_stream(revisions)
        .reconcile_on(UnboundedReceiverStream::new(requeued))
        .reconcile_on(context.parts.bundles.pulls.wakes())
        .reconcile_on(context.parts.bundles.verifications.wakes())
        .reconcile_on(context.parts.certificates.unblocked())
        .reconcile_all_on(catalogs);
    let listed = context.extensions_listed.clone();
    reconciles
        .drive(controller, listed, stop, move |extension: Arc<ClusterExtension>| {
            let context = Arc::clone(&context);
            async move { context.reconcile(&extension).boxed().await }
        })
        .await;
}

/// Starts the background tasks, until `stop`. They send the extensions to requeue to `requeue`.
fn start_background_tasks(
    context: &Arc<ExtensionController>,
    requeue: &RequeueSender,
    metrics: &Arc<Metrics>,
    stop: &CancellationToken,
) {
    let (context, requeue, ended) = (Arc::clone(context), requeue.clone(), stop.clone());
    if let Some(conditions) = context.parts.operator_conditions.clone() {
        let (catalogs, requeue) = (Arc::clone(&context.parts.catalogs), requeue.clone());
        let (metrics, ended) = (Arc::clone(metrics), stop.clone());
        let requeue = move |extension: &str| requeue_extension(&requeue, extension);
        tokio::spawn(ended.run_until_cancelled_owned(async move {
            conditions.follow(metrics, || catalogs.requeue_extensions(), requeue).await;
        }));
    }
    if let Some(namespaces) = context.parts.namespaces.clone() {
        let (context, requeue, ended) = (Arc::clone(&context), requeue.clone(), ended.clone());
        tokio::spawn(ended.run_until_cancelled_owned(async move {
            namespaces.follow(|| context.requeue_selecting(&requeue)).await;
        }));
    }
    tokio::spawn(async move {
        let requeue_extensions = || context.parts.catalogs.requeue_extensions();
        let all = join5(
            context.dependencies.follow_installed(requeue_extensions),
            context.dependencies.follow_crds(requeue_extensions),
            context.follow_secrets(&requeue),
            context.collect_garbage(&requeue),
            context.plans.follow(|extension| requeue_extension(&requeue, extension), requeue_extensions),
        );
        ended.run_until_cancelled(all).await
    });
}
