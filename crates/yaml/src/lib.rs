//! YAML and JSON text as Kubernetes command line tools and servers read it.
//!
//! YAML means the 1.1 dialect of `sigs.k8s.io/yaml` (docs/design/catalogd.md#yaml-scalars,
//! docs/design/bundles.md#yaml-dialect): `yes` is a boolean, `0644` is octal, keys become strings, the last of two
//! equal keys wins. Documents are first converted to JSON text, exactly as in those tools, and typed values are
//! parsed from that text.
//!
//! The crate is pure: it reads from bytes or a reader, accesses no files and no network, and bounds the cost of a
//! hostile document ([`Limits`]).

mod convert;
mod cursor;
mod error;
mod field_lines;
mod grammar;
pub mod json;
mod repeated_keys;
mod scalar;
mod scan;
mod scan_property;
mod scan_scalar;
mod source;
mod stream;
mod tree;

pub use error::{DecodeError, Error};
pub use field_lines::field_lines;
pub use repeated_keys::{RepeatedKey, all_repeated_keys, repeated_keys};
pub use stream::{Notation, Position, Stream, StreamError};

use serde_json::Value;
use tree::Decimals;

/// Limits of one document. The defaults are several times larger than any known catalog or bundle.
///
/// ```
/// let limits = olm_yaml::Limits { document_bytes: 10, ..Default::default() };
/// assert!(olm_yaml::to_json(b"a: 12345678", &limits).is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one document before it is parsed.
    pub document_bytes: usize,
    /// Bytes of the JSON text that a YAML document expands to. Aliases can repeat large values.
    pub expanded_bytes: usize,
    /// Nesting of lists and mappings, with aliases expanded.
    pub depth: usize,
    /// Scalars, lists and mappings of one document, including keys and aliases. Estimated from punctuation in a
    /// JSON document. A mapping of one short entry takes a hundred times the memory of its text as a value.
    pub nodes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { document_bytes: 64 << 20, expanded_bytes: 128 << 20, depth: 10_000, nodes: 16_000_000 }
    }
}

/// Converts the first YAML document of `yaml` to JSON text. Content after it is ignored, as in `sigs.k8s.io/yaml`.
/// A document of only white space and comments yields `null`.
///
/// An object may contain the same key more than once: the last one wins.
///
/// ```
/// let json = olm_yaml::to_json(b"{b: yes, a: 1, b: no}", &olm_yaml::Limits::default())?;
/// assert_eq!(json, br#"{"b":true,"a":1,"b":false}"#);
/// # Ok::<(), olm_yaml::Error>(())
/// ```
pub fn to_json(yaml: &[u8], limits: &Limits) -> Result<Vec<u8>, Error> {
    first_to_json(yaml, limits, Decimals::Resolved).map(|(json, _)| json)
}

/// [`to_json`], with the line, from 1, of the first ignored content.
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

/// Parses the first YAML document of `yaml` (JSON is YAML too) as a value.
///
/// Numbers are 64-bit integers if they are integral and fit, otherwise doubles
/// (docs/design/bundles.md#yaml-dialect).
///
/// # Errors
/// The text begins with `error converting YAML to JSON: ` as in upstream tools. Nesting is limited to 500.
///
/// ```
/// let value = olm_yaml::from_slice(b"on: 0644\nlist: [no, 1_000, yEs]")?;
/// assert_eq!(value, serde_json::json!({"true": 420, "list": [false, 1000, "yEs"]}));
/// # Ok::<(), olm_yaml::Error>(())
/// ```
pub fn from_slice(yaml: &[u8]) -> Result<Value, Error> {
    value(yaml, Decimals::Resolved)
}

/// [`from_slice`], but an unquoted number with a fraction or an exponent becomes a string, spelled as in the
/// document. Otherwise `4.20` is the same number as `4.2`.
///
/// # Errors
/// Those of [`from_slice`].
///
/// ```
/// let value = olm_yaml::from_slice_with_written_decimals(b"[4.20, 5]")?;
/// assert_eq!(value, serde_json::json!(["4.20", 5]));
/// # Ok::<(), olm_yaml::Error>(())
/// ```
pub fn from_slice_with_written_decimals(yaml: &[u8]) -> Result<Value, Error> {
    value(yaml, Decimals::Written)
}

fn value(yaml: &[u8], decimals: Decimals) -> Result<Value, Error> {
    let limits = Limits { depth: json::VALUE_DEPTH, ..Limits::default() };
    let (json, _) = first_to_json(yaml, &limits, decimals)?;
    Ok(json::to_value(&json)?)
}

/// Parses every document of a stream of YAML documents or concatenated JSON values, in order, with the splitting
/// rules of [`Stream`]. Empty and `null` documents are skipped.
///
/// # Errors
/// The first document that cannot be parsed.
///
/// ```
/// let values = olm_yaml::all_from_slice(b"a: 1\n---\nb: y\n")?;
/// assert_eq!(values, [serde_json::json!({"a": 1}), serde_json::json!({"b": true})]);
/// # Ok::<(), olm_yaml::StreamError>(())
/// ```
pub fn all_from_slice(text: &[u8]) -> Result<Vec<Value>, StreamError> {
    let limits = Limits { depth: json::VALUE_DEPTH, ..Limits::default() };
    let mut stream = Stream::new(text, limits);
    let mut values = Vec::new();
    while let Some(value) = stream.next(|json, _| json::to_value(json))? {
        if !value.is_null() {
            values.push(value);
        }
    }
    Ok(values)
}
