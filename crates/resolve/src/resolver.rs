//! The choice of one bundle (spec 03 §2): filter, order, compare catalogs by priority, check dependencies.

use std::cmp::Reverse;
use std::sync::Arc;

use olm_version::{Constraint, ConstraintError, VersionRelease, VersionReleaseError, quote};

use crate::catalog::{Catalog, CatalogError};
use crate::deprecation::Deprecations;
use crate::package::{Offer, PackageIndex};
use crate::selector::SelectorError;

/// What is wanted: `spec.source.catalog` without its selector, and what is installed.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The package's name.
    pub package: &'a str,
    /// Channels to choose from; empty means all.
    pub channels: &'a [String],
    /// The version constraint as written; absent or empty admits every version.
    pub version: Option<&'a str>,
    /// Which upgrades are allowed.
    pub policy: UpgradePolicy,
    /// The installed bundle, if there is one.
    pub installed: Option<Installed<'a>>,
}

/// Which bundles may follow the installed one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UpgradePolicy {
    /// Its successors according to the catalog, and the installed version itself.
    #[default]
    CatalogProvided,
    /// Any.
    SelfCertified,
}

/// The installed bundle as its metadata was recorded.
#[derive(Debug, Clone, Copy)]
pub struct Installed<'a> {
    /// The bundle's name, which `replaces` and `skips` refer to.
    pub name: &'a str,
    /// The bundle's version.
    pub version: &'a str,
    /// The bundle's release, where one was recorded apart from the version.
    pub release: Option<&'a str>,
}

/// The chosen bundle.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// Name of the catalog that offers it.
    pub catalog: String,
    /// The bundle's name.
    pub bundle: String,
    /// The reference of the bundle's image.
    pub image: String,
    /// Version and release of the bundle.
    pub version: VersionRelease,
    /// True if the catalog deprecates this bundle.
    pub deprecated: bool,
    package: Arc<PackageIndex>,
}

impl Resolved {
    /// What the chosen catalog says about deprecation of the package, its channels and bundles.
    pub fn deprecations(&self) -> &Deprecations {
        self.package.deprecations()
    }
}

/// Why no bundle is chosen. The texts are part of the API (spec 03 §§2.6, 8.1).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
    /// A selected catalog cannot be asked; which others could answer does not matter.
    #[error(
        "error walking catalogs: error getting package {} from catalog {}: {fault}",
        quote(package),
        quote(catalog)
    )]
    Catalog {
        /// The wanted package.
        package: String,
        /// The catalog's name.
        catalog: String,
        /// Why it cannot be asked.
        fault: CatalogError,
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
    #[error("{wanted} in multiple catalogs with the same priority [{}]", catalogs.join(" "))]
    Ambiguous {
        /// What was looked for.
        wanted: Wanted,
        /// Every catalog with a candidate, whatever its priority, sorted by name.
        catalogs: Vec<String>,
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
}

fn installed_step(explicit_release: bool) -> &'static str {
    if explicit_release {
        "failed to parse installed bundle version and release"
    } else {
        "failed to get version and release of installed bundle"
    }
}

/// The sentence about what was looked for, up to the catalogs (spec 03 §2.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted(String);

impl Wanted {
    fn new(request: &Request<'_>, finding: &str) -> Self {
        let mut text = String::new();
        if let Some(installed) = request.installed {
            text = format!("error upgrading from currently installed version {}: ", quote(installed.version));
        }
        text += &format!("{finding} for package {}", quote(request.package));
        if let Some(version) = request.range() {
            text += &format!(" matching version {}", quote(version));
        }
        if !request.channels.is_empty() {
            text += &format!(" in channels [{}]", request.channels.join(" "));
        }
        Self(text)
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'a> Request<'a> {
    /// The version constraint, if there is any.
    pub(crate) fn range(&self) -> Option<&'a str> {
        self.version.filter(|text| !text.is_empty())
    }

    fn constraint(&self) -> Result<Option<Constraint>, ResolveError> {
        let parse = |range: &str| {
            Constraint::parse(range).map_err(|fault| ResolveError::Version { range: range.to_owned(), fault })
        };
        self.range().map(parse).transpose()
    }

    /// The bundle that upgrades must start from; `None` if there is none or the policy allows any.
    fn origin(&self) -> Result<Option<Origin<'a>>, ResolveError> {
        let Some(installed) = self.installed.filter(|_| self.policy == UpgradePolicy::CatalogProvided) else {
            return Ok(None);
        };
        let version = VersionRelease::parse(installed.version, installed.release).map_err(|fault| {
            ResolveError::Installed { explicit_release: installed.release.is_some(), fault }
        })?;
        Ok(Some(Origin { name: installed.name, version }))
    }
}

