//! Unavailable catalogs that a resolution can skip (feature gate `BestEffortResolution`,
//! docs/design/additions.md#best-effort-resolution).
//!
//! A skipped catalog must not silently change the source of an extension. So neither the catalog of the installed
//! bundle is skipped, nor one that could have been preferred to the chosen catalog.

use crate::bundle_filter::BundleFilter;
use crate::catalog::{Catalog, CatalogError};
use crate::error::ResolveError;
use crate::left_out::{LeftOut, Needed};
use crate::package::Offer;
use crate::request::Request;

/// Skips the unavailable catalogs, in descending order of priority, if none of them could have been preferred to
/// `best`, the best available catalog with its candidate.
///
/// # Errors
/// The first catalog that must not be skipped.
pub(crate) fn leave_out(
    filter: &BundleFilter<'_>,
    catalogs: &[&Catalog],
    best: Option<(&Catalog, &Offer)>,
) -> Result<Vec<LeftOut>, ResolveError> {
    let request = filter.request;
    let offers_installed = |bundle: &str| {
        let mut packages = catalogs.iter().filter_map(|catalog| catalog.package.as_ref().ok()?.as_ref());
        packages.any(|package| package.offer(bundle).is_some())
    };
    let lost = request.installed.filter(|installed| !offers_installed(installed.name));
    let mut left_out = Vec::new();
    for catalog in catalogs {
        let Err(fault) = &catalog.package else { continue };
        let needed = match (lost, best) {
            (Some(installed), _) => Some(Needed::OffersInstalled(installed.name.to_owned())),
            (None, None) => Some(Needed::OnlyOne),
            (None, Some((best, _))) if catalog.priority > best.priority => {
                Some(Needed::Preferred { priority: catalog.priority, over: best.name.clone() })
            }
            (None, Some((_, offer))) => {
                let replaces = request.installed.is_some() && !filter.is_installed(offer);
                (replaces && offer.deprecated())
                    .then(|| Needed::Deprecated { bundle: offer.name().to_owned() })
            }
        };
        if needed.is_some() {
            return Err(catalog_error(request, catalog, fault, needed));
        }
        left_out.push(LeftOut { catalog: catalog.name.clone(), fault: fault.clone() });
    }
    left_out.sort_by(|a, b| a.catalog.cmp(&b.catalog));
    Ok(left_out)
}

pub(crate) fn catalog_error(
    request: &Request<'_>,
    catalog: &Catalog,
    fault: &CatalogError,
    needed: Option<Needed>,
) -> ResolveError {
    ResolveError::Catalog {
        package: request.package.to_owned(),
        catalog: catalog.name.clone(),
        fault: fault.clone(),
        needed: needed.map(Box::new),
    }
}
