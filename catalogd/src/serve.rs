//! Wires the parts of catalogd and runs them until shutdown.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kube::runtime::reflector;
use olm_api::ClusterCatalog;
use olm_oci::policy::PolicySource;
use olm_oci::{Config, CredentialSource, ImageLimits, Puller, RegistrySettings};
use olm_runtime::events::Events;
use olm_serving::Service;
use olm_serving::service::Fatal;
use tokio_util::sync::CancellationToken;

use crate::catalog::{self, Controller, metrics, readiness};
use crate::content::{MIN_AGE, Store, SweepResult};
use crate::flags::{CatalogdFlags, GRAPHQL_GATE, METAS_GATE};
use crate::http::graphql::{self, GraphQl};
use crate::http::{CatalogServer, router};
use crate::webhook;

/// Name of the readiness check of the content server.
const SERVER_CHECK: &str = "catalog-server";

/// Runs catalogd until `service.shutdown`.
///
/// # Errors
/// The cache directory cannot be used, or an address is taken.
pub async fn serve(service: Service, flags: CatalogdFlags) -> Result<(), Fatal> {
    // Set before the first await, because probes report these checks from then on.
    service.readiness.not_ready(SERVER_CHECK, "catalog server not yet started");
    service.readiness.not_ready(readiness::CHECK, "catalog content not yet loaded");
    let store = open_store(&flags, service.gates.enabled(GRAPHQL_GATE)).await?;
    let events = Events::new(service.client.clone(), service.component);
    let mut secrets = service.pull_secrets(events.clone())?;
    let pulling = pulling(&service, secrets.source())?;
    let settings = RegistrySettings::of(&pulling);
    let policy = pulling.policy.clone();
    let puller = Puller::new(pulling);
    service.metrics.register_images(puller.limits_exceeded(), policy);
    let (reader, writer) = reflector::store::<ClusterCatalog>();
    serve_content(&service, &flags, Arc::clone(&store), reader.clone()).await?;
    // Pulls that need credentials fail and are retried once the credentials are known.
    if let Err(error) = secrets.sync().await {
        tracing::error!(%error, "failed to read registry credentials");
    }
    let url = flags.external_url();
    let (catalogs, interval) = (reader.clone(), flags.cluster_version_interval);
    let controller = Controller::new(&service, catalogs, Arc::clone(&store), puller, events, url, interval);
    let controller = Arc::new(controller);
    metrics::register(&service.metrics, reader.clone(), Arc::clone(&store), controller.polls());
    let retrying = Arc::clone(&controller);
    tokio::spawn(secrets.follow(move || retrying.retry_all(), service.shutdown.clone()));
    let retrying = Arc::clone(&controller);
    let follow = settings.follow(move || retrying.retry_all());
    tokio::spawn(service.shutdown.clone().run_until_cancelled_owned(follow));
    let listed = CancellationToken::new();
    tokio::spawn(readiness::watch_readiness(
        service.readiness.clone(),
        Arc::clone(&store),
        reader.clone(),
        listed.clone(),
    ));
    tokio::spawn(sweep(service.clone(), store, reader, listed.clone(), flags.gc_interval));
    let (leader, candidate) = (service.clone(), Arc::clone(&controller));
    tokio::spawn(async move {
        while let Some(leader) = leader.lead().await {
            candidate.lead(leader.service.client);
            leader.leadership.lost.cancelled().await;
            candidate.follow();
        }
    });
    catalog::run(controller, writer, listed, service.shutdown.clone()).await;
    Ok(())
}

/// Configuration of image pulls.
fn pulling(service: &Service, credentials: CredentialSource) -> Result<Config, Fatal> {
    let mut config = Config {
        cas_dir: service.flags.pull_cas_dir(),
        credentials,
        policy: PolicySource::from_env(service.flags.require_signature_policy),
        ..Config::new(ImageLimits::CATALOG)
    };
    config.apply_flags(&service.flags.image_limits, &service.flags.registry_deny_cidrs)?;
    Ok(config)
}

async fn open_store(flags: &CatalogdFlags, has_graphql: bool) -> Result<Arc<Store>, Fatal> {
    let cache = flags.cache_dir.clone();
    let opened = tokio::task::spawn_blocking(move || {
        Store::open(&cache).map_err(|error| format!("cache directory {}: {error}", cache.display()))
    });
    let store = opened.await??;
    Ok(Arc::new(if has_graphql { store.observed_by(graphql::observer) } else { store }))
}

/// Starts the content server, and the webhook unless TLS is off.
async fn serve_content(
    service: &Service,
    flags: &CatalogdFlags,
    store: Arc<Store>,
    catalogs: reflector::Store<ClusterCatalog>,
) -> Result<(), Fatal> {
    let server = CatalogServer {
        store,
        is_expected: Box::new(move |name| catalog::is_served(&catalogs, name)),
        metas: service.gates.enabled(METAS_GATE),
        graphql: service.gates.enabled(GRAPHQL_GATE).then(GraphQl::default),
    };
    let tls = !flags.insecure_http;
    service.serve(flags.catalogs_server_addr, tls, router(server, &service.metrics)).await?;
    service.readiness.ready(SERVER_CHECK);
    if tls {
        let address = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), flags.webhook_server_port);
        service.serve(address, true, webhook::router(&service.metrics)).await?;
    }
    Ok(())
}

/// Deletes content without a catalog, now and every `interval`. Repeats sooner if entries were too young.
async fn sweep(
    service: Service,
    store: Arc<Store>,
    catalogs: reflector::Store<ClusterCatalog>,
    listed: CancellationToken,
    interval: Duration,
) {
    listed.cancelled().await;
    loop {
        let (store, catalogs) = (Arc::clone(&store), catalogs.clone());
        let exists = move |name: &str| catalogs.get(&reflector::ObjectRef::new(name)).is_some();
        let swept = tokio::task::spawn_blocking(move || store.sweep(exists, SystemTime::now())).await;
        let later = match swept.map_err(io::Error::other).flatten() {
            Ok(swept) => {
                report(&swept);
                swept.later
            }
            Err(error) => {
                tracing::error!(%error, "failed to read cache directory");
                false
            }
        };
        let wait = if later { interval.min(MIN_AGE) } else { interval };
        let next = tokio::time::sleep(wait.max(Duration::from_secs(1)));
        if service.shutdown.run_until_cancelled(next).await.is_none() {
            return;
        }
    }
}

fn report(swept: &SweepResult) {
    for catalog in &swept.removed {
        tracing::info!(catalog, "removed content without a catalog");
    }
    for (name, error) in &swept.failed {
        tracing::error!(%error, "failed to remove cache directory entry {name:?}");
    }
}
