//! Limits on the memory and time that a bundle may consume.
//!
//! Every limit is several times what published bundles need: their files have at most 7 MiB in total and 3 MiB
//! each, and their manifests at most 200 000 values. The YAML reader limits nesting to 500 levels. A bundle within
//! the limits is loaded and rendered in seconds.

use std::collections::{BTreeMap, BTreeSet};

use olm_yaml::{DecodeError, Stream, StreamError, json};
use serde_json::Value;

use crate::error::BundleLoadError;

const METADATA: &str = "metadata/";
const MANIFESTS: &str = "manifests/";

/// Maximum number of files.
const FILES: usize = 5_000;
/// Maximum size of a manifest. The API server rejects objects above 3 MiB, but parts of the ClusterServiceVersion
/// are not installed.
const MANIFEST_BYTES: usize = 16 << 20;
/// Maximum size of a metadata file.
const METADATA_BYTES: usize = 1 << 20;
/// Maximum size of all files.
const BYTES: usize = 48 << 20;
/// Maximum size of all manifests as JSON, with aliases expanded.
const TEXT_BYTES: usize = 64 << 20;
/// Maximum number of keys and values in all manifests, with aliases expanded and [weighted](count_values). Each takes up to
/// 80 bytes of memory, several times while a bundle is rendered.
const VALUES: usize = 1_500_000;
/// Maximum number of objects in all manifests, and of parts of the ClusterServiceVersion that yield objects.
pub(crate) const OBJECTS: usize = 10_000;
pub(crate) fn exceeded(file: &str, limit: usize, what: &'static str) -> BundleLoadError {
    BundleLoadError::TooLarge { file: file.to_string(), limit, what }
}

/// Checks number and size of the files before parsing. Files that are not read are ignored.
///
/// # Errors
/// [`BundleLoadError::TooLarge`] for the first file, by name, that exceeds a limit.
pub(crate) fn check(files: &BTreeMap<String, Vec<u8>>) -> Result<(), BundleLoadError> {
    let (mut files_read, mut bytes) = (0, 0);
    for (path, content) in files {
        let most = match path {
            path if path.starts_with(METADATA) => METADATA_BYTES,
            path if path.starts_with(MANIFESTS) => MANIFEST_BYTES,
            _ => continue,
        };
        count(&mut files_read, 1, FILES, path, "files in a bundle")?;
        if content.len() > most {
            return Err(exceeded(path, most, "bytes in this file"));
        }
        count(&mut bytes, content.len(), BYTES, path, "bytes in all files of a bundle")?;
    }
    Ok(())
}

/// Consumption of the manifests read so far. Other readers of manifests use it to accept no more than
/// [`BundleContent::load`](crate::BundleContent::load) does.
#[derive(Debug, Default)]
pub struct ManifestUsage {
    text: usize,
    values: usize,
    objects: usize,
}

/// Reason why a manifest was not read completely.
#[derive(Debug)]
pub enum ManifestError {
    /// The manifest is invalid.
    Invalid(StreamError),
    /// A limit is exceeded.
    TooLarge(BundleLoadError),
}

impl ManifestUsage {
    /// Limits for the reader of one manifest.
    pub fn manifest_limits() -> olm_yaml::Limits {
        olm_yaml::Limits {
            expanded_bytes: TEXT_BYTES,
            depth: json::VALUE_DEPTH,
            nodes: VALUES,
            ..olm_yaml::Limits::default()
        }
    }

    /// Next document of the manifest `file`. `None` at the end.
    ///
    /// # Errors
    /// See [`ManifestError`].
    pub fn next_document(
        &mut self,
        file: &str,
        stream: &mut Stream<&[u8]>,
    ) -> Result<Option<Value>, ManifestError> {
        let mut exceeded = None;
        // A document that is refused as JSON is decoded again as YAML. The first error counts.
        let read = stream.next(|json, _| match self.document(file, json) {
            Ok(()) => json::to_value(json),
            Err(limit) => {
                let message = limit.to_string();
                exceeded.get_or_insert(limit);
                Err(DecodeError { message, offset: None })
            }
        });
        match exceeded {
            Some(limit) => Err(ManifestError::TooLarge(limit)),
            None => read.map_err(ManifestError::Invalid),
        }
    }

    /// Counts one document of the manifest `file`, as JSON, before it is parsed.
    fn document(&mut self, file: &str, json: &[u8]) -> Result<(), BundleLoadError> {
        self.text(file, json.len())?;
        let what = "values in all manifests, aliases followed";
        count(&mut self.values, count_values(json), VALUES, file, what)
    }

    /// Counts one object of the manifest `file`.
    ///
    /// # Errors
    /// [`BundleLoadError::TooLarge`].
    pub fn object(&mut self, file: &str) -> Result<(), BundleLoadError> {
        count(&mut self.objects, 1, OBJECTS, file, "objects in a bundle")
    }

    /// Counts text of the manifest `file` that is repeated in memory.
    pub(crate) fn text(&mut self, file: &str, bytes: usize) -> Result<(), BundleLoadError> {
        count(&mut self.text, bytes, TEXT_BYTES, file, "bytes in all manifests, aliases followed")
    }
}

fn count(
    used: &mut usize,
    more: usize,
    limit: usize,
    file: &str,
    what: &'static str,
) -> Result<(), BundleLoadError> {
    *used = used.saturating_add(more);
    if *used > limit { Err(exceeded(file, limit, what)) } else { Ok(()) }
}

/// Estimates the number of keys and values in JSON, weighted by memory, without parsing it.
fn count_values(json: &[u8]) -> usize {
    let cost = |byte| match byte {
        b',' | b':' | b'[' => 1,
        // The smallest object takes 640 bytes.
        b'{' => 6,
        // It can become an object full of defaults.
        b'n' => 5,
        _ => 0,
    };
    1 + json::outside_strings(json).map(cost).sum::<usize>()
}

/// Approximate size of `value` as JSON in bytes.
pub(crate) fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| size(item) + 1).sum::<usize>(),
        Value::Object(entries) => {
            2 + entries.iter().map(|(key, value)| key.len() + 4 + size(value)).sum::<usize>()
        }
    }
}

/// Sorted texts, at most a hundred and the number of further ones.
pub(crate) fn sorted_texts(texts: BTreeSet<String>) -> Vec<String> {
    const MOST: usize = 100;
    let more = texts.len().saturating_sub(MOST);
    let mut first: Vec<String> = texts.into_iter().take(MOST).collect();
    match more {
        0 => {}
        1 => first.push("1 more of this kind is not listed".to_string()),
        _ => first.push(format!("{more} more of this kind are not listed")),
    }
    first
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_values_are_counted_by_weight() {
        for (value, expected) in [
            (json!(null), 6),
            (json!({"a,bn": "[{:\"\\"}), 8),
            (json!([1, 2, 3]), 4),
            (json!({"a": [{}, {}], "b": null}), 29),
        ] {
            assert_eq!(count_values(value.to_string().as_bytes()), expected, "{value}");
        }
    }
}
