//! Conversion of catalog objects to the model of their packages (docs/design/catalogd.md#validation, phase 1).
//!
//! Upstream stops at its first error. This conversion continues with the rest, and omits mere consequences of
//! reported errors.

use std::collections::{BTreeMap, BTreeSet};

use olm_version::{Release, Version, quote};

use super::documents::{Bundle, Documents, Located};
use super::names::label_problems;
use crate::{
    Channel, ChannelEntry, Deprecation, DeprecationReference, Origin, Package, SCHEMA_BUNDLE, SCHEMA_CHANNEL,
    SCHEMA_PACKAGE,
};

/// Packages of a catalog by name.
pub(super) type Model = BTreeMap<String, ModelPackage>;

#[derive(Debug)]
pub(super) struct ModelPackage {
    pub(super) origin: Origin,
    /// Empty for none.
    pub(super) default_channel: String,
    pub(super) channels: BTreeMap<String, ModelChannel>,
    pub(super) deprecation: Option<Notice>,
}

#[derive(Debug)]
pub(super) struct ModelChannel {
    pub(super) origin: Origin,
    pub(super) entries: BTreeMap<String, ModelEntry>,
    pub(super) deprecation: Option<Notice>,
}

/// Bundle in a channel.
#[derive(Debug)]
pub(super) struct ModelEntry {
    /// Origin of the bundle, or of the channel if there is no bundle.
    pub(super) origin: Origin,
    pub(super) edges: ChannelEntry,
    pub(super) bundle: BundleState,
    pub(super) deprecation: Option<Notice>,
}

/// State of the bundle of an entry.
#[derive(Debug)]
pub(super) enum BundleState {
    /// The catalog does not have the bundle.
    Missing,
    /// The bundle has a fault, or its absence has already been reported.
    Reported,
    Found {
        has_content: bool,
        version: Version,
        release: Release,
    },
}

/// Message of a deprecation.
#[derive(Debug)]
pub(super) struct Notice {
    pub(super) message: String,
    pub(super) origin: Origin,
}

/// Builds the model. Returns it with the errors in the order of upstream's checks.
pub(super) fn convert(documents: Documents) -> (Model, Vec<Problem>) {
    let mut conversion = Conversion { complete: !documents.incomplete, ..Conversion::default() };
    documents.packages.into_iter().for_each(|package| conversion.package(package));
    documents.channels.into_iter().for_each(|channel| conversion.channel(channel));
    documents.bundles.into_iter().for_each(|bundle| conversion.bundle(bundle));
    conversion.entries_without_bundle();
    conversion.default_channels();
    let deprecations = documents.deprecations.into_iter().enumerate();
    deprecations.for_each(|(index, deprecation)| conversion.deprecation(index, deprecation));
    (conversion.model, conversion.problems)
}

/// Error in the words of upstream.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) message: String,
    pub(super) origin: Origin,
    /// Position of the object that it repeats.
    pub(super) first: Option<Origin>,
}

#[derive(Default)]
struct Conversion {
    model: Model,
    problems: Vec<Problem>,
    /// `true` if every object could be parsed.
    complete: bool,
    /// Package and name of every entry of every channel, including rejected channels.
    listed: BTreeSet<(String, String)>,
    /// Entries of the last channel of each package.
    last_entries: BTreeMap<String, (BTreeSet<String>, Origin)>,
    /// Every bundle by package and name.
    bundles: BTreeMap<(String, String), Origin>,
    deprecated: BTreeSet<String>,
}

impl Conversion {
    fn problem(&mut self, message: String, origin: &Origin) {
        self.problems.push(Problem { message, origin: origin.clone(), first: None });
    }

    /// Reports an object that repeats the one at `first`.
    fn duplicate(&mut self, message: String, origin: &Origin, first: &Origin) {
        self.problems.push(Problem { message, origin: origin.clone(), first: Some(first.clone()) });
    }

    /// Reports a missing object. Valid only if every object could be parsed.
    fn absence(&mut self, message: String, origin: &Origin) {
        if self.complete {
            self.problem(message, origin);
        }
    }

