//! Signature checks of the images of a catalog, by the functions of the servers.

use std::sync::Arc;

use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use olm_finding::Rule;
use olm_oci::{ImageLimits, Puller, Reference};

use super::finding::{CatalogPlace, Finding, SIGNATURE, UNREADABLE};
use crate::sign::Verifier;

/// Fault of the signatures of `image`, if any, with its rule: a rejection, or signatures that cannot be read.
pub(super) async fn fault(puller: &Arc<Puller>, image: &Reference) -> Option<(&'static Rule, String)> {
    let verified = async {
        let image = puller.resolve(image).await?;
        puller.verify(&image).await
    };
    let error = verified.await.err()?;
    let rule = if error.is_rejected() { &SIGNATURE } else { &UNREADABLE };
    Some((&rule.rule, error.unmarked()))
}

/// Finding about the signatures of the image of the catalog itself, if any.
///
/// # Errors
/// A flag names a file that does not exist, or the command is interrupted.
pub(super) async fn of_catalog(
    image: &Reference,
    verifier: &Verifier,
    images: &ImageArgs,
    session: &Session,
) -> Result<Option<Finding>, CliError> {
    let _step = session.progress.step(format!("verifying {image}"));
    let puller = Arc::new(Puller::new(verifier.applied(images.config(image, ImageLimits::CATALOG)?)));
    let fault = session.interruptible(fault(&puller, image)).await?;
    let place = CatalogPlace { image: image.to_string(), ..CatalogPlace::default() };
    Ok(fault.map(|(rule, message)| Finding::new(rule, place, message)))
}
