//! GraphQL schema of a catalog, and execution of queries.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use async_graphql::dynamic::{Field, FieldFuture, FieldValue, InputValue, Object, Schema, TypeRef};
use async_graphql::indexmap::IndexMap;
use async_graphql::{Request, Value};

use crate::meter::{Meter, MeterExtension};
use crate::names::{is_name, query_field, type_name};
use crate::query::Query;
use crate::resolvers::{self, Objects, PAGE, SchemaSummary, Source};
use crate::response::{error_response, response};
use crate::schema::{CatalogSchema, FieldShape, LeafShape, ObjectShape, SchemaError};

const QUERY: &str = "Query";
const CATALOG_SUMMARY: &str = "CatalogSummary";
const SCHEMA_SUMMARY: &str = "SchemaSummary";
const SCALARS: [&str; 5] = [TypeRef::STRING, TypeRef::INT, TypeRef::FLOAT, TypeRef::BOOLEAN, TypeRef::ID];

/// Executes queries on one catalog.
#[derive(Clone, Debug)]
pub struct Executor {
    schema: Schema,
}

impl Executor {
    /// Builds the GraphQL schema.
    ///
    /// # Errors
    /// The names in the catalog are not a valid GraphQL schema.
    pub fn new(catalog: &CatalogSchema) -> Result<Self, SchemaError> {
        check_collisions(catalog)?;
        let mut types = Types::default();
        let mut query = Object::new(QUERY).field(summary_field());
        for (schema, shape) in &catalog.schemas {
            query = query.field(types.add_schema(schema, shape)?);
        }
        types.add(query)?;
        types.add(catalog_summary(catalog))?;
        types.add(schema_summary())?;
        let builder = Schema::build(QUERY, None, None).extension(MeterExtension).disable_suggestions();
        let schema = types.objects.into_values().fold(builder, |builder, object| builder.register(object));
        Ok(Self { schema: schema.finish().map_err(|error| SchemaError::Library(error.0))? })
    }

    /// Executes `query` on `objects`. Returns JSON text with a newline. Blocks while it reads, but not much longer
    /// than until `deadline`.
    pub fn run(&self, query: Query, objects: impl Objects, deadline: Instant) -> Vec<u8> {
        let meter = Arc::new(Meter::new(deadline));
        let mut request = Request::new("").data(Arc::clone(&meter)).data(Source(Box::new(objects)));
        request.set_parsed_query(query.document);
        let result = block_on(self.schema.execute(request));
        if let Some(why) = meter.stopped() {
            return error_response(why);
        }
        match result.data {
            // No field was left to select.
            Value::Null if result.errors.is_empty() => response(&Value::Object(IndexMap::new()), &[]),
            data => response(&data, &result.errors),
        }
    }
}

/// Polls a future that never waits: resolvers only compute and read.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
    }
}

/// Checks for name collisions in name order, so that the same catalog always has the same error.
fn check_collisions(catalog: &CatalogSchema) -> Result<(), SchemaError> {
    let find = |name_of: fn(&str) -> String, collision: fn(String, String, String) -> SchemaError| {
        let mut schemas = BTreeMap::new();
        for schema in catalog.schemas.keys() {
            let name = name_of(schema);
            if let Some(other) = schemas.insert(name.clone(), schema) {
                return Err(collision(other.clone(), schema.clone(), name));
            }
        }
        Ok(())
    };
    find(type_name, SchemaError::TypeCollision)?;
    find(query_field, SchemaError::FieldCollision)
}

/// Types added so far.
#[derive(Default)]
struct Types {
    objects: BTreeMap<String, Object>,
}

impl Types {
    fn add(&mut self, object: Object) -> Result<(), SchemaError> {
        let name = object.type_name().to_owned();
        if SCALARS.contains(&name.as_str()) || self.objects.contains_key(&name) {
            return Err(SchemaError::DuplicateType(name));
        }
        self.objects.insert(name, object);
        Ok(())
    }

