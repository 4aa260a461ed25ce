//! Extension controller: reconciles a ClusterExtension into the revision that installs its bundle, and reports its
//! status (docs/design/apply.md#extension-reconcile).
//!
//! ```text
//! observe      decide                                  act                          report
//! revisions ─► inputs ─► choice ─► decide ─► Decision ─► install ─► write ─► outcome ─► status ─► events, rollout_events
//! ```
//!
//! [`reconcile`] runs these steps. [`inputs`] reads catalogs and cluster, and [`choice`] selects a bundle from them by
//! the rules of the extension ([`olm_request`]). [`install`] renders the bundle and runs the install checks, unless its
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
mod events;
mod findings;
#[cfg(test)]
mod fixture;
mod garbage_collection;
mod group;
mod held;
mod in_use;
mod inputs;
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
#[cfg(test)]
mod operator_condition_tests;
mod orphans;
mod outcome;
#[cfg(test)]
mod plan_object_tests;
mod plans;
#[cfg(test)]
mod pulling_tests;
mod reconcile;
mod ref_secrets;
mod removal;
mod reporter;
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
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;
use kube::runtime::{Controller, Predicate, WatchStreamExt, predicates, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use olm_api::{ClusterCatalog, ClusterExtension, ClusterObjectSet};
use olm_controller_core::RevisionCache;
use olm_controller_core::UpgradeTargets;
use olm_controller_core::metrics::ExtensionMetrics;
use olm_runtime::cluster::announce_listed;
use olm_runtime::events::Events;
use olm_runtime::listing;
use olm_runtime::metrics::Metrics;
use olm_runtime::reconcile::Reconciles;
use olm_runtime::status::Writes;
use olm_runtime::watches::{self, is_interruption};
use olm_serving::probes::Readiness;
use olm_webhook_certificates::WebhookCertificates;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{UnboundedReceiverStream, WatchStream};
use tokio_util::sync::CancellationToken;

use crate::adoption::Adoption;
use crate::bundles::Bundles;
use crate::catalogs::Catalogs;
use crate::dependencies::Dependencies;
use crate::features::Features;
use crate::namespaces::Namespaces;
use crate::operator_conditions::OperatorConditions;
use crate::preflight::Preflight;
use crate::revision_writer::RevisionWriter;
use garbage_collection::{RequeueSender, requeue_extension};
use group::UpgradeGroups;
use inputs::Resolver;
use install::Installer;
use memory::Memories;
use plans::PlanKeeper;
use ref_secrets::{ABANDONED, RefSecrets};
use removal::Remover;
use reporter::Reporter;
use restoration::Restorer;

const NAME: &str = "controller-operator-cluster-extension-controller";
/// Most of a reconcile is waiting for registries and the API server. A slow one must not delay others.
const CONCURRENCY: u16 = 32;
/// Limit of the retry backoff. No event reports that a registry or a webhook answers again.
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// Requeue delay of a result that depends on other objects of the cluster, whether or not a watch reports a change.
const REQUEUE_DELAY: Duration = Duration::from_secs(20);
/// Requeue delay after a conflict (409) with a revision. Events of a revision without owner reach no extension.
const CONFLICT_RETRY: Duration = Duration::from_millis(200);
/// Delay between two verifications of an image that the signature policy does not accept.
const VERIFY_DELAY: Duration = Duration::from_secs(300);

/// Readiness check of the leader: the watched kinds have been listed once.
pub const INFORMERS: &str = "informers";

/// Dependencies of the controller.
pub struct Parts {
    /// Client of the API server.
    pub client: Client,
    /// Namespace of the Secrets that hold revision content.
    pub system_namespace: String,
    /// Effect of the feature gates.
    pub features: Features,
    /// Publisher of Events.
    pub events: Events,
    /// Content of the catalogs.
    pub catalogs: Arc<Catalogs>,
    /// Cache of all ClusterObjectSets.
    pub cache: RevisionCache,
    /// ClusterCatalogs.
    pub catalog_store: Store<ClusterCatalog>,
    /// Pulled bundles.
    pub bundles: Bundles,
    /// Webhook certificates that the built-in issuer maintains.
    pub certificates: WebhookCertificates,
    /// Possible upgrades, for the verdict on the platform.
    pub upgrade_targets: Arc<UpgradeTargets>,
    /// OperatorConditions, with gate `OperatorConditionCompat`.
    pub operator_conditions: Option<Arc<OperatorConditions>>,
    /// Namespaces of the cluster, with gate `MultiWatchNamespaces`.
    pub namespaces: Option<Arc<Namespaces>>,
    /// Readiness to report [`INFORMERS`] to.
    pub readiness: Readiness,
}

/// Shared state of all reconciles. [`Memories`] holds little per extension, and no content.
struct ExtensionController {
    parts: Parts,
    extensions: Api<ClusterExtension>,
    extensions_in_store: Store<ClusterExtension>,
    extensions_listed: CancellationToken,
    dependencies: Arc<Dependencies>,
    sets: Api<ClusterObjectSet>,
    revisions: RevisionWriter,
    ref_secrets: RefSecrets,
    adoption: Adoption,
    preflight: Preflight,
    metrics: Arc<ExtensionMetrics>,
    plans: PlanKeeper,
    memories: Memories,
    writes: Writes,
}

impl ExtensionController {
    fn new(parts: Parts, extensions_in_store: Store<ClusterExtension>) -> Self {
        let (client, namespace) = (parts.client.clone(), &parts.system_namespace);
        Self {
            extensions: Api::all(client.clone()),
            metrics: Arc::new(ExtensionMetrics::new(extensions_in_store.clone(), parts.cache.clone())),
            extensions_in_store,
            extensions_listed: CancellationToken::new(),
            dependencies: Arc::new(Dependencies::new(client.clone(), parts.cache.clone())),
            sets: Api::all(client.clone()),
            revisions: RevisionWriter::new(client.clone(), namespace),
            ref_secrets: RefSecrets::new(&client, namespace, ABANDONED),
            adoption: Adoption::new(client.clone(), namespace),
            plans: PlanKeeper::new(
                &client,
                parts.features.extension_plans,
                parts.operator_conditions.clone(),
            ),
            preflight: Preflight::new(client),
            memories: Memories::default(),
            writes: Writes::default(),
            parts,
        }
    }

    fn reporter(&self) -> Reporter<'_> {
        Reporter {
            extensions: &self.extensions,
            writes: &self.writes,
            events: &self.parts.events,
            cache: &self.parts.cache,
            memories: &self.memories,
            features: self.parts.features,
        }
    }

    fn resolver(&self) -> Resolver<'_> {
        Resolver {
            catalogs: &self.parts.catalogs,
            catalog_store: &self.parts.catalog_store,
            extensions: &self.extensions_in_store,
            cache: &self.parts.cache,
            dependencies: &self.dependencies,
            upgrade_targets: &self.parts.upgrade_targets,
            metrics: &self.metrics,
            memories: &self.memories,
            features: self.parts.features,
        }
    }

    fn installer(&self) -> Installer<'_> {
        let Parts { client, system_namespace, features, bundles, certificates, cache, catalogs, .. } =
            &self.parts;
        let (memories, features) = (&self.memories, *features);
        Installer {
            client,
            system_namespace,
            features,
            extensions: &self.extensions,
            bundles,
            preflight: &self.preflight,
            certificates,
            revisions: &self.revisions,
            cache,
            plans: &self.plans,
            groups: UpgradeGroups { catalogs, extensions: &self.extensions_in_store, memories, features },
            memories,
        }
    }

    fn restorer(&self) -> Restorer<'_> {
        Restorer {
            client: &self.parts.client,
            revisions: &self.revisions,
            preflight: &self.preflight,
            conditions: self.parts.operator_conditions.as_deref(),
            memories: &self.memories,
        }
    }

    fn remover(&self) -> Remover<'_> {
        Remover {
            client: &self.parts.client,
            extensions: &self.extensions,
            extensions_in_store: &self.extensions_in_store,
            sets: &self.sets,
            revisions: &self.revisions,
            cache: &self.parts.cache,
            catalogs: &self.parts.catalogs,
            bundles: &self.parts.bundles,
            dependencies: &self.dependencies,
            preflight: &self.preflight,
            memories: &self.memories,
            reporter: self.reporter(),
        }
    }
}

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
