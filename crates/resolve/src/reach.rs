//! Bundles that a sequence of upgrades leads to (docs/design/resolution.md#upgrade-routes).

use std::collections::HashSet;
use std::sync::Arc;

use crate::bundle_filter::{BundleFilter, shown};
use crate::catalog::Catalog;
use crate::error::ResolveError;
use crate::package::{Offer, PackageIndex};
use crate::request::{Installed, Request};
use crate::resolver::by_preference;
use crate::rules::DependencyMode;

/// Bundles of higher versions that upgrades reach from the installed bundle, where each upgrade is one that
/// [`crate::resolve`] could choose for the same request.
#[derive(Debug, Default)]
pub struct Reach {
    /// Hops in the order in which they were found: fewer upgrades first.
    hops: Vec<Hop>,
    /// Versions of the hops.
    versions: HashSet<String>,
}

/// Upgrade to one bundle.
#[derive(Debug)]
pub struct Hop {
    /// Name of the catalog that offers the bundle.
    pub catalog: String,
    /// Version of the bundle with its release.
    pub version: String,
    /// Bundle after the upgrade.
    pub offer: Arc<Offer>,
    /// Index of the upgrade before this one. `None` for an upgrade of the installed bundle.
    before: Option<usize>,
}

/// Bundle that is not reached yet.
struct Candidate<'a> {
    catalog: &'a str,
    package: &'a PackageIndex,
    offer: &'a Arc<Offer>,
    /// Version with its release.
    version: String,
}

impl Reach {
    /// Searches breadth-first. Without an installed bundle of a readable version, nothing is reached. Catalogs with an
    /// error are skipped. Of several bundles of one version, that of the catalog with the highest priority counts.
    ///
    /// # Errors
    /// The version constraint is invalid.
    pub fn new(request: &Request<'_>, catalogs: &[Catalog]) -> Result<Self, ResolveError> {
        let mut reach = Self::default();
        let Some(origin) = BundleFilter::new(request)?.origin().map(|origin| origin.version.clone()) else {
            return Ok(reach);
        };
        let rejects = request.rules.dependencies == DependencyMode::Reject;
        let is_candidate = |offer: &Offer| {
            offer.version().is_ok_and(|version| *version > origin)
                && !(rejects && offer.dependencies().any(|kind| request.rules.counts(kind)))
        };
        let mut candidates: Vec<Candidate<'_>> = Vec::new();
        for catalog in by_preference(catalogs) {
            let Ok(Some(package)) = &catalog.package else { continue };
            let offers = package.shared_offers().filter(|offer| is_candidate(offer));
            candidates.extend(offers.filter_map(|offer| {
                let version = shown(offer.version().ok()?);
                Some(Candidate { catalog: &catalog.name, package, offer, version })
            }));
        }
        let mut before = None;
        loop {
            let from = before.and_then(|index: usize| reach.hops.get(index));
            let (name, version) =
                from.map_or_else(Default::default, |hop| (hop.offer.name().to_owned(), hop.version.clone()));
            let installed = from.map(|_| Installed { name: &name, version: &version, release: None });
            let request = Request { installed: installed.or(request.installed), ..*request };
            reach.extend(&BundleFilter::new(&request)?, before, &mut candidates);
            let next = before.map_or(0, |index| index + 1);
            if next == reach.hops.len() {
                return Ok(reach);
            }
            before = Some(next);
        }
    }

    /// Moves the direct successors from `candidates` to the hops.
    fn extend(
        &mut self,
        filter: &BundleFilter<'_>,
        before: Option<usize>,
        candidates: &mut Vec<Candidate<'_>>,
    ) {
        candidates.retain(|Candidate { catalog, package, offer, version }| {
            if self.versions.contains(version) {
                return false;
            }
            let is_successor = filter.check(package, offer).is_ok();
            if is_successor {
                let (catalog, version) = ((*catalog).to_owned(), version.clone());
                self.versions.insert(version.clone());
                self.hops.push(Hop { catalog, version, offer: Arc::clone(offer), before });
            }
            !is_successor
        });
    }

    /// Reached bundles, best first: not deprecated before deprecated, then higher versions.
    pub fn best_first(&self) -> Vec<&Hop> {
        let mut hops: Vec<&Hop> = self.hops.iter().collect();
        hops.sort_by(|a, b| a.offer.preference(&b.offer));
        hops
    }

    /// Upgrades that lead to the best bundle that `accepts` selects, in their order. Empty if it accepts no bundle.
    pub fn route(&self, accepts: impl Fn(&Hop) -> bool) -> Vec<&Hop> {
        let mut next = self.best_first().into_iter().find(|hop| accepts(hop));
        let mut route = Vec::new();
        while let Some(hop) = next {
            route.push(hop);
            next = hop.before.and_then(|index| self.hops.get(index));
        }
        route.reverse();
        route
    }
}

#[cfg(test)]
mod tests {
    use olm_fbc::PackageContent;
    use serde_json::json;

    use super::*;
    use crate::package::{Indexing, PackageIndex};
    use crate::request::UpgradePolicy;
    use crate::rules::{Rules, UpgradeScope};

