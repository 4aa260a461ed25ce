//! Why an image cannot be made, written or pushed.

use std::path::PathBuf;

/// Why an image cannot be made, written or pushed. Every text names what it is about.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// A path that does not lie in the image.
    #[error("{0:?} is not a path relative to the image root")]
    Path(String),
    /// A path that tar cannot hold.
    #[error("add {path} to the archive: {cause}")]
    Archive {
        /// Path in the archive.
        path: String,
        /// What tar says.
        cause: std::io::Error,
    },
    /// The files are no bundle.
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
        /// What the system says.
        cause: std::io::Error,
    },
    /// A folder that should be an OCI image layout is none, or one that we cannot use.
    #[error("{}: {why}", path.display())]
    Layout {
        /// The folder or a file in it.
        path: PathBuf,
        /// What is wrong and what is expected.
        why: String,
    },
    /// The text is no image reference with a tag.
    #[error("image reference {text:?}: {why}")]
    Reference {
        /// The text as given.
        text: String,
        /// The rule that it breaks.
        why: String,
    },
    /// The registry does not take the image.
    #[error("push {reference}: {why}")]
    Push {
        /// Where to.
        reference: String,
        /// What the registry or the network says.
        why: String,
    },
}
