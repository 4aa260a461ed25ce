//! The content of one catalog as it was stored once: data, index and where it came from.
//!
//! File layout: the data (JSON lines), the description (JSON), and a trailer of 24 bytes: 8 bytes magic with
//! the format version, length of the data and of the description (little-endian u64). Compressed copies of
//! the data are made on first demand and lie beside the file until the content is replaced.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use super::Index;
use super::answers::Answers;
use crate::http::Encoding;

/// Format version included: a file of another version is made anew.
pub(super) const MAGIC: &[u8; 8] = b"OLMCAT\x001";
pub(super) const TRAILER: u64 = 24;
/// No description is larger: it has about 60 bytes per blob.
const DESCRIPTION_LIMIT: u64 = 1 << 30;

/// What the file says about its data.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Description {
    /// The image by digest, as in `status.resolvedSource`.
    pub(super) canonical: String,
    pub(super) index: Index,
}

/// Immutable content, readable as long as it is held, even after it was replaced.
#[derive(Debug)]
pub struct Snapshot {
    canonical: String,
    index: Index,
    length: u64,
    modified: jiff::Timestamp,
    file: Arc<File>,
    path: PathBuf,
    compressed: [OnceLock<Option<Arc<File>>>; 2],
    claimed: [AtomicBool; 2],
    answers: Answers,
}

impl Snapshot {
    /// Opens a content file.
    ///
    /// # Errors
    /// It cannot be read, or is not a whole file of this version.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let description = read_description(&file, &metadata)?;
        let length = description.index.content_length();
        Ok(Self {
            canonical: description.canonical,
            index: description.index,
            length,
            modified: jiff::Timestamp::from_second(metadata.mtime()).unwrap_or_default(),
            file: Arc::new(file),
            path: path.to_owned(),
            compressed: Default::default(),
            claimed: Default::default(),
            answers: Answers::default(),
        })
    }

    /// The image by digest, `host/path@algorithm:hex`.
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// What is in it.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Bytes of the data.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// When it was stored, in whole seconds.
    pub fn modified(&self) -> jiff::Timestamp {
        self.modified
    }

    /// Names this data in this format: equal tags mean equal bytes.
    pub fn tag(&self) -> &str {
        let digest = self.canonical.rsplit_once('@').map_or("", |(_, digest)| digest);
        let hex = digest.rsplit_once(':').map_or(digest, |(_, hex)| hex);
        hex.get(..32).unwrap_or(hex)
    }

    /// The file, for reading ranges.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Answers to small queries on this content.
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    /// The whole data compressed, where such a copy exists already.
    pub fn compressed(&self, encoding: Encoding) -> Option<Arc<File>> {
        self.slot(encoding).get().cloned().flatten()
    }

    /// Whether the caller is the first who wants a compressed copy and therefore has to make it.
    pub fn claim_compression(&self, encoding: Encoding) -> bool {
        !self.claimed[encoding as usize].swap(true, Ordering::Relaxed)
    }

    /// Makes the compressed copy unless that was tried before. Blocks for as long as compressing takes.
    pub fn compress(&self, encoding: Encoding) {
        self.slot(encoding).get_or_init(|| {
            let made = self.write_compressed(encoding);
            if let Err(error) = &made {
                tracing::warn!(path = %self.path.display(), %error, "no compressed copy of the content");
            }
            made.ok().map(Arc::new)
        });
    }

    /// The copy has no name: it is gone with the last reader, whatever becomes of this process.
    fn write_compressed(&self, encoding: Encoding) -> io::Result<File> {
        let directory = self.path.parent().unwrap_or_else(|| Path::new("."));
        let mut encoder = encoding.encoder(io::BufWriter::new(tempfile::tempfile_in(directory)?))?;
        let mut position = 0;
        let mut chunk = vec![0; 128 << 10];
        while position < self.length {
            let read = self.read(position..self.length, &mut chunk)?;
            io::Write::write_all(&mut encoder, &chunk[..read])?;
            position += read as u64;
        }
        encoder.finish()?.into_inner().map_err(io::IntoInnerError::into_error)
    }

    fn slot(&self, encoding: Encoding) -> &OnceLock<Option<Arc<File>>> {
        &self.compressed[encoding as usize]
    }

    fn read(&self, range: Range<u64>, buffer: &mut [u8]) -> io::Result<usize> {
        read_range(&self.file, range, buffer)
    }
}

/// Reads the start of `range` into `buffer`, as much as fits; returns how much.
///
/// # Errors
/// The file ends before the range does.
pub fn read_range(file: &File, range: Range<u64>, buffer: &mut [u8]) -> io::Result<usize> {
    let left = range.end.saturating_sub(range.start);
    let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
    file.read_exact_at(&mut buffer[..length], range.start)?;
    Ok(length)
}

fn read_description(file: &File, metadata: &Metadata) -> io::Result<Description> {
    let wrong =
        |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("not catalog content: {what}"));
    let size = metadata.len();
    let trailer_start = size.checked_sub(TRAILER).ok_or_else(|| wrong("too short"))?;
    let mut trailer = [0; TRAILER as usize];
    file.read_exact_at(&mut trailer, trailer_start)?;
    let number = |from: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&trailer[from..from + 8]);
        u64::from_le_bytes(bytes)
    };
    let (data, description) = (number(8), number(16));
    if &trailer[..8] != MAGIC {
        return Err(wrong("another format"));
    }
    let adds_up = data.checked_add(description).and_then(|sum| sum.checked_add(TRAILER)) == Some(size);
    if !adds_up || description > DESCRIPTION_LIMIT {
        return Err(wrong("lengths do not add up"));
    }
    let mut text = vec![0; usize::try_from(description).map_err(|_| wrong("too large"))?];
    file.read_exact_at(&mut text, data)?;
    let description: Description =
        serde_json::from_slice(&text).map_err(|error| wrong(&error.to_string()))?;
    if !description.index.is_consistent() || description.index.content_length() != data {
        return Err(wrong("the index does not fit the data"));
    }
    Ok(description)
}
