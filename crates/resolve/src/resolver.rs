//! Choice of one bundle (docs/design/resolution.md#served-catalogs): filter, order, compare catalogs by priority,
//! check dependencies.

use std::cmp::Reverse;
use std::sync::Arc;

use olm_fbc::Property;
use olm_version::VersionRelease;

use crate::best_effort::{LeftOut, catalog_error, leave_out};
use crate::bundle_filter::{BundleFilter, Rejection, shown};
use crate::catalog::Catalog;
use crate::dependency::{AssessedRequirement, assess};
use crate::deprecation::Deprecations;
use crate::error::ResolveError;
use crate::held::{Held, HeldReason};
use crate::package::{Offer, PackageIndex};
use crate::request::Request;
use crate::rules::DependencyMode;

/// Chosen bundle.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// Name of its catalog.
    pub catalog: String,
    /// Name of the bundle.
    pub bundle: String,
    /// Image reference of the bundle.
    pub image: String,
    /// Version and release of the bundle.
    pub version: VersionRelease,
    /// `true` if the catalog deprecates this bundle.
    pub deprecated: bool,
    /// Better candidates of this catalog and of catalogs with a higher priority that rules beyond the reference held
    /// back, best first.
    pub held: Vec<Held>,
    /// Catalogs that best effort skipped, sorted by name.
    pub left_out: Vec<LeftOut>,
    /// Requirements of the bundle, in the order of its properties. Empty under [`DependencyMode::Reject`].
    pub requirements: Vec<AssessedRequirement>,
    /// Notes about a choice that equals the reference's: channels skip the bundle
    /// (docs/design/additions.md#skipped-versions), or a catalog of higher priority stepped back
    /// (docs/design/resolution.md#catalog-priority).
    pub remarks: Vec<String>,
    offer: Arc<Offer>,
    package: Arc<PackageIndex>,
}

impl Resolved {
    /// Deprecations of the package, its channels and bundles in the chosen catalog.
    pub fn deprecations(&self) -> &Deprecations {
        self.package.deprecations()
    }

    /// Properties of the bundle, as in [`Offer::properties`].
    pub fn properties(&self) -> &[Property] {
        self.offer.properties()
    }

    /// Default channel of the package in the chosen catalog. Empty if it has none.
    pub fn default_channel(&self) -> &str {
        self.package.default_channel()
    }

    pub(crate) fn offer(&self) -> &Offer {
        &self.offer
    }
}

/// Catalog that has the package, its best bundle, and the better ones that rules held back.
struct Contender<'a> {
    catalog: &'a Catalog,
    package: &'a Arc<PackageIndex>,
    best: Option<&'a Arc<Offer>>,
    held: Vec<Held>,
}

/// Rank of a catalog among those that offer a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CatalogRank {
    Chosen,
    /// Its best bundle is deprecated, and that of another catalog is not.
    DeprecatedBest,
    /// Another catalog has a higher priority.
    LowerPriority,
    /// Another catalog has the same priority and none a higher one.
    Tie,
}

/// Chooses the bundle for a request from the selected catalogs. Their order does not matter.
///
/// The best bundle of a catalog is the first that passes channels, version and successor test and that no rule holds
/// back: not deprecated before deprecated, higher versions first. Catalogs with a deprecated best bundle rank after
/// those without. Then priority alone decides: versions are never compared across catalogs.
///
/// # Errors
/// See [`ResolveError`]. An invalid version constraint is reported before any error of a catalog. Of several
/// unavailable catalogs, the one with the highest priority, then the first by name is reported.
pub fn resolve(request: &Request<'_>, catalogs: &[Catalog]) -> Result<Resolved, ResolveError> {
    let filter = BundleFilter::new(request)?;
    let catalogs = by_preference(catalogs);
    let mut contenders = Vec::new();
    for catalog in &catalogs {
        match &catalog.package {
            Ok(Some(package)) => {
                filter.check_origin()?;
                contenders.push(Contender::new(&filter, catalog, package));
            }
            Ok(None) => {}
            Err(_) if request.rules.best_effort => {}
            Err(fault) => return Err(catalog_error(request, catalog, fault, String::new())),
        }
    }
    let (best, chosen) = choose(&filter, &contenders);
    let left_out = leave_out(&filter, &catalogs, best)?;
    match chosen {
        Ok(resolved) => Ok(Resolved { left_out, ..resolved }),
        Err(error) if left_out.is_empty() => Err(error),
        Err(error) => Err(ResolveError::BestEffort { error: Box::new(error), left_out }),
    }
}

