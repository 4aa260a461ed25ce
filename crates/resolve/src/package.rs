//! Index of one package of one catalog (docs/design/resolution.md#algorithm,
//! docs/design/resolution.md#choice-of-a-bundle).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use olm_fbc::{
    Bundle, Channel, Deprecation, PROPERTY_BUNDLE_OBJECT, PROPERTY_CSV_METADATA, PackageContent, Property,
    SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_PACKAGE,
};
use olm_version::{Range, VersionRelease};
use serde::Serialize;

use crate::cluster::ClusterDemands;
use crate::constraint::{DEPENDENCY_PROPERTIES, Requirement};
use crate::deprecation::Deprecations;
use crate::identity;
use crate::request::UpgradeOrigin;

/// Properties that limit the platform version. They are kept without [`Indexing::properties`], too.
const PLATFORM_PROPERTIES: [&str; 2] =
    ["olm.maxOpenShiftVersion", "ext.olm.operatorframework.io/maxKubernetesVersion"];

/// Options for building a package index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Indexing {
    /// `true` to read the `release` of an `olm.package` property (feature gate `BundleReleaseSupport`).
    pub release_support: bool,
    /// `true` to keep the properties for the evaluation of dependencies and cluster demands. Without them, the index
    /// of every package of a catalog fits in memory.
    pub properties: bool,
}

/// Bundles of a package, best first, with their upgrade edges and deprecations.
#[derive(Debug, Clone, Default)]
pub struct PackageIndex {
    offers: Vec<Arc<Offer>>,
    default_channel: String,
    deprecations: Deprecations,
}

/// Bundle that a catalog offers.
#[derive(Debug, Clone)]
pub struct Offer {
    name: Arc<str>,
    image: String,
    version: Result<VersionRelease, String>,
    deprecated: bool,
    dependencies: Vec<&'static str>,
    entries: Vec<Entry>,
    skipped_in: Vec<Arc<str>>,
    platform_limits: Box<[Property]>,
    /// `None` unless properties are kept.
    details: Option<Box<Details>>,
}

/// Data for rules beyond the reference only.
#[derive(Debug, Clone)]
struct Details {
    properties: Vec<Property>,
    requirements: Vec<Requirement>,
    demands: ClusterDemands,
}

/// Upgrade edge from an installed bundle to a possible successor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Edge<'a> {
    /// Channel whose entry makes the edge.
    pub channel: &'a str,
    /// Field of the entry that makes it.
    pub rule: EdgeRule,
}

/// Field of a channel entry that makes an edge. Of several, the first in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum EdgeRule {
    /// `replaces` is the installed bundle's name.
    Replaces,
    /// `skips` holds the installed bundle's name.
    Skips,
    /// `skipRange` contains the installed version.
    SkipRange,
}

impl EdgeRule {
    /// Name of the field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Replaces => "replaces",
            Self::Skips => "skips",
            Self::SkipRange => "skipRange",
        }
    }
}

/// Entry of a bundle in one channel, with its predecessors there.
#[derive(Debug, Clone)]
struct Entry {
    channel: Arc<str>,
    replaces: Arc<str>,
    skips: Vec<Arc<str>>,
    /// `None` if absent or invalid. Both make no edge.
    skip_range: Option<Range>,
}

impl std::fmt::Display for EdgeRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PackageIndex {
    /// Builds the index from the content of a package.
    ///
    /// Invalid versions and skip ranges are kept: they are errors only if chosen. Without an `olm.package` object
    /// there is no default channel.
    pub fn new(content: &PackageContent, indexing: Indexing) -> Self {
        let deprecations = content.deprecations.last().map(deprecations).unwrap_or_default();
        let deprecated: BTreeSet<&str> = deprecations.bundles.iter().map(|(name, _)| name.as_str()).collect();
        let mut graph = Graph::default();
        content.channels.iter().for_each(|channel| graph.add(channel));
        let mut offers: Vec<_> = content
            .bundles
            .iter()
            .map(|bundle| {
                let name = graph.intern(&bundle.name);
                Arc::new(Offer {
                    image: bundle.image.clone(),
                    version: identity::version(bundle, indexing.release_support),
                    deprecated: deprecated.contains(bundle.name.as_str()),
                    dependencies: dependencies(&bundle.properties),
                    entries: graph.entries.remove(&name).unwrap_or_default(),
                    skipped_in: graph.skipped.remove(&name).into_iter().flatten().collect(),
                    platform_limits: platform_limits(&bundle.properties),
                    details: indexing.properties.then(|| Box::new(Details::of(bundle))),
                    name,
                })
            })
            .collect();
        offers.sort_by(|a, b| a.preference(b));
        let package = content.packages.last();
        let default_channel = package.map(|package| package.default_channel.clone()).unwrap_or_default();
        Self { offers, default_channel, deprecations }
    }

