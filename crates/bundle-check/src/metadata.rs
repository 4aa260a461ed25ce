//! Checks of the metadata: `annotations.yaml` (docs/design/cli.md#bundle-annotations), and the properties in
//! `properties.yaml` and the annotation `olm.properties` (docs/design/bundles.md#merged-properties).

use olm_bundle::pointer::text;
use olm_bundle::{PROPERTIES_ANNOTATION, subdomain_faults};
use olm_finding::Rule;
use olm_version::names::is_number;
use olm_version::quote;
use serde_json::{Map, Value};

use crate::content::{Content, Files};
use crate::report::{Findings, Location};
use crate::rule;

pub(crate) const ANNOTATIONS_FILE: &str = "metadata/annotations.yaml";

const MEDIA_TYPE: &str = "operators.operatorframework.io.bundle.mediatype.v1";
const MANIFESTS: &str = "operators.operatorframework.io.bundle.manifests.v1";
const METADATA: &str = "operators.operatorframework.io.bundle.metadata.v1";
pub(crate) const PACKAGE: &str = "operators.operatorframework.io.bundle.package.v1";
const CHANNELS: &str = "operators.operatorframework.io.bundle.channels.v1";
const DEFAULT_CHANNEL: &str = "operators.operatorframework.io.bundle.channel.default.v1";

/// Checks the annotations. A missing file is reported elsewhere.
pub(crate) fn annotations(content: &Content<'_>, findings: &mut Findings) {
    let Some(file) = content.files.get(ANNOTATIONS_FILE) else { return };
    let document = match olm_yaml::from_slice(file) {
        Ok(document) => document,
        Err(error) => {
            let location = Location::line(ANNOTATIONS_FILE, error.line());
            return findings.add(&rule::FILE_2, location, error.to_string());
        }
    };
    let empty = Map::new();
    let location = Location::document(ANNOTATIONS_FILE);
    let annotations = match (&document, document.get("annotations")) {
        (Value::Null, _) | (Value::Object(_), None | Some(Value::Null)) => &empty,
        (_, Some(Value::Object(annotations))) => annotations,
        (_, Some(_)) => {
            let message = "expected a map of strings";
            return findings.add(&rule::FILE_2, location.at("annotations"), message);
        }
        (_, None) => {
            return findings.add(&rule::FILE_2, location, "expected an object with the field annotations");
        }
    };
    required_annotations(annotations, findings);
    annotation_values(annotations, findings);
    default_channel(annotations, findings);
}

fn at(key: &str) -> Location {
    Location::document(ANNOTATIONS_FILE).at("annotations").key(key)
}

fn required_annotations(annotations: &Map<String, Value>, findings: &mut Findings) {
    for key in [MEDIA_TYPE, MANIFESTS, METADATA, PACKAGE, CHANNELS] {
        let may_be_empty = matches!(key, MANIFESTS | METADATA | MEDIA_TYPE);
        match annotations.get(key) {
            Some(Value::String(text)) if !text.trim().is_empty() || may_be_empty => {}
            Some(Value::String(_)) => findings.add(&rule::ANN_1, at(key), "must not be empty"),
            None | Some(Value::Null) => {
                let location = Location::document(ANNOTATIONS_FILE).at("annotations");
                findings.add(&rule::ANN_1, location, format!("the annotation {key} is missing"));
            }
            Some(_) => {
                let message = "must be a string: quote it (unquoted 1.10 is the number 1.1)";
                findings.add(&rule::ANN_1, at(key), message);
            }
        }
    }
}

fn annotation_values(annotations: &Map<String, Value>, findings: &mut Findings) {
    let text = |key: &str| annotations.get(key).and_then(Value::as_str);
    if let Some(media_type) = text(MEDIA_TYPE).filter(|text| *text != "registry+v1") {
        let message = format!("expected registry+v1, got {}", quote(media_type));
        findings.add(&rule::ANN_2, at(MEDIA_TYPE), message);
    }
    for (key, directory) in [(MANIFESTS, "manifests"), (METADATA, "metadata")] {
        if let Some(text) = text(key).filter(|text| text.trim_end_matches('/') != directory) {
            let message = format!("{} is ignored, {directory}/ is read: set {directory}/", quote(text));
            findings.add(&rule::ANN_5, at(key), message);
        }
    }
    if let Some(package) =
        text(PACKAGE).filter(|text| !text.trim().is_empty() && !subdomain_faults(text).is_empty())
    {
        let allowed = "lower case letters, digits, '-' and '.', at most 253, each part beginning and ending with a letter or digit";
        let message = format!("{} is not a DNS-1123 subdomain: {allowed}", quote(package));
        findings.add(&rule::ANN_6, at(PACKAGE), message);
    }
}

