//! In-memory image: layers, configuration and manifest, with constructors for catalogs, bundles and programs.

use std::collections::BTreeMap;

use bytes::Bytes;
use oci_distribution::manifest::{
    IMAGE_CONFIG_MEDIA_TYPE, IMAGE_LAYER_GZIP_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciDescriptor,
    OciImageManifest,
};
use serde_json::json;

use crate::{Layer, LayerEntry, PackError, digest_of};

/// Image label that names the content folder of a catalog (docs/design/images.md#layers).
pub const CATALOG_LABEL: &str = "operators.operatorframework.io.index.configs.v1";
/// Image label that names the channels of a bundle (docs/design/bundles.md#image-layout).
pub const BUNDLE_CHANNELS_LABEL: &str = "operators.operatorframework.io.bundle.channels.v1";

/// Runtime settings of an image. Content images have the default, which starts nothing.
#[derive(Debug, Clone)]
pub struct Runtime {
    /// Processor architecture with Go's name, such as `amd64`. It is part of the digest, so content images have the
    /// same one on every machine. Pulls of a single image ignore it.
    pub architecture: String,
    /// Program and fixed arguments.
    pub entrypoint: Vec<String>,
    /// Numeric `uid:gid`, so that `runAsNonRoot` can be checked from the image alone.
    pub user: Option<String>,
    /// Environment as `NAME=value`.
    pub env: Vec<String>,
}

impl Default for Runtime {
    fn default() -> Self {
        Self { architecture: "amd64".to_owned(), entrypoint: Vec::new(), user: None, env: Vec::new() }
    }
}

/// Image for one platform.
#[derive(Debug, Clone)]
pub struct Image {
    /// Layers, lowest first.
    pub layers: Vec<Layer>,
    /// Configuration blob (JSON).
    pub config: Bytes,
    /// Manifest (JSON). Its digest is that of the image.
    pub manifest: Bytes,
}

impl Image {
    /// Builds a Linux image from `layers` with `labels`.
    ///
    /// # Errors
    /// Only those of encoding JSON.
    pub fn new(
        layers: Vec<Layer>,
        labels: &BTreeMap<String, String>,
        runtime: &Runtime,
    ) -> Result<Self, PackError> {
        let mut settings = json!({ "Labels": labels });
        if !runtime.entrypoint.is_empty() {
            settings["Entrypoint"] = json!(runtime.entrypoint);
        }
        if let Some(user) = &runtime.user {
            settings["User"] = json!(user);
        }
        if !runtime.env.is_empty() {
            settings["Env"] = json!(runtime.env);
        }
        let diff_ids: Vec<&String> = layers.iter().map(|layer| &layer.diff_id).collect();
        let config = serde_json::to_vec(&json!({
            "architecture": runtime.architecture,
            "os": "linux",
            "config": settings,
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        }))?;
        let manifest = serde_json::to_vec(&OciImageManifest {
            media_type: Some(OCI_IMAGE_MEDIA_TYPE.to_owned()),
            config: descriptor(IMAGE_CONFIG_MEDIA_TYPE, &config),
            layers: layers.iter().map(|layer| descriptor(IMAGE_LAYER_GZIP_MEDIA_TYPE, &layer.blob)).collect(),
            ..OciImageManifest::default()
        })?;
        Ok(Self { layers, config: config.into(), manifest: manifest.into() })
    }

    /// Builds a catalog image: `files` (path below the catalog folder → content) in `/configs`, which a label
    /// names.
    ///
    /// # Errors
    /// A path that leaves the folder.
    pub fn catalog(files: &BTreeMap<String, Vec<u8>>) -> Result<Self, PackError> {
        let mut entries = BTreeMap::from([("configs".to_owned(), LayerEntry::Dir { mode: 0o755 })]);
        for (path, content) in files {
            entries.insert(format!("configs/{path}"), LayerEntry::file(content.clone()));
        }
        let labels = BTreeMap::from([(CATALOG_LABEL.to_owned(), "/configs".to_owned())]);
        Self::new(vec![Layer::new(&entries)?], &labels, &Runtime::default())
    }

