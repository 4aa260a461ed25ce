//! Storage of file contents while layers are applied: on disk for catalogs, in memory for bundles. File names of an
//! image reach the disk only in [`DiskStore::publish`], after the whole tree has been validated.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use olm_os::{create_new, set_mode};
use tempfile::TempDir;

use crate::archive::{EntryReader, UnpackError};
use crate::tree::Tree;

/// Storage of file contents.
pub(crate) trait Store: Send + 'static {
    /// Handle of a stored file. Cheap to clone.
    type Content: Clone + Send;

    /// Stores the whole content of `entry`.
    fn save(&mut self, entry: &mut EntryReader<'_>) -> Result<Self::Content, UnpackError>;

    /// Size of a stored file, in bytes.
    fn size(content: &Self::Content) -> u64;
}

#[derive(Debug, Default)]
pub(crate) struct MemoryStore;

impl Store for MemoryStore {
    type Content = Arc<Vec<u8>>;

    fn save(&mut self, entry: &mut EntryReader<'_>) -> Result<Self::Content, UnpackError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = entry.next_chunk()? {
            bytes.extend_from_slice(chunk);
        }
        Ok(Arc::new(bytes))
    }

    fn size(content: &Self::Content) -> u64 {
        content.len() as u64
    }
}

/// Stores contents in numbered files of a temporary folder beside the destination.
#[derive(Debug)]
pub(crate) struct DiskStore {
    staging: TempDir,
    next: u64,
}

/// Numbered file and its size.
#[derive(Debug, Clone)]
pub(crate) struct StoredFile {
    number: u64,
    size: u64,
}

impl DiskStore {
    /// Creates a store that can publish to `destination`, whose parent folder must exist.
    pub(crate) fn new(destination: &Path) -> io::Result<Self> {
        let parent = destination.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or_else(|| Path::new("."));
        let staging = tempfile::Builder::new().prefix(".unpack-").tempdir_in(parent)?;
        Ok(Self { staging, next: 0 })
    }

    fn content_path(&self, number: u64) -> PathBuf {
        self.staging.path().join(number.to_string())
    }

    /// Creates the files of `tree` and renames their folder to `destination` in one step: folders 0500, files 0400,
    /// no links.
    pub(crate) fn publish(self, tree: &Tree<StoredFile>, destination: &Path) -> Result<(), UnpackError> {
        let root = self.staging.path().join("root");
        for dir in std::iter::once("").chain(tree.dirs()) {
            fs::create_dir(root.join(dir))?;
            set_mode(&root.join(dir), 0o700)?;
        }
        let mut moved = BTreeMap::new();
        for file in tree.files() {
            let (path, content) = file?;
            let to = root.join(path);
            match moved.get(&content.number) {
                None => {
                    fs::rename(self.content_path(content.number), &to)?;
                    moved.insert(content.number, to);
                }
                Some(same) => {
                    fs::copy(same, &to)?;
                }
            }
        }
        for dir in tree.dirs().collect::<Vec<_>>().into_iter().rev() {
            set_mode(&root.join(dir), 0o500)?;
        }
        // The root becomes read-only only after the rename, since renaming a read-only folder needs privileges on
        // some systems.
        fs::rename(&root, destination)?;
        Ok(set_mode(destination, 0o500)?)
    }
}

impl Store for DiskStore {
    type Content = StoredFile;

    fn save(&mut self, entry: &mut EntryReader<'_>) -> Result<StoredFile, UnpackError> {
        let number = self.next;
        self.next += 1;
        let mut file = create_new(&self.content_path(number), 0o400)?;
        let mut size = 0;
        while let Some(chunk) = entry.next_chunk()? {
            file.write_all(chunk)?;
            size += chunk.len() as u64;
        }
        Ok(StoredFile { number, size })
    }

    fn size(content: &StoredFile) -> u64 {
        content.size
    }
}

/// Removes a folder of [`crate::Puller::pull_folder`], whose content is read-only. A missing folder is not an
/// error.
///
/// # Errors
/// Something below `folder` cannot be removed.
pub fn remove_folder(folder: &Path) -> io::Result<()> {
    match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.is_dir() => return fs::remove_file(folder),
        Ok(_) => {}
    }
    let mut pending = vec![folder.to_owned()];
    while let Some(path) = pending.pop() {
        set_mode(&path, 0o700)?;
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                pending.push(entry.path());
            }
        }
    }
    fs::remove_dir_all(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remove_folder_handles_read_only_folder_file_and_absence() {
        let parent = TempDir::new().unwrap();
        let folder = parent.path().join("image");
        fs::create_dir_all(folder.join("configs/deep")).unwrap();
        fs::write(folder.join("configs/deep/x"), "x").unwrap();
        for path in ["configs/deep", "configs", ""] {
            set_mode(&folder.join(path), 0o500).unwrap();
        }
        remove_folder(&folder).unwrap();
        remove_folder(&folder).unwrap();
        fs::write(&folder, "a file").unwrap();
        remove_folder(&folder).unwrap();
        assert!(!folder.exists());
    }
}
