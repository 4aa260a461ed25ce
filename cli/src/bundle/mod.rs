//! `olm bundle`: commands for bundle authors.

mod generate;
mod validate;

use clap::Subcommand;

use crate::error::CliError;
use crate::session::Session;

/// Subcommands of `olm bundle`.
#[derive(Debug, Subcommand)]
pub(crate) enum BundleCommand {
    /// Make a bundle from the manifests of an operator
    #[command(long_about = generate::ABOUT)]
    Generate(generate::GenerateArgs),
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
        BundleCommand::Generate(args) => generate::run(args, session).await,
        BundleCommand::Validate(args) => validate::run(args, session).await,
    }
}
