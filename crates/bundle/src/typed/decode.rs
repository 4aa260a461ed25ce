//! Errors of Go's JSON decoder.
//!
//! The reference decodes two things with it instead of the typed conversion: the metadata of every object, and
//! values of schema fields that are unions (`items`, `additionalProperties`).

use serde_json::{Map, Value};

use super::types::{Type, field_of, types};
use crate::{go_json, go_time};

/// First error of `entries` as a `kind`, in key order.
pub(crate) fn fault(entries: &Map<String, Value>, kind: &'static str) -> Option<String> {
    Walk::default().fields(entries, kind).map(DecodeFault::text)
}

/// [`fault`] for the value of a schema union of type `kind`.
pub(super) fn union_fault(value: &Value, kind: &Type) -> Option<String> {
    Walk::default().value(value, kind, None).map(DecodeFault::text)
}

enum DecodeFault {
    Mismatch {
        /// Type with the field, if any.
        owner: Option<&'static str>,
        /// Dotted path of the field from the root.
        path: String,
        found: String,
        expected: String,
    },
    Other(String),
}

impl DecodeFault {
    fn text(self) -> String {
        match self {
            Self::Other(text) => text,
            Self::Mismatch { owner: Some(owner), path, found, expected } => {
                format!(
                    "json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {expected}"
                )
            }
            Self::Mismatch { owner: None, found, expected, .. } => {
                format!("json: cannot unmarshal {found} into Go value of type {expected}")
            }
        }
    }
}

#[derive(Default)]
struct Walk {
    owner: Option<&'static str>,
    path: Vec<&'static str>,
}

impl Walk {
    fn value(&mut self, value: &Value, kind: &Type, go_name: Option<&str>) -> Option<DecodeFault> {
        match (kind, value) {
            (_, Value::Null)
            | (Type::String, Value::String(_))
            | (Type::Bool | Type::SchemaOrBool, Value::Bool(_))
            | (Type::Number, Value::Number(_))
            | (Type::Json | Type::Version | Type::Quantity | Type::IntOrString, _) => None,
            (Type::Int32, Value::Number(number))
                if number.as_i64().is_some_and(|n| i32::try_from(n).is_ok()) =>
            {
                None
            }
            (Type::Int64, Value::Number(number)) if number.as_i64().is_some() => None,
            (Type::Time, Value::String(text)) => go_time::normal(text).err().map(DecodeFault::Other),
            (Type::List(element), Value::Array(items)) => {
                let name = go_name.filter(|_| **element == Type::String);
                items.iter().find_map(|item| self.value(item, element, name))
            }
            (Type::Map(element), Value::Object(entries)) => {
                entries.values().find_map(|value| self.value(value, element, None))
            }
            (Type::Struct(name), Value::Object(entries)) => self.fields(entries, name),
            (Type::SchemaOrBool | Type::SchemaOrList | Type::SchemaOrStrings, Value::Object(entries)) => {
                let fault = self.fields(entries, "JSONSchemaProps");
                self.adopt(fault)
            }
            (Type::SchemaOrList | Type::SchemaOrStrings, Value::Array(items)) => {
                let is_schema = *kind == Type::SchemaOrList;
                let element = if is_schema { Type::Struct("JSONSchemaProps") } else { Type::String };
                let fault = items.iter().find_map(|item| self.value(item, &element, None));
                self.adopt(fault)
            }
            (Type::SchemaOrList | Type::SchemaOrStrings, _) => None,
            (Type::SchemaOrBool, _) => Some(DecodeFault::Other("boolean or JSON schema expected".into())),
            _ => Some(self.mismatch(value, kind, go_name)),
        }
    }

    fn fields(&mut self, entries: &Map<String, Value>, name: &'static str) -> Option<DecodeFault> {
        let known = types().fields(name);
        let outside = self.owner.replace(name);
        let fault = entries.iter().find_map(|(key, value)| {
            let field = field_of(known, key)?;
            self.path.push(field.name);
            let fault = self.value(value, &field.kind, field.go_name);
            self.path.pop();
            fault
        });
        self.owner = outside;
        fault
    }

    /// Assigns the error of a union, which is decoded on its own, to the type that contains it.
    fn adopt(&self, fault: Option<DecodeFault>) -> Option<DecodeFault> {
        match (fault, self.owner) {
            (Some(DecodeFault::Mismatch { path, found, expected, .. }), owner @ Some(_)) => {
                Some(DecodeFault::Mismatch { owner, path, found, expected })
            }
            (fault, _) => fault,
        }
    }

    fn mismatch(&self, value: &Value, kind: &Type, go_name: Option<&str>) -> DecodeFault {
        let found = match (kind, value) {
            (Type::Int32 | Type::Int64, Value::Number(number)) => {
                format!("number {}", go_json::number(number))
            }
            _ => go_json::kind(value).to_string(),
        };
        let expected = match (kind, go_name) {
            (Type::List(element), Some(name)) if **element == Type::String => format!("[]{name}"),
            (_, Some(name)) => name.to_string(),
            (kind, None) => go_type(kind),
        };
        DecodeFault::Mismatch { owner: self.owner, path: self.path.join("."), found, expected }
    }
}

fn go_type(kind: &Type) -> String {
    match kind {
        Type::Bool => "bool".into(),
        Type::Int32 => "int32".into(),
        Type::Int64 => "int64".into(),
        Type::Number => "float64".into(),
        Type::Struct(name) => format!("v1.{name}"),
        Type::Json => "v1.JSON".into(),
        Type::SchemaOrStrings => "v1.JSONSchemaPropsOrStringArray".into(),
        Type::List(element) => format!("[]{}", go_type(element)),
        Type::Map(element) => format!("map[string]{}", go_type(element)),
        _ => "string".into(),
    }
}
