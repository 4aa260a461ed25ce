//! The state of the ClusterCatalog controller, shared by all reconciles.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kube::api::Api;
use kube::runtime::reflector;
use kube::{Client, ResourceExt};
use olm_api::ClusterCatalog;
use olm_oci::Puller;
use olm_runtime::background::Background;
use olm_runtime::events::Events;
use olm_runtime::reconcile::Reconciles;
use olm_serving::Service;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::Instant;

use super::cluster_version::ClusterVersion;
use super::decide::UnpackRecord;
use super::metrics::Polls;
use super::reference::served_reference;
use super::unpack_error::{ContentError, UnpackError};
use crate::content::Store;
use crate::flags::STATUS_SUMMARY;

/// Controller name in metrics and logs.
const NAME: &str = "catalogd-clustercatalog-controller";
/// Concurrent reconciles. A catalog that waits for its registry must not delay others.
pub(super) const CONCURRENCY: u16 = 32;
/// Shortest interval of reading the version of the cluster.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
/// Concurrent parses. Each takes a core and the memory of its largest object.
const STORING: usize = 2;

/// The shared state of all reconciles of ClusterCatalogs.
pub struct Controller {
    pub(super) api: Api<ClusterCatalog>,
    pub(super) catalogs: reflector::Store<ClusterCatalog>,
    pub(super) store: Arc<Store>,
    pub(super) puller: Puller,
    pub(super) events: Events,
    pub(super) storing: Semaphore,
    /// Held while a suspect image is unpacked, see [`Store::suspect`].
    pub(super) suspect: Semaphore,
    /// Names of catalogs that this process, in its present role, has reconciled, successfully or not.
    pub(super) tried: Mutex<HashSet<String>>,
    /// Running unpacks by catalog name.
    pub(super) unpacks: Background<String, Result<Option<String>, UnpackError>>,
    external_url: String,
    pub(super) status_summary: bool,
    leading: AtomicBool,
    /// Client of the last leadership for writes, which fail once it has ended.
    writer: Mutex<Api<ClusterCatalog>>,
    pub(super) reconciles: Reconciles,
    /// Digest reference of the image and the record of its last success, by catalog name.
    pub(super) records: Mutex<HashMap<String, (String, UnpackRecord)>>,
    pub(super) polls: Polls,
    failures: Mutex<HashMap<String, FailedContent>>,
    pub(super) settled: Mutex<HashMap<String, Settled>>,
    /// Incremented when something changes that all catalogs depend on.
    pub(super) epoch: watch::Sender<u64>,
    pub(super) cluster_version: ClusterVersion,
    /// Requests to read the version of the cluster before its interval has passed.
    pub(super) recheck: Notify,
    /// References that image templates resolved to last, by catalog name.
    pub(super) references: Mutex<HashMap<String, String>>,
}

/// Content that cannot be served. It is not pulled again while the cause is unchanged.
struct FailedContent {
    /// Digest reference of the image.
    canonical: String,
    /// Value of [`Controller::cause`] when the content failed.
    cause: i64,
    error: ContentError,
}

/// Result of a successful reconcile. The default reconciles the next event.
#[derive(Debug, Default)]
pub(super) struct Reconciled {
    /// resourceVersion whose event is skipped because it reports our own write. `None` reconciles the next event.
    pub(super) resource_version: Option<String>,
    /// Delay of the next reconcile without an event.
    pub(super) requeue_after: Option<Duration>,
}

/// A catalog that needs no reconcile until it changes or the time is reached.
pub(super) struct Settled {
    pub(super) resource_version: String,
    /// Value of [`Controller::cause`] before the reconcile.
    pub(super) cause: i64,
    pub(super) due: Instant,
}

