//! `olm catalog prune`: writes a part of a catalog to a directory.

use std::path::PathBuf;

use clap::Args;
use olm_cli_core::error::CliError;
use olm_cli_core::output::FormatArgs;
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;
use olm_fbc::{Form, KeptPackage, validate_metas};
use serde::Serialize;

use super::selection::{SelectionArgs, catalog_files};
use crate::author::{check_empty, write_directory};

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Write a part of a catalog to a directory

The result is as valid as the catalog: every channel has one head, the default channel exists, and deprecations are of \
kept objects. A selection without such a result is refused. Versions between two kept ones of a channel are kept, too. The lowest \
kept version still names the one that it replaces, so that installations of dropped versions can be upgraded.";

/// Arguments of `olm catalog prune`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed   2 wrong usage   3 the selection is not valid
  4 a catalog, package, channel or version does not exist

Examples:
  {olm} catalog prune quay.io/operatorhubio/catalog:latest --package etcd --to ./catalog
  {olm} catalog prune ./all --package 'my-operator@>=1.2.0 <2.0.0' --to ./catalog
  {olm} catalog prune cluster/operatorhubio --channel etcd/clusterwide-alpha --heads --to ./catalog
  {olm} catalog prune ./all --channel my-operator/fast --default-channel my-operator=fast --to ./catalog")]
pub struct PruneArgs {
    /// A directory, an image reference, or cluster/NAME
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Write the catalog to this directory, which must be empty or new: a file PACKAGE/index.yaml for each package
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    format: FormatArgs,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PrunedCatalog {
    directory: PathBuf,
    packages: Vec<PrunedPackage>,
    dropped_packages: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PrunedPackage {
    name: String,
    channels: Vec<String>,
    bundles: Vec<String>,
    /// Bundles that are in no range, but connect others that are.
    connecting_bundles: Vec<String>,
    dropped_channels: Vec<String>,
    dropped_bundles: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// The catalog cannot be read, the selection is refused, or the directory cannot be written.
pub(crate) async fn run(args: PruneArgs, session: &mut Session) -> Result<(), CliError> {
    if args.selection.is_everything() {
        return Err(CliError::usage("select what to keep with --package, --channel or --heads"));
    }
    check_empty(&args.to)?;
    let metas = args.access.read_one(&args.source, session).await?;
    let before = validate_metas(&metas);
    let smaller = args.selection.apply(&args.source, metas)?;
    let files = catalog_files(&args.source, smaller.metas, Form::Yaml, &before)?;
    let files =
        files.into_iter().map(|(path, text)| Ok((path.into(), String::from_utf8_lossy(&text).into_owned())));
    write_directory(&args.to, files, session)?;
    let packages = smaller.packages.into_iter().map(PrunedPackage::from).collect();
    let pruned = PrunedCatalog { directory: args.to, packages, dropped_packages: smaller.dropped };
    session.output.result(args.format.output, "PrunedCatalog", &pruned, text)
}

impl From<KeptPackage> for PrunedPackage {
    fn from(kept: KeptPackage) -> Self {
        let KeptPackage { name, channels, bundles, connecting, dropped_channels, dropped_bundles } = kept;
        Self { name, channels, bundles, connecting_bundles: connecting, dropped_channels, dropped_bundles }
    }
}

fn text(pruned: &PrunedCatalog) -> String {
    let mut text = String::new();
    for package in &pruned.packages {
        text.push_str(&format!("{}: kept {}", package.name, count(package.bundles.len(), "bundle")));
        text.push_str(&format!(" in {}\n", count(package.channels.len(), "channel")));
        for (what, names) in [
            ("kept to connect others", &package.connecting_bundles),
            ("dropped channels", &package.dropped_channels),
            ("dropped bundles", &package.dropped_bundles),
        ] {
            if !names.is_empty() {
                text.push_str(&format!("  {what}: {}\n", names.join(", ")));
            }
        }
    }
    if !pruned.dropped_packages.is_empty() {
        let dropped = &pruned.dropped_packages;
        text.push_str(&format!("dropped {}: {}\n", count(dropped.len(), "package"), dropped.join(", ")));
    }
    text
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
