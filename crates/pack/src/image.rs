//! An image in memory: layers, configuration and manifest, with the contents for catalogs, bundles and programs.

use std::collections::BTreeMap;

use bytes::Bytes;
use oci_distribution::manifest::{
    IMAGE_CONFIG_MEDIA_TYPE, IMAGE_LAYER_GZIP_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciDescriptor,
    OciImageManifest,
};
use serde_json::json;

use crate::{Layer, LayerEntry, PackError, digest_of};

/// Image label that names the folder of a catalog's content (docs/design/images.md#layers).
pub const CATALOG_LABEL: &str = "operators.operatorframework.io.index.configs.v1";
/// Image label that names the channels of a bundle (docs/design/bundles.md#image-layout).
pub const BUNDLE_CHANNELS_LABEL: &str = "operators.operatorframework.io.bundle.channels.v1";

/// How a container runtime starts an image; content images have the default, which starts nothing.
#[derive(Debug, Clone)]
pub struct Runtime {
    /// Processor in Go's names, such as `amd64`. Images of content have the same one wherever they are made, since it enters
    /// the digest; pulling a single image does not look at it.
    pub architecture: String,
    /// Program and fixed arguments.
    pub entrypoint: Vec<String>,
    /// Numeric `uid:gid`, so that `runAsNonRoot` can be decided from the image alone.
    pub user: Option<String>,
    /// Environment as `NAME=value`.
    pub env: Vec<String>,
}

impl Default for Runtime {
    fn default() -> Self {
        Self { architecture: "amd64".to_owned(), entrypoint: Vec::new(), user: None, env: Vec::new() }
    }
}

/// An image for one platform.
#[derive(Debug, Clone)]
pub struct Image {
    /// The layers, lowest first.
    pub layers: Vec<Layer>,
    /// The configuration blob (JSON).
    pub config: Bytes,
    /// The manifest (JSON); its digest is the image's.
    pub manifest: Bytes,
}

impl Image {
    /// A Linux image of `layers` with `labels`.
    ///
    /// # Errors
    /// None but those of encoding JSON.
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

    /// A catalog: `files` (path below the catalog's folder → content) in `/configs`, which the image's label names.
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

    /// A bundle: `files` with their paths from the bundle's root (`manifests/…`, `metadata/…`). The labels are the
    /// annotations of `metadata/annotations.yaml` (docs/design/bundles.md#image-layout).
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

    /// Digest of the manifest: what a digest reference to this image ends with.
    #[must_use]
    pub fn digest(&self) -> String {
        digest_of(&self.manifest)
    }

    /// The blobs that a registry needs before the manifest: layers, then configuration.
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
    fn catalog_has_its_label_and_one_layer() {
        let files = BTreeMap::from([("a/index.yaml".to_owned(), b"schema: x".to_vec())]);
        let image = Image::catalog(&files).unwrap();
        assert_eq!(config(&image)["config"], json!({ "Labels": { CATALOG_LABEL: "/configs" } }));
        assert_eq!(config(&image)["rootfs"]["diff_ids"], json!([image.layers[0].diff_id]));
        // Wherever and whenever it is built; a change here changes the digest of every catalog that is built anew.
        let digest = "sha256:d09b237f1b23350e04ae40a9537b87ec5836a49b6d1a2d116fe2bddbd8bddefa";
        assert_eq!(image.digest(), digest);
    }

    #[test]
    fn bundle_labels_are_the_annotations() {
        let annotations = "annotations:\n  operators.operatorframework.io.bundle.channels.v1: \"4.10\"\n";
        let files = BTreeMap::from([("metadata/annotations.yaml".to_owned(), annotations.into())]);
        let image = Image::bundle(&files).unwrap();
        assert_eq!(config(&image)["config"]["Labels"][BUNDLE_CHANNELS_LABEL], "4.10");
    }

    #[test]
    fn bundle_without_annotations_is_refused() {
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
    fn runtime_is_in_the_configuration() {
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
