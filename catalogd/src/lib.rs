//! catalogd: unpacks the images of ClusterCatalogs and serves their content over HTTPS.
//!
//! ```text
//! ClusterCatalog ─ catalog::decide ► pull (olm-oci) ► load (olm-fbc) ► content::Store ─► http
//!                └ catalog::status ► status of the ClusterCatalog (leader only)
//! ```

pub mod catalog;
pub mod content;
pub mod encoding;
pub mod flags;
pub mod http;
pub mod serve;
pub mod webhook;
