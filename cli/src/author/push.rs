//! `olm catalog push`: pushes a catalog image to a registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use olm_oci::{Credentials, Limits, Reference};
use olm_pack::{Image, Login, Push, is_layout, read_layout};
use serde::Serialize;

use super::build;
use super::catalog_dir::failed;
use crate::catalog::cluster_catalog;
use crate::change;
use crate::error::CliError;
use crate::output::FormatArgs;
use crate::progress::say;
use crate::session::Session;
use crate::source::{ClusterArgs, ImageArgs, tagged_reference};

/// Largest CA certificate file.
const MAX_CA_FILE: u64 = 4 << 20;

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
pub(crate) struct PushArgs {
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
pub(crate) struct PushedImage {
    /// Reference by digest.
    pub(crate) reference: String,
    pub(crate) digest: String,
    /// Reference by tag, as given.
    tag: String,
}

/// Runs the command.
///
/// # Errors
/// The reference has no tag, the directory is neither layout nor valid catalog, the registry rejects the image, or the
/// ClusterCatalog does not serve it in time.
pub(crate) async fn run(args: PushArgs, session: &mut Session) -> Result<(), CliError> {
    let reference = tagged_reference(&args.reference)?;
    let image = if is_layout(&args.source) {
        read_layout(&args.source)?
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
pub(crate) async fn push(
    image: &Image,
    reference: &Reference,
    images: &ImageArgs,
    session: &Session,
) -> Result<PushedImage, CliError> {
    let options = push_options(reference, images)?;
    let step = session.progress.step(format!("pushing to {reference}"));
    let text = reference.to_string();
    let on_blob = |pushed: olm_pack::Pushed| {
        let what = if pushed.sent { "sent" } else { "known" };
        step.update(format!("pushing to {reference}: {} ({} bytes) {what}", pushed.digest, pushed.bytes));
    };
    let digest = session.unless_interrupted(olm_pack::push(&text, image, &options, &on_blob)).await?;
    Ok(PushedImage { reference: format!("{}@{digest}", reference.name()), digest, tag: text })
}

/// Certificates and login for a push to `reference`.
///
/// # Errors
/// A flag names a file that does not exist or cannot be used.
pub(crate) fn push_options(reference: &Reference, images: &ImageArgs) -> Result<Push, CliError> {
    let config = images.config(reference, Limits::CATALOG)?;
    Ok(Push {
        ca_pems: config.cas_dir.as_deref().map(certificates).transpose()?.unwrap_or_default(),
        login: images.authfile(reference)?.map(|file| login(&file, reference)).transpose()?.flatten(),
    })
}

/// Contents of the files in a certificate directory.
fn certificates(folder: &Path) -> Result<Vec<Vec<u8>>, CliError> {
    let wrong = |error: std::io::Error| failed("read", folder, &error);
    let mut pems = Vec::new();
    for entry in fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let metadata = fs::metadata(&path).map_err(|error| failed("read", &path, &error))?;
        if metadata.is_file() && metadata.len() <= MAX_CA_FILE {
            pems.push(fs::read(&path).map_err(|error| failed("read", &path, &error))?);
        }
    }
    Ok(pems)
}

/// Login for `reference` in a credentials file.
fn login(file: &Path, reference: &Reference) -> Result<Option<Login>, CliError> {
    let wrong =
        |why: &dyn std::fmt::Display| CliError::operational(format!("credentials {}: {why}", file.display()));
    let text = fs::read(file).map_err(|error| wrong(&error))?;
    let credentials = Credentials::parse(&text).map_err(|error| wrong(&error))?;
    let found = credentials.lookup(reference.host(), reference.path()).map_err(|error| wrong(&error))?;
    let Some(found) = found else { return Ok(None) };
    if found.identity_token.is_some() && found.password.is_empty() {
        let why = "an identity token cannot be used for pushing; log in with user name and password";
        return Err(wrong(&format!("{}: {why}", reference.host())));
    }
    Ok(Some(Login { username: found.username.clone(), password: found.password.clone() }))
}
