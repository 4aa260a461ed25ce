//! Checks of `metadata/annotations.yaml` (docs/design/additions.md#bundle-annotations).

use std::collections::BTreeMap;

use olm_version::quote;
use serde_json::{Map, Value};

use crate::findings::Findings;
use crate::names::is_subdomain;
use crate::place::Place;
use crate::rule;

pub(crate) const ANNOTATIONS_FILE: &str = "metadata/annotations.yaml";

const MEDIA_TYPE: &str = "operators.operatorframework.io.bundle.mediatype.v1";
const MANIFESTS: &str = "operators.operatorframework.io.bundle.manifests.v1";
const METADATA: &str = "operators.operatorframework.io.bundle.metadata.v1";
pub(crate) const PACKAGE: &str = "operators.operatorframework.io.bundle.package.v1";
const CHANNELS: &str = "operators.operatorframework.io.bundle.channels.v1";
const DEFAULT_CHANNEL: &str = "operators.operatorframework.io.bundle.channel.default.v1";

/// Checks the annotations. A missing file is reported elsewhere.
pub(crate) fn check(files: &BTreeMap<String, Vec<u8>>, findings: &mut Findings) {
    let Some(content) = files.get(ANNOTATIONS_FILE) else { return };
    let document = match olm_yaml::from_slice(content) {
        Ok(document) => document,
        Err(error) => {
            let place = Place::line(ANNOTATIONS_FILE, error.line());
            return findings.add(&rule::FILE_2, place, error.to_string());
        }
    };
    let empty = Map::new();
    let annotations = match &document {
        Value::Null => &empty,
        Value::Object(entries) => match entries.get("annotations") {
            None | Some(Value::Null) => &empty,
            Some(Value::Object(annotations)) => annotations,
            Some(_) => {
                let place = Place::document(ANNOTATIONS_FILE).at("annotations");
                return findings.add(&rule::FILE_2, place, "expected a mapping of keys to texts");
            }
        },
        _ => {
            let what = "expected a mapping with the field annotations";
            return findings.add(&rule::FILE_2, Place::document(ANNOTATIONS_FILE), what);
        }
    };
    required(annotations, findings);
    values(annotations, findings);
    default_channel(annotations, findings);
}

fn at(key: &str) -> Place {
    Place::document(ANNOTATIONS_FILE).at("annotations").key(key)
}

fn required(annotations: &Map<String, Value>, findings: &mut Findings) {
    for key in [MEDIA_TYPE, MANIFESTS, METADATA, PACKAGE, CHANNELS] {
        let may_be_empty = matches!(key, MANIFESTS | METADATA | MEDIA_TYPE);
        match annotations.get(key) {
            Some(Value::String(text)) if !text.trim().is_empty() || may_be_empty => {}
            Some(Value::String(_)) => findings.add(&rule::ANN_1, at(key), "must not be empty"),
            None | Some(Value::Null) => {
                let place = Place::document(ANNOTATIONS_FILE).at("annotations");
                findings.add(&rule::ANN_1, place, format!("the annotation {key} is missing"));
            }
            Some(_) => {
                let what = "must be text: put it in quotes (1.10 without them is the number 1.1)";
                findings.add(&rule::ANN_1, at(key), what);
            }
        }
    }
}

fn values(annotations: &Map<String, Value>, findings: &mut Findings) {
    let text = |key: &str| annotations.get(key).and_then(Value::as_str);
    if let Some(media_type) = text(MEDIA_TYPE).filter(|text| *text != "registry+v1") {
        let what = format!("expected registry+v1, got {}", quote(media_type));
        findings.add(&rule::ANN_2, at(MEDIA_TYPE), what);
    }
    for (key, directory) in [(MANIFESTS, "manifests"), (METADATA, "metadata")] {
        if let Some(text) = text(key).filter(|text| text.trim_end_matches('/') != directory) {
            let what = format!("{} is not followed, {directory}/ is read: write {directory}/", quote(text));
            findings.add(&rule::ANN_5, at(key), what);
        }
    }
    if let Some(package) = text(PACKAGE).filter(|text| !text.trim().is_empty() && !is_subdomain(text)) {
        let allowed = "lower case letters, digits, '-' and '.', at most 253, each part beginning and ending with a letter or digit";
        let what = format!("{} is no DNS-1123 subdomain: {allowed}", quote(package));
        findings.add(&rule::ANN_6, at(PACKAGE), what);
    }
}

fn default_channel(annotations: &Map<String, Value>, findings: &mut Findings) {
    let default = match annotations.get(DEFAULT_CHANNEL) {
        None | Some(Value::Null) => return,
        Some(Value::String(default)) => default.trim(),
        Some(_) => return findings.add(&rule::ANN_3, at(DEFAULT_CHANNEL), "must be text: put it in quotes"),
    };
    if default.is_empty() {
        return findings.add(&rule::ANN_3, at(DEFAULT_CHANNEL), "must not be empty; leave it out instead");
    }
    let channels = annotations.get(CHANNELS).and_then(Value::as_str).unwrap_or_default();
    let names: Vec<&str> = channels.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if !names.is_empty() && !names.contains(&default) {
        let what = format!("{} is none of the channels {}", quote(default), names.join(", "));
        findings.add(&rule::ANN_4, at(DEFAULT_CHANNEL), what);
    }
}

/// Name of the package, empty if it cannot be read.
pub(crate) fn package(files: &BTreeMap<String, Vec<u8>>) -> String {
    let document = files.get(ANNOTATIONS_FILE).and_then(|content| olm_yaml::from_slice(content).ok());
    let package = document.as_ref().and_then(|document| document.get("annotations")?.get(PACKAGE)?.as_str());
    package.unwrap_or_default().to_string()
}
