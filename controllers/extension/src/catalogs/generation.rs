//! Content of one catalog at one reference: its files on disk, the requested packages, and the fetch errors. It
//! answers lookups and fetches nothing.
//!
//! ```text
//! <folder>/all              the whole content, if catalogd serves no single packages
//! <folder>/<SHA-256 hex>    one package, by the checksum of its name
//! <folder>/.<number>        a file that is being written
//! ```

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use olm_resolve::{CatalogError, Indexing, PackageIndex};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::content::{CatalogContent, ReadError};

const WHOLE: &str = "all";
/// Number of staged files in this process. Each gets a unique name.
static STAGED: AtomicU64 = AtomicU64::new(0);

/// Content at one reference.
#[derive(Debug)]
pub(super) struct Generation {
    /// `status.resolvedSource.image.ref` of the catalog.
    pub(super) reference: String,
    pub(super) folder: PathBuf,
    /// Canceled once another reference replaces this one.
    pub(super) ended: CancellationToken,
    /// Notified when a missing package is requested.
    pub(super) requested: Notify,
    state: Mutex<GenerationState>,
}

#[derive(Debug, Default)]
struct GenerationState {
    whole: Option<Arc<CatalogContent>>,
    /// File names of single packages.
    files: HashSet<String>,
    packages: BTreeMap<String, Package>,
    /// `true` if catalogd serves single packages of this reference. `None` while unknown.
    singles: Option<bool>,
    /// Error that prevents the fetch of any package.
    failure: Option<CatalogError>,
    /// Number of consecutive fetches that found another digest at catalogd.
    digest_mismatches: u32,
    /// `true` until the extensions are notified of this content.
    is_unannounced: bool,
}

/// Requested package.
#[derive(Debug, Default)]
struct Package {
    prepared: Prepared,
    /// `true` if requested in this generation, `false` if only in the one before.
    requested: bool,
    /// Error that prevents the fetch of this package.
    failure: Option<CatalogError>,
    /// `true` if a request ended without the package.
    unanswered: bool,
}

/// Package indexed for the resolver, shared by all requests. The lock is held during indexing.
pub(super) type Prepared = Arc<tokio::sync::Mutex<Option<PreparedPackage>>>;

/// Package indexed for the resolver.
#[derive(Clone, Debug)]
pub(super) struct PreparedPackage {
    pub(super) indexing: Indexing,
    /// `None` if the catalog does not have it. The error is a decoding error.
    pub(super) package: Result<Option<Arc<PackageIndex>>, String>,
}

impl PreparedPackage {
    /// Reports whether this includes everything that `required` selects.
    pub(super) fn serves(&self, required: Indexing) -> bool {
        let Indexing { release_support, properties } = self.indexing;
        release_support == required.release_support && (properties || !required.properties)
    }
}

/// Location of a package.
#[derive(Clone)]
pub(super) enum PackageLocation {
    Whole(Arc<CatalogContent>),
    File(PathBuf),
}

impl PackageLocation {
    /// Reads the package. Blocks.
    pub(super) fn read(
        &self,
        reference: &str,
        package: &str,
        indexing: Indexing,
    ) -> Result<Option<PackageIndex>, ReadError> {
        let content = match self {
            Self::Whole(content) => content.package(package)?,
            Self::File(path) => CatalogContent::open(path, reference)?.package(package)?,
        };
        Ok((!content.is_empty()).then(|| PackageIndex::new(&content, indexing)))
    }
}

/// File name of a package. A hash, so that no name from a catalog or an extension becomes part of a path.
fn file_name(package: &str) -> String {
    hex::encode(Sha256::digest(package))
}

