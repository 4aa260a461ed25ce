//! How much a bundle may cost: whoever publishes one decides nothing about our memory and time.
//!
//! Every limit holds what real bundles need several times over: of those, all files together have at most 7 MiB, one file
//! 3 MiB, and all manifests 200 000 values. Nesting is limited by the YAML reader (500 levels).
//! What is within the limits is loaded and rendered in seconds.

use std::collections::BTreeMap;

use olm_yaml::{DecodeError, Notation, Stream, StreamError, json};
use serde_json::Value;

use crate::bundle::Bundle;
use crate::csv::Deployment;
use crate::load::LoadError;
use crate::render::{RenderError, RenderOptions};
use crate::support::Targets;
use crate::validate::Fault;

const METADATA: &str = "metadata/";
const MANIFESTS: &str = "manifests/";

/// Files of a bundle.
const FILES: usize = 5_000;
/// One manifest. The API server takes no object of more than 3 MiB, and of the ClusterServiceVersion not all is installed.
const MANIFEST_BYTES: usize = 16 << 20;
/// One file about the bundle.
const METADATA_BYTES: usize = 1 << 20;
/// All files.
const BYTES: usize = 48 << 20;
/// All manifests as JSON text, where aliases are followed.
const TEXT_BYTES: usize = 64 << 20;
/// Keys and values in all manifests, where aliases are followed, objects counted twice: one may take a kilobyte of memory.
const VALUES: usize = 1_500_000;
/// Objects in all manifests, and what the ClusterServiceVersion has objects made of.
const OBJECTS: usize = 10_000;
/// What is said more than once in the rendered objects.
const REPEATED_BYTES: usize = 64 << 20;
/// The texts of what the validators find.
const FAULTS_BYTES: usize = 1 << 20;

fn exceeded(file: &str, limit: usize, what: &'static str) -> LoadError {
    LoadError::TooLarge { file: file.to_string(), limit, what }
}

/// Looks at number and size of the files, before anything is parsed. Files that are not read do not count.
///
/// # Errors
/// [`LoadError::TooLarge`], for the first file by name with which a limit is exceeded.
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

/// What the manifests of a bundle have cost so far. Who reads manifests beside [`Bundle::load`] reads no more than that
/// accepts.
#[derive(Debug, Default)]
pub struct Spent {
    text: usize,
    values: usize,
    objects: usize,
}

/// Why a manifest was not read to its end.
pub(crate) enum Unread {
    /// It is not what it should be.
    Wrong(StreamError),
    /// It is too much.
    Limit(LoadError),
}

impl Spent {
    /// The limits for the reader of one manifest.
    pub fn manifest_limits() -> olm_yaml::Limits {
        olm_yaml::Limits {
            expanded_bytes: TEXT_BYTES,
            depth: json::VALUE_DEPTH,
            nodes: VALUES,
            ..olm_yaml::Limits::default()
        }
    }

    /// Every document of the manifest `file`, in order, as [`olm_yaml::all_from_slice`] gives them.
    pub(crate) fn documents(&mut self, file: &str, content: &[u8]) -> Result<Vec<Value>, Unread> {
        let mut refused = None;
        let mut values = Vec::new();
        let mut stream = Stream::new(content, Self::manifest_limits());
        let mut decode = |text: &[u8], _: Notation| {
            self.document(file, text).map_err(|limit| {
                let message = limit.to_string();
                refused.get_or_insert(limit);
                DecodeError { message, offset: None }
            })?;
            json::to_value(text).map_err(DecodeError::from)
        };
        let read = loop {
            match stream.next(&mut decode) {
                Ok(Some(Value::Null)) => {}
                Ok(Some(value)) => values.push(value),
                Ok(None) => break Ok(values),
                Err(error) => break Err(error),
            }
        };
        match refused {
            Some(limit) => Err(Unread::Limit(limit)),
            None => read.map_err(Unread::Wrong),
        }
    }

    /// Counts one document of the manifest `file`, as JSON text, before it becomes a value.
    ///
    /// # Errors
    /// [`LoadError::TooLarge`].
    pub fn document(&mut self, file: &str, json: &[u8]) -> Result<(), LoadError> {
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

    /// Counts text of the manifest `file` that is there once more than it is written.
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

/// How many keys and values JSON text has, a little more or less, by what they take of memory, without reading it.
fn count_values(json: &[u8]) -> usize {
    let cost = |byte| match byte {
        b',' | b':' | b'[' => 1,
        // An object takes more memory, and so may null, which stands for one full of defaults.
        b'{' => 2,
        b'n' => 5,
        _ => 0,
    };
    1 + json::outside_strings(json).map(cost).sum::<usize>()
}

/// Looks at how many parts of the ClusterServiceVersion become objects of their own.
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

/// Looks at what rendering repeats: annotations in every deployment, the configuration in every container, permissions
/// for every namespace. Each may be large, and there may be many.
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

/// A role and a binding without any rules.
const PERMISSION_BYTES: usize = 512;

/// About how many bytes of JSON text `value` has.
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

/// The faults up to a size that nobody reads to its end. There may be one for each pair of what the bundle names, so
/// that nobody could wait for all of them either.
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

/// The names in one text, of which a fault could not tell more anyway.
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
    fn values_are_counted_without_reading_them() {
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
    fn faults_end() {
        let fault = |bytes: usize| {
            let (subject, text) = (String::new(), "x".repeat(bytes));
            Fault { validator: Validator::Webhook, subject, text }
        };
        assert_eq!(bounded([fault(1), fault(2)].into_iter()), [fault(1), fault(2)]);
        let kept = bounded(std::iter::repeat_with(|| fault(1 << 18)));
        assert_eq!((kept.len(), kept[4].text.as_str()), (5, "and more, which are not listed"));
        // A single one is told whole.
        assert_eq!(bounded(std::iter::once(fault(2 << 20))).len(), 1);
    }
}
