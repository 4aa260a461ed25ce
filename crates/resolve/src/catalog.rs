//! Input of the resolver from one catalog.

use std::sync::Arc;

use olm_version::quote;

use crate::package::PackageIndex;

/// Selected catalog with its content for the requested package.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// Name of the ClusterCatalog.
    pub name: String,
    /// `spec.priority`. Higher is preferred.
    pub priority: i32,
    /// Index of the package. `None` if the catalog does not contain it.
    pub package: Result<Option<Arc<PackageIndex>>, CatalogError>,
}

/// Reason why a catalog is unavailable. The texts are part of the API (docs/design/resolution.md#fetch-errors).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogError {
    /// Condition `Serving` is not `True`.
    #[error("catalog {} is not being served", quote(.0))]
    NotServing(String),
    /// No `status.resolvedSource`.
    #[error("error: catalog {} has a nil status.resolvedSource value", quote(.0))]
    NoResolvedSource(String),
    /// No `status.resolvedSource.image`.
    #[error("error: catalog {} has a nil status.resolvedSource.image value", quote(.0))]
    NoResolvedImage(String),
    /// The content of the resolved reference is not cached yet.
    #[error("cache for catalog {} not found", quote(.0))]
    NotCached(String),
    /// The content of the resolved reference could not be fetched or read.
    #[error("error retrieving cache for catalog {}: {fault}", quote(catalog))]
    Cache {
        /// Name of the catalog.
        catalog: String,
        /// Recorded error of the fetch.
        fault: String,
    },
    /// The content of the package cannot be decoded.
    #[error("error loading package {}: {fault}", quote(package))]
    Package {
        /// Name of the package.
        package: String,
        /// Error of the decoder.
        fault: String,
    },
}
