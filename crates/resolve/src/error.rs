//! Why no bundle is chosen. The texts are part of the API (docs/design/resolution.md#resolution-errors; ours:
//! docs/design/additions.md#dependency-modes, docs/design/additions.md#best-effort-resolution).

use olm_version::{ConstraintError, VersionReleaseError, quote};

use crate::best_effort::{LeftOut, Needed, left_out_text};
use crate::catalog::CatalogError;
use crate::dependency::{AssessedRequirement, Satisfier};
use crate::judge::clauses;
use crate::request::Wanted;
use crate::resolver::Held;
use crate::selector::SelectorError;

/// How many of the bundles that rules hold back an error names.
const NAMED_HELD: usize = 3;

/// Why no bundle is chosen.
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
        /// What is wrong with it.
        fault: ConstraintError,
    },
    /// The ClusterCatalogs could not be listed.
    #[error("error walking catalogs: error listing catalogs: {0}")]
    List(String),
    /// A selected catalog cannot be asked; which others could answer does not matter, or is not enough.
    #[error(
        "error walking catalogs: error getting package {} from catalog {}: {fault}{}",
        quote(package),
        quote(catalog),
        needed.as_deref().map(Needed::to_string).unwrap_or_default()
    )]
    Catalog {
        /// The wanted package.
        package: String,
        /// The catalog's name.
        catalog: String,
        /// Why it cannot be asked.
        fault: CatalogError,
        /// Under best effort: why it is not left out.
        needed: Option<Box<Needed>>,
    },
    /// The version or release of the installed bundle cannot be read.
    #[error("error walking catalogs: error finding upgrade edges: {}: {fault}", installed_step(*.explicit_release))]
    Installed {
        /// A release was recorded apart from the version.
        explicit_release: bool,
        /// What cannot be read.
        fault: VersionReleaseError,
    },
    /// No catalog has a matching bundle.
    #[error("{0}")]
    NoBundle(Wanted),
    /// The best catalogs with a matching bundle have equal priority.
    #[error("{wanted} in multiple catalogs with the same priority [{}]", names(catalogs))]
    Ambiguous {
        /// What was looked for.
        wanted: Wanted,
        /// Name and priority of every catalog with a candidate, whatever its priority, sorted by name.
        catalogs: Vec<(String, i32)>,
    },
    /// The best bundle has no readable version.
    #[error("error getting resolved bundle version for bundle {}: {fault}", quote(bundle))]
    BundleVersion {
        /// The bundle's name.
        bundle: String,
        /// What cannot be read.
        fault: String,
    },
    /// The best bundle declares a dependency. No lower bundle is tried: the user narrows the request.
    #[error(
        "validating bundle {0}: bundle {0} has a dependency declared via property {1} which is currently not supported",
        quote(bundle),
        quote(property)
    )]
    Dependency {
        /// The bundle's name.
        bundle: String,
        /// The type of the first property that declares one.
        property: String,
    },
    /// Every matching bundle is held back, the best of them by what it requires.
    #[error("dependencies not satisfied: bundle {bundle} {}{}", clauses(unmet), dependency_hints(satisfiers, instead.as_deref()))]
    DependenciesNotSatisfied {
        /// The best bundle that is held back.
        bundle: String,
        /// What it requires and nothing meets.
        unmet: Vec<AssessedRequirement>,
        /// Bundles of catalogs that would meet it. Empty as it comes from the resolver, which does not know other
        /// packages; filled by a caller who looks them up.
        satisfiers: Vec<Satisfier>,
        /// The highest version that would be chosen if the version constraint admitted it.
        instead: Option<String>,
        /// Every bundle that is held back, best first.
        held: Vec<Held>,
    },
    /// Every matching bundle is held back, the best of them by another rule.
    #[error("{wanted}: {}", held_text(held))]
    HeldBack {
        /// What was looked for.
        wanted: Wanted,
        /// Every bundle that is held back, best first.
        held: Vec<Held>,
    },
    /// No bundle is chosen after catalogs that cannot answer were left out.
    #[error("{error}{}", left_out_text(left_out))]
    BestEffort {
        /// What went wrong among the others.
        error: Box<Self>,
        /// The catalogs that were left out, sorted by name.
        left_out: Vec<LeftOut>,
    },
}

impl ResolveError {
    /// The error without the note that catalogs were left out.
    pub fn cause(&self) -> &Self {
        match self {
            Self::BestEffort { error, .. } => error.cause(),
            other => other,
        }
    }

    /// The bundles that rules beyond the reference hold back, best first.
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
