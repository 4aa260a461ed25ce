//! GraphQL over the objects of one catalog (docs/design/catalogd.md#graphql-requests).
//!
//! ```text
//! objects ─ Discovery ► CatalogSchema ─ Executor::new ─┐
//! text ─ Query::parse (syntax, limits) ────────────────┴ Executor::run (reads objects by Objects) ► answer
//! ```
//!
//! Pure: objects come in as JSON text, answers go out as JSON text. Nothing of a catalog is kept but the names and
//! types of its fields, and no query takes more memory than [`MAX_ANSWER`] allows.

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
