//! Existence and architectures of an image, without its layers.

use std::collections::BTreeSet;

use bytes::Bytes;
use oci_distribution::manifest::{OciImageIndex, OciManifest};
use olm_version::excerpt;
use serde::Deserialize;

use crate::fetch::Hasher;
use crate::image::{ImageLabels, ImageSettings, descriptor, parse, verified_manifest};
use crate::registries::Source;
use crate::request_error::RequestError;
use crate::session::{MAX_MANIFEST, Session};
use crate::{Digest, Selector};

/// Image as its manifest describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspected {
    /// Digest of a single image: that of the reference, or of the first platform in an index. `None` for an index
    /// without platforms.
    pub single: Option<Digest>,
    /// `true` if the image is an index of images for several platforms.
    pub is_index: bool,
    /// Architectures in Go's names, such as `amd64`. Empty for an artifact without an image configuration.
    pub architectures: BTreeSet<String>,
    /// Images of an index, with their architecture. Without attestations.
    pub children: Vec<(String, Digest)>,
    /// Blobs of a single image that the registry does not have. Layers are only checked by
    /// [`Puller::inspect_layers`](crate::Puller::inspect_layers).
    pub missing_blobs: Vec<Digest>,
    /// Labels of a single image. Empty for an index.
    pub labels: ImageLabels,
}

/// Failure to inspect an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct InspectError {
    pub(crate) text: String,
    /// `true` if the registry reports that the image does not exist.
    pub is_missing: bool,
}

impl From<RequestError> for InspectError {
    fn from(error: RequestError) -> Self {
        Self { text: error.to_string(), is_missing: error.not_found }
    }
}

/// Used part of an image configuration.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ImageConfig {
    architecture: String,
    config: Option<ImageSettings>,
}

/// Reads the manifest, which must match a digest of the reference, and the configuration of a single image. Checks that
/// its layers exist if `layers` is `true`.
pub(crate) async fn inspect(
    session: &Session,
    source: &Source,
    selector: &Selector,
    layers: bool,
) -> Result<Inspected, RequestError> {
    let manifest = manifest(session, source, selector).await?;
    let digest = match selector {
        Selector::Digest(digest) => digest.clone(),
        Selector::Tag(_) => Hasher::sha256(&manifest),
    };
    let manifest = match parse(&manifest, &digest).map_err(RequestError::fatal)? {
        OciManifest::Image(manifest) => manifest,
        OciManifest::ImageIndex(index) => return Ok(of_index(&index)),
    };
    let (config, size) =
        descriptor(&manifest.config).map_err(|error| RequestError::fatal(error.to_string()))?;
    let reading = format!("reading config blob {}", excerpt(config.as_str()));
    let mut found = Inspected { single: Some(digest), ..Inspected::default() };
    match session.blob(&config, size.min(MAX_MANIFEST)).await {
        Ok(text) => {
            let config: ImageConfig = serde_json::from_slice(&text).unwrap_or_default();
            found.architectures.extend(Some(config.architecture).filter(|name| !name.is_empty()));
            found.labels = config.config.and_then(|settings| settings.labels).unwrap_or_default();
        }
        Err(error) if error.not_found => found.missing_blobs.push(config),
        Err(error) => return Err(error.within(&reading)),
    }
    let layers = manifest.layers.iter().filter(|layer| layers && !is_foreign(&layer.media_type));
    for layer in layers {
        let (layer, _) = descriptor(layer).map_err(|error| RequestError::fatal(error.to_string()))?;
        let reading = format!("looking for layer {}", excerpt(layer.as_str()));
        if !session.has_blob(&layer).await.map_err(|error| error.within(&reading))? {
            found.missing_blobs.push(layer);
        }
    }
    Ok(found)
}

/// `true` for a layer that registries need not have.
pub(crate) fn is_foreign(media_type: &str) -> bool {
    media_type.contains(".foreign.") || media_type.contains(".nondistributable.")
}

/// Manifest or index, which must match a digest of the reference.
pub(crate) async fn manifest(
    session: &Session,
    source: &Source,
    selector: &Selector,
) -> Result<Bytes, RequestError> {
    let source = &source.reference;
    match selector {
        Selector::Digest(digest) => verified_manifest(session, digest, source).await,
        Selector::Tag(tag) => {
            let reading = format!("reading manifest {tag} in {}", source.name());
            session.manifest(tag).await.map_err(|error| error.within(&reading))
        }
    }
}

fn of_index(index: &OciImageIndex) -> Inspected {
    let mut found = Inspected { is_index: true, ..Inspected::default() };
    for entry in &index.manifests {
        let Some(platform) = &entry.platform else { continue };
        let architecture = platform.architecture.to_string();
        // Attestations are entries of an unknown platform.
        if architecture != "unknown" {
            found.architectures.insert(architecture.clone());
            if let Ok(digest) = entry.digest.parse::<Digest>() {
                found.single.get_or_insert_with(|| digest.clone());
                found.children.push((architecture, digest));
            }
        }
    }
    found
}
