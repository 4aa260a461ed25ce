//! Package of a source: its objects, and its index for the resolver.

use std::collections::BTreeSet;
use std::sync::Arc;

use olm_cli_core::error::CliError;
use olm_cli_core::names::listed;
use olm_cli_core::session::Session;
use olm_cli_core::source::SourceArgs;
use olm_fbc::{Bundle, Channel, Meta, PackageContent, SCHEMA_BUNDLE, SCHEMA_CHANNEL, SCHEMA_PACKAGE};
use olm_resolve::{Indexing, Offer, PackageIndex};
use olm_version::quote;

/// Highest number of packages that a message names.
const NAMED_PACKAGES: usize = 12;

/// Package in one catalog.
#[derive(Debug)]
pub struct CatalogPackage {
    /// Name of the ClusterCatalog, else the source as given.
    pub catalog: String,
    /// Name of the package.
    pub name: String,
    /// Catalog objects of the package.
    pub content: PackageContent,
    /// Bundles as indexed for the resolver, best first.
    pub index: Arc<PackageIndex>,
}

impl CatalogPackage {
    /// Parses the lines of one package.
    ///
    /// # Errors
    /// An object of the package does not match its schema.
    pub fn new(catalog: &str, name: &str, lines: &[Vec<u8>], indexing: Indexing) -> Result<Self, CliError> {
        let content = PackageContent::from_metas(name, lines.iter().map(Vec::as_slice))
            .map_err(|error| CliError::at(catalog, format!("package {}: {error}", quote(name))))?;
        let index = Arc::new(PackageIndex::new(&content, indexing));
        Ok(Self { catalog: catalog.to_owned(), name: name.to_owned(), content, index })
    }

    /// Name of the default channel. Empty if there is none.
    pub fn default_channel(&self) -> &str {
        self.content.packages.last().map_or("", |package| &package.default_channel)
    }

    /// Description of the package. May be empty.
    pub fn description(&self) -> &str {
        self.content.packages.last().map_or("", |package| package.description.trim())
    }

    /// Deprecation messages of the package.
    pub fn deprecation(&self) -> Vec<String> {
        self.messages(SCHEMA_PACKAGE, None)
    }

    /// Deprecation messages of a channel.
    pub fn channel_deprecation(&self, channel: &str) -> Vec<String> {
        self.messages(SCHEMA_CHANNEL, Some(channel))
    }

    /// Deprecation messages of a bundle.
    pub fn bundle_deprecation(&self, bundle: &str) -> Vec<String> {
        self.messages(SCHEMA_BUNDLE, Some(bundle))
    }

    fn messages(&self, schema: &str, name: Option<&str>) -> Vec<String> {
        let entries = self.content.deprecations.last().map_or(&[][..], |deprecation| &deprecation.entries);
        let about = entries.iter().filter(|entry| {
            entry.reference.schema == schema && name.is_none_or(|name| entry.reference.name == name)
        });
        about.map(|entry| entry.message.trim().to_owned()).collect()
    }

    /// Bundle of this name. `None` if the package has none.
    pub fn bundle(&self, name: &str) -> Option<&Bundle> {
        self.content.bundles.iter().find(|bundle| bundle.name == name)
    }

    /// Bundle as indexed for the resolver.
    pub fn offer(&self, name: &str) -> Option<&Offer> {
        self.index.offers().find(|offer| offer.name() == name)
    }

    /// Name of the bundle with this name or version.
    ///
    /// # Errors
    /// There is none, or several have the version.
    pub fn bundle_named(&self, requested: &str) -> Result<&str, CliError> {
        if let Some(bundle) = self.bundle(requested) {
            return Ok(&bundle.name);
        }
        let version = requested.strip_prefix('v').unwrap_or(requested);
        let offers = self.index.offers();
        let found = offers.filter(|offer| shown_version(offer).as_deref() == Some(version));
        let found: Vec<&str> = found.map(Offer::name).collect();
        match found.as_slice() {
            [name] => Ok(name),
            [] => {
                let versions: Vec<_> = self.index.offers().filter_map(shown_version).collect();
                let (name, requested, versions) = (quote(&self.name), quote(requested), listed(&versions));
                let text =
                    format!("package {name} has no bundle or version {requested}; its versions: {versions}");
                Err(CliError::no_candidate(text))
            }
            names => {
                let names = names.join(", ");
                Err(CliError::usage(format!(
                    "several bundles have version {requested}: specify one of {names}"
                )))
            }
        }
    }

