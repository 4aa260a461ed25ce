//! Unavailable catalogs that a resolution can skip (feature gate `BestEffortResolution`,
//! docs/design/additions.md#best-effort-resolution).
//!
//! A skipped catalog must not silently change the source of an extension. So neither the catalog of the installed
//! bundle is skipped, nor one that could have been preferred to the chosen catalog.

use std::fmt;

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

/// Reason against skipping an unavailable catalog. Displayed as the end of the error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needed {
    /// No other catalog offers the installed bundle, so it can be from this one.
    OffersInstalled(String),
    /// No other catalog has a matching bundle.
    OnlyOne,
    /// The priority of the catalog is higher than that of the catalog that would be chosen.
    Preferred {
        /// Priority of the catalog.
        priority: i32,
        /// Name of the catalog that would be chosen.
        over: String,
    },
    /// An extension is installed, and the new bundle would be deprecated. A non-deprecated bundle of this catalog
    /// would have been preferred whatever the priorities, so the installed bundle can be from this catalog.
    Deprecated {
        /// Name of the bundle that would be chosen.
        bundle: String,
    },
}

impl fmt::Display for Needed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("; it is not skipped because ")?;
        match self {
            Self::OffersInstalled(bundle) => {
                write!(f, "no available catalog offers the installed bundle {}", quote(bundle))
            }
            Self::OnlyOne => f.write_str("no available catalog has a matching bundle"),
            Self::Preferred { priority, over } => {
                write!(f, "its priority {priority} is higher than that of catalog {}", quote(over))
            }
            Self::Deprecated { bundle } => {
                write!(f, "bundle {}, which would be chosen without it, is deprecated", quote(bundle))
            }
        }
    }
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
