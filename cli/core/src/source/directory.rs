//! Local directory as a catalog folder.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use olm_fbc::{Entry, EntryKind, Folder};

use crate::error::CliError;

/// Untrusted directory: follows links only inside of it, and opens nothing that could block.
#[derive(Debug)]
pub struct DirectoryFolder {
    root: PathBuf,
}

impl DirectoryFolder {
    /// Opens the folder at `root`.
    ///
    /// # Errors
    /// `root` is not a directory, or cannot be opened.
    pub fn open(root: &Path) -> Result<Self, CliError> {
        let root = root.canonicalize();
        let root =
            root.map_err(|error| CliError::operational(format!("cannot open the directory: {error}")))?;
        if !root.is_dir() {
            return Err(CliError::operational("not a directory"));
        }
        Ok(Self { root })
    }

    /// Canonical path, without links.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

impl Folder for DirectoryFolder {
    fn entries(&self, directory: &Path) -> io::Result<Vec<Entry>> {
        let entry = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            let kind = if entry.file_type()?.is_dir() { EntryKind::Directory } else { EntryKind::File };
            Ok(Entry { name: entry.file_name(), kind })
        };
        fs::read_dir(self.root.join(directory))?.map(entry).collect()
    }

    fn open(&self, file: &Path) -> io::Result<Box<dyn Read + '_>> {
        let path = self.root.join(file).canonicalize()?;
        if !path.starts_with(&self.root) {
            return Err(io::Error::other("the link points outside of the catalog directory"));
        }
        let metadata = fs::metadata(&path)?;
        // Checked before opening, because opening a pipe would block. A directory fails when it is read.
        if !metadata.is_file() && !metadata.is_dir() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(Box::new(BufReader::new(File::open(path)?)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn link_out_of_directory_and_special_file_are_rejected() {
        let parent = tempfile::tempdir().unwrap();
        let root = parent.path().join("catalog");
        fs::create_dir_all(root.join("deep")).unwrap();
        fs::write(root.join("a.yaml"), "a").unwrap();
        fs::write(parent.path().join("secret"), "s").unwrap();
        symlink("../a.yaml", root.join("deep/inside")).unwrap();
        symlink("../../secret", root.join("deep/outside")).unwrap();
        symlink("nowhere", root.join("dangling")).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
        let folder = DirectoryFolder::open(&root).unwrap();
        for (path, expected) in [
            ("a.yaml", Ok("a")),
            ("deep/inside", Ok("a")),
            ("deep/outside", Err("the link points outside of the catalog directory")),
            ("dangling", Err("No such file or directory (os error 2)")),
            ("socket", Err("not a regular file")),
        ] {
            let read = folder.open(Path::new(path)).map_err(|error| error.to_string()).map(|mut file| {
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                text
            });
            assert_eq!(read.as_deref().map_err(String::as_str), expected, "{path}");
        }
        drop(listener);
    }
}
