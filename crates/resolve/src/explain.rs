//! Explanation of a resolution: every bundle of every catalog, with the rule that rejects it.
//!
//! Bundles are checked and catalogs compared as in [`resolve`]. That function stops at the first acceptable bundle,
//! this module checks all of them.

use std::collections::BTreeSet;
use std::fmt;

use olm_version::quote;
use serde::Serialize;

use crate::best_effort::LeftOut;
use crate::bundle_filter::{BundleFilter, Rejection, shown};
use crate::catalog::Catalog;
use crate::dependency::rule_failures;
use crate::error::ResolveError;
use crate::held::HeldReason;
use crate::package::{Edge, EdgeRule, Offer};
use crate::request::Request;
use crate::resolver::{CatalogRank, Resolved, by_preference, rank_catalogs, resolve};

/// Resolution with reasons. Displayed as one line for each catalog and bundle, and one for the result.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Name of the requested package.
    pub package: String,
    /// Name of the installed bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<String>,
    /// Chosen bundle. Absent where `error` is present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Choice>,
    /// Text of the resolver's error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Catalogs in descending order of priority, then by name.
    pub catalogs: Vec<CatalogExplanation>,
    /// Notes about the choice.
    pub remarks: Vec<String>,
}

/// Chosen bundle.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Choice {
    /// Catalog of the bundle.
    pub catalog: String,
    /// Name of the bundle.
    pub bundle: String,
    /// Version of the bundle with its release.
    pub version: String,
    /// Image reference of the bundle.
    pub image: String,
    /// `true` if it is the installed version.
    pub stays: bool,
    /// Upgrade edges from the installed bundle, sorted by channel.
    pub edges: Vec<FollowedEdge>,
    /// Default channel of the package in the chosen catalog, if the request names no channel and that channel does
    /// not contain the bundle (docs/design/cli.md#default-channel).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missed_default_channel: Option<String>,
    /// Requirements of the bundle with their providers, under the modes Report and Check.
    pub requirements: Vec<String>,
}

/// Upgrade edge from the installed bundle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FollowedEdge {
    /// Channel whose entry makes the edge.
    pub channel: String,
    /// Field of the entry that makes it.
    pub rule: EdgeRule,
}

/// Catalog in an [`Explanation`].
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CatalogExplanation {
    /// Name of the catalog.
    pub name: String,
    /// Priority of the catalog.
    pub priority: i32,
    /// Reason why it is unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// `true` if it was skipped because it is unavailable.
    pub skipped: bool,
    /// Bundles of the package, best first. Empty if the catalog does not contain it.
    pub bundles: Vec<OfferExplanation>,
}

/// Bundle in an [`Explanation`]. Displayed as a sentence without its final period.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OfferExplanation {
    /// Name of the bundle.
    pub bundle: String,
    /// Version of the bundle with its release, if readable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `true` if the catalog deprecates the bundle.
    pub deprecated: bool,
    /// Result for the bundle.
    pub fate: Fate,
    /// Reason, as the rest of a sentence about the bundle.
    pub why: String,
    /// Further details: errors of the rules of its requirements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
}

/// Result for a bundle: chosen, or the rule that rejects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Fate {
    /// It is the chosen bundle.
    Chosen,
    /// It is in none of the requested channels.
    Channel,
    /// Its version is outside of the requested range.
    Version,
    /// Its version or release is unreadable.
    Unreadable,
    /// It is neither a successor of the installed bundle nor the same version.
    NoEdge,
    /// It is beyond the upgrade scope.
    UpgradeScope,
    /// An entry of another bundle skips it, and skipped bundles are excluded.
    Skipped,
    /// The cluster does not meet its demands.
    Cluster,
    /// One of its requirements is unmet.
    Dependencies,
    /// It would break an installed extension.
    Dependent,
    /// Another bundle of the catalog is preferred.
    Preference,
    /// It is the best of its catalog, but deprecated, and the best of another catalog is not.
    Deprecated,
    /// It is the best of its catalog, but another catalog has a higher priority.
    Priority,
    /// It is the best of its catalog, and another catalog has the same priority.
    Tie,
    /// It would be chosen, but declares dependencies under the mode Reject.
    DependencyProperty,
    /// The resolution failed before it compared this bundle.
    Undecided,
}

