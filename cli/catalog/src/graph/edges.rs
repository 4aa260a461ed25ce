//! Upgrade edges between the bundles of a package.
//!
//! The edges of v1 come from the successor test of the resolver. Classic OLM uses the same test, but offers only
//! bundles on the replaces chain of a channel (docs/design/cli.md#classic-upgrade-graph).

use std::collections::{BTreeMap, BTreeSet};

use olm_cli_core::error::CliError;
use olm_fbc::Channel;
use olm_resolve::{Offer, UpgradeOrigin};

use super::model::{Edge, EdgeRuleUse, Graph, Node, Semantics};
use crate::classic_chain::{chain, heads};
use crate::package::{CatalogPackage, shown_version};

/// Bundles and channels that the graph covers.
struct Selection<'a> {
    package: &'a CatalogPackage,
    channels: Vec<&'a Channel>,
    /// Channel names for the resolver. Empty means all.
    names: Vec<String>,
    /// Bundles of the selection, best first.
    offers: Vec<&'a Offer>,
    /// Bundles that each channel offers. Classic semantics only.
    chains: Option<BTreeMap<&'a str, Vec<&'a str>>>,
}

/// Successors of each installed bundle, with the entries that allow them.
type Targets<'e> = BTreeMap<&'e str, BTreeMap<&'e str, Vec<&'e EdgeRuleUse>>>;

impl Graph {
    pub(crate) fn new(
        package: &CatalogPackage,
        channel: Option<&str>,
        semantics: Semantics,
    ) -> Result<Self, CliError> {
        let channels: Vec<_> = match channel {
            Some(name) => vec![package.channel(name)?],
            None => package.content.channels.iter().collect(),
        };
        let mut notes = Vec::new();
        let chains = (semantics == Semantics::Classic).then(|| {
            let mut chains = BTreeMap::new();
            for &channel in &channels {
                match chain(channel) {
                    Ok(chain) => drop(chains.insert(channel.name.as_str(), chain)),
                    Err(note) => notes.push(note),
                }
            }
            chains
        });
        let listed: BTreeSet<_> =
            channels.iter().flat_map(|channel| &channel.entries).map(|entry| entry.name.as_str()).collect();
        let offers =
            package.index.offers().filter(|offer| channel.is_none() || listed.contains(offer.name()));
        let names = channel.map(str::to_owned).into_iter().collect();
        let selection = Selection { package, channels, names, offers: offers.collect(), chains };
        let edges = selection.edges(&mut notes);
        Ok(Self {
            catalog: package.catalog.clone(),
            package: package.name.clone(),
            semantics,
            channel: channel.map(str::to_owned),
            nodes: selection.nodes(&edges),
            edges,
            notes,
            path: None,
            decision: None,
        })
    }
}

