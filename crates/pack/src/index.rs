//! Index of images of the same program for several architectures.

use std::collections::BTreeMap;

use bytes::Bytes;
use oci_distribution::manifest::{OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE};
use serde_json::json;

use crate::{Image, PackError, digest_of, layout};

/// Linux images by architecture, with the index (JSON) that lists them.
#[derive(Debug, Clone)]
pub struct ImageIndex {
    /// Images by architecture, with Go's names.
    pub images: BTreeMap<String, Image>,
    /// Index (JSON), sorted by architecture. Its digest is that of the image name.
    pub manifest: Bytes,
}

impl ImageIndex {
    /// Lists `images`, by architecture.
    ///
    /// # Errors
    /// Only those of encoding JSON.
    pub fn new(images: BTreeMap<String, Image>) -> Result<Self, PackError> {
        let entries: Vec<_> = images
            .iter()
            .map(|(architecture, image)| {
                json!({
                    "mediaType": OCI_IMAGE_MEDIA_TYPE,
                    "digest": image.digest(),
                    "size": image.manifest.len(),
                    "platform": { "architecture": architecture, "os": "linux" },
                })
            })
            .collect();
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": OCI_IMAGE_INDEX_MEDIA_TYPE,
            "manifests": entries,
        }))?;
        Ok(Self { images, manifest: manifest.into() })
    }

    /// Digest of the index, as used in a reference by digest.
    pub fn digest(&self) -> String {
        digest_of(&self.manifest)
    }

    /// All files of a layout that contains the index under `name`, by path.
    pub(crate) fn layout_files(&self, name: &str) -> Result<BTreeMap<String, Bytes>, PackError> {
        let blobs = self.images.values().flat_map(|image| image.blobs().chain([&image.manifest]));
        layout::files_of(OCI_IMAGE_INDEX_MEDIA_TYPE, &self.manifest, blobs, Some(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Runtime;

    #[test]
    fn index_lists_images_with_their_platforms_and_archive_has_all_blobs() {
        let image = |architecture: &str| {
            let runtime = Runtime { architecture: architecture.to_owned(), ..Runtime::default() };
            (architecture.to_owned(), Image::new(Vec::new(), &BTreeMap::new(), &runtime).unwrap())
        };
        let index = ImageIndex::new(BTreeMap::from(["arm64", "amd64"].map(image))).unwrap();
        let manifest: serde_json::Value = serde_json::from_slice(&index.manifest).unwrap();
        assert_eq!(manifest["manifests"][0]["platform"], json!({"architecture": "amd64", "os": "linux"}));
        assert_eq!(manifest["manifests"][1]["platform"], json!({"architecture": "arm64", "os": "linux"}));
        assert_eq!(manifest["manifests"][1]["digest"], index.images["arm64"].digest());

        let files = index.layout_files("registry.example.com/olm/catalogd:v1").unwrap();
        let layout: serde_json::Value = serde_json::from_slice(&files["index.json"]).unwrap();
        assert_eq!(layout["manifests"][0]["mediaType"], OCI_IMAGE_INDEX_MEDIA_TYPE);
        assert_eq!(layout["manifests"][0]["digest"], index.digest());
        assert_eq!(files.len(), 7, "layout, index.json, index, and configuration and manifest of each image");
    }
}
