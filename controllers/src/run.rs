//! Start of the controllers, with their shared caches and clients.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use kube::Api;
use olm_controller_core::{RevisionCache, UpgradeTargets};
use olm_extension_controller::{
    Bundles, Catalogs, Hosts, INFORMERS, Namespaces, OperatorConditions, Parts, run_catalogs,
};
use olm_oci::{Config, Proxies, Puller, RegistrySettings};
use olm_revision_controller::Pace;
use olm_runtime::events::Events;
use olm_runtime::listing;
use olm_runtime::metrics::Metrics;
use olm_runtime::pull_secrets::PullSecrets;
use olm_runtime::watches::watch;
use olm_serving::Service;
use olm_serving::ca_pool::{CaPool, CaSources};
use olm_serving::service::Fatal;
use olm_webhook_certificates::{Times, WebhookCertificates};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::catalogd::{CatalogdObjects, issue_certificate};
use crate::flags::Flags;
use crate::gates::{UPGRADE_STATUS, features};
use crate::platform;

/// Runs all controllers until the service stops. Only the leader starts most of them: when it loses its Lease, all of
/// them end, with their caches and memories, and start anew when it leads again.
///
/// # Errors
/// A file, cache folder or CA cannot be read, or the client cannot be created.
pub async fn run(service: Service, flags: Flags) -> Result<(), Fatal> {
    let of_catalogd = flags.catalogd_namespace(&service.namespace);
    let hosts = Hosts::new(&flags.catalogd_hosts, of_catalogd);
    let pool = catalogd_pool(&service, &flags)?;
    issue_certificate(&service, of_catalogd);
    loop {
        service.metrics.start_anew();
        let pulls = service.shutdown.child_token();
        let _end = pulls.clone().drop_guard();
        // Opened before the Lease is held: errors end a follower, too.
        let catalogs =
            Arc::new(Catalogs::open(flags.cache_path.join("catalogs"), Arc::clone(&pool), hosts.clone())?);
        let mut secrets = service.pull_secrets(Events::new(service.client.clone(), service.component))?;
        let pulling = Config { credentials: secrets.source(), ..flags.pulling()? };
        let settings = RegistrySettings::of(&pulling);
        let policy = pulling.policy.clone();
        let puller = Puller::new(pulling);
        service.metrics.register_images(puller.limits_exceeded(), policy);
        let bundles = Bundles::open(&flags.cache_path.join("unpack"), puller, &pulls)?;
        // Until then, pulls that need credentials fail and are retried.
        if let Err(error) = secrets.sync().await {
            tracing::error!(%error, "failed to read registry credentials");
        }
        let Some(leader) = service.lead().await else { return Ok(()) };
        let leading = lead(&leader.service, &flags, catalogs, bundles, secrets, settings);
        let ended = leader.leadership.lost.run_until_cancelled(leading).await;
        // The loss ends the controllers, too, which can be seen first.
        if let Some(ended) = ended.filter(|_| !leader.leadership.lost.is_cancelled()) {
            return ended;
        }
        tracing::info!("stopped leading");
        service.readiness.ready(INFORMERS);
    }
}

/// Runs the controllers of the leader until the service stops.
async fn lead(
    service: &Service,
    flags: &Flags,
    catalogs: Arc<Catalogs>,
    bundles: Bundles,
    secrets: PullSecrets,
    settings: RegistrySettings,
) -> Result<(), Fatal> {
    service.readiness.not_ready(INFORMERS, "the caches are not synced");
    let stop = service.shutdown.clone();
    let requeued = Arc::clone(&catalogs);
    tokio::spawn(secrets.follow(move || requeued.requeue_extensions(), stop.clone()));
    let requeued = Arc::clone(&catalogs);
    let follow = settings.follow(move || requeued.requeue_extensions());
    tokio::spawn(stop.clone().run_until_cancelled_owned(follow));
    let events = Events::new(service.client.clone(), service.component);
    let mut tasks = start_controllers(service, flags, catalogs, bundles, events);
    let of_catalogd = flags.catalogd_namespace(&service.namespace);
    tasks.spawn(CatalogdObjects::new(service, of_catalogd).lead(stop));
    while let Some(ended) = tasks.join_next().await {
        ended?;
    }
    Ok(())
}