    /// Displayed version of the bundle. `None` if invalid.
    pub fn version(&self, bundle: &str) -> Option<String> {
        self.offer(bundle).and_then(shown_version)
    }

    /// Channel object by name.
    ///
    /// # Errors
    /// There is none. The message lists the existing channels.
    pub fn channel(&self, name: &str) -> Result<&Channel, CliError> {
        self.content.channels.iter().find(|channel| channel.name == name).ok_or_else(|| {
            let channels: Vec<_> =
                self.content.channels.iter().map(|channel| channel.name.as_str()).collect();
            CliError::no_candidate(format!(
                "package {} has no channel {}; its channels: {}",
                quote(&self.name),
                quote(name),
                listed(&channels)
            ))
        })
    }
}

/// Displayed version of a bundle. `None` if invalid.
pub fn shown_version(offer: &Offer) -> Option<String> {
    offer.version().ok().map(|version| version.shown(false).0)
}

/// Reads the package `name` from every catalog of the source that contains it. Returns at least one, in order of the
/// catalogs.
///
/// # Errors
/// The source cannot be read, or no catalog has the package.
pub(crate) async fn read_package(
    source: &SourceArgs,
    name: &str,
    session: &Session,
) -> Result<Vec<CatalogPackage>, CliError> {
    let mut found: Vec<(String, Vec<Vec<u8>>)> = Vec::new();
    let mut others = BTreeSet::new();
    let mut keep = |catalog: &str, meta: Meta| {
        if meta.owner() == name {
            match found.last_mut() {
                Some((last, lines)) if last == catalog => lines.push(meta.blob),
                _ => found.push((catalog.to_owned(), vec![meta.blob])),
            }
        } else if meta.schema == SCHEMA_PACKAGE {
            others.insert(meta.name);
        }
        Ok(())
    };
    source.access.read(&source.source, session, &mut keep).await?;
    if found.is_empty() {
        return Err(CliError::no_candidate(missing(&source.source, name, &others)));
    }
    found
        .iter()
        .map(|(catalog, lines)| CatalogPackage::new(catalog, name, lines, Indexing::default()))
        .collect()
}

/// [`read_package`] for a single catalog.
///
/// # Errors
/// Errors of [`read_package`], or several catalogs have the package.
pub(crate) async fn read_single_package(
    source: &SourceArgs,
    name: &str,
    session: &Session,
) -> Result<CatalogPackage, CliError> {
    let mut found = read_package(source, name, session).await?;
    match found.pop() {
        Some(only) if found.is_empty() => Ok(only),
        last => {
            let mut catalogs: Vec<_> = found.iter().chain(&last).map(|one| one.catalog.as_str()).collect();
            catalogs.sort_unstable();
            Err(CliError::usage(format!(
                "package {} is in several catalogs, each with its own edges: {}; choose one, such as cluster/{}",
                quote(name),
                catalogs.join(", "),
                catalogs.first().copied().unwrap_or_default()
            )))
        }
    }
}

/// Names in `known` that are similar to `name`, with the label `similar names`. All of them, with the label `all`, if
/// none is similar.
pub fn similar<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str> + Clone,
    all: &'static str,
) -> (&'static str, Vec<&'a str>) {
    let likely: Vec<_> = known.clone().filter(|other| other.contains(name) || name.contains(other)).collect();
    if likely.is_empty() { (all, known.collect()) } else { ("similar names", likely) }
}

/// Message that `source` has no package `name`, with similar names among its packages, or all of them.
pub fn missing(source: &str, name: &str, others: &BTreeSet<String>) -> String {
    let (what, mut named) = similar(name, others.iter().map(String::as_str), "its packages");
    let more = named.len().saturating_sub(NAMED_PACKAGES);
    named.truncate(NAMED_PACKAGES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{source} has no package {}; {what}: {}{more}", quote(name), listed(&named))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_package_error_lists_similar_or_all_names() {
        let others: BTreeSet<String> = ["etcd", "etcd-operator", "foo"].map(str::to_owned).into();
        assert_eq!(
            missing("c", "etc", &others),
            "c has no package \"etc\"; similar names: etcd, etcd-operator"
        );
        assert_eq!(
            missing("c", "x", &others),
            "c has no package \"x\"; its packages: etcd, etcd-operator, foo"
        );
        assert_eq!(missing("c", "x", &BTreeSet::new()), "c has no package \"x\"; its packages: none");
        let many: BTreeSet<String> = (10..30).map(|n| n.to_string()).collect();
        assert!(missing("c", "x", &many).ends_with("20, 21 and 8 more"));
    }
}
