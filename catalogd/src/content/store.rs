//! All catalogs that this replica holds.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use olm_fbc::{Limits, Meta, load};

use super::{Snapshot, UnpackedFolder, WriteError, Writer};

pub(super) const STAGING_PREFIX: &str = ".staging-";
const CONTENT: &str = "content";

/// Content by catalog name. The lock is held for a lookup or an exchange, never while reading or writing.
#[derive(Debug)]
pub struct Store {
    catalogs: PathBuf,
    unpack: PathBuf,
    held: RwLock<BTreeMap<String, Arc<Snapshot>>>,
}

impl Store {
    /// Opens the content below `cache`: whole content files are served again, all else is removed.
    ///
    /// # Errors
    /// The directories cannot be made or listed.
    pub fn open(cache: &Path) -> io::Result<Self> {
        let (catalogs, unpack) = (cache.join("catalogs"), cache.join("unpack"));
        std::fs::create_dir_all(&catalogs)?;
        std::fs::create_dir_all(&unpack)?;
        for entry in std::fs::read_dir(&unpack)? {
            remove(&entry?.path())?;
        }
        let mut held = BTreeMap::new();
        for entry in std::fs::read_dir(&catalogs)? {
            let entry = entry?;
            let opened = entry.file_name().into_string().ok().map(|name| (name, open_catalog(&entry.path())));
            match opened {
                Some((name, Ok(snapshot))) => {
                    held.insert(name, Arc::new(snapshot));
                }
                other => {
                    let why = other.and_then(|(_, result)| result.err()).map(|error| error.to_string());
                    tracing::warn!(path = %entry.path().display(), why, "cached content is not usable and removed");
                    remove(&entry.path())?;
                }
            }
        }
        Ok(Self { catalogs, unpack, held: RwLock::new(held) })
    }

    /// The content of a catalog, if any is held.
    pub fn get(&self, catalog: &str) -> Option<Arc<Snapshot>> {
        self.held.read().unwrap_or_else(PoisonError::into_inner).get(catalog).cloned()
    }

    /// Where an image of `catalog` may be unpacked to; nothing is there yet.
    ///
    /// # Errors
    /// The directory around it cannot be made.
    pub fn unpack_directory(&self, catalog: &str) -> io::Result<UnpackDirectory> {
        let parent = tempfile::Builder::new().prefix(&format!("{catalog}-")).tempdir_in(&self.unpack)?;
        Ok(UnpackDirectory { path: parent.keep() })
    }

    /// Reads the folder of the image `canonical` at `root` and serves it from now on. Blocks; on an error the old content stays.
    ///
    /// # Errors
    /// The folder is not catalog content, or the disk fails.
    pub fn replace(
        &self,
        catalog: &str,
        root: &Path,
        canonical: String,
    ) -> Result<Arc<Snapshot>, WriteError> {
        let mut writer = Writer::new(self.catalogs.join(catalog).join(CONTENT))?;
        let folder = UnpackedFolder::new(root.to_owned());
        load(&folder, &Limits::default(), &mut |meta: Meta| writer.push(&meta))?;
        let snapshot = Arc::new(writer.finish(canonical)?);
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        held.insert(catalog.to_owned(), Arc::clone(&snapshot));
        Ok(snapshot)
    }

    /// Stops serving a catalog and removes its content; without content nothing happens.
    ///
    /// # Errors
    /// The content is no longer served but could not be removed from disk.
    pub fn remove(&self, catalog: &str) -> io::Result<()> {
        self.held.write().unwrap_or_else(PoisonError::into_inner).remove(catalog);
        remove(&self.catalogs.join(catalog))
    }

    /// Removes what belongs to no existing catalog, on disk and in service; returns the names.
    /// `exists` is asked right before each removal, so that a catalog made meanwhile keeps its content.
    ///
    /// # Errors
    /// The directory cannot be listed, or the first entry that could not be removed.
    pub fn sweep(&self, exists: impl Fn(&str) -> bool) -> io::Result<Vec<String>> {
        let mut swept = Vec::new();
        for entry in std::fs::read_dir(&self.catalogs)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if !exists(&name) {
                self.remove(&name)?;
                swept.push(name);
            }
        }
        Ok(swept)
    }
}

/// A directory that is removed with all its read-only content when dropped.
#[derive(Debug)]
pub struct UnpackDirectory {
    path: PathBuf,
}

impl UnpackDirectory {
    /// Where to unpack to: does not exist yet, its parent does.
    pub fn destination(&self) -> PathBuf {
        self.path.join("image")
    }
}

impl Drop for UnpackDirectory {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "unpacked image not removed");
        }
    }
}

