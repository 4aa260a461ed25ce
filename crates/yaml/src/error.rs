//! What can be wrong with a YAML document, in the words of the tools.

/// Why a document could not be converted. The texts are those of the reference wherever it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not YAML.
    #[error("error converting YAML to JSON: yaml: {}{problem}", place(*line))]
    Syntax {
        /// Line in the document near which the problem is, as the reference counts; 0 for the first.
        line: usize,
        /// Line in the document of the place where the problem was found, from 1.
        at: usize,
        /// What is wrong there.
        problem: String,
    },
    /// The document is YAML, but has no meaning as a value (unknown anchor, wrong tag, bad merge …).
    #[error("error converting YAML to JSON: yaml: {0}")]
    Invalid(String),
    /// A value that JSON cannot express, such as `.nan`.
    #[error("error converting YAML to JSON: json: unsupported value: {0}")]
    Unsupported(&'static str),
    /// A mapping key without a string form.
    #[error("error converting YAML to JSON: unsupported map key of type: {0}")]
    MapKey(&'static str),
    /// The document is larger than the limit.
    #[error("error converting YAML to JSON: document is larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The document has more nodes than the limit, aliases followed.
    #[error("error converting YAML to JSON: document has more than {limit} values")]
    TooMany {
        /// The limit in scalars, lists and mappings.
        limit: usize,
    },
    /// JSON text that cannot be read as a value.
    #[error("{message}")]
    Json {
        /// What is wrong.
        message: String,
        /// Bytes read when that was found; `None` where the text is JSON.
        offset: Option<usize>,
    },
}

impl Error {
    /// Line in the document where the problem was found, from 1, where the reader knows it.
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::Syntax { at, .. } => Some(*at),
            _ => None,
        }
    }
}

/// `line 3: `, or nothing where the line is not known.
fn place(line: usize) -> String {
    if line == 0 { String::new() } else { format!("line {line}: ") }
}
