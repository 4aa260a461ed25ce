//! Image layer: a deterministic tar of files, compressed with gzip.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use bytes::Bytes;
use flate2::{Compression, GzBuilder};

use crate::{PackError, digest_of};

/// Entry at a path of a layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerEntry {
    /// A directory with its permission bits.
    Dir {
        /// Permission bits, e.g. `0o755`.
        mode: u32,
    },
    /// A regular file.
    File {
        /// Permission bits, e.g. `0o644`.
        mode: u32,
        /// Content.
        content: Vec<u8>,
    },
}

impl LayerEntry {
    /// Creates a readable file with mode 0644.
    pub fn file(content: impl Into<Vec<u8>>) -> Self {
        Self::File { mode: 0o644, content: content.into() }
    }
}

/// Finished layer: the compressed bytes that a registry stores, and the digest of the uncompressed content.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Stored form of the layer: gzip of a tar.
    pub blob: Bytes,
    /// Digest of the uncompressed tar, as listed in the image configuration.
    pub diff_id: String,
}

impl Layer {
    /// Builds a layer from `entries` (path relative to the image root → entry). Parent directories are added with
    /// mode 0755. Owner, times and order are fixed.
    ///
    /// # Errors
    /// A path that is empty, absolute or contains `.` or `..`.
    pub fn new(entries: &BTreeMap<String, LayerEntry>) -> Result<Self, PackError> {
        let mut tar = tar::Builder::new(Vec::new());
        let mut written = BTreeSet::new();
        for (path, entry) in entries {
            if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
                return Err(PackError::Path(path.clone()));
            }
            for (end, _) in path.match_indices('/') {
                let parent = &path[..end];
                if !entries.contains_key(parent) && written.insert(parent) {
                    append(&mut tar, parent, &LayerEntry::Dir { mode: 0o755 })?;
                }
            }
            append(&mut tar, path, entry)?;
        }
        Self::from_tar(&tar.into_inner().map_err(|cause| archive_error("the end", cause))?)
    }

    /// Builds a layer from the given bytes, which need not be a tar in tests.
    ///
    /// # Errors
    /// Only those of writing to memory.
    pub fn from_tar(tar: &[u8]) -> Result<Self, PackError> {
        let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
        let blob = gzip.write_all(tar).and_then(|()| gzip.finish());
        let blob = blob.map_err(|cause| archive_error("compressed bytes", cause))?;
        Ok(Self { blob: blob.into(), diff_id: digest_of(tar) })
    }
}

fn append(tar: &mut tar::Builder<Vec<u8>>, path: &str, entry: &LayerEntry) -> Result<(), PackError> {
    let (name, kind, mode, content) = match entry {
        LayerEntry::Dir { mode } => (format!("{path}/"), tar::EntryType::Directory, *mode, &[][..]),
        LayerEntry::File { mode, content } => {
            (path.to_owned(), tar::EntryType::Regular, *mode, content.as_slice())
        }
    };
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(content.len() as u64);
    tar.append_data(&mut header, &name, content).map_err(|cause| archive_error(path, cause))
}

fn archive_error(path: &str, cause: std::io::Error) -> PackError {
    PackError::Archive { path: path.to_owned(), cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_is_deterministic_and_adds_parents() {
        let long = format!("configs/{}/index.yaml", "deep/".repeat(30).trim_end_matches('/'));
        let entries = BTreeMap::from([
            (long.clone(), LayerEntry::file("a: b")),
            ("tmp".to_owned(), LayerEntry::Dir { mode: 0o1777 }),
            ("usr/bin/x".to_owned(), LayerEntry::File { mode: 0o755, content: b"elf".to_vec() }),
        ]);
        let layer = Layer::new(&entries).unwrap();
        assert_eq!(layer.blob, Layer::new(&entries).unwrap().blob);

        let tar = flate2::read::GzDecoder::new(&layer.blob[..]);
        let mut archive = tar::Archive::new(tar);
        let mut paths = Vec::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!((header.mtime().unwrap(), header.uid().unwrap()), (0, 0));
            paths.push((entry.path().unwrap().to_string_lossy().into_owned(), header.mode().unwrap()));
        }
        assert_eq!(paths.first().unwrap(), &("configs/".to_owned(), 0o755));
        assert!(paths.contains(&(long, 0o644)));
        assert!(paths.contains(&("tmp/".to_owned(), 0o1777)));
        assert!(paths.contains(&("usr/bin/x".to_owned(), 0o755)));
    }

    #[test]
    fn invalid_path_is_rejected() {
        for path in ["/etc/passwd", "a//b", "../a", "a/./b", ""] {
            let entries = BTreeMap::from([(path.to_owned(), LayerEntry::file(""))]);
            let error = Layer::new(&entries).unwrap_err().to_string();
            assert_eq!(error, format!("{path:?} is not a path relative to the image root"));
        }
    }
}