fn open_catalog(directory: &Path) -> io::Result<Snapshot> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(STAGING_PREFIX)) {
            remove(&path)?;
        }
    }
    Snapshot::open(&directory.join(CONTENT))
}

/// Removes whatever `path` is, read-only directories and special files included; absent is fine.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => olm_oci::remove_folder(path),
        Ok(_) => std::fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
mod tests {
    use super::*;
    use crate::content::snapshot::read_range;
    use olm_fbc::Selector;

    fn image(digit: char) -> String {
        format!("r.example/a/b@sha256:{}", digit.to_string().repeat(64))
    }

    fn folder(text: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("catalog.yaml"), text).unwrap();
        folder
    }

    fn text(snapshot: &Snapshot) -> String {
        let mut bytes = vec![0; usize::try_from(snapshot.length()).unwrap()];
        read_range(snapshot.file(), 0..snapshot.length(), &mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn content_is_replaced_whole_and_survives() {
        let cache = tempfile::tempdir().unwrap();
        let store = Store::open(cache.path()).unwrap();
        assert!(store.get("a").is_none());
        let first = folder("schema: olm.package\nname: foo\n---\nschema: x\n");
        store.replace("a", first.path(), image('1')).unwrap();
        let old = store.get("a").unwrap();
        assert_eq!(text(&old), "{\"name\":\"foo\",\"schema\":\"olm.package\"}\n{\"schema\":\"x\"}\n");

        // spec 02 acceptance 12: a failure leaves the old content
        let broken = folder("schema: a\n--- foo\nschema: b\n");
        let error = store.replace("a", broken.path(), image('2')).unwrap_err().to_string();
        assert!(error.starts_with("error walking FBC root: catalog.yaml:"), "{error}");
        assert!(error.contains("invalid Yaml document separator: foo"), "{error}");
        assert_eq!(store.get("a").unwrap().canonical(), image('1'));

        // spec 02 acceptance 54: who holds the old content reads it to the end
        let second = folder("schema: z\n");
        store.replace("a", second.path(), image('3')).unwrap();
        assert_eq!(text(&store.get("a").unwrap()), "{\"schema\":\"z\"}\n");
        assert!(text(&old).contains("foo"));

        // A new process finds it again; litter and broken files go.
        std::fs::write(cache.path().join("catalogs/a/.staging-x"), "half").unwrap();
        std::fs::create_dir(cache.path().join("catalogs/ghost")).unwrap();
        std::fs::create_dir(cache.path().join("catalogs/bad")).unwrap();
        std::fs::write(cache.path().join("catalogs/bad/content"), "no trailer at all in this file").unwrap();
        std::fs::write(cache.path().join("catalogs/stray"), "").unwrap();
        std::fs::create_dir_all(cache.path().join("unpack/a-x/image")).unwrap();
        let modified = store.get("a").unwrap().modified();
        drop(store);
        let store = Store::open(cache.path()).unwrap();
        let found = store.get("a").unwrap();
        assert_eq!((found.canonical(), found.modified()), (image('3').as_str(), modified));
        assert_eq!(found.index().ranges(&Selector::default()), [0..found.length()]);
        let left: Vec<_> = std::fs::read_dir(cache.path().join("catalogs")).unwrap().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(std::fs::read_dir(cache.path().join("catalogs/a")).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(cache.path().join("unpack")).unwrap().count(), 0);
    }

    // spec 02 acceptance 41, 44
    #[test]
    fn remove_and_sweep() {
        let cache = tempfile::tempdir().unwrap();
        let store = Store::open(cache.path()).unwrap();
        let content = folder("schema: x\n");
        for name in ["a", "b"] {
            store.replace(name, content.path(), image('1')).unwrap();
        }
        std::fs::create_dir(cache.path().join("catalogs/ghost")).unwrap();
        store.remove("a").unwrap();
        store.remove("a").unwrap();
        assert!(store.get("a").is_none());
        assert_eq!(store.sweep(|name| name == "b").unwrap(), ["ghost"]);
        assert!(store.get("b").is_some());
        assert_eq!(store.sweep(|_| false).unwrap(), ["b"]);
        assert!(store.get("b").is_none());
    }

    #[test]
    fn an_empty_catalog_is_content() {
        let cache = tempfile::tempdir().unwrap();
        let store = Store::open(cache.path()).unwrap();
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(store.replace("a", empty.path(), image('1')).unwrap().length(), 0);
        assert!(Store::open(cache.path()).unwrap().get("a").is_some());
    }

    #[test]
    fn damaged_files_are_refused() {
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
