//! The choice of one bundle (docs/design/resolution.md#served-catalogs): judge, order, compare catalogs by priority,
//! check dependencies.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use olm_fbc::Property;
use olm_version::VersionRelease;

use crate::best_effort::{LeftOut, catalog_error, leave_out};
use crate::catalog::Catalog;
use crate::dependency::{AssessedRequirement, assess};
use crate::deprecation::Deprecations;
use crate::error::ResolveError;
use crate::judge::{Dropped, HeldReason, Judge, shown};
use crate::package::{Offer, PackageIndex};
use crate::request::{Request, Wanted};
use crate::rules::DependencyMode;

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
    /// Better candidates of this catalog and of catalogs with a higher priority that rules beyond the reference
    /// passed over, best first.
    pub held: Vec<Held>,
    /// Catalogs that best effort left out, sorted by name.
    pub left_out: Vec<LeftOut>,
    /// What the bundle requires, in the order of its properties; empty under [`DependencyMode::Reject`].
    pub requirements: Vec<AssessedRequirement>,
    /// What somebody should know about this choice.
    pub remarks: Vec<Remark>,
    offer: Arc<Offer>,
    package: Arc<PackageIndex>,
}

/// A candidate that a rule beyond the reference passed over. Displayed as one sentence without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// The bundle's name.
    pub bundle: String,
    /// The bundle's version, empty if it cannot be read.
    pub version: String,
    /// The catalog that offers it.
    pub catalog: String,
    /// The rule.
    pub reason: HeldReason,
}

/// What somebody should know about a choice that is made as the reference makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// A bundle is being installed that channels skip (docs/design/additions.md#skipped-versions).
    Skipped {
        /// The bundle's name.
        bundle: String,
        /// The channels that count and skip it.
        channels: Vec<String>,
    },
    /// The best bundle of a catalog with a higher priority is deprecated, so that another catalog is chosen
    /// (docs/design/resolution.md#complete-answers).
    SteppedBack {
        /// The catalog with the higher priority.
        catalog: String,
        /// Its deprecated bundle.
        bundle: String,
        /// The catalog that is chosen.
        chosen: String,
    },
}

impl Resolved {
    /// What the chosen catalog says about deprecation of the package, its channels and bundles.
    pub fn deprecations(&self) -> &Deprecations {
        self.package.deprecations()
    }

    /// The bundle's properties, as [`Offer::properties`].
    pub fn properties(&self) -> &[Property] {
        self.offer.properties()
    }

    /// The package's default channel in the chosen catalog, empty if it names none.
    pub fn default_channel(&self) -> &str {
        self.package.default_channel()
    }

    pub(crate) fn offer(&self) -> &Offer {
        &self.offer
    }
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "passed over {}: {}", self.bundle, self.reason)
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped { bundle, channels } => {
                write!(
                    f,
                    "bundle {bundle} is skipped in channels [{}] and should not be installed",
                    channels.join(" ")
                )
            }
            Self::SteppedBack { catalog, bundle, chosen } => write!(
                f,
                "catalog {chosen} is chosen instead of {catalog}, whose priority is higher: its best bundle {bundle} is \
                 deprecated"
            ),
        }
    }
}

/// A catalog that has the package, with its best bundle and what rules passed over on the way to it.
struct Contender<'a> {
    catalog: &'a Catalog,
    package: &'a Arc<PackageIndex>,
    best: Option<&'a Arc<Offer>>,
    held: Vec<Held>,
}

/// Where a catalog's best bundle stands among those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Chosen,
    /// Deprecated, while another catalog's is not.
    SteppedBack,
    /// Another catalog has a higher priority.
    LowerPriority,
    /// Another catalog has the same priority and none a higher one.
    Tie,
}

