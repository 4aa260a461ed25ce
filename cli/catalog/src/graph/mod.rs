//! `olm catalog graph`: shows the upgrade edges between the bundles of a package.
//!
//! [`edges`] computes the graph, and [`path`] and [`decision`] upgrades in it. [`text`], [`svg`] and [`hint`] describe it.

pub mod decision;
mod edges;
pub mod hint;
mod layout;
mod model;
mod path;
pub mod svg;
mod text;

use std::collections::BTreeMap;

use clap::{Args, ValueEnum};
use olm_cli_core::error::CliError;
use olm_cli_core::output::Format;
use olm_cli_core::session::Session;
use olm_cli_core::source::SourceArgs;
use olm_fbc::Meta;
use olm_resolve::Indexing;

pub use self::model::{Graph, GraphDecision, Node, is_candidate};
use self::model::{Path, Semantics};
use self::path::cut;
use super::package::{CatalogPackage, read_single_package};

/// First lines of the command's help.
pub(crate) const ABOUT: &str = "Draw the upgrade edges between the bundles of a package

An edge leads from an installed bundle to each bundle that may follow it. The highest of these versions that is \
not deprecated is chosen. A bundle is unreachable if no upgrade leads to it: in v1 if it has no incoming edge (the \
lowest version is not marked), in classic OLM if it is not on the replaces chain of a channel. A bundle is skipped \
if another entry skips it. Classic OLM does not offer a skipped bundle, v1 does.

--from shows the upgrade path of an installed bundle: its direct successors, the chosen one, and every upgrade \
after that until there is none.";

/// Arguments of `olm catalog graph`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} catalog graph ./catalog etcd
  {olm} catalog graph ./catalog etcd --from etcdoperator.v0.9.0
  {olm} catalog graph ./catalog etcd --channel alpha --semantics classic
  {olm} catalog graph cluster/operatorhubio etcd --format svg > etcd.svg
  {olm} catalog graph cluster/operatorhubio etcd --format mermaid > etcd.mmd")]
pub struct GraphArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Package name
    #[arg(value_name = "PACKAGE")]
    package: String,
    /// Only the bundles and edges of this channel
    #[arg(long, value_name = "CHANNEL")]
    channel: Option<String>,
    /// Mark the upgrade path of an extension that has this bundle, given by name or version
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    /// Only this bundle, given by name or version, and higher ones
    #[arg(long, value_name = "NAME")]
    minimum_edge: Option<String>,
    /// Upgrade rules to apply
    #[arg(long, value_enum, default_value = "v1")]
    semantics: Semantics,
    /// Format of the drawing
    #[arg(long, value_enum, default_value = "text", conflicts_with = "output")]
    format: GraphFormat,
    /// Print the graph as data; table is the same as --format text
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Format>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GraphFormat {
    /// Lines of text
    Text,
    /// A Mermaid flowchart
    Mermaid,
    /// An SVG image
    Svg,
    /// JSON data
    Json,
}

/// Runs the command.
///
/// # Errors
/// The source cannot be read, or the package or channel does not exist.
pub(crate) async fn run(args: GraphArgs, session: &mut Session) -> Result<(), CliError> {
    let package = read_single_package(&args.source, &args.package, session).await?;
    let mut graph = Graph::new(&package, args.channel.as_deref(), args.semantics)?;
    if let Some(lowest) = &args.minimum_edge {
        cut(&mut graph, lowest)?;
    }
    if let Some(installed) = &args.from {
        graph.path = Some(Path::new(&graph, installed)?);
        graph.decide(&package);
    }
    match (args.format, args.output) {
        (GraphFormat::Mermaid, _) => session.output.text(&text::mermaid(&[graph])),
        (GraphFormat::Svg, _) => session.output.text(&svg::svg(&graph, &svg::View::default())),
        (GraphFormat::Json, _) => session.output.result(Format::Json, KIND, &graph, text::text),
        (GraphFormat::Text, format) => {
            session.output.result(format.unwrap_or(Format::Table), KIND, &graph, text::text)
        }
    }
}

/// Mermaid flowchart of the upgrade edges in each package of `metas`.
///
/// # Errors
/// An object does not match its schema.
pub(crate) fn flowchart(catalog: &str, metas: &[Meta]) -> Result<String, CliError> {
    let mut packages: BTreeMap<&str, Vec<Vec<u8>>> = BTreeMap::new();
    for meta in metas.iter().filter(|meta| !meta.owner().is_empty()) {
        packages.entry(meta.owner()).or_default().push(meta.blob.clone());
    }
    let graph = |(name, lines): (&str, Vec<Vec<u8>>)| {
        let package = CatalogPackage::new(catalog, name, &lines, Indexing::default())?;
        Graph::new(&package, None, Semantics::V1)
    };
    Ok(text::mermaid(&packages.into_iter().map(graph).collect::<Result<Vec<_>, _>>()?))
}

const KIND: &str = "UpgradeGraph";
