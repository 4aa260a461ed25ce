//! Comparison of two catalogs (docs/design/cli.md#ways-forward). Pure.

use std::collections::{BTreeMap, BTreeSet};

use olm_fbc::{Bundle, PROPERTY_BUNDLE_OBJECT, PROPERTY_CSV_METADATA};
use olm_resolve::{Offer, PackageIndex, UpgradeOrigin};
use serde::Serialize;

use crate::package::{CatalogPackage, shown_version};
use crate::whole::Packages;

/// Differences between two catalogs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CatalogDiff {
    /// Compared sources as given.
    pub(super) old: String,
    pub(super) new: String,
    /// `true` if there are no differences.
    pub(super) empty: bool,
    #[serde(rename = "packages")]
    pub(super) names: Delta<String>,
    /// Packages of both catalogs that differ, by name.
    pub(super) changed_packages: Vec<PackageDiff>,
}

/// Items that one of two catalogs lacks, sorted.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub(super) struct Delta<T> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) added: Vec<T>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) removed: Vec<T>,
}

/// Differences of one package.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) struct PackageDiff {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) default_channel: Option<Change>,
    #[serde(skip_serializing_if = "Delta::is_empty")]
    pub(super) channels: Delta<String>,
    #[serde(skip_serializing_if = "Delta::is_empty")]
    pub(super) bundles: Delta<BundleRef>,
    /// Channel entries with a bundle and a channel of both catalogs.
    #[serde(skip_serializing_if = "Delta::is_empty")]
    pub(super) entries: Delta<Entry>,
    /// Bundles with the same name and other content.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) changed_bundles: Vec<ChangedBundle>,
    #[serde(skip_serializing_if = "Delta::is_empty")]
    pub(super) edges: Delta<Edge>,
    #[serde(skip_serializing_if = "Delta::is_empty")]
    pub(super) deprecations: Delta<Deprecated>,
    /// Bundles of the old catalog without an upgrade in the new one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) stranded: Vec<Stranded>,
}

/// Old and new value. Empty if absent.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) old: String,
    pub(super) new: String,
}

/// Bundle that one catalog lacks.
#[derive(Debug, Serialize, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BundleRef {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) version: Option<String>,
}

/// Bundle in a channel.
#[derive(Debug, Serialize, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    pub(super) channel: String,
    pub(super) bundle: String,
}

/// Bundle with a different field under the same name.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub(super) struct ChangedBundle {
    pub(super) name: String,
    /// `version`, `image`, `properties` or `relatedImages`.
    pub(super) field: &'static str,
    #[serde(flatten)]
    pub(super) change: Change,
}

/// Allowed upgrade.
#[derive(Debug, Serialize, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Edge {
    pub(super) from: String,
    pub(super) to: String,
}

/// Deprecation of a package, channel or bundle. A changed message is a removed and an added deprecation.
#[derive(Debug, Serialize, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Deprecated {
    pub(super) schema: String,
    /// Empty for the package.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    pub(super) message: String,
}

/// Bundle of the old catalog without an upgrade in the new one. The newest bundle of both catalogs is not stranded.
#[derive(Debug, Serialize, PartialEq, Eq)]
pub(super) struct Stranded {
    pub(super) bundle: String,
    pub(super) version: String,
    /// `true` if the new catalog has a bundle of this version.
    pub(super) offered: bool,
    /// Highest bundle that the old catalog upgrades it to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next: Option<String>,
}

impl<T> Delta<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

impl<T: Ord> Delta<T> {
    fn of(old: BTreeSet<T>, mut new: BTreeSet<T>) -> Self {
        let removed = old.into_iter().filter(|item| !new.remove(item)).collect();
        Self { added: new.into_iter().collect(), removed }
    }
}

/// Compares the packages of two catalogs.
pub(super) fn compare(old: (&str, &Packages), new: (&str, &Packages)) -> CatalogDiff {
    let keys = |packages: &Packages| packages.keys().cloned().collect();
    let pairs = old.1.iter().filter_map(|(name, package)| Some((package, new.1.get(name)?)));
    let changed: Vec<_> = pairs.filter_map(|(old, new)| PackageDiff::new(old, new)).collect();
    let names = Delta::of(keys(old.1), keys(new.1));
    CatalogDiff {
        old: old.0.to_owned(),
        new: new.0.to_owned(),
        empty: names.is_empty() && changed.is_empty(),
        names,
        changed_packages: changed,
    }
}

impl PackageDiff {
    /// Differences of a package that both catalogs have. `None` if there are none.
    fn new(old: &CatalogPackage, new: &CatalogPackage) -> Option<Self> {
        if old.content == new.content {
            return None;
        }
        let channels = |package: &CatalogPackage| {
            package.content.channels.iter().map(|channel| channel.name.clone()).collect::<BTreeSet<_>>()
        };
        let default_channel = (old.default_channel() != new.default_channel())
            .then(|| Change { old: old.default_channel().to_owned(), new: new.default_channel().to_owned() });
        let diff = Self {
            name: new.name.clone(),
            default_channel,
            channels: Delta::of(channels(old), channels(new)),
            bundles: Delta::of(bundles(old, new), bundles(new, old)),
            entries: Delta::of(entries(old, new), entries(new, old)),
            changed_bundles: changed_bundles(old, new),
            edges: Delta::of(edges(&old.index), edges(&new.index)),
            deprecations: Delta::of(deprecations(old), deprecations(new)),
            stranded: stranded(&old.index, &new.index),
        };
        (!diff.is_empty()).then_some(diff)
    }

