//! Upgrades that the resolver can choose. Pure.

use std::collections::{BTreeMap, BTreeSet};

use olm_resolve::{Offer, UpgradeOrigin};
use olm_version::VersionRelease;

use crate::package::{CatalogPackage, shown_version};

/// Upgrade from one bundle of a package to a higher one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edge {
    /// Names of the bundles.
    pub(super) from: String,
    pub(super) to: String,
    /// Channels in which the upgrade is possible.
    pub(super) channels: Vec<String>,
}

/// Which edges are checked.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Also those that do not lead to the newest bundle of a channel.
    pub(super) all: bool,
    /// Only those from this version.
    pub(super) from: Option<String>,
}

impl Wanted {
    /// Edges of the package, grouped by the bundle that they lead to, the lowest first.
    pub(super) fn edges(&self, package: &CatalogPackage) -> Vec<Edge> {
        let mut found: BTreeMap<(&VersionRelease, &VersionRelease, &str, &str), BTreeSet<&str>> =
            BTreeMap::new();
        for channel in &package.content.channels {
            let only = [channel.name.clone()];
            for to in self.targets(package, &channel.name) {
                let Ok(target) = to.version() else { continue };
                for from in package.index.offers().filter(|from| self.is_origin(from)) {
                    let Ok(version) = from.version() else { continue };
                    let origin = UpgradeOrigin { name: from.name(), version: version.clone() };
                    if version < target && to.edges_from(&origin, &only).next().is_some() {
                        let key = (target, version, to.name(), from.name());
                        found.entry(key).or_default().insert(&channel.name);
                    }
                }
            }
        }
        let edge = |((_, _, to, from), channels): (_, BTreeSet<&str>)| Edge {
            from: str::to_owned(from),
            to: str::to_owned(to),
            channels: channels.into_iter().map(str::to_owned).collect(),
        };
        found.into_iter().map(edge).collect()
    }

    /// Bundles of the channel that edges may lead to.
    fn targets<'a>(&self, package: &'a CatalogPackage, channel: &str) -> Vec<&'a Offer> {
        let listed = |offer: &&Offer| offer.channels().any(|one| one == channel) && offer.version().is_ok();
        let offers = package.index.offers().filter(listed);
        match self.all {
            true => offers.collect(),
            // The resolver prefers bundles that are not deprecated.
            false => {
                let offers: Vec<_> = offers.collect();
                let newest = offers.iter().copied().max_by_key(|offer| offer.version().ok());
                let preferred = offers.into_iter().filter(|offer| !offer.deprecated());
                let preferred = preferred.max_by_key(|offer| offer.version().ok());
                newest.into_iter().chain(preferred).collect()
            }
        }
    }

    /// Versions of the package, if none is the wanted origin.
    pub(super) fn missing_origin(&self, package: &CatalogPackage) -> Option<Vec<String>> {
        let is_known = package.index.offers().any(|offer| self.is_origin(offer));
        (!is_known).then(|| package.index.offers().filter_map(shown_version).collect())
    }

    fn is_origin(&self, offer: &Offer) -> bool {
        self.from.as_ref().is_none_or(|from| shown_version(offer).as_ref() == Some(from))
    }
}

#[cfg(test)]
mod tests {
    use olm_resolve::Indexing;
    use serde_json::json;

    use super::*;

    fn package() -> CatalogPackage {
        let channel = |name: &str, entries: serde_json::Value| json!({"schema": "olm.channel", "package": "p", "name": name, "entries": entries});
        let mut objects = vec![
            channel(
                "a",
                json!([{"name": "p.v1"}, {"name": "p.v2", "replaces": "p.v1"}, {"name": "p.v3", "replaces": "p.v2", "skips": ["p.v1"]}]),
            ),
            channel("b", json!([{"name": "p.v1"}, {"name": "p.v2", "skipRange": "<2.0.0"}])),
        ];
        objects.extend((1..=3).map(|major| {
            let version = json!({"type": "olm.package", "value": {"packageName": "p", "version": format!("{major}.0.0")}});
            json!({"schema": "olm.bundle", "package": "p", "name": format!("p.v{major}"), "properties": [version]})
        }));
        let lines: Vec<_> = objects.iter().map(|object| object.to_string().into_bytes()).collect();
        CatalogPackage::new("c", "p", &lines, Indexing::default()).unwrap()
    }

    #[test]
    fn edges_lead_to_the_newest_bundle_of_each_channel_unless_all_are_wanted() {
        let shown = |wanted: Wanted| -> Vec<String> {
            let text = |edge: &Edge| format!("{}>{} {}", edge.from, edge.to, edge.channels.join(","));
            wanted.edges(&package()).iter().map(text).collect()
        };
        assert_eq!(shown(Wanted::default()), ["p.v1>p.v2 b", "p.v1>p.v3 a", "p.v2>p.v3 a"]);
        assert_eq!(shown(Wanted { all: true, from: None }), ["p.v1>p.v2 a,b", "p.v1>p.v3 a", "p.v2>p.v3 a"]);
        assert_eq!(shown(Wanted { all: false, from: Some("2.0.0".to_owned()) }), ["p.v2>p.v3 a"]);
        assert_eq!(shown(Wanted { all: false, from: Some("9.0.0".to_owned()) }), [""; 0]);
    }
}
