//! Puts the parts of catalogd together and keeps them running until the end.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::reflector;
use olm_api::ClusterCatalog;
use olm_oci::{Config, Limits, Puller};
use olm_service::Service;
use olm_service::pull_secrets::PullSecrets;
use olm_service::service::Fatal;
use tokio_util::sync::CancellationToken;

use crate::catalog::{self, Controller, readiness};
use crate::content::Store;
use crate::flags::{Flags, METAS_GATE};
use crate::http::{CatalogServer, router};
use crate::{webhook, webhook_trust};

/// Name of the readiness check of the content server.
const SERVER_CHECK: &str = "catalog-server";

/// Runs catalogd until `service.shutdown`.
///
/// # Errors
/// The cache directory cannot be used, or an address is taken.
pub async fn serve(service: Service, flags: Flags) -> Result<(), Fatal> {
    // Before the first wait: from then on probes are answered by these checks.
    service.readiness.not_ready(SERVER_CHECK, "catalog server not yet started");
    service.readiness.not_ready(readiness::CHECK, "catalog content not yet loaded");
    let store = open_store(&flags).await?;
    let mut secrets =
        PullSecrets::new(service.client.clone(), service.component, &service.flags.global_pull_secret);
    let puller = Puller::new(Config {
        cas_dir: service.flags.pull_cas_dir(),
        auth_file: Some(secrets.path().to_owned()),
        ..Config::new(Limits::CATALOG)
    });
    let (reader, writer) = reflector::store::<ClusterCatalog>();
    serve_content(&service, &flags, Arc::clone(&store), reader.clone()).await?;
    // Pulls that need credentials fail and are retried once those are there.
    if let Err(error) = secrets.sync().await {
        tracing::error!(%error, "registry credentials not read");
    }
    let controller =
        Arc::new(Controller::new(&service, reader.clone(), Arc::clone(&store), puller, flags.external_url()));
    let woken = Arc::clone(&controller);
    tokio::spawn(secrets.follow(move || woken.retry_all(), service.shutdown.clone()));
    let listed = CancellationToken::new();
    tokio::spawn(readiness::watch_readiness(
        service.readiness.clone(),
        Arc::clone(&store),
        reader.clone(),
        listed.clone(),
    ));
    tokio::spawn(sweep(service.clone(), store, reader, listed.clone(), flags.gc_interval));
    tokio::spawn(lead(service.clone(), Arc::clone(&controller)));
    catalog::run(controller, writer, listed, service.shutdown.clone().cancelled_owned()).await;
    Ok(())
}

async fn open_store(flags: &Flags) -> Result<Arc<Store>, Fatal> {
    let cache = flags.cache_dir.clone();
    let opened = tokio::task::spawn_blocking(move || {
        Store::open(&cache).map_err(|error| format!("cache directory {}: {error}", cache.display()))
    });
    Ok(Arc::new(opened.await??))
}

/// Starts the content server, and the webhook where there is a certificate for it.
async fn serve_content(
    service: &Service,
    flags: &Flags,
    store: Arc<Store>,
    catalogs: reflector::Store<ClusterCatalog>,
) -> Result<(), Fatal> {
    let server = CatalogServer {
        store,
        is_expected: Box::new(move |name| catalog::is_served(&catalogs, name)),
        metas: service.gates.enabled(METAS_GATE),
    };
    let tls = !flags.insecure_http;
    service.serve(flags.catalogs_server_addr, tls, router(server, &service.metrics)).await?;
    service.readiness.ready(SERVER_CHECK);
    if tls {
        let address = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), flags.webhook_server_port);
        service.serve(address, true, webhook::router()).await?;
    }
    Ok(())
}

/// Waits for leadership and tells whoever acts on it.
async fn lead(service: Service, controller: Arc<Controller>) {
    if !service.lead().await {
        return;
    }
    controller.lead();
    if let Some(builtin) = service.builtin_certificates() {
        webhook_trust::keep(service.client.clone(), builtin.ca_bundle(), service.shutdown.clone()).await;
    }
}

/// Removes what is left of catalogs that do not exist, now and every `interval`.
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
        match tokio::task::spawn_blocking(move || store.sweep(exists)).await {
            Ok(Ok(swept)) => {
                swept.iter().for_each(|catalog| tracing::info!(catalog, "content without a catalog removed"));
            }
            Ok(Err(error)) => tracing::error!(%error, "error removing cache directory entry"),
            Err(error) => tracing::error!(%error, "sweep failed"),
        }
        let next = tokio::time::sleep(interval.max(Duration::from_secs(1)));
        if service.shutdown.run_until_cancelled(next).await.is_none() {
            return;
        }
    }
}
