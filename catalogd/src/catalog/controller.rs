//! The state of the ClusterCatalog controller and its event loop.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::ResourceExt;
use kube::api::Api;
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::store::Writer;
use kube::runtime::{Config, WatchStreamExt, reflector, watcher};
use olm_api::ClusterCatalog;
use olm_oci::Puller;
use olm_runtime::background::Background;
use olm_runtime::cluster::{announce_listed, stopped_unlisted};
use olm_runtime::events::Events;
use olm_runtime::reconcile::{Class, RESYNC, Reconciles};
use olm_serving::Service;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use super::decide::{Record, served_reference};
use super::reconcile::UnpackError;
use crate::content::Store;

/// Controller name in metrics and logs.
const NAME: &str = "catalogd-clustercatalog-controller";
/// Concurrent reconciles. A catalog that waits for its registry must not delay others.
const CONCURRENCY: u16 = 32;
/// Concurrent parses. Each takes a core and the memory of its largest object.
const STORING: usize = 2;

/// The shared state of all reconciles of ClusterCatalogs.
pub struct Controller {
    pub(super) api: Api<ClusterCatalog>,
    catalogs: reflector::Store<ClusterCatalog>,
    pub(super) store: Arc<Store>,
    pub(super) puller: Puller,
    pub(super) events: Events,
    pub(super) storing: Semaphore,
    /// Held while a suspect image is unpacked, see [`Store::suspect`].
    pub(super) suspect: Semaphore,
    /// Names of catalogs that this process, in its present role, has reconciled, successfully or not.
    tried: Mutex<HashSet<String>>,
    /// Running unpacks by catalog name.
    pub(super) unpacks: Background<String, Result<(), UnpackError>>,
    external_url: String,
    leading: AtomicBool,
    reconciles: Reconciles,
    /// By catalog name: the digest reference of the image and the record of its last success.
    pub(super) records: Mutex<HashMap<String, (String, Record)>>,
    refusals: Mutex<HashMap<String, Refusal>>,
    settled: Mutex<HashMap<String, Settled>>,
    /// Incremented when something changes that all catalogs depend on.
    epoch: AtomicU64,
    wake: mpsc::Sender<()>,
    woken: Mutex<Option<mpsc::Receiver<()>>>,
}

/// Content that cannot be served. It is not pulled again while the cause is unchanged.
struct Refusal {
    /// Digest reference of the image.
    canonical: String,
    /// Value of [`Controller::cause`] when the content was refused.
    cause: i64,
    error: Refused,
}

#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub(super) message: String,
    pub(super) terminal: bool,
}

/// Result of a successful reconcile.
pub(super) struct Done {
    /// resourceVersion whose event is skipped because it reports our own write. `None` reconciles the next event.
    pub(super) resource_version: Option<String>,
    /// Delay of the next reconcile without an event.
    pub(super) again: Option<Duration>,
}

/// A catalog that needs no reconcile until it changes or the time is reached.
struct Settled {
    resource_version: String,
    epoch: u64,
    due: Instant,
}

impl Controller {
    /// A controller that does not lead yet. [`run`] fills `catalogs`. `external_url` is scheme and host of catalog
    /// addresses.
    pub fn new(
        service: &Service,
        catalogs: reflector::Store<ClusterCatalog>,
        store: Arc<Store>,
        puller: Puller,
        events: Events,
        external_url: String,
    ) -> Self {
        let (wake, woken) = mpsc::channel(1);
        Self {
            api: Api::all(service.client.clone()),
            catalogs,
            store,
            puller,
            events,
            storing: Semaphore::new(STORING),
            suspect: Semaphore::new(1),
            tried: Mutex::default(),
            unpacks: Background::new(&service.shutdown),
            external_url,
            leading: AtomicBool::new(false),
            reconciles: Reconciles::new(NAME, "ClusterCatalog", CONCURRENCY, Arc::clone(&service.metrics)),
            records: Mutex::default(),
            refusals: Mutex::default(),
            settled: Mutex::default(),
            epoch: AtomicU64::new(0),
            wake,
            woken: Mutex::new(Some(woken)),
        }
    }

    /// Makes this replica the leader, which polls registries and writes status, and retries all catalogs.
    pub fn lead(&self) {
        self.leading.store(true, Ordering::Release);
        self.tried.lock().clear();
        self.retry_all();
    }

    /// Requeues every catalog and resets the backoff of failing ones.
    pub fn retry_all(&self) {
        self.reconciles.forget_failures();
        self.epoch.fetch_add(1, Ordering::AcqRel);
        // A full channel already holds a wake-up.
        let _ = self.wake.try_send(());
    }

