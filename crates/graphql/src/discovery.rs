//! Discovery of the types and fields of a catalog (docs/design/catalogd.md#graphql-types).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use crate::members::{Members, members, sample};
use crate::scalar::Scalar;
use crate::schema::{CatalogSchema, FieldShape, LeafShape, SchemaError};

/// Most fields of all types together. Each is stored with the name of its type. A long name counts as several
/// fields.
const MAX_FIELDS: usize = 5_000;
const NAME_PART: usize = 64;
/// One more than allowed, so that an excess is detected.
const READ_MEMBERS: usize = MAX_FIELDS + 1;

/// Discovery of the schema. Must be given each object of a catalog once, in stored order.
///
/// ```
/// let mut discovery = olm_graphql::Discovery::default();
/// discovery.observe("olm.package", r#"{"schema":"olm.package","name":"foo"}"#)?;
/// discovery.observe("olm.bundle", r#"{"schema":"olm.bundle","package":"foo","name":"foo.v1"}"#)?;
/// let schema = discovery.finish();
/// # Ok::<(), olm_graphql::SchemaError>(())
/// ```
#[derive(Debug, Default)]
pub struct Discovery {
    schema: CatalogSchema,
    fields: usize,
}

impl Discovery {
    /// Adds one object. Objects without a schema and text that is not an object are ignored.
    ///
    /// # Errors
    /// The catalog has too many fields.
    pub fn observe(&mut self, schema: &str, json: &str) -> Result<(), SchemaError> {
        if schema.is_empty() {
            return Ok(());
        }
        let Ok(members) = members(json, READ_MEMBERS, &|_| true) else {
            return Ok(());
        };
        let object = self.schema.schemas.entry(schema.to_owned()).or_default();
        object.objects += 1;
        for (field, value) in members {
            merge(&mut object.fields, schema.len(), field, value.get(), &mut self.fields)?;
        }
        Ok(())
    }

    /// Discovered schema.
    pub fn finish(self) -> CatalogSchema {
        self.schema
    }
}

/// Merges the type of `value` into `field`. The first value determines the type of a leaf. A list becomes a list of
/// objects once an object has occurred in it. `owner` is the length of the schema name.
fn merge(
    fields: &mut BTreeMap<String, FieldShape>,
    owner: usize,
    field: String,
    value: &str,
    count: &mut usize,
) -> Result<(), SchemaError> {
    let length = owner + field.len();
    let mut objects = match fields.get_mut(&field) {
        Some(FieldShape::Objects(known)) => std::mem::take(known),
        Some(FieldShape::Leaf(_)) => BTreeMap::new(),
        None => {
            spend(count, length)?;
            BTreeMap::new()
        }
    };
    for (name, value) in nested_objects(value).into_iter().flatten() {
        if let Entry::Vacant(unknown) = objects.entry(name) {
            spend(count, length + unknown.key().len())?;
            unknown.insert(nested_leaf(value.get()));
        }
    }
    if objects.is_empty() {
        fields.entry(field).or_insert_with(|| FieldShape::Leaf(leaf(value)));
    } else {
        fields.insert(field, FieldShape::Objects(objects));
    }
    Ok(())
}

fn spend(count: &mut usize, length: usize) -> Result<(), SchemaError> {
    *count += 1 + length / NAME_PART;
    if *count > MAX_FIELDS { Err(SchemaError::TooManyFields(MAX_FIELDS)) } else { Ok(()) }
}

/// Objects among the first elements of an array.
fn nested_objects(value: &str) -> Vec<Members<'_>> {
    if !value.starts_with('[') {
        return Vec::new();
    }
    let objects = sample(value).into_iter().filter(|element| element.starts_with('{'));
    objects.filter_map(|object| members(object, READ_MEMBERS, &|_| true).ok()).collect()
}

/// Type of a field of a catalog object. Arrays whose first elements differ in kind are lists of strings.
fn leaf(value: &str) -> LeafShape {
    let is_list = value.starts_with('[');
    let mut elements = if is_list { sample(value) } else { vec![value] };
    elements.retain(|element| *element != "null");
    let is_uniform = elements.windows(2).all(|pair| kind(pair[0]) == kind(pair[1]));
    let first = elements.first().filter(|_| is_uniform);
    LeafShape { scalar: first.map_or(Scalar::String, |first| Scalar::of(first)), is_list }
}

/// Type of a field of an element. The first element of an array determines the type.
fn nested_leaf(value: &str) -> LeafShape {
    let is_list = value.starts_with('[');
    let first = if is_list { sample(value).first().copied() } else { Some(value) };
    LeafShape { scalar: first.map_or(Scalar::String, Scalar::of), is_list }
}

