//! GraphQL over the objects of one catalog (docs/design/catalogd.md#graphql-requests).
//!
//! ```text
//! objects ─ Discovery ► CatalogSchema ─ Executor::new ─┐
//! text ─ Query::parse (syntax, limits) ────────────────┴ Executor::run (reads objects by Objects) ► response
//! ```
//!
//! Pure: input is the JSON text of objects, output is JSON text. Only names and types of the fields of a catalog
//! are kept, and no query uses more memory than [`MAX_RESPONSE`] allows.
//!
//! ```
//! use std::io;
//! use std::ops::Range;
//! use std::time::{Duration, Instant};
//!
//! use olm_graphql::{Discovery, Executor, Objects, Query};
//!
//! const PACKAGE: &str = r#"{"schema":"olm.package","name":"foo"}"#;
//!
//! /// A catalog with one object.
//! struct Catalog;
//!
//! impl Objects for Catalog {
//!     fn ranges(&self, schema: &str, offset: usize, limit: usize) -> Vec<Range<u64>> {
//!         let all = (schema == "olm.package").then_some(0..PACKAGE.len() as u64);
//!         all.into_iter().skip(offset).take(limit).collect()
//!     }
//!
//!     fn read(&self, _: Range<u64>) -> io::Result<Vec<u8>> {
//!         Ok(PACKAGE.into())
//!     }
//! }
//!
//! let mut discovery = Discovery::default();
//! discovery.observe("olm.package", PACKAGE)?;
//! let executor = Executor::new(&discovery.finish())?;
//! let query = Query::parse("{ olmpackages { name } }")?;
//! let response = executor.run(query, Catalog, Instant::now() + Duration::from_secs(5));
//! assert_eq!(String::from_utf8(response)?, "{\"data\":{\"olmpackages\":[{\"name\":\"foo\"}]}}\n");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod discovery;
mod executor;
mod members;
mod meter;
mod names;
mod query;
mod resolvers;
mod response;
mod scalar;
mod schema;
mod syntax;

pub use discovery::Discovery;
pub use executor::Executor;
pub use meter::MAX_RESPONSE;
pub use query::{Query, QueryError};
pub use resolvers::{MAX_OBJECT, Objects};
pub use response::error_response;
pub use schema::{CatalogSchema, SchemaError};
