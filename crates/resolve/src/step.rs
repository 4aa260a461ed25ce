//! What to do with the resolver's answer when something may be installed already (docs/design/resolution.md#fallback).

use crate::error::ResolveError;
use crate::request::Request;
use crate::resolver::Resolved;

/// The target that the rest of a reconcile works towards.
#[derive(Debug, Clone)]
pub enum Target {
    /// Roll out this bundle; it may be the installed one.
    Bundle(Resolved),
    /// Keep the installed bundle in shape: the catalogs it could be compared with are gone.
    Installed(ResolveError),
    /// There is none; report the error and try again.
    Retry(ResolveError),
}

/// Decides on the target of an extension.
///
/// Only if no ClusterCatalog matches the selector any more, and the request names no version but the
/// installed one, letter by letter, is the installed bundle kept. `catalog_exists` says that some
/// ClusterCatalog matches, whatever its state; a caller who cannot tell passes `true`.
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
