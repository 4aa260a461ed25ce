//! Cache of catalog content for the resolver (docs/design/resolution.md#catalog-content). It holds the packages
//! that extensions request. Each is fetched from catalogd once per digest, kept on disk, and shared by all
//! extensions.
//!
//! ```text
//! ClusterCatalog ─ controller ► notice: current reference          extension ─ package() ► memory, disk
//!                     │                                                            │ missing: waits briefly
//!                     └► fetching: packages requested and missing ◄──────────────────┘
//!                          └► fetch ► content ► generation ► waiting requests; later ones by requeue_extensions()
//! ```
//! Only [`fetching`] sends requests to catalogd, one attempt at a time per catalog and with backoff. The number of
//! extensions does not multiply the requests, and a slow or broken catalog does not delay another one.

mod content;
mod controller;
#[cfg(test)]
mod fault_tests;
mod fetch;
mod fetching;
#[cfg(test)]
pub(crate) mod fixture;
mod generation;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use olm_api::ClusterCatalog;
use olm_controller_core::metrics::Fetches;
use olm_request::served_image;
use olm_resolve::{CatalogError, Indexing, PackageIndex};
use olm_serving::ca_pool::CaPool;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout_at};

use content::ReadError;
pub use controller::run;
pub use fetch::Hosts;
use generation::{Generation, PackageLocation, PreparedPackage};

/// Maximum time that [`Catalogs::package`] waits for content that is being fetched.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Maximum number of packages read at the same time. Each is in memory with all its lines meanwhile.
const CONCURRENT_READS: usize = 2;
/// Packages that no extension requested for this time are dropped from memory, at the next announcement: an announcement
/// makes all extensions request.
const UNREQUESTED: Duration = Duration::from_secs(3600);
/// Maximum length of a package name, in bytes. Longer ones come from requirements of bundles, and would break
/// requests.
const MAX_PACKAGE_NAME: usize = 253;
/// Part of the folder names, so that another layout uses other folders.
const LAYOUT: &str = "2";

/// Package of a catalog. `None` means that the catalog does not have it.
type Answer = Result<Option<Arc<PackageIndex>>, CatalogError>;

/// Content of all catalogs.
pub struct Catalogs {
    directory: PathBuf,
    pool: Arc<CaPool>,
    hosts: Hosts,
    known: Mutex<HashMap<String, Arc<Generation>>>,
    reading: Semaphore,
    /// Notifies waiting requests of a fetch that succeeded or failed.
    progress: watch::Sender<u64>,
    /// Notifies extensions that a resolution may have another outcome.
    changes: watch::Sender<u64>,
    /// Names of catalogs with missing packages.
    fetch_requests: mpsc::UnboundedSender<String>,
    /// Receiver of `fetch_requests`, until the controller takes it.
    fetch_request_receiver: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
    /// `false` from a failure of the watch of ClusterCatalogs until the next list.
    synced: watch::Sender<bool>,
    last_forgotten: Mutex<Instant>,
    removals: AtomicU64,
    fetches: Fetches,
}