    /// Bundles in the order of preference.
    pub fn offers(&self) -> impl Iterator<Item = &Offer> {
        self.offers.iter().map(|offer| &**offer)
    }

    /// Like [`PackageIndex::offers`], with shared ownership.
    pub(crate) fn shared_offers(&self) -> impl Iterator<Item = &Arc<Offer>> {
        self.offers.iter()
    }

    pub(crate) fn offer(&self, name: &str) -> Option<&Offer> {
        self.offers().find(|offer| *offer.name == *name)
    }

    /// Channels of the bundle in which the `skipRange` of a newer bundle contains its version
    /// (docs/design/additions.md#skipped-versions).
    pub(crate) fn passed_over_in<'a>(&'a self, offer: &'a Offer) -> impl Iterator<Item = &'a str> {
        let version = offer.version().ok();
        let is_passed_over = move |channel: &&str| {
            version.is_some_and(|version| self.offers().any(|newer| newer.passes_over(version, channel)))
        };
        offer.channels().filter(is_passed_over)
    }

    /// Default channel. Empty if the package has none.
    pub fn default_channel(&self) -> &str {
        &self.default_channel
    }

    /// Deprecations of this package in the catalog.
    pub fn deprecations(&self) -> &Deprecations {
        &self.deprecations
    }
}

impl Offer {
    /// Name of the bundle.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Image reference of the bundle.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// Version and release.
    ///
    /// # Errors
    /// Text of the parse error, which is part of the API (docs/design/resolution.md#releases).
    pub fn version(&self) -> Result<&VersionRelease, &str> {
        self.version.as_ref().map_err(String::as_str)
    }

    /// `true` if the catalog deprecates this bundle.
    pub fn deprecated(&self) -> bool {
        self.deprecated
    }

    /// Type of the first property that declares a dependency.
    pub fn dependency(&self) -> Option<&str> {
        self.dependencies.first().copied()
    }

    /// Distinct types of properties that declare a dependency, in the order of the catalog.
    pub(crate) fn dependencies(&self) -> impl Iterator<Item = &'static str> {
        self.dependencies.iter().copied()
    }

    /// Properties of the bundle without the objects of its content and their metadata. Empty unless properties are
    /// kept.
    pub fn properties(&self) -> &[Property] {
        self.details.as_deref().map_or(&[], |details| &details.properties)
    }

    /// Requirements of the bundle, in the order of its properties. Empty unless properties are kept.
    pub fn requirements(&self) -> &[Requirement] {
        self.details.as_deref().map_or(&[], |details| &details.requirements)
    }

    /// Type and raw value of the properties that limit the version of the platform.
    pub fn platform_limits(&self) -> impl Iterator<Item = (&str, &str)> {
        self.platform_limits.iter().map(|limit| (limit.kind.as_str(), limit.value.get()))
    }

    pub(crate) fn demands(&self) -> Option<&ClusterDemands> {
        self.details.as_deref().map(|details| &details.demands)
    }

    /// Channels that contain the bundle.
    pub fn channels(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| &*entry.channel)
    }

    /// Channels in which the entry of another bundle skips this one, sorted.
    pub fn skipped_in(&self) -> impl Iterator<Item = &str> {
        self.skipped_in.iter().map(|channel| &**channel)
    }

    /// `true` if the bundle is newer, and the `skipRange` of its entry in this channel contains the version.
    fn passes_over(&self, version: &VersionRelease, channel: &str) -> bool {
        let covers = |entry: &Entry| {
            let range = entry.skip_range.as_ref().filter(|_| *entry.channel == *channel);
            range.is_some_and(|range| range.contains(version.version()))
        };
        self.version().is_ok_and(|own| own > version) && self.entries.iter().any(covers)
    }

    /// Best first: not deprecated, higher version and release, unreadable versions last. Ties are sorted by name and
    /// image, so that the order does not depend on the order in the catalog.
    pub(crate) fn preference(&self, other: &Self) -> Ordering {
        self.deprecated
            .cmp(&other.deprecated)
            .then_with(|| other.version.as_ref().ok().cmp(&self.version.as_ref().ok()))
            .then_with(|| other.name.cmp(&self.name))
            .then_with(|| other.image.cmp(&self.image))
    }

    /// Upgrade edges from `origin` to this bundle (docs/design/resolution.md#successors), at most one for each of the
    /// `channels`. No channels means all.
    pub fn edges_from<'a>(
        &'a self,
        origin: &'a UpgradeOrigin<'_>,
        channels: &'a [String],
    ) -> impl Iterator<Item = Edge<'a>> {
        let edge = |entry: &'a Entry| Some(Edge { channel: &entry.channel, rule: entry.rule(origin)? });
        self.entries.iter().filter(|entry| considered(&entry.channel, channels)).filter_map(edge)
    }
}

