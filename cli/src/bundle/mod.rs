//! `olm bundle`: commands for bundle authors.

mod validate;

use clap::Subcommand;

use crate::error::CliError;
use crate::session::Session;

/// Subcommands of `olm bundle`.
#[derive(Debug, Subcommand)]
pub(crate) enum BundleCommand {
    /// Check a bundle before it is published
    #[command(long_about = validate::ABOUT)]
    Validate(validate::ValidateArgs),
}

/// Runs a subcommand.
///
/// # Errors
/// Errors of the subcommand.
pub(crate) async fn run(command: BundleCommand, session: &mut Session) -> Result<(), CliError> {
    match command {
        BundleCommand::Validate(args) => validate::run(args, session).await,
    }
}
