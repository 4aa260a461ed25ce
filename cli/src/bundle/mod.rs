//! `olm bundle`: for authors of bundles.

mod validate;

use clap::Subcommand;

use crate::failure::Failure;
use crate::session::Session;

/// The commands about bundles.
#[derive(Debug, Subcommand)]
pub(crate) enum BundleCommand {
    /// Checks a bundle before it is published
    #[command(long_about = validate::ABOUT)]
    Validate(validate::ValidateArgs),
}

/// Runs a command.
///
/// # Errors
/// Those of the command.
pub(crate) async fn run(command: BundleCommand, session: &mut Session) -> Result<(), Failure> {
    match command {
        BundleCommand::Validate(args) => validate::run(args, session).await,
    }
}
