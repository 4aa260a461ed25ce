//! Checks of the model, with all faults as a tree (docs/design/catalogd.md#validation, phase 2).

use std::collections::{BTreeMap, BTreeSet};

use olm_version::{Range, RangeError, Release, Version, quote};

use super::convert::{BundleState, Model, ModelChannel, ModelEntry, ModelPackage, Notice};
use super::graph;
use super::tree::Node;

/// Faults of all packages.
pub(super) fn check(model: &Model) -> Node {
    let mut index = Node::scope("invalid index".to_owned());
    for (name, package) in model {
        index.adopt(check_package(name, package));
    }
    index
}

fn check_package(name: &str, package: &ModelPackage) -> Node {
    let mut found = Node::scope(format!("invalid package {}", quote(name)));
    if package.default_channel.is_empty() {
        found.message("default channel must be set", &package.origin);
    }
    if package.channels.is_empty() {
        found.message("package must contain at least one channel", &package.origin);
    }
    for (channel_name, channel) in &package.channels {
        found.adopt(check_channel(name, channel_name, channel));
    }
    if let Some(duplicates) = duplicate_versions(package) {
        found.message(duplicates, &package.origin);
    }
    check_notice(package.deprecation.as_ref(), &mut found);
    found
}

fn check_channel(package: &str, name: &str, channel: &ModelChannel) -> Node {
    let mut found = Node::scope(format!("invalid channel {}", quote(name)));
    if channel.entries.is_empty() {
        found.message("channel must contain at least one bundle", &channel.origin);
    } else {
        let edges = channel.entries.iter().map(|(name, entry)| (name.as_str(), &entry.edges));
        if let Some(problem) = graph::problem(&edges.collect()) {
            found.message(problem, &channel.origin);
        }
    }
    for (entry_name, entry) in &channel.entries {
        found.adopt(check_entry(package, entry_name, entry, channel));
    }
    check_notice(channel.deprecation.as_ref(), &mut found);
    found
}

fn check_entry(package: &str, name: &str, entry: &ModelEntry, channel: &ModelChannel) -> Node {
    let mut found = Node::scope(format!("invalid bundle {}", quote(name)));
    if name.is_empty() {
        found.message("name must be set", &channel.origin);
    }
    if let BundleState::Found { version, release, .. } = &entry.bundle
        && !release.as_str().is_empty()
    {
        let expected = format!("{package}-v{}", version_text(version, release));
        if name != expected {
            let message = format!("name {} does not match normalized name {}", quote(name), quote(&expected));
            found.message(message, &entry.origin);
        }
    }
    for (index, _) in entry.edges.skips.iter().enumerate().filter(|(_, skip)| skip.is_empty()) {
        found.message(format!("skip[{index}] is empty"), &channel.origin);
    }
    if let Some(problem) = range_problem(&entry.edges.skip_range) {
        let range = quote(&entry.edges.skip_range);
        found.message(format!("invalid skipRange {range}: {problem}"), &channel.origin);
    }
    let (has_property, has_content) = match &entry.bundle {
        BundleState::Missing => (false, false),
        BundleState::Reported => (true, true),
        BundleState::Found { has_content, .. } => (true, *has_content),
    };
    if !has_property {
        found.message("must be exactly one property with type \"olm.package\"", &entry.origin);
    }
    if !has_content {
        found.message("bundle image must be set", &entry.origin);
    }
    check_notice(entry.deprecation.as_ref(), &mut found);
    if let BundleState::Found { version, release, .. } = &entry.bundle
        && !version.build().is_empty()
        && !release.as_str().is_empty()
    {
        found.message("cannot use build metadata in version with a release version", &entry.origin);
    }
    found
}

/// Fault of a range. Upstream accepts an empty group between two `||`.
fn range_problem(range: &str) -> Option<RangeError> {
    if range.is_empty() {
        return None;
    }
    Range::parse(range).err().filter(|problem| !matches!(problem, RangeError::EmptyGroup))
}

fn check_notice(notice: Option<&Notice>, found: &mut Node) {
    if let Some(Notice { message, origin }) = notice
        && message.is_empty()
    {
        found.message("invalid deprecation: message must be set", origin);
    }
}

fn version_text(version: &Version, release: &Release) -> String {
    if release.as_str().is_empty() { version.to_string() } else { format!("{version}-{release}") }
}

/// Versions shared by bundles with different names. An entry without bundle has version `0.0.0`, as upstream.
fn duplicate_versions(package: &ModelPackage) -> Option<String> {
    let mut names: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for (name, entry) in package.channels.values().flat_map(|channel| &channel.entries) {
        let version = match &entry.bundle {
            BundleState::Missing => "0.0.0".to_owned(),
            BundleState::Reported => continue,
            BundleState::Found { version, release, .. } => version_text(version, release),
        };
        names.entry(version).or_default().insert(name);
    }
    let shared = names.iter().filter(|(_, names)| names.len() > 1).map(|(version, names)| {
        let names: Vec<&str> = names.iter().copied().collect();
        format!("{{{version}: [{}]}}", names.join(", "))
    });
    let shared: Vec<String> = shared.collect();
    (!shared.is_empty()).then(|| format!("duplicate versions found in bundles: [{}]", shared.join(" ")))
}