/// Explains the result of [`resolve`] for the same input.
pub fn explain(request: &Request<'_>, catalogs: &[Catalog]) -> Explanation {
    let result = resolve(request, catalogs);
    let filter = BundleFilter::new(request).ok().filter(|filter| filter.check_origin().is_ok());
    let mut explained: Vec<_> = by_preference(catalogs)
        .into_iter()
        .map(|catalog| explain_catalog(filter.as_ref(), catalog))
        .collect();
    let chosen = result.as_ref().ok().zip(filter.as_ref()).map(|(resolved, filter)| choice(filter, resolved));
    compare(&mut explained, &result, chosen.as_ref());
    for catalog in &mut explained {
        catalog.skipped = left_out(&result).iter().any(|left_out| left_out.catalog == catalog.name);
    }
    Explanation {
        package: request.package.to_owned(),
        installed: request.installed.map(|installed| installed.name.to_owned()),
        chosen,
        error: result.as_ref().err().map(ToString::to_string),
        remarks: result.iter().flat_map(|resolved| resolved.remarks.clone()).collect(),
        catalogs: explained,
    }
}

fn left_out(result: &Result<Resolved, ResolveError>) -> &[LeftOut] {
    match result {
        Ok(resolved) => &resolved.left_out,
        Err(ResolveError::BestEffort { left_out, .. }) => left_out,
        Err(_) => &[],
    }
}

fn choice(filter: &BundleFilter<'_>, resolved: &Resolved) -> Choice {
    let channels = filter.request.channels;
    let offer = resolved.offer();
    let edges = filter.origin().map_or_else(BTreeSet::new, |origin| {
        let edge = |edge: Edge<'_>| FollowedEdge { channel: edge.channel.to_owned(), rule: edge.rule };
        offer.edges_from(origin, channels).map(edge).collect()
    });
    let default = resolved.default_channel();
    let outside =
        channels.is_empty() && !default.is_empty() && offer.channels().all(|channel| channel != default);
    Choice {
        catalog: resolved.catalog.clone(),
        bundle: resolved.bundle.clone(),
        version: shown(&resolved.version),
        image: resolved.image.clone(),
        stays: filter.is_installed(offer),
        edges: edges.into_iter().collect(),
        missed_default_channel: outside.then(|| default.to_owned()),
        requirements: resolved.requirements.iter().map(ToString::to_string).collect(),
    }
}

/// Checks every bundle of a catalog. The best acceptable bundle remains undecided. Without a filter, all bundles do.
fn explain_catalog(filter: Option<&BundleFilter<'_>>, catalog: &Catalog) -> CatalogExplanation {
    let package = catalog.package.as_ref().ok().and_then(Option::as_ref);
    let mut best: Option<&Offer> = None;
    let offers = package.into_iter().flat_map(|package| package.offers().map(move |offer| (package, offer)));
    let bundles = offers.map(|(package, offer)| {
        let verdict = filter.map_or(Ok(()), |filter| {
            filter.check(package, offer).map_err(|rejection| rejection_text(filter, offer, rejection))
        });
        let (fate, why) = match (verdict, best) {
            (Err(rejection), _) => rejection,
            (Ok(()), Some(best)) => (Fate::Preference, preferred(offer, best)),
            (Ok(()), None) => {
                best = filter.map(|_| offer);
                (Fate::Undecided, UNDECIDED.to_owned())
            }
        };
        let details = match filter.filter(|_| fate == Fate::Dependencies) {
            Some(filter) => rule_failures(&filter.unmet(offer), &filter.request.rules),
            None => Vec::new(),
        };
        OfferExplanation {
            details,
            bundle: offer.name().to_owned(),
            version: offer.version().ok().map(shown),
            deprecated: offer.deprecated(),
            fate,
            why,
        }
    });
    CatalogExplanation {
        name: catalog.name.clone(),
        priority: catalog.priority,
        fault: catalog.package.as_ref().err().map(ToString::to_string),
        skipped: false,
        bundles: bundles.collect(),
    }
}

/// Reason for a bundle that the resolution did not compare.
const UNDECIDED: &str = "the resolution ended with an error before it was compared";

fn preferred(offer: &Offer, best: &Offer) -> String {
    match (offer.deprecated(), best.deprecated()) {
        (true, false) => format!("deprecated, {} is preferred", best.name()),
        _ => format!("{} is preferred", best.name()),
    }
}

fn rejection_text(filter: &BundleFilter<'_>, offer: &Offer, rejection: Rejection) -> (Fate, String) {
    let request = filter.request;
    match rejection {
        Rejection::Channel => (Fate::Channel, format!("not in channels [{}]", request.channels.join(" "))),
        Rejection::Version => (
            Fate::Version,
            format!("not within version range {}", quote(request.range().unwrap_or_default())),
        ),
        Rejection::Unreadable(fault) => (Fate::Unreadable, fault),
        Rejection::NoEdge => {
            let installed = request.installed.map_or("", |installed| installed.name);
            let elsewhere =
                filter.origin().is_some_and(|origin| offer.edges_from(origin, &[]).next().is_some());
            let hint = if elsewhere { " in these channels" } else { "" };
            (Fate::NoEdge, format!("no successor of installed {installed}{hint}"))
        }
        Rejection::Held(reason) => {
            let fate = match &reason {
                HeldReason::OutsideScope { .. } => Fate::UpgradeScope,
                HeldReason::Skipped { .. } => Fate::Skipped,
                HeldReason::Cluster(_) => Fate::Cluster,
                HeldReason::Dependencies(_) => Fate::Dependencies,
                HeldReason::Dependent(_) => Fate::Dependent,
                HeldReason::Refused { .. } => Fate::DependencyProperty,
            };
            (fate, reason.to_string())
        }
    }
}

