//! YAML and JSON text as the Kubernetes command line tools and servers read it.
//!
//! YAML here is the 1.1 dialect of `sigs.k8s.io/yaml` (docs/design/catalogd.md#yaml-scalars,
//! docs/design/bundles.md#yaml-dialect): `yes` is a boolean,
//! `0644` is octal, keys become strings, the last of two equal keys wins. Documents are turned into JSON
//! text first, exactly as those tools do, and everything typed is read from that text.
//!
//! The crate is pure: it reads what it is handed (bytes or a reader), touches no file and no network, and
//! bounds what a hostile document can cost ([`Limits`]).

mod convert;
mod cursor;
mod error;
mod grammar;
pub mod json;
mod scalar;
mod scan;
mod scan_property;
mod scan_scalar;
mod source;
mod stream;
mod tree;

pub use error::Error;
pub use stream::{DecodeError, Notation, Position, Stream, StreamError};

use serde_json::Value;
use tree::Decimals;

/// What one document may cost. The defaults hold every catalog and bundle seen in the field many times over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one document before it is parsed.
    pub document_bytes: usize,
    /// Bytes of the JSON text that a YAML document expands to; aliases can repeat large values.
    pub expanded_bytes: usize,
    /// Nesting of lists and mappings, aliases followed.
    pub depth: usize,
    /// Scalars, lists and mappings of one document, keys and aliases included; of a JSON document as its punctuation tells.
    /// A mapping of one short entry takes a hundred times its text once it is a value.
    pub nodes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { document_bytes: 64 << 20, expanded_bytes: 128 << 20, depth: 10_000, nodes: 16_000_000 }
    }
}

/// Converts the first YAML document of `yaml` to JSON text; anything after it is not looked at, as in
/// `sigs.k8s.io/yaml`. Nothing but white space and comments gives `null`.
///
/// An object may hold the same key more than once: the last one counts.
pub fn to_json(yaml: &[u8], limits: &Limits) -> Result<Vec<u8>, Error> {
    first_to_json(yaml, limits, Decimals::Resolved).map(|(json, _)| json)
}

/// [`to_json`], with the line, from 1, where something begins that was not read.
fn first_to_json(
    yaml: &[u8],
    limits: &Limits,
    decimals: Decimals,
) -> Result<(Vec<u8>, Option<usize>), Error> {
    if yaml.len() > limits.document_bytes {
        return Err(Error::TooLarge { limit: limits.document_bytes });
    }
    let text = source::decode(yaml)?;
    let text = source::with_line_feeds(&text);
    let (tree, unread) = grammar::parse(&text, limits, decimals)?;
    Ok((convert::to_json(&tree, limits)?, unread))
}

/// Reads the first YAML document of `yaml` (JSON is YAML too) as a value.
///
/// Numbers are 64-bit integers where they are integral and fit, doubles otherwise
/// (docs/design/bundles.md#yaml-dialect).
///
/// # Errors
/// The text begins with `error converting YAML to JSON: ` as in the tools; nesting is limited to 500.
pub fn from_slice(yaml: &[u8]) -> Result<Value, Error> {
    let limits = Limits { depth: json::VALUE_DEPTH, ..Limits::default() };
    json::to_value(&to_json(yaml, &limits)?)
}

/// [`from_slice`], but an unquoted number with a fraction or an exponent becomes text, spelled as in the document:
/// `4.20` is a number elsewhere, and then the same as `4.2`.
///
/// # Errors
/// As [`from_slice`].
pub fn from_slice_with_written_decimals(yaml: &[u8]) -> Result<Value, Error> {
    let limits = Limits { depth: json::VALUE_DEPTH, ..Limits::default() };
    let (json, _) = first_to_json(yaml, &limits, Decimals::Written)?;
    json::to_value(&json)
}

/// Reads every document of a stream of YAML documents or concatenated JSON values, in order, with the
/// splitting rules of [`Stream`]. Empty and `null` documents are left out.
///
/// # Errors
/// The first document that cannot be read.
pub fn all_from_slice(text: &[u8]) -> Result<Vec<Value>, StreamError> {
    let limits = Limits { depth: json::VALUE_DEPTH, ..Limits::default() };
    let mut stream = Stream::new(text, limits);
    let mut values = Vec::new();
    while let Some(value) = stream.next(|json, _| json::to_value(json).map_err(DecodeError::from))? {
        if !value.is_null() {
            values.push(value);
        }
    }
    Ok(values)
}
