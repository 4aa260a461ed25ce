//! `olm catalog bundles`: lists the bundles of a package, channel by channel.

use clap::Args;
use olm_fbc::{Channel, ChannelEntry};
use olm_resolve::Offer;
use serde::Serialize;

use super::channels::InCatalog;
use super::package::{CatalogPackage, read_package, shown_version};
use crate::error::CliError;
use crate::output::{FormatArgs, Table};
use crate::session::Session;
use crate::source::SourceArgs;

/// Arguments of `olm catalog bundles`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} catalog bundles ./catalog etcd
  {olm} catalog bundles ./catalog etcd --channel alpha
  {olm} catalog bundles cluster etcd -o yaml")]
pub(crate) struct BundlesArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Package name
    #[arg(value_name = "PACKAGE")]
    package: String,
    /// Only the bundles of this channel
    #[arg(long, value_name = "CHANNEL")]
    channel: Option<String>,
    #[command(flatten)]
    format: FormatArgs,
}

/// Runs the command.
///
/// # Errors
/// The source cannot be read, or the package or channel does not exist.
pub(crate) async fn run(args: BundlesArgs, session: &mut Session) -> Result<(), CliError> {
    let packages = read_package(&args.source, &args.package, session).await?;
    let mut items = Vec::new();
    for package in &packages {
        let channels = match &args.channel {
            Some(name) => vec![package.channel(name)?],
            None => package.content.channels.iter().collect(),
        };
        let summaries = package.index.offers().map(|offer| BundleSummary::new(package, offer, &channels));
        let wanted = summaries.filter(|summary| args.channel.is_none() || !summary.channels.is_empty());
        items.extend(wanted.map(|item| InCatalog { catalog: package.catalog.clone(), item }));
    }
    session.output.result(args.format.output, "BundleList", &List { items }, table)
}

#[derive(Debug, Serialize)]
struct List {
    items: Vec<InCatalog<BundleSummary>>,
}

/// Bundle with its channel entries.
#[derive(Debug, Serialize)]
struct BundleSummary {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    image: String,
    deprecated: bool,
    channels: Vec<Entry>,
}

/// Channel entry.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    replaces: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skips: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    skip_range: String,
}

impl BundleSummary {
    fn new(package: &CatalogPackage, offer: &Offer, channels: &[&Channel]) -> Self {
        let entry = |channel: &Channel, entry: &ChannelEntry| Entry {
            name: channel.name.clone(),
            replaces: entry.replaces.clone(),
            skips: entry.skips.clone(),
            skip_range: entry.skip_range.clone(),
        };
        let of_channel = |channel: &&Channel| {
            let entries = channel.entries.iter().filter(|entry| entry.name == offer.name());
            entries.map(|found| entry(channel, found)).collect::<Vec<_>>()
        };
        Self {
            name: offer.name().to_owned(),
            version: shown_version(offer),
            image: package.bundle(offer.name()).map(|bundle| bundle.image.clone()).unwrap_or_default(),
            deprecated: offer.deprecated(),
            channels: channels.iter().flat_map(of_channel).collect(),
        }
    }
}

/// One row per channel of a bundle, and one row for a bundle without channels.
fn table(list: &List) -> String {
    let several = list.items.iter().any(|item| item.catalog != list.items[0].catalog);
    let columns =
        ["NAME", "VERSION", "CHANNEL", "REPLACES", "SKIPS", "SKIP RANGE", "DEPRECATED", "IMAGE", "CATALOG"];
    let shown = if several { columns.len() } else { columns.len() - 1 };
    let mut table = Table::new(&columns[..shown]);
    let nowhere =
        Entry { name: String::new(), replaces: String::new(), skips: Vec::new(), skip_range: String::new() };
    for InCatalog { catalog, item } in &list.items {
        let entries = if item.channels.is_empty() { std::slice::from_ref(&nowhere) } else { &item.channels };
        for entry in entries {
            let version = item.version.as_deref().unwrap_or_default();
            let skips = entry.skips.join(", ");
            let deprecated = if item.deprecated { "yes" } else { "" };
            let (channel, replaces) = (entry.name.as_str(), entry.replaces.as_str());
            let cells = [
                &item.name,
                version,
                channel,
                replaces,
                &skips,
                &entry.skip_range,
                deprecated,
                &item.image,
                catalog,
            ];
            table.row(&cells[..shown]);
        }
    }
    table.text()
}
