//! `olm rbac`: permissions for extensions.

mod documents;
mod required;

use clap::Subcommand;

use crate::error::CliError;
use crate::session::Session;

/// Subcommands of `olm rbac`.
#[derive(Debug, Subcommand)]
pub(crate) enum RbacCommand {
    /// Print the permissions that installing a bundle requires
    #[command(long_about = required::ABOUT)]
    Required(Box<required::RequiredArgs>),
}

/// Runs a subcommand.
///
/// # Errors
/// Errors of the subcommand.
pub(crate) async fn run(command: RbacCommand, session: &mut Session) -> Result<(), CliError> {
    match command {
        RbacCommand::Required(args) => required::run(*args, session).await,
    }
}
