//! The contents of all catalogs that this replica holds.
//!
//! ```text
//! <cache>/catalogs/<catalog>/content   served content; staging files exist beside it for a while
//! <cache>/catalogs/<catalog>/verified  the signature policy that accepted it
//! <cache>/unpack/<catalog>/image       an image that is being unpacked
//! <cache>/attempts/<digest>            marks an image that is being unpacked
//! ```
//! The process may be killed and the disk may be full at any moment. Served content is therefore replaced by one
//! rename, and the next start or attempt removes other leftovers.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use olm_fbc::{Folder, Meta, load};
use olm_oci::policy::Verification;
use parking_lot::RwLock;

use super::attempts::{Attempts, Suspect, UnpackDirectory};
use super::disk::{discard, remove};
use super::snapshot::CONTENT;
use super::{ContentWriteError, Observer, Snapshot, UnpackedFolder, Writer, writer};

/// Name of the file in a catalog's directory that holds the [`Verification`] of its content.
const VERIFIED: &str = "verified";

/// Minimum age at which entries without a catalog are removed. Content may be written a moment before the cache of
/// catalogs has its catalog.
pub const MIN_AGE: Duration = Duration::from_secs(60);

type MakeObserver = Box<dyn Fn(&str) -> Box<dyn Observer> + Send + Sync>;

/// Content by catalog name. The lock is held for a lookup or an exchange, never during I/O.
pub struct Store {
    catalogs: PathBuf,
    unpack: PathBuf,
    attempts: Attempts,
    held: RwLock<BTreeMap<String, Arc<Snapshot>>>,
    observer: Option<MakeObserver>,
}

/// Result of [`Store::sweep`].
#[derive(Debug, Default)]
pub struct SweepResult {
    /// Names of the removed entries.
    pub removed: Vec<String>,
    /// Entries that could not be removed.
    pub failed: Vec<(String, io::Error)>,
    /// `true` if an entry was too young to be removed.
    pub later: bool,
}

impl Store {
    /// Opens the content below `cache`. Complete content files are served again without reading their data. All
    /// other entries are removed.
    ///
    /// # Errors
    /// The directories cannot be created or listed. Entries that cannot be removed are only logged.
    pub fn open(cache: &Path) -> io::Result<Self> {
        let (catalogs, unpack) = (cache.join("catalogs"), cache.join("unpack"));
        std::fs::create_dir_all(&catalogs)?;
        std::fs::create_dir_all(&unpack)?;
        for entry in std::fs::read_dir(&unpack)? {
            discard(&entry?.path());
        }
        let attempts = Attempts::open(cache.join("attempts"))?;
        let mut held = BTreeMap::new();
        for entry in std::fs::read_dir(&catalogs)? {
            let entry = entry?;
            let opened = entry.file_name().into_string().ok().map(|name| (name, open_catalog(&entry.path())));
            match opened {
                Some((name, Ok(snapshot))) => {
                    // An earlier process may have ended between the rename of content and the end of its attempt.
                    attempts.clear(snapshot.digest());
                    held.insert(name, Arc::new(snapshot));
                }
                other => {
                    let why = other.and_then(|(_, result)| result.err()).map(|error| error.to_string());
                    tracing::warn!(path = %entry.path().display(), why, "removed unusable cached content");
                    discard(&entry.path());
                }
            }
        }
        Ok(Self { catalogs, unpack, attempts, held: RwLock::new(held), observer: None })
    }

    /// Sets the constructor of observers. It takes the name of the catalog that is stored.
    #[must_use]
    pub fn observed_by(self, make: impl Fn(&str) -> Box<dyn Observer> + Send + Sync + 'static) -> Self {
        Self { observer: Some(Box::new(make)), ..self }
    }

    /// The content of a catalog, if any is held.
    pub fn get(&self, catalog: &str) -> Option<Arc<Snapshot>> {
        self.held.read().get(catalog).cloned()
    }

    /// The last verification of the catalog. It may refer to earlier content.
    pub fn verification(&self, catalog: &str) -> Option<Verification> {
        serde_json::from_slice(&std::fs::read(self.catalogs.join(catalog).join(VERIFIED)).ok()?).ok()
    }

    /// Stores the verification of the catalog's content.
    ///
    /// # Errors
    /// An I/O error.
    pub fn set_verification(&self, catalog: &str, verification: &Verification) -> io::Result<()> {
        std::fs::write(self.catalogs.join(catalog).join(VERIFIED), serde_json::to_vec(verification)?)
    }

    /// Names of catalogs that have content here.
    pub fn names(&self) -> Vec<String> {
        self.held.read().keys().cloned().collect()
    }

    /// The suspect of this image digest, if an earlier process ended while it unpacked the image.
    pub fn suspect(&self, digest: &str) -> Option<Suspect> {
        self.attempts.suspect(digest)
    }

