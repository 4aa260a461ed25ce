//! Archive of `docker save`, which lists its images in a file of its own.

use bytes::Bytes;
use oci_distribution::manifest::{
    IMAGE_CONFIG_MEDIA_TYPE, IMAGE_LAYER_GZIP_MEDIA_TYPE, IMAGE_LAYER_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE,
};
use serde::Deserialize;
use serde_json::json;

use crate::files::{Files, unusable};
use crate::layout::MAX_JSON;
use crate::read::{Configuration, MAX_LAYER, parse};
use crate::{Image, Layer, PackError, digest_of};

/// List of the images.
pub(crate) const INDEX: &str = "manifest.json";

/// Image in the list of `docker save`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Option<Vec<String>>,
}

/// The image in an archive of `docker save`, with a manifest that it lacks.
pub(crate) fn image(files: &Files) -> Result<Image, PackError> {
    let images: Vec<Saved> = parse(files, INDEX, &files.read(INDEX, MAX_JSON)?)?;
    let [saved] = images.as_slice() else {
        let tags: Vec<&str> =
            images.iter().flat_map(|image| image.repo_tags.iter().flatten()).map(String::as_str).collect();
        let why = format!("the archive holds {} images, expected one: {}", images.len(), tags.join(", "));
        return Err(unusable(&files.path(INDEX), &why));
    };
    let config = files.read(&saved.config, MAX_JSON)?;
    let configuration: Configuration = parse(files, &saved.config, &config)?;
    let mut layers = Vec::new();
    for (index, name) in saved.layers.iter().flatten().enumerate() {
        let diff_id = configuration.rootfs.diff_ids.get(index).cloned().unwrap_or_default();
        layers.push(Layer { blob: files.read(name, MAX_LAYER)?, diff_id });
    }
    let descriptor = |media_type: &str, blob: &Bytes| json!({"mediaType": media_type, "digest": digest_of(blob), "size": blob.len()});
    let layer = |layer: &Layer| {
        let is_compressed = layer.blob.starts_with(&[0x1f, 0x8b]);
        descriptor(
            if is_compressed { IMAGE_LAYER_GZIP_MEDIA_TYPE } else { IMAGE_LAYER_MEDIA_TYPE },
            &layer.blob,
        )
    };
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": OCI_IMAGE_MEDIA_TYPE,
        "config": descriptor(IMAGE_CONFIG_MEDIA_TYPE, &config),
        "layers": layers.iter().map(layer).collect::<Vec<_>>(),
    }))?;
    Ok(Image { layers, config, manifest: manifest.into() })
}
