//! Schema of a CRD: its fields and nested schemas.

use std::fmt;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::CheckError;

/// JSON schema in the form of `JSONSchemaProps`. Every known field has its type. `null` equals absence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schema<'a>(&'a Map<String, Value>);

/// Step from a schema to a nested one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step<'a> {
    Property(&'a str),
    Items,
    AdditionalProperties,
    Not,
    Pattern(&'a str),
    /// Keyword and index in a list of schemas.
    Entry(&'static str, usize),
}

/// Path element. Names are not escaped, as in the reference.
impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Property(name) => write!(f, ".{name}"),
            Self::Items => f.write_str(".items"),
            Self::AdditionalProperties => f.write_str(".additionalProperties"),
            Self::Not => f.write_str(".not"),
            Self::Pattern(pattern) => write!(f, ".patternProperties[{pattern}]"),
            Self::Entry(key, number) => write!(f, ".{key}[{number}]"),
        }
    }
}

/// Keywords with a list of schemas. `items` may be a list in general JSON Schema.
const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "items"];

#[derive(Clone, Copy)]
enum Type {
    Text,
    Flag,
    Number,
    Integer,
    List,
    Texts,
    Schema,
    Schemas,
    NamedSchemas,
    SchemaOrFlag,
    SchemaOrSchemas,
}

static FIELDS: [(&str, Type); 35] = [
    ("type", Type::Text),
    ("format", Type::Text),
    ("title", Type::Text),
    ("description", Type::Text),
    ("pattern", Type::Text),
    ("x-kubernetes-list-type", Type::Text),
    ("x-kubernetes-map-type", Type::Text),
    ("nullable", Type::Flag),
    ("exclusiveMaximum", Type::Flag),
    ("exclusiveMinimum", Type::Flag),
    ("uniqueItems", Type::Flag),
    ("x-kubernetes-preserve-unknown-fields", Type::Flag),
    ("x-kubernetes-embedded-resource", Type::Flag),
    ("x-kubernetes-int-or-string", Type::Flag),
    ("maximum", Type::Number),
    ("minimum", Type::Number),
    ("multipleOf", Type::Number),
    ("maxLength", Type::Integer),
    ("minLength", Type::Integer),
    ("maxItems", Type::Integer),
    ("minItems", Type::Integer),
    ("maxProperties", Type::Integer),
    ("minProperties", Type::Integer),
    ("enum", Type::List),
    ("x-kubernetes-validations", Type::List),
    ("required", Type::Texts),
    ("x-kubernetes-list-map-keys", Type::Texts),
    ("properties", Type::NamedSchemas),
    ("patternProperties", Type::NamedSchemas),
    ("additionalProperties", Type::SchemaOrFlag),
    ("items", Type::SchemaOrSchemas),
    ("allOf", Type::Schemas),
    ("anyOf", Type::Schemas),
    ("oneOf", Type::Schemas),
    ("not", Type::Schema),
];

impl Type {
    /// Returns the description of the allowed type if `value` has another.
    fn violation(self, value: &Value) -> Option<&'static str> {
        let all = |is: fn(&Value) -> bool| value.as_array().is_some_and(|list| list.iter().all(is));
        let (fits, expected) = match self {
            Self::Text => (value.is_string(), "text"),
            Self::Flag => (value.is_boolean(), "true or false"),
            Self::Number => (value.is_number(), "a number"),
            Self::Integer => (integer(value).is_some(), "an integer"),
            Self::List => (value.is_array(), "a list"),
            Self::Texts => (all(Value::is_string), "a list of texts"),
            Self::Schema => (value.is_object(), "an object"),
            Self::Schemas => (all(Value::is_object), "a list of objects"),
            Self::NamedSchemas => {
                let named = value.as_object();
                (named.is_some_and(|named| named.values().all(Value::is_object)), "an object of objects")
            }
            Self::SchemaOrFlag => (value.is_object() || value.is_boolean(), "an object, true or false"),
            Self::SchemaOrSchemas => {
                (value.is_object() || all(Value::is_object), "an object or a list of objects")
            }
        };
        (!fits).then_some(expected)
    }
}