    /// Builds a bundle image: `files` with their paths from the bundle root (`manifests/…`, `metadata/…`). The
    /// labels are the annotations of `metadata/annotations.yaml` (docs/design/bundles.md#image-layout).
    ///
    /// # Errors
    /// `metadata/annotations.yaml` is missing or has no map of strings under `annotations`.
    pub fn bundle(files: &BTreeMap<String, Vec<u8>>) -> Result<Self, PackError> {
        let Some(annotations) = files.get("metadata/annotations.yaml") else {
            return Err(PackError::Bundle("a bundle has a file metadata/annotations.yaml".to_owned()));
        };
        let refused = |why: &str| PackError::Bundle(format!("metadata/annotations.yaml: {why}"));
        let mut document: BTreeMap<String, BTreeMap<String, String>> = serde_saphyr::from_slice(annotations)
            .map_err(|_| refused("expected a map of strings under the key annotations"))?;
        let labels =
            document.remove("annotations").ok_or_else(|| refused("the key annotations is missing"))?;
        let entries =
            files.iter().map(|(path, content)| (path.clone(), LayerEntry::file(content.clone()))).collect();
        Self::new(vec![Layer::new(&entries)?], &labels, &Runtime::default())
    }

    /// Digest of the manifest, as used in a reference by digest.
    pub fn digest(&self) -> String {
        digest_of(&self.manifest)
    }

    /// Blobs that a registry needs before the manifest: layers, then configuration.
    pub fn blobs(&self) -> impl Iterator<Item = &Bytes> {
        self.layers.iter().map(|layer| &layer.blob).chain([&self.config])
    }
}

fn descriptor(media_type: &str, bytes: &[u8]) -> OciDescriptor {
    OciDescriptor {
        media_type: media_type.to_owned(),
        digest: digest_of(bytes),
        size: i64::try_from(bytes.len()).unwrap_or(i64::MAX),
        ..OciDescriptor::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(image: &Image) -> serde_json::Value {
        serde_json::from_slice(&image.config).unwrap()
    }

    #[test]
    fn catalog_has_label_and_one_layer_with_stable_digest() {
        let files = BTreeMap::from([("a/index.yaml".to_owned(), b"schema: x".to_vec())]);
        let image = Image::catalog(&files).unwrap();
        assert_eq!(config(&image)["config"], json!({ "Labels": { CATALOG_LABEL: "/configs" } }));
        assert_eq!(config(&image)["rootfs"]["diff_ids"], json!([image.layers[0].diff_id]));
        // Independent of machine and time. A change here changes the digest of every newly built catalog.
        let digest = "sha256:d09b237f1b23350e04ae40a9537b87ec5836a49b6d1a2d116fe2bddbd8bddefa";
        assert_eq!(image.digest(), digest);
    }

    #[test]
    fn bundle_labels_equal_annotations() {
        let annotations = "annotations:\n  operators.operatorframework.io.bundle.channels.v1: \"4.10\"\n";
        let files = BTreeMap::from([("metadata/annotations.yaml".to_owned(), annotations.into())]);
        let image = Image::bundle(&files).unwrap();
        assert_eq!(config(&image)["config"]["Labels"][BUNDLE_CHANNELS_LABEL], "4.10");
    }

    #[test]
    fn bundle_without_annotations_is_rejected() {
        let error = |files: &[(&str, &str)]| {
            let files =
                files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect();
            Image::bundle(&files).unwrap_err().to_string()
        };
        assert_eq!(error(&[]), "a bundle has a file metadata/annotations.yaml");
        assert_eq!(
            error(&[("metadata/annotations.yaml", "annotations: [a]")]),
            "metadata/annotations.yaml: expected a map of strings under the key annotations"
        );
        assert_eq!(
            error(&[("metadata/annotations.yaml", "other: {}")]),
            "metadata/annotations.yaml: the key annotations is missing"
        );
    }

    #[test]
    fn runtime_settings_are_in_image_configuration() {
        let runtime = Runtime {
            architecture: "arm64".to_owned(),
            entrypoint: vec!["/catalogd".to_owned()],
            user: Some("65532:65532".to_owned()),
            env: vec!["PATH=/".to_owned()],
        };
        let image = Image::new(Vec::new(), &BTreeMap::new(), &runtime).unwrap();
        let expected = json!({
            "Entrypoint": ["/catalogd"], "Env": ["PATH=/"], "Labels": {}, "User": "65532:65532"
        });
        assert_eq!(config(&image)["config"], expected);
        assert_eq!(config(&image)["os"], "linux");
        assert_eq!(config(&image)["architecture"], "arm64");
    }
}