impl<'a> Selection<'a> {
    /// Bundles by version, lowest first.
    fn ascending(&self) -> Vec<&'a Offer> {
        let mut offers = self.offers.clone();
        offers.sort_by(|a, b| (a.version().ok(), a.name()).cmp(&(b.version().ok(), b.name())));
        offers
    }

    fn edges(&self, notes: &mut Vec<String>) -> Vec<Edge> {
        let ascending = self.ascending();
        let mut edges = Vec::new();
        for from in &ascending {
            let Some(origin) = origin(from) else {
                let why = from.version().err().unwrap_or_default();
                notes.push(format!(
                    "bundle {} has no valid version, so it has no upgrades: {why}",
                    from.name()
                ));
                continue;
            };
            for to in ascending.iter().rev().filter(|to| to.name() != from.name()) {
                let by = self.by(&origin, to);
                if !by.is_empty() {
                    let downgrade = to.version().is_ok_and(|version| *version < origin.version);
                    edges.push(Edge {
                        from: from.name().to_owned(),
                        to: to.name().to_owned(),
                        by,
                        downgrade,
                    });
                }
            }
        }
        edges
    }

    /// Entries that let `to` follow `origin`.
    fn by(&self, origin: &UpgradeOrigin<'_>, to: &Offer) -> Vec<EdgeRuleUse> {
        let offered = |channel: &str| {
            let chains = self.chains.as_ref();
            chains.is_none_or(|chains| chains.get(channel).is_some_and(|chain| chain.contains(&to.name())))
        };
        let edges = to.edges_from(origin, &self.names).filter(|edge| offered(edge.channel));
        let mut by: Vec<_> = edges
            .map(|edge| EdgeRuleUse { channel: edge.channel.to_owned(), rule: edge.rule.as_str() })
            .collect();
        by.sort();
        by.dedup();
        by
    }

    fn nodes(&self, edges: &[Edge]) -> Vec<Node> {
        let mut targets = Targets::new();
        for edge in edges {
            targets.entry(&edge.from).or_default().entry(&edge.to).or_default().extend(&edge.by);
        }
        let none = BTreeMap::new();
        let reached: BTreeSet<_> = edges.iter().map(|edge| edge.to.as_str()).collect();
        let all: BTreeSet<_> = self.package.index.offers().map(Offer::name).collect();
        let entries = self.channels.iter().flat_map(|channel| &channel.entries);
        let skipped: BTreeSet<_> = entries.flat_map(|entry| &entry.skips).map(String::as_str).collect();
        let ascending = self.ascending();
        let lowest = ascending.iter().find(|offer| offer.version().is_ok()).map(|offer| offer.name());
        let node = |offer: &&Offer| {
            let name = offer.name();
            let unreachable = match &self.chains {
                None => lowest != Some(name) && !reached.contains(name),
                Some(chains) => !chains.values().any(|chain| chain.contains(&name)),
            };
            let channels = |keep: &dyn Fn(&Channel) -> bool| -> Vec<String> {
                self.channels.iter().filter(|one| keep(one)).map(|one| one.name.clone()).collect()
            };
            Node {
                bundle: name.to_owned(),
                version: shown_version(offer),
                channels: channels(&|channel| channel.entries.iter().any(|entry| entry.name == name)),
                head_of: channels(&|channel| heads(channel).contains(&name)),
                deprecated: offer.deprecated(),
                skipped: skipped.contains(name),
                unreachable,
                refused: offer.dependency().map(str::to_owned),
                next: self.next(offer, targets.get(name).unwrap_or(&none)),
                follows_absent: self.follows_absent(name, &all),
            }
        };
        ascending.iter().map(node).collect()
    }

    /// Bundle that is chosen as upgrade of `installed`, if it is another one.
    fn next(&self, installed: &Offer, targets: &BTreeMap<&str, Vec<&EdgeRuleUse>>) -> Option<String> {
        let Some(chains) = &self.chains else {
            // As the resolver: the best of the successors and bundles of the installed version.
            let version = installed.version().ok();
            let admitted = |offer: &&&Offer| {
                version.is_some() && offer.version().ok() == version || targets.contains_key(offer.name())
            };
            let best = self.offers.iter().find(admitted)?.name();
            return (best != installed.name()).then(|| best.to_owned());
        };
        // Default channel first, then by name. Within a channel, head first.
        let mut order: Vec<_> = chains.iter().collect();
        order.sort_by_key(|(channel, _)| **channel != self.package.default_channel());
        let target = |channel: &str, name: &str| {
            targets.get(name).is_some_and(|by| by.iter().any(|by| by.channel == channel))
        };
        let mut candidates =
            order.iter().flat_map(|(channel, chain)| chain.iter().map(|name| (**channel, *name)));
        candidates.find(|(channel, name)| target(channel, name)).map(|(_, name)| name.to_owned())
    }

    /// Names that the entries of `bundle` replace or skip and that no bundle has.
    fn follows_absent(&self, bundle: &str, all: &BTreeSet<&str>) -> Vec<String> {
        let entries = self.channels.iter().flat_map(|channel| &channel.entries);
        let names = entries
            .filter(|entry| entry.name == bundle)
            .flat_map(|entry| std::iter::once(&entry.replaces).chain(&entry.skips))
            .filter(|name| !name.is_empty() && !all.contains(name.as_str()));
        names.cloned().collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// Bundle as the start of an upgrade. `None` if its version is invalid, which stops the resolver.
fn origin(offer: &Offer) -> Option<UpgradeOrigin<'_>> {
    offer.version().ok().map(|version| UpgradeOrigin { name: offer.name(), version: version.clone() })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use olm_cli_core::source::DirectoryFolder;
    use olm_fbc::{Meta, SCHEMA_PACKAGE};
    use olm_resolve::{Catalog, Indexing, Installed, Request, ResolveError, Rules, UpgradePolicy, resolve};

    use super::*;

    /// All packages of a catalog directory.
    fn packages(root: &Path) -> Vec<CatalogPackage> {
        let mut metas: Vec<Meta> = Vec::new();
        let folder = DirectoryFolder::open(root).unwrap();
        olm_fbc::load::<CliError>(&folder, &olm_fbc::LoadLimits::default(), &mut |meta| {
            metas.push(meta);
            Ok(())
        })
        .unwrap();
        let names = metas.iter().filter(|meta| meta.schema == SCHEMA_PACKAGE).map(|meta| meta.name.clone());
        let lines: Vec<_> = metas.iter().map(|meta| meta.blob.clone()).collect();
        names.map(|name| CatalogPackage::new("c", &name, &lines, Indexing::default()).unwrap()).collect()
    }

    fn roots() -> Vec<PathBuf> {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../olm/tests/data");
        let mut roots = vec![data.join("catalog"), data.join("odd"), data.join("skipped")];
        roots.extend(olm_require::field_data().map(|field| field.join("catalogs/community-v4.20")));
        roots
    }

    // The graph and the controller must choose the same upgrade
    // (docs/design/architecture.md#same-functions-in-cli-and-controllers).
    #[test]
    fn next_bundle_of_v1_graph_equals_choice_of_resolver() {
        let mut compared = 0;
        for package in roots().iter().flat_map(|root| packages(root)) {
            let index = Arc::clone(&package.index);
            let catalog = Catalog { name: "c".to_owned(), priority: 0, package: Ok(Some(index)) };
            let channels = package.content.channels.iter().map(|channel| vec![channel.name.clone()]);
            for channels in channels.chain([Vec::new()]) {
                let channel = channels.first().map(String::as_str);
                let graph = Graph::new(&package, channel, Semantics::V1).unwrap();
                for node in &graph.nodes {
                    let Some(version) = &node.version else { continue };
                    let request = Request {
                        package: &package.name,
                        channels: &channels,
                        version: None,
                        policy: UpgradePolicy::CatalogProvided,
                        installed: Some(Installed { name: &node.bundle, version, release: None }),
                        rules: Rules::default(),
                    };
                    let chosen = match resolve(&request, std::slice::from_ref(&catalog)) {
                        Ok(resolved) => resolved.bundle,
                        Err(ResolveError::Dependency { bundle, .. }) => bundle,
                        Err(error) => panic!("{}: {error}", node.bundle),
                    };
                    assert_eq!(
                        node.next.as_ref().unwrap_or(&node.bundle),
                        &chosen,
                        "{} {channels:?}",
                        node.bundle
                    );
                    compared += 1;
                }
            }
        }
        assert!(compared > 10);
    }
}
