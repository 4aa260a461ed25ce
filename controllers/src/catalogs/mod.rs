//! Catalog content as the resolver reads it (docs/design/resolution.md#catalog-content): packages that extensions ask
//! for, fetched from catalogd once for each digest, kept on disk, and shared by all extensions.
//!
//! ```text
//! ClusterCatalog ─ controller ► notice: which reference is served        extension ─ package() ► memory, disk
//!                     │                                                                  │ not here: waits a moment
//!                     └► supply: what was asked for and is not here ◄────────────────────┘
//!                          └► fetch ► content ► generation ► whoever waits; later ones by announce()
//! ```
//! Nobody but [`supply`] talks to catalogd, one attempt at a time for each catalog and with backoff, so a slow or broken
//! catalog is neither asked more often because many extensions want it, nor in the way of another one.

mod content;
mod controller;
#[cfg(test)]
mod fault_tests;
mod fetch;
#[cfg(test)]
pub(crate) mod fixture;
mod generation;
mod supply;
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
use olm_extension::served_image;
use olm_resolve::{CatalogError, Indexing, PackageIndex};
use olm_service::ca_pool::CaPool;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, timeout_at};

use crate::metrics::fetches::Fetches;
use content::ReadError;
pub(crate) use controller::run;
use generation::{Generation, Place, Ready, Trouble};

/// How long [`Catalogs::package`] waits for content that is on its way.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Packages made ready at once: each is in memory with all its lines for that time.
const READING: usize = 2;
/// Packages that nobody asked for in so long a time go from memory, at the next announcement.
const UNASKED: Duration = Duration::from_secs(3600);
/// Longest name that an extension can ask for. Longer ones come from what bundles require, and would break requests.
const LONGEST_PACKAGE: usize = 253;
/// Enters into the names of folders, so that another layout finds its own.
const LAYOUT: &str = "2";

/// A package of a catalog, `None` where the catalog does not have it.
type Answer = Result<Option<Arc<PackageIndex>>, CatalogError>;

/// What a look for a package gave.
enum Look {
    Answer(Answer),
    /// It is being fetched.
    Awaited,
    /// The file of it cannot be used; it is fetched again.
    Broken(String),
}

/// The content of all catalogs.
pub(crate) struct Catalogs {
    directory: PathBuf,
    pool: Arc<CaPool>,
    known: Mutex<HashMap<String, Arc<Generation>>>,
    reading: Semaphore,
    /// Something came or failed: who waits looks again.
    progress: watch::Sender<u64>,
    /// Resolutions may have another outcome than before.
    changes: watch::Sender<u64>,
    /// Names of catalogs of which something is wanted.
    wanted: mpsc::UnboundedSender<String>,
    /// Their other end, until the controller takes it.
    wishes: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
    forgot: Mutex<Instant>,
    removals: AtomicU64,
    fetches: Fetches,
}

