//! `olm catalog show`: shows a package and one of its bundles.

use clap::Args;
use olm_cli_core::error::CliError;
use olm_cli_core::names::listed;
use olm_cli_core::output::{Fields, FormatArgs, List, Table, printable};
use olm_cli_core::session::Session;
use olm_cli_core::source::SourceArgs;
use olm_fbc::Channel;
use olm_resolve::Offer;
use olm_version::{Version, quote};
use serde::Serialize;

use super::bundle_details::{BundleDetails, csv_facts};
use super::channels::ChannelSummary;
use super::package::{CatalogPackage, read_package, shown_version};

/// Arguments of `olm catalog show`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} catalog show cluster etcd                # the bundle that an installation without version would choose
  {olm} catalog show ./catalog etcd@0.9.4
  {olm} catalog show ./catalog etcd/etcdoperator.v0.9.4 -o yaml")]
pub struct ShowArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// A package, alone or with one of its bundles by version or by name
    #[arg(value_name = "PACKAGE[@VERSION|/BUNDLE]")]
    package: String,
    #[command(flatten)]
    format: FormatArgs,
}

/// Selected bundle of the package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BundleSelector<'a> {
    /// Bundle that the resolver would choose for a new installation.
    Best,
    Version(&'a str),
    Name(&'a str),
}

/// Runs the command.
///
/// # Errors
/// The source cannot be read, or the package or bundle does not exist.
pub(crate) async fn run(args: ShowArgs, session: &mut Session) -> Result<(), CliError> {
    let (name, requested) = split(&args.package);
    let packages = read_package(&args.source, name, session).await?;
    let mut items = Vec::new();
    let mut missing = None;
    for package in &packages {
        match PackageDetails::new(package, requested) {
            Ok(details) => items.push(details),
            Err(failure) => missing = Some(failure),
        }
    }
    // It suffices if one catalog has the bundle.
    if let Some(failure) = missing.filter(|_| items.is_empty()) {
        return Err(failure);
    }
    session.output.result(args.format.output, "PackageList", &List { items }, text)
}

fn split(argument: &str) -> (&str, BundleSelector<'_>) {
    if let Some((package, bundle)) = argument.split_once('/') {
        (package, BundleSelector::Name(bundle))
    } else if let Some((package, version)) = argument.split_once('@') {
        (package, BundleSelector::Version(version))
    } else {
        (argument, BundleSelector::Best)
    }
}

/// Package with all its channels and versions, and one bundle.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PackageDetails {
    catalog: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    display_name: Option<String>,
    description: String,
    default_channel: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deprecation: Vec<String>,
    channels: Vec<ChannelSummary>,
    /// Best first, in the order of the resolver.
    versions: Vec<VersionDetails>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bundle: Option<BundleDetails>,
}

#[derive(Debug, Serialize)]
struct VersionDetails {
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    bundle: String,
    deprecated: bool,
}

impl PackageDetails {
    fn new(package: &CatalogPackage, requested: BundleSelector<'_>) -> Result<Self, CliError> {
        let offer = find(package, requested)?;
        let bundle = offer.and_then(|offer| package.bundle(offer.name()));
        let version = |offer: &Offer| VersionDetails {
            version: shown_version(offer),
            bundle: offer.name().to_owned(),
            deprecated: offer.deprecated(),
        };
        let channel = |channel: &Channel| ChannelSummary::new(package, channel);
        Ok(Self {
            catalog: package.catalog.clone(),
            name: package.name.clone(),
            display_name: bundle.and_then(|bundle| csv_facts(bundle).display_name),
            description: package.description().to_owned(),
            default_channel: package.default_channel().to_owned(),
            deprecation: package.deprecation(),
            channels: package.content.channels.iter().map(channel).collect(),
            versions: package.index.offers().map(version).collect(),
            bundle: bundle.map(|bundle| BundleDetails::new(package, bundle)),
        })
    }
}

