//! Resolution requests: a package and its constraints, from flags, from a file or from an extension of the cluster.

use olm_api::ClusterExtension;
use olm_api::cluster_extension::{BundleMetadata, CatalogFilter};
use olm_cli_catalog::package::{shown_version, similar};
use olm_cli_core::error::CliError;
use olm_cli_core::names::listed;
use olm_request::{ExtensionRules, selector};
use olm_resolve::{CatalogSelector, Expression, Offer, ResolveError};
use olm_version::{Version, quote};

use super::catalogs::Catalogs;
use super::rules::RuleArgs;

/// `--channel default`: the package's default channel (docs/design/cli.md#default-channel).
const DEFAULT: &str = "default";

/// Resolution request for one extension.
#[derive(Debug, Clone)]
pub(super) struct Query {
    /// Name of the ClusterExtension, if there is one.
    pub(super) extension: Option<String>,
    /// Install namespace, if known.
    pub(super) namespace: Option<String>,
    /// Package and constraints, as in `spec.source.catalog`.
    pub(super) filter: CatalogFilter,
    /// Selects the catalogs to search, by the filter or by a flag.
    pub(super) selector: CatalogSelector,
    pub(super) installed: Option<BundleMetadata>,
    pub(super) rules: ExtensionRules,
    /// ClusterExtension of the request, if there is one.
    pub(super) original: Option<ClusterExtension>,
}

impl Query {
    /// Request for the best bundle of a package, without constraints.
    ///
    /// # Errors
    /// The value of a gate is invalid.
    pub(super) fn plain(package: &str, rules: &RuleArgs) -> Result<Self, CliError> {
        Ok(Self {
            extension: None,
            namespace: None,
            filter: CatalogFilter { package_name: package.to_owned(), ..CatalogFilter::default() },
            selector: CatalogSelector::default(),
            installed: None,
            rules: rules.rules(None)?,
            original: None,
        })
    }

    pub(super) fn package(&self) -> &str {
        &self.filter.package_name
    }

    /// Name of the extension, or of the package if there is no extension.
    pub(super) fn name(&self) -> &str {
        self.extension.as_deref().unwrap_or_else(|| self.package())
    }

    /// Request that the controller makes for this extension. The installed bundle comes from its status.
    ///
    /// # Errors
    /// The extension names no package, or its selector is invalid.
    pub(super) fn of_extension(extension: &ClusterExtension, rules: &RuleArgs) -> Result<Self, CliError> {
        let name = extension.metadata.name.clone().unwrap_or_default();
        let spec = extension.spec.as_ref();
        let filter = spec.and_then(|spec| spec.source.catalog.as_ref()).ok_or_else(|| {
            let what = "has no spec.source.catalog, which names the package to resolve";
            CliError::findings(format!("ClusterExtension {} {what}", quote(&name)))
        })?;
        let installed = extension.status.as_ref().and_then(|status| status.install.as_ref());
        Ok(Self {
            namespace: spec.map(|spec| spec.namespace.clone()).filter(|namespace| !namespace.is_empty()),
            filter: filter.clone(),
            selector: selector(filter.selector.as_ref())
                .map_err(|fault| CliError::usage(ResolveError::from(fault).to_string()))?,
            installed: installed.map(|install| install.bundle.clone()),
            extension: Some(name),
            rules: rules.rules(extension.metadata.annotations.as_ref())?,
            original: Some(extension.clone()),
        })
    }

    /// Replaces the channel `default` by the name of the package's default channel, unless a channel has the name
    /// `default`.
    ///
    /// # Errors
    /// No catalog names a default channel, or catalogs name different ones.
    pub(super) fn name_default_channel(&mut self, catalogs: &Catalogs) -> Result<(), CliError> {
        let packages = catalogs.packages(self.package(), &self.selector);
        let is_channel = |name: &str| {
            packages.iter().any(|package| package.content.channels.iter().any(|channel| channel.name == name))
        };
        if !self.filter.channels.iter().any(|channel| channel == DEFAULT)
            || packages.is_empty()
            || is_channel(DEFAULT)
        {
            return Ok(());
        }
        let mut defaults: Vec<_> = packages.iter().map(|package| package.default_channel()).collect();
        defaults.sort_unstable();
        defaults.dedup();
        let [default] = defaults[..] else {
            return Err(CliError::usage(format!(
                "--channel default: the catalogs have different default channels of package {}: {}; specify one of them, or \
                 select a catalog",
                quote(self.package()),
                listed(&defaults)
            )));
        };
        if default.is_empty() {
            let package = quote(self.package());
            return Err(CliError::no_candidate(format!("package {package} has no default channel")));
        }
        for channel in self.filter.channels.iter_mut().filter(|channel| *channel == DEFAULT) {
            default.clone_into(channel);
        }
        Ok(())
    }

