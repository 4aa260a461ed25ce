//! Immutable stored content of one catalog: data, index and the image that it is from.
//!
//! File layout: the data (JSON lines), the description (JSON), and a trailer of 24 bytes: 8 bytes magic with the
//! format version, length of the data and of the description (little-endian u64).

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use olm_fbc::MetaSelector;
use olm_graphql::{Executor, SchemaError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::Index;
use super::answer_cache::AnswerCache;
use super::copies::{CompressedCopies, CompressedCopy, CopySource};
use crate::encoding::Encoding;

/// Magic with the format version. A file of another version is rejected and rebuilt.
pub(super) const MAGIC: &[u8; 8] = b"OLMCAT\x001";
pub(super) const TRAILER: u64 = 24;
/// Name of the content file in its catalog's directory.
pub(super) const CONTENT: &str = "content";
/// Maximum size of a description. The limits of the index keep it below.
const DESCRIPTION_LIMIT: u64 = 128 << 20;

/// Metadata of the content file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Description {
    /// Digest reference of the image, as in `status.resolvedSource`.
    pub(super) canonical: String,
    pub(super) index: Index,
    /// Result of the observer, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) findings: Option<serde_json::Value>,
}

/// Immutable content. It stays readable while it is held, even after it was replaced.
#[derive(Debug)]
pub struct Snapshot {
    /// Digest reference of the image, `host/path@algorithm:hex`.
    pub canonical: String,
    /// Index of the content.
    pub index: Index,
    /// Time of storing, in whole seconds.
    pub modified: jiff::Timestamp,
    /// Identifier of the data: equal tags mean equal bytes. Contains no `-`.
    pub tag: String,
    /// The data in the file.
    pub data: CopySource,
    /// Cache of answers to queries on this content.
    pub answers: AnswerCache,
    /// Result of the observer while this content was stored, if there was one.
    pub findings: Option<serde_json::Value>,
    /// GraphQL executor, built by the first query.
    pub executor: Mutex<Option<Arc<Result<Executor, SchemaError>>>>,
    copies: Arc<CompressedCopies>,
}

impl Snapshot {
    /// Opens a content file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a complete file of this version.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let description = read_description(&file, &metadata)?;
        let length = description.index.content_length();
        let directory = path.parent().unwrap_or_else(|| Path::new("."));
        Ok(Self {
            tag: tag(&description.canonical),
            canonical: description.canonical,
            index: description.index,
            modified: whole_seconds(&metadata).unwrap_or_default(),
            data: CopySource { file: Arc::new(file), length, directory: directory.into() },
            copies: Arc::default(),
            answers: AnswerCache::default(),
            findings: description.findings,
            executor: Mutex::default(),
        })
    }

    /// The byte ranges that answer `selector`, found lazily.
    pub fn ranges(
        self: &Arc<Self>,
        selector: &MetaSelector,
    ) -> impl Iterator<Item = Range<u64>> + Send + use<> {
        let (snapshot, mut query) = (Arc::clone(self), self.index.query(selector));
        std::iter::from_fn(move || snapshot.index.next_range(&mut query))
    }

    /// The digest of the image, `algorithm:hex`.
    pub fn digest(&self) -> &str {
        digest(&self.canonical)
    }

    /// The whole data compressed. Starts compressing if necessary. `None` if no copy is available soon.
    pub async fn compressed(&self, encoding: Encoding) -> Option<CompressedCopy> {
        self.copies.get(encoding, &self.data).await
    }
}

fn whole_seconds(metadata: &Metadata) -> Option<jiff::Timestamp> {
    let modified = jiff::Timestamp::try_from(metadata.modified().ok()?).ok()?;
    jiff::Timestamp::from_second(modified.as_second()).ok()
}

fn digest(canonical: &str) -> &str {
    canonical.rsplit_once('@').map_or("", |(_, digest)| digest)
}

/// The start of the image's digest and the version of the format, because another version may store other bytes.
fn tag(canonical: &str) -> String {
    let digest = digest(canonical);
    let hex = digest.rsplit_once(':').map_or(digest, |(_, hex)| hex);
    let version = MAGIC[MAGIC.len() - 1] as char;
    format!("{}.{version}", hex.get(..32).unwrap_or(hex))
}

fn read_description(file: &File, metadata: &Metadata) -> io::Result<Description> {
    let wrong =
        |what: &str| io::Error::new(io::ErrorKind::InvalidData, format!("not catalog content: {what}"));
    let size = metadata.len();
    let trailer_start = size.checked_sub(TRAILER).ok_or_else(|| wrong("too short"))?;
    let mut trailer = [[0; 8]; 3];
    olm_os::read_exact_at(file, trailer.as_flattened_mut(), trailer_start)?;
    let [magic, data, description] = trailer;
    let (data, description) = (u64::from_le_bytes(data), u64::from_le_bytes(description));
    if &magic != MAGIC {
        return Err(wrong("another format"));
    }
    let adds_up = data.checked_add(description).and_then(|sum| sum.checked_add(TRAILER)) == Some(size);
    if !adds_up || description > DESCRIPTION_LIMIT {
        return Err(wrong("lengths do not add up"));
    }
    let mut text = vec![0; usize::try_from(description).map_err(|_| wrong("too large"))?];
    olm_os::read_exact_at(file, &mut text, data)?;
    let description: Description =
        serde_json::from_slice(&text).map_err(|error| wrong(&error.to_string()))?;
    if description.index.content_length() != data {
        return Err(wrong("the index does not fit the data"));
    }
    Ok(description)
}