    fn package(&mut self, Located { object: package, origin }: Located<Package>) {
        if package.name.is_empty() {
            return self.problem("config contains package with no name".to_owned(), &origin);
        }
        let name = quote(&package.name);
        if let Some(known) = self.model.get(&package.name) {
            let first = known.origin.clone();
            return self.duplicate(format!("duplicate package {name}"), &origin, &first);
        }
        let problems = label_problems(&package.name);
        if !problems.is_empty() {
            self.problem(format!("invalid package name {name}: [{}]", problems.join(" ")), &origin);
        }
        let Package { name, default_channel, .. } = package;
        let package = ModelPackage { origin, default_channel, channels: BTreeMap::new(), deprecation: None };
        self.model.insert(name, package);
    }

    fn channel(&mut self, Located { object: channel, origin }: Located<Channel>) {
        let (package, name) = (quote(&channel.package), quote(&channel.name));
        let names = channel.entries.iter().map(|entry| (channel.package.clone(), entry.name.clone()));
        self.listed.extend(names);
        let Some(known) = self.model.get_mut(&channel.package) else {
            return self.absence(format!("unknown package {package} for channel {name}"), &origin);
        };
        if channel.name.is_empty() {
            return self.problem(format!("package {package} contains channel with no name"), &origin);
        }
        if let Some(known) = known.channels.get(&channel.name) {
            let first = known.origin.clone();
            return self.duplicate(
                format!("package {package} has duplicate channel {name}"),
                &origin,
                &first,
            );
        }
        let mut entries = BTreeMap::new();
        let mut twice = Vec::new();
        for edges in channel.entries {
            let name = edges.name.clone();
            if entries.contains_key(&name) {
                twice.push(name);
                continue;
            }
            let bundle = BundleState::Missing;
            entries.insert(name, ModelEntry { origin: origin.clone(), edges, bundle, deprecation: None });
        }
        let names = entries.keys().cloned().collect();
        self.last_entries.insert(channel.package.clone(), (names, origin.clone()));
        known
            .channels
            .insert(channel.name, ModelChannel { origin: origin.clone(), entries, deprecation: None });
        for entry in twice {
            let entry = quote(&entry);
            self.problem(
                format!("invalid package {package}, channel {name}: duplicate entry {entry}"),
                &origin,
            );
        }
    }

    fn bundle(&mut self, Located { object: bundle, origin }: Located<Bundle>) {
        let (package, name) = (quote(&bundle.package), quote(&bundle.name));
        if bundle.package.is_empty() {
            return self.problem(format!("package name must be set for bundle {name}"), &origin);
        }
        if !self.model.contains_key(&bundle.package) {
            self.absence(format!("unknown package {package} for bundle {name}"), &origin);
            return bundle.faults.into_iter().for_each(|fault| self.problem(fault, &origin));
        }
        let key = (bundle.package.clone(), bundle.name.clone());
        if let Some(first) = self.bundles.get(&key).cloned() {
            return self.duplicate(format!("package {package} has duplicate bundle {name}"), &origin, &first);
        }
        self.bundles.insert(key.clone(), origin.clone());
        bundle.faults.iter().for_each(|fault| self.problem(fault.clone(), &origin));
        if !self.listed.contains(&key) {
            let message = format!("package {package}, bundle {name} not found in any channel entries");
            self.absence(message, &origin);
        }
        if let Some((entries, _)) = self.last_entries.get_mut(&bundle.package) {
            entries.remove(&bundle.name);
        }
        let channels = self.model.get_mut(&bundle.package).map(|package| &mut package.channels);
        for channel in channels.into_iter().flat_map(BTreeMap::values_mut) {
            if let Some(entry) = channel.entries.get_mut(&bundle.name) {
                entry.origin = origin.clone();
                entry.bundle = bundle.state();
            }
        }
    }

    fn entries_without_bundle(&mut self) {
        for (package, (entries, origin)) in std::mem::take(&mut self.last_entries) {
            if entries.is_empty() || !self.complete {
                continue;
            }
            let names: Vec<&str> = entries.iter().map(String::as_str).collect();
            let message = format!(
                "no olm.bundle blobs found in package {} for olm.channel entries [{}]",
                quote(&package),
                names.join(" ")
            );
            self.problem(message, &origin);
            let channels = self.model.get_mut(&package).map(|package| &mut package.channels);
            for channel in channels.into_iter().flat_map(BTreeMap::values_mut) {
                for (_, entry) in channel.entries.iter_mut().filter(|(name, _)| entries.contains(*name)) {
                    entry.bundle = BundleState::Reported;
                }
            }
        }
    }

