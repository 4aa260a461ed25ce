//! Limits on the memory and time that a bundle may consume.
//!
//! Every limit is several times what published bundles need: their files have at most 7 MiB in total and 3 MiB
//! each, and their manifests at most 200 000 values. The YAML reader limits nesting to 500 levels. A bundle within
//! the limits is loaded and rendered in seconds.

use std::collections::BTreeMap;

use olm_yaml::{DecodeError, Stream, StreamError, json};
use serde_json::Value;

use crate::bundle::Bundle;
use crate::csv::Deployment;
use crate::load::LoadError;
use crate::render::{RenderError, RenderOptions};
use crate::support::Targets;
use crate::validate::Fault;

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
/// Maximum number of keys and values in all manifests, with aliases expanded and objects counted twice. Each may
/// take a kilobyte of memory.
const VALUES: usize = 1_500_000;
/// Maximum number of objects in all manifests, and of parts of the ClusterServiceVersion that yield objects.
const OBJECTS: usize = 10_000;
/// Maximum size of repeated content in the rendered objects.
const REPEATED_BYTES: usize = 64 << 20;
/// Maximum size of the texts of faults.
const FAULTS_BYTES: usize = 1 << 20;

fn exceeded(file: &str, limit: usize, what: &'static str) -> LoadError {
    LoadError::TooLarge { file: file.to_string(), limit, what }
}

/// Checks number and size of the files before parsing. Files that are not read are ignored.
///
/// # Errors
/// [`LoadError::TooLarge`] for the first file, by name, that exceeds a limit.
pub(crate) fn check(files: &BTreeMap<String, Vec<u8>>) -> Result<(), LoadError> {
    let (mut count, mut bytes) = (0, 0);
    for (path, content) in files {
        let most = match path {
            path if path.starts_with(METADATA) => METADATA_BYTES,
            path if path.starts_with(MANIFESTS) => MANIFEST_BYTES,
            _ => continue,
        };
        count += 1;
        bytes += content.len();
        if count > FILES {
            return Err(exceeded(path, FILES, "files in a bundle"));
        }
        if content.len() > most {
            return Err(exceeded(path, most, "bytes in this file"));
        }
        if bytes > BYTES {
            return Err(exceeded(path, BYTES, "bytes in all files of a bundle"));
        }
    }
    Ok(())
}

/// Consumption of the manifests read so far. Other readers of manifests use it to accept no more than
/// [`Bundle::load`] does.
#[derive(Debug, Default)]
pub struct Spent {
    text: usize,
    values: usize,
    objects: usize,
}

/// Reason why a manifest was not read completely.
#[derive(Debug)]
pub enum Unread {
    /// The manifest is invalid.
    Wrong(StreamError),
    /// A limit is exceeded.
    Limit(LoadError),
}

impl Spent {
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
    /// See [`Unread`].
    pub fn next_document(&mut self, file: &str, stream: &mut Stream<&[u8]>) -> Result<Option<Value>, Unread> {
        let mut exceeded = None;
        // A document that is refused as JSON is decoded again as YAML. The first error counts.
        let read = stream.next(|json, _| match self.document(file, json) {
            Ok(()) => json::to_value(json).map_err(DecodeError::from),
            Err(limit) => {
                let message = limit.to_string();
                exceeded.get_or_insert(limit);
                Err(DecodeError { message, offset: None })
            }
        });
        match exceeded {
            Some(limit) => Err(Unread::Limit(limit)),
            None => read.map_err(Unread::Wrong),
        }
    }

    /// Counts one document of the manifest `file`, as JSON, before it is parsed.
    fn document(&mut self, file: &str, json: &[u8]) -> Result<(), LoadError> {
        self.text(file, json.len())?;
        self.values(file, count_values(json))
    }

    /// Counts one object of the manifest `file`.
    ///
    /// # Errors
    /// [`LoadError::TooLarge`].
    pub fn object(&mut self, file: &str) -> Result<(), LoadError> {
        self.objects += 1;
        if self.objects > OBJECTS { Err(exceeded(file, OBJECTS, "objects in a bundle")) } else { Ok(()) }
    }

    /// Counts text of the manifest `file` that is repeated in memory.
    pub(crate) fn text(&mut self, file: &str, bytes: usize) -> Result<(), LoadError> {
        self.text = self.text.saturating_add(bytes);
        if self.text <= TEXT_BYTES {
            return Ok(());
        }
        Err(exceeded(file, TEXT_BYTES, "bytes in all manifests, aliases followed"))
    }

    fn values(&mut self, file: &str, values: usize) -> Result<(), LoadError> {
        self.values += values;
        if self.values <= VALUES {
            return Ok(());
        }
        Err(exceeded(file, VALUES, "values in all manifests, aliases followed"))
    }
}