    /// A new, empty directory for unpacking the image `digest` of `catalog`. Removes leftovers of an earlier
    /// attempt. At most one at a time for each catalog.
    ///
    /// # Errors
    /// An I/O error.
    pub fn unpack_directory(&self, catalog: &str, digest: &str) -> io::Result<UnpackDirectory> {
        let path = self.unpack.join(catalog);
        remove(&path)?;
        std::fs::create_dir(&path)?;
        Ok(UnpackDirectory::new(path, self.attempts.begin(digest)))
    }

    /// Loads the folder of the image `canonical` at `root`, stores it and serves it. Blocks. On an error the old
    /// content stays served. At most one at a time for each catalog.
    ///
    /// # Errors
    /// The folder is not catalog content, or an I/O error.
    pub fn replace(
        &self,
        catalog: &str,
        root: &Path,
        canonical: String,
    ) -> Result<Arc<Snapshot>, ContentWriteError> {
        self.replace_from(catalog, &UnpackedFolder::new(root.to_owned()), canonical)
    }

    /// [`Self::replace`] with any folder.
    ///
    /// # Errors
    /// Those of [`Self::replace`].
    pub fn replace_from(
        &self,
        catalog: &str,
        folder: &impl Folder,
        canonical: String,
    ) -> Result<Arc<Snapshot>, ContentWriteError> {
        let directory = self.catalogs.join(catalog);
        if !directory.exists() {
            std::fs::create_dir(&directory)?;
            olm_os::sync_directory(&self.catalogs)?;
        }
        // Leftovers of an earlier attempt would take space on a full disk.
        tidy(&directory)?;
        let observer = self.observer.as_ref().map(|make| make(catalog));
        let written = write(&directory, observer, folder, canonical);
        if written.is_err() {
            // Succeeds only if the directory is empty, as intended.
            let _ = std::fs::remove_dir(&directory);
        }
        let snapshot = Arc::new(written?);
        let mut held = self.held.write();
        held.insert(catalog.to_owned(), Arc::clone(&snapshot));
        Ok(snapshot)
    }

    /// Stops serving a catalog and deletes its content. Does nothing without content.
    ///
    /// # Errors
    /// The content is no longer served but could not be removed from disk.
    pub fn remove(&self, catalog: &str) -> io::Result<()> {
        self.held.write().remove(catalog);
        remove(&self.catalogs.join(catalog))?;
        remove(&self.unpack.join(catalog))
    }

    /// Deletes entries, on disk and in memory, that belong to no existing catalog and were last changed at least
    /// [`MIN_AGE`] before `now`. `exists` is called right before each removal, so that a catalog created meanwhile
    /// keeps its content.
    ///
    /// # Errors
    /// A directory cannot be listed.
    pub fn sweep(&self, exists: impl Fn(&str) -> bool, now: SystemTime) -> io::Result<SweepResult> {
        let mut swept = SweepResult::default();
        for directory in [&self.catalogs, &self.unpack] {
            for entry in std::fs::read_dir(directory)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if exists(&name) {
                    continue;
                }
                if !is_old(&entry.path(), now) {
                    swept.later = true;
                    continue;
                }
                self.held.write().remove(&name);
                match remove(&entry.path()) {
                    Ok(()) => swept.removed.push(name),
                    Err(error) => swept.failed.push((name, error)),
                }
            }
        }
        Ok(swept)
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("catalogs", &self.catalogs).finish_non_exhaustive()
    }
}

fn write(
    directory: &Path,
    observer: Option<Box<dyn Observer>>,
    folder: &impl Folder,
    canonical: String,
) -> Result<Snapshot, ContentWriteError> {
    let mut writer = Writer::new(directory.join(CONTENT), observer)?;
    load(folder, &writer::LIMITS, &mut |meta: Meta| writer.push(&meta))?;
    writer.finish(canonical)
}

fn open_catalog(directory: &Path) -> io::Result<Snapshot> {
    let snapshot = Snapshot::open(&directory.join(CONTENT))?;
    tidy(directory)?;
    Ok(snapshot)
}

