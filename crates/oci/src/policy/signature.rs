//! Sigstore signatures of an image: what they are attached to, and whether one of them counts.
//!
//! They lie in the image's repository under a tag made of the image's digest. Each layer of that artifact is a payload that
//! names an image, and an annotation of the layer is the signature of the payload's bytes.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use oci_distribution::manifest::OciImageManifest;
use serde::Deserialize;

use super::identity::Identity;
use super::key::Key;
use crate::refusal::RequestError;
use crate::session::Session;
use crate::{Digest, Reference};

/// Media type of the layers that are signatures.
const MEDIA_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// Annotation that holds a layer's signature, in base64.
const ANNOTATION: &str = "dev.cosignproject.cosign/signature";
/// Type of image signatures in the payload.
const PAYLOAD_TYPE: &str = "cosign container image signature";
/// Layers of one artifact that are read.
const MAX_LAYERS: usize = 128;
/// Largest payload; real ones have a few hundred bytes.
const MAX_PAYLOAD: u64 = 64 << 10;
/// Reasons that a refusal tells.
const MAX_REASONS: usize = 5;

/// What is attached to an image, unverified.
#[derive(Debug, Clone, Default)]
pub(super) struct Attached {
    pub(super) signatures: Vec<Signature>,
    /// Layers of other media types.
    pub(super) others: usize,
}

impl Attached {
    pub(super) fn is_empty(&self) -> bool {
        self.signatures.is_empty() && self.others == 0
    }
}

/// One signature, unverified.
#[derive(Debug, Clone)]
pub(super) struct Signature {
    pub(super) payload: Bytes,
    /// The annotation.
    pub(super) encoded: Option<String>,
}

/// Reads what is attached to any of these manifests.
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
    let Some(manifest) = found(session.manifest(tag).await)? else {
        return Ok(());
    };
    let manifest: OciImageManifest = serde_json::from_slice(&manifest)
        .map_err(|_| RequestError::fatal("the manifest is none of an image"))?;
    if manifest.layers.len() > MAX_LAYERS {
        return Err(RequestError::fatal(format!("there are more than {MAX_LAYERS} layers")));
    }
    // Whoever signs again and again signs the same bytes.
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

/// `None` where the registry has no such manifest.
fn found<T>(answer: Result<T, RequestError>) -> Result<Option<T>, RequestError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.not_found => Ok(None),
        Err(error) => Err(error),
    }
}

/// What a signature must fulfil.
pub(super) struct Wanted<'a> {
    /// Keys of which one must have signed.
    pub(super) keys: &'a [Key],
    pub(super) identity: &'a Identity,
    /// The image as the user named it.
    pub(super) image: &'a Reference,
    /// The manifests of which one must be signed: the image's own and, above it, that of the index.
    pub(super) digests: &'a [Digest],
}

impl Wanted<'_> {
    /// Whether one of the signatures counts.
    ///
    /// # Errors
    /// Why none does.
    pub(super) fn among(&self, attached: &Attached) -> Result<(), String> {
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

    /// Nothing of a payload is believed, nor parsed, before its signature is known to be good.
    fn verify(&self, signature: &Signature) -> Result<(), String> {
        let encoded = signature.encoded.as_ref().ok_or_else(|| format!("missing {ANNOTATION} annotation"))?;
        let bytes = BASE64_STANDARD.decode(encoded).map_err(|_| "the signature is not base64".to_owned())?;
        if !self.keys.iter().any(|key| key.verifies(&signature.payload, &bytes)) {
            return Err("cryptographic signature verification failed".to_owned());
        }
        let payload = Payload::parse(&signature.payload)?;
        let digest = payload.critical.image.docker_manifest_digest;
        if !self.digests.iter().any(|wanted| wanted.as_str() == digest) {
            return Err(format!("Signature for digest {digest} does not match"));
        }
        let signed = payload.critical.identity.docker_reference;
        if !self.identity.accepts(self.image, &signed) {
            return Err(format!("Signature for identity {signed:?} is not accepted"));
        }
        Ok(())
    }
}

/// What is signed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Payload {
    critical: Critical,
    /// Remarks of the signer, possibly `null`; the key must be there.
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
    /// Parses a payload; keys that are unknown or stand twice are refused.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let payload: Self =
            serde_json::from_slice(text).map_err(|error| format!("invalid signature payload: {error}"))?;
        match payload.critical.kind.as_str() {
            PAYLOAD_TYPE => Ok(payload),
            kind => Err(format!("invalid signature payload: Unrecognized signature type {kind:?}")),
        }
    }
}
