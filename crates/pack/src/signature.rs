//! Sigstore signatures of images, as cosign stores them: layers of an image under a tag that is derived from the
//! digest. Pure, except for the random numbers of keys and signatures.

use std::fmt;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use oci_distribution::manifest::{IMAGE_CONFIG_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE};
use serde_json::{Value, json};

use crate::{Artifact, PackError, digest_of};

/// Media type of signature layers.
const MEDIA_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// Annotation with the signature of a layer, in base64.
const ANNOTATION: &str = "dev.cosignproject.cosign/signature";
/// Most signatures of one image. Servers reject an image with more.
const MAX_SIGNATURES: usize = 128;

/// Private key: ECDSA with curve P-256 and SHA-256, the only one that every version of cosign makes.
pub struct SigningKey(EcdsaKeyPair);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

impl SigningKey {
    /// Generates a key.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn generate() -> Result<Self, PackError> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING);
        pair.map(Self).map_err(|_| PackError::Key("it cannot be generated"))
    }

    /// Key from DER: PKCS#8 or SEC 1.
    ///
    /// # Errors
    /// It is of another kind.
    pub fn from_der(der: &[u8]) -> Result<Self, PackError> {
        let pair = EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, der);
        pair.map(Self).map_err(|_| PackError::Key("expected an ECDSA key with the curve P-256"))
    }

    /// PKCS#8 document.
    ///
    /// # Errors
    /// The key cannot be encoded.
    pub fn to_pkcs8(&self) -> Result<impl AsRef<[u8]> + use<>, PackError> {
        self.0.to_pkcs8v1().map_err(|_| PackError::Key("it cannot be encoded"))
    }

    /// Public key, PEM.
    ///
    /// # Errors
    /// The key cannot be encoded.
    pub fn public_pem(&self) -> Result<String, PackError> {
        let der = self.0.public_key().as_der().map_err(|_| PackError::Key("it cannot be encoded"))?;
        let text = BASE64_STANDARD.encode(der.as_ref());
        let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
        Ok(format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n")))
    }

    fn sign(&self, message: &[u8]) -> Result<String, PackError> {
        let signature = self.0.sign(&SystemRandom::new(), message);
        let signature = signature.map_err(|_| PackError::Key("it cannot sign"))?;
        Ok(BASE64_STANDARD.encode(signature))
    }

    /// `true` if `encoded` is a signature of `message` by this key.
    fn signed(&self, message: &[u8], encoded: &str) -> bool {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, self.0.public_key());
        BASE64_STANDARD.decode(encoded).is_ok_and(|signature| key.verify(message, &signature).is_ok())
    }
}

/// Tag of the signatures of the manifest `digest`.
pub fn signature_tag(digest: &str) -> String {
    format!("{}.sig", digest.replace(':', "-"))
}

/// Statement that the manifest `digest` is the image `identity`. The same arguments give the same bytes.
fn payload(identity: &str, digest: &str) -> String {
    let text = |text: &str| Value::from(text).to_string();
    format!(
        r#"{{"critical":{{"identity":{{"docker-reference":{}}},"image":{{"docker-manifest-digest":{}}},"type":"cosign container image signature"}},"optional":null}}"#,
        text(identity),
        text(digest)
    )
}

/// Signature artifact with a signature by `key` that the manifest `digest` is the image `identity`, after those of
/// `existing`, the manifest under [`signature_tag`]. `None` if it has this signature.
///
/// # Errors
/// `existing` is not the manifest of an image, or has too many signatures.
pub fn add_signature(
    existing: Option<&[u8]>,
    identity: &str,
    digest: &str,
    key: &SigningKey,
) -> Result<Option<Artifact>, PackError> {
    let wrong = |why: String| PackError::Tag { tag: signature_tag(digest), why };
    let mut manifest = match existing {
        Some(bytes) => parse(bytes).map_err(|why| wrong(why.to_owned()))?,
        None => json!({ "schemaVersion": 2, "mediaType": OCI_IMAGE_MEDIA_TYPE, "layers": [] }),
    };
    let payload = Bytes::from(payload(identity, digest));
    let payload_digest = digest_of(&payload);
    let layers = manifest["layers"].as_array_mut().ok_or_else(|| wrong(NO_LAYERS.to_owned()))?;
    let is_signed = layers.iter().any(|layer| {
        layer["digest"] == *payload_digest
            && layer["mediaType"] == MEDIA_TYPE
            && layer["annotations"][ANNOTATION].as_str().is_some_and(|encoded| key.signed(&payload, encoded))
    });
    if is_signed {
        return Ok(None);
    }
    if layers.len() >= MAX_SIGNATURES {
        return Err(wrong(too_many()));
    }
    layers.push(json!({
        "mediaType": MEDIA_TYPE,
        "digest": payload_digest,
        "size": payload.len(),
        "annotations": { ANNOTATION: key.sign(&payload)? },
    }));
    with_config(manifest, vec![payload]).map(Some)
}

