//! One package of one catalog, prepared for resolving (spec 03 §§2.2–2.5).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use olm_fbc::{
    Bundle, Channel, Deprecation, PackageContent, Property, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_PACKAGE,
};
use olm_version::{Constraint, Range, VersionRelease, quote};
use serde_json::{Map, Value};

use crate::deprecation::Deprecations;
use crate::resolver::Origin;

/// Property that identifies a bundle's package and version.
const PROPERTY_PACKAGE: &str = "olm.package";

/// Properties that declare a dependency, none of which can be satisfied (spec 03 §6.3).
const DEPENDENCY_PROPERTIES: [&str; 3] = ["olm.package.required", "olm.gvk.required", "olm.constraint"];

/// The bundles of a package, best first, with the edges that lead to them, and what is deprecated.
///
/// Keeps only what a choice depends on, so that it may stay in memory for every package of a catalog.
#[derive(Debug, Clone, Default)]
pub struct PackageIndex {
    offers: Vec<Offer>,
    deprecations: Deprecations,
}

/// A bundle that a catalog offers.
#[derive(Debug, Clone)]
pub struct Offer {
    name: String,
    image: String,
    version: Result<VersionRelease, String>,
    deprecated: bool,
    dependency: Option<String>,
    entries: Vec<Entry>,
}

/// Leads from an installed bundle to one that may follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge<'a> {
    /// The channel whose entry makes the edge.
    pub channel: &'a str,
    /// The field of the entry that makes it.
    pub rule: EdgeRule,
}

/// The field of a channel entry that makes an edge. Where several do, the first of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EdgeRule {
    /// `replaces` is the installed bundle's name.
    Replaces,
    /// `skips` holds the installed bundle's name.
    Skips,
    /// `skipRange` contains the installed version.
    SkipRange,
}

/// A bundle's place in one channel and what it may follow there.
#[derive(Debug, Clone)]
struct Entry {
    channel: Arc<str>,
    replaces: String,
    skips: Vec<String>,
    /// `None` if absent or invalid: both are no edge.
    skip_range: Option<Range>,
}

impl PackageIndex {
    /// Prepares the content of a package.
    ///
    /// `release_support` (gate `BundleReleaseSupport`) says whether the `release` of an `olm.package`
    /// property counts. Faulty versions and skip ranges are kept as such: they are no error until chosen.
    pub fn new(content: &PackageContent, release_support: bool) -> Self {
        let deprecations = content.deprecations.last().map(deprecations).unwrap_or_default();
        let mut entries = entries(&content.channels);
        let mut offers: Vec<_> = content
            .bundles
            .iter()
            .map(|bundle| Offer {
                name: bundle.name.clone(),
                image: bundle.image.clone(),
                version: version(bundle, release_support),
                deprecated: deprecations.names_bundle(&bundle.name),
                dependency: dependency(&bundle.properties),
                entries: entries.remove(bundle.name.as_str()).unwrap_or_default(),
            })
            .collect();
        offers.sort_by(Offer::preference);
        Self { offers, deprecations }
    }

    /// The bundles in the order in which they are preferred.
    pub fn offers(&self) -> impl Iterator<Item = &Offer> {
        self.offers.iter()
    }

    /// What the catalog deprecates of this package.
    pub fn deprecations(&self) -> &Deprecations {
        &self.deprecations
    }
}

impl Offer {
    /// The bundle's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The reference of the bundle's image.
    pub fn image(&self) -> &str {
        &self.image
    }

    /// Version and release, or why they cannot be read.
    ///
    /// # Errors
    /// The text of the fault; it is part of the API (spec 03 §3.3).
    pub fn version(&self) -> Result<&VersionRelease, &str> {
        self.version.as_ref().map_err(String::as_str)
    }

    /// True if the catalog deprecates this bundle.
    pub fn deprecated(&self) -> bool {
        self.deprecated
    }

    /// The type of the first property that declares a dependency.
    pub fn dependency(&self) -> Option<&str> {
        self.dependency.as_deref()
    }

    /// Best first: not deprecated, higher version and release, unreadable versions last; equals by name and
    /// image, so that the order does not depend on how the catalog was read.
    fn preference(&self, other: &Self) -> Ordering {
        self.deprecated
            .cmp(&other.deprecated)
            .then_with(|| other.version.as_ref().ok().cmp(&self.version.as_ref().ok()))
            .then_with(|| other.name.cmp(&self.name))
            .then_with(|| other.image.cmp(&self.image))
    }