/// Selected bundle. `None` if no bundle is requested and the package has none.
fn find<'a>(
    package: &'a CatalogPackage,
    requested: BundleSelector<'_>,
) -> Result<Option<&'a Offer>, CliError> {
    type Label = fn(&Offer) -> Option<String>;
    let (what, asked, label, requested): (_, _, Label, _) = match requested {
        BundleSelector::Best => return Ok(package.index.offers().next()),
        BundleSelector::Name(name) => ("bundle", name, |offer| Some(offer.name().to_owned()), name),
        BundleSelector::Version(text) => {
            let version = text.strip_prefix('v').unwrap_or(text);
            Version::parse(version).map_err(|error| {
                let name = &package.name;
                CliError::usage(format!("{name}@{text}: expected one version such as 1.2.3: {error}"))
            })?;
            ("version", text, shown_version, version)
        }
    };
    let found = package.index.offers().find(|offer| label(offer).as_deref() == Some(requested));
    found.map(Some).ok_or_else(|| {
        let known = package.index.offers().filter_map(label);
        let known: Vec<_> = known.filter(|name| !name.is_empty()).collect();
        CliError::no_candidate(format!(
            "package {} has no {what} {}; it has: {}",
            quote(&package.name),
            quote(asked),
            listed(&known)
        ))
    })
}

fn text(list: &List<PackageDetails>) -> String {
    list.items.iter().map(package_text).collect::<Vec<_>>().join("\n")
}

fn package_text(package: &PackageDetails) -> String {
    let mut fields = Fields::default();
    fields.add(0, "Package", &package.name);
    fields.add(0, "Catalog", &package.catalog);
    fields.add(0, "Display name", package.display_name.as_deref().unwrap_or_default());
    fields.add(0, "Default channel", &package.default_channel);
    fields.list(0, "Deprecated", &package.deprecation);
    let mut versions: Vec<_> = package
        .versions
        .iter()
        .map(|one| {
            let version = one.version.as_deref().unwrap_or(&one.bundle);
            if one.deprecated { format!("{version} (deprecated)") } else { version.to_owned() }
        })
        .collect();
    versions.dedup();
    fields.add(0, "Versions", &versions.join(", "));
    if !package.description.is_empty() {
        fields.text += "Description:\n";
        for line in printable(&package.description).lines().map(str::trim_end) {
            let indent = if line.is_empty() { "" } else { "  " };
            fields.text += &format!("{indent}{line}\n");
        }
    }
    fields.text += "Channels:\n";
    let mut table = Table::new(&["NAME", "HEAD", "VERSION", "BUNDLES", "DEPRECATED"]);
    for channel in &package.channels {
        table.row(channel.cells());
    }
    for line in table.text().lines() {
        fields.text += &format!("  {line}\n");
    }
    if let Some(bundle) = &package.bundle {
        bundle_text(&mut fields, bundle, &package.default_channel);
    }
    fields.text
}

fn bundle_text(fields: &mut Fields, bundle: &BundleDetails, default_channel: &str) {
    fields.add(0, "Bundle", &bundle.name);
    fields.add(2, "Version", bundle.version.as_deref().unwrap_or_default());
    fields.add(2, "Image", &bundle.image);
    let mut channels = listed(&bundle.channels);
    if !bundle.channels.iter().any(|channel| channel == default_channel) {
        channels += " (not in the default channel)";
    }
    fields.add(2, "Channels", &channels);
    fields.list(2, "Deprecated", &bundle.deprecation);
    fields.add(2, "Install modes", &bundle.install_modes.join(", "));
    fields.list(2, "Provides", &bundle.provides);
    fields.list(2, "Requires", &bundle.requires);
    if let Some(reason) = &bundle.refused {
        fields.add(2, "Not installable", reason);
    }
    let images: Vec<_> = bundle
        .related_images
        .iter()
        .map(|image| match image.name.as_str() {
            "" => image.image.clone(),
            name => format!("{} ({name})", image.image),
        })
        .collect();
    fields.list(2, "Related images", &images);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_is_split_into_package_and_bundle() {
        for (argument, expected) in [
            ("p", ("p", BundleSelector::Best)),
            ("p@1.0.0", ("p", BundleSelector::Version("1.0.0"))),
            ("p/p.v1@x", ("p", BundleSelector::Name("p.v1@x"))),
        ] {
            assert_eq!(split(argument), expected, "{argument}");
        }
    }
}