/// Returns the TLS client for catalogd, and follows its CA files.
fn catalogd_pool(service: &Service, flags: &Flags) -> Result<Arc<CaPool>, Fatal> {
    let directory = &flags.catalogd_cas_dir;
    let sources = CaSources {
        system: olm_oci::system_authorities,
        directory: (!directory.is_empty()).then(|| PathBuf::from(directory)),
        bundle: service.builtin.as_ref().map(|certificates| certificates.ca_bundle()),
    };
    let proxy = Some(Proxies::of_process().chooser());
    let pool = Arc::new(CaPool::load(sources, service.tls_profile.clone(), proxy)?);
    let metrics = Arc::clone(&service.metrics);
    tokio::spawn(Arc::clone(&pool).follow("catalogd", metrics, service.shutdown.clone()));
    Ok(pool)
}

/// Starts the controllers of the leader on one cache of revisions.
fn start_controllers(
    service: &Service,
    flags: &Flags,
    catalogs: Arc<Catalogs>,
    bundles: Bundles,
    events: Events,
) -> JoinSet<()> {
    let (client, stop, namespace) = (&service.client, &service.shutdown, &service.namespace);
    let features = features(&service.gates, flags.dependency_mode, flags.upgrade_scope);
    let (metrics, cache, listed) =
        (|| Arc::clone(&service.metrics), RevisionCache::new(), CancellationToken::new());
    let watched = watch(Api::all(client.clone()), listing::config());
    let (catalog_store, catalog_controller) =
        run_catalogs(watched, Arc::clone(&catalogs), metrics(), listed.clone(), stop.clone());
    let certificates =
        WebhookCertificates::new(client.clone(), cache.clone(), namespace, events.clone(), Times::DEFAULT);
    let targets = Arc::new(UpgradeTargets::default());
    let parts = Parts {
        client: client.clone(),
        system_namespace: namespace.clone(),
        features,
        cache: cache.clone(),
        events: events.clone(),
        catalogs,
        catalog_store,
        bundles,
        certificates: certificates.clone(),
        upgrade_targets: Arc::clone(&targets),
        operator_conditions: OperatorConditions::of_gate(features, client, &targets),
        namespaces: features.multi_watch_namespaces.then(|| Arc::new(Namespaces::new(client.clone()))),
        readiness: service.readiness.clone(),
    };
    let mut tasks = JoinSet::new();
    tasks.spawn(catalog_controller);
    tasks.spawn(run_extensions(parts, listed, metrics(), stop.clone()));
    tasks.spawn(olm_revision_controller::run(
        Pace::default(),
        features.status_summary,
        client.clone(),
        cache.clone(),
        namespace.clone(),
        metrics(),
        stop.clone(),
    ));
    let is_selected = features.certificates == olm_bundle::Certificates::Builtin;
    let (of_certificates, stopped) = (metrics(), stop.clone());
    tasks.spawn(async move { certificates.run(is_selected, of_certificates, stopped).await });
    if service.gates.enabled(UPGRADE_STATUS) {
        let namespaces = BTreeSet::from([namespace, flags.catalogd_namespace(namespace)].map(str::to_owned));
        let settings = flags.platform.settings(namespaces.into_iter().collect());
        let (client, cache) = (client.clone(), cache.clone());
        tasks.spawn(platform::run(client, cache, settings, targets, events, metrics(), stop.clone()));
    }
    // All other tasks start when it has listed.
    let (client, stopped) = (client.clone(), stop.clone());
    tasks.spawn(async move { cache.follow(client, stopped).await });
    tasks
}

/// Runs the extension controller once the catalogs are listed. Before, there would seem to be none.
async fn run_extensions(
    parts: Parts,
    listed: CancellationToken,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    if stop.run_until_cancelled(listed.cancelled()).await.is_some() {
        olm_extension_controller::run(parts, metrics, stop).await;
    }
}