    /// Parses `--installed`: `NAME@VERSION`, or the name or version of a bundle in the catalogs.
    ///
    /// # Errors
    /// No catalog has such a bundle.
    pub(super) fn set_installed(&mut self, text: &str, catalogs: &Catalogs) -> Result<(), CliError> {
        if let Some((name, version)) = text.rsplit_once('@') {
            // The resolver validates the version.
            let (name, version) = (name.to_owned(), version.to_owned());
            self.installed = Some(BundleMetadata { name, version, release: None });
            return Ok(());
        }
        let offers: Vec<&Offer> = catalogs.offers(self.package()).collect();
        self.installed = Some(find(self.package(), &offers, text)?);
        Ok(())
    }
}

/// Finds the bundle with the name or version `text`.
fn find(package: &str, offers: &[&Offer], text: &str) -> Result<BundleMetadata, CliError> {
    let named = |offer: &&&Offer| offer.name() == text;
    let of_version = |offer: &&&Offer| shown_version(offer).as_deref() == Some(text);
    let found = offers.iter().find(named).or_else(|| offers.iter().find(of_version));
    if let Some((offer, version)) = found.and_then(|offer| Some((offer, offer.version().ok()?))) {
        let (version, release) = (version.shown(false).0, None);
        return Ok(BundleMetadata { name: offer.name().to_owned(), version, release });
    }
    let by_version = Version::parse(text).is_ok();
    let known: Vec<String> = if by_version {
        offers.iter().filter_map(|offer| shown_version(offer)).collect()
    } else {
        offers.iter().map(|offer| offer.name().to_owned()).collect()
    };
    let (what, mut names) = similar(text, known.iter().map(String::as_str), "the catalogs have");
    names.dedup();
    Err(CliError::no_candidate(format!(
        "no catalog has a bundle {} of package {}; {what}: {}\nspecify a bundle that is no longer in a catalog as \
         NAME@VERSION",
        quote(text),
        quote(package),
        listed(&names)
    )))
}

/// Parses `--selector`: `KEY=VALUE`, `KEY!=VALUE`, `KEY` and `!KEY`, joined by commas.
///
/// # Errors
/// Error text for clap.
pub(super) fn parse_selector(text: &str) -> Result<CatalogSelector, String> {
    let mut parts: Vec<(String, &str, Vec<String>)> = Vec::new();
    for part in text.split(',').map(str::trim) {
        parts.push(if let Some((key, value)) = part.split_once("!=") {
            (key.trim().to_owned(), "NotIn", vec![value.trim().to_owned()])
        } else if let Some((key, value)) = part.split_once('=') {
            let value = value.strip_prefix('=').unwrap_or(value);
            (key.trim().to_owned(), "In", vec![value.trim().to_owned()])
        } else if let Some(key) = part.strip_prefix('!') {
            (key.to_owned(), "DoesNotExist", Vec::new())
        } else {
            (part.to_owned(), "Exists", Vec::new())
        });
    }
    let expressions = parts.iter().map(|(key, operator, values)| Expression { key, operator, values });
    CatalogSelector::new([], expressions)
        .map_err(|fault| format!("{fault}; allowed: KEY=VALUE, KEY!=VALUE, KEY and !KEY, joined by commas"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn selector_is_parsed_as_kubectl_does() {
        let labels: BTreeMap<_, _> =
            [("a", "1"), ("b", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        for (text, expected) in [
            ("a=1", true),
            ("a==1,b", true),
            ("a=2", false),
            ("a!=2, !c", true),
            ("!b", false),
            ("c!=1", true),
        ] {
            assert_eq!(parse_selector(text).unwrap().matches(&labels), expected, "{text}");
        }
        assert!(parse_selector("a in (1)").unwrap_err().ends_with("joined by commas"));
    }
}
