//! Sigstore signatures of an image: lookup and verification.
//!
//! They are stored in the repository of the image, under a tag derived from its digest. Each layer of that artifact
//! is a payload that names an image. An annotation of the layer is the signature of the payload.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use oci_distribution::manifest::OciImageManifest;
use serde::Deserialize;

use super::identity::Identity;
use super::key::Key;
use crate::request_error::RequestError;
use crate::session::Session;
use crate::{Digest, Reference};

/// Media type of signature layers.
const MEDIA_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// Annotation with the signature of a layer, in base64.
const ANNOTATION: &str = "dev.cosignproject.cosign/signature";
/// Type of image signatures in the payload.
const PAYLOAD_TYPE: &str = "cosign container image signature";
/// Most layers read from one artifact.
const MAX_LAYERS: usize = 128;
/// Largest payload. Real ones have a few hundred bytes.
const MAX_PAYLOAD: u64 = 64 << 10;
/// Most reasons listed in a rejection.
const MAX_REASONS: usize = 5;

/// Attachments of an image, unverified.
#[derive(Debug, Clone, Default)]
pub(super) struct Attached {
    pub(super) signatures: Vec<Signature>,
    /// Number of layers with other media types.
    pub(super) others: usize,
}

impl Attached {
    pub(super) fn is_empty(&self) -> bool {
        self.signatures.is_empty() && self.others == 0
    }
}

/// Signature, unverified.
#[derive(Debug, Clone)]
pub(super) struct Signature {
    pub(super) payload: Bytes,
    /// Value of the annotation.
    pub(super) encoded: Option<String>,
}

/// Reads the attachments of all `digests`.
pub(super) async fn fetch(session: &Session, digests: &[Digest]) -> Result<Attached, RequestError> {
    let mut attached = Attached::default();
    for digest in digests {
        let tag = format!("{}.sig", digest.as_str().replace(':', "-"));
        let read = fetch_artifact(session, &tag, &mut attached).await;
        read.map_err(|error| error.within(&format!("reading signatures {tag}")))?;
    }
    Ok(attached)
}

async fn fetch_artifact(session: &Session, tag: &str, attached: &mut Attached) -> Result<(), RequestError> {
    let manifest = match session.manifest(tag).await {
        Err(error) if error.not_found => return Ok(()),
        manifest => manifest?,
    };
    let manifest: OciImageManifest = serde_json::from_slice(&manifest)
        .map_err(|_| RequestError::fatal("the manifest is not that of an image"))?;
    if manifest.layers.len() > MAX_LAYERS {
        return Err(RequestError::fatal(format!("there are more than {MAX_LAYERS} layers")));
    }
    // Repeated signatures share one payload.
    let mut payloads = BTreeMap::new();
    for layer in manifest.layers {
        if layer.media_type != MEDIA_TYPE {
            attached.others += 1;
            continue;
        }
        let digest: Digest = layer
            .digest
            .parse()
            .map_err(|error| RequestError::fatal(format!("digest {:?}: {error}", layer.digest)))?;
        let payload = match payloads.get(&digest) {
            Some(payload) => Bytes::clone(payload),
            None => {
                let payload = session.blob(&digest, MAX_PAYLOAD).await?;
                payloads.entry(digest).or_insert(payload).clone()
            }
        };
        let encoded = layer.annotations.and_then(|mut annotations| annotations.remove(ANNOTATION));
        attached.signatures.push(Signature { payload, encoded });
    }
    Ok(())
}

/// Requirements of a signature.
pub(super) struct SignatureRequirement<'a> {
    /// One of these keys must have signed.
    pub(super) keys: &'a [Key],
    pub(super) identity: &'a Identity,
    /// Image as named by the user.
    pub(super) image: &'a Reference,
    /// Manifests of which one must be signed: that of the image and, above it, that of the index.
    pub(super) digests: &'a [Digest],
}

impl SignatureRequirement<'_> {
    /// Checks that one of the signatures is accepted.
    ///
    /// # Errors
    /// The reasons against each signature.
    pub(super) fn check(&self, attached: &Attached) -> Result<(), String> {
        let mut reasons: Vec<String> = Vec::new();
        for signature in &attached.signatures {
            match self.verify(signature) {
                Ok(()) => return Ok(()),
                Err(reason) if reasons.contains(&reason) => {}
                Err(reason) => reasons.push(reason),
            }
        }
        let more = reasons.len().saturating_sub(MAX_REASONS);
        reasons.truncate(MAX_REASONS);
        Err(match (reasons.as_slice(), attached.others) {
            ([], 0) => "A signature was required, but no signature exists".to_owned(),
            ([], others) => format!(
                "A signature was required, but no signature exists ({others} sigstore non-signature attachments)"
            ),
            ([reason], _) => reason.clone(),
            (reasons, _) => {
                let more = if more > 0 { format!("; and {more} more") } else { String::new() };
                format!("None of the signatures were accepted, reasons: {}{more}", reasons.join("; "))
            }
        })
    }

    /// Verifies the signature before the payload is parsed or trusted.
    fn verify(&self, signature: &Signature) -> Result<(), String> {
        let encoded = signature.encoded.as_ref().ok_or_else(|| format!("missing {ANNOTATION} annotation"))?;
        let bytes = BASE64_STANDARD.decode(encoded).map_err(|_| "the signature is not base64".to_owned())?;
        if !self.keys.iter().any(|key| key.verifies(&signature.payload, &bytes)) {
            let reasons: BTreeSet<&str> = self.keys.iter().map(Key::reason).collect();
            let reasons = reasons.into_iter().collect::<Vec<_>>().join(", ");
            return Err(format!("cryptographic signature verification failed: {reasons}"));
        }
        let payload = Payload::parse(&signature.payload)?;
        let digest = payload.critical.image.docker_manifest_digest;
        if !self.digests.iter().any(|resolved| resolved.as_str() == digest) {
            return Err(format!("Signature for digest {digest} does not match"));
        }
        let signed = payload.critical.identity.docker_reference;
        if !self.identity.accepts(self.image, &signed) {
            return Err(format!("Signature for identity {signed:?} is not accepted"));
        }
        Ok(())
    }
}

/// Signed content.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Payload {
    critical: Critical,
    /// Comments of the signer, possibly `null`. The key is required.
    #[serde(rename = "optional", deserialize_with = "Option::deserialize")]
    _optional: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Critical {
    #[serde(rename = "type")]
    kind: String,
    image: SignedImage,
    identity: SignedIdentity,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct SignedImage {
    docker_manifest_digest: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct SignedIdentity {
    docker_reference: String,
}

impl Payload {
    /// Parses a payload. Unknown and duplicate keys are rejected.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let payload: Self =
            serde_json::from_slice(text).map_err(|error| format!("invalid signature payload: {error}"))?;
        match payload.critical.kind.as_str() {
            PAYLOAD_TYPE => Ok(payload),
            kind => Err(format!("invalid signature payload: Unrecognized signature type {kind:?}")),
        }
    }
}
