//! The catalog content server (spec 02 §§D4–D9): `/catalogs/{name}/api/v1/all` and `/metas`.
//!
//! It only reads: what is held is decided elsewhere.

mod answer;
pub mod body;
pub mod encoding;
pub mod precondition;
pub mod range;
pub mod request_metrics;
pub mod route;
#[cfg(test)]
mod tests;

pub use answer::{CatalogServer, router};
pub use encoding::Encoding;