/// Removes everything in a catalog's directory but the content and its verification.
fn tidy(directory: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name() != CONTENT && entry.file_name() != VERIFIED {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

fn is_old(path: &Path, now: SystemTime) -> bool {
    let modified = std::fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    modified.is_ok_and(|modified| now.duration_since(modified).is_ok_and(|age| age >= MIN_AGE))
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "the list has one element, a range")]
mod tests {
    use super::*;
    use crate::content::read_range;
    use olm_fbc::MetaSelector;
    use std::fs::File;
    use std::sync::mpsc;

    fn image(digit: char) -> String {
        format!("r.example/a/b@sha256:{}", digit.to_string().repeat(64))
    }

    fn folder(text: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("catalog.yaml"), text).unwrap();
        folder
    }

    fn text(snapshot: &Snapshot) -> String {
        let mut bytes = vec![0; usize::try_from(snapshot.data.length).unwrap()];
        read_range(&snapshot.data.file, 0..snapshot.data.length, &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn content_is_replaced_atomically_and_survives_restart() {
        let cache = tempfile::tempdir().unwrap();
        let store = Store::open(cache.path()).unwrap();
        assert!(store.get("a").is_none());
        let first = folder("schema: olm.package\nname: foo\n---\nschema: x\n");
        store.replace("a", first.path(), image('1')).unwrap();
        let old = store.get("a").unwrap();
        assert_eq!(text(&old), "{\"name\":\"foo\",\"schema\":\"olm.package\"}\n{\"schema\":\"x\"}\n");

        // Case catalogd-12: a failure retains the old content.
        let broken = folder("schema: a\n--- foo\nschema: b\n");
        let error = store.replace("a", broken.path(), image('2')).unwrap_err().to_string();
        assert!(error.starts_with("error walking FBC root: catalog.yaml:"), "{error}");
        assert!(error.contains("invalid Yaml document separator: foo"), "{error}");
        assert_eq!(store.get("a").unwrap().canonical, image('1'));

        // Case catalogd-54: readers of the old content read it to the end.
        let second = folder("schema: z\n");
        store.replace("a", second.path(), image('3')).unwrap();
        assert_eq!(text(&store.get("a").unwrap()), "{\"schema\":\"z\"}\n");
        assert!(text(&old).contains("foo"));

        // A new process loads it again and removes leftovers and broken files.
        std::fs::write(cache.path().join("catalogs/a/.staging-x"), "half").unwrap();
        std::fs::create_dir(cache.path().join("catalogs/ghost")).unwrap();
        std::fs::create_dir(cache.path().join("catalogs/bad")).unwrap();
        std::fs::write(cache.path().join("catalogs/bad/content"), "no trailer at all in this file").unwrap();
        std::fs::write(cache.path().join("catalogs/stray"), "").unwrap();
        std::fs::create_dir_all(cache.path().join("unpack/a/image")).unwrap();
        let modified = store.get("a").unwrap().modified;
        drop(store);
        let store = Store::open(cache.path()).unwrap();
        let found = store.get("a").unwrap();
        assert_eq!((found.canonical.clone(), found.modified), (image('3'), modified));
        assert_eq!(found.index.ranges(&MetaSelector::default()).next(), Some(0..found.data.length));
        let left: Vec<_> = std::fs::read_dir(cache.path().join("catalogs")).unwrap().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(std::fs::read_dir(cache.path().join("catalogs/a")).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(cache.path().join("unpack")).unwrap().count(), 0);
    }

    fn age(path: &Path, age: Duration) {
        File::open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
    }

    // Cases catalogd-41, catalogd-44
    #[test]
    fn sweep_removes_old_entries_without_catalog() {
        let cache = tempfile::tempdir().unwrap();
        let store = Store::open(cache.path()).unwrap();
        let content = folder("schema: x\n");
        for name in ["a", "b", "c"] {
            store.replace(name, content.path(), image('1')).unwrap();
        }
        let of = |path: &str| cache.path().join(path);
        std::fs::create_dir(of("catalogs/ghost")).unwrap();
        std::fs::write(of("catalogs/stray"), "").unwrap();
        std::fs::create_dir_all(of("unpack/c/image")).unwrap();
        store.remove("a").unwrap();
        store.remove("a").unwrap();
        assert!(store.get("a").is_none());

        // Young entries may belong to a catalog that is not in the cache yet.
        let swept = store.sweep(|name| name == "b", SystemTime::now()).unwrap();
        assert_eq!((swept.removed, swept.later), (vec![], true));
        for path in ["catalogs/b", "catalogs/c", "catalogs/ghost", "catalogs/stray", "unpack/c"] {
            age(&of(path), MIN_AGE);
        }
        let mut swept = store.sweep(|name| name == "b", SystemTime::now()).unwrap();
        swept.removed.sort();
        assert_eq!(
            (swept.removed.as_slice(), swept.later),
            (["c", "c", "ghost", "stray"].map(str::to_owned).as_slice(), false)
        );
        assert!(swept.failed.is_empty());
        assert!(store.get("b").is_some() && store.get("c").is_none());
        assert_eq!(store.sweep(|_| false, SystemTime::now()).unwrap().removed, ["b"]);
        assert!(store.get("b").is_none());
        assert_eq!(std::fs::read_dir(of("catalogs")).unwrap().count(), 0);
        assert_eq!(std::fs::read_dir(of("unpack")).unwrap().count(), 0);
    }

    #[test]
    fn leftovers_of_attempt_are_removed_by_next() {
        let cache = tempfile::tempdir().unwrap();
        let store = Store::open(cache.path()).unwrap();
        let directory = cache.path().join("catalogs/a");
        // An image that cannot be stored leaves no files.
        let broken = folder("- x\n");
        assert!(store.replace("a", broken.path(), image('1')).unwrap_err().is_of_the_content());
        assert!(!directory.exists());

        let content = folder("schema: x\n");
        store.replace("a", content.path(), image('1')).unwrap();
        std::fs::write(directory.join(".staging-x"), "half").unwrap();
        std::fs::create_dir(directory.join("stray")).unwrap();
        std::fs::create_dir_all(cache.path().join("unpack/a/.unpack-x/0")).unwrap();
        store.replace("a", content.path(), image('2')).unwrap();
        let left: Vec<_> =
            std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [CONTENT]);
        let unpack = store.unpack_directory("a", "sha256:1").unwrap();
        assert_eq!(std::fs::read_dir(cache.path().join("unpack/a")).unwrap().count(), 0);
        drop(unpack);
        assert_eq!(std::fs::read_dir(cache.path().join("unpack")).unwrap().count(), 0);
    }

    struct Count(usize);

    impl Observer for Count {
        fn observe(&mut self, meta: &Meta) {
            assert_ne!(meta.schema, "defect");
            self.0 += 1;
        }

        fn finish(self: Box<Self>) -> Option<serde_json::Value> {
            Some(self.0.into())
        }
    }

    #[test]
    fn observer_findings_are_stored_and_its_panic_is_ignored() {
        let cache = tempfile::tempdir().unwrap();
        let store = Store::open(cache.path()).unwrap().observed_by(|_| Box::new(Count(0)));
        let content = folder("schema: x\n---\nschema: z\n");
        store.replace("a", content.path(), image('1')).unwrap();
        let findings = |store: &Store| store.get("a").unwrap().findings.clone();
        assert_eq!(findings(&store), Some(2.into()));
        assert_eq!(findings(&Store::open(cache.path()).unwrap()), Some(2.into()));
        let content = folder("schema: x\n---\nschema: defect\n---\nschema: z\n");
        assert_eq!(text(&store.replace("a", content.path(), image('2')).unwrap()).lines().count(), 3);
        assert_eq!(findings(&store), None);
    }

    struct Block(mpsc::Sender<()>, mpsc::Receiver<()>);

    impl Observer for Block {
        fn observe(&mut self, _: &Meta) {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
        }

        fn finish(self: Box<Self>) -> Option<serde_json::Value> {
            None
        }
    }

    // Case catalogd-53: deterministic, because the writer is blocked until all reads are done.
    #[test]
    fn readers_do_not_wait_for_writer() {
        let cache = tempfile::tempdir().unwrap();
        let content = folder("schema: x\n");
        Store::open(cache.path()).unwrap().replace("b", content.path(), image('1')).unwrap();
        let (storing, is_storing) = mpsc::channel();
        let (release, released) = mpsc::channel();
        let block = std::sync::Mutex::new(Some(Block(storing, released)));
        let store = Store::open(cache.path()).unwrap();
        let store = store.observed_by(move |_| Box::new(block.lock().unwrap().take().unwrap()));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| store.replace("a", content.path(), image('2')).unwrap());
            is_storing.recv().unwrap();
            for _ in 0..1000 {
                assert_eq!(text(&store.get("b").unwrap()), "{\"schema\":\"x\"}\n");
                assert!(store.get("a").is_none());
            }
            assert!(!writer.is_finished());
            release.send(()).unwrap();
            assert_eq!(writer.join().unwrap().canonical, image('2'));
        });
        assert!(store.get("a").is_some());
    }

    #[test]
    fn empty_catalog_is_stored_and_survives_restart() {
        let cache = tempfile::tempdir().unwrap();
        let store = Store::open(cache.path()).unwrap();
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(store.replace("a", empty.path(), image('1')).unwrap().data.length, 0);
        assert!(Store::open(cache.path()).unwrap().get("a").is_some());
    }

    #[test]
    fn truncated_content_files_are_rejected() {
        let cache = tempfile::tempdir().unwrap();
        let store = Store::open(cache.path()).unwrap();
        let content = folder("schema: x\n");
        store.replace("a", content.path(), image('1')).unwrap();
        let path = cache.path().join("catalogs/a/content");
        let whole = std::fs::read(&path).unwrap();
        for length in 0..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(Snapshot::open(&path).is_err(), "{length} bytes");
        }
        std::fs::write(&path, &whole).unwrap();
        assert!(Snapshot::open(&path).is_ok());
    }
}
