//! The catalog content server: `/catalogs/{name}/api/v1/all`, `/metas` and `/graphql`
//! (docs/design/catalogd.md#order-of-checks, docs/design/catalogd.md#server-limits).
//!
//! It only reads the store. [`crate::catalog`] decides which content is held.

mod answer;
pub mod body;
mod delivery;
pub mod encoding;
pub mod graphql;
pub mod precondition;
pub mod range;
pub mod request_record;
pub mod route;
#[cfg(test)]
mod tests;

pub use answer::{CatalogServer, router};
pub use encoding::Encoding;