impl Generation {
    /// Opens `folder` with the content of an earlier process, and removes unusable files.
    pub(super) fn open(folder: PathBuf, reference: &str) -> Self {
        let mut state = GenerationState::default();
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_hash = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            if name == WHOLE {
                state.whole = CatalogContent::open(&entry.path(), reference).ok().map(Arc::new);
            }
            if is_hash {
                state.files.insert(name);
            } else if state.whole.is_none() || name != WHOLE {
                super::remove(&entry.path());
            }
        }
        Self {
            reference: reference.to_owned(),
            folder,
            ended: CancellationToken::new(),
            requested: Notify::new(),
            state: Mutex::new(state),
        }
    }

    /// Digest that catalogd must serve, if the reference has one.
    pub(super) fn digest(&self) -> Option<&str> {
        self.reference.rsplit_once('@').map(|(_, digest)| digest)
    }

    /// Staging path and final path of a file: of one package, or of the whole catalog.
    pub(super) fn paths(&self, package: Option<&str>) -> (PathBuf, PathBuf) {
        let number = STAGED.fetch_add(1, Ordering::Relaxed);
        let location = package.map_or_else(|| WHOLE.to_owned(), file_name);
        (self.folder.join(format!(".{number}")), self.folder.join(location))
    }

    /// Records a request for the package.
    pub(super) fn request(&self, package: &str) -> Prepared {
        let mut state = self.state.lock();
        let package = state.packages.entry(package.to_owned()).or_default();
        package.requested = true;
        Arc::clone(&package.prepared)
    }

    /// Location of the package. `None` if it is missing.
    ///
    /// # Errors
    /// It is missing and cannot be fetched at the moment. The caller is notified when the error ends.
    pub(super) fn location(&self, package: &str) -> Result<Option<PackageLocation>, CatalogError> {
        let mut state = self.state.lock();
        if let Some(content) = &state.whole {
            return Ok(Some(PackageLocation::Whole(Arc::clone(content))));
        }
        if state.has(package) {
            return Ok(Some(PackageLocation::File(self.folder.join(file_name(package)))));
        }
        let all = state.failure.clone();
        let requested = state.packages.entry(package.to_owned()).or_default();
        match requested.failure.clone().or(all) {
            Some(failure) => {
                requested.unanswered = true;
                Err(failure)
            }
            None => Ok(None),
        }
    }

    /// Reports whether the package is still missing. A caller that gets `true` is notified of its arrival.
    pub(super) fn is_missing(&self, package: &str) -> bool {
        let mut state = self.state.lock();
        let is_missing = !state.has(package);
        if is_missing {
            state.packages.entry(package.to_owned()).or_default().unanswered = true;
        }
        is_missing
    }

    /// Reports whether a requested package is missing. If none is, the error is cleared, because no attempt would
    /// detect its end.
    pub(super) fn lacks_anything(&self) -> bool {
        let mut state = self.state.lock();
        let lacks_anything = state.packages.keys().any(|package| !state.has(package));
        if !lacks_anything {
            state.failure = None;
        }
        lacks_anything
    }

    /// Requested packages that are missing.
    pub(super) fn missing(&self) -> Vec<String> {
        let state = self.state.lock();
        state.packages.keys().filter(|package| !state.has(package)).cloned().collect()
    }

    /// Reports whether any content is on disk.
    pub(super) fn is_in_use(&self) -> bool {
        let state = self.state.lock();
        state.whole.is_some() || !state.files.is_empty()
    }

    /// Reports whether catalogd serves single packages of this reference. `None` while unknown.
    pub(super) fn has_singles(&self) -> Option<bool> {
        self.state.lock().singles
    }

    /// Takes over the requests of `before`, which this generation replaces. Returns `true` if packages must be
    /// fetched. The extensions are then notified at the end of that attempt.
    pub(super) fn inherit_requests(&self, before: &Self) -> bool {
        let requested: Vec<String> = {
            let before = before.state.lock();
            let requested =
                before.packages.iter().filter(|(_, package)| package.requested || before.is_unannounced);
            requested.map(|(name, _)| name.clone()).collect()
        };
        let mut state = self.state.lock();
        for name in requested {
            state.packages.entry(name).or_default();
        }
        state.is_unannounced = state.packages.keys().any(|package| !state.has(package));
        state.is_unannounced
    }

    /// Records a package as cached. Returns `true` if extensions must be notified.
    pub(super) fn record_package(&self, package: &str) -> bool {
        let mut state = self.state.lock();
        state.files.insert(file_name(package));
        state.record_success(true);
        state.packages.get_mut(package).is_some_and(Package::record_arrival)
    }

    /// Records the whole catalog as cached. Returns `true` if extensions must be notified.
    pub(super) fn record_whole(&self, content: CatalogContent) -> bool {
        let mut state = self.state.lock();
        state.whole = Some(Arc::new(content));
        state.record_success(false);
        let mut is_awaited = false;
        for package in state.packages.values_mut() {
            is_awaited |= package.record_arrival();
        }
        is_awaited
    }

    /// Records a fetch error, of one package or of all. Returns `true` if extensions must be notified.
    pub(super) fn record_failure(&self, package: Option<&str>, failure: CatalogError) -> bool {
        let mut state = self.state.lock();
        let GenerationState { packages, failure: all, .. } = &mut *state;
        let is_reported = !matches!(failure, CatalogError::NotCached(_));
        let (mine, is_awaited) = match package {
            Some(name) => {
                let package = packages.entry(name.to_owned()).or_default();
                (&mut package.failure, package.unanswered)
            }
            None => (all, packages.values().any(|package| package.unanswered)),
        };
        let is_news = mine.as_ref() != Some(&failure);
        *mine = Some(failure);
        is_news && is_reported && is_awaited
    }

    /// Counts a fetch that found another digest at catalogd, and returns the number of consecutive ones.
    pub(super) fn count_digest_mismatch(&self) -> u32 {
        let mut state = self.state.lock();
        state.digest_mismatches = state.digest_mismatches.saturating_add(1);
        state.digest_mismatches
    }

    /// Records the end of an attempt. Returns `true` if the extensions were not notified of this generation yet.
    pub(super) fn take_unannounced(&self) -> bool {
        std::mem::take(&mut self.state.lock().is_unannounced)
    }

    /// Removes the unreadable file at `location`, so that it is fetched again.
    pub(super) fn discard(&self, package: &str, location: &PackageLocation) {
        let mut state = self.state.lock();
        let name = match (location, &state.whole) {
            (PackageLocation::Whole(content), Some(current)) if Arc::ptr_eq(content, current) => {
                state.whole = None;
                WHOLE.to_owned()
            }
            (PackageLocation::File(_), _) => file_name(package),
            _ => return,
        };
        state.files.remove(&name);
        super::remove(&self.folder.join(name));
    }

    /// Drops packages from memory that were not requested since the last call. Files are kept.
    pub(super) fn forget_unrequested(&self) {
        self.state.lock().packages.retain(|_, package| std::mem::take(&mut package.requested));
    }
}

impl GenerationState {
    fn has(&self, package: &str) -> bool {
        self.whole.is_some() || self.files.contains(&file_name(package))
    }

    fn record_success(&mut self, is_single: bool) {
        self.singles = Some(is_single);
        self.failure = None;
        self.digest_mismatches = 0;
    }
}

impl Package {
    /// Records the arrival. Returns `true` if a request ended without the package before.
    fn record_arrival(&mut self) -> bool {
        self.failure = None;
        std::mem::take(&mut self.unanswered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalog_fetch_error_is_cleared_when_no_package_is_requested() {
        let folder = tempfile::tempdir().unwrap();
        let generation = Generation::open(folder.path().to_owned(), "r@sha256:1");
        drop(generation.request("a"));
        generation.record_failure(None, CatalogError::NotCached("c".to_owned()));
        assert!(generation.location("b").is_err());
        assert!(generation.lacks_anything());
        // Both requests are dropped, so no attempt detects the end of the error.
        (0..2).for_each(|_| generation.forget_unrequested());
        assert!(!generation.lacks_anything());
        assert!(matches!(generation.location("c"), Ok(None)));
    }
}