/// Integer value, including the form `5.0`.
fn integer(value: &Value) -> Option<i64> {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "only whole numbers of a size that doubles hold exactly"
    )]
    let whole = |number: f64| (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64);
    value.as_i64().or_else(|| value.as_f64().and_then(whole))
}

static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

impl<'a> Schema<'a> {
    /// Schema without constraints.
    pub(crate) fn empty() -> Self {
        Self(&EMPTY)
    }

    /// Wraps a schema that was read before, or one nested in it.
    pub(crate) fn of(schema: &'a Map<String, Value>) -> Self {
        Self(schema)
    }

    /// Clones the fields.
    pub(crate) fn to_map(self) -> Map<String, Value> {
        self.0.clone()
    }

    /// Reads a schema with all nested ones. `path` is its place in the CRD of this name.
    ///
    /// # Errors
    /// A field has a value of the wrong type.
    pub(crate) fn read(crd: &str, mut path: String, schema: &'a Value) -> Result<Self, CheckError> {
        let map = schema.as_object().ok_or_else(|| CheckError::malformed(crd, &path, "an object"))?;
        let root = Self(map);
        root.verify(crd, &mut path)?;
        Ok(root)
    }

    fn verify(self, crd: &str, path: &mut String) -> Result<(), CheckError> {
        for &(key, type_) in &FIELDS {
            let violation = self.get(key).and_then(|value| type_.violation(value));
            if let Some(expected) = violation {
                return Err(CheckError::malformed(crd, &format!("{path}.{key}"), expected));
            }
        }
        let length = path.len();
        for (step, child) in self.children() {
            if let Step::Property(_) = step {
                path.push_str(".properties");
            }
            path.push_str(&step.to_string());
            child.verify(crd, path)?;
            path.truncate(length);
        }
        Ok(())
    }

    /// Value of a field. `None` if absent or null.
    pub(crate) fn get(self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn text(self, key: &str) -> &'a str {
        self.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn flag(self, key: &str) -> bool {
        self.get(key).and_then(Value::as_bool).unwrap_or_default()
    }

    pub(crate) fn number(self, key: &str) -> Option<f64> {
        self.get(key).and_then(Value::as_f64)
    }

    pub(crate) fn integer(self, key: &str) -> Option<i64> {
        self.get(key).and_then(integer)
    }

    pub(crate) fn list(self, key: &str) -> &'a [Value] {
        self.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// Directly nested schemas.
    pub(crate) fn children(self) -> Vec<(Step<'a>, Self)> {
        let mut children = Vec::new();
        let mut add =
            |step, value: &'a Value| children.extend(value.as_object().map(|map| (step, Self(map))));
        for (key, step) in
            [("properties", Step::Property as fn(_) -> _), ("patternProperties", Step::Pattern)]
        {
            let named = self.get(key).and_then(Value::as_object).into_iter().flatten();
            named.for_each(|(name, value)| add(step(name), value));
        }
        for (key, step) in
            [("items", Step::Items), ("additionalProperties", Step::AdditionalProperties), ("not", Step::Not)]
        {
            self.get(key).into_iter().for_each(|value| add(step, value));
        }
        for key in LISTS {
            let entries = self.list(key).iter().enumerate();
            entries.for_each(|(number, value)| add(Step::Entry(key, number), value));
        }
        children
    }

    /// Nested schema at `step`.
    pub(crate) fn child(self, step: Step<'_>) -> Option<Self> {
        let value = match step {
            Step::Property(name) => self.get("properties")?.get(name)?,
            Step::Items => self.get("items")?,
            Step::AdditionalProperties => self.get("additionalProperties")?,
            Step::Not => self.get("not")?,
            Step::Pattern(pattern) => self.get("patternProperties")?.get(pattern)?,
            Step::Entry(key, number) => self.list(key).get(number)?,
        };
        value.as_object().map(Self)
    }
}
