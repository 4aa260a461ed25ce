//! The command line: names, flags, help.

use clap::{CommandFactory, Parser, Subcommand};

use crate::bundle::BundleCommand;
use crate::catalog::CatalogCommand;
use crate::cluster_check::{self, ClusterCheckArgs};
use crate::crd_check::{self, CrdCheckArgs};
use crate::diff::{self, DiffArgs};
use crate::history::{self, HistoryArgs};
use crate::install::{self, InstallArgs};
use crate::rbac::RbacCommand;
use crate::render::{self, RenderArgs};
use crate::resolve::{self, ResolveArgs};
use crate::rollback::{self, RollbackArgs};
use crate::status::{self, StatusArgs};
use crate::uninstall::{self, UninstallArgs};
use crate::upgrade::{self, UpgradeArgs};
use crate::validate::{self, ValidateArgs};

/// Reads, checks and makes catalogs of Operator Lifecycle Manager v1, and tells what is installed from them
#[derive(Debug, Parser)]
#[command(
    name = "olm",
    version,
    arg_required_else_help = true,
    after_help = "Exit codes:
  0 success   1 something did not work   2 wrong usage   3 the check found errors
  4 what was asked for does not exist   5 something changes, where that was asked

Examples:
  {olm} install my-operator -n my-operator --create-namespace --wait
  {olm} status my-operator                         # how it is, and what it is waiting for
  {olm} catalog ls                                 # the catalogs of the cluster
  {olm} catalog ls quay.io/operatorhubio/catalog:latest
  {olm} catalog graph ./catalog my-operator        # upgrade edges as the cluster sees them
  {olm} resolve my-operator --explain              # what would be installed, and why
  {olm} cluster-check                              # may the cluster be upgraded?
  {olm} crd-check old.yaml new.yaml                # would the new CRDs break what exists?
  {olm} render ./bundle --namespace my-operator    # the objects that a bundle is installed as
  {olm} diff --extension my-operator               # what the next upgrade would change
  {olm} validate ./catalog"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Installs a package, after saying which bundle that means
    #[command(long_about = install::ABOUT)]
    Install(Box<InstallArgs>),
    /// Changes which versions an extension may have, after saying where that leads
    #[command(long_about = upgrade::ABOUT)]
    Upgrade(Box<UpgradeArgs>),
    /// Deletes an extension, after counting what goes with it
    #[command(long_about = uninstall::ABOUT)]
    Uninstall(UninstallArgs),
    /// Shows how extensions are, down to the object that one hangs on
    #[command(long_about = status::ABOUT)]
    Status(StatusArgs),
    /// Shows the revisions of an extension, and where a rollback may go
    #[command(long_about = history::ABOUT)]
    History(HistoryArgs),
    /// Takes an extension back to a bundle that it had
    #[command(long_about = rollback::ABOUT)]
    Rollback(Box<RollbackArgs>),
    /// Shows which bundle of a package would be installed, and why
    #[command(long_about = resolve::ABOUT)]
    Resolve(Box<ResolveArgs>),
    /// Tells whether the installed extensions allow the cluster's next version
    #[command(long_about = cluster_check::ABOUT)]
    ClusterCheck(ClusterCheckArgs),
    /// Tells whether new CustomResourceDefinitions break what exists
    #[command(long_about = crd_check::ABOUT)]
    CrdCheck(CrdCheckArgs),
    /// Shows what a bundle changes: objects, permissions, CRDs, configuration
    #[command(long_about = diff::ABOUT)]
    Diff(Box<DiffArgs>),
    /// Prints the objects that a bundle is installed as
    #[command(long_about = render::ABOUT)]
    Render(Box<RenderArgs>),
    /// Checks a catalog; the same as `catalog validate`
    #[command(long_about = validate::ABOUT)]
    Validate(ValidateArgs),
    /// Tells which rights are needed
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  {olm} rbac required my-operator -n my-operator
  {olm} rbac required ./bundle -n my-operator -o table"
    )]
    Rbac(RbacCommand),
    /// Checks bundles
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  {olm} bundle validate ./bundle
  {olm} bundle validate --rules"
    )]
    Bundle(BundleCommand),
    /// Reads, checks and makes catalogs
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  {olm} catalog ls cluster/operatorhubio
  {olm} catalog render ./catalog
  {olm} catalog --help"
    )]
    Catalog(CatalogCommand),
}

/// The command line for a user who calls the program `program`: usage and examples say it that way.
pub(crate) fn command_line(program: &'static str) -> clap::Command {
    with_program(Cli::command().bin_name(program), program)
}

/// Examples are written with `{olm}` for the program.
fn with_program(command: clap::Command, program: &str) -> clap::Command {
    let examples = command.get_after_help().map(|text| text.to_string().replace("{olm}", program));
    let command = match examples {
        Some(examples) => command.after_help(examples),
        None => command,
    };
    command.mut_subcommands(|command| with_program(command, program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command_line("olm").debug_assert();
    }

    #[test]
    fn every_command_has_examples() {
        fn check(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{} has no examples", command.get_name());
            assert!(!help.contains("{olm}"), "{help}");
            command.get_subcommands().for_each(check);
        }
        check(&command_line("kubectl olm"));
    }
}