/// `true` if a request that names `channels` considers this channel. Without named channels, all are considered.
pub(crate) fn considered(channel: &str, channels: &[String]) -> bool {
    channels.is_empty() || channels.iter().any(|named| named == channel)
}

impl Entry {
    /// First rule that makes the entry's bundle a successor of `origin`.
    fn rule(&self, origin: &UpgradeOrigin<'_>) -> Option<EdgeRule> {
        if *self.replaces == *origin.name {
            Some(EdgeRule::Replaces)
        } else if self.skips.iter().any(|name| **name == *origin.name) {
            Some(EdgeRule::Skips)
        } else {
            let range = self.skip_range.as_ref()?;
            range.contains(origin.version.version()).then_some(EdgeRule::SkipRange)
        }
    }
}

impl Details {
    fn of(bundle: &Bundle) -> Self {
        let small = |property: &&Property| {
            ![PROPERTY_BUNDLE_OBJECT, PROPERTY_CSV_METADATA].contains(&&*property.kind)
        };
        Self {
            properties: bundle.properties.iter().filter(small).cloned().collect(),
            requirements: Requirement::all(&bundle.properties),
            demands: ClusterDemands::of(&bundle.properties),
        }
    }
}

/// Channel entries by bundle name. Names are interned, because they recur in many entries.
#[derive(Default)]
struct Graph {
    names: BTreeSet<Arc<str>>,
    entries: BTreeMap<Arc<str>, Vec<Entry>>,
    /// Channels in which another bundle's entry skips a bundle.
    skipped: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
}

impl Graph {
    fn intern(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        let new: Arc<str> = name.into();
        self.names.insert(Arc::clone(&new));
        new
    }

    fn add(&mut self, channel: &Channel) {
        let channel_name = self.intern(&channel.name);
        for entry in &channel.entries {
            let name = self.intern(&entry.name);
            let skips: Vec<_> = entry.skips.iter().map(|skipped| self.intern(skipped)).collect();
            for skipped in skips.iter().filter(|skipped| **skipped != name) {
                self.skipped.entry(Arc::clone(skipped)).or_default().insert(Arc::clone(&channel_name));
            }
            let entry = Entry {
                channel: Arc::clone(&channel_name),
                replaces: self.intern(&entry.replaces),
                skips,
                skip_range: Range::parse(&entry.skip_range).ok(),
            };
            self.entries.entry(name).or_default().push(entry);
        }
    }
}

fn deprecations(blob: &Deprecation) -> Deprecations {
    let mut sorted = Deprecations::default();
    for entry in &blob.entries {
        let named = || (entry.reference.name.clone(), entry.message.clone());
        match entry.reference.schema.as_str() {
            SCHEMA_PACKAGE => sorted.package.push(entry.message.clone()),
            SCHEMA_CHANNEL => sorted.channels.push(named()),
            SCHEMA_BUNDLE => sorted.bundles.push(named()),
            _ => {}
        }
    }
    sorted
}

fn platform_limits(properties: &[Property]) -> Box<[Property]> {
    let is_limit = |property: &&Property| PLATFORM_PROPERTIES.contains(&property.kind.as_str());
    properties.iter().filter(is_limit).cloned().collect()
}

fn dependencies(properties: &[Property]) -> Vec<&'static str> {
    let mut found = Vec::new();
    for property in properties {
        let kind = DEPENDENCY_PROPERTIES.into_iter().find(|kind| *kind == property.kind);
        found.extend(kind.filter(|kind| !found.contains(kind)));
    }
    found
}
