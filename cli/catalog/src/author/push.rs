//! `olm catalog push`: pushes a catalog image to a registry.

use std::path::PathBuf;
use std::time::Duration;

use olm_cli_core::change;
use olm_cli_core::error::CliError;
use olm_cli_core::output::FormatArgs;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{ClusterArgs, ImageArgs, tagged_reference};
use olm_oci::{ImageLimits, Puller, PushedBlob, RawManifest, Reference};
use olm_pack::{Image, is_image, read_whole_layout};
use serde::Serialize;

use super::build;
use crate::cluster_catalog;

/// Help text of `olm catalog push`.
pub(crate) const ABOUT: &str = "Push a catalog to a registry

Pushes the output of `catalog build`, or a catalog directory, which is checked and built first. Prints the \
reference with the digest, for spec.source.image.ref of a ClusterCatalog.

With --refresh, catalogd pulls the catalog at once, and the command waits until its content is served.";

/// Arguments of `olm catalog push`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  {olm} catalog push ./catalog.oci registry.example.com/team/catalog:v1
  {olm} catalog push ./catalog registry.example.com/team/catalog:latest --authfile auth.json
  {olm} catalog push ./catalog registry.example.com/team/catalog:latest --refresh my-catalog")]
pub struct CatalogPushArgs {
    /// OCI image layout from `catalog build`, or a catalog directory
    #[arg(value_name = "DIR")]
    source: PathBuf,
    /// Destination: REGISTRY/REPOSITORY:TAG
    #[arg(value_name = "REF")]
    reference: String,
    /// ClusterCatalog that pulls this reference: make it pull at once, and wait until it serves the content
    #[arg(long, value_name = "NAME")]
    refresh: Option<String>,
    /// Longest wait for --refresh, such as 90s or 10m
    #[arg(long, value_name = "TIME", value_parser = change::time, default_value = "10m")]
    timeout: Duration,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
    #[command(flatten)]
    format: FormatArgs,
}

/// Pushed image as JSON or YAML.
#[derive(Debug, Serialize)]
pub struct PushedImage {
    /// Reference by digest.
    pub reference: String,
    pub(crate) digest: String,
    /// Reference by tag, as given.
    tag: String,
}

/// Runs the command.
///
/// # Errors
/// The reference has no tag, the directory is neither layout nor valid catalog, the registry rejects the image, or the
/// ClusterCatalog does not serve it in time.
pub(crate) async fn run(args: CatalogPushArgs, session: &mut Session) -> Result<(), CliError> {
    let reference = tagged_reference(&args.reference)?;
    let image = if is_image(&args.source) {
        read_whole_layout(&args.source)?
    } else {
        build::image_of(&args.source, session)?.image
    };
    let refreshed = match &args.refresh {
        Some(catalog) => Some((args.cluster.connect().await?, catalog)),
        None => None,
    };
    if let Some((cluster, catalog)) = &refreshed {
        cluster_catalog::check_refresh(cluster, catalog, &reference, session).await?;
    }
    let pushed = push(&image, &reference, &args.images, session).await?;
    session
        .output
        .result(args.format.output, "PushedCatalog", &pushed, |pushed| format!("{}\n", pushed.reference))?;
    let Some((cluster, catalog)) = refreshed else { return Ok(()) };
    session.output.finish()?;
    cluster_catalog::request_refresh(&cluster, catalog, session).await?;
    say(&cluster_catalog::wait(&cluster, catalog, Some(&pushed.digest), args.timeout, session).await?);
    Ok(())
}

/// Pushes `image` to `reference`, which has a tag.
///
/// # Errors
/// A flag names a file that does not exist, or the registry rejects the image.
pub async fn push(
    image: &Image,
    reference: &Reference,
    images: &ImageArgs,
    session: &Session,
) -> Result<PushedImage, CliError> {
    let puller = Puller::new(images.config(reference, ImageLimits::CATALOG)?);
    let step = session.progress.step(format!("pushing to {reference}"));
    let on_blob = |blob: PushedBlob| {
        let what = if blob.sent { "sent" } else { "known" };
        step.update(format!("pushing to {reference}: {} ({} bytes) {what}", blob.digest, blob.bytes));
    };
    let pushing = async {
        let (manifest, blobs) = (RawManifest::new(image.manifest.clone()), image.blobs().cloned().collect());
        puller.target(reference).await?.push(reference.selector().as_str(), &manifest, blobs, &on_blob).await
    };
    let failed = |error| CliError::operational(format!("push {reference}: {error}"));
    session.unless_interrupted(async { pushing.await.map_err(failed) }).await?;
    let digest = image.digest();
    Ok(PushedImage {
        reference: format!("{}@{digest}", reference.name()),
        digest,
        tag: reference.to_string(),
    })
}