    /// Adds the type of a schema and those of its lists. Returns the root field.
    fn add_schema(&mut self, schema: &str, shape: &ObjectShape) -> Result<Field, SchemaError> {
        let (root, name) = (query_field(schema), type_name(schema));
        if let Some(wrong) = [&name, &root].into_iter().find(|name| !is_name(name)) {
            return Err(SchemaError::InvalidName(wrong.clone()));
        }
        let mut object = Object::new(&name);
        for (field, shape) in &shape.fields {
            object = object.field(match shape {
                FieldShape::Leaf(shape) => leaf_field(&name, field, *shape),
                FieldShape::Objects(fields) => self.add_element(&name, field, fields)?,
            });
        }
        self.add(object)?;
        let schema = schema.to_owned();
        Ok(Field::new(root, TypeRef::named_list(name), move |ctx| {
            FieldFuture::Value(resolvers::page(&ctx, &schema))
        })
        .argument(integer("limit", PAGE).description("Maximum number of items to return"))
        .argument(integer("offset", 0).description("Number of items to skip")))
    }

    fn add_element(
        &mut self,
        parent: &str,
        field: &str,
        fields: &BTreeMap<String, LeafShape>,
    ) -> Result<Field, SchemaError> {
        let name = format!("{parent}{}", type_name(field));
        let leaves = fields.iter().map(|(field, shape)| leaf_field(&name, field, *shape));
        self.add(leaves.fold(Object::new(&name), Object::field))?;
        let parent = parent.to_owned();
        Ok(Field::new(field, TypeRef::named_list(name), move |ctx| {
            FieldFuture::Value(resolvers::objects(&ctx, &parent))
        }))
    }
}

fn leaf_field(parent: &str, field: &str, shape: LeafShape) -> Field {
    let parent = parent.to_owned();
    let scalar = shape.scalar.name();
    let ty = if shape.is_list { TypeRef::named_list(scalar) } else { TypeRef::named(scalar) };
    Field::new(field, ty, move |ctx| FieldFuture::Value(resolvers::leaf(&ctx, &parent, shape)))
}

fn integer(name: &str, default: usize) -> InputValue {
    InputValue::new(name, TypeRef::named(TypeRef::INT)).default_value(default)
}

fn summary_field() -> Field {
    Field::new("summary", TypeRef::named(CATALOG_SUMMARY), |_| {
        FieldFuture::Value(Some(FieldValue::owned_any(())))
    })
}

fn catalog_summary(catalog: &CatalogSchema) -> Object {
    let summary = |(name, shape): (&String, &ObjectShape)| SchemaSummary {
        name: Arc::from(name.as_str()),
        objects: shape.objects,
        fields: shape.fields.len(),
    };
    let schemas: Arc<[SchemaSummary]> = catalog.schemas.iter().map(summary).collect();
    let total = schemas.len();
    let total = Field::new("totalSchemas", TypeRef::named(TypeRef::INT), move |_| {
        FieldFuture::Value(Some(FieldValue::value(total)))
    });
    let schemas = Field::new("schemas", TypeRef::named_list(SCHEMA_SUMMARY), move |_| {
        FieldFuture::Value(Some(FieldValue::list(schemas.iter().cloned().map(FieldValue::owned_any))))
    });
    Object::new(CATALOG_SUMMARY).field(total).field(schemas)
}

fn schema_summary() -> Object {
    let leaf = |name, ty, value: fn(&SchemaSummary) -> Value| {
        Field::new(name, TypeRef::named(ty), move |ctx| {
            FieldFuture::Value(resolvers::summary_value(&ctx, value))
        })
    };
    Object::new(SCHEMA_SUMMARY)
        .field(leaf("name", TypeRef::STRING, |summary| Value::from(&*summary.name)))
        .field(leaf("totalObjects", TypeRef::INT, |summary| Value::from(summary.objects)))
        .field(leaf("totalFields", TypeRef::INT, |summary| Value::from(summary.fields)))
}
