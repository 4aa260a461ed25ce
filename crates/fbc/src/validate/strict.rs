//! Documented rules for objects that upstream does not check (docs/design/catalogd.md#schemas; case seeds-s0-5).

use olm_version::names::is_dns_label;
use olm_version::{Range, RangeError, quote};
use serde_json::value::RawValue;

use super::documents::raw;
use crate::{
    Meta, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_DEPRECATIONS, SCHEMA_PACKAGE,
    json::{self, Member, item_fields, text_field},
};

/// Known schemas with the reserved prefix.
const KNOWN: [&str; 5] =
    [SCHEMA_PACKAGE, SCHEMA_CHANNEL, SCHEMA_BUNDLE, SCHEMA_DEPRECATIONS, "olm.csv.metadata"];

/// Documented size of a constraint in bytes. Twice that size is accepted.
const CONSTRAINT_BYTES: usize = 65_536;

/// Faults of an object that upstream does not report.
pub(super) fn warnings(meta: &Meta) -> Vec<String> {
    let Some(members) = raw(meta).ok().and_then(json::members) else { return Vec::new() };
    let mut found = Vec::new();
    if meta.schema.starts_with("olm.") && !KNOWN.contains(&meta.schema.as_str()) {
        found.push(format!(
            "schema {} is unknown: the prefix \"olm.\" is reserved, allowed: {}",
            quote(&meta.schema),
            KNOWN.map(quote).join(", ")
        ));
    }
    for name in ["package", "name"] {
        if json::field(&members, name).is_some() && text_field(&members, name).is_empty() {
            found.push(format!("field {} must not be empty where it is present", quote(name)));
        }
    }
    for (schema, name) in [(SCHEMA_PACKAGE, "package"), (SCHEMA_DEPRECATIONS, "name")] {
        if meta.schema == schema && json::field(&members, name).is_some() {
            found.push(format!("schema {} has no field {}", quote(schema), quote(name)));
        }
    }
    if let Some(properties) = json::field(&members, "properties") {
        property_warnings(properties, &mut found);
    }
    if meta.schema == SCHEMA_CHANNEL {
        entry_warnings(&members, &mut found);
    }
    if let (SCHEMA_PACKAGE, Some(icon)) = (meta.schema.as_str(), json::field(&members, "icon")) {
        let icon = json::members(icon).unwrap_or_default();
        let empty = ["base64data", "mediatype"].into_iter().filter(|name| text_field(&icon, name).is_empty());
        found.extend(empty.map(|name| format!("icon.{name} must not be empty")));
    }
    for (index, image) in json::item_fields(&members, "relatedImages").enumerate() {
        if text_field(&json::members(image).unwrap_or_default(), "image").is_empty() {
            found.push(format!("relatedImages[{index}].image must not be empty"));
        }
    }
    found
}

fn property_warnings(properties: &RawValue, found: &mut Vec<String>) {
    let Some(properties) = json::items(properties) else {
        return found.push("field \"properties\" must be a list of objects with type and value".to_owned());
    };
    for (index, property) in properties.into_iter().enumerate() {
        let Some(members) = json::members(property) else {
            found.push(format!("properties[{index}] must be an object with type and value"));
            continue;
        };
        let kind = text_field(&members, "type");
        if kind.is_empty() {
            found.push(format!("properties[{index}].type must be a non-empty string"));
        }
        let at = format!("properties[{index}].value");
        match json::field(&members, "value") {
            Some(value) => value_warnings(&at, &kind, value, found),
            None => found.push(format!("{at} of type {} must not be null", quote(&kind))),
        }
    }
}

/// Warns about values that dependencies cannot use. A value of another shape is an error.
fn value_warnings(at: &str, kind: &str, value: &RawValue, found: &mut Vec<String>) {
    let members = json::members(value).unwrap_or_default();
    let required: &[&str] = match kind {
        "olm.gvk" | "olm.gvk.required" => &["group", "version", "kind"],
        "olm.package.required" => &["packageName", "versionRange"],
        _ => &[],
    };
    for name in required.iter().filter(|name| text_field(&members, name).is_empty()) {
        found.push(format!("{at}.{name} of type {} must not be empty", quote(kind)));
    }
    if kind.starts_with("olm.gvk") {
        gvk_warnings(at, &members, found);
    }
    let range = text_field(&members, "versionRange");
    if let (true, Err(problem)) =
        (required.contains(&"versionRange") && !range.is_empty(), Range::parse(&range))
    {
        found.push(format!("{at}.versionRange: {} is no range: {problem}", quote(&range)));
    }
    if kind == "olm.constraint" && value.get().len() > CONSTRAINT_BYTES {
        found.push(format!("{at} of type \"olm.constraint\" has more than {CONSTRAINT_BYTES} bytes"));
    }
}

/// Warns about APIs whose names no CRD can have.
fn gvk_warnings(at: &str, members: &[Member<'_>], found: &mut Vec<String>) {
    for (name, allowed) in [
        ("group", "lowercase letters, digits, - and ."),
        ("version", "lowercase letters, digits and -"),
        ("kind", "letters, digits and -"),
    ] {
        let text = text_field(members, name);
        let is_valid = match name {
            "group" => text.split('.').all(is_dns_label),
            "kind" => is_dns_label(&text.to_lowercase()),
            _ => is_dns_label(&text),
        };
        if !text.is_empty() && !is_valid {
            found.push(format!("{at}.{name}: {} is not a valid name; allowed: {allowed}", quote(&text)));
        }
    }
}

/// Warns about empty fields, and about ranges that upstream's loader accepts but its resolver rejects.
fn entry_warnings(members: &[Member<'_>], found: &mut Vec<String>) {
    for entry in item_fields(members, "entries") {
        let entry = json::members(entry).unwrap_or_default();
        for name in ["replaces", "skipRange"] {
            if json::field(&entry, name).is_some() && text_field(&entry, name).is_empty() {
                let entry = quote(&text_field(&entry, "name"));
                found.push(format!(
                    "entry {entry}: field {} must not be empty where it is present",
                    quote(name)
                ));
            }
        }
        let range = text_field(&entry, "skipRange");
        if let Err(problem @ RangeError::EmptyGroup) = Range::parse(&range) {
            let name = quote(&text_field(&entry, "name"));
            found.push(format!("entry {name}: invalid skipRange {}: {problem}", quote(&range)));
        }
    }
}
