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
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use olm_resolve::{Indexing, PackageIndex};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::content::{Content, ReadError};

const WHOLE: &str = "all";
/// Number of staged files in this process. Each gets a unique name.
static STAGED: AtomicU64 = AtomicU64::new(0);

/// Content at one reference.
#[derive(Debug)]
pub(super) struct Generation {
    reference: String,
    folder: PathBuf,
    /// Canceled once another reference replaces this one.
    pub(super) ended: CancellationToken,
    /// Notified when a missing package is requested.
    pub(super) wanted: Notify,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    whole: Option<Arc<Content>>,
    /// File names of single packages.
    files: HashSet<String>,
    packages: BTreeMap<String, Package>,
    /// `true` if catalogd serves single packages of this reference. `None` while unknown.
    singles: Option<bool>,
    /// Error that prevents the fetch of any package.
    trouble: Option<Trouble>,
    /// Number of consecutive fetches that found another digest at catalogd.
    apart: u32,
    /// `true` until the extensions are notified of this content.
    untold: bool,
}

/// Requested package.
#[derive(Debug, Default)]
struct Package {
    prepared: Prepared,
    /// `true` if requested in this generation, `false` if only in the one before.
    asked: bool,
    /// Error that prevents the fetch of this package.
    trouble: Option<Trouble>,
    /// `true` if a request ended without the package.
    unanswered: bool,
}

/// Package indexed for the resolver, shared by all requests. The lock is held during indexing.
pub(super) type Prepared = Arc<tokio::sync::Mutex<Option<Ready>>>;

/// Package indexed for the resolver.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    pub(super) indexing: Indexing,
    /// `None` if the catalog does not have it. The error is a decoding error.
    pub(super) package: Result<Option<Arc<PackageIndex>>, String>,
}

impl Ready {
    /// Reports whether this includes everything that `wanted` selects.
    pub(super) fn serves(&self, wanted: Indexing) -> bool {
        let Indexing { release_support, properties } = self.indexing;
        release_support == wanted.release_support && (properties || !wanted.properties)
    }
}

/// Error that prevents a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Reported to extensions with this message.
    Told(String),
    /// Reported to extensions as content that is not cached (docs/design/resolution.md#fetch-errors).
    Untold,
}

/// Location of a package.
#[derive(Clone)]
pub(super) enum Place {
    Whole(Arc<Content>),
    File(PathBuf),
    Missing,
    /// Missing, and cannot be fetched at the moment.
    Trouble(Trouble),
}

impl Place {
    /// Reads the package. Blocks.
    pub(super) fn read(
        &self,
        reference: &str,
        package: &str,
        indexing: Indexing,
    ) -> Result<Option<PackageIndex>, ReadError> {
        let content = match self {
            Self::Whole(content) => content.package(package)?,
            Self::File(path) => Content::open(path, reference)?.package(package)?,
            Self::Missing | Self::Trouble(_) => return Err(io::Error::from(io::ErrorKind::NotFound).into()),
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
        let mut books = Books::default();
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_hash = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
            if name == WHOLE {
                books.whole = Content::open(&entry.path(), reference).ok().map(Arc::new);
            }
            if is_hash {
                books.files.insert(name);
            } else if books.whole.is_none() || name != WHOLE {
                super::remove(&entry.path());
            }
        }
        Self {
            reference: reference.to_owned(),
            folder,
            ended: CancellationToken::new(),
            wanted: Notify::new(),
            books: Mutex::new(books),
        }
    }