/// Catalogs in descending order of priority.
pub(crate) fn by_preference(catalogs: &[Catalog]) -> Vec<&Catalog> {
    let mut sorted: Vec<_> = catalogs.iter().collect();
    sorted.sort_by_key(|catalog| (Reverse(catalog.priority), &catalog.name));
    sorted
}

/// Compares the best bundles of catalogs, each given as priority and deprecation.
pub(crate) fn rank_catalogs(candidates: &[(i32, bool)]) -> Vec<CatalogRank> {
    let all_deprecated = candidates.iter().all(|(_, deprecated)| *deprecated);
    let competes = |deprecated: bool| all_deprecated || !deprecated;
    let priorities =
        || candidates.iter().filter(|(_, deprecated)| competes(*deprecated)).map(|(priority, _)| *priority);
    let highest = priorities().max();
    let highest_count = priorities().filter(|priority| Some(*priority) == highest).count();
    let rank = |&(priority, deprecated): &(i32, bool)| {
        if !competes(deprecated) {
            CatalogRank::DeprecatedBest
        } else if Some(priority) < highest {
            CatalogRank::LowerPriority
        } else if highest_count > 1 {
            CatalogRank::Tie
        } else {
            CatalogRank::Chosen
        }
    };
    candidates.iter().map(rank).collect()
}

/// Choice among the contenders, which are in descending order of priority. Also returns the best catalog with its
/// candidate, even if the candidate is rejected.
fn choose<'a>(
    filter: &BundleFilter<'_>,
    contenders: &[Contender<'a>],
) -> (Option<(&'a Catalog, &'a Offer)>, Result<Resolved, ResolveError>) {
    let candidates: Vec<_> =
        contenders.iter().filter_map(|contender| Some((contender, contender.best?))).collect();
    let bests: Vec<_> = candidates
        .iter()
        .map(|(contender, offer)| (contender.catalog.priority, offer.deprecated()))
        .collect();
    let ranks = rank_catalogs(&bests);
    let ranked = |rank: CatalogRank| {
        let of_rank = candidates.iter().zip(&ranks).filter(move |(_, own)| **own == rank);
        of_rank.map(|((contender, offer), _)| (*contender, *offer))
    };
    if let Some((contender, offer)) = ranked(CatalogRank::Chosen).next() {
        let resolved = contender.resolved(filter, offer).map(|resolved| Resolved {
            held: held_above(contenders, contender.catalog),
            remarks: remarks(filter, contender.catalog, offer, ranked(CatalogRank::DeprecatedBest)),
            ..resolved
        });
        return (Some((contender.catalog, offer)), resolved);
    }
    let Some((tied, offer)) = ranked(CatalogRank::Tie).next() else {
        return (None, Err(no_bundle(filter, contenders)));
    };
    // Deprecated ones are no longer candidates. All others are named whatever their priority.
    let mut names: Vec<_> = [CatalogRank::Tie, CatalogRank::LowerPriority]
        .into_iter()
        .flat_map(ranked)
        .map(|(contender, _)| (contender.catalog.name.clone(), contender.catalog.priority))
        .collect();
    names.sort();
    let request = filter.request.summary("found bundles");
    (Some((tied.catalog, offer)), Err(ResolveError::Ambiguous { request, catalogs: names }))
}

/// Bundles that rules held back in the chosen catalog and in catalogs with a higher priority.
fn held_above(contenders: &[Contender<'_>], chosen: &Catalog) -> Vec<Held> {
    let preferred = |contender: &&Contender<'_>| {
        contender.catalog.priority > chosen.priority || contender.catalog.name == chosen.name
    };
    contenders.iter().filter(preferred).flat_map(|contender| contender.held.iter().cloned()).collect()
}

