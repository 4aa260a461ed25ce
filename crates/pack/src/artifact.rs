//! Artifacts: manifests that belong to an image, such as its signatures.

use bytes::Bytes;

use crate::digest_of;

/// Manifest with the blobs that were added to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Blobs that the registry may lack.
    pub blobs: Vec<Bytes>,
    /// Manifest or index (JSON).
    pub manifest: Bytes,
    /// Media type of the manifest.
    pub media_type: &'static str,
}

impl Artifact {
    /// Digest of the manifest.
    pub fn digest(&self) -> String {
        digest_of(&self.manifest)
    }
}
