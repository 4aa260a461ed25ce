//! Smaller catalog: some packages, channels and versions of a catalog, with valid upgrade graphs
//! (docs/design/cli.md#smaller-catalogs).

mod channel;
mod edit;

use std::collections::{BTreeMap, BTreeSet};

use olm_version::{Range, Version, excerpt, quote};
use serde::Deserialize;

use crate::{
    Bundle, Channel, Meta, ModelError, PackageContent, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_DEPRECATIONS,
    SCHEMA_PACKAGE,
};

/// Part of a catalog to keep. The default keeps everything.
#[derive(Debug, Clone, Default)]
pub struct Subset {
    /// Packages to keep, by name. Empty for all.
    pub packages: BTreeMap<String, PackageSubset>,
    /// New default channels, by package.
    pub default_channels: BTreeMap<String, String>,
}

/// Part of a package to keep. The default keeps everything.
#[derive(Debug, Clone, Default)]
pub struct PackageSubset {
    /// Ranges of versions with their texts, of which one must contain a version. Empty for all versions.
    pub ranges: Vec<(String, Range)>,
    /// Names of channels. Empty for all.
    pub channels: BTreeSet<String>,
    /// `true` to keep only the head of each channel.
    pub heads: bool,
}

/// Smaller catalog, and how it differs from the original.
#[derive(Debug)]
pub struct SmallerCatalog {
    /// Objects of the catalog. Those that did not change are in their original form.
    pub metas: Vec<Meta>,
    /// Kept packages.
    pub packages: Vec<KeptPackage>,
    /// Names of the dropped packages.
    pub dropped: Vec<String>,
}

/// Package of a smaller catalog.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct KeptPackage {
    /// Name of the package.
    pub name: String,
    /// Names of the kept channels.
    pub channels: Vec<String>,
    /// Names of the kept bundles.
    pub bundles: Vec<String>,
    /// Bundles that are in no range, but connect others that are.
    pub connecting: Vec<String>,
    /// Names of the dropped channels.
    pub dropped_channels: Vec<String>,
    /// Names of the dropped bundles.
    pub dropped_bundles: Vec<String>,
}

/// Reason why there is no such smaller catalog.
#[derive(Debug, thiserror::Error)]
pub enum SubsetError {
    /// The catalog does not have the package.
    #[error("no package {}", quote(.0))]
    NoPackage(String),
    /// A selected channel or version does not exist.
    #[error("package {}: {why}", quote(package))]
    Nothing {
        /// Name of the package.
        package: String,
        /// The missing part, and those that exist.
        why: String,
    },
    /// The default channel would be missing.
    #[error("package {}: the default channel {} is dropped; choose one of the remaining: {}", quote(package), quote(channel), remaining.join(", "))]
    DefaultChannel {
        /// Name of the package.
        package: String,
        /// The missing channel.
        channel: String,
        /// Kept channels.
        remaining: Vec<String>,
    },
    /// The upgrade graph of a channel would not be valid.
    #[error("package {}, channel {}: {why}", quote(package), quote(channel))]
    Graph {
        /// Name of the package.
        package: String,
        /// Name of the channel.
        channel: String,
        /// The fault, and a selection without it.
        why: String,
    },
    /// An object that does not have the shape of its schema.
    #[error("package {}: {}", quote(package), excerpt(why))]
    Object {
        /// Name of the package.
        package: String,
        /// The fault.
        why: String,
    },
}

/// Reduces a catalog. Objects of other schemas stay with their package, objects without package stay, too.
///
/// # Errors
/// A selected part does not exist, or the rest would not be a valid catalog.
pub fn subset(metas: Vec<Meta>, selection: &Subset) -> Result<SmallerCatalog, SubsetError> {
    let mut packages: BTreeMap<String, Vec<Meta>> = BTreeMap::new();
    for meta in metas {
        packages.entry(meta.owner().to_owned()).or_default().push(meta);
    }
    let mut smaller = SmallerCatalog { metas: Vec::new(), packages: Vec::new(), dropped: Vec::new() };
    let is_kept = |name: &str| selection.packages.is_empty() || selection.packages.contains_key(name);
    let named = selection.packages.keys().chain(selection.default_channels.keys());
    if let Some(name) =
        named.into_iter().find(|name| name.is_empty() || !packages.contains_key(*name) || !is_kept(name))
    {
        return Err(SubsetError::NoPackage(name.clone()));
    }
    for (name, metas) in packages {
        if name.is_empty() {
            smaller.metas.extend(metas);
        } else if is_kept(&name) {
            let package = selection.packages.get(&name).cloned().unwrap_or_default();
            let default = selection.default_channels.get(&name).map(String::as_str);
            let (kept, metas) = reduce(&name, metas, &package, default)?;
            smaller.packages.push(kept);
            smaller.metas.extend(metas);
        } else {
            smaller.dropped.push(name);
        }
    }
    Ok(smaller)
}

