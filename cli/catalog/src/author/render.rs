//! Rendering of bundles and catalogs from a local directory or an image, as `opm render` does
//! (docs/design/cli.md#bundle-annotations).

use std::cell::Cell;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use olm_cli_core::bundle_source::{self, of_image, read_bundle_dir};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::{DirectoryFolder, ImageArgs};
use olm_fbc::{PROPERTY_BUNDLE_OBJECT, PROPERTY_CSV_METADATA};
use olm_oci::{ImageLabels, Reference};
use serde_json::{Value, json};

use super::bundle::{CatalogBundle, catalog_bundle, manifests};
use super::catalog_dir::at;

/// Number of bundles that are pulled in parallel.
pub(super) const PARALLEL: usize = 8;

/// Label of every bundle image (docs/design/cli.md#bundle-annotations).
const PACKAGE_LABEL: &str = "operators.operatorframework.io.bundle.package.v1";
const DATABASE_LABEL: &str = "operators.operatorframework.io.index.database.v1";

/// Pulls the image `reference` and renders its content: the objects of a catalog in the order of its files, or the
/// object of a bundle.
///
/// # Errors
/// The registry fails, or the image is not a valid catalog or bundle. The message names the image.
pub(crate) async fn image(
    reference: &Reference,
    images: &ImageArgs,
    session: &Session,
) -> Result<Vec<Value>, CliError> {
    let kind = Cell::new(Ok(false));
    let catalog = |labels: &ImageLabels| {
        if let Some(folder) = labels.get(olm_oci::CATALOG_LABEL) {
            return Ok(folder.clone());
        }
        kind.set(if labels.contains_key(PACKAGE_LABEL) {
            Ok(true)
        } else {
            Err(undetermined(reference, labels))
        });
        Err("not a catalog".to_owned())
    };
    match images.pull(reference, catalog, session).await {
        Ok(content) => {
            let folder = DirectoryFolder::open(content.path())?;
            objects(&folder, session).map_err(|failure| of_image(reference, failure))
        }
        Err(failure) => match kind.into_inner() {
            Ok(false) => Err(failure),
            Ok(true) => Ok(vec![bundle_image(reference, false, images, session).await?.object]),
            Err(why) => Err(of_image(reference, CliError::operational(why))),
        },
    }
}

/// Pulls the bundle image `reference`. The catalog object refers to it as written, or with `pin` by its digest.
///
/// # Errors
/// The registry fails, or the image contains no bundle. The message names the image.
pub(super) async fn bundle_image(
    reference: &Reference,
    pin: bool,
    images: &ImageArgs,
    session: &Session,
) -> Result<CatalogBundle, CliError> {
    let (files, digest) = bundle_source::pull(reference, images, session).await?;
    let image = if pin { format!("{}@{digest}", reference.name()) } else { reference.to_string() };
    catalog_bundle(&files, &image).map_err(|failure| of_image(reference, failure))
}

/// Converts the bundle in the directory `root`. `image` computes its future image reference.
///
/// # Errors
/// The directory contains no valid bundle. The message names the directory.
pub(crate) fn bundle_dir(
    root: &Path,
    image: impl FnOnce(&CatalogBundle) -> String,
) -> Result<CatalogBundle, CliError> {
    let files = read_bundle_dir(root)?;
    let render = |image: &str| catalog_bundle(&files, image).map_err(|failure| at(root, failure));
    let unnamed = render("")?;
    render(&image(&unnamed))
}

/// Converts the bundle in the directory `root` to an object without image, which has the manifests instead, as that of
/// `opm`.
///
/// # Errors
/// The directory contains no valid bundle. The message names the directory.
pub(crate) fn bundle_dir_without_image(root: &Path) -> Result<Value, CliError> {
    let files = read_bundle_dir(root)?;
    let mut object = catalog_bundle(&files, "").map_err(|failure| at(root, failure))?.object;
    let manifests = manifests(&files).map_err(|failure| at(root, failure))?;
    let encoded = manifests.iter().map(|manifest| {
        let data = BASE64.encode(manifest.to_string());
        json!({ "type": PROPERTY_BUNDLE_OBJECT, "value": { "data": data } })
    });
    if let Some(properties) = object["properties"].as_array_mut() {
        properties.retain(|property| property["type"] != PROPERTY_CSV_METADATA);
        properties.extend(encoded);
    }
    object.as_object_mut().map(|fields| fields.remove("image"));
    Ok(object)
}

/// All objects of a catalog folder.
fn objects(folder: &DirectoryFolder, session: &Session) -> Result<Vec<Value>, CliError> {
    let mut objects = Vec::new();
    olm_fbc::load::<CliError>(folder, &olm_fbc::LoadLimits::default(), &mut |meta| {
        session.check()?;
        if !meta.blob.is_empty() {
            let object = serde_json::from_slice(&meta.blob);
            objects.push(object.map_err(|error| CliError::at(&meta.origin, error))?);
        }
        Ok(())
    })?;
    Ok(objects)
}

/// Error for an image of unknown type, with the text of `opm` on one line
/// (docs/design/cli.md#bundle-annotations).
fn undetermined(reference: &Reference, labels: &ImageLabels) -> String {
    let reference = olm_version::quote(&reference.to_string());
    if labels.contains_key(DATABASE_LABEL) {
        let why = "sqlite-based index images are no longer supported, migrate to a file-based catalog";
        return format!("render {reference}: {why}");
    }
    if labels.is_empty() {
        return format!("render {reference}: image type could not be determined: image has no labels");
    }
    let labels: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let labels = olm_cli_core::output::printable(&labels.join(", "));
    format!("render {reference}: image type could not be determined, found labels {labels}")
}
