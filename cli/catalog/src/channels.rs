//! `olm catalog channels`: lists the channels of a package.

use clap::Args;
use olm_cli_core::error::CliError;
use olm_cli_core::output::{FormatArgs, List, Table};
use olm_cli_core::session::Session;
use olm_cli_core::source::SourceArgs;
use olm_fbc::Channel;
use serde::Serialize;

use super::classic_chain::heads;
use super::package::{CatalogPackage, read_package};

/// Arguments of `olm catalog channels`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} catalog channels ./catalog etcd
  {olm} catalog channels cluster/operatorhubio etcd -o json")]
pub struct ChannelsArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Package name
    #[arg(value_name = "PACKAGE")]
    package: String,
    #[command(flatten)]
    format: FormatArgs,
}

/// Runs the command.
///
/// # Errors
/// The source cannot be read, or the package does not exist.
pub(crate) async fn run(args: ChannelsArgs, session: &mut Session) -> Result<(), CliError> {
    let packages = read_package(&args.source, &args.package, session).await?;
    let mut items = Vec::new();
    for package in &packages {
        let summaries = package.content.channels.iter().map(|channel| ChannelSummary::new(package, channel));
        let catalog = package.catalog.clone();
        items.extend(summaries.map(|summary| InCatalog { catalog: catalog.clone(), item: summary }));
    }
    session.output.result(args.format.output, "ChannelList", &List { items }, table)
}

/// Item with the name of its catalog.
#[derive(Debug, Serialize)]
pub(super) struct InCatalog<T> {
    pub(super) catalog: String,
    #[serde(flatten)]
    pub(super) item: T,
}

/// Summary of a channel.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelSummary {
    pub(crate) name: String,
    /// `true` for the default channel of the package.
    pub default: bool,
    /// Entries that no other entry follows. More than one is an error in the catalog.
    pub heads: Vec<Head>,
    /// Number of entries.
    pub bundles: usize,
    /// Deprecation messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deprecation: Vec<String>,
}

/// Head of a channel.
#[derive(Debug, Serialize)]
pub struct Head {
    /// Name of the bundle.
    pub bundle: String,
    /// Version of the bundle. Absent if invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

impl ChannelSummary {
    /// Summarizes `channel`, which belongs to `package`.
    pub fn new(package: &CatalogPackage, channel: &Channel) -> Self {
        let head = |name: &str| Head { bundle: name.to_owned(), version: package.version(name) };
        Self {
            name: channel.name.clone(),
            default: channel.name == package.default_channel(),
            heads: heads(channel).into_iter().map(head).collect(),
            bundles: channel.entries.len(),
            deprecation: package.channel_deprecation(&channel.name),
        }
    }

    /// Name (marked if it is the default channel), heads, their versions, entries, deprecation.
    pub(crate) fn cells(&self) -> [String; 5] {
        let join = |parts: Vec<&str>| parts.join(", ");
        [
            format!("{}{}", self.name, if self.default { " (default)" } else { "" }),
            join(self.heads.iter().map(|head| head.bundle.as_str()).collect()),
            join(self.heads.iter().filter_map(|head| head.version.as_deref()).collect()),
            self.bundles.to_string(),
            self.deprecation.join("; "),
        ]
    }
}

fn table(list: &List<InCatalog<ChannelSummary>>) -> String {
    let mut table = Table::new(&["NAME", "HEAD", "VERSION", "BUNDLES", "DEPRECATED", "CATALOG"]);
    for InCatalog { catalog, item } in &list.items {
        table.row(item.cells().iter().chain([catalog]));
    }
    table.without_uniform_column().text()
}
