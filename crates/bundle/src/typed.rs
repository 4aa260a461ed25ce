//! Typed pass over a bundle: drops unknown fields, checks the types of known ones, and normalizes zero values
//! (docs/design/bundles.md#typed-conversion, docs/design/bundles.md#normal-form, appendix B).
//!
//! The types are data (`typed/types.txt`), not Rust structs. The pass must distinguish absent, null, empty and zero
//! values, which generated structs cannot.

mod convert;
mod decode;
mod types;

use serde_json::Value;

pub(crate) use convert::{ConvertError, convert, shortest};
pub(crate) use decode::fault as decode_fault;
use types::field_of;
pub(crate) use types::{Type, types};

/// ClusterServiceVersion in normal form: only known fields, without zero values of optional ones. Idempotent.
///
/// # Errors
/// A known field has a value of the wrong type.
pub fn normal_csv(object: Value) -> Result<Value, String> {
    convert(object, &Type::Struct("ClusterServiceVersion")).map_err(|error| error.to_string())
}

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
    let mut found = Vec::new();
    find_losses(object, &kind, &mut Vec::new(), limit, &mut found);
    found
}

fn find_losses(value: &Value, kind: &Type, path: &mut Vec<String>, limit: usize, found: &mut Vec<Loss>) {
    if found.len() >= limit {
        return;
    }
    if let (Type::Int32, Value::Number(number)) = (kind, value)
        && number.as_f64().is_some_and(|float| !(f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&float))
    {
        found.push(Loss::Wrapped(path.clone()));
    }
    for (key, value, kind) in children(value, kind) {
        if path.is_empty() && key == "status" {
            continue;
        }
        path.push(key);
        match kind {
            Some(kind) => find_losses(value, kind, path, limit, found),
            None if !value.is_null() && found.len() < limit => found.push(Loss::Unknown(path.clone())),
            None => {}
        }
        path.pop();
    }
}

/// Members of an object and items of a list: key or index, value and type. Unknown fields have no type.
pub(crate) fn children<'a>(
    value: &'a Value,
    kind: &'a Type,
) -> Box<dyn Iterator<Item = (String, &'a Value, Option<&'a Type>)> + 'a> {
    static SCHEMA: Type = Type::Struct("JSONSchemaProps");
    match (value, kind) {
        (Value::Object(entries), Type::Map(element)) => {
            Box::new(entries.iter().map(|(key, value)| (key.clone(), value, Some(&**element))))
        }
        (Value::Object(entries), Type::Struct(name)) => Box::new(entries.iter().map(|(key, value)| {
            (key.clone(), value, field_of(types().fields(name), key).map(|field| &field.kind))
        })),
        (Value::Object(_), Type::SchemaOrBool | Type::SchemaOrList | Type::SchemaOrStrings) => {
            children(value, &SCHEMA)
        }
        (Value::Array(items), Type::List(_) | Type::SchemaOrList) => {
            let element = if let Type::List(element) = kind { element } else { &SCHEMA };
            let items = items.iter().enumerate();
            Box::new(items.map(move |(index, item)| (index.to_string(), item, Some(element))))
        }
        _ => Box::new(std::iter::empty()),
    }
}