/// Signature artifact with the layers of the manifest `added` after those of `existing`, the manifest under `tag`. `None`
/// if it has them.
///
/// # Errors
/// Either is not the manifest of an image, or the signatures are too many.
pub fn merge_signatures(tag: &str, existing: &[u8], added: &[u8]) -> Result<Option<Artifact>, PackError> {
    let wrong = |why: &str| PackError::Tag { tag: tag.to_owned(), why: why.to_owned() };
    let (mut manifest, added) = (parse(existing).map_err(wrong)?, parse(added).map_err(wrong)?);
    let layers = manifest["layers"].as_array_mut().ok_or_else(|| wrong(NO_LAYERS))?;
    let before = layers.len();
    for layer in added["layers"].as_array().into_iter().flatten() {
        // Signatures of one payload differ in the annotation.
        if !layers.contains(layer) {
            layers.push(layer.clone());
        }
    }
    match layers.len() {
        all if all == before => Ok(None),
        all if all > MAX_SIGNATURES => Err(wrong(&too_many())),
        _ => with_config(manifest, Vec::new()).map(Some),
    }
}

/// Artifact of `manifest` with a new configuration for its layers.
fn with_config(mut manifest: Value, mut blobs: Vec<Bytes>) -> Result<Artifact, PackError> {
    let layers = manifest["layers"].as_array().into_iter().flatten();
    // Payloads are not compressed, so that the digests of the layers are those of their content.
    let contents: Vec<_> = layers.map(|layer| layer["digest"].clone()).collect();
    let config = json!({
        "architecture": "", "os": "", "config": {}, "rootfs": { "type": "layers", "diff_ids": contents },
    });
    let config = Bytes::from(serde_json::to_vec(&config)?);
    manifest["config"] =
        json!({ "mediaType": IMAGE_CONFIG_MEDIA_TYPE, "digest": digest_of(&config), "size": config.len() });
    blobs.push(config);
    let manifest = serde_json::to_vec(&manifest)?.into();
    Ok(Artifact { blobs, manifest, media_type: OCI_IMAGE_MEDIA_TYPE })
}

fn too_many() -> String {
    format!("it has {MAX_SIGNATURES} signatures, the most that servers read")
}

const NO_LAYERS: &str = "expected an OCI image manifest, to which a signature can be added";

