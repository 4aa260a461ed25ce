//! Position of an object in the files of a catalog.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use olm_yaml::Position;

/// File, document and line. Printed as `foo/catalog.yaml:41: document 3`, or without a file as `line 41: document
/// 3`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// File relative to the root of the catalog. Empty if unknown to the reader.
    pub file: Arc<Path>,
    /// Number of the document in the file, from 1.
    pub document: usize,
    /// Line of the file, from 1.
    pub line: usize,
}

impl Origin {
    pub(crate) fn new(file: Arc<Path>, position: Position) -> Self {
        Self { file, document: position.document, line: position.line }
    }
}

impl Default for Origin {
    fn default() -> Self {
        Self::new(Arc::from(PathBuf::new()), Position::default())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.file.as_os_str().is_empty() {
            write!(f, "line {}: document {}", self.line, self.document)
        } else {
            write!(f, "{}:{}: document {}", self.file.display(), self.line, self.document)
        }
    }
}
