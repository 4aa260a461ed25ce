//! Errors of a YAML document, in the words of upstream.

/// Failure to convert a document. The texts match upstream wherever upstream has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not YAML.
    #[error("error converting YAML to JSON: yaml: {}{problem}", line_prefix(*line))]
    Syntax {
        /// Line in the document near the fault, counted as upstream does. 0 for the first line.
        line: usize,
        /// Line in the document at which the fault was found, from 1.
        at: usize,
        /// The fault.
        problem: String,
    },
    /// The document is YAML, but has no valid value (unknown anchor, wrong tag, bad merge …).
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
        /// Limit in bytes.
        limit: usize,
    },
    /// The document has more nodes than the limit, with aliases expanded.
    #[error("error converting YAML to JSON: document has more than {limit} values")]
    TooMany {
        /// Limit in scalars, lists and mappings.
        limit: usize,
    },
    /// Text that cannot be parsed as a JSON value.
    #[error(transparent)]
    Json(#[from] DecodeError),
}

/// Error of JSON text, in the words of Go's decoder, or of the decoder of a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    /// The fault.
    pub message: String,
    /// Bytes read when the fault was found. `None` if the text is JSON.
    pub offset: Option<usize>,
}

impl Error {
    /// Line in the document at which the fault was found, from 1, if known.
    pub fn line(&self) -> Option<usize> {
        match self {
            Self::Syntax { at, .. } => Some(*at),
            _ => None,
        }
    }
}

/// Formats `line 3: `, or nothing if the line is unknown.
fn line_prefix(line: usize) -> String {
    if line == 0 { String::new() } else { format!("line {line}: ") }
}
