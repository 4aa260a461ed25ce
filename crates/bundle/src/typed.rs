//! Typed pass over a bundle: drops unknown fields, checks the types of known ones, and normalizes zero values
//! (docs/design/bundles.md#typed-conversion, docs/design/bundles.md#normal-form, appendix B).
//!
//! The types are data (`typed/types.txt`), not Rust structs. The pass must distinguish absent, null, empty and zero
//! values, which generated structs cannot.

mod convert;
mod decode;
mod types;

use serde_json::{Map, Value};

pub(crate) use convert::{ConvertError, convert, shortest};
pub(crate) use decode::fault as decode_fault;
pub(crate) use types::{Type, types};

/// Change of a value by the typed pass. The path has the names and list indexes of the field from the root of the
/// object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// Unknown field, which is dropped.
    Unknown(Vec<String>),
    /// Number out of range, which wraps.
    Wrapped(Vec<String>),
}

/// Losses of a ClusterServiceVersion or CustomResourceDefinition when it is loaded, at most `limit`, sorted by
/// field. Empty for other kinds. Fields set by the API server are ignored.
pub fn losses(object: &Value, limit: usize) -> Vec<Loss> {
    let kind = match object.get("kind").and_then(Value::as_str) {
        Some("ClusterServiceVersion") => Type::Struct("ClusterServiceVersion"),
        Some("CustomResourceDefinition") => Type::Struct("CustomResourceDefinition"),
        _ => return Vec::new(),
    };
    let mut finder = LossFinder { path: Vec::new(), found: Vec::new(), limit };
    finder.value(object, &kind);
    finder.found
}

struct LossFinder {
    path: Vec<String>,
    found: Vec<Loss>,
    limit: usize,
}

impl LossFinder {
    fn value(&mut self, value: &Value, kind: &Type) {
        if self.found.len() >= self.limit {
            return;
        }
        match (kind, value) {
            (Type::Int32, Value::Number(number)) => {
                let fits =
                    number.as_f64().is_none_or(|float| (-2_147_483_648.0..=2_147_483_647.0).contains(&float));
                if !fits {
                    self.found.push(Loss::Wrapped(self.path.clone()));
                }
            }
            (Type::List(element), Value::Array(items)) => self.items(items, element),
            (Type::SchemaOrList, Value::Array(items)) => self.items(items, &Type::Struct("JSONSchemaProps")),
            (Type::Map(element), Value::Object(entries)) => {
                for (key, value) in entries {
                    self.inside(key.clone(), |finder| finder.value(value, element));
                }
            }
            (Type::Struct(name), Value::Object(entries)) => self.fields(entries, name),
            (Type::SchemaOrBool | Type::SchemaOrList | Type::SchemaOrStrings, Value::Object(entries)) => {
                self.fields(entries, "JSONSchemaProps");
            }
            _ => {}
        }
    }

    fn items(&mut self, items: &[Value], kind: &Type) {
        for (index, item) in items.iter().enumerate() {
            self.inside(index.to_string(), |finder| finder.value(item, kind));
        }
    }

    fn fields(&mut self, entries: &Map<String, Value>, owner: &str) {
        let known = types().fields(owner);
        for (key, value) in entries {
            let field = known.binary_search_by(|field| field.name.cmp(key.as_str()));
            if self.path.is_empty() && key == "status" {
                continue;
            }
            self.inside(key.clone(), |finder| match field {
                Ok(index) => finder.value(value, &known[index].kind),
                Err(_) if value.is_null() => {}
                Err(_) if finder.found.len() < finder.limit => {
                    finder.found.push(Loss::Unknown(finder.path.clone()))
                }
                Err(_) => {}
            });
        }
    }

    fn inside(&mut self, segment: String, find: impl FnOnce(&mut Self)) {
        self.path.push(segment);
        find(self);
        self.path.pop();
    }
}
