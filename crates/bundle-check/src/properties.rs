//! Checks of properties in `metadata/properties.yaml` and the annotation `olm.properties`
//! (docs/design/bundles.md#merged-properties).

use std::collections::BTreeMap;

use olm_bundle::PROPERTIES_ANNOTATION;
use olm_version::quote;
use serde_json::{Map, Value};

use crate::content::Content;
use crate::findings::Findings;
use crate::place::Place;
use crate::rule::{self, Rule};

pub(crate) const PROPERTIES_FILE: &str = "metadata/properties.yaml";
const MAX_OPENSHIFT_VERSION: &str = "olm.maxOpenShiftVersion";

/// Entry of a list of properties or dependencies.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: String,
    pub(crate) value: Value,
    pub(crate) place: Place,
    /// `true` if the fields of the entry have line numbers. Fields inside an annotation value have none.
    pub(crate) has_lines: bool,
}

impl Entry {
    /// Position of a field of the entry.
    pub(crate) fn at(&self, dotted: &str) -> Place {
        if self.has_lines { self.place.clone().at(dotted) } else { self.place.clone() }
    }
}

/// Checks the properties of both sources, and returns the well-formed ones.
pub(crate) fn check(
    files: &BTreeMap<String, Vec<u8>>,
    content: &Content,
    findings: &mut Findings,
) -> Vec<Entry> {
    let mut properties = annotated(content, findings);
    properties.extend(listed(files, PROPERTIES_FILE, "properties", &rule::PROP_1, findings));
    let mut limits = 0;
    for property in &properties {
        if property.value.is_null() {
            let what = format!("the property of type {} has no value", quote(&property.kind));
            findings.add(&rule::PROP_2, property.at("value"), what);
            continue;
        }
        match property.kind.as_str() {
            "olm.gvk" => fields(property, &["group", "version", "kind"], findings),
            "olm.package" => fields(property, &["packageName", "version"], findings),
            MAX_OPENSHIFT_VERSION => {
                limits += 1;
                max_openshift_version(property, limits, findings);
            }
            _ => {}
        }
    }
    properties
}

/// Entries of the list under `key` in a metadata file. Empty if the file is missing.
pub(crate) fn listed(
    files: &BTreeMap<String, Vec<u8>>,
    file: &str,
    key: &str,
    rule: &'static Rule,
    findings: &mut Findings,
) -> Vec<Entry> {
    let Some(content) = files.get(file) else { return Vec::new() };
    let expected = "expected a list of objects with type and value";
    let found = match olm_yaml::from_slice(content) {
        Err(error) => Err((Place::line(file, error.line()), error.to_string())),
        Ok(Value::Null) => Ok(Vec::new()),
        Ok(Value::Object(mut entries)) => match entries.remove(key) {
            None => {
                let what = format!("nothing in this file is read, since the field {key} is missing");
                findings.add(&rule::FILE_5, Place::document(file), what);
                Ok(Vec::new())
            }
            Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) => Ok(items),
            Some(_) => Err((Place::document(file).at(key), expected.to_string())),
        },
        Ok(_) => Err((Place::document(file), format!("expected the field {key} with a list"))),
    };
    let items = found.unwrap_or_else(|(place, what)| {
        findings.add(rule, place, what);
        Vec::new()
    });
    let place = Place::document(file).at(key);
    let entry = |(index, item): (usize, Value)| {
        entry(item, place.clone().key(&index.to_string()), true, rule, findings)
    };
    items.into_iter().enumerate().filter_map(entry).collect()
}

/// Properties in the annotation of the ClusterServiceVersion.
fn annotated(content: &Content, findings: &mut Findings) -> Vec<Entry> {
    let Some(csv) = content.service_version() else { return Vec::new() };
    let Some(text) = csv.annotation(PROPERTIES_ANNOTATION) else { return Vec::new() };
    let place = csv.at_annotation(PROPERTIES_ANNOTATION);
    let advice = format!("put the properties into {PROPERTIES_FILE}");
    findings.add(&rule::PROP_6, place.clone(), advice);
    match olm_yaml::json::to_value(text.as_bytes()) {
        Ok(Value::Null) => Vec::new(),
        Ok(Value::Array(items)) => items
            .into_iter()
            .filter_map(|item| entry(item, place.clone(), false, &rule::PROP_3, findings))
            .collect(),
        Ok(_) => {
            findings.add(&rule::PROP_3, place, "expected a JSON list of objects with type and value");
            Vec::new()
        }
        Err(error) => {
            findings.add(&rule::PROP_3, place, format!("expected a JSON list: {error}"));
            Vec::new()
        }
    }
}

/// Reads one entry: an object with a `type`, which must be a string, and a `value`.
fn entry(
    item: Value,
    place: Place,
    has_lines: bool,
    rule: &'static Rule,
    findings: &mut Findings,
) -> Option<Entry> {
    let Value::Object(mut entries) = item else {
        findings.add(rule, place, "expected an object with type and value");
        return None;
    };
    if let Some(unknown) = entries.keys().find(|key| !["type", "value"].contains(&key.as_str())) {
        let inner = entries.get(unknown).and_then(Value::as_object);
        let is_nested = inner.is_some_and(|inner| inner.contains_key("type"));
        let advice =
            if is_nested { ": write its type and value directly" } else { ": allowed are type and value" };
        let place = if has_lines { place.clone().key(unknown) } else { place.clone() };
        findings.add(rule, place, format!("unknown field {}{advice}", quote(unknown)));
        if is_nested {
            return None;
        }
    }
    match entries.remove("type") {
        Some(Value::String(kind)) if !kind.is_empty() => {
            Some(Entry { kind, value: entries.remove("value").unwrap_or_default(), place, has_lines })
        }
        _ => {
            findings.add(rule, place, "type must be there, as text that is not empty");
            None
        }
    }
}

fn fields(property: &Entry, names: &[&str], findings: &mut Findings) {
    let empty = Map::new();
    let entries = property.value.as_object().unwrap_or(&empty);
    for name in names {
        if entries.get(*name).and_then(Value::as_str).is_none_or(str::is_empty) {
            let what = format!("{} needs the text {name}", property.kind);
            findings.add(&rule::PROP_4, property.at("value").at(name), what);
        }
    }
}

fn max_openshift_version(property: &Entry, number: usize, findings: &mut Findings) {
    let place = property.at("value");
    if number > 1 {
        let what =
            "olm.maxOpenShiftVersion is there already, here or in the other place of properties: keep one";
        findings.add(&rule::PROP_5, place.clone(), what);
    }
    let is_minor = |text: &str| {
        let mut parts = text.split('.');
        let mut number =
            || parts.next().is_some_and(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
        number() && number() && parts.next().is_none()
    };
    match &property.value {
        Value::String(text) if is_minor(text) => {}
        Value::Number(_) => {
            findings.add(
                &rule::PROP_5,
                place,
                "put the version in quotes: 4.20 without them is the number 4.2",
            );
        }
        other => findings.add(
            &rule::PROP_5,
            place,
            format!("expected a minor version such as \"4.18\", got {other}"),
        ),
    }
}
