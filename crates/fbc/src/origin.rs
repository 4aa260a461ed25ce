//! Position of an object in the files of a catalog.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use olm_yaml::Position;
use serde::{Serialize, Serializer};

/// File, document and line. Printed as `foo/catalog.yaml:41: document 3`, or without a file as `line 41: document
/// 3`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Origin {
    /// File relative to the root of the catalog. Empty if unknown to the reader.
    #[serde(serialize_with = "shown")]
    pub file: Arc<Path>,
    /// Line of the file, from 1.
    pub line: usize,
    /// Number of the document in the file, from 1.
    pub document: usize,
}

impl Origin {
    pub(crate) fn new(file: Arc<Path>, position: Position) -> Self {
        Self { file, document: position.document, line: position.line }
    }
}

fn shown<S: Serializer>(file: &Arc<Path>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&file.display())
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
