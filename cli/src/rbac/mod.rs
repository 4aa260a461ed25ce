//! `olm rbac`: who may do what with extensions.

mod documents;
mod required;

use clap::Subcommand;

use crate::failure::Failure;
use crate::session::Session;

/// The commands about rights.
#[derive(Debug, Subcommand)]
pub(crate) enum RbacCommand {
    /// Prints the rights that installing a bundle needs
    #[command(long_about = required::ABOUT)]
    Required(Box<required::RequiredArgs>),
}

/// Runs a command.
///
/// # Errors
/// Those of the command.
pub(crate) async fn run(command: RbacCommand, session: &mut Session) -> Result<(), Failure> {
    match command {
        RbacCommand::Required(args) => required::run(*args, session).await,
    }
}