    /// Catalog whose channel `stable` has these versions of package `p`, each with the one that it replaces.
    fn catalog(name: &str, priority: i32, entries: &[(&str, &str)]) -> Catalog {
        let channel = entries.iter().map(|(version, replaces)| {
            let replaces = (!replaces.is_empty()).then(|| format!("p.v{replaces}"));
            json!({"name": format!("p.v{version}"), "replaces": replaces.unwrap_or_default()})
        });
        let channel = json!({"schema": "olm.channel", "package": "p", "name": "stable",
            "entries": channel.collect::<Vec<_>>()});
        let bundles = entries.iter().map(|(version, _)| {
            json!({"schema": "olm.bundle", "package": "p", "name": format!("p.v{version}"), "image": "i",
            "properties": [
                {"type": "olm.package", "value": {"packageName": "p", "version": version}},
                {"type": "olm.maxOpenShiftVersion", "value": "4.18"},
            ]})
        });
        let metas: Vec<String> = bundles.chain([channel]).map(|meta| meta.to_string()).collect();
        let content = PackageContent::from_metas("p", metas.iter().map(String::as_bytes)).unwrap();
        let package = Ok(Some(Arc::new(PackageIndex::new(&content, Indexing::default()))));
        Catalog { name: name.to_owned(), priority, package }
    }

    fn request(version: Option<&'static str>) -> Request<'static> {
        Request {
            package: "p",
            channels: &[],
            version,
            policy: UpgradePolicy::CatalogProvided,
            installed: Some(Installed { name: "p.v1.0.0", version: "1.0.0", release: None }),
            rules: Rules::default(),
        }
    }

    fn reached(request: &Request<'_>, catalogs: &[Catalog]) -> Vec<String> {
        let reach = Reach::new(request, catalogs).unwrap();
        reach.best_first().iter().map(|hop| hop.version.clone()).collect()
    }

    #[test]
    fn upgrades_follow_edges_within_range_policy_and_rules() {
        let chain = [("1.0.0", ""), ("1.1.0", "1.0.0"), ("2.0.0", "1.1.0"), ("3.0.0", "2.5.0")];
        let hub = [catalog("hub", 0, &chain)];
        assert_eq!(reached(&request(None), &hub), ["2.0.0", "1.1.0"]);
        assert_eq!(reached(&request(Some("1.x")), &hub), ["1.1.0"]);
        // The range must admit every step.
        assert_eq!(reached(&request(Some("1.0.0 || 2.0.0")), &hub), [""; 0]);
        let forced = Request { policy: UpgradePolicy::SelfCertified, ..request(None) };
        assert_eq!(reached(&forced, &hub), ["3.0.0", "2.0.0", "1.1.0"]);
        let scope = Rules { upgrade_scope: Some(UpgradeScope::Minor), ..Rules::default() };
        assert_eq!(reached(&Request { rules: scope, ..request(None) }, &hub), ["1.1.0"]);
        assert_eq!(reached(&Request { installed: None, ..request(None) }, &hub), [""; 0]);
        assert!(Reach::new(&request(Some("~~")), &hub).is_err());
    }

    #[test]
    fn route_lists_the_fewest_upgrades_to_the_best_accepted_bundle() {
        let entries = [("1.0.0", ""), ("1.1.0", "1.0.0"), ("1.2.0", "1.1.0"), ("1.3.0", "1.2.0")];
        let mut short = entries;
        short[2].1 = "1.0.0";
        let catalogs = [catalog("hub", 0, &entries), catalog("fast", -1, &short)];
        let reach = Reach::new(&request(None), &catalogs).unwrap();
        let steps = |accepts: &dyn Fn(&Hop) -> bool| {
            let route = reach.route(accepts);
            route.iter().map(|hop| format!("{} {}", hop.catalog, hop.version)).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(steps(&|_| true), "fast 1.2.0, hub 1.3.0");
        assert_eq!(steps(&|hop| hop.version == "1.1.0"), "hub 1.1.0");
        assert_eq!(steps(&|_| false), "");
    }

    // Quadratic in the number of bundles: a package may have some thousands.
    #[test]
    fn chain_of_thousand_bundles_is_searched_to_its_end() {
        let versions: Vec<String> = (0..1000).map(|minor| format!("1.{minor}.0")).collect();
        let before = std::iter::once("").chain(versions.iter().map(String::as_str));
        let entries: Vec<(&str, &str)> = versions.iter().map(String::as_str).zip(before).collect();
        let reach = Reach::new(&request(None), &[catalog("hub", 0, &entries)]).unwrap();
        assert_eq!(reach.route(|_| true).len(), 999);
    }

    #[test]
    fn offer_keeps_platform_limits_without_other_properties() {
        let reach = Reach::new(&request(None), &[catalog("hub", 0, &[("1.1.0", "1.0.0")])]).unwrap();
        let offer = &reach.best_first()[0].offer;
        assert_eq!(offer.platform_limits().collect::<Vec<_>>(), [("olm.maxOpenShiftVersion", "\"4.18\"")]);
        assert!(offer.properties().is_empty());
    }
}
