//! `olm rbac`: permissions for extensions, and for the users of their APIs.

mod access;
mod apis;
mod documents;
mod grant;
mod required;
mod subject;
mod who;

use clap::Subcommand;
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;

/// Subcommands of `olm rbac`.
#[derive(Debug, Subcommand)]
pub enum RbacCommand {
    /// Print the permissions that installing a bundle requires
    #[command(long_about = required::ABOUT)]
    Required(Box<required::RequiredArgs>),
    /// Give a user, group or service account access to the APIs of an extension
    #[command(long_about = grant::ABOUT)]
    Grant(Box<grant::GrantArgs>),
    /// Show who has access to the APIs of an extension
    #[command(long_about = who::ABOUT)]
    Who(Box<who::WhoArgs>),
}

/// Runs a subcommand.
///
/// # Errors
/// Errors of the subcommand.
pub async fn run(command: RbacCommand, session: &mut Session) -> Result<(), CliError> {
    match command {
        RbacCommand::Required(args) => required::run(*args, session).await,
        RbacCommand::Grant(args) => grant::run(*args, session).await,
        RbacCommand::Who(args) => who::run(*args, session).await,
    }
}