/// The installed bundle as the start of an upgrade.
#[derive(Debug, Clone)]
pub struct Origin<'a> {
    /// The bundle's name.
    pub name: &'a str,
    /// The bundle's version and release.
    pub version: VersionRelease,
}

/// The best bundle of one catalog.
struct Candidate<'a> {
    catalog: &'a Catalog,
    package: &'a Arc<PackageIndex>,
    offer: &'a Offer,
}

/// Chooses the bundle for a request from the selected catalogs, whose order does not matter.
///
/// In each catalog the best bundle is the first of those that pass channels, version and successor test, not
/// deprecated before deprecated, higher versions first. Catalogs whose best bundle is deprecated step back
/// behind those where it is not. Then priority alone decides: versions are never compared across catalogs.
///
/// # Errors
/// See [`ResolveError`]. A bad version constraint is reported before any fault of a catalog, and of several
/// faulty catalogs the one with the highest priority, then the first by name.
pub fn resolve(request: &Request<'_>, catalogs: &[Catalog]) -> Result<Resolved, ResolveError> {
    let constraint = request.constraint()?;
    let mut candidates = candidates(request, constraint.as_ref(), catalogs)?;
    if candidates.iter().any(|candidate| !candidate.offer.deprecated()) {
        candidates.retain(|candidate| !candidate.offer.deprecated());
    }
    match &candidates[..] {
        [] => Err(ResolveError::NoBundle(Wanted::new(request, "no bundles found"))),
        [best, next, ..] if best.catalog.priority == next.catalog.priority => {
            let mut names: Vec<_> =
                candidates.iter().map(|candidate| candidate.catalog.name.clone()).collect();
            names.sort();
            Err(ResolveError::Ambiguous { wanted: Wanted::new(request, "found bundles"), catalogs: names })
        }
        [best, ..] => best.resolved(),
    }
}

/// The best bundle of each catalog that has one, in descending order of priority.
fn candidates<'a>(
    request: &Request<'_>,
    constraint: Option<&Constraint>,
    catalogs: &'a [Catalog],
) -> Result<Vec<Candidate<'a>>, ResolveError> {
    let mut walk: Vec<_> = catalogs.iter().collect();
    walk.sort_by_key(|catalog| (Reverse(catalog.priority), &catalog.name));
    let mut found = Vec::new();
    for catalog in walk {
        let package = catalog.package.as_ref().map_err(|fault| ResolveError::Catalog {
            package: request.package.to_owned(),
            catalog: catalog.name.clone(),
            fault: fault.clone(),
        })?;
        let Some(package) = package else { continue };
        // An unreadable installed version matters only to a catalog that has the package.
        let origin = request.origin()?;
        let admitted = |offer: &&Offer| offer.is_admitted(request.channels, constraint, origin.as_ref());
        found.extend(package.offers().find(admitted).map(|offer| Candidate { catalog, package, offer }));
    }
    Ok(found)
}

impl Candidate<'_> {
    fn resolved(&self) -> Result<Resolved, ResolveError> {
        let offer = self.offer;
        let version = offer.version().map_err(|fault| ResolveError::BundleVersion {
            bundle: offer.name().to_owned(),
            fault: fault.to_owned(),
        })?;
        if let Some(property) = offer.dependency() {
            return Err(ResolveError::Dependency {
                bundle: offer.name().to_owned(),
                property: property.to_owned(),
            });
        }
        Ok(Resolved {
            catalog: self.catalog.name.clone(),
            bundle: offer.name().to_owned(),
            image: offer.image().to_owned(),
            version: version.clone(),
            deprecated: offer.deprecated(),
            package: Arc::clone(self.package),
        })
    }
}