impl Controller {
    /// A controller that does not lead yet. [`super::run`] fills `catalogs`. `external_url` is scheme and host of
    /// catalog addresses, `version_interval` that of reading the cluster's version for image templates.
    pub fn new(
        service: &Service,
        catalogs: reflector::Store<ClusterCatalog>,
        store: Arc<Store>,
        puller: Puller,
        events: Events,
        external_url: String,
        version_interval: Duration,
    ) -> Self {
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
            status_summary: service.gates.enabled(STATUS_SUMMARY),
            leading: AtomicBool::new(false),
            writer: Mutex::new(Api::all(service.client.clone())),
            reconciles: Reconciles::new(NAME, "ClusterCatalog", CONCURRENCY, Arc::clone(&service.metrics)),
            records: Mutex::default(),
            polls: Polls::default(),
            failures: Mutex::default(),
            settled: Mutex::default(),
            epoch: watch::Sender::default(),
            cluster_version: ClusterVersion::new(
                service.client.clone(),
                version_interval.max(SHORTEST_INTERVAL),
            ),
            recheck: Notify::new(),
            references: Mutex::default(),
        }
    }

    /// Makes this replica the leader, which polls registries and writes status with `client`, and retries all catalogs.
    pub fn lead(&self, client: Client) {
        *self.writer.lock() = Api::all(client);
        self.leading.store(true, Ordering::Release);
        self.start_anew();
    }

    /// Makes this replica a follower again.
    pub fn follow(&self) {
        self.leading.store(false, Ordering::Release);
        self.start_anew();
    }

    /// Forgets all attempts, and retries all catalogs.
    fn start_anew(&self) {
        for catalog in self.catalogs.state() {
            self.forget(&catalog.name_any());
        }
        self.tried.lock().clear();
        self.retry_all();
    }

    /// Requeues every catalog and resets the backoff of failing ones.
    pub fn retry_all(&self) {
        self.reconciles.forget_failures();
        self.epoch.send_modify(|epoch| *epoch += 1);
    }

    /// Times of the last polls, for `/metrics`.
    pub fn polls(&self) -> Polls {
        self.polls.clone()
    }

    pub(super) fn is_leading(&self) -> bool {
        self.leading.load(Ordering::Acquire)
    }

    pub(super) fn writer(&self) -> Api<ClusterCatalog> {
        self.writer.lock().clone()
    }

    pub(super) fn base_url(&self, name: &str) -> String {
        format!("{}/catalogs/{name}", self.external_url)
    }

    /// The record of the catalog's last success, if it belongs to the content of this image.
    pub(super) fn record(&self, name: &str, canonical: &str) -> Option<UnpackRecord> {
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

    /// Hash of every input that can change the outcome of an attempt: the goal, labels and annotations, the version of
    /// the cluster if the catalog has a template, and the epoch, which all catalogs share.
    pub(super) fn cause(&self, catalog: &ClusterCatalog) -> i64 {
        let metadata = &catalog.metadata;
        let mut hasher = DefaultHasher::new();
        (*self.epoch.borrow(), self.goal(catalog)).hash(&mut hasher);
        (&metadata.labels, &metadata.annotations).hash(&mut hasher);
        catalog.image_template().map(|_| self.cluster_version.known()).hash(&mut hasher);
        hasher.finish().cast_signed()
    }

    /// The earlier failure of this image's content, unless its cause changed.
    pub(super) fn known_failure(&self, catalog: &ClusterCatalog, canonical: &str) -> Option<ContentError> {
        let cause = self.cause(catalog);
        let failures = self.failures.lock();
        let known = failures.get(&catalog.name_any())?;
        (known.canonical == canonical && known.cause == cause).then(|| known.error.clone())
    }

    pub(super) fn remember_failure(&self, catalog: &ClusterCatalog, canonical: &str, error: ContentError) {
        let failure = FailedContent { canonical: canonical.to_owned(), cause: self.cause(catalog), error };
        let mut failures = self.failures.lock();
        failures.insert(catalog.name_any(), failure);
    }

    pub(super) fn forget(&self, name: &str) {
        self.records.lock().remove(name);
        self.polls.forget(name);
        self.failures.lock().remove(name);
        self.settled.lock().remove(name);
        self.references.lock().remove(name);
        self.tried.lock().remove(name);
    }

    /// `true` if every other catalog has content here or was tried.
    pub(super) fn others_were_tried(&self, name: &str) -> bool {
        let (catalogs, tried) = (self.catalogs.state(), self.tried.lock());
        let mut names = catalogs.iter().map(|catalog| catalog.name_any());
        names.all(|other| other == name || tried.contains(&other) || self.store.get(&other).is_some())
    }
}