/// Kind of a JSON value. All numbers are of one kind.
fn kind(json: &str) -> u8 {
    match json.as_bytes().first() {
        Some(b'-' | b'0'..=b'9') => b'0',
        Some(b't' | b'f') => b't',
        other => other.copied().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn discover(objects: &[&str]) -> BTreeMap<String, FieldShape> {
        let mut discovery = Discovery::default();
        for object in objects {
            discovery.observe("x", object).unwrap();
        }
        discovery.finish().schemas.remove("x").unwrap().fields
    }

    fn scalar(scalar: Scalar) -> FieldShape {
        FieldShape::Leaf(LeafShape { scalar, is_list: false })
    }

    fn list(scalar: Scalar) -> FieldShape {
        FieldShape::Leaf(LeafShape { scalar, is_list: true })
    }

    #[test]
    fn field_type_follows_value() {
        let rows = [
            (r#""s""#, scalar(Scalar::String)),
            ("true", scalar(Scalar::Boolean)),
            ("1", scalar(Scalar::Int)),
            ("1.5", scalar(Scalar::Float)),
            ("null", scalar(Scalar::String)),
            (r#"{"a":1}"#, scalar(Scalar::String)),
            ("[]", list(Scalar::String)),
            ("[{}]", list(Scalar::String)),
            ("[null]", list(Scalar::String)),
            ("[null,1]", list(Scalar::Int)),
            ("[1,2.5]", list(Scalar::Int)),
            ("[true,false]", list(Scalar::Boolean)),
            (r#"[1,"a"]"#, list(Scalar::String)),
            ("[[1]]", list(Scalar::String)),
        ];
        for (value, shape) in rows {
            let fields = discover(&[&format!(r#"{{"a":{value}}}"#)]);
            assert_eq!(fields, BTreeMap::from([("a".to_owned(), shape)]), "{value}");
        }
    }

    #[test]
    fn first_value_determines_type_but_objects_are_merged() {
        assert_eq!(discover(&[r#"{"a":1}"#, r#"{"a":"x"}"#])["a"], scalar(Scalar::Int));
        let fields = discover(&[
            r#"{"a":[],"schema":"x"}"#,
            r#"{"a":[{"n":1,"deep":{"k":2}},7,{"skips":["a"],"n":"later"}]}"#,
            r#"{"a":[{"b-c":true}]}"#,
        ]);
        let leaf = |scalar, is_list| LeafShape { scalar, is_list };
        let nested = [
            ("n", leaf(Scalar::Int, false)),
            ("deep", leaf(Scalar::String, false)),
            ("skips", leaf(Scalar::String, true)),
            ("bC", leaf(Scalar::Boolean, false)),
        ];
        let nested = nested.map(|(name, leaf)| (name.to_owned(), leaf));
        assert_eq!(fields["a"], FieldShape::Objects(BTreeMap::from(nested)));
        assert_eq!(fields["schema"], scalar(Scalar::String));
        // Only the first ten elements are inspected.
        let late = format!(r#"{{"a":[{}{{"late":1}}]}}"#, r#"{"early":1},"#.repeat(10));
        let early = BTreeMap::from([("early".to_owned(), leaf(Scalar::Int, false))]);
        assert_eq!(discover(&[&late])["a"], FieldShape::Objects(early));
    }

    #[test]
    fn objects_with_schema_are_counted() {
        let mut discovery = Discovery::default();
        for (schema, json) in [("", "{}"), ("x", "{}"), ("x", "[]"), ("y", "{"), ("x", r#"{"a":1}"#)] {
            discovery.observe(schema, json).unwrap();
        }
        let schema = discovery.finish();
        assert_eq!(schema.schemas.len(), 1);
        assert_eq!(schema.schemas["x"].objects, 2);
    }

    #[test]
    fn too_many_or_too_long_fields_are_rejected() {
        let object = |members: usize| {
            let members: Vec<String> = (0..members).map(|number| format!("\"a{number}\":0")).collect();
            format!("{{{}}}", members.join(","))
        };
        let mut discovery = Discovery::default();
        discovery.observe("x", &object(MAX_FIELDS)).unwrap();
        let error = discovery.observe("y", &object(1)).unwrap_err();
        assert_eq!(error.to_string(), "catalog has more than 5000 fields");
        let long = format!("{{\"{}\":1}}", "a".repeat(NAME_PART * MAX_FIELDS));
        assert!(Discovery::default().observe("x", &long).is_err());
        // Each field is stored with the name of the schema, each field of a list also with the name of the list.
        let schema = "s".repeat(NAME_PART * 10);
        assert!(Discovery::default().observe(&schema, &object(400)).is_ok());
        assert!(Discovery::default().observe(&schema, &object(500)).is_err());
        let list = |members: usize| format!("{{\"{schema}\":[{}]}}", object(members));
        assert!(Discovery::default().observe("x", &list(400)).is_ok());
        assert!(Discovery::default().observe("x", &list(500)).is_err());
    }
}
