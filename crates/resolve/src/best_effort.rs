//! Which catalogs that cannot answer may be left out (gate `BestEffortResolution`,
//! docs/design/additions.md#best-effort-resolution).
//!
//! Leaving one out must not change the source of an extension behind the user's back: neither is the catalog of the
//! installed bundle left out, nor one that could have been preferred to the catalog that is chosen.

use std::fmt;

use olm_version::quote;

use crate::catalog::{Catalog, CatalogError};
use crate::error::ResolveError;
use crate::judge::Judge;
use crate::package::Offer;
use crate::request::Request;

/// A catalog that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The catalog's name.
    pub catalog: String,
    /// Why it cannot be asked.
    pub fault: CatalogError,
}

/// Why a catalog that cannot answer is not left out. Displayed as the end of the error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needed {
    /// No other catalog offers the installed bundle, so it may have come from this one.
    OffersInstalled(String),
    /// No other catalog has a matching bundle.
    OnlyOne,
    /// Its priority is higher than that of the catalog that would be chosen.
    Preferred {
        /// Its priority.
        priority: i32,
        /// The catalog that would be chosen.
        over: String,
    },
    /// Something is installed, and what would replace it is deprecated: a bundle of this catalog that is not would have
    /// been preferred whatever the priorities, so the installed one may have come from it.
    Deprecated {
        /// The bundle that would be chosen.
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

/// The end of a message after a resolution that left catalogs out; empty if it left out none.
pub fn left_out_text(left_out: &[LeftOut]) -> String {
    if left_out.is_empty() {
        return String::new();
    }
    let names: Vec<_> = left_out.iter().map(|left_out| left_out.catalog.as_str()).collect();
    format!("; skipped unavailable catalogs: [{}]", names.join(" "))
}

/// Leaves out the catalogs that cannot answer, in descending order of priority, if `best`, the best catalog with its
/// candidate, is good enough without them.
///
/// # Errors
/// The first that must not be left out.
pub(crate) fn leave_out(
    judge: &Judge<'_>,
    catalogs: &[&Catalog],
    best: Option<(&Catalog, &Offer)>,
) -> Result<Vec<LeftOut>, ResolveError> {
    let request = judge.request;
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
                let replaces = request.installed.is_some() && !judge.is_installed(offer);
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