fn remarks<'a: 'b, 'b>(
    filter: &BundleFilter<'_>,
    chosen: &Catalog,
    offer: &Offer,
    stepped_back: impl Iterator<Item = (&'b Contender<'a>, &'a Arc<Offer>)>,
) -> Vec<String> {
    let skipped = Some(filter.skipped_in(offer)).filter(|channels| !channels.is_empty());
    let skipped = skipped.filter(|_| !filter.is_installed(offer)).map(|channels| {
        let (bundle, channels) = (offer.name(), channels.join(" "));
        format!("bundle {bundle} is skipped in channels [{channels}] and should not be installed")
    });
    let preferred = stepped_back.filter(|(contender, _)| contender.catalog.priority > chosen.priority);
    let stepped_back = preferred.map(|(contender, best)| {
        format!(
            "catalog {} is chosen instead of {}, whose priority is higher: its best bundle {} is deprecated",
            chosen.name,
            contender.catalog.name,
            best.name()
        )
    });
    skipped.into_iter().chain(stepped_back).collect()
}

/// Error for a request without any candidate.
fn no_bundle(filter: &BundleFilter<'_>, contenders: &[Contender<'_>]) -> ResolveError {
    let request = filter.request;
    let held = || contenders.iter().flat_map(|contender| contender.held.iter().cloned()).collect();
    let Some((contender, best)) = contenders.iter().find_map(|c| Some((c, c.held.first()?))) else {
        return ResolveError::NoBundle(request.summary("no bundles found"));
    };
    match (&best.reason, contender.package.offer(&best.bundle)) {
        (HeldReason::Dependencies(_), Some(offer)) => ResolveError::DependenciesNotSatisfied {
            bundle: best.bundle.clone(),
            unmet: filter.unmet(offer),
            satisfiers: Vec::new(),
            instead: without_constraint(request, contenders),
            held: held(),
        },
        _ => ResolveError::HeldBack { request: request.summary("no bundles found"), held: held() },
    }
}

/// Version that would be chosen without the version constraint.
fn without_constraint<'a>(request: &Request<'_>, contenders: &[Contender<'a>]) -> Option<String> {
    request.range()?;
    let request = Request { version: None, ..*request };
    let filter = BundleFilter::new(&request).ok()?;
    let offers_of = |contender: &Contender<'a>| {
        let package = contender.package;
        package.offers().map(move |offer| (package, offer))
    };
    let mut offers = contenders.iter().flat_map(offers_of);
    let (_, offer) = offers.find(|(package, offer)| filter.check(package, offer).is_ok())?;
    offer.version().ok().map(shown)
}

impl<'a> Contender<'a> {
    fn new(filter: &BundleFilter<'_>, catalog: &'a Catalog, package: &'a Arc<PackageIndex>) -> Self {
        let mut held = Vec::new();
        let best = package.shared_offers().find(|offer| match filter.check(package, offer) {
            Ok(()) => true,
            Err(Rejection::Held(reason)) => {
                held.push(Held {
                    bundle: offer.name().to_owned(),
                    version: offer.version().map(shown).unwrap_or_default(),
                    catalog: catalog.name.clone(),
                    reason,
                });
                false
            }
            Err(_) => false,
        });
        Self { catalog, package, best, held }
    }

    /// Converts the candidate to the choice, unless it must be rejected (docs/design/resolution.md#algorithm).
    fn resolved(&self, filter: &BundleFilter<'_>, offer: &Arc<Offer>) -> Result<Resolved, ResolveError> {
        let rules = &filter.request.rules;
        let version = offer.version().map_err(|fault| ResolveError::BundleVersion {
            bundle: offer.name().to_owned(),
            fault: fault.to_owned(),
        })?;
        let reject = rules.dependencies == DependencyMode::Reject;
        if let Some(property) = offer.dependencies().find(|property| reject && rules.counts(property)) {
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
            held: Vec::new(),
            left_out: Vec::new(),
            requirements: if reject { Vec::new() } else { assess(offer, rules) },
            remarks: Vec::new(),
            offer: Arc::clone(offer),
            package: Arc::clone(self.package),
        })
    }
}
