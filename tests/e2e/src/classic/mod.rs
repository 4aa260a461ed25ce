//! Installations of classic OLM: recordings in `data/classic`, and objects composed for a bundle in the same shape.

mod certificates;
mod compose;
mod replay;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

pub use compose::{Origin, compose, with_sample_operator};
pub use replay::{Replay, replay};

/// Recorded cases, by the file name without its ending.
pub const CASES: [&str; 13] = [
    "all", "api", "conf", "fail", "harbor", "hooks", "lift", "multi", "own", "single", "two", "wait", "wide",
];

/// Objects of an installation by classic OLM.
#[derive(Clone, Debug)]
pub struct Installation {
    /// Objects with their recorded UIDs and statuses. `metadata.managedFields` has only managers and operations.
    pub objects: Vec<Value>,
}

impl Installation {
    /// Reads the recording of a case. `name` replaces its name, `classic-CASE`, which begins all names of its packages,
    /// namespaces and cluster-scoped objects. The second package of a case is named `NAME-PACKAGE`.
    ///
    /// # Errors
    /// The file cannot be read or parsed.
    pub fn recorded(case: &str, name: &str) -> Result<Self> {
        let path = folder().join(format!("{case}.yaml"));
        let mut text =
            std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        for second in ["pier", "twin"] {
            text = text.replace(&format!("classic-{second}"), &format!("{name}-{second}"));
        }
        let text = text.replace(&format!("classic-{case}"), name);
        Ok(Self { objects: documents(&text).with_context(|| format!("parsing {}", path.display()))? })
    }

    /// Object of this kind and name. `namespace` is empty for cluster-scoped kinds.
    ///
    /// # Errors
    /// The object is absent.
    pub fn object(&self, kind: &str, namespace: &str, name: &str) -> Result<&Value> {
        let found = self.objects.iter().find(|object| {
            object["kind"] == kind
                && object["metadata"]["name"] == name
                && object["metadata"]["namespace"].as_str().unwrap_or_default() == namespace
        });
        found.with_context(|| format!("the installation has no {kind} {namespace}/{name}"))
    }
}

/// CRDs of classic OLM. That of the OperatorCondition is ours, which other tests of the cluster use.
///
/// # Errors
/// A file cannot be read or parsed.
pub fn crds() -> Result<Vec<Value>> {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/operator-conditions.yaml");
    let files = [folder().join("crds.yaml"), ours];
    let all: Vec<Vec<Value>> =
        files.iter().map(|file| documents(&std::fs::read_to_string(file)?)).collect::<Result<_>>()?;
    Ok(all.concat())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/classic")
}

fn documents(text: &str) -> Result<Vec<Value>> {
    let found: Vec<Value> = serde_saphyr::from_multiple(text)?;
    if found.is_empty() {
        bail!("no YAML document");
    }
    Ok(found)
}

/// Replaces text in all strings and keys of a value.
fn replace(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::String(text) if text.contains(from) => *text = text.replace(from, to),
        Value::Array(values) => values.iter_mut().for_each(|value| replace(value, from, to)),
        Value::Object(map) => {
            let renamed: Vec<String> = map.keys().filter(|key| key.contains(from)).cloned().collect();
            for key in renamed {
                let value = map.remove(&key).unwrap_or_default();
                map.insert(key.replace(from, to), value);
            }
            map.values_mut().for_each(|value| replace(value, from, to));
        }
        _ => {}
    }
}
