//! An unpacked catalog folder on disk, as a [`Folder`] for the loader of `olm-fbc`.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use olm_fbc::{Entry, EntryKind, Folder};

/// A folder written by the image puller: plain files and directories, no links.
#[derive(Debug)]
pub struct UnpackedFolder {
    root: PathBuf,
}

impl UnpackedFolder {
    /// The folder at `root`.
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }
}

impl Folder for UnpackedFolder {
    fn entries(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        let entry = |entry: io::Result<std::fs::DirEntry>| {
            let entry = entry?;
            let kind = if entry.file_type()?.is_dir() { EntryKind::Directory } else { EntryKind::File };
            Ok(Entry { name: entry.file_name(), kind })
        };
        std::fs::read_dir(self.root.join(directory))?.map(entry).collect()
    }

    fn open(&self, file: &Path) -> io::Result<Box<dyn Read + '_>> {
        let path = self.root.join(file);
        // Checked before opening, because opening a pipe would block.
        if !std::fs::symlink_metadata(&path)?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(Box::new(BufReader::new(File::open(path)?)))
    }
}
