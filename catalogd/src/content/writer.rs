//! Writing new content beside the old, out of sight until it is complete.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use olm_fbc::{LoadError, Meta};
use tempfile::NamedTempFile;

use super::index::{IndexBuilder, TooLarge};
use super::snapshot::{Description, MAGIC, Snapshot};

/// Why content could not be stored.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The catalog's files are not catalog content; the same image fails in the same way.
    #[error("error walking FBC root: {0}")]
    Load(#[from] LoadError),
    /// An object is larger than can be stored.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// The disk.
    #[error("error writing catalog content: {0}")]
    Io(#[from] std::io::Error),
}

/// Takes the objects of one catalog in order.
#[derive(Debug)]
pub struct Writer {
    file: BufWriter<NamedTempFile>,
    index: IndexBuilder,
    length: u64,
    target: PathBuf,
}

impl Writer {
    pub(super) fn new(target: PathBuf) -> Result<Self, WriteError> {
        let directory = target.parent().unwrap_or_else(|| Path::new("."));
        std::fs::create_dir_all(directory)?;
        let file = tempfile::Builder::new().prefix(super::store::STAGING_PREFIX).tempfile_in(directory)?;
        let file = BufWriter::with_capacity(128 << 10, file);
        Ok(Self { file, index: IndexBuilder::default(), length: 0, target })
    }

    /// Appends one object; an empty document stores nothing.
    ///
    /// # Errors
    /// The disk, or an object that is too large.
    pub fn push(&mut self, meta: &Meta) -> Result<(), WriteError> {
        if meta.blob.is_empty() {
            return Ok(());
        }
        self.index.push(meta.blob.len(), [&meta.schema, &meta.package, &meta.name])?;
        self.file.write_all(&meta.blob)?;
        self.length += meta.blob.len() as u64;
        Ok(())
    }

    /// Makes the content of the image `canonical` appear under its name in one step.
    ///
    /// # Errors
    /// The disk.
    pub(super) fn finish(mut self, canonical: String) -> Result<Snapshot, WriteError> {
        let description = Description { canonical, index: self.index.finish() };
        let description = serde_json::to_vec(&description).map_err(std::io::Error::other)?;
        self.file.write_all(&description)?;
        self.file.write_all(MAGIC)?;
        self.file.write_all(&self.length.to_le_bytes())?;
        self.file.write_all(&(description.len() as u64).to_le_bytes())?;
        let file = self.file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
        // The name must never stand for half a file, also after a power failure.
        file.as_file().sync_data()?;
        file.persist(&self.target).map_err(|error| error.error)?;
        Ok(Snapshot::open(&self.target)?)
    }
}
