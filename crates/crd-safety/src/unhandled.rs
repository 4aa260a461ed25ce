//! Finding `unhandled`: changes without a check of their own, in one line (docs/design/apply.md#property-checks).
//!
//! Nested schemas have findings of their own. This check reports whether they were added or removed, and changes
//! that a comparison of old properties cannot detect.

use olm_version::quote;
use serde_json::Value;

use crate::finding::Impact;
use crate::impact;
use crate::schema::{Schema, Step};
use crate::text::{canonical, canonical_schema, number};

/// Comparison and text form of a field.
#[derive(Clone, Copy)]
enum Form {
    /// Absent equals `""`.
    Text,
    /// Absent equals `false`.
    Flag,
    /// Absent is `nil`.
    Pointer,
    Texts,
    /// Ordered list of rules.
    Rules,
    /// Schemas of `allOf` or `anyOf`. Findings of an entry report what became narrower, except for constraints of
    /// properties that the entry did not have before.
    Entries,
    /// Schema of map values. A new property in it is optional, as elsewhere.
    Values,
    /// Compared as a whole without annotation keywords. The text only says that it changed.
    Whole,
}

/// Field, its name in the text, and its form, in the order of the text.
static FIELDS: [(&str, &str, Form); 26] = [
    ("id", "ID", Form::Text),
    ("$schema", "Schema", Form::Text),
    ("$ref", "Ref", Form::Pointer),
    ("format", "Format", Form::Text),
    ("title", "Title", Form::Text),
    ("exclusiveMaximum", "ExclusiveMaximum", Form::Flag),
    ("exclusiveMinimum", "ExclusiveMinimum", Form::Flag),
    ("uniqueItems", "UniqueItems", Form::Flag),
    ("multipleOf", "MultipleOf", Form::Pointer),
    ("allOf", "AllOf", Form::Entries),
    ("anyOf", "AnyOf", Form::Entries),
    ("not", "Not", Form::Whole),
    ("additionalProperties", "AdditionalProperties", Form::Values),
    ("patternProperties", "PatternProperties", Form::Whole),
    ("dependencies", "Dependencies", Form::Whole),
    ("additionalItems", "AdditionalItems", Form::Whole),
    ("definitions", "Definitions", Form::Whole),
    ("externalDocs", "ExternalDocs", Form::Whole),
    ("example", "Example", Form::Whole),
    ("x-kubernetes-preserve-unknown-fields", "XPreserveUnknownFields", Form::Pointer),
    ("x-kubernetes-embedded-resource", "XEmbeddedResource", Form::Flag),
    ("x-kubernetes-int-or-string", "XIntOrString", Form::Flag),
    ("x-kubernetes-list-map-keys", "XListMapKeys", Form::Texts),
    ("x-kubernetes-list-type", "XListType", Form::Pointer),
    ("x-kubernetes-map-type", "XMapType", Form::Pointer),
    ("x-kubernetes-validations", "XValidations", Form::Rules),
];

/// Harmless alone. Reported only together with other changes.
const HARMLESS: [&str; 3] = ["title", "externalDocs", "example"];

/// Text of the changes, and what they break. `None` if all are harmless. If the property `is_removed`, no change is
/// harmless.
pub(crate) fn changes(old: Schema<'_>, new: Schema<'_>, is_removed: bool) -> Option<(String, Impact)> {
    let mut harmful = is_removed;
    let mut impact = Impact::Nothing;
    let mut parts = Vec::new();
    for &(key, name, form) in &FIELDS {
        if let Some(part) = form.change(key, name, old, new) {
            parts.push(part);
            harmful |= !HARMLESS.contains(&key);
            impact = impact.max(impact::of_field(key, old, new));
        }
    }
    (harmful && !parts.is_empty())
        .then(|| (format!("unhandled changes found ({})", parts.join("; ")), impact))
}

impl Form {
    fn change(self, key: &'static str, name: &str, old: Schema<'_>, new: Schema<'_>) -> Option<String> {
        let values = (old.get(key), new.get(key));
        let changed = match self {
            Self::Text | Self::Flag | Self::Pointer | Self::Texts | Self::Rules => {
                self.shown(values.0) != self.shown(values.1)
            }
            Self::Entries => {
                let (before, after) = (old.list(key).len(), new.list(key).len());
                before != after
                    || (0..before).any(|number| constrains_more(old, new, Step::Entry(key, number)))
            }
            Self::Values => match values {
                (Some(Value::Object(_)), Some(Value::Object(_))) => false,
                (Some(Value::Object(_)), Some(_)) => {
                    return Some("Schema <complex value> -> nil".to_owned());
                }
                (Some(_), Some(Value::Object(_))) => return Some("Schema nil -> <complex value>".to_owned()),
                (before, after) => before != after,
            },
            Self::Whole => values.0.map(canonical_schema) != values.1.map(canonical_schema),
        };
        let (before, after) = (self.shown(values.0), self.shown(values.1));
        let mark = if before == after { " (changed)" } else { "" };
        changed.then(|| format!("{name} {before} -> {after}{mark}"))
    }

    fn shown(self, value: Option<&Value>) -> String {
        match (self, value) {
            (Self::Text, value) => quote(value.and_then(Value::as_str).unwrap_or_default()),
            (Self::Flag, value) => value.and_then(Value::as_bool).unwrap_or_default().to_string(),
            (_, None) => "nil".to_owned(),
            (Self::Texts | Self::Rules | Self::Entries, Some(Value::Array(list))) if list.is_empty() => {
                "nil".to_owned()
            }
            (Self::Pointer, Some(value)) => format!("&{}", scalar(value)),
            (Self::Texts, Some(value)) => {
                let texts: Vec<String> = value.as_array().into_iter().flatten().map(scalar).collect();
                format!("[]string{{{}}}", texts.join(", "))
            }
            (Self::Rules, Some(value)) => canonical(value),
            (Self::Entries | Self::Values | Self::Whole, Some(_)) => "<complex value>".to_owned(),
        }
    }
}

fn scalar(value: &Value) -> String {
    match (value, value.as_f64()) {
        (Value::String(text), _) => quote(text),
        (_, Some(value)) => number(value),
        _ => value.to_string(),
    }
}

/// Reports whether the entry has properties or items that it did not have before. In a condition they narrow it.
/// Elsewhere they would be optional fields.
fn constrains_more(old: Schema<'_>, new: Schema<'_>, entry: Step<'_>) -> bool {
    let (Some(old), Some(new)) = (old.child(entry), new.child(entry)) else { return false };
    let mut open = vec![(old, new)];
    while let Some((old, new)) = open.pop() {
        for (step, child) in new.children() {
            match (old.child(step), step) {
                (Some(before), _) => open.push((before, child)),
                (None, Step::Property(_) | Step::Items) => return true,
                (None, _) => {} // reported as a change of the keyword
            }
        }
    }
    false
}
