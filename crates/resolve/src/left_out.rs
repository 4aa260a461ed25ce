//! Skipped catalogs, and reasons against skipping one (docs/design/additions.md#best-effort-resolution).

use std::fmt;

use olm_version::quote;

use crate::catalog::CatalogError;

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
