//! `olm system`: installs, upgrades, checks and uninstalls the servers (docs/design/operations.md#olm-system).
//!
//! [`manifest`] has the objects and their order, [`observe`] reads the cluster, and [`check`], which is pure, derives the
//! checks before a change, and [`grants`] what the extensions need. [`apply`] writes objects and returns them to their state before, and [`ready`], which is
//! pure, judges when the servers are ready.

mod apply;
mod check;
pub mod doctor;
mod grants;
mod install;
mod manifest;
mod observe;
mod ready;
mod record;
mod status;
mod uninstall;

#[cfg(test)]
mod tests;

use clap::Subcommand;
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;

/// Subcommands of `olm system`.
#[derive(Debug, Subcommand)]
pub enum SystemCommand {
    /// Install OLM on a cluster, after checks
    #[command(long_about = install::ABOUT, after_help = install::EXAMPLES)]
    Install(Box<install::SystemInstallArgs>),
    /// Upgrade OLM; extensions and their pods do not change
    #[command(long_about = install::ABOUT_UPGRADE, after_help = install::EXAMPLES)]
    Upgrade(Box<install::SystemInstallArgs>),
    /// Show versions and health of the servers
    #[command(long_about = status::ABOUT)]
    Status(status::SystemStatusArgs),
    /// Uninstall OLM. Lists what is deleted and what stays, then asks
    #[command(long_about = uninstall::ABOUT)]
    Uninstall(uninstall::SystemUninstallArgs),
}

/// Runs a subcommand.
///
/// # Errors
/// Errors of the subcommand.
pub async fn run(command: SystemCommand, session: &mut Session) -> Result<(), CliError> {
    match command {
        SystemCommand::Install(args) => install::run(*args, false, session).await,
        SystemCommand::Upgrade(args) => install::run(*args, true, session).await,
        SystemCommand::Status(args) => status::run(args, session).await,
        SystemCommand::Uninstall(args) => uninstall::run(args, session).await,
    }
}
