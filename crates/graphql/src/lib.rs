//! GraphQL over the objects of one catalog (docs/design/catalogd.md#graphql-requests).
//!
//! ```text
//! objects ─ Discovery ► CatalogSchema ─ Executor::new ─┐
//! text ─ Query::parse (syntax, limits) ────────────────┴ Executor::run (reads objects by Objects) ► response
//! ```
//!
//! Pure: input is the JSON text of objects, output is JSON text. Only names and types of the fields of a catalog
//! are kept, and no query uses more memory than [`MAX_ANSWER`] allows.

mod answer;
mod discovery;
mod executor;
mod members;
mod meter;
mod names;
mod query;
mod resolvers;
mod scalar;
mod syntax;

pub use answer::refusal;
pub use discovery::{CatalogSchema, Discovery};
pub use executor::{Executor, SchemaError};
pub use meter::MAX_ANSWER;
pub use query::{Query, QueryError};
pub use resolvers::{MAX_OBJECT, Objects};
