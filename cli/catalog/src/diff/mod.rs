//! `olm catalog diff`: compares two catalogs.
//!
//! [`compare()`] is pure and uses the upgrade edges of the resolver.

mod compare;
mod text;

use clap::Args;
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::output::FormatArgs;
use olm_cli_core::session::Session;
use olm_cli_core::source::Access;

use self::compare::compare;
use super::whole::WholeCatalog;

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Compare two catalogs, and find installed bundles that lose their upgrades

Shows the packages, channels, bundles, upgrade edges and deprecations that NEW adds or removes, bundles whose version, \
image, properties or related images differ under the same name, and changed default channels. Upgrade edges are those \
that OLM v1 uses for an extension that selects no channel.

A bundle is stranded if NEW has no upgrade from it, although OLD had one or NEW does not offer its version. The table \
counts edges of bundles that one catalog lacks. -o json and -o yaml list all edges.";

/// Arguments of `olm catalog diff`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed   2 wrong usage   4 a catalog or package does not exist
  5 the catalogs differ, with --exit-code

Examples:
  {olm} catalog diff cluster/operatorhubio ./catalog
  {olm} catalog diff registry.example.com/team/catalog:v1 registry.example.com/team/catalog:v2 --exit-code
  {olm} catalog diff ./old ./new --package etcd -o yaml
  {olm} catalog diff ./old ./new -o json | jq '.changedPackages[].stranded[]?'   # fail a pipeline on these")]
pub struct CatalogDiffArgs {
    /// Catalog to compare with: a directory, an image reference, or cluster/NAME
    #[arg(value_name = "OLD")]
    old: String,
    /// Changed catalog: a directory, an image reference, or cluster/NAME
    #[arg(value_name = "NEW")]
    new: String,
    /// Only compare this package; may be given several times
    #[arg(long = "package", value_name = "NAME")]
    packages: Vec<String>,
    /// Exit with 5 if the catalogs differ
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    access: Access,
    #[command(flatten)]
    format: FormatArgs,
}

/// Runs the command.
///
/// # Errors
/// A catalog cannot be read, or they differ and `--exit-code` is set.
pub(crate) async fn run(args: CatalogDiffArgs, session: &mut Session) -> Result<(), CliError> {
    let old = WholeCatalog::read(&args.old, &args.packages, &args.access, session).await?;
    let new = WholeCatalog::read(&args.new, &args.packages, &args.access, session).await?;
    WholeCatalog::require(&[(&args.old, &old), (&args.new, &new)], &args.packages)?;
    let diff = {
        let _step = session.progress.step("comparing the catalogs");
        compare((&args.old, &old.packages), (&args.new, &new.packages))
    };
    session.output.result(args.format.output, "CatalogDiff", &diff, text::table)?;
    if args.exit_code && !diff.empty { Err(CliError::ExitCode(Code::Changes as u8)) } else { Ok(()) }
}
