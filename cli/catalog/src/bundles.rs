//! `olm catalog bundles`: lists the bundles of a package, channel by channel.

use clap::Args;
use olm_cli_core::error::CliError;
use olm_cli_core::output::{FormatArgs, List, Table};
use olm_cli_core::session::Session;
use olm_cli_core::source::SourceArgs;
use olm_fbc::{Channel, ChannelEntry};
use olm_resolve::Offer;
use serde::Serialize;

use super::channels::InCatalog;
use super::package::{CatalogPackage, read_package, shown_version};

/// Arguments of `olm catalog bundles`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} catalog bundles ./catalog etcd
  {olm} catalog bundles ./catalog etcd --channel alpha
  {olm} catalog bundles cluster etcd -o yaml")]
pub struct BundlesArgs {
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
        let requested = summaries.filter(|summary| args.channel.is_none() || !summary.channels.is_empty());
        items.extend(requested.map(|item| InCatalog { catalog: package.catalog.clone(), item }));
    }
    session.output.result(args.format.output, "BundleList", &List { items }, table)
}

/// Bundle with its channel entries.
#[derive(Debug, Serialize)]
struct BundleSummary {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    image: String,
    deprecated: bool,
    /// Entries, with the name of the channel in place of that of the bundle.
    channels: Vec<ChannelEntry>,
}

impl BundleSummary {
    fn new(package: &CatalogPackage, offer: &Offer, channels: &[&Channel]) -> Self {
        let of_channel = |channel: &&Channel| {
            let entries = channel.entries.iter().filter(|entry| entry.name == offer.name());
            let named = |entry: &ChannelEntry| ChannelEntry { name: channel.name.clone(), ..entry.clone() };
            entries.map(named).collect::<Vec<_>>()
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
fn table(list: &List<InCatalog<BundleSummary>>) -> String {
    let columns =
        ["NAME", "VERSION", "CHANNEL", "REPLACES", "SKIPS", "SKIP RANGE", "DEPRECATED", "IMAGE", "CATALOG"];
    let mut table = Table::new(&columns);
    let nowhere = ChannelEntry::default();
    for InCatalog { catalog, item } in &list.items {
        let entries = if item.channels.is_empty() { std::slice::from_ref(&nowhere) } else { &item.channels };
        let version = item.version.as_deref().unwrap_or_default();
        let deprecated = if item.deprecated { "yes" } else { "" };
        for ChannelEntry { name: channel, replaces, skips, skip_range } in entries {
            let skips = skips.join(", ");
            let cells = [
                item.name.as_str(),
                version,
                channel,
                replaces,
                &skips,
                skip_range,
                deprecated,
                &item.image,
                catalog,
            ];
            table.row(cells);
        }
    }
    table.without_uniform_column().text()
}