    /// Adds missing default channels as empty ones.
    fn default_channels(&mut self) {
        for package in self.model.values_mut() {
            let name = package.default_channel.clone();
            if !name.is_empty() && !package.channels.contains_key(&name) {
                let origin = package.origin.clone();
                let channel = ModelChannel { origin, entries: BTreeMap::new(), deprecation: None };
                package.channels.insert(name, channel);
            }
        }
    }

    fn deprecation(&mut self, index: usize, Located { object: deprecation, origin }: Located<Deprecation>) {
        let package = quote(&deprecation.package);
        if deprecation.package.is_empty() {
            return self.problem(format!("package name must be set for deprecation item {index}"), &origin);
        }
        if !self.model.contains_key(&deprecation.package) {
            let message = format!("cannot apply deprecations to an unknown package {package}");
            return self.absence(message, &origin);
        }
        if !self.deprecated.insert(deprecation.package.clone()) {
            let message = format!("expected a maximum of one deprecation per package: {package}");
            return self.problem(message, &origin);
        }
        let mut seen = BTreeSet::new();
        for (index, entry) in deprecation.entries.into_iter().enumerate() {
            let reference = entry.reference;
            if reference.schema.is_empty() {
                let message =
                    format!("schema must be set for deprecation entry [{index}] for package {package}");
                self.problem(message, &origin);
            } else if !seen.insert((reference.schema.clone(), reference.name.clone())) {
                let message =
                    format!("duplicate deprecation entry {} for package {package}", shown(&reference));
                self.problem(message, &origin);
            } else {
                let notice = Notice { message: entry.message, origin: origin.clone() };
                self.deprecate(index, &deprecation.package, &reference, notice);
            }
        }
    }

    fn deprecate(&mut self, index: usize, package: &str, reference: &DeprecationReference, notice: Notice) {
        let (owner, name) = (quote(package), quote(&reference.name));
        let origin = notice.origin.clone();
        let Some(known) = self.model.get_mut(package) else { return };
        match reference.schema.as_str() {
            SCHEMA_BUNDLE => {
                if !self.bundles.contains_key(&(package.to_owned(), reference.name.clone())) {
                    let message =
                        format!("cannot deprecate bundle {name} for package {owner}: bundle not found");
                    return self.absence(message, &origin);
                }
                let entries = known.channels.values_mut().flat_map(|c| c.entries.get_mut(&reference.name));
                for entry in entries {
                    entry.deprecation =
                        Some(Notice { message: notice.message.clone(), origin: origin.clone() });
                }
            }
            SCHEMA_CHANNEL => match known.channels.get_mut(&reference.name) {
                Some(channel) => channel.deprecation = Some(notice),
                None => {
                    let message =
                        format!("cannot deprecate channel {name} for package {owner}: channel not found");
                    self.absence(message, &origin);
                }
            },
            SCHEMA_PACKAGE if reference.name.is_empty() => known.deprecation = Some(notice),
            SCHEMA_PACKAGE => {
                let message =
                    format!("package name must be empty for deprecated package {owner} (specified {name})");
                self.problem(message, &origin);
            }
            _ => {
                let reference = shown(reference);
                let message = format!(
                    "cannot deprecate object {reference} referenced by entry {index} for package {owner}: \
                     object schema unknown"
                );
                self.problem(message, &origin);
            }
        }
    }
}

impl Bundle {
    fn state(&self) -> BundleState {
        match &self.version {
            Some(version) if self.faults.is_empty() => BundleState::Found {
                has_content: self.has_image || self.has_objects,
                version: version.clone(),
                release: self.release.clone(),
            },
            _ => BundleState::Reported,
        }
    }
}

/// Formats a reference as upstream does.
fn shown(reference: &DeprecationReference) -> String {
    format!(
        "declcfg.PackageScopedReference{{Schema:{}, Name:{}}}",
        quote(&reference.schema),
        quote(&reference.name)
    )
}
