//! Files of an image on disk: those of a folder, or of one tar archive.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::PackError;

/// Largest archive, in bytes.
const MAX_ARCHIVE: u64 = 4 << 30;
/// Largest number of files in an archive.
const MAX_FILES: usize = 100_000;

/// Source of the files of an image.
pub(crate) enum Files {
    Folder(PathBuf),
    Archive { path: PathBuf, files: BTreeMap<String, Bytes> },
}

impl Files {
    /// Opens a folder, or reads an archive into memory.
    ///
    /// # Errors
    /// The archive cannot be read, or is too large.
    pub(crate) fn open(path: &Path) -> Result<Self, PackError> {
        if path.is_dir() {
            return Ok(Self::Folder(path.to_owned()));
        }
        let failed = |cause| file_error("read", path, cause);
        let file = fs::File::open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() > MAX_ARCHIVE {
            return Err(too_large(path, MAX_ARCHIVE));
        }
        Ok(Self::Archive { path: path.to_owned(), files: archived(path, file)? })
    }

    /// Path of a file for messages.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        match self {
            Self::Folder(folder) => folder.join(name),
            Self::Archive { path, .. } if name.is_empty() => path.clone(),
            Self::Archive { path, .. } => PathBuf::from(format!("{}: {name}", path.display())),
        }
    }

    /// Reports whether there is such a file.
    pub(crate) fn has(&self, name: &str) -> bool {
        match self {
            Self::Folder(folder) => folder.join(name).is_file(),
            Self::Archive { files, .. } => files.contains_key(name),
        }
    }

    /// Content of a file of at most `limit` bytes.
    ///
    /// # Errors
    /// It does not exist, cannot be read, or is too large.
    pub(crate) fn read(&self, name: &str, limit: u64) -> Result<Bytes, PackError> {
        match self {
            Self::Folder(folder) => read(&folder.join(name), limit),
            Self::Archive { files, .. } => match files.get(name) {
                None => Err(unusable(&self.path(name), "the archive has no such file")),
                Some(content) if content.len() as u64 > limit => Err(too_large(&self.path(name), limit)),
                Some(content) => Ok(content.clone()),
            },
        }
    }
}

/// Reports whether the file at `path` is a tar archive.
pub(crate) fn is_archive(path: &Path) -> bool {
    const MAGIC: (usize, &[u8]) = (257, b"ustar");
    let mut head = Vec::new();
    path.is_file()
        && fs::File::open(path).and_then(|file| file.take(512).read_to_end(&mut head)).is_ok()
        && head.get(MAGIC.0..).is_some_and(|rest| rest.starts_with(MAGIC.1))
}

/// Files of an archive by path, without a leading `./`. A link has the content of its target. `path` is for messages.
pub(crate) fn archived(path: &Path, archive: impl Read) -> Result<BTreeMap<String, Bytes>, PackError> {
    let failed = |cause| file_error("read", path, cause);
    let (mut files, mut links) = (BTreeMap::new(), Vec::new());
    for entry in tar::Archive::new(archive).entries().map_err(failed)? {
        let mut entry = entry.map_err(failed)?;
        let name = clean(&entry.path().map_err(failed)?.to_string_lossy());
        if files.len() + links.len() == MAX_FILES {
            return Err(unusable(path, &format!("the archive has more than {MAX_FILES} files")));
        }
        if let Some(target) = entry.link_name().map_err(failed)? {
            let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
            let is_hard = entry.header().entry_type().is_hard_link();
            let base = if is_hard { "" } else { folder };
            links.push((name.clone(), clean(&format!("{base}/{}", target.to_string_lossy()))));
        } else if entry.header().entry_type().is_file() {
            let mut content = Vec::new();
            // Bounded by the size of the archive.
            entry.read_to_end(&mut content).map_err(failed)?;
            files.insert(name, Bytes::from(content));
        }
    }
    for (name, target) in links {
        if let Some(content) = files.get(&target).cloned() {
            files.insert(name, content);
        }
    }
    Ok(files)
}

/// Path without `.`, `..` and empty parts.
fn clean(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Content of a regular file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Bytes, PackError> {
    let failed = |cause| file_error("read", path, cause);
    let mut content = Vec::new();
    let file = fs::File::open(path).map_err(failed)?;
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(unusable(path, "not a regular file"));
    }
    file.take(limit + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > limit {
        return Err(too_large(path, limit));
    }
    Ok(content.into())
}

fn too_large(path: &Path, limit: u64) -> PackError {
    unusable(path, &format!("larger than {limit} bytes"))
}

pub(crate) fn unusable(path: &Path, why: &str) -> PackError {
    PackError::Layout { path: path.to_owned(), why: why.to_owned() }
}

pub(crate) fn file_error(action: &'static str, path: &Path, cause: std::io::Error) -> PackError {
    PackError::File { action, path: path.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_path_has_no_dots() {
        for (path, expected) in
            [("./index.json", "index.json"), ("a/../b/./c", "b/c"), ("/../x", "x"), ("a//b/", "a/b")]
        {
            assert_eq!(clean(path), expected, "{path}");
        }
    }
}