    /// Whether the bundle passes all filters of a request: `channels` unless empty, the constraint, and the
    /// edge from `origin`.
    pub(crate) fn is_admitted(
        &self,
        channels: &[String],
        constraint: Option<&Constraint>,
        origin: Option<&Origin<'_>>,
    ) -> bool {
        let version = self.version.as_ref().ok();
        (channels.is_empty() || self.entries_in(channels).next().is_some())
            && constraint.is_none_or(|c| version.is_some_and(|version| c.matches(version.version())))
            && origin.is_none_or(|origin| {
                version == Some(&origin.version) || self.edges_from(origin, channels).next().is_some()
            })
    }

    /// The edges by which this bundle may follow `origin` (spec 03 §2.3), one for each of the `channels` that has
    /// one; no channels means all.
    pub fn edges_from<'a>(
        &'a self,
        origin: &'a Origin<'_>,
        channels: &'a [String],
    ) -> impl Iterator<Item = Edge<'a>> {
        let edge = |entry: &'a Entry| Some(Edge { channel: &entry.channel, rule: entry.rule(origin)? });
        self.entries_in(channels).filter_map(edge)
    }

    fn entries_in<'a>(&'a self, channels: &'a [String]) -> impl Iterator<Item = &'a Entry> {
        self.entries
            .iter()
            .filter(|entry| channels.is_empty() || channels.iter().any(|channel| **channel == *entry.channel))
    }
}

impl Entry {
    /// The first rule by which the entry's bundle may follow `origin`.
    fn rule(&self, origin: &Origin<'_>) -> Option<EdgeRule> {
        if self.replaces == origin.name {
            Some(EdgeRule::Replaces)
        } else if self.skips.iter().any(|name| name == origin.name) {
            Some(EdgeRule::Skips)
        } else {
            let range = self.skip_range.as_ref()?;
            range.contains(origin.version.version()).then_some(EdgeRule::SkipRange)
        }
    }
}

/// The entries of all channels by the name of their bundle.
fn entries(channels: &[Channel]) -> BTreeMap<&str, Vec<Entry>> {
    let mut entries: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for channel in channels {
        let name: Arc<str> = channel.name.as_str().into();
        for entry in &channel.entries {
            entries.entry(entry.name.as_str()).or_default().push(Entry {
                channel: Arc::clone(&name),
                replaces: entry.replaces.clone(),
                skips: entry.skips.clone(),
                skip_range: Range::parse(&entry.skip_range).ok(),
            });
        }
    }
    entries
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

fn dependency(properties: &[Property]) -> Option<String> {
    let mut kinds = properties.iter().map(|property| &property.kind);
    kinds.find(|kind| DEPENDENCY_PROPERTIES.contains(&kind.as_str())).cloned()
}

/// Version and release by the first `olm.package` property; further ones do not count.
fn version(bundle: &Bundle, release_support: bool) -> Result<VersionRelease, String> {
    let property = bundle
        .properties
        .iter()
        .find(|property| property.kind == PROPERTY_PACKAGE)
        .ok_or_else(|| format!("no package property found in bundle {}", quote(&bundle.name)))?;
    let (version, release) =
        version_fields(property).map_err(|fault| format!("error unmarshalling package property: {fault}"))?;
    let release = release.filter(|_| release_support);
    VersionRelease::parse(&version, release.as_deref()).map_err(|fault| fault.to_string())
}

/// `version` and `release` of an `olm.package` property; a missing version reads as empty.
fn version_fields(property: &Property) -> Result<(String, Option<String>), String> {
    let fields: Option<Map<String, Value>> = match property.parse().map_err(|fault| fault.to_string())? {
        Value::Object(fields) => Some(fields),
        Value::Null => None,
        other => return Err(wrong_type(&other, "value of type property.Package")),
    };
    let fields = fields.unwrap_or_default();
    text_field(&fields, "packageName")?;
    let version = text_field(&fields, "version")?.unwrap_or_default();
    Ok((version, text_field(&fields, "release")?))
}

/// A text field, whatever the case of its name; `null` is absent.
fn text_field(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    let any_case = || fields.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    match fields.get(name).or_else(any_case) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(wrong_type(other, &format!("struct field Package.{name} of type string"))),
    }
}

/// The wording of Go's JSON decoder, which reaches users.
fn wrong_type(value: &Value, target: &str) -> String {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    format!("json: cannot unmarshal {kind} into Go {target}")
}