impl Catalogs {
    /// Content kept below `directory`. What an earlier process left there is taken up when its catalog is seen.
    pub(crate) fn open(directory: PathBuf, pool: Arc<CaPool>) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                remove(&entry.path());
            }
        }
        let (wanted, wishes) = mpsc::unbounded_channel();
        Ok(Self {
            directory,
            pool,
            known: Mutex::default(),
            reading: Semaphore::new(READING),
            progress: watch::Sender::new(0),
            changes: watch::Sender::new(0),
            wanted,
            wishes: Mutex::new(Some(wishes)),
            forgot: Mutex::new(Instant::now()),
            removals: AtomicU64::new(0),
            fetches: Fetches::default(),
        })
    }

    /// Tells whenever a resolution may have another outcome than before.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Says that a resolution, or what follows it, may have another outcome than before.
    pub(crate) fn announce(&self) {
        self.forget_unasked();
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// The package in this catalog, `None` where the catalog does not have it (docs/design/resolution.md#fetch-errors).
    ///
    /// What is not here is fetched. That is waited for a moment; then the answer is [`CatalogError::NotCached`], the
    /// fetch goes on, and its end is announced.
    pub(crate) async fn package(
        &self,
        catalog: &ClusterCatalog,
        package: &str,
        indexing: Indexing,
    ) -> Answer {
        let name = catalog.metadata.name.clone().unwrap_or_default();
        let reference = served_image(catalog)?;
        if package.is_empty() || package.len() > LONGEST_PACKAGE {
            return Ok(None);
        }
        let deadline = Instant::now() + PATIENCE;
        let mut progress = self.progress.subscribe();
        let mut was_broken = false;
        loop {
            progress.borrow_and_update();
            let generation = self.generation(&name, reference);
            if let Some(generation) = &generation {
                match self.look(&name, generation, package, indexing).await {
                    Look::Answer(answer) => return answer,
                    Look::Broken(fault) if was_broken => {
                        return Err(CatalogError::Cache { catalog: name, fault });
                    }
                    Look::Broken(fault) => {
                        tracing::warn!(catalog = name, package, fault, "cached content is fetched again");
                        was_broken = true;
                    }
                    Look::Awaited => {}
                }
            }
            // Late or not: what there is to see is seen in the next round.
            let _ = timeout_at(deadline, progress.changed()).await;
            if Instant::now() >= deadline
                && generation.is_none_or(|generation| generation.is_missing(package))
            {
                return Err(CatalogError::NotCached(name));
            }
        }
    }

    /// Looks where the package is, and has it fetched if it is not here.
    async fn look(
        &self,
        catalog: &str,
        generation: &Arc<Generation>,
        package: &str,
        indexing: Indexing,
    ) -> Look {
        let prepared = generation.ask(package);
        let mut prepared = prepared.lock().await;
        if let Some(ready) = prepared.as_ref().filter(|ready| ready.serves(indexing)) {
            return Look::Answer(answer(package, ready));
        }
        let place = match generation.place(package) {
            Place::Trouble(trouble) => return Look::Answer(Err(told(catalog, trouble))),
            Place::Missing => {
                self.want(catalog, generation);
                return Look::Awaited;
            }
            place => place,
        };
        match self.read(generation, place.clone(), package, indexing).await {
            Ok(found) => {
                let ready = prepared.insert(Ready { indexing, package: found });
                Look::Answer(answer(package, ready))
            }
            Err(fault) => {
                generation.discard(package, &place);
                self.want(catalog, generation);
                Look::Broken(fault)
            }
        }
    }

    /// Reads a package where it is; the error is a file that cannot be used.
    async fn read(
        &self,
        generation: &Arc<Generation>,
        place: Place,
        package: &str,
        indexing: Indexing,
    ) -> Result<Result<Option<Arc<PackageIndex>>, String>, String> {
        let _turn = self.reading.acquire().await.map_err(|error| error.to_string())?;
        let (reference, package) = (generation.reference().to_owned(), package.to_owned());
        let read = tokio::task::spawn_blocking(move || place.read(&reference, &package, indexing)).await;
        match read {
            Ok(Ok(found)) => Ok(Ok(found.map(Arc::new))),
            Ok(Err(ReadError::Broken(fault))) => Err(fault.to_string()),
            Ok(Err(fault @ (ReadError::Model(_) | ReadError::Size(_)))) => Ok(Err(fault.to_string())),
            Err(fault) => Ok(Err(fault.to_string())),
        }
    }

    /// Has what is missing fetched: by the attempt that is under way, or by a new one.
    fn want(&self, catalog: &str, generation: &Generation) {
        generation.wanted.notify_one();
        // Without a controller there is nobody to ask.
        let _ = self.wanted.send(catalog.to_owned());
    }

    /// Follows a change of the catalog's reference. Says whether content that was asked for is to be fetched, whose
    /// end will be announced.
    async fn turn_to(&self, catalog: &ClusterCatalog) -> bool {
        let name = catalog.metadata.name.as_deref().unwrap_or_default();
        let Some(reference) = resolved_reference(catalog) else {
            // While a catalog is unavailable its content stays: it may come back to the same.
            return false;
        };
        // Nobody else changes which reference is known.
        let before = self.known.lock().get(name).cloned();
        if before.as_ref().is_some_and(|before| before.reference() == reference) {
            return false;
        }
        let hash = hex::encode(Sha256::digest(format!("{LAYOUT} {reference}")));
        let (folder, of) = (self.directory.join(name).join(hash), reference.to_owned());
        let next = match tokio::task::spawn_blocking(move || Generation::open(folder, &of)).await {
            Ok(next) => next,
            Err(error) => {
                tracing::error!(%error, catalog = name, "cache not opened");
                return false;
            }
        };
        let is_to_fetch = before.is_some_and(|before| {
            before.ended.cancel();
            next.succeed(&before)
        });
        self.known.lock().insert(name.to_owned(), Arc::new(next));
        self.stir();
        is_to_fetch
    }

    /// Forgets a catalog and its files.
    fn drop_catalog(&self, name: &str) {
        if let Some(generation) = self.known.lock().remove(name) {
            generation.ended.cancel();
        }
        self.fetches.forget(name);
        self.stir();
        self.remove_folder(name);
    }

    /// Forgets every catalog that is not among `names`, and the files of those that were deleted while nobody looked.
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

    /// Removes a folder without waiting for that: it is put aside at once, so that a catalog of the same name may come.
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

    /// Drops from memory what nobody asks for any more: an announcement makes all extensions ask.
    fn forget_unasked(&self) {
        let mut forgot = self.forgot.lock();
        if forgot.elapsed() >= UNASKED {
            *forgot = Instant::now();
            self.known.lock().values().for_each(|generation| generation.forget_unasked());
        }
    }

    /// The catalog's content, if that is of `reference`.
    fn generation(&self, name: &str, reference: &str) -> Option<Arc<Generation>> {
        self.known.lock().get(name).filter(|generation| generation.reference() == reference).cloned()
    }

    /// Makes all who wait look again.
    fn stir(&self) {
        self.progress.send_modify(|count| *count = count.wrapping_add(1));
    }
}

fn answer(package: &str, ready: &Ready) -> Answer {
    let fault = |fault| CatalogError::Package { package: package.to_owned(), fault };
    ready.package.clone().map_err(fault)
}

fn told(catalog: &str, trouble: Trouble) -> CatalogError {
    let catalog = catalog.to_owned();
    match trouble {
        Trouble::Told(fault) => CatalogError::Cache { catalog, fault },
        Trouble::Untold => CatalogError::NotCached(catalog),
    }
}

fn resolved_reference(catalog: &ClusterCatalog) -> Option<&str> {
    let source = catalog.status.as_ref()?.resolved_source.as_ref()?;
    Some(source.image.ref_.as_str()).filter(|reference| !reference.is_empty())
}

/// Removes a file or folder; a missing one is fine, and one that stays is only logged.
fn remove(path: &Path) {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::error!(%error, path = %path.display(), "error removing cache");
    }
}
