//! Command line: names, flags, help.

use clap::{CommandFactory, Parser, Subcommand};
use olm_cli_bundle::BundleCommand;
use olm_cli_catalog::CatalogCommand;
use olm_cli_catalog::validate::{self, CatalogValidateArgs};
use olm_cli_console::ConsoleArgs;
use olm_cli_lifecycle::apis::{self, ApisArgs};
use olm_cli_lifecycle::cluster_check::{self, ClusterCheckArgs};
use olm_cli_lifecycle::config::ConfigCommand;
use olm_cli_lifecycle::crd_check::{self, CrdCheckArgs};
use olm_cli_lifecycle::diff::{self, DiffArgs};
use olm_cli_lifecycle::history::{self, HistoryArgs};
use olm_cli_lifecycle::install::{self, InstallArgs};
use olm_cli_lifecycle::plan::approve::{self, ApproveArgs};
use olm_cli_lifecycle::plan::{self, PlanArgs};
use olm_cli_lifecycle::rbac::RbacCommand;
use olm_cli_lifecycle::render::{self, RenderArgs};
use olm_cli_lifecycle::resolve::{self, ResolveArgs};
use olm_cli_lifecycle::rollback::{self, RollbackArgs};
use olm_cli_lifecycle::status::{self, StatusArgs};
use olm_cli_lifecycle::uninstall::{self, UninstallArgs};
use olm_cli_lifecycle::upgrade::{self, UpgradeArgs};
use olm_cli_migrate::MigrateCommand;
use olm_cli_system::SystemCommand;
use olm_cli_system::doctor::{self, DoctorArgs};

use crate::shell::{self, CompletionArgs, ManArgs};

/// Manage extensions and catalogs of Operator Lifecycle Manager v1
#[derive(Debug, Parser)]
#[command(
    name = "olm",
    version = olm_runtime::component::VERSION,
    arg_required_else_help = true,
    after_help = "Exit codes:
  0 success   1 operation failed   2 wrong usage
  3 the check found errors, or the cluster would reject the change
  4 the requested object does not exist, or the verdict is negative
  5 there are changes, with diff --exit-code
  6 the plan requires an approval, with plan

Examples:
  {olm} install my-operator -n my-operator --create-namespace --wait
  {olm} status my-operator                         # health, and the object that blocks the rollout
  {olm} doctor                                     # what is wrong with the installation?
  {olm} apis -n my-team                            # the APIs of operators, and your rights on them
  {olm} catalog ls                                 # the catalogs of the cluster
  {olm} catalog ls quay.io/operatorhubio/catalog:latest
  {olm} catalog graph ./catalog my-operator        # upgrade edges as the cluster sees them
  {olm} resolve my-operator --explain              # what would be installed, and why
  {olm} cluster-check                              # may the cluster be upgraded?
  {olm} crd-check old.yaml new.yaml                # would the new CRDs break existing ones?
  {olm} render ./bundle --namespace my-operator    # the objects of a bundle as they are applied
  {olm} diff --extension my-operator               # what the next upgrade would change
  {olm} plan my-operator                           # what waits for an approval
  {olm} validate ./catalog"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Install a package; prints the chosen bundle first
    #[command(long_about = install::ABOUT)]
    Install(Box<InstallArgs>),
    /// Change the version range, channel or upgrade policy of an extension; prints the resulting upgrade first
    #[command(long_about = upgrade::ABOUT)]
    Upgrade(Box<UpgradeArgs>),
    /// Show what the next revision of an extension changes, and whether it waits for an approval
    #[command(long_about = plan::ABOUT)]
    Plan(Box<PlanArgs>),
    /// Approve the plan of an extension
    #[command(long_about = approve::ABOUT)]
    Approve(Box<ApproveArgs>),
    /// Uninstall an extension. Lists the objects, CRDs and custom resources that will be deleted, then asks
    #[command(long_about = uninstall::ABOUT)]
    Uninstall(UninstallArgs),
    /// Show the health of extensions, including the object that blocks the rollout
    #[command(long_about = status::ABOUT)]
    Status(StatusArgs),
    /// Find faults of an installation and their remedies, and collect support data
    #[command(long_about = doctor::ABOUT)]
    Doctor(DoctorArgs),
    /// Show the revisions of an extension and the possible rollback targets
    #[command(long_about = history::ABOUT)]
    History(HistoryArgs),
    /// Return an extension to an earlier bundle
    #[command(long_about = rollback::ABOUT)]
    Rollback(Box<RollbackArgs>),
    /// Show which bundle of a package would be installed, and why
    #[command(long_about = resolve::ABOUT)]
    Resolve(Box<ResolveArgs>),
    /// Check whether the installed extensions allow the next cluster version
    #[command(long_about = cluster_check::ABOUT)]
    ClusterCheck(ClusterCheckArgs),
    /// Check whether new CustomResourceDefinitions break existing custom resources
    #[command(long_about = crd_check::ABOUT)]
    CrdCheck(CrdCheckArgs),
    /// Show the changes that a bundle makes: objects, permissions, CRDs, configuration
    #[command(long_about = diff::ABOUT)]
    Diff(Box<DiffArgs>),
    /// Print the objects that operator-controller applies for a bundle
    #[command(long_about = render::ABOUT)]
    Render(Box<RenderArgs>),
    /// Check a catalog; the same as `catalog validate`
    #[command(long_about = validate::ABOUT)]
    Validate(CatalogValidateArgs),
    /// Show the APIs of operators in a namespace, and what you may do with them
    #[command(long_about = apis::ABOUT)]
    Apis(ApisArgs),
    /// Open a console in the browser: catalogs, packages, extensions
    #[command(long_about = olm_cli_console::ABOUT)]
    Console(Box<ConsoleArgs>),
    /// Install, upgrade, check and uninstall OLM itself
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  {olm} system install
  {olm} system upgrade --dry-run
  {olm} system status"
    )]
    System(SystemCommand),
    /// Move from classic OLM to ClusterExtensions
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  {olm} migrate scan
  {olm} migrate scan --from ./must-gather"
    )]
    Migrate(MigrateCommand),
    /// Show the configuration that a bundle accepts
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  {olm} config explain my-operator
  {olm} config example my-operator > config.yaml
  {olm} config schema ./bundle"
    )]
    Config(ConfigCommand),
    /// Print required permissions, and manage access to the APIs of extensions
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  {olm} rbac required my-operator -n my-operator
  {olm} rbac required ./bundle -n my-operator -o table
  {olm} rbac grant my-operator --to user:ann --role edit -n shop
  {olm} rbac who my-operator -n shop"
    )]
    Rbac(RbacCommand),
    /// Check, build, publish and run bundles
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  {olm} bundle validate ./bundle
  {olm} bundle validate --rules
  {olm} bundle run ./bundle -n my-operator --push-to registry.example.com/me/my-operator"
    )]
    Bundle(BundleCommand),
    /// Read, check and create catalogs
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "Examples:
  {olm} catalog ls cluster/operatorhubio
  {olm} catalog render ./catalog
  {olm} catalog --help"
    )]
    Catalog(CatalogCommand),
    /// Print the completion script of a shell
    #[command(long_about = shell::ABOUT)]
    Completion(CompletionArgs),
    /// Write the manual pages of all commands to a folder
    #[command(hide = true)]
    Man(ManArgs),
}

/// Command line with usage and examples for the program name `program`.
pub(crate) fn command_line(program: &'static str) -> clap::Command {
    with_program(Cli::command().bin_name(program), program)
}

/// Replaces `{olm}` in the examples by the program name.
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
    fn command_line_passes_clap_debug_assert() {
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
