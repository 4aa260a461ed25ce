//! Writer of a content file: staged beside the old file, and renamed over it when complete.

use std::fs::File;
use std::io::{self, BufWriter, Seek, Write};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

use olm_fbc::{DocumentLimits, LoadError, LoadLimits, Meta};
use serde_json::Value;
use tempfile::TempPath;

use super::index::{IndexBuilder, TooLarge};
use super::snapshot::{Description, MAGIC, Snapshot};

/// Prefix of staging files. Readers ignore them, and the next attempt removes them.
const STAGING_PREFIX: &str = ".staging-";

/// Limits on one document. All objects of the field are smaller than 2 MiB.
pub(super) const LIMITS: LoadLimits = LoadLimits {
    entries: 1_000_000,
    document: DocumentLimits {
        document_bytes: 16 << 20,
        expanded_bytes: 16 << 20,
        depth: 10_000,
        nodes: 500_000,
    },
};

/// Error of storing content.
#[derive(Debug, thiserror::Error)]
pub enum ContentWriteError {
    /// The catalog's files cannot be loaded.
    #[error("error walking FBC root: {0}")]
    Load(#[from] LoadError),
    /// The content exceeds a limit.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// An I/O error.
    #[error("error writing catalog content: {0}")]
    Io(#[from] io::Error),
}

impl ContentWriteError {
    /// `true` if every attempt with the same image fails in the same way.
    pub fn is_of_the_content(&self) -> bool {
        match self {
            Self::Load(LoadError::Read { .. }) | Self::Io(_) => false,
            Self::Load(_) | Self::TooLarge(_) => true,
        }
    }
}

/// Observer of every object of a catalog while it is stored. It cannot prevent storing: an observer that panics is
/// dropped, and has no result.
pub trait Observer: Send {
    /// Receives the next object.
    fn observe(&mut self, meta: &Meta);

    /// The result, which is stored with the content, see [`Snapshot::findings`].
    fn finish(self: Box<Self>) -> Option<Value>;
}

/// Writer of the objects of one catalog, in order.
pub struct Writer {
    file: BufWriter<File>,
    /// Deleted when dropped, unless renamed to the target.
    staging: TempPath,
    index: IndexBuilder,
    length: u64,
    target: PathBuf,
    observer: Option<Box<dyn Observer>>,
}

impl Writer {
    /// A writer of the content file `target`, whose directory exists.
    pub(super) fn new(
        target: PathBuf,
        observer: Option<Box<dyn Observer>>,
    ) -> Result<Self, ContentWriteError> {
        let staging = tempfile::Builder::new().prefix(STAGING_PREFIX).tempfile_in(directory_of(&target));
        // Errors with the random name would differ at each attempt and change the status.
        let (file, staging) = staging.map_err(|error| io::Error::from(error.kind()))?.into_parts();
        let file = BufWriter::with_capacity(128 << 10, file);
        Ok(Self { file, staging, index: IndexBuilder::default(), length: 0, target, observer })
    }

    /// Appends one object. An empty document is skipped.
    ///
    /// # Errors
    /// An I/O error, or content that exceeds a limit.
    pub fn push(&mut self, meta: &Meta) -> Result<(), ContentWriteError> {
        if meta.blob.is_empty() {
            return Ok(());
        }
        self.index.push(meta.blob.len(), [&meta.schema, &meta.package, &meta.name])?;
        self.file.write_all(&meta.blob)?;
        self.length += meta.blob.len() as u64;
        if let Some(mut observer) = self.observer.take() {
            self.observer = unless_panicked(move || {
                observer.observe(meta);
                observer
            });
        }
        Ok(())
    }

    /// Publishes the content of the image `canonical` under its final name by one rename.
    ///
    /// # Errors
    /// An I/O error.
    pub(super) fn finish(mut self, canonical: String) -> Result<Snapshot, ContentWriteError> {
        let findings = self.observer.take().and_then(|observer| unless_panicked(|| observer.finish())?);
        // Freed before the snapshot is opened: the index can be as large as all else together.
        let description = Description { canonical, index: self.index.finish(), findings };
        serde_json::to_writer(&mut self.file, &description).map_err(io::Error::from)?;
        drop(description);
        let described = self.file.stream_position()? - self.length;
        self.file.write_all(MAGIC)?;
        self.file.write_all(&self.length.to_le_bytes())?;
        self.file.write_all(&described.to_le_bytes())?;
        let file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        // Synced before the rename, so that a power failure cannot leave a partial file under the final name.
        file.sync_data()?;
        self.staging.persist(&self.target).map_err(|error| error.error)?;
        olm_os::sync_directory(directory_of(&self.target))?;
        Ok(Snapshot::open(&self.target)?)
    }
}

fn directory_of(target: &Path) -> &Path {
    target.parent().unwrap_or_else(|| Path::new("."))
}

fn unless_panicked<T>(observe: impl FnOnce() -> T) -> Option<T> {
    let result = std::panic::catch_unwind(AssertUnwindSafe(observe));
    if result.is_err() {
        tracing::error!("observer of stored content panicked: this is a defect");
    }
    result.ok()
}
