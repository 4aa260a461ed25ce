//! The controller's memory and its loop.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::store::Writer;
use kube::runtime::{Config, WatchStreamExt, reflector, watcher};
use olm_api::ClusterCatalog;
use olm_oci::Puller;
use olm_service::Service;
use olm_service::cluster::announce_listed;
use olm_service::reconcile::Reconciles;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use super::decide::Record;
use crate::content::Store;

/// Name in metrics and logs.
const NAME: &str = "catalogd-clustercatalog-controller";
/// Catalogs reconciled at once: one that waits for its registry holds up nobody.
const CONCURRENCY: u16 = 32;
/// Catalogs parsed at once; each takes a core and the memory of its largest object.
const STORING: usize = 2;

/// Wait between two looks whether a running pull is still wanted.
const SUPERSEDED_LOOK: Duration = Duration::from_millis(500);

/// Everything a reconcile needs.
pub struct Controller {
    pub(super) api: Api<ClusterCatalog>,
    catalogs: reflector::Store<ClusterCatalog>,
    pub(super) store: Arc<Store>,
    pub(super) puller: Puller,
    pub(super) storing: Semaphore,
    external_url: String,
    leading: AtomicBool,
    reconciles: Reconciles,
    /// By catalog: the image by digest, and what is remembered of it.
    records: Mutex<HashMap<String, (String, Record)>>,
    /// By catalog: the image by digest whose content was refused, and why.
    refusals: Mutex<HashMap<String, (String, String)>>,
    wake: mpsc::Sender<()>,
    woken: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Controller {
    /// A controller that does not lead yet. `catalogs` is what [`run`] fills; `external_url` is scheme and
    /// host of catalog addresses.
    pub fn new(
        service: &Service,
        catalogs: reflector::Store<ClusterCatalog>,
        store: Arc<Store>,
        puller: Puller,
        external_url: String,
    ) -> Self {
        let (wake, woken) = mpsc::channel(1);
        Self {
            api: Api::all(service.client.clone()),
            catalogs,
            store,
            puller,
            storing: Semaphore::new(STORING),
            external_url,
            leading: AtomicBool::new(false),
            reconciles: Reconciles::new(NAME, "ClusterCatalog", CONCURRENCY, Arc::clone(&service.metrics)),
            records: Mutex::default(),
            refusals: Mutex::default(),
            wake,
            woken: Mutex::new(Some(woken)),
        }
    }

    /// From now on this replica asks registries and writes statuses.
    pub fn lead(&self) {
        self.leading.store(true, Ordering::Release);
        self.retry_all();
    }

    /// Looks at every catalog again, the failing ones without waiting.
    pub fn retry_all(&self) {
        self.reconciles.forget_failures();
        // A wake-up that is already waiting serves as well.
        let _ = self.wake.try_send(());
    }

    pub(super) fn is_leading(&self) -> bool {
        self.leading.load(Ordering::Acquire)
    }

    pub(super) fn base_url(&self, name: &str) -> String {
        format!("{}/catalogs/{name}", self.external_url)
    }

    /// What is remembered of the catalog, if it is about the content of this image.
    pub(super) fn record(&self, name: &str, canonical: &str) -> Option<Record> {
        self.records().get(name).filter(|(image, _)| image == canonical).map(|(_, record)| *record)
    }

    pub(super) fn records(&self) -> MutexGuard<'_, HashMap<String, (String, Record)>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the content of this image was refused before, if it was.
    pub(super) fn refusal(&self, name: &str, canonical: &str) -> Option<String> {
        let refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.get(name).filter(|(image, _)| image == canonical).map(|(_, message)| message.clone())
    }

    pub(super) fn refuse(&self, name: &str, canonical: &str, message: &str) {
        let refusal = (canonical.to_owned(), message.to_owned());
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), refusal);
    }

    pub(super) fn forget(&self, name: &str) {
        self.records().remove(name);
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    /// Returns when `catalog` was changed or deleted after all: then what is being pulled may not be wanted
    /// any more, and the event that tells of it waits for this reconcile to end.
    pub(super) async fn superseded(&self, catalog: &ClusterCatalog) {
        let reference = reflector::ObjectRef::from(catalog);
        let is_same = |known: Arc<ClusterCatalog>| {
            (&known.metadata.uid, known.metadata.generation)
                == (&catalog.metadata.uid, catalog.metadata.generation)
        };
        while self.catalogs.get(&reference).is_some_and(is_same) {
            tokio::time::sleep(SUPERSEDED_LOOK).await;
        }
    }

    async fn on_event(&self, catalog: Arc<ClusterCatalog>) -> Result<Action, std::convert::Infallible> {
        let name = catalog.name_any();
        if let Some(wait) = self.reconciles.waiting(&name, catalog.metadata.generation) {
            return Ok(wait);
        }
        self.reconciles.run(&name, self.reconcile(&catalog)).await
    }

    /// The object is gone, whoever let it go.
    async fn on_gone(&self, name: String) {
        self.forget(&name);
        let store = Arc::clone(&self.store);
        let removed =
            tokio::task::spawn_blocking(move || store.remove(&name).map_err(|error| (name, error))).await;
        if let Ok(Err((catalog, error))) = removed {
            tracing::error!(catalog, %error, "content of a deleted catalog not removed");
        }
    }
}

/// Reconciles until `stop`, then lets running reconciles end. `listed` is cancelled when all catalogs that
/// existed at the start are known.
pub async fn run(
    controller: Arc<Controller>,
    writer: Writer<ClusterCatalog>,
    listed: CancellationToken,
    stop: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let reader = writer.as_reader();
    // Deletions included: a catalog may go without our finalizer.
    let events = reflector(writer, watcher(controller.api.clone(), watcher::Config::default()));
    let events = announce_listed(events.default_backoff(), listed).touched_objects();
    let woken = controller.woken.lock().unwrap_or_else(PoisonError::into_inner).take();
    let woken = woken.unwrap_or_else(|| mpsc::channel(1).1);
    let handler = Arc::clone(&controller);
    kube::runtime::Controller::for_stream(events, reader)
        .with_config(Config::default().concurrency(CONCURRENCY))
        .reconcile_all_on(ReceiverStream::new(woken))
        .graceful_shutdown_on(stop)
        .run(
            move |catalog, _| {
                let handler = Arc::clone(&handler);
                async move { handler.on_event(catalog).await }
            },
            |_, _, _| Action::requeue(Duration::from_secs(1)),
            Arc::new(()),
        )
        .for_each(|result| {
            let controller = Arc::clone(&controller);
            async move {
                match result {
                    Ok(_) => {}
                    Err(controller::Error::ObjectNotFound(gone)) => controller.on_gone(gone.name).await,
                    Err(error) => tracing::warn!(%error, "watching catalogs"),
                }
            }
        })
        .await;
}
