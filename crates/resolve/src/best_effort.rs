//! Unavailable catalogs that a resolution can skip (feature gate `BestEffortResolution`,
//! docs/design/additions.md#best-effort-resolution).
//!
//! A skipped catalog must not silently change the source of an extension. So neither the catalog of the installed
//! bundle is skipped, nor one that could have been preferred to the chosen catalog.

use olm_version::quote;

use crate::bundle_filter::BundleFilter;
use crate::catalog::{Catalog, CatalogError};
use crate::error::ResolveError;
use crate::package::Offer;
use crate::request::Request;

/// Skipped catalog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Name of the catalog.
    pub catalog: String,
    /// Error of the catalog.
    pub fault: CatalogError,
}

/// Suffix of the message after a resolution that skipped catalogs. Empty without any.
pub fn left_out_text(left_out: &[LeftOut]) -> String {
    if left_out.is_empty() {
        return String::new();
    }
    let names: Vec<_> = left_out.iter().map(|left_out| left_out.catalog.as_str()).collect();
    format!("; skipped unavailable catalogs: [{}]", names.join(" "))
}

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
        let reason = match (lost, best) {
            // No other catalog offers the installed bundle, so it can be from this one.
            (Some(installed), _) => {
                format!("no available catalog offers the installed bundle {}", quote(installed.name))
            }
            (None, None) => "no available catalog has a matching bundle".to_owned(),
            (None, Some((best, _))) if catalog.priority > best.priority => {
                let over = quote(&best.name);
                format!("its priority {} is higher than that of catalog {over}", catalog.priority)
            }
            // A non-deprecated bundle of this catalog would have been preferred whatever the priorities, so the
            // installed bundle can be from this catalog.
            (None, Some((_, offer)))
                if offer.deprecated() && request.installed.is_some() && !filter.is_installed(offer) =>
            {
                format!("bundle {}, which would be chosen without it, is deprecated", quote(offer.name()))
            }
            _ => {
                left_out.push(LeftOut { catalog: catalog.name.clone(), fault: fault.clone() });
                continue;
            }
        };
        let needed = format!("; it is not skipped because {reason}");
        return Err(catalog_error(request, catalog, fault, needed));
    }
    left_out.sort_by(|a, b| a.catalog.cmp(&b.catalog));
    Ok(left_out)
}

pub(crate) fn catalog_error(
    request: &Request<'_>,
    catalog: &Catalog,
    fault: &CatalogError,
    needed: String,
) -> ResolveError {
    ResolveError::Catalog {
        package: request.package.into(),
        catalog: catalog.name.clone(),
        fault: fault.clone(),
        needed: needed.into(),
    }
}