/// Decides between the best bundles of the catalogs, unless the resolution failed before.
fn compare(
    catalogs: &mut [CatalogExplanation],
    result: &Result<Resolved, ResolveError>,
    chosen: Option<&Choice>,
) {
    let (fate, why) = match result.as_ref().map_err(ResolveError::cause) {
        Ok(_) => (Fate::Chosen, chosen.map(Choice::because).unwrap_or_default()),
        Err(ResolveError::Dependency { property, .. }) => {
            (Fate::DependencyProperty, HeldReason::Refused { property: property.clone() }.to_string())
        }
        Err(ResolveError::BundleVersion { fault, .. }) => (Fate::Unreadable, fault.clone()),
        Err(ResolveError::Ambiguous { .. }) => (Fate::Tie, String::new()),
        Err(_) => return,
    };
    let candidates = catalogs.iter_mut().filter_map(|catalog| {
        let best = catalog.bundles.iter_mut().find(|bundle| bundle.fate == Fate::Undecided)?;
        Some((&catalog.name, catalog.priority, best))
    });
    let mut candidates: Vec<_> = candidates.collect();
    let bests: Vec<_> = candidates.iter().map(|(_, priority, best)| (*priority, best.deprecated)).collect();
    let ranks = rank_catalogs(&bests);
    let leads = |rank: &CatalogRank| matches!(rank, CatalogRank::Chosen | CatalogRank::Tie);
    let leaders = candidates.iter().zip(&ranks).filter(|(_, rank)| leads(rank));
    let leaders: Vec<_> = leaders.map(|((name, priority, _), _)| (quote(name), *priority)).collect();
    let names = leaders.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" and ");
    let highest = leaders.first().map_or(0, |(_, priority)| *priority);
    for ((_, own, best), rank) in candidates.iter_mut().zip(ranks) {
        (best.fate, best.why) = match rank {
            CatalogRank::Chosen => (fate, why.clone()),
            CatalogRank::Tie => (Fate::Tie, format!("the catalogs {names} have the same priority {highest}")),
            CatalogRank::DeprecatedBest => {
                (Fate::Deprecated, "deprecated, unlike the best bundle of another catalog".to_owned())
            }
            CatalogRank::LowerPriority => {
                (Fate::Priority, format!("priority {own} is lower than {highest} of {names}"))
            }
        };
    }
}

impl Choice {
    /// Reason why this bundle can follow the installed one, as the rest of a sentence. Empty without an installed
    /// bundle.
    fn because(&self) -> String {
        if self.stays {
            return "the installed version".to_owned();
        }
        let edge = |edge: &FollowedEdge| format!("{} in channel {}", edge.rule, edge.channel);
        let edges: Vec<_> = self.edges.iter().map(edge).collect();
        if edges.is_empty() { String::new() } else { format!("a successor by {}", edges.join(", ")) }
    }
}

impl fmt::Display for OfferExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.fate == Fate::Chosen { "chose" } else { "passed over" };
        write!(f, "{verb} {}", self.bundle)?;
        if self.why.is_empty() { Ok(()) } else { write!(f, ": {}", self.why) }
    }
}

impl fmt::Display for CatalogExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "catalog {} (priority {})", quote(&self.name), self.priority)?;
        match &self.fault {
            Some(fault) if self.skipped => write!(f, ": skipped, {fault}"),
            Some(fault) => write!(f, ": {fault}"),
            None if self.bundles.is_empty() => f.write_str(": does not have the package"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for catalog in &self.catalogs {
            writeln!(f, "{catalog}")?;
            for bundle in &catalog.bundles {
                writeln!(f, "  {bundle}")?;
                bundle.details.iter().try_for_each(|detail| writeln!(f, "    {detail}"))?;
            }
        }
        if let Some(channel) = self.chosen.as_ref().and_then(|chosen| chosen.missed_default_channel.as_ref())
        {
            writeln!(f, "note: the chosen bundle is not in the default channel {}", quote(channel))?;
        }
        self.remarks.iter().try_for_each(|remark| writeln!(f, "note: {remark}"))?;
        match (&self.chosen, &self.error) {
            (Some(chosen), _) => {
                writeln!(f, "chosen: {} from catalog {}", chosen.bundle, quote(&chosen.catalog))
            }
            (None, error) => writeln!(f, "error: {}", error.as_deref().unwrap_or_default()),
        }
    }
}