/// Estimates the number of keys and values in JSON, weighted by memory, without parsing it.
fn count_values(json: &[u8]) -> usize {
    let cost = |byte| match byte {
        b',' | b':' | b'[' => 1,
        // An object takes more memory. So may null, which can become an object full of defaults.
        b'{' => 2,
        b'n' => 5,
        _ => 0,
    };
    1 + json::outside_strings(json).map(cost).sum::<usize>()
}

/// Checks the number of parts of the ClusterServiceVersion that yield objects.
///
/// # Errors
/// [`LoadError::TooLarge`].
pub(crate) fn check_parts(bundle: &Bundle) -> Result<(), LoadError> {
    let spec = &bundle.csv.spec;
    let strategy = &spec.install.spec;
    let containers: usize = bundle.csv.deployments().iter().map(containers).sum();
    let parts = bundle.csv.deployments().len()
        + containers
        + strategy.permissions.len()
        + strategy.cluster_permissions.len()
        + spec.webhooks.len();
    if parts <= OBJECTS {
        return Ok(());
    }
    let file = bundle.csv_files.last().map(String::as_str).unwrap_or_default();
    Err(exceeded(file, OBJECTS, "deployments, containers, permissions and webhooks"))
}

/// Checks the size of content that rendering repeats: annotations per deployment, configuration per container, and
/// permissions per namespace.
///
/// # Errors
/// [`RenderError::Generate`].
pub(crate) fn check_rendered(
    bundle: &Bundle,
    options: &RenderOptions<'_>,
    targets: &Targets,
) -> Result<(), RenderError> {
    let strategy = &bundle.csv.spec.install.spec;
    let deployments = bundle.csv.deployments();
    let annotations: usize = bundle.annotations().iter().map(|(key, value)| key.len() + value.len()).sum();
    let config = options.config.map_or(0, size);
    let containers: usize = deployments.iter().map(containers).sum();
    let places = match targets {
        Targets::All => 1,
        Targets::Namespaces(names) => names.len(),
    };
    let permissions = strategy.permissions.iter().flat_map(|permission| permission.rules.iter().flatten());
    let permissions = strategy.permissions.len() * PERMISSION_BYTES + permissions.map(size).sum::<usize>();
    let repeated = [
        deployments.len().saturating_mul(annotations),
        config.saturating_mul(deployments.len() + containers + bundle.csv.spec.webhooks.len()),
        permissions.saturating_mul(places),
    ];
    if repeated.into_iter().fold(0, usize::saturating_add) <= REPEATED_BYTES {
        return Ok(());
    }
    Err(RenderError::Generate(format!(
        "the rendered objects would be too large: annotations in every deployment, configuration in every container and \
         permissions for every namespace may have {REPEATED_BYTES} bytes"
    )))
}

fn containers(deployment: &Deployment) -> usize {
    deployment.spec.pointer("/template/spec/containers").and_then(Value::as_array).map_or(0, Vec::len)
}

/// Size of a Role and a RoleBinding without rules.
const PERMISSION_BYTES: usize = 512;

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

/// Truncates faults to [`FAULTS_BYTES`]. Lazy, because there may be one fault per pair of names in the bundle.
pub(crate) fn bounded(faults: impl Iterator<Item = Fault>) -> Vec<Fault> {
    let mut bytes = 0;
    let mut kept: Vec<Fault> = Vec::new();
    for fault in faults {
        bytes += fault.text.len();
        if let Some(last) = kept.last()
            && bytes > FAULTS_BYTES
        {
            let text = "and more, which are not listed".to_string();
            kept.push(Fault { validator: last.validator, subject: String::new(), text });
            break;
        }
        kept.push(fault);
    }
    kept
}

/// Joins names with commas, up to [`FAULTS_BYTES`].
pub(crate) fn joined(names: &[&str]) -> String {
    let mut text = String::new();
    for (number, name) in names.iter().enumerate() {
        if number > 0 {
            text.push(',');
        }
        if text.len() > FAULTS_BYTES {
            text.push_str("...");
            break;
        }
        text.push_str(name);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validate::Validator;

    #[test]
    fn json_values_are_counted_by_weight() {
        for (value, expected) in [
            (json!(null), 6),
            (json!({"a,bn": "[{:\"\\"}), 4),
            (json!([1, 2, 3]), 4),
            (json!({"a": [{}, {}], "b": null}), 17),
        ] {
            assert_eq!(count_values(value.to_string().as_bytes()), expected, "{value}");
        }
    }

    #[test]
    fn fault_list_is_truncated_by_size() {
        let fault = |bytes: usize| {
            let (subject, text) = (String::new(), "x".repeat(bytes));
            Fault { validator: Validator::Webhook, subject, text }
        };
        assert_eq!(bounded([fault(1), fault(2)].into_iter()), [fault(1), fault(2)]);
        let kept = bounded(std::iter::repeat_with(|| fault(1 << 18)));
        assert_eq!((kept.len(), kept[4].text.as_str()), (5, "and more, which are not listed"));
        // A single fault is never truncated.
        assert_eq!(bounded(std::iter::once(fault(2 << 20))).len(), 1);
    }
}
