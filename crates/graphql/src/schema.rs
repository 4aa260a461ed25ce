//! Types and fields of a catalog, and the error of building a GraphQL schema of them
//! (docs/design/catalogd.md#graphql-types).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::scalar::Scalar;

/// Types and fields of one catalog. The serialized form is specific to this version: other versions discover the
/// schema again if they cannot read it.
///
/// ```
/// use olm_graphql::{CatalogSchema, Discovery};
///
/// let mut discovery = Discovery::default();
/// discovery.observe("olm.package", r#"{"schema":"olm.package","name":"foo"}"#)?;
/// let schema = discovery.finish();
/// let stored = serde_json::to_value(&schema)?;
/// assert_eq!(serde_json::from_value::<CatalogSchema>(stored)?, schema);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogSchema {
    pub(crate) schemas: BTreeMap<String, ObjectShape>,
}

/// Objects of one schema.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObjectShape {
    pub(crate) objects: usize,
    pub(crate) fields: BTreeMap<String, FieldShape>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FieldShape {
    Leaf(LeafShape),
    /// List of objects with these fields.
    Objects(BTreeMap<String, LeafShape>),
}

/// Field whose content is not discovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeafShape {
    pub(crate) scalar: Scalar,
    pub(crate) is_list: bool,
}

/// Error of building the GraphQL schema of a catalog (docs/design/catalogd.md#graphql-schema-failures).
///
/// ```
/// use olm_graphql::{Discovery, Executor, SchemaError};
///
/// let mut discovery = Discovery::default();
/// discovery.observe("a.b", "{}")?;
/// discovery.observe("a-b", "{}")?;
/// let error = Executor::new(&discovery.finish()).unwrap_err();
/// assert!(matches!(error, SchemaError::TypeCollision(..)));
/// # Ok::<(), SchemaError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// Two schemas map to the same type.
    #[error("type name collision: schemas {0:?} and {1:?} both sanitize to GraphQL type {2:?}")]
    TypeCollision(String, String, String),
    /// Two schemas map to the same root field.
    #[error("query field collision: schemas {0:?} and {1:?} both map to field {2:?}")]
    FieldCollision(String, String, String),
    /// A type has the name of a type that does not come from a schema.
    #[error(
        "failed to create GraphQL schema: Schema must contain unique named types but contains multiple types named {0:?}."
    )]
    DuplicateType(String),
    /// A type or root field has an invalid name.
    #[error(
        "failed to create GraphQL schema: Names must match /^[_a-zA-Z][_a-zA-Z0-9]*$/ but {0:?} does not."
    )]
    InvalidName(String),
    /// Too many fields.
    #[error("catalog has more than {0} fields")]
    TooManyFields(usize),
    /// Another error of the library.
    #[error("failed to create GraphQL schema: {0}")]
    Library(String),
}