/// Chooses the bundle for a request from the selected catalogs, whose order does not matter.
///
/// In each catalog the best bundle is the first of those that pass channels, version and successor test and that no
/// rule holds back, not deprecated before deprecated, higher versions first. Catalogs whose best bundle is deprecated
/// step back behind those where it is not. Then priority alone decides: versions are never compared across catalogs.
///
/// # Errors
/// See [`ResolveError`]. A bad version constraint is reported before any fault of a catalog, and of several
/// faulty catalogs the one with the highest priority, then the first by name.
pub fn resolve(request: &Request<'_>, catalogs: &[Catalog]) -> Result<Resolved, ResolveError> {
    let judge = Judge::new(request)?;
    let catalogs = by_preference(catalogs);
    let mut contenders = Vec::new();
    for catalog in &catalogs {
        match &catalog.package {
            Ok(Some(package)) => {
                judge.check_origin()?;
                contenders.push(Contender::new(&judge, catalog, package));
            }
            Ok(None) => {}
            Err(_) if request.rules.best_effort => {}
            Err(fault) => return Err(catalog_error(request, catalog, fault, None)),
        }
    }
    let (best, chosen) = choose(&judge, &contenders);
    let left_out = leave_out(&judge, &catalogs, best)?;
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

/// Compares the best bundles of catalogs, each given as priority and whether it is deprecated.
pub(crate) fn contest(candidates: &[(i32, bool)]) -> Vec<Standing> {
    let all_deprecated = candidates.iter().all(|(_, deprecated)| *deprecated);
    let stands = |deprecated: bool| all_deprecated || !deprecated;
    let standing =
        || candidates.iter().filter(|(_, deprecated)| stands(*deprecated)).map(|(priority, _)| *priority);
    let highest = standing().max();
    let rivals = standing().filter(|priority| Some(*priority) == highest).count();
    let place = |&(priority, deprecated): &(i32, bool)| {
        if !stands(deprecated) {
            Standing::SteppedBack
        } else if Some(priority) < highest {
            Standing::LowerPriority
        } else if rivals > 1 {
            Standing::Tie
        } else {
            Standing::Chosen
        }
    };
    candidates.iter().map(place).collect()
}

/// The choice among the contenders, which are in descending order of priority, and the best catalog with its candidate
/// even where the candidate is refused.
fn choose<'a>(
    judge: &Judge<'_>,
    contenders: &[Contender<'a>],
) -> (Option<(&'a Catalog, &'a Offer)>, Result<Resolved, ResolveError>) {
    let candidates: Vec<_> =
        contenders.iter().filter_map(|contender| Some((contender, contender.best?))).collect();
    let places: Vec<_> = candidates
        .iter()
        .map(|(contender, offer)| (contender.catalog.priority, offer.deprecated()))
        .collect();
    let contest = contest(&places);
    let standing = |wanted: Standing| {
        let places = candidates.iter().zip(&contest).filter(move |(_, standing)| **standing == wanted);
        places.map(|((contender, offer), _)| (*contender, *offer))
    };
    if let Some((contender, offer)) = standing(Standing::Chosen).next() {
        let resolved = contender.resolved(judge, offer).map(|resolved| Resolved {
            held: held_above(contenders, contender.catalog),
            remarks: remarks(judge, contender.catalog, offer, standing(Standing::SteppedBack)),
            ..resolved
        });
        return (Some((contender.catalog, offer)), resolved);
    }
    let Some((tied, offer)) = standing(Standing::Tie).next() else {
        return (None, Err(nothing(judge, contenders)));
    };
    // Those that stepped back are no candidates any more; the rest is named whatever its priority.
    let mut names: Vec<_> = [Standing::Tie, Standing::LowerPriority]
        .into_iter()
        .flat_map(standing)
        .map(|(contender, _)| (contender.catalog.name.clone(), contender.catalog.priority))
        .collect();
    names.sort();
    let wanted = Wanted::new(judge.request, "found bundles");
    (Some((tied.catalog, offer)), Err(ResolveError::Ambiguous { wanted, catalogs: names }))
}

/// What rules passed over in catalogs with a higher priority than the chosen one, and in that one.
fn held_above(contenders: &[Contender<'_>], chosen: &Catalog) -> Vec<Held> {
    let preferred = |contender: &&Contender<'_>| {
        contender.catalog.priority > chosen.priority || contender.catalog.name == chosen.name
    };
    contenders.iter().filter(preferred).flat_map(|contender| contender.held.iter().cloned()).collect()
}

fn remarks<'a: 'b, 'b>(
    judge: &Judge<'_>,
    chosen: &Catalog,
    offer: &Offer,
    stepped_back: impl Iterator<Item = (&'b Contender<'a>, &'a Arc<Offer>)>,
) -> Vec<Remark> {
    let skipped = Some(judge.skipped_in(offer)).filter(|channels| !channels.is_empty());
    let skipped = skipped
        .filter(|_| !judge.is_installed(offer))
        .map(|channels| Remark::Skipped { bundle: offer.name().to_owned(), channels });
    let preferred = stepped_back.filter(|(contender, _)| contender.catalog.priority > chosen.priority);
    let stepped_back = preferred.map(|(contender, best)| Remark::SteppedBack {
        catalog: contender.catalog.name.clone(),
        bundle: best.name().to_owned(),
        chosen: chosen.name.clone(),
    });
    skipped.into_iter().chain(stepped_back).collect()
}

/// Why there is no candidate at all.
fn nothing(judge: &Judge<'_>, contenders: &[Contender<'_>]) -> ResolveError {
    let request = judge.request;
    let wanted = || Wanted::new(request, "no bundles found");
    let held = || contenders.iter().flat_map(|contender| contender.held.iter().cloned()).collect();
    let Some((contender, best)) = contenders.iter().find_map(|c| Some((c, c.held.first()?))) else {
        return ResolveError::NoBundle(wanted());
    };
    match (&best.reason, contender.package.offer(&best.bundle)) {
        (HeldReason::Dependencies(_), Some(offer)) => ResolveError::DependenciesNotSatisfied {
            bundle: best.bundle.clone(),
            unmet: judge.unmet(offer),
            satisfiers: Vec::new(),
            instead: instead(request, contenders),
            held: held(),
        },
        _ => ResolveError::HeldBack { wanted: wanted(), held: held() },
    }
}

/// The version that would be chosen without the version constraint.
fn instead(request: &Request<'_>, contenders: &[Contender<'_>]) -> Option<String> {
    request.range()?;
    let request = Request { version: None, ..*request };
    let judge = Judge::new(&request).ok()?;
    let mut offers = contenders.iter().flat_map(|contender| contender.package.offers());
    let offer = offers.find(|offer| judge.judge(offer).is_ok())?;
    offer.version().ok().map(shown)
}

impl<'a> Contender<'a> {
    fn new(judge: &Judge<'_>, catalog: &'a Catalog, package: &'a Arc<PackageIndex>) -> Self {
        let mut held = Vec::new();
        let best = package.shared_offers().find(|offer| match judge.judge(offer) {
            Ok(()) => true,
            Err(Dropped::Held(reason)) => {
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

    /// The candidate as the choice, unless it must be refused (docs/design/resolution.md#algorithm).
    fn resolved(&self, judge: &Judge<'_>, offer: &Arc<Offer>) -> Result<Resolved, ResolveError> {
        let rules = &judge.request.rules;
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
