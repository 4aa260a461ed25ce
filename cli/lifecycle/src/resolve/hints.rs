//! Hints for a resolution without result, and for bundles that a rule holds back (case additions-a60).
//!
//! The hints come from calls of the resolver with relaxed constraints.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use olm_api::{annotations, labels};
use olm_cli_catalog::package::shown_version;
use olm_cli_core::names::listed;
use olm_resolve::{
    Catalog, Held, HeldReason, PackageIndex, Request, ResolveError, UpgradeOrigin, UpgradePolicy,
    UpgradeScope, resolve,
};
use olm_version::{Constraint, quote};

use super::catalogs::Catalogs;
use super::query::Query;

/// Highest number of versions that a hint names.
const NAMED_VERSIONS: usize = 8;
/// Longest upgrade path that is searched, in upgrades.
const MAX_STEPS: usize = 16;

/// Hints for an error of the resolver, most useful first.
pub(super) fn hints(
    query: &Query,
    catalogs: &Catalogs,
    request: &Request<'_>,
    answers: &[Catalog],
    error: &ResolveError,
) -> Vec<String> {
    match error.cause() {
        ResolveError::NoBundle(_) => no_bundle(query, catalogs, request, answers),
        ResolveError::Ambiguous { catalogs, .. } => ambiguous(catalogs),
        ResolveError::Dependency { .. } => {
            let mut hints = vec![
                "--with-dependencies also plans the dependencies; --dependency-mode Report or Check evaluates dependencies instead of \
                 rejecting them, as does annotation "
                    .to_owned()
                    + annotations::EXT_DEPENDENCY_MODE,
            ];
            hints.extend(without_dependencies(request, answers));
            hints
        }
        ResolveError::DependenciesNotSatisfied { held, .. } => {
            let mut hints = vec!["--with-dependencies also plans the dependencies".to_owned()];
            hints.extend(held.first().map(|held| release(query, held)));
            hints
        }
        ResolveError::HeldBack { held, .. } => {
            held.first().map(|held| release(query, held)).into_iter().collect()
        }
        ResolveError::Catalog { catalog, .. } => vec![format!(
            "exclude it with a selector, such as --selector {}!={catalog}, disable it with spec.availabilityMode: \
             Unavailable, or enable feature gate BestEffortResolution",
            labels::METADATA_NAME
        )],
        _ => Vec::new(),
    }
}

/// Change that releases a bundle which a rule holds back: the exact command if the extension is known.
pub(super) fn release(query: &Query, held: &Held) -> String {
    let annotate = |key: &str, value: Option<&str>, flag: &str| match (&query.extension, value) {
        (Some(name), Some(value)) => {
            format!("kubectl annotate clusterextension {name} --overwrite {key}={value}")
        }
        (Some(name), None) => format!("kubectl annotate clusterextension {name} {key}-"),
        (None, _) => flag.to_owned(),
    };
    match &held.reason {
        HeldReason::OutsideScope { installed, .. } => {
            let scope = needed_scope(installed, &held.version).to_string();
            annotate(annotations::EXT_UPGRADE_SCOPE, Some(&scope), &format!("--upgrade-scope {scope}"))
        }
        HeldReason::Skipped { .. } => {
            annotate(annotations::EXT_EXCLUDE_SKIPPED, None, "without --exclude-skipped")
        }
        HeldReason::Dependencies(_) | HeldReason::Refused { .. } => annotate(
            annotations::EXT_DEPENDENCY_MODE,
            Some("Report"),
            "install the missing dependencies, or use --dependency-mode Report",
        ),
        HeldReason::Dependent(_) => {
            annotate(annotations::EXT_IGNORE_DEPENDENTS, Some("true"), "upgrade the other extension first")
        }
        HeldReason::Cluster(_) => "upgrade the cluster".to_owned(),
    }
}

/// Smallest scope that allows the upgrade.
fn needed_scope(from: &str, to: &str) -> UpgradeScope {
    let numbers = |text: &str| -> Vec<String> { text.split('.').take(2).map(str::to_owned).collect() };
    let (from, to) = (numbers(from), numbers(to));
    if from.first() != to.first() {
        UpgradeScope::Major
    } else if from != to {
        UpgradeScope::Minor
    } else {
        UpgradeScope::Patch
    }
}

fn ambiguous(catalogs: &[(String, i32)]) -> Vec<String> {
    let priorities: Vec<_> = catalogs.iter().map(|(name, priority)| format!("{name} {priority}")).collect();
    let first = catalogs.first().map(|(name, _)| name.as_str()).unwrap_or_default();
    vec![format!(
        "priorities: {}; prefer a catalog with --priority {first}=1 (operator-controller: spec.priority of its \
         ClusterCatalog), or select a catalog in the extension: {} in spec.source.catalog.selector.matchLabels",
        priorities.join(", "),
        labels::METADATA_NAME
    )]
}

/// Best bundle that the request admits and that has no dependencies.
fn without_dependencies(request: &Request<'_>, answers: &[Catalog]) -> Option<String> {
    let packages = answers.iter().filter_map(|catalog| catalog.package.as_ref().ok()?.as_ref());
    let versions: BTreeSet<String> = packages
        .flat_map(|package| package.offers())
        .filter(|offer| offer.dependency().is_none())
        .filter_map(shown_version)
        .collect();
    let mut found: Vec<_> = versions
        .iter()
        .filter_map(|version| resolve(&Request { version: Some(version), ..*request }, answers).ok())
        .filter(|_| request.version.is_none())
        .collect();
    found.sort_by(|a, b| a.version.cmp(&b.version));
    let best = found.pop()?;
    let version = best.version.shown(false).0;
    Some(format!("{} has no dependencies: --version {version}", best.bundle))
}

