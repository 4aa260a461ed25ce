//! File with the content of one catalog reference: all packages, or one (docs/design/resolution.md#package-content,
//! docs/design/resolution.md#complete-answers).
//!
//! ```text
//! the lines of packages, as served │ index as JSON │ 8 bytes magic │ length of the lines │ length of the index
//! ```
//! Lengths are little-endian u64. A file is written to a staging path and renamed when complete, so a killed
//! process leaves no partial file. It is not synced to the disk: the checksum of each package reveals damage by a
//! power failure, and the package is fetched again.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use olm_fbc::{Meta, MetaError, MetaReader, ModelError, PackageContent};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tempfile::TempPath;

/// Includes the format version. A file of another version is fetched again.
const MAGIC: &[u8; 8] = b"OLMPKG\x001";
const TRAILER: u64 = 24;
/// Maximum size of the index in bytes. It is held in memory. The index of a large catalog has 50 kB.
const INDEX_BYTES: u64 = 16 << 20;
/// Maximum size including the uncounted parts: the reference and the braces.
const INDEX_LIMIT: u64 = INDEX_BYTES + (64 << 10);
/// Maximum bytes of the index per package besides its name, and per range.
const EXTENT_BYTES: u64 = 120;
const RANGE_BYTES: u64 = 44;
/// Maximum bytes of one package. It is read into memory.
pub(super) const PACKAGE_BYTES: u64 = 128 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Index {
    /// `status.resolvedSource.image.ref` of the catalog.
    reference: String,
    packages: BTreeMap<String, Extent>,
}

/// Location of the lines of a package.
#[derive(Debug, Serialize, Deserialize)]
struct Extent {
    /// Offset and length in bytes. Adjacent lines form one range.
    ranges: Vec<(u64, u64)>,
    /// Checksum of the concatenated lines, in hex.
    sha256: String,
}

