//! References of the image of a catalog. Pure.

use olm_api::ClusterCatalog;
use olm_api::cluster_catalog::{CatalogSourceType, ImageSource};
use olm_api::conditions::types;
use olm_oci::ImageTemplateError;

/// Reference of an image template, or the reason why it has none.
pub type Resolution = Result<String, ImageTemplateError>;

/// The image source, or the message of the terminal error (docs/design/catalogd.md#reconcile-order).
pub fn image(catalog: &ClusterCatalog) -> Result<&ImageSource, String> {
    let source = &catalog.spec.source;
    if source.type_ != CatalogSourceType::Image {
        return Err(format!("terminal error: unknown source type {:?}", source.type_.as_str()));
    }
    let name = catalog.metadata.name.as_deref().unwrap_or_default();
    source
        .image
        .as_ref()
        .ok_or_else(|| format!("terminal error: error parsing ClusterCatalog {name:?}, image source is nil"))
}

/// Digest reference in the status, if the catalog is served.
pub fn served_reference(catalog: &ClusterCatalog) -> Option<&str> {
    let reference = &catalog.status.as_ref()?.resolved_source.as_ref()?.image.ref_;
    catalog.is_true(types::SERVING).then_some(reference.as_str())
}

/// Reference that is pulled, polled and verified (docs/design/catalogd.md#image-templates). `configured` is that of the
/// spec.
pub(super) fn effective_reference<'a>(
    catalog: &'a ClusterCatalog,
    configured: &'a str,
    resolution: Option<&'a Resolution>,
) -> &'a str {
    match resolution {
        None => configured,
        Some(Ok(reference)) => reference,
        // Not that of the spec, if other content was served: it may be that of an older version.
        Some(Err(_)) => served_reference(catalog).unwrap_or(configured),
    }
}