fn no_bundle(query: &Query, catalogs: &Catalogs, request: &Request<'_>, answers: &[Catalog]) -> Vec<String> {
    if answers.is_empty() {
        let names = catalogs.names();
        return vec![format!("no catalog is selected; catalogs: {}", listed(&names))];
    }
    let packages: Vec<&PackageIndex> =
        answers.iter().filter_map(|catalog| catalog.package.as_ref().ok()?.as_deref()).collect();
    if packages.is_empty() {
        return vec![catalogs.missing(query.package())];
    }
    let mut hints = Vec::new();
    hints.extend(unknown_channels(query, &packages));
    if let (Some(installed), Some(range)) = (request.installed, range(request))
        && let (Ok(origin), Ok(requested)) = (installed.origin(), Constraint::parse(range))
        && request.policy == UpgradePolicy::CatalogProvided
    {
        let ways = packages.iter().filter_map(|package| way(package, &origin, &requested, request.channels));
        hints.extend(ways.min_by_key(Vec::len).map(|way| {
            format!("no upgrade edge leads there directly; upgrade in steps: {}", way.join(", then "))
        }));
    }
    let loosened = [
        (Request { version: None, ..*request }, range(request).is_some(), "without the version"),
        (Request { channels: &[], ..*request }, !request.channels.is_empty(), "with all channels"),
        (
            Request { policy: UpgradePolicy::SelfCertified, ..*request },
            request.installed.is_some() && request.policy == UpgradePolicy::CatalogProvided,
            "with --policy SelfCertified (upgradeConstraintPolicy), at your own risk,",
        ),
    ];
    for (request, differs, how) in loosened {
        if let Some(resolved) = resolve(&request, answers).ok().filter(|_| differs) {
            let version = resolved.version.shown(false).0;
            hints.push(format!("{how} {} ({version}) would be chosen", resolved.bundle));
        }
    }
    hints.extend(versions(&packages, request));
    hints
}

/// Lists the existing channels if a requested one does not exist.
fn unknown_channels(query: &Query, packages: &[&PackageIndex]) -> Option<String> {
    let offers = packages.iter().flat_map(|package| package.offers());
    let known: BTreeSet<&str> = offers.flat_map(|offer| offer.channels()).collect();
    let unknown: Vec<_> = query
        .filter
        .channels
        .iter()
        .filter(|name| !known.contains(name.as_str()))
        .map(|name| quote(name))
        .collect();
    let mark = |name: &&str| match packages.iter().any(|package| package.default_channel() == *name) {
        true => format!("{name} (default)"),
        false => (*name).to_owned(),
    };
    let known: Vec<_> = known.iter().map(mark).collect();
    (!unknown.is_empty())
        .then(|| format!("there is no channel {}; channels: {}", unknown.join(" or "), listed(&known)))
}

/// Versions in the requested channels, highest first.
fn versions(packages: &[&PackageIndex], request: &Request<'_>) -> Option<String> {
    let in_channels = |channel: &str| request.channels.iter().any(|requested| requested == channel);
    let offers = packages.iter().flat_map(|package| package.offers());
    let mut versions: Vec<_> = offers
        .filter(|offer| request.channels.is_empty() || offer.channels().any(in_channels))
        .filter_map(|offer| offer.version().ok())
        .collect();
    versions.sort_by(|a, b| b.cmp(a));
    let mut shown: Vec<String> = versions.iter().map(|version| version.shown(false).0).collect();
    shown.dedup();
    let more = shown.len().saturating_sub(NAMED_VERSIONS);
    shown.truncate(NAMED_VERSIONS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let what = if request.channels.is_empty() { "versions" } else { "versions in these channels" };
    (!shown.is_empty()).then(|| format!("{what}: {}{more}", shown.join(", ")))
}

/// Bundles on the shortest upgrade path from `origin` to a bundle of the requested range.
fn way(
    package: &PackageIndex,
    origin: &UpgradeOrigin<'_>,
    requested: &Constraint,
    channels: &[String],
) -> Option<Vec<String>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut pending = VecDeque::from([(origin.clone(), 0)]);
    while let Some((from, steps)) = pending.pop_front() {
        for offer in package.offers().filter(|offer| !offer.deprecated()) {
            let Ok(version) = offer.version() else { continue };
            let is_new = offer.name() != origin.name && !before.contains_key(offer.name());
            if !is_new || *version <= from.version || offer.edges_from(&from, channels).next().is_none() {
                continue;
            }
            before.insert(offer.name(), from.name);
            if requested.matches(version.version()) {
                let mut way = vec![offer.name().to_owned()];
                let back = std::iter::successors(before.get(offer.name()), |name| before.get(*name));
                way.extend(back.filter(|name| **name != origin.name).map(|name| (*name).to_owned()));
                way.reverse();
                return Some(way);
            }
            if steps < MAX_STEPS {
                pending
                    .push_back((UpgradeOrigin { name: offer.name(), version: version.clone() }, steps + 1));
            }
        }
    }
    None
}

/// Version constraint, if any.
fn range<'a>(request: &Request<'a>) -> Option<&'a str> {
    request.version.filter(|text| !text.is_empty())
}
