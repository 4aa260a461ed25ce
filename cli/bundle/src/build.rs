//! `olm bundle build`: builds a bundle image from a directory, without a container engine
//! (docs/design/cli.md#authoring-commands).

use std::path::PathBuf;

use clap::Args;
use olm_cli_core::error::CliError;
use olm_cli_core::output::FormatArgs;
use olm_cli_core::session::Session;
use olm_cli_core::source::tagged_reference;

use super::content;

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Build the image of a bundle

Checks the bundle as `validate` does, packs its directories manifests, metadata and, if there is one, tests into an OCI \
image layout, and prints the digest. The labels of the image are the annotations of metadata/annotations.yaml. The same \
content always yields the same digest. Without --to, only the check is made and the digest printed.";

/// Arguments of `olm bundle build`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed   2 wrong usage   3 the bundle has errors

Examples:
  {olm} bundle build ./bundle                       # check, and print the digest
  {olm} bundle build ./bundle --to ./bundle.oci --tag registry.example.com/team/my-operator-bundle:v1.2.0
  {olm} bundle push ./bundle.oci registry.example.com/team/my-operator-bundle:v1.2.0")]
pub struct BuildArgs {
    /// A directory with the directories manifests and metadata
    #[arg(value_name = "DIR")]
    bundle: PathBuf,
    /// Write the image to this directory, as an OCI image layout
    #[arg(long, value_name = "LAYOUT")]
    to: Option<PathBuf>,
    /// Name of the image in the layout, REGISTRY/REPOSITORY:TAG
    #[arg(long, value_name = "REF")]
    tag: Option<String>,
    #[command(flatten)]
    format: FormatArgs,
}

/// Runs the command.
///
/// # Errors
/// The bundle has errors ([`CliError::Findings`]), cannot be read, or the image cannot be written.
pub(super) fn run(args: BuildArgs, session: &mut Session) -> Result<(), CliError> {
    let tag = args.tag.as_deref().map(tagged_reference).transpose()?.map(|tag| tag.to_string());
    let built = content::built(&content::checked(&args.bundle, &[], session)?)?;
    built.finish("BuiltBundle", args.to, tag, args.format.output, session)
}