    /// `status.resolvedSource.image.ref` of the catalog.
    pub(super) fn reference(&self) -> &str {
        &self.reference
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Digest that catalogd must serve, if the reference has one.
    pub(super) fn digest(&self) -> Option<&str> {
        self.reference.rsplit_once('@').map(|(_, digest)| digest)
    }

    /// Staging path and final path of a file: of one package, or of the whole catalog.
    pub(super) fn paths(&self, package: Option<&str>) -> (PathBuf, PathBuf) {
        let number = STAGED.fetch_add(1, Ordering::Relaxed);
        let place = package.map_or_else(|| WHOLE.to_owned(), file_name);
        (self.folder.join(format!(".{number}")), self.folder.join(place))
    }

    /// Records a request for the package.
    pub(super) fn ask(&self, package: &str) -> Prepared {
        let mut books = self.books.lock();
        let package = books.packages.entry(package.to_owned()).or_default();
        package.asked = true;
        Arc::clone(&package.prepared)
    }

    /// Location of the package. A caller that gets `Trouble` is notified when it ends.
    pub(super) fn place(&self, package: &str) -> Place {
        let mut books = self.books.lock();
        if let Some(content) = &books.whole {
            return Place::Whole(Arc::clone(content));
        }
        if books.has(package) {
            return Place::File(self.folder.join(file_name(package)));
        }
        let all = books.trouble.clone();
        let asked = books.packages.entry(package.to_owned()).or_default();
        match asked.trouble.clone().or(all) {
            Some(trouble) => {
                asked.unanswered = true;
                Place::Trouble(trouble)
            }
            None => Place::Missing,
        }
    }

    /// Reports whether the package is still missing. A caller that gets `true` is notified of its arrival.
    pub(super) fn is_missing(&self, package: &str) -> bool {
        let mut books = self.books.lock();
        let is_missing = !books.has(package);
        if is_missing {
            books.packages.entry(package.to_owned()).or_default().unanswered = true;
        }
        is_missing
    }

    /// Reports whether a requested package is missing. If none is, the error is cleared, because no attempt would
    /// detect its end.
    pub(super) fn lacks_anything(&self) -> bool {
        let mut books = self.books.lock();
        let lacks_anything = books.packages.keys().any(|package| !books.has(package));
        if !lacks_anything {
            books.trouble = None;
        }
        lacks_anything
    }

    /// Requested packages that are missing.
    pub(super) fn missing(&self) -> Vec<String> {
        let books = self.books.lock();
        books.packages.keys().filter(|package| !books.has(package)).cloned().collect()
    }

    /// Reports whether any content is on disk.
    pub(super) fn is_in_use(&self) -> bool {
        let books = self.books.lock();
        books.whole.is_some() || !books.files.is_empty()
    }

    /// Reports whether catalogd serves single packages of this reference. `None` while unknown.
    pub(super) fn has_singles(&self) -> Option<bool> {
        self.books.lock().singles
    }

    /// Takes over the requests of `before`, which this generation replaces. Returns `true` if packages must be
    /// fetched. The extensions are then notified at the end of that attempt.
    pub(super) fn succeed(&self, before: &Self) -> bool {
        let asked: Vec<String> = {
            let before = before.books.lock();
            let asked = before.packages.iter().filter(|(_, package)| package.asked || before.untold);
            asked.map(|(name, _)| name.clone()).collect()
        };
        let mut books = self.books.lock();
        for name in asked {
            books.packages.entry(name).or_default();
        }
        books.untold = books.packages.keys().any(|package| !books.has(package));
        books.untold
    }

    /// Records a package as cached. Returns `true` if extensions must be notified.
    pub(super) fn keep(&self, package: &str) -> bool {
        let mut books = self.books.lock();
        books.files.insert(file_name(package));
        books.singles = Some(true);
        books.trouble = None;
        books.apart = 0;
        books.packages.get_mut(package).is_some_and(Package::settle)
    }

    /// Records the whole catalog as cached. Returns `true` if extensions must be notified.
    pub(super) fn keep_whole(&self, content: Content) -> bool {
        let mut books = self.books.lock();
        books.whole = Some(Arc::new(content));
        books.singles = Some(false);
        books.trouble = None;
        books.apart = 0;
        let mut is_awaited = false;
        for package in books.packages.values_mut() {
            is_awaited |= package.settle();
        }
        is_awaited
    }

    /// Records a fetch error, of one package or of all. Returns `true` if extensions must be notified.
    pub(super) fn suffer(&self, package: Option<&str>, trouble: Trouble) -> bool {
        let mut books = self.books.lock();
        let Books { packages, trouble: all, .. } = &mut *books;
        let is_told = matches!(trouble, Trouble::Told(_));
        let (mine, is_awaited) = match package {
            Some(name) => {
                let package = packages.entry(name.to_owned()).or_default();
                (&mut package.trouble, package.unanswered)
            }
            None => (all, packages.values().any(|package| package.unanswered)),
        };
        let is_news = mine.as_ref() != Some(&trouble);
        *mine = Some(trouble);
        is_news && is_told && is_awaited
    }

    /// Counts a fetch that found another digest at catalogd, and returns the number of consecutive ones.
    pub(super) fn count_apart(&self) -> u32 {
        let mut books = self.books.lock();
        books.apart = books.apart.saturating_add(1);
        books.apart
    }

    /// Records the end of an attempt. Returns `true` if the extensions were not notified of this generation yet.
    pub(super) fn conclude(&self) -> bool {
        std::mem::take(&mut self.books.lock().untold)
    }

    /// Removes the unreadable file at `place`, so that it is fetched again.
    pub(super) fn discard(&self, package: &str, place: &Place) {
        let mut books = self.books.lock();
        let name = match (place, &books.whole) {
            (Place::Whole(content), Some(current)) if Arc::ptr_eq(content, current) => {
                books.whole = None;
                WHOLE.to_owned()
            }
            (Place::File(_), _) => file_name(package),
            _ => return,
        };
        books.files.remove(&name);
        super::remove(&self.folder.join(name));
    }

    /// Drops packages from memory that were not requested since the last call. Files are kept.
    pub(super) fn forget_unasked(&self) {
        self.books.lock().packages.retain(|_, package| std::mem::take(&mut package.asked));
    }
}

impl Books {
    fn has(&self, package: &str) -> bool {
        self.whole.is_some() || self.files.contains(&file_name(package))
    }
}

impl Package {
    /// Records the arrival. Returns `true` if a request ended without the package before.
    fn settle(&mut self) -> bool {
        self.trouble = None;
        std::mem::take(&mut self.unanswered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetch_error_ends_with_the_last_request() {
        let folder = tempfile::tempdir().unwrap();
        let generation = Generation::open(folder.path().to_owned(), "r@sha256:1");
        drop(generation.ask("a"));
        generation.suffer(None, Trouble::Untold);
        assert!(matches!(generation.place("b"), Place::Trouble(_)));
        assert!(generation.lacks_anything());
        // Both requests are dropped, so no attempt detects the end of the error.
        (0..2).for_each(|_| generation.forget_unasked());
        assert!(!generation.lacks_anything());
        assert!(matches!(generation.place("c"), Place::Missing));
    }
}
