//! `olm bundle push`: pushes a bundle image to a registry, after checking the images that it refers to.

use std::path::PathBuf;

use clap::Args;
use olm_cli_catalog::author::{catalog_bundle, push};
use olm_cli_catalog::verify::check_images;
use olm_cli_core::bundle_source::BundleFiles;
use olm_cli_core::error::CliError;
use olm_cli_core::output::{FormatArgs, counted};
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{ImageArgs, tagged_reference};
use olm_finding::Level;
use olm_pack::is_image;

use super::previous::PreviousArgs;
use super::{content, edit};

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Push a bundle to a registry

Pushes the output of `bundle build`, or a bundle directory, which is checked and built first. Prints the reference with \
the digest, for a catalog.

First, the images that the bundle refers to are checked: those of its deployments, and its related images. Nothing is \
pushed if one does not exist, or lacks an architecture that the bundle supports: those of the labels \
operatorframework.io/arch.* of its ClusterServiceVersion, else amd64. An image that cannot be checked, such as one of a \
registry without access, is a warning.";

/// Arguments of `olm bundle push`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes:
  0 success   1 operation failed   2 wrong usage   3 the bundle, an image that it refers to, or the upgrade has errors

Examples:
  {olm} bundle push ./bundle registry.example.com/team/my-operator-bundle:v1.2.0
  {olm} bundle push ./bundle.oci registry.example.com/team/my-operator-bundle:v1.2.0 --authfile auth.json
  {olm} bundle push ./bundle registry.example.com/team/my-operator-bundle:v1.2.0 --pin
  {olm} bundle push ./bundle registry.example.com/team/my-operator-bundle:v1.2.0 \\
    --previous registry.example.com/team/my-operator-bundle:v1.1.0
  {olm} bundle push ./bundle localhost:5000/my-operator-bundle:dev --no-images --ca-dir ./ca")]
pub struct PushArgs {
    /// A bundle directory, or an OCI image layout from `bundle build`
    #[arg(value_name = "DIR|LAYOUT")]
    source: PathBuf,
    /// Destination: REGISTRY/REPOSITORY:TAG
    #[arg(value_name = "REF")]
    reference: String,
    /// In the pushed image, replace the tags of the images that the bundle refers to by their digests
    #[arg(long)]
    pin: bool,
    /// Do not check the images that the bundle refers to
    #[arg(long)]
    no_images: bool,
    #[command(flatten)]
    previous: PreviousArgs,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    format: FormatArgs,
}

/// Runs the command.
///
/// # Errors
/// The reference has no tag, the source is neither a layout nor a valid bundle, an image that it refers to is missing,
/// or the registry rejects the image.
pub(super) async fn run(args: PushArgs, session: &mut Session) -> Result<(), CliError> {
    let reference = tagged_reference(&args.reference)?;
    let (image, files) = if is_image(&args.source) {
        if args.pin {
            let why = "its content is final; push the directory of the bundle";
            return Err(CliError::usage(format!("--pin: {} is an image: {why}", args.source.display())));
        }
        content::of_layout(&args.source).await?
    } else {
        let mut files = content::checked(&args.source, &[], session)?;
        if args.pin {
            edit::pin(&mut files.files, &args.images, session).await?;
        }
        (content::built(&files)?.image, files)
    };
    if !args.no_images {
        require_images(&files, &args.images, session).await?;
    }
    if !args.previous.check(&files.files, &args.images, session).await? {
        say(&format!("{}: the upgrade has errors, nothing was pushed", files.origin));
        return Err(CliError::Findings);
    }
    let pushed = push::push(&image, &reference, &args.images, session).await?;
    session
        .output
        .result(args.format.output, "PushedBundle", &pushed, |pushed| format!("{}\n", pushed.reference))
}

/// Checks the images that the bundle refers to, and prints the findings.
///
/// # Errors
/// An image does not exist, or lacks an architecture.
async fn require_images(files: &BundleFiles, images: &ImageArgs, session: &Session) -> Result<(), CliError> {
    // Without a reference of its own, the bundle image is not checked.
    let bundle = catalog_bundle(&files.files, "")?;
    let findings = check_images(&bundle, images, session).await?;
    for finding in &findings {
        let (level, image, rule) = (finding.level.name(), &finding.place.image, finding.rule.id);
        say(&format!("{level}: image {image}: {} [{rule}]", finding.message));
    }
    let errors = findings.iter().filter(|finding| finding.level == Level::Error).count();
    if errors == 0 {
        return Ok(());
    }
    let what = counted(errors, "image");
    say(&format!("{}: {what} with errors, nothing was pushed; --no-images skips this check", files.origin));
    Err(CliError::Findings)
}