/// Error of writing content.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    /// The stream is not catalog content, or ends early.
    #[error("error parsing catalog contents: {0}")]
    Content(#[from] MetaError),
    /// The stream exceeds the limit in bytes.
    #[error("error parsing catalog contents: the content has more than {0} bytes")]
    Size(u64),
    /// The index is too large: too many packages, long names, or many interleaved lines.
    #[error("error parsing catalog contents: the index of its packages has more than {0} bytes")]
    Index(u64),
    /// The folder cannot be created.
    #[error("error creating directory for catalog metadata: {0}")]
    Directory(io::Error),
    /// Another I/O error.
    #[error("error writing catalog metadata to file: {0}")]
    Disk(#[from] io::Error),
}

/// Error of reading a package.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    /// The file is damaged. The content must be fetched again.
    #[error("{0}")]
    Broken(#[from] io::Error),
    /// The lines violate their schemas.
    #[error("{0}")]
    Model(#[from] ModelError),
    /// The package exceeds the limit in bytes.
    #[error("the package has more than {0} bytes")]
    Size(u64),
}

/// Content file that is being written.
pub(super) struct Writer {
    file: BufWriter<File>,
    /// Removed on drop unless it was renamed.
    staging: TempPath,
    place: PathBuf,
    /// Remaining bytes of the limit.
    left: u64,
    limit: u64,
    /// The only package to keep, if set.
    only: Option<String>,
    offset: u64,
    packages: BTreeMap<String, Growing>,
    /// Remaining bytes of the index limit.
    index_left: u64,
}

/// Extent of a package whose lines are still being received.
#[derive(Default)]
struct Growing {
    ranges: Vec<(u64, u64)>,
    hash: Sha256,
}

impl Writer {
    /// Creates `staging`, which [`Self::finish`] renames to `place`. Both are in the same folder, which is created.
    /// With `only`, all other packages are discarded, and the file lists that package even if it is empty.
    pub(super) fn create(
        staging: PathBuf,
        place: PathBuf,
        only: Option<&str>,
        limit: u64,
    ) -> Result<Self, WriteError> {
        if let Some(folder) = place.parent() {
            fs::create_dir_all(folder).map_err(WriteError::Directory)?;
        }
        let file = BufWriter::new(File::create_new(&staging)?);
        let staging = TempPath::try_from_path(staging)?;
        let packages = only.map(|package| (package.to_owned(), Growing::default())).into_iter().collect();
        let only = only.map(str::to_owned);
        let (left, offset, index_left) = (limit, 0, INDEX_BYTES);
        Ok(Self { file, staging, place, left, limit, only, offset, packages, index_left })
    }

    /// Reads a stream of catalog objects. Objects without a package are discarded.
    pub(super) fn take_in(&mut self, stream: impl Read) -> Result<(), WriteError> {
        // One byte above the limit, to distinguish a full stream from a longer one.
        let mut stream = stream.take(self.left.saturating_add(1));
        let mut metas = MetaReader::new(&mut stream, olm_yaml::Limits::default());
        let read = metas.try_for_each(|meta| self.keep(&meta?));
        if stream.limit() == 0 {
            return Err(WriteError::Size(self.limit));
        }
        self.left = stream.limit() - 1;
        read
    }

    fn keep(&mut self, meta: &Meta) -> Result<(), WriteError> {
        let owner = if meta.schema == olm_fbc::SCHEMA_PACKAGE { &meta.name } else { &meta.package };
        if owner.is_empty() || self.only.as_ref().is_some_and(|only| only != owner) {
            return Ok(());
        }
        self.file.write_all(&meta.blob)?;
        let length = meta.blob.len() as u64;
        let mut grown = 0;
        let extent = match self.packages.get_mut(owner) {
            Some(extent) => extent,
            None => {
                // A character takes up to six bytes in JSON.
                grown += EXTENT_BYTES + 6 * owner.len() as u64;
                self.packages.entry(owner.clone()).or_default()
            }
        };
        extent.hash.update(&meta.blob);
        match extent.ranges.last_mut() {
            Some((start, known)) if *start + *known == self.offset => *known += length,
            _ => {
                grown += RANGE_BYTES;
                extent.ranges.push((self.offset, length));
            }
        }
        self.offset += length;
        self.index_left = self.index_left.checked_sub(grown).ok_or(WriteError::Index(INDEX_BYTES))?;
        Ok(())
    }

    /// Completes the file as content of `reference`, and renames it to its place.
    pub(super) fn finish(self, reference: &str) -> Result<CatalogContent, WriteError> {
        let Self { mut file, staging, place, offset, packages, .. } = self;
        let extent = |growing: Growing| Extent {
            ranges: growing.ranges,
            sha256: hex::encode(growing.hash.finalize()),
        };
        let packages = packages.into_iter().map(|(name, growing)| (name, extent(growing))).collect();
        let index = Index { reference: reference.to_owned(), packages };
        let text = serde_json::to_vec(&index).map_err(io::Error::from)?;
        file.write_all(&text)?;
        file.write_all(MAGIC)?;
        file.write_all(&offset.to_le_bytes())?;
        file.write_all(&(text.len() as u64).to_le_bytes())?;
        file.flush()?;
        staging.persist(&place).map_err(io::Error::from)?;
        Ok(CatalogContent { index, length: offset, file: File::open(&place)? })
    }
}

/// Complete content file. It remains readable while it is held, even after its removal.
#[derive(Debug)]
pub(super) struct CatalogContent {
    index: Index,
    length: u64,
    file: File,
}

impl CatalogContent {
    /// Opens a file that an earlier process may have written.
    ///
    /// # Errors
    /// It cannot be read, or is not a complete file of this version with content of `reference`.
    pub(super) fn open(path: &Path, reference: &str) -> io::Result<Self> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let trailer_start = size.checked_sub(TRAILER).ok_or_else(|| wrong("it is too short"))?;
        let mut trailer = [0; TRAILER as usize];
        file.read_exact_at(&mut trailer, trailer_start)?;
        let (magic, lengths) = trailer.split_at(MAGIC.len());
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
        let (length, text) = (number(&lengths[..8]), number(&lengths[8..]));
        if magic != MAGIC {
            return Err(wrong("its format is unknown"));
        }
        if length.checked_add(text) != Some(trailer_start) || text > INDEX_LIMIT {
            return Err(wrong("its lengths do not add up"));
        }
        let index: Index = serde_json::from_slice(&bytes_at(&file, length, text)?)?;
        if index.reference != reference {
            return Err(wrong("it belongs to another reference"));
        }
        Ok(Self { index, length, file })
    }

    /// Objects of a package. Empty if there are none.
    pub(super) fn package(&self, name: &str) -> Result<PackageContent, ReadError> {
        let Some(extent) = self.index.packages.get(name) else {
            return Ok(PackageContent::default());
        };
        let size = extent.ranges.iter().fold(0, |size: u64, (_, length)| size.saturating_add(*length));
        if size > PACKAGE_BYTES {
            return Err(ReadError::Size(PACKAGE_BYTES));
        }
        let (mut lines, mut hash) = (Vec::new(), Sha256::new());
        for (offset, length) in &extent.ranges {
            // A manipulated index must not cause an allocation above the file size.
            if offset.checked_add(*length).is_none_or(|end| end > self.length) {
                return Err(wrong("its index points outside of it").into());
            }
            let bytes = bytes_at(&self.file, *offset, *length)?;
            hash.update(&bytes);
            lines.push(bytes);
        }
        if hex::encode(hash.finalize()) != extent.sha256 {
            return Err(wrong("its checksum differs").into());
        }
        let lines = lines.iter().flat_map(|range| range.split_inclusive(|byte| *byte == b'\n'));
        Ok(PackageContent::from_metas(name, lines)?)
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("cached content cannot be used: {what}"))
}

fn bytes_at(file: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = concat!(
        r#"{"schema":"olm.package","name":"a","defaultChannel":"s"}"#,
        "\n",
        r#"{"schema":"acme","name":"loose"}"#,
        "\n",
        r#"{"schema":"olm.bundle","package":"a","name":"a.v1","image":"i"}"#,
        "\n",
        r#"{"schema":"olm.package","name":"b"}"#,
        "\n",
        r#"{"schema":"olm.channel","package":"a","name":"s"}"#,
        "\n",
    );

    fn write(
        folder: &Path,
        only: Option<&str>,
        lines: &str,
        limit: u64,
    ) -> Result<CatalogContent, WriteError> {
        let mut writer = Writer::create(folder.join(".0"), folder.join("x"), only, limit)?;
        writer.take_in(lines.as_bytes())?;
        writer.finish("r@sha256:1")
    }

    fn open(folder: &Path) -> io::Result<CatalogContent> {
        CatalogContent::open(&folder.join("x"), "r@sha256:1")
    }

    #[test]
    fn written_content_is_readable_after_restart() {
        let folder = tempfile::tempdir().unwrap();
        let written = write(folder.path(), None, LINES, 1 << 20).unwrap();
        assert_eq!(written.index.packages["a"].ranges.len(), 2, "adjacent lines form one range");
        for content in [written, open(folder.path()).unwrap()] {
            let package = content.package("a").unwrap();
            assert_eq!((package.packages.len(), package.bundles.len(), package.channels.len()), (1, 1, 1));
            assert!(!content.package("b").unwrap().is_empty());
            // Case resolution-10
            assert!(content.package("acme").unwrap().is_empty());
            assert!(content.package("loose").unwrap().is_empty());
            assert!(content.package("../a").unwrap().is_empty());
        }
    }

    #[test]
    fn file_of_one_package_contains_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let content = write(folder.path(), Some("b"), LINES, 1 << 20).unwrap();
        assert!(!content.package("b").unwrap().is_empty());
        assert!(content.package("a").unwrap().is_empty());
        let nothing = write(folder.path(), Some("none"), LINES, 1 << 20).unwrap();
        assert!(nothing.package("none").unwrap().is_empty());
        assert_eq!(open(folder.path()).unwrap().index.packages.len(), 1);
    }

    #[test]
    fn partial_or_foreign_file_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("x");
        assert!(open(folder.path()).is_err());
        drop(write(folder.path(), None, LINES, 1 << 20).unwrap());
        assert!(CatalogContent::open(&place, "r@sha256:2").is_err());
        let whole = fs::read(&place).unwrap();
        for length in 0..whole.len() {
            fs::write(&place, &whole[..length]).unwrap();
            assert!(open(folder.path()).is_err(), "{length}");
            fs::write(&place, &whole[whole.len() - length..]).unwrap();
            assert!(open(folder.path()).is_err(), "the last {length}");
        }
        let mut other = whole.clone();
        other[20] ^= 1;
        fs::write(&place, &other).unwrap();
        let broken = open(folder.path()).unwrap().package("a").unwrap_err();
        assert_eq!(broken.to_string(), "cached content cannot be used: its checksum differs");
    }

    #[test]
    fn oversized_package_or_index_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let mut content = write(folder.path(), None, LINES, 1 << 20).unwrap();
        content.index.packages.get_mut("a").unwrap().ranges = vec![(0, PACKAGE_BYTES / 2 + 1); 2];
        content.length = PACKAGE_BYTES;
        let error = content.package("a").unwrap_err();
        assert_eq!(error.to_string(), "the package has more than 134217728 bytes");
        assert!(!content.package("b").unwrap().is_empty());

        let names = (0..3).map(|number| {
            let name = "\u{1}".repeat(1 << 20) + &number.to_string();
            serde_json::json!({"schema": "olm.package", "name": name}).to_string() + "\n"
        });
        let error = write(folder.path(), None, &names.collect::<String>(), 1 << 30).unwrap_err();
        assert_eq!(
            error.to_string(),
            "error parsing catalog contents: the index of its packages has more than 16777216 bytes"
        );
        // Interleaved packages have a range per object.
        let turn = ["a", "b"].map(|name| format!("{{\"schema\":\"x\",\"package\":\"{name}\"}}\n")).concat();
        let turns = |count| write(folder.path(), None, &turn.repeat(count), 1 << 30);
        let most = usize::try_from(INDEX_BYTES / RANGE_BYTES / 2).unwrap();
        assert!(turns(most - 10).is_ok() && open(folder.path()).is_ok());
        assert!(matches!(turns(most), Err(WriteError::Index(_))));
    }

    // Case resolution-6
    #[test]
    fn invalid_or_oversized_stream_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let error = write(folder.path(), None, "{\"schema\":", 1 << 20).unwrap_err().to_string();
        assert!(error.starts_with("error parsing catalog contents: "), "{error}");
        let length = LINES.len() as u64;
        let error = write(folder.path(), None, LINES, length - 1).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("error parsing catalog contents: the content has more than {} bytes", length - 1)
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(write(folder.path(), None, LINES, length).is_ok());
    }
}
