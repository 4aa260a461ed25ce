//! The content of one catalog at one reference: what of it is on disk, what was asked of it, and what stands in the
//! way of the rest. Answers questions and keeps books; it fetches nothing.
//!
//! ```text
//! <folder>/all              the whole content, where catalogd offers no single packages
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
/// Files that were begun by this process: none may get the name of one that is still being written.
static STAGED: AtomicU64 = AtomicU64::new(0);

/// Content at one reference, and the books about it.
#[derive(Debug)]
pub(super) struct Generation {
    reference: String,
    folder: PathBuf,
    /// Another reference has taken its place.
    pub(super) ended: CancellationToken,
    /// Something was asked for that is not here.
    pub(super) wanted: Notify,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    whole: Option<Arc<Content>>,
    /// Names of the files of single packages.
    files: HashSet<String>,
    packages: BTreeMap<String, Package>,
    /// Whether catalogd has given single packages of this reference; `None` while that is not known.
    singles: Option<bool>,
    /// Why no package can be fetched.
    trouble: Option<Trouble>,
    /// Fetches in a row that found catalogd serving another digest.
    apart: u32,
    /// The extensions have not been told yet that this is the content now.
    untold: bool,
}

/// A package that was asked for.
#[derive(Debug, Default)]
struct Package {
    prepared: Prepared,
    /// By somebody in this generation; else it was in the one before.
    asked: bool,
    /// Why this package cannot be fetched.
    trouble: Option<Trouble>,
    /// Somebody went away without an answer, or with that of the trouble.
    unanswered: bool,
}

/// The package made ready for resolving, once for all who ask. The lock is held while that is done.
pub(super) type Prepared = Arc<tokio::sync::Mutex<Option<Ready>>>;

/// A package made ready for resolving.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    pub(super) indexing: Indexing,
    /// `None` if the catalog does not have it; the fault if it cannot be decoded.
    pub(super) package: Result<Option<Arc<PackageIndex>>, String>,
}

impl Ready {
    /// Whether this holds all that `wanted` asks for.
    pub(super) fn serves(&self, wanted: Indexing) -> bool {
        let Indexing { release_support, properties } = self.indexing;
        release_support == wanted.release_support && (properties || !wanted.properties)
    }
}

/// Why content is not here, other than that nobody fetched it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Extensions are told why.
    Told(String),
    /// Extensions are told that the content is not here (docs/design/resolution.md#fetch-errors: not cached).
    Untold,
}

/// Where a package is.
#[derive(Clone)]
pub(super) enum Place {
    /// In the content of the whole catalog.
    Whole(Arc<Content>),
    /// In a file of its own.
    File(PathBuf),
    /// Not here yet.
    Missing,
    /// Not here, and not to be had at the moment.
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

/// File name of a package; nothing that a catalog or an extension says is ever part of a path.
fn file_name(package: &str) -> String {
    hex::encode(Sha256::digest(package))
}

impl Generation {
    /// Takes up what an earlier process left in `folder`, and removes there what cannot be used.
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

    /// Where its files are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The digest that catalogd must say it serves, where the reference has one.
    pub(super) fn digest(&self) -> Option<&str> {
        self.reference.rsplit_once('@').map(|(_, digest)| digest)
    }

    /// Paths for a file that is being written, and for when it is whole: of one package, or of everything.
    pub(super) fn paths(&self, package: Option<&str>) -> (PathBuf, PathBuf) {
        let number = STAGED.fetch_add(1, Ordering::Relaxed);
        let place = package.map_or_else(|| WHOLE.to_owned(), file_name);
        (self.folder.join(format!(".{number}")), self.folder.join(place))
    }

    /// Notes that somebody asks for the package.
    pub(super) fn ask(&self, package: &str) -> Prepared {
        let mut books = self.books.lock();
        let package = books.packages.entry(package.to_owned()).or_default();
        package.asked = true;
        Arc::clone(&package.prepared)
    }

    /// Where the package is. Who is told of trouble here hears of its end.
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

    /// Says whether the package is still not here; who is told so here hears when it is.
    pub(super) fn is_missing(&self, package: &str) -> bool {
        let mut books = self.books.lock();
        let is_missing = !books.has(package);
        if is_missing {
            books.packages.entry(package.to_owned()).or_default().unanswered = true;
        }
        is_missing
    }

    /// Says whether anything that was asked for is not here. Where all is, trouble is over: nobody tries again to see
    /// whether it is.
    pub(super) fn lacks_anything(&self) -> bool {
        let mut books = self.books.lock();
        let lacks_anything = books.packages.keys().any(|package| !books.has(package));
        if !lacks_anything {
            books.trouble = None;
        }
        lacks_anything
    }

    /// Packages that were asked for and are not here.
    pub(super) fn missing(&self) -> Vec<String> {
        let books = self.books.lock();
        books.packages.keys().filter(|package| !books.has(package)).cloned().collect()
    }

    /// Whether any content is here.
    pub(super) fn is_in_use(&self) -> bool {
        let books = self.books.lock();
        books.whole.is_some() || !books.files.is_empty()
    }

    /// Whether catalogd gives single packages of this reference, if that is known.
    pub(super) fn has_singles(&self) -> Option<bool> {
        self.books.lock().singles
    }

    /// Takes over what was asked of `before`, whose place this one takes. Says whether there is anything to fetch:
    /// then the extensions are told of the new content when the attempt to fetch it has ended.
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

    /// The package is here. Says whether somebody is to be told.
    pub(super) fn keep(&self, package: &str) -> bool {
        let mut books = self.books.lock();
        books.files.insert(file_name(package));
        books.singles = Some(true);
        books.trouble = None;
        books.apart = 0;
        books.packages.get_mut(package).is_some_and(Package::settle)
    }

    /// Everything is here. Says whether somebody is to be told.
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

    /// Nothing, or nothing of one package, can be fetched. Says whether somebody is to be told.
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

    /// Counts one more fetch that found catalogd serving another digest.
    pub(super) fn count_apart(&self) -> u32 {
        let mut books = self.books.lock();
        books.apart = books.apart.saturating_add(1);
        books.apart
    }

    /// An attempt to fetch what was asked for has ended. Says whether the extensions still had to be told of this
    /// generation.
    pub(super) fn conclude(&self) -> bool {
        std::mem::take(&mut self.books.lock().untold)
    }

    /// Forgets the package's file at `place`, which cannot be read, so that it is fetched again.
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

    /// Drops from memory what nobody has asked for since this was called last; what is on disk stays.
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
    /// It is here; says whether somebody waits to hear so.
    fn settle(&mut self) -> bool {
        self.trouble = None;
        std::mem::take(&mut self.unanswered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_does_not_outlive_those_who_asked() {
        let folder = tempfile::tempdir().unwrap();
        let generation = Generation::open(folder.path().to_owned(), "r@sha256:1");
        drop(generation.ask("a"));
        generation.suffer(None, Trouble::Untold);
        assert!(matches!(generation.place("b"), Place::Trouble(_)));
        assert!(generation.lacks_anything());
        // Those who asked went away, so no attempt finds the end of the trouble.
        (0..2).for_each(|_| generation.forget_unasked());
        assert!(!generation.lacks_anything());
        assert!(matches!(generation.place("c"), Place::Missing));
    }
}