    pub(super) fn is_leading(&self) -> bool {
        self.leading.load(Ordering::Acquire)
    }

    pub(super) fn base_url(&self, name: &str) -> String {
        format!("{}/catalogs/{name}", self.external_url)
    }

    /// The record of the catalog's last success, if it belongs to the content of this image.
    pub(super) fn record(&self, name: &str, canonical: &str) -> Option<Record> {
        self.records
            .lock()
            .get(name)
            .filter(|(image, _)| image == canonical)
            .map(|(_, record)| record.clone())
    }

    /// UID, generation and, for a follower, the digest reference that the leader published.
    pub(super) fn goal<'a>(
        &self,
        catalog: &'a ClusterCatalog,
    ) -> (Option<&'a str>, Option<i64>, Option<&'a str>) {
        let mirrored = if self.is_leading() { None } else { served_reference(catalog) };
        (catalog.metadata.uid.as_deref(), catalog.metadata.generation, mirrored)
    }

    /// Hash of every input that can change the outcome of an attempt: the goal, labels and annotations, and the
    /// epoch, which all catalogs share.
    pub(super) fn cause(&self, catalog: &ClusterCatalog) -> i64 {
        let metadata = &catalog.metadata;
        let mut hasher = DefaultHasher::new();
        (self.epoch.load(Ordering::Acquire), self.goal(catalog)).hash(&mut hasher);
        (&metadata.labels, &metadata.annotations).hash(&mut hasher);
        hasher.finish().cast_signed()
    }

    /// The earlier refusal of this image's content, unless its cause changed.
    pub(super) fn refusal(&self, catalog: &ClusterCatalog, canonical: &str) -> Option<Refused> {
        let cause = self.cause(catalog);
        let refusals = self.refusals.lock();
        let known = refusals.get(&catalog.name_any())?;
        (known.canonical == canonical && known.cause == cause).then(|| known.error.clone())
    }

    pub(super) fn refuse(&self, catalog: &ClusterCatalog, canonical: &str, error: Refused) {
        let refusal = Refusal { canonical: canonical.to_owned(), cause: self.cause(catalog), error };
        let mut refusals = self.refusals.lock();
        refusals.insert(catalog.name_any(), refusal);
    }

    pub(super) fn forget(&self, name: &str) {
        self.records.lock().remove(name);
        self.refusals.lock().remove(name);
        self.settled.lock().remove(name);
        self.tried.lock().remove(name);
    }

    /// `true` if every other catalog has content here or was tried.
    pub(super) fn others_were_tried(&self, name: &str) -> bool {
        let (catalogs, tried) = (self.catalogs.state(), self.tried.lock());
        let mut names = catalogs.iter().map(|catalog| catalog.name_any());
        names.all(|other| other == name || tried.contains(&other) || self.store.get(&other).is_some())
    }

    /// Time left until the catalog needs a reconcile, `None` if it changed since it settled.
    fn rest(&self, catalog: &ClusterCatalog) -> Option<Duration> {
        let settled = self.settled.lock();
        let known = settled.get(&catalog.name_any())?;
        let is_same = catalog.metadata.resource_version.as_ref() == Some(&known.resource_version)
            && known.epoch == self.epoch.load(Ordering::Acquire);
        let left = known.due.saturating_duration_since(Instant::now());
        (is_same && !left.is_zero()).then_some(left)
    }

    async fn on_event(
        self: Arc<Self>,
        catalog: Arc<ClusterCatalog>,
    ) -> Result<Action, std::convert::Infallible> {
        let name = catalog.name_any();
        if let Some(left) = self.rest(&catalog) {
            return Ok(Action::requeue(left));
        }
        if let Some(wait) = self.reconciles.waiting(&name, Some(self.cause(&catalog))) {
            return Ok(wait);
        }
        // Read before the attempt: a change during it must cause another reconcile.
        let epoch = self.epoch.load(Ordering::Acquire);
        let attempt = async {
            let done = self.reconcile(&catalog).await;
            let is_tried = match &done {
                Ok(done) => done.resource_version.is_some(),
                Err(failure) => !matches!(failure.class, Class::Pending(_)),
            };
            if is_tried {
                self.tried.lock().insert(name.clone());
            }
            let done = done?;
            let mut settled = self.settled.lock();
            match done.resource_version {
                Some(resource_version) => {
                    let due = Instant::now() + done.again.unwrap_or(RESYNC);
                    settled.insert(name.clone(), Settled { resource_version, epoch, due });
                }
                None => drop(settled.remove(&name)),
            }
            Ok(done.again.map_or_else(Action::await_change, Action::requeue))
        };
        self.reconciles.run(&name, attempt).await
    }

    /// Cleans up after a list of all catalogs, at the start or after the watch was interrupted: no event reports
    /// catalogs deleted meanwhile.
    fn on_listed(self: &Arc<Self>) {
        for name in self.store.names() {
            if self.catalogs.get(&reflector::ObjectRef::new(&name)).is_none() {
                let controller = Arc::clone(self);
                tokio::spawn(async move { controller.on_gone(name).await });
            }
        }
    }

    /// Removes the content of a deleted catalog, with or without our finalizer.
    async fn on_gone(&self, name: String) {
        if self.catalogs.get(&reflector::ObjectRef::new(&name)).is_none() {
            self.unpacks.end(&name).await;
        }
        let (store, catalogs) = (Arc::clone(&self.store), self.catalogs.clone());
        let gone = name.clone();
        let removed = tokio::task::spawn_blocking(move || {
            // A catalog recreated under the same name has content of its own.
            let is_gone = catalogs.get(&reflector::ObjectRef::new(&gone)).is_none();
            if is_gone { store.remove(&gone).map(|()| true) } else { Ok(false) }
        });
        match removed.await {
            Ok(Ok(true)) => self.forget(&name),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                tracing::error!(catalog = name, %error, "failed to remove content of a deleted catalog")
            }
            Err(error) => tracing::error!(catalog = name, %error, "content removal task failed"),
        }
    }
}

