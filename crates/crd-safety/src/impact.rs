//! What a change breaks (docs/design/cli.md#impact-of-crd-changes). Has no influence on the findings.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::crd::Version;
use crate::finding::Impact;
use crate::schema::Schema;

use Impact::{Clients, Nothing, StoredObjects};

/// Formats that the API server checks. It ignores others.
const CHECKED_FORMATS: [&str; 26] = [
    "bsonobjectid",
    "byte",
    "cidr",
    "creditcard",
    "date",
    "date-time",
    "datetime",
    "duration",
    "email",
    "hexcolor",
    "hostname",
    "ipv4",
    "ipv6",
    "isbn",
    "isbn10",
    "isbn13",
    "k8s-long-name",
    "k8s-short-name",
    "mac",
    "rgbcolor",
    "ssn",
    "uri",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
];

/// Reports whether stored values may be invalid in the format `after`. The API server checks the range of numbers, too:
/// other formats of integers have that of int64.
fn is_stricter_format(before: &str, after: &str) -> bool {
    match after {
        "int32" | "uint32" | "float" => before != after,
        "uint64" => !["uint32", "uint64"].contains(&before),
        _ => CHECKED_FORMATS.contains(&after),
    }
}

/// Reports whether the property is part of the status, which the operator writes anew.
fn is_status(path: &str) -> bool {
    path.strip_prefix("^.status").is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Impact of the removal of a field: it is dropped at the next write. A status is written anew.
pub(crate) fn of_removal(path: &str) -> Impact {
    if is_status(path) { Clients } else { StoredObjects }
}

/// Impact of a check other than `unhandled` on a property.
pub(crate) fn of_check(check: &str, path: &str) -> Impact {
    match check {
        "default" if is_status(path) => Nothing,
        "default" => Clients,
        _ => StoredObjects,
    }
}

/// `impact` in this version: nothing breaks by changes of a version that is neither served nor stored.
pub(crate) fn in_version(impact: Impact, old: &Version<'_>, new: &Version<'_>) -> Impact {
    let is_used = [old, new].iter().any(|version| version.served || version.stored);
    if is_used { impact } else { Nothing }
}

/// Impact of a change of a field that has no check of its own.
pub(crate) fn of_field(key: &str, old: Schema<'_>, new: Schema<'_>) -> Impact {
    let (before, after) = (old.get(key), new.get(key));
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    match key {
        "id" | "$schema" | "title" | "externalDocs" | "example" | "definitions" => Nothing,
        "format" => unless(is_stricter_format(&text(before), &text(after))),
        "exclusiveMaximum" | "exclusiveMinimum" | "uniqueItems" | "x-kubernetes-embedded-resource" => {
            unless(new.flag(key))
        }
        "x-kubernetes-preserve-unknown-fields" | "x-kubernetes-int-or-string" => unless(old.flag(key)),
        "multipleOf" | "allOf" | "anyOf" | "not" if after.is_none_or(is_empty) => Nothing,
        "additionalProperties" if before.is_none() && !old.flag("x-kubernetes-preserve-unknown-fields") => {
            Nothing
        }
        "x-kubernetes-list-type" => match (text(before).as_str(), text(after).as_str()) {
            ("" | "atomic", "" | "atomic") => Nothing,
            (_, "" | "atomic") => Clients,
            _ => StoredObjects,
        },
        "x-kubernetes-map-type" => match (text(before).as_str(), text(after).as_str()) {
            ("" | "granular", "" | "granular") => Nothing,
            _ => Clients,
        },
        "x-kubernetes-validations" => unless(!rules(new).is_subset(&rules(old))),
        _ => StoredObjects,
    }
}

/// Impact of a change that is stricter, or not.
fn unless(is_stricter: bool) -> Impact {
    if is_stricter { StoredObjects } else { Nothing }
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty)
}

/// CEL rules of a schema, without their messages.
fn rules(schema: Schema<'_>) -> BTreeSet<(String, bool)> {
    let rule = |entry: &Value| {
        let optional = entry["optionalOldSelf"].as_bool().unwrap_or_default();
        (entry["rule"].as_str().unwrap_or_default().trim().to_owned(), optional)
    };
    schema.list("x-kubernetes-validations").iter().map(rule).collect()
}
