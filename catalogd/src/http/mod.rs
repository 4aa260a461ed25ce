//! The catalog content server (spec 02 §§D4–D9): `/catalogs/{name}/api/v1/all`, `/metas` and
//! `/graphql`.
//!
//! It only reads: what is held is decided elsewhere.

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
