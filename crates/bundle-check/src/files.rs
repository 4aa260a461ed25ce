//! Files of a bundle: in the folder that is read, one object in each manifest, each key once
//! (docs/design/cli.md#bundle-validation).

use olm_version::quote;
use olm_yaml::{Position, RepeatedKey};
use serde_json::Value;

use crate::content::{Content, MANIFESTS, Object};
use crate::dependencies::DEPENDENCIES_FILE;
use crate::metadata::{ANNOTATIONS_FILE, PROPERTIES_FILE};
use crate::report::{Findings, Location};
use crate::rule;

/// Folder of the metadata.
const METADATA: &str = "metadata/";

/// Files of metadata, and the field that each of them has.
const METADATA_FILES: [(&str, &str); 3] =
    [(ANNOTATIONS_FILE, "annotations"), (DEPENDENCIES_FILE, "dependencies"), (PROPERTIES_FILE, "properties")];

/// Annotations of a ClusterServiceVersion whose value is JSON.
const JSON_ANNOTATIONS: [&str; 3] = ["alm-examples", "olm.examples", "olm.properties"];

/// Reports the repeated keys of a document.
pub(crate) fn repeated_keys(file: &str, repeated: &[RepeatedKey], findings: &mut Findings) {
    for key in repeated {
        let name = key.path.last().map(String::as_str).unwrap_or_default();
        let advice = match (key.path.len(), name) {
            (1, "apiVersion" | "kind" | "metadata" | "spec") => {
                "separate objects with a line `---`; otherwise only the last one is read"
            }
            _ => "only the last value is used: remove one of the two",
        };
        let message = format!("the key is also on line {}: {advice}", key.first);
        let location = Location { path: key.path.clone(), ..Location::line(file, Some(key.line)) };
        findings.add(&rule::FILE_6, location, message);
    }
}

/// Reports repeated keys of the metadata and of JSON in annotations. Those of manifests are reported when they are read.
pub(crate) fn repeated(content: &Content<'_>, findings: &mut Findings) {
    for (file, _) in METADATA_FILES {
        if let Some(text) = content.files.get(file) {
            repeated_keys(file, &olm_yaml::repeated_keys(text, 1), findings);
        }
    }
    content.csv().into_iter().for_each(|csv| repeated_in_annotations(csv, findings));
}

fn repeated_in_annotations(csv: &Object, findings: &mut Findings) {
    for key in JSON_ANNOTATIONS {
        let Some(text) = csv.annotation(key).map(str::as_bytes) else { continue };
        if !olm_yaml::json::has_repeated_keys(text) {
            continue;
        }
        for repeated in olm_yaml::repeated_keys(text, 1) {
            let path = quote(&repeated.path.join("."));
            let message = format!(
                "the JSON has the key {path} in its lines {} and {}; only the last value is used: remove one of the two",
                repeated.first, repeated.line
            );
            findings.add(&rule::FILE_6, csv.at_annotation(key), message);
        }
    }
}

/// Documents of one manifest.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// Number of documents with content.
    values: usize,
}

impl Documents {
    /// Adds the next document. The first object after the first document is reported.
    pub(crate) fn add(&mut self, file: &str, value: &Value, position: Position, findings: &mut Findings) {
        if value.is_null() {
            return;
        }
        self.values += 1;
        let advice = match self.values {
            1 if position.document > 1 => "which is empty: remove everything before the first object",
            2 => "which is not this one: move this object to a file of its own",
            _ => return,
        };
        let message = format!("opm and classic OLM read only the first document of a file, {advice}");
        findings.add(&rule::FILE_8, Location::line(file, Some(position.line)), message);
    }
}

/// Reports files that are not read where they are.
pub(crate) fn misplaced(content: &Content<'_>, findings: &mut Findings) {
    for (path, text) in content.files {
        let known = METADATA_FILES.iter().find(|(file, _)| path == file);
        if path.starts_with(METADATA) && path.ends_with('/') {
            let message = "directories in metadata/ are ignored: move its files, or remove it";
            findings.add(&rule::FILE_7, Location::file(path.trim_end_matches('/')), message);
            continue;
        }
        if known.is_some() || path.ends_with('/') {
            continue;
        }
        let Ok(documents) = olm_yaml::all_from_slice(text) else { continue };
        for document in documents {
            if let Some(message) = misplacement(path, &document) {
                findings.add(&rule::FILE_7, Location::file(path), message);
            }
        }
    }
}

/// Reason for which a document of the file at `path` has no effect there.
fn misplacement(path: &str, document: &Value) -> Option<String> {
    let is_object = ["apiVersion", "kind"].iter().all(|field| document[*field].is_string());
    if is_object {
        let kind = document["kind"].as_str().unwrap_or_default();
        return (!path.starts_with(MANIFESTS)).then(|| {
            format!("objects are read only from {MANIFESTS}: move this {kind} there, or remove it")
        });
    }
    if document.get("kind").is_some() {
        return None;
    }
    let (file, field) = METADATA_FILES.iter().find(|(_, field)| document.get(field).is_some())?;
    Some(format!("{field} are read only from {file}: move this file there"))
}