impl Catalogs {
    /// Opens the cache below `directory`, for content of catalogd at one of the `hosts`. Content of an earlier process is reused when its catalog is observed.
    pub fn open(directory: PathBuf, pool: Arc<CaPool>, hosts: Hosts) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                remove(&entry.path());
            }
        }
        let (fetch_requests, fetch_request_receiver) = mpsc::unbounded_channel();
        Ok(Self {
            directory,
            pool,
            hosts,
            known: Mutex::default(),
            reading: Semaphore::new(CONCURRENT_READS),
            progress: watch::Sender::new(0),
            changes: watch::Sender::new(0),
            fetch_requests,
            fetch_request_receiver: Mutex::new(Some(fetch_request_receiver)),
            synced: watch::Sender::new(true),
            last_forgotten: Mutex::new(Instant::now()),
            removals: AtomicU64::new(0),
            fetches: Fetches::default(),
        })
    }

    /// Receiver that changes whenever a resolution may have another outcome than before.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// `true` while the known catalogs follow the cluster, `false` from a failure of the watch until the next list.
    pub(crate) fn synced(&self) -> watch::Receiver<bool> {
        self.synced.subscribe()
    }

    /// Announces that a resolution, or a later step, may have another outcome than before.
    pub fn requeue_extensions(&self) {
        let mut last_forgotten = self.last_forgotten.lock();
        if last_forgotten.elapsed() >= UNREQUESTED {
            *last_forgotten = Instant::now();
            self.known.lock().values().for_each(|generation| generation.forget_unrequested());
        }
        drop(last_forgotten);
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Package in this catalog. `None` means that the catalog does not have it
    /// (docs/design/resolution.md#fetch-errors).
    ///
    /// Missing content is fetched. After [`PATIENCE`] the answer is [`CatalogError::NotCached`], the fetch
    /// continues, and its end is announced.
    pub(crate) async fn package(
        &self,
        catalog: &ClusterCatalog,
        package: &str,
        indexing: Indexing,
    ) -> Answer {
        let name = catalog.metadata.name.clone().unwrap_or_default();
        let reference = served_image(catalog)?;
        if package.is_empty() || package.len() > MAX_PACKAGE_NAME {
            return Ok(None);
        }
        let deadline = Instant::now() + PATIENCE;
        let mut progress = self.progress.subscribe();
        let mut was_broken = false;
        loop {
            progress.borrow_and_update();
            let generation = self.generation(&name, reference);
            if let Some(generation) = &generation {
                match self.look_up(&name, generation, package, indexing).await {
                    Ok(Some(answer)) => return answer,
                    Ok(None) => {}
                    Err(fault) if was_broken => return Err(CatalogError::Cache { catalog: name, fault }),
                    Err(fault) => {
                        tracing::warn!(catalog = name, package, fault, "discarded unreadable cached package");
                        was_broken = true;
                    }
                }
            }
            // A timeout needs no handling: the next round reads the current state.
            let _ = timeout_at(deadline, progress.changed()).await;
            if Instant::now() >= deadline
                && generation.is_none_or(|generation| generation.is_missing(package))
            {
                return Err(CatalogError::NotCached(name));
            }
        }
    }

    /// Looks up a package and requests its fetch if it is missing. `None` means that it is awaited, an error that the
    /// cached file is unusable and is fetched again.
    async fn look_up(
        &self,
        catalog: &str,
        generation: &Arc<Generation>,
        package: &str,
        indexing: Indexing,
    ) -> Result<Option<Answer>, String> {
        let prepared = generation.request(package);
        let mut prepared = prepared.lock().await;
        if let Some(ready) = prepared.as_ref().filter(|ready| ready.serves(indexing)) {
            return Ok(Some(answer(package, ready)));
        }
        let location = match generation.location(package) {
            Ok(Some(location)) => location,
            Ok(None) => {
                self.request_fetch(catalog, generation);
                return Ok(None);
            }
            Err(failure) => return Ok(Some(Err(failure))),
        };
        match self.read(generation, location.clone(), package, indexing).await {
            Ok(found) => {
                let ready = prepared.insert(PreparedPackage { indexing, package: found });
                Ok(Some(answer(package, ready)))
            }
            Err(fault) => {
                generation.discard(package, &location);
                self.request_fetch(catalog, generation);
                Err(fault)
            }
        }
    }

    /// Reads a package. The outer error means an unusable file.
    async fn read(
        &self,
        generation: &Arc<Generation>,
        location: PackageLocation,
        package: &str,
        indexing: Indexing,
    ) -> Result<Result<Option<Arc<PackageIndex>>, String>, String> {
        let _turn = self.reading.acquire().await.map_err(|error| error.to_string())?;
        let (reference, package) = (generation.reference.clone(), package.to_owned());
        let read = tokio::task::spawn_blocking(move || location.read(&reference, &package, indexing)).await;
        match read {
            Ok(Ok(found)) => Ok(Ok(found.map(Arc::new))),
            Ok(Err(ReadError::Broken(fault))) => Err(fault.to_string()),
            Ok(Err(fault @ (ReadError::Model(_) | ReadError::Size(_)))) => Ok(Err(fault.to_string())),
            Err(fault) => Ok(Err(fault.to_string())),
        }
    }

    /// Requests the missing packages, from the attempt in progress or a new one.
    fn request_fetch(&self, catalog: &str, generation: &Generation) {
        generation.requested.notify_one();
        // A closed channel means that the controller has stopped.
        let _ = self.fetch_requests.send(catalog.to_owned());
    }

    /// Switches to the current reference of the catalog. Returns `true` if requested content must be fetched, in
    /// which case its end is announced.
    async fn switch_to(&self, catalog: &ClusterCatalog) -> bool {
        let name = catalog.metadata.name.as_deref().unwrap_or_default();
        let Some(reference) = resolved_reference(catalog) else {
            // The content of an unavailable catalog is kept, because the catalog may return to the same reference.
            return false;
        };
        // Only this task changes the known references.
        let before = self.known.lock().get(name).cloned();
        if before.as_ref().is_some_and(|before| before.reference == reference) {
            return false;
        }
        let hash = hex::encode(Sha256::digest(format!("{LAYOUT} {reference}")));
        let (folder, of) = (self.directory.join(name).join(hash), reference.to_owned());
        let next = match tokio::task::spawn_blocking(move || Generation::open(folder, &of)).await {
            Ok(next) => next,
            Err(error) => {
                tracing::error!(%error, catalog = name, "failed to open catalog cache");
                return false;
            }
        };
        let is_to_fetch = before.is_some_and(|before| {
            before.ended.cancel();
            next.inherit_requests(&before)
        });
        self.known.lock().insert(name.to_owned(), Arc::new(next));
        self.notify_waiting();
        is_to_fetch
    }

    /// Drops a catalog and its files.
    fn drop_catalog(&self, name: &str) {
        if let Some(generation) = self.known.lock().remove(name) {
            generation.ended.cancel();
        }
        self.fetches.forget(name);
        self.notify_waiting();
        self.remove_folder(name);
    }

    /// Drops every catalog that is not in `names`, including the files of those deleted while this process did not
    /// run.
    fn retain(&self, names: &[String]) {
        let gone: Vec<String> =
            self.known.lock().keys().filter(|name| !names.contains(name)).cloned().collect();
        gone.iter().for_each(|name| self.drop_catalog(name));
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if !name.to_str().is_some_and(|name| names.iter().any(|kept| kept == name)) {
                self.remove_folder(name);
            }
        }
    }

    /// Removes a folder in the background. It is renamed first, so that a catalog of the same name can use the
    /// path.
    fn remove_folder(&self, name: impl AsRef<Path>) {
        let number = self.removals.fetch_add(1, Ordering::Relaxed);
        let folder = self.directory.join(&name);
        let aside = self.directory.join(format!(".{}-{number}", std::process::id()));
        match fs::rename(&folder, &aside) {
            Ok(()) => drop(tokio::task::spawn_blocking(move || remove(&aside))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let name = name.as_ref().display();
                tracing::error!(%error, "error removing cache for catalog \"{name}\"");
            }
        }
    }

    /// Content of the catalog at `reference`, if that is current.
    fn generation(&self, name: &str, reference: &str) -> Option<Arc<Generation>> {
        self.known.lock().get(name).filter(|generation| generation.reference == reference).cloned()
    }

    /// Makes all waiting requests repeat their lookup.
    fn notify_waiting(&self) {
        self.progress.send_modify(|count| *count = count.wrapping_add(1));
    }
}

fn answer(package: &str, ready: &PreparedPackage) -> Answer {
    let fault = |fault| CatalogError::Package { package: package.to_owned(), fault };
    ready.package.clone().map_err(fault)
}

fn resolved_reference(catalog: &ClusterCatalog) -> Option<&str> {
    let source = catalog.status.as_ref()?.resolved_source.as_ref()?;
    Some(source.image.ref_.as_str()).filter(|reference| !reference.is_empty())
}

/// Removes a file or folder. A missing one is ignored, and a failure is only logged.
fn remove(path: &Path) {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::error!(%error, path = %path.display(), "error removing cache");
    }
}