fn default_channel(annotations: &Map<String, Value>, findings: &mut Findings) {
    let default = match annotations.get(DEFAULT_CHANNEL) {
        None | Some(Value::Null) => return,
        Some(Value::String(default)) => default.trim(),
        Some(_) => return findings.add(&rule::ANN_3, at(DEFAULT_CHANNEL), "must be a string: quote it"),
    };
    if default.is_empty() {
        return findings.add(&rule::ANN_3, at(DEFAULT_CHANNEL), "must not be empty; omit it instead");
    }
    let channels = annotations.get(CHANNELS).and_then(Value::as_str).unwrap_or_default();
    let names: Vec<&str> = channels.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if !names.is_empty() && !names.contains(&default) {
        let message = format!("{} is not one of the channels {}", quote(default), names.join(", "));
        findings.add(&rule::ANN_4, at(DEFAULT_CHANNEL), message);
    }
}

/// Name of the package, empty if it cannot be read.
pub(crate) fn package(files: &Files) -> String {
    let document = files.get(ANNOTATIONS_FILE).and_then(|content| olm_yaml::from_slice(content).ok());
    let package = document.as_ref().and_then(|document| document.get("annotations")?.get(PACKAGE)?.as_str());
    package.unwrap_or_default().to_string()
}

pub(crate) const PROPERTIES_FILE: &str = "metadata/properties.yaml";
const MAX_OPENSHIFT_VERSION: &str = "olm.maxOpenShiftVersion";

/// Entry of a list of properties or dependencies.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: String,
    pub(crate) value: Value,
    pub(crate) location: Location,
    /// `true` if the fields of the entry have line numbers. Fields inside an annotation value have none.
    pub(crate) has_lines: bool,
}

impl Entry {
    /// Location of a field of the entry.
    pub(crate) fn at(&self, dotted: &str) -> Location {
        if self.has_lines { self.location.clone().at(dotted) } else { self.location.clone() }
    }
}

/// Reads the properties of both sources. Malformed ones are findings.
pub(crate) fn read_properties(content: &Content<'_>, findings: &mut Findings) -> Vec<Entry> {
    let mut properties = annotated_properties(content, findings);
    properties.extend(listed(content.files, PROPERTIES_FILE, "properties", &rule::PROP_1, findings));
    properties
}

/// Checks the values of the properties.
pub(crate) fn properties(content: &Content<'_>, findings: &mut Findings) {
    let mut limits = 0;
    for property in &content.properties {
        if property.value.is_null() {
            let fields = KNOWN_TYPES.iter().find(|(kind, _)| property.kind == *kind);
            let (rule, advice) = match fields {
                Some((_, fields)) => (&rule::PROP_4, format!(": write {fields} below value, or remove it")),
                None => (&rule::PROP_2, String::new()),
            };
            let message = format!("the property of type {} has no value{advice}", quote(&property.kind));
            findings.add(rule, property.at("value"), message);
            continue;
        }
        match property.kind.as_str() {
            "olm.gvk" => required_texts(property, &["group", "version", "kind"], findings),
            "olm.package" => {
                required_texts(property, &["packageName", "version"], findings);
                other_package(property, content, findings);
            }
            MAX_OPENSHIFT_VERSION => {
                limits += 1;
                max_openshift_version(property, limits, findings);
            }
            _ => {}
        }
    }
}

/// Types whose value catalogs read, and its fields.
const KNOWN_TYPES: [(&str, &str); 5] = [
    ("olm.gvk", "group, version and kind"),
    ("olm.gvk.required", "group, version and kind"),
    ("olm.package", "packageName and version"),
    ("olm.package.required", "packageName and versionRange"),
    ("olm.constraint", "a condition"),
];

/// Fields that belong into the value of a property or dependency.
const FIELDS_OF_VALUES: [&str; 13] = [
    "packageName",
    "version",
    "versionRange",
    "group",
    "kind",
    "label",
    "failureMessage",
    "cel",
    "gvk",
    "package",
    "all",
    "any",
    "not",
];

/// Reports a property `olm.package` of another package or version.
fn other_package(property: &Entry, content: &Content<'_>, findings: &mut Findings) {
    let version = content.csv().map_or("", |csv| csv.text("/spec/version"));
    for (field, own) in [("packageName", package(content.files).as_str()), ("version", version)] {
        let value = text(&property.value, &format!("/{field}"));
        if !value.is_empty() && !own.is_empty() && value != own {
            let message =
                format!("{} is not that of the bundle, {}: remove the property", quote(value), quote(own));
            findings.add(&rule::PROP_4, property.at("value").at(field), message);
        }
    }
}