    /// `true` if only texts differ that do not concern installations, such as a description.
    fn is_empty(&self) -> bool {
        let Self { name: _, default_channel, channels, bundles, entries, changed_bundles, edges, .. } = self;
        let lists = channels.is_empty() && bundles.is_empty() && entries.is_empty() && edges.is_empty();
        lists
            && default_channel.is_none()
            && changed_bundles.is_empty()
            && self.deprecations.is_empty()
            && self.stranded.is_empty()
    }
}

fn names(package: &CatalogPackage) -> BTreeSet<&str> {
    package.content.bundles.iter().map(|bundle| bundle.name.as_str()).collect()
}

/// Bundles of `package` that `other` lacks.
fn bundles(package: &CatalogPackage, other: &CatalogPackage) -> BTreeSet<BundleRef> {
    let known = names(other);
    let bundle = |offer: &Offer| BundleRef { name: offer.name().to_owned(), version: shown_version(offer) };
    package.index.offers().filter(|offer| !known.contains(offer.name())).map(bundle).collect()
}

/// Channel entries of `package` with a bundle and a channel that `other` also contains.
fn entries(package: &CatalogPackage, other: &CatalogPackage) -> BTreeSet<Entry> {
    let known = names(other);
    let shared = package.content.channels.iter().filter(|channel| other.channel(&channel.name).is_ok());
    let entries = shared.flat_map(|channel| channel.entries.iter().map(move |entry| (channel, entry)));
    entries
        .filter(|(_, entry)| known.contains(entry.name.as_str()))
        .map(|(channel, entry)| Entry { channel: channel.name.clone(), bundle: entry.name.clone() })
        .collect()
}

fn changed_bundles(old: &CatalogPackage, new: &CatalogPackage) -> Vec<ChangedBundle> {
    let known: BTreeMap<_, _> =
        new.content.bundles.iter().map(|bundle| (bundle.name.as_str(), bundle)).collect();
    let mut changed = Vec::new();
    for before in &old.content.bundles {
        let Some(after) = known.get(before.name.as_str()) else { continue };
        let mut add = |field, (old, new): (String, String)| {
            if old != new {
                changed.push(ChangedBundle { name: before.name.clone(), field, change: Change { old, new } });
            }
        };
        let version = |package: &CatalogPackage| package.version(&before.name).unwrap_or_default();
        add("version", (version(old), version(new)));
        add("image", (before.image.clone(), after.image.clone()));
        add("properties", unlike(properties(before), properties(after)));
        add("relatedImages", unlike(related_images(before), related_images(after)));
    }
    changed
}

/// Items that only one side has, each side joined as text.
fn unlike(old: BTreeSet<String>, new: BTreeSet<String>) -> (String, String) {
    let Delta { added, removed } = Delta::of(old, new);
    (removed.join(", "), added.join(", "))
}

/// Properties as text. The metadata of the ClusterServiceVersion is not of interest for installations.
fn properties(bundle: &Bundle) -> BTreeSet<String> {
    let small = bundle
        .properties
        .iter()
        .filter(|one| ![PROPERTY_CSV_METADATA, PROPERTY_BUNDLE_OBJECT].contains(&&*one.kind));
    small.map(|property| format!("{} {}", property.kind, property.value.get())).collect()
}

fn related_images(bundle: &Bundle) -> BTreeSet<String> {
    bundle.related_images.iter().map(|related| related.image.clone()).collect()
}

/// Installed bundle as the origin of upgrades. `None` if its version is invalid.
fn origin(offer: &Offer) -> Option<UpgradeOrigin<'_>> {
    Some(UpgradeOrigin { name: offer.name(), version: offer.version().ok()?.clone() })
}

/// Upgrades between the bundles of a package, for an extension that selects no channel.
fn edges(index: &PackageIndex) -> BTreeSet<Edge> {
    let mut edges = BTreeSet::new();
    for origin in index.offers().filter_map(origin) {
        let targets = index.offers().filter(|target| {
            target.name() != origin.name && target.edges_from(&origin, &[]).next().is_some()
        });
        edges.extend(targets.map(|to| Edge { from: origin.name.to_owned(), to: to.name().to_owned() }));
    }
    edges
}

fn deprecations(package: &CatalogPackage) -> BTreeSet<Deprecated> {
    let entries = package.content.deprecations.last().map_or(&[][..], |deprecation| &deprecation.entries);
    let deprecated = entries.iter().map(|entry| Deprecated {
        schema: entry.reference.schema.clone(),
        name: entry.reference.name.clone(),
        message: entry.message.trim().to_owned(),
    });
    deprecated.collect()
}

/// Bundles of `old` that `new` neither upgrades nor offers as its newest.
fn stranded(old: &PackageIndex, new: &PackageIndex) -> Vec<Stranded> {
    let mut stranded = Vec::new();
    for origin in old.offers().filter_map(origin) {
        let offered = new.offers().any(|offer| offer.version().ok() == Some(&origin.version));
        if successor(new, &origin, offered).is_some() {
            continue;
        }
        let next = successor(old, &origin, true).map(|offer| offer.name().to_owned());
        if next.is_some() || !offered {
            let version = origin.version.shown(false).0;
            stranded.push(Stranded { bundle: origin.name.to_owned(), version, offered, next });
        }
    }
    stranded
}

/// Best bundle that the resolver may choose as upgrade. While the installed version is `offered`, it is a higher one.
fn successor<'a>(index: &'a PackageIndex, origin: &UpgradeOrigin<'_>, offered: bool) -> Option<&'a Offer> {
    let may_follow = |offer: &&Offer| {
        offer.version().is_ok_and(|version| !offered || *version > origin.version)
            && offer.edges_from(origin, &[]).next().is_some()
    };
    index.offers().find(may_follow)
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
