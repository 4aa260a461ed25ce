//! The catalog content server: `/catalogs/{name}/api/v1/all`, `/metas` and `/graphql`
//! (docs/design/catalogd.md#order-of-checks, docs/design/catalogd.md#server-limits).
//!
//! It only reads the store. The owner of the store decides which content is held.

pub mod body;
mod delivery;
pub mod graphql;
pub mod precondition;
pub mod range;
pub mod request_record;
mod response;
pub mod route;
mod server;
#[cfg(test)]
mod tests;

pub use server::{CatalogServer, router};