/// Entries of the list under `key` in a metadata file. Empty if the file is missing.
pub(crate) fn listed(
    files: &Files,
    file: &str,
    key: &str,
    rule: &'static Rule,
    findings: &mut Findings,
) -> Vec<Entry> {
    let Some(content) = files.get(file) else { return Vec::new() };
    let expected = "expected a list of objects with type and value";
    let found = match olm_yaml::from_slice(content) {
        Err(error) => Err((Location::line(file, error.line()), error.to_string())),
        Ok(Value::Null) => Ok(Vec::new()),
        Ok(Value::Object(mut entries)) => match entries.remove(key) {
            None => {
                let message = format!("the file is ignored, because the field {key} is missing");
                findings.add(&rule::FILE_5, Location::document(file), message);
                Ok(Vec::new())
            }
            Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => Ok(items),
            Some(_) => Err((Location::document(file).at(key), expected.to_string())),
        },
        Ok(_) => Err((Location::document(file), format!("expected the field {key} with a list"))),
    };
    let items = found.unwrap_or_else(|(location, message)| {
        findings.add(rule, location, message);
        Vec::new()
    });
    let location = Location::document(file).at(key);
    let entry = |(index, item): (usize, Value)| {
        entry(item, location.clone().key(&index.to_string()), true, rule, findings)
    };
    items.into_iter().enumerate().filter_map(entry).collect()
}

/// Properties in the annotation of the ClusterServiceVersion.
fn annotated_properties(content: &Content<'_>, findings: &mut Findings) -> Vec<Entry> {
    let Some(csv) = content.csv() else { return Vec::new() };
    let Some(text) = csv.annotation(PROPERTIES_ANNOTATION) else { return Vec::new() };
    let location = csv.at_annotation(PROPERTIES_ANNOTATION);
    let items = match olm_yaml::json::to_value(text.as_bytes()) {
        Ok(Value::Null) => Ok(Vec::new()),
        Ok(Value::Array(items)) => Ok(items),
        Ok(_) => Err("expected a JSON list of objects with type and value".to_string()),
        Err(error) => Err(format!("expected a JSON list: {error}")),
    };
    let items = items.unwrap_or_else(|message| {
        findings.add(&rule::PROP_3, location.clone(), message);
        Vec::new()
    });
    let entry = |item| entry(item, location.clone(), false, &rule::PROP_3, findings);
    let found: Vec<Entry> = items.into_iter().filter_map(entry).collect();
    // OpenShift documents the annotation for this property.
    if found.is_empty() || found.iter().any(|property| property.kind != MAX_OPENSHIFT_VERSION) {
        let advice = format!("put the properties into {PROPERTIES_FILE}");
        findings.add(&rule::PROP_6, location, advice);
    }
    found
}

/// Reads one entry: an object with a `type`, which must be a string, and a `value`.
fn entry(
    item: Value,
    location: Location,
    has_lines: bool,
    rule: &'static Rule,
    findings: &mut Findings,
) -> Option<Entry> {
    let Value::Object(mut entries) = item else {
        findings.add(rule, location, "expected an object with type and value");
        return None;
    };
    if let Some(unknown) = entries.keys().find(|key| !["type", "value"].contains(&key.as_str())) {
        let inner = entries.get(unknown).and_then(Value::as_object);
        let is_nested = inner.is_some_and(|inner| inner.contains_key("type"));
        let advice = match unknown.as_str() {
            _ if is_nested => ": write its type and value directly",
            field if FIELDS_OF_VALUES.contains(&field) => ": write it below value",
            _ => "; allowed: type and value",
        };
        let location = if has_lines { location.clone().key(unknown) } else { location.clone() };
        findings.add(rule, location, format!("unknown field {}{advice}", quote(unknown)));
        if is_nested {
            return None;
        }
    }
    match entries.remove("type") {
        Some(Value::String(kind)) if !kind.is_empty() => {
            Some(Entry { kind, value: entries.remove("value").unwrap_or_default(), location, has_lines })
        }
        _ => {
            findings.add(rule, location, "type must be a non-empty string");
            None
        }
    }
}

fn required_texts(property: &Entry, names: &[&str], findings: &mut Findings) {
    for name in names {
        if text(&property.value, &format!("/{name}")).is_empty() {
            let message = format!("{} needs the string field {name}", property.kind);
            findings.add(&rule::PROP_4, property.at("value").at(name), message);
        }
    }
}

fn max_openshift_version(property: &Entry, number: usize, findings: &mut Findings) {
    let location = property.at("value");
    if number > 1 {
        let message =
            "olm.maxOpenShiftVersion is set twice, in this or the other list of properties: keep one";
        findings.add(&rule::PROP_5, location.clone(), message);
    }
    let is_minor =
        |text: &str| text.split_once('.').is_some_and(|(major, minor)| is_number(major) && is_number(minor));
    match &property.value {
        Value::String(text) if is_minor(text) => {}
        Value::Number(_) => {
            let message = "quote the version: unquoted 4.20 is the number 4.2";
            findings.add(&rule::PROP_5, location, message);
        }
        other => {
            let message = format!("expected a minor version such as \"4.18\", got {other}");
            findings.add(&rule::PROP_5, location, message);
        }
    }
}
