//! Errors of the resolution. The texts are part of the API (docs/design/resolution.md#resolution-errors, additions:
//! docs/design/additions.md#dependency-modes, docs/design/additions.md#best-effort-resolution).

use olm_version::{ConstraintError, VersionReleaseError, quote};

use crate::best_effort::{LeftOut, left_out_text};
use crate::catalog::CatalogError;
use crate::dependency::{AssessedRequirement, Satisfier, clauses};
use crate::held::Held;
use crate::selector::SelectorError;

/// Maximum number of held bundles that an error names.
const NAMED_HELD: usize = 3;

/// Error of [`resolve`](crate::resolve).
#[derive(Debug, Clone, thiserror::Error)]
pub enum ResolveError {
    /// `spec.source.catalog.selector` is invalid.
    #[error("desired catalog selector is invalid: {0}")]
    Selector(#[from] SelectorError),
    /// `spec.source.catalog.version` is invalid.
    #[error("desired version range {} is invalid: {fault}", quote(range))]
    Version {
        /// The constraint as written.
        range: String,
        /// Parse error.
        fault: ConstraintError,
    },
    /// The ClusterCatalogs could not be listed.
    #[error("error walking catalogs: error listing catalogs: {0}")]
    List(String),
    /// A selected catalog is unavailable, and cannot be skipped.
    #[error(
        "error walking catalogs: error getting package {} from catalog {}: {fault}{needed}",
        quote(package),
        quote(catalog)
    )]
    Catalog {
        /// Name of the requested package.
        package: Box<str>,
        /// Name of the catalog.
        catalog: String,
        /// Reason why it is unavailable.
        fault: CatalogError,
        /// Reason against skipping it, with best effort. Otherwise empty.
        needed: Box<str>,
    },
    /// The version or release of the installed bundle is unreadable.
    #[error("error walking catalogs: error finding upgrade edges: {}: {fault}", installed_step(*.explicit_release))]
    Installed {
        /// `true` if a release was recorded apart from the version.
        explicit_release: bool,
        /// Parse error.
        fault: VersionReleaseError,
    },
    /// No catalog has a matching bundle.
    #[error("{0}")]
    NoBundle(String),
    /// The best catalogs with a matching bundle have the same priority.
    #[error("{request} in multiple catalogs with the same priority [{}]", names(catalogs))]
    Ambiguous {
        /// Description of the request.
        request: String,
        /// Name and priority of every catalog with a candidate, whatever its priority, sorted by name.
        catalogs: Vec<(String, i32)>,
    },
    /// The best bundle has no readable version.
    #[error("error getting resolved bundle version for bundle {}: {fault}", quote(bundle))]
    BundleVersion {
        /// Name of the bundle.
        bundle: String,
        /// Parse error.
        fault: String,
    },
    /// The best bundle declares a dependency. No lower bundle is tried: the user must narrow the request.
    #[error(
        "validating bundle {0}: bundle {0} has a dependency declared via property {1} which is currently not supported",
        quote(bundle),
        quote(property)
    )]
    Dependency {
        /// Name of the bundle.
        bundle: String,
        /// Type of the first property that declares a dependency.
        property: String,
    },
    /// Every matching bundle is held back, the best of them because of unmet requirements.
    #[error("dependencies not satisfied: bundle {bundle} {}{}", clauses(unmet), dependency_hints(satisfiers, instead.as_deref()))]
    DependenciesNotSatisfied {
        /// Name of the best bundle that is held back.
        bundle: String,
        /// Its unmet requirements.
        unmet: Vec<AssessedRequirement>,
        /// Bundles of catalogs that would meet them. The resolver leaves this empty, because it does not know other
        /// packages. A caller with access to them fills it.
        satisfiers: Vec<Satisfier>,
        /// Highest version that would be chosen without the version constraint.
        instead: Option<String>,
        /// All bundles that are held back, best first.
        held: Vec<Held>,
    },
    /// Every matching bundle is held back, the best of them by another rule.
    #[error("{request}: {}", held_text(held))]
    HeldBack {
        /// Description of the request.
        request: String,
        /// All bundles that are held back, best first.
        held: Vec<Held>,
    },
    /// No bundle is chosen after unavailable catalogs were skipped.
    #[error("{error}{}", left_out_text(left_out))]
    BestEffort {
        /// Error of the resolution with the other catalogs.
        error: Box<Self>,
        /// Skipped catalogs, sorted by name.
        left_out: Vec<LeftOut>,
    },
}

impl ResolveError {
    /// Error without the note about skipped catalogs.
    pub fn cause(&self) -> &Self {
        match self {
            Self::BestEffort { error, .. } => error.cause(),
            other => other,
        }
    }

    /// Bundles that rules beyond the reference hold back, best first.
    pub fn held(&self) -> &[Held] {
        match self.cause() {
            Self::DependenciesNotSatisfied { held, .. } | Self::HeldBack { held, .. } => held,
            _ => &[],
        }
    }
}

fn installed_step(explicit_release: bool) -> &'static str {
    if explicit_release {
        "failed to parse installed bundle version and release"
    } else {
        "failed to get version and release of installed bundle"
    }
}

fn names(catalogs: &[(String, i32)]) -> String {
    catalogs.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")
}

fn dependency_hints(satisfiers: &[Satisfier], instead: Option<&str>) -> String {
    let mut text = String::new();
    if !satisfiers.is_empty() {
        let listed: Vec<_> = satisfiers.iter().map(Satisfier::to_string).collect();
        text = format!("; candidates in catalogs: {}", listed.join(", "));
    }
    if let Some(version) = instead {
        text += &format!("; highest version without unmet dependencies: {version}");
    }
    text
}

fn held_text(held: &[Held]) -> String {
    let mut parts: Vec<_> = held.iter().take(NAMED_HELD).map(Held::to_string).collect();
    if held.len() > NAMED_HELD {
        parts.push(format!("and {} more", held.len() - NAMED_HELD));
    }
    parts.join("; ")
}
