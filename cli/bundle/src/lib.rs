//! `olm bundle`: commands for bundle authors.

mod build;
mod content;
mod edit;
mod generate;
mod previous;
mod push;
pub mod run;
mod unpack;
mod validate;

use clap::Subcommand;
use olm_cli_catalog::sign;
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;

/// Subcommands of `olm bundle`.
#[derive(Debug, Subcommand)]
pub enum BundleCommand {
    /// Make a bundle from the manifests of an operator
    #[command(long_about = generate::ABOUT)]
    Generate(Box<generate::GenerateArgs>),
    /// Check a bundle before it is published
    #[command(long_about = validate::ABOUT)]
    Validate(validate::ValidateArgs),
    /// Build the image of a bundle
    #[command(long_about = build::ABOUT)]
    Build(build::BuildArgs),
    /// Push a bundle to a registry
    #[command(long_about = push::ABOUT)]
    Push(push::PushArgs),
    /// Write the files of a bundle image to a directory
    #[command(long_about = unpack::ABOUT)]
    Unpack(unpack::UnpackArgs),
    /// Install a bundle and follow the logs of its operator
    #[command(long_about = run::ABOUT)]
    Run(Box<run::RunArgs>),
    /// Sign a bundle image, and attach an SBOM or provenance
    #[command(long_about = sign::ABOUT)]
    Sign(Box<sign::SignArgs>),
    /// Check the signatures of a bundle image, and list attached files
    #[command(long_about = sign::verify::ABOUT)]
    Verify(Box<sign::verify::VerifyArgs>),
    /// Generate a pair of keys for signatures
    #[command(long_about = sign::KEYGEN_ABOUT)]
    Keygen(sign::KeygenArgs),
}

/// Runs a subcommand.
///
/// # Errors
/// Errors of the subcommand.
pub async fn run(command: BundleCommand, session: &mut Session) -> Result<(), CliError> {
    match command {
        BundleCommand::Generate(args) => generate::run(*args, session).await,
        BundleCommand::Validate(args) => validate::run(args, session).await,
        BundleCommand::Build(args) => build::run(args, session),
        BundleCommand::Push(args) => push::run(args, session).await,
        BundleCommand::Unpack(args) => unpack::run(args, session).await,
        BundleCommand::Run(args) => run::run(*args, session).await,
        BundleCommand::Sign(args) => sign::run(*args, session).await,
        BundleCommand::Verify(args) => sign::verify::run(*args, session).await,
        BundleCommand::Keygen(args) => sign::generate(args, session).await,
    }
}