/// Manifest of an OCI image. Other kinds must not be replaced with one.
fn parse(bytes: &[u8]) -> Result<Value, &'static str> {
    let manifest: Value = serde_json::from_slice(bytes).map_err(|_| NO_LAYERS)?;
    let kind = manifest.get("mediaType").unwrap_or(&Value::Null);
    let is_image = manifest["layers"].is_array() && (kind.is_null() || kind == OCI_IMAGE_MEDIA_TYPE);
    if is_image && manifest["schemaVersion"] == 2 { Ok(manifest) } else { Err(NO_LAYERS) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const IDENTITY: &str = "r.example/team/lamp:v1";

    fn digest() -> String {
        digest_of(b"image")
    }

    fn signed(existing: Option<&[u8]>, key: &SigningKey) -> Option<Artifact> {
        add_signature(existing, IDENTITY, &digest(), key).unwrap()
    }

    fn layers(artifact: &Artifact) -> Vec<Value> {
        let manifest: Value = serde_json::from_slice(&artifact.manifest).unwrap();
        manifest["layers"].as_array().unwrap().clone()
    }

    #[test]
    fn payload_names_image_and_digest() {
        let payload: Value = serde_json::from_str(&payload("r/\"x", "sha256:1")).unwrap();
        let expected = json!({
            "critical": {
                "identity": { "docker-reference": "r/\"x" },
                "image": { "docker-manifest-digest": "sha256:1" },
                "type": "cosign container image signature",
            },
            "optional": null,
        });
        assert_eq!(payload, expected);
    }

    #[test]
    fn signatures_are_added_once_for_each_key_and_identity() {
        let (first, second) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
        let one = signed(None, &first).unwrap();
        assert_eq!(signed(Some(&one.manifest), &first), None);
        let two = signed(Some(&one.manifest), &second).unwrap();
        assert_eq!(layers(&two)[..1], layers(&one));
        assert_eq!(layers(&two).len(), 2);
        assert_eq!(signed(Some(&two.manifest), &first), None);
        assert_eq!(signed(Some(&two.manifest), &second), None);
        let other = add_signature(Some(&two.manifest), "r.example/other:v1", &digest(), &first);
        assert_eq!(layers(&other.unwrap().unwrap()).len(), 3);
        let config: Value = serde_json::from_slice(&two.blobs[1]).unwrap();
        let payload = digest_of(&two.blobs[0]);
        assert_eq!(config["rootfs"]["diff_ids"], json!([payload, payload]));
    }

    #[test]
    fn layers_of_another_manifest_are_appended_once() {
        let (first, second) = (SigningKey::generate().unwrap(), SigningKey::generate().unwrap());
        let [one, other] = [&first, &second].map(|key| signed(None, key).unwrap().manifest);
        let merged = merge_signatures("tag", &one, &other).unwrap().unwrap();
        for key in [&first, &second] {
            assert_eq!(signed(Some(&merged.manifest), key), None);
        }
        for added in [&one, &other] {
            assert_eq!(merge_signatures("tag", &merged.manifest, added).unwrap(), None);
        }
        assert!(merge_signatures("tag", &one, br#"{"manifests":[]}"#).is_err());
        assert!(merge_signatures("tag", b"[]", &one).is_err());
        let many: Vec<_> = (0..MAX_SIGNATURES).map(|number| json!({ "size": number })).collect();
        let full = json!({ "schemaVersion": 2, "layers": many }).to_string();
        let error = merge_signatures("tag", full.as_bytes(), &one).unwrap_err();
        assert_eq!(error.to_string(), "tag tag: it has 128 signatures, the most that servers read");
    }

    #[test]
    fn key_is_the_same_after_encoding() {
        let key = SigningKey::generate().unwrap();
        let read = SigningKey::from_der(key.to_pkcs8().unwrap().as_ref()).unwrap();
        assert_eq!(read.public_pem().unwrap(), key.public_pem().unwrap());
        let text = format!("{key:?} {read:?}");
        assert_eq!(text, "SigningKey SigningKey");
        let error = SigningKey::from_der(b"no key").unwrap_err().to_string();
        assert_eq!(error, "private key: expected an ECDSA key with the curve P-256");
    }

    #[test]
    fn content_of_another_kind_is_not_replaced() {
        let key = SigningKey::generate().unwrap();
        let full = json!({ "schemaVersion": 2, "layers": vec![json!({}); MAX_SIGNATURES] }).to_string();
        for (existing, why) in [
            ("", NO_LAYERS),
            ("[]", NO_LAYERS),
            (r#"{"schemaVersion":1,"layers":[]}"#, NO_LAYERS),
            (r#"{"schemaVersion":2,"manifests":[]}"#, NO_LAYERS),
            (
                r#"{"schemaVersion":2,"layers":[],"mediaType":"application/vnd.docker.distribution.manifest.v2+json"}"#,
                NO_LAYERS,
            ),
            (&full, "it has 128 signatures, the most that servers read"),
        ] {
            let error = add_signature(Some(existing.as_bytes()), IDENTITY, &digest(), &key).unwrap_err();
            assert_eq!(error.to_string(), format!("tag {}: {why}", signature_tag(&digest())), "{existing}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::from),
            "[a-z:/+.]{0,9}".prop_map(Value::from),
            Just(Value::from(MEDIA_TYPE)),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let keys = prop_oneof!["digest", "mediaType", "annotations", "layers", ANNOTATION, "[a-z]{1,3}"];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(keys, inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn layers_and_unknown_fields_of_existing_manifest_are_kept(
            others in prop::collection::vec(any_json(), 0..4), extra in any_json(),
        ) {
            let key = SigningKey::generate().unwrap();
            let before = json!({ "schemaVersion": 2, "layers": others, "annotations": extra });
            let added = signed(Some(before.to_string().as_bytes()), &key).unwrap();
            let after: Value = serde_json::from_slice(&added.manifest).unwrap();
            prop_assert_eq!(&after["annotations"], &extra);
            prop_assert_eq!(&layers(&added)[..others.len()], others.as_slice());
            prop_assert_eq!(signed(Some(&added.manifest), &key), None);
        }

        #[test]
        fn any_existing_content_is_extended_or_refused(existing in any_json()) {
            let key = SigningKey::generate().unwrap();
            let _ = add_signature(Some(existing.to_string().as_bytes()), IDENTITY, &digest(), &key);
        }
    }
}
