//! Errors of building and writing images.

use std::path::PathBuf;

/// Failure to build or write an image. Every text names the affected object.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// A path outside of the image.
    #[error("{0:?} is not a path relative to the image root")]
    Path(String),
    /// A path that tar cannot store.
    #[error("add {path} to the archive: {cause}")]
    Archive {
        /// Path in the archive.
        path: String,
        /// Error of tar.
        cause: std::io::Error,
    },
    /// The files are not a bundle.
    #[error("{0}")]
    Bundle(String),
    /// A part of an image cannot be written as JSON.
    #[error("encode the image: {0}")]
    Encode(#[from] serde_json::Error),
    /// A file or folder cannot be read or written.
    #[error("{action} {}: {cause}", path.display())]
    File {
        /// `read`, `write`, …
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Error of the system.
        cause: std::io::Error,
    },
    /// A folder is not an OCI image layout, or an unsupported one.
    #[error("{}: {why}", path.display())]
    Layout {
        /// The folder or a file in it.
        path: PathBuf,
        /// Fault and expectation.
        why: String,
    },
    /// A key cannot be used for signing.
    #[error("private key: {0}")]
    Key(&'static str),
    /// A tag of the registry has content to which nothing can be added.
    #[error("tag {tag}: {why}")]
    Tag {
        /// The tag, without its repository.
        tag: String,
        /// Fault and expectation.
        why: String,
    },
}