/// Adds up to 1 % to `delay`, so that catalogs do not poll at the same time.
pub(super) fn with_jitter(delay: Duration) -> Duration {
    // Each `RandomState` has a new seed.
    let random = u16::try_from(RandomState::new().hash_one(()) >> 48).unwrap_or_default();
    delay.mul_f64(1.0 + 0.01 * f64::from(random) / f64::from(u16::MAX))
}

/// Reconciles until `stop`, then waits for running reconciles. `listed` is cancelled when all catalogs that existed
/// at the start are known.
pub async fn run(
    controller: Arc<Controller>,
    writer: Writer<ClusterCatalog>,
    listed: CancellationToken,
    stop: CancellationToken,
) {
    let reader = writer.as_reader();
    // Deletions included: a catalog without our finalizer can disappear at once.
    let events = reflector(writer, watcher(controller.api.clone(), watcher::Config::default()));
    let on_listed = Arc::clone(&controller);
    let events = announce_listed(events.default_backoff(), listed.clone()).inspect_ok(move |event| {
        if let watcher::Event::InitDone = event {
            on_listed.on_listed();
        }
    });
    let events = events.touched_objects();
    let woken = controller.woken.lock().take();
    let woken = woken.unwrap_or_else(|| mpsc::channel(1).1);
    let handler = Arc::clone(&controller);
    kube::runtime::Controller::for_stream(events, reader)
        .with_config(Config::default().concurrency(CONCURRENCY))
        .reconcile_all_on(ReceiverStream::new(woken))
        .reconcile_on(controller.unpacks.wakes())
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(
            move |catalog: Arc<ClusterCatalog>, _| {
                let (handler, name) = (Arc::clone(&handler), catalog.name_any());
                let attempt = Arc::clone(&handler).on_event(catalog);
                handler.reconciles.in_task(&name, attempt)
            },
            |_, _, _| Action::requeue(Duration::from_secs(1)),
            Arc::new(()),
        )
        .take_until(stopped_unlisted(stop, listed))
        .for_each(|result| {
            let controller = Arc::clone(&controller);
            async move {
                match result {
                    Ok(_) => {}
                    Err(controller::Error::ObjectNotFound(gone)) => {
                        // In a task of its own: removing gigabytes would delay other events.
                        tokio::spawn(async move { controller.on_gone(gone.name).await });
                    }
                    Err(error) => tracing::warn!(%error, "watch of catalogs failed"),
                }
            }
        })
        .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_adds_up_to_one_percent_and_varies() {
        let minute = Duration::from_secs(60);
        let delays: Vec<_> = (0..100).map(|_| with_jitter(minute)).collect();
        assert!(delays.iter().all(|delay| (minute..=Duration::from_millis(60_600)).contains(delay)));
        assert!(delays.iter().any(|delay| *delay != delays[0]));
    }
}