/// Reduces a package.
fn reduce(
    name: &str,
    metas: Vec<Meta>,
    selection: &PackageSubset,
    default: Option<&str>,
) -> Result<(KeptPackage, Vec<Meta>), SubsetError> {
    let content = PackageContent::from_metas(name, metas.iter().map(|meta| meta.blob.as_slice()));
    let object = |why: String| SubsetError::Object { package: name.to_owned(), why };
    let content = content.map_err(|error: ModelError| object(error.to_string()))?;
    let is_whole = !selection.heads && selection.ranges.is_empty() && selection.channels.is_empty();
    let mut kept = KeptPackage { name: name.to_owned(), ..KeptPackage::default() };
    let entries = reduce_channels(&content, selection, &mut kept)?;
    let current = content.packages.first().map(|package| package.default_channel.as_str());
    let channel = default.or(current).unwrap_or_default();
    // A default channel that the package never had is for the validation to refuse.
    let is_lost = default.is_some() || content.channels.iter().any(|known| known.name == channel);
    if !channel.is_empty() && is_lost && !entries.contains_key(channel) {
        return Err(SubsetError::DefaultChannel {
            package: name.to_owned(),
            channel: channel.to_owned(),
            remaining: kept.channels,
        });
    }
    let bundles: BTreeSet<&str> = entries.values().flatten().copied().collect();
    for bundle in &content.bundles {
        let is_kept = is_whole || bundles.contains(bundle.name.as_str());
        let list = if is_kept { &mut kept.bundles } else { &mut kept.dropped_bundles };
        list.push(bundle.name.clone());
    }
    let edits =
        edit::Edits { entries, bundles, default_channel: default.filter(|new| Some(*new) != current) };
    let is_same = is_whole && edits.default_channel.is_none();
    let metas = if is_same { metas } else { edited(metas, &edits, is_whole).map_err(object)? };
    Ok((kept, metas))
}

/// Entries of the channels of a package that are kept, which it adds to `kept` with the dropped ones.
fn reduce_channels<'a>(
    content: &'a PackageContent,
    selection: &PackageSubset,
    kept: &mut KeptPackage,
) -> Result<BTreeMap<&'a str, BTreeSet<&'a str>>, SubsetError> {
    let versions: BTreeMap<&str, Version> =
        content.bundles.iter().filter_map(|bundle| Some((bundle.name.as_str(), version(bundle)?))).collect();
    check_selection(content, selection, &versions, &kept.name)?;
    let is_in_range = |name: &str| {
        let contains =
            |version| selection.ranges.iter().any(|(_, range): &(String, Range)| range.contains(version));
        selection.ranges.is_empty() || versions.get(name).is_some_and(contains)
    };
    let mut entries = BTreeMap::new();
    let mut connecting = BTreeSet::new();
    for channel in &content.channels {
        let names = channel.entries.iter().map(|entry| entry.name.as_str());
        let chosen: BTreeSet<&str> = names.filter(|name| is_in_range(name)).collect();
        // A channel that is empty from the start is for the validation to refuse.
        if !is_selected(selection, channel) || chosen.is_empty() && !channel.entries.is_empty() {
            kept.dropped_channels.push(channel.name.clone());
            continue;
        }
        let rest = channel::rest(&channel.entries, &chosen, &versions, selection.heads);
        let rest = rest.map_err(|why| SubsetError::Graph {
            package: kept.name.clone(),
            channel: channel.name.clone(),
            why,
        })?;
        connecting.extend(rest.difference(&chosen).copied());
        kept.channels.push(channel.name.clone());
        entries.insert(channel.name.as_str(), rest);
    }
    kept.connecting = connecting.into_iter().map(str::to_owned).collect();
    Ok(entries)
}

fn is_selected(selection: &PackageSubset, channel: &Channel) -> bool {
    selection.channels.is_empty() || selection.channels.contains(&channel.name)
}

/// Fails unless each selected channel exists, and each range has a version in a selected channel.
fn check_selection(
    content: &PackageContent,
    selection: &PackageSubset,
    versions: &BTreeMap<&str, Version>,
    package: &str,
) -> Result<(), SubsetError> {
    let nothing = |why: String| Err(SubsetError::Nothing { package: package.to_owned(), why });
    let names: Vec<&str> = content.channels.iter().map(|channel| channel.name.as_str()).collect();
    if let Some(absent) = selection.channels.iter().find(|name| !names.contains(&name.as_str())) {
        return nothing(format!("no channel {}; its channels: {}", quote(absent), names.join(", ")));
    }
    let selected = content.channels.iter().filter(|channel| is_selected(selection, channel));
    let entries = selected.flat_map(|channel| &channel.entries);
    let mut known: Vec<&Version> = entries.filter_map(|entry| versions.get(entry.name.as_str())).collect();
    known.sort();
    let is_unused = |(_, range): &&(String, Range)| !known.iter().any(|version| range.contains(version));
    let Some((text, _)) = selection.ranges.iter().find(is_unused) else { return Ok(()) };
    let known = match known.as_slice() {
        [] => "none".to_owned(),
        [first, .., last] if first != last => format!("{first} to {last}"),
        [only, ..] => only.to_string(),
    };
    nothing(format!("no selected channel has a version in {text}; their versions: {known}"))
}

/// Objects of the package after the edits.
fn edited(metas: Vec<Meta>, edits: &edit::Edits<'_>, is_whole: bool) -> Result<Vec<Meta>, String> {
    let mut kept = Vec::new();
    for meta in metas {
        kept.extend(match meta.schema.as_str() {
            SCHEMA_PACKAGE => Some(edits.package(meta)?),
            _ if is_whole => Some(meta),
            SCHEMA_CHANNEL => edits.channel(meta)?,
            SCHEMA_BUNDLE => Some(meta).filter(|meta| edits.bundles.contains(meta.name.as_str())),
            SCHEMA_DEPRECATIONS => edits.deprecations(meta)?,
            _ => Some(meta),
        });
    }
    Ok(kept)
}

/// Version of a bundle. `None` if missing or invalid.
fn version(bundle: &Bundle) -> Option<Version> {
    #[derive(Deserialize)]
    struct Value {
        version: String,
    }
    let property = bundle.properties.iter().find(|property| property.kind == SCHEMA_PACKAGE)?;
    Version::parse(&property.parse::<Value>().ok()?.version).ok()
}
