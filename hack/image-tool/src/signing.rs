//! Sigstore signatures in the image format of cosign, with keys of the test.

use anyhow::Result;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rcgen::{KeyPair, SigningKey};
use serde_json::json;

use crate::{Image, Layer, digest_of};

/// Payload and its signature in base64.
pub type Signed = (String, String);

/// Key that signs images.
pub struct Signer(KeyPair);

impl Signer {
    /// Generates a key.
    ///
    /// # Errors
    /// The key cannot be generated.
    pub fn new() -> Result<Self> {
        Ok(Self(KeyPair::generate()?))
    }

    /// Public key, PEM.
    #[must_use]
    pub fn pem(&self) -> String {
        self.0.public_key_pem()
    }

    /// Signs the statement that `digest` is the image `reference`.
    ///
    /// # Errors
    /// Signing fails.
    pub fn sign(&self, reference: &str, digest: &str) -> Result<Signed> {
        let payload = json!({
            "critical": {
                "identity": {"docker-reference": reference},
                "image": {"docker-manifest-digest": digest},
                "type": "cosign container image signature",
            },
            "optional": {"creator": "test", "timestamp": 1},
        })
        .to_string();
        let signature = self.0.sign(payload.as_bytes())?;
        Ok((payload, BASE64_STANDARD.encode(signature)))
    }
}

/// Tag of the image that contains the signatures of the manifest `digest`.
#[must_use]
pub fn signature_tag(digest: &str) -> String {
    format!("{}.sig", digest.replace(':', "-"))
}

/// Image that contains these signatures.
#[must_use]
pub fn signatures(signed: &[Signed]) -> Image {
    let config = b"{}";
    let mut layers = Vec::new();
    let mut descriptors = Vec::new();
    for (payload, signature) in signed {
        let digest = digest_of(payload.as_bytes());
        descriptors.push(json!({
            "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
            "digest": digest,
            "size": payload.len(),
            "annotations": {"dev.cosignproject.cosign/signature": signature},
        }));
        layers.push(Layer { blob: payload.clone().into(), diff_id: digest });
    }
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json", "digest": digest_of(config), "size": 2
        },
        "layers": descriptors,
    });
    Image { layers, config: config.to_vec().into(), manifest: manifest.to_string().into() }
}
