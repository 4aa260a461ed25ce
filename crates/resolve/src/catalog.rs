//! What the resolver is told about one catalog.

use std::sync::Arc;

use olm_version::quote;

use crate::package::PackageIndex;

/// One selected catalog with its answer to the question for the wanted package.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// Name of the ClusterCatalog.
    pub name: String,
    /// `spec.priority`; higher is preferred.
    pub priority: i32,
    /// The package, `None` if the catalog does not have it.
    pub package: Result<Option<Arc<PackageIndex>>, CatalogError>,
}

/// Why a catalog cannot be asked. The texts are part of the API (docs/design/resolution.md#fetch-errors).
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
    /// The content of the resolved reference is not here yet.
    #[error("cache for catalog {} not found", quote(.0))]
    NotCached(String),
    /// The content of the resolved reference could not be fetched or read.
    #[error("error retrieving cache for catalog {}: {fault}", quote(catalog))]
    Cache {
        /// The catalog's name.
        catalog: String,
        /// The remembered failure.
        fault: String,
    },
    /// The package's content cannot be decoded.
    #[error("error loading package {}: {fault}", quote(package))]
    Package {
        /// The package's name.
        package: String,
        /// What is wrong with it.
        fault: String,
    },
}
