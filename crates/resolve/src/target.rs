//! Target of a reconcile, from the resolver's answer and the installed bundle (docs/design/resolution.md#fallback).

use crate::error::ResolveError;
use crate::request::Request;
use crate::resolver::Resolved;

/// Target for the rest of a reconcile.
#[derive(Debug, Clone)]
pub enum Target {
    /// Roll out this bundle, which can be the installed one.
    Bundle(Resolved),
    /// Maintain the installed bundle, because the catalogs for a comparison are gone.
    Installed(ResolveError),
    /// No target: report the error and retry.
    Retry(ResolveError),
}

/// Chooses the target of an extension.
///
/// The installed bundle is kept only if no ClusterCatalog matches the selector any more and the request names either
/// no version or exactly the installed one, compared as text. `catalog_exists` is `true` if any ClusterCatalog
/// matches, whatever its state. A caller without this information passes `true`.
///
/// ```
/// use olm_resolve::{Installed, Request, Rules, Target, UpgradePolicy, resolve, target};
///
/// let request = Request {
///     package: "demo",
///     channels: &[],
///     version: None,
///     policy: UpgradePolicy::CatalogProvided,
///     installed: Some(Installed { name: "demo.v1.0.0", version: "1.0.0", release: None }),
///     rules: Rules::default(),
/// };
/// // All catalogs were deleted: the installed bundle is maintained.
/// assert!(matches!(target(&request, resolve(&request, &[]), false), Target::Installed(_)));
/// ```
pub fn target(
    request: &Request<'_>,
    resolution: Result<Resolved, ResolveError>,
    catalog_exists: bool,
) -> Target {
    let error = match resolution {
        Ok(resolved) => return Target::Bundle(resolved),
        Err(error) => error,
    };
    match request.installed {
        Some(installed)
            if !catalog_exists && request.range().is_none_or(|range| range == installed.version) =>
        {
            Target::Installed(error)
        }
        _ => Target::Retry(error),
    }
}
