//! catalogd: unpacks the images of ClusterCatalogs and serves their content over HTTPS.
//!
//! ```text
//! ClusterCatalog ─ catalog::decide ► pull (olm-oci) ► load (olm-fbc) ► olm-catalog-server
//!                └ catalog::status ► status of the ClusterCatalog (leader only)
//! ```

pub mod catalog;
pub mod flags;
pub mod serve;
pub mod webhook;

pub use olm_catalog_server::{content, http};
