//! Storage of a revision's content in Secrets: packing and unpacking (docs/design/apply.md#packing-into-secrets,
//! docs/design/apply.md#content-and-digests).
//!
//! Pure. Names of Secrets and keys are hashes of their content. So the same content always has the same names, and a
//! repeated attempt finds its own Secrets.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use olm_api::cluster_object_set::{CollisionProtection, ObjectRef, Phase, PhaseObject};
use olm_api::limits::{MAX_DECOMPRESSED_OBJECT_BYTES, MAX_SECRET_DATA_BYTES};
use olm_api::{labels, names};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::canonical::{Numbers, canonical_json};
use crate::content::ContentPhase;

/// Packs the objects of `phases`, in order, into Secrets of `system_namespace` for the revision `revision` of
/// `extension`. Returns the phases with references to the Secrets, and the Secrets, which have no owner yet. An object
/// has a collision protection only if it is not Prevent, that of the revision.
///
/// # Errors
/// An object exceeds the maximum size of a Secret.
pub fn pack(
    revision: &str,
    extension: &str,
    system_namespace: &str,
    phases: &[ContentPhase],
) -> Result<(Vec<Phase>, Vec<Secret>), String> {
    let (mut full, mut open, mut open_size) = (Vec::new(), BTreeMap::new(), 0);
    // Index of the Secret, key, and collision protection of each object.
    let mut places = Vec::new();
    for phase in phases {
        for (index, content) in phase.objects.iter().enumerate() {
            let bytes = stored_bytes(&content.object, &phase.name, index)?;
            let key = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&bytes));
            if !open.contains_key(&key) {
                if open_size + bytes.len() > MAX_SECRET_DATA_BYTES && !open.is_empty() {
                    full.push(std::mem::take(&mut open));
                    open_size = 0;
                }
                open_size += bytes.len();
                open.insert(key.clone(), ByteString(bytes));
            }
            let protection = Some(&content.collision_protection);
            places.push((
                full.len(),
                key,
                protection.filter(|protection| **protection != CollisionProtection::Prevent).cloned(),
            ));
        }
    }
    full.extend(Some(open).filter(|open| !open.is_empty()));
    let secret = |data| content_secret(revision, extension, system_namespace, data);
    let secrets: Vec<Secret> = full.into_iter().map(secret).collect();
    let mut objects = places.into_iter().map(|(secret, key, collision_protection)| {
        let (name, namespace) = (secrets[secret].name_any(), system_namespace.to_owned());
        PhaseObject { object: None, ref_: Some(ObjectRef { name, namespace, key }), collision_protection }
    });
    let phase = |phase: &ContentPhase| {
        let objects = objects.by_ref().take(phase.objects.len()).collect();
        Phase { name: phase.name.clone(), objects, collision_protection: None }
    };
    let phases = phases.iter().map(phase).collect();
    Ok((phases, secrets))
}

fn content_secret(
    revision: &str,
    extension: &str,
    system_namespace: &str,
    data: BTreeMap<String, ByteString>,
) -> Secret {
    let mut hash = Sha256::new();
    for (key, bytes) in &data {
        hash.update(key);
        hash.update(&bytes.0);
    }
    Secret {
        metadata: ObjectMeta {
            name: Some(format!("{revision}-{}", &hex::encode(hash.finalize())[..16])),
            namespace: Some(system_namespace.to_owned()),
            labels: Some(BTreeMap::from([
                (labels::REVISION_NAME.to_owned(), revision.to_owned()),
                (labels::OWNER_NAME.to_owned(), extension.to_owned()),
            ])),
            ..ObjectMeta::default()
        },
        type_: Some(names::OBJECT_DATA_SECRET_TYPE.to_owned()),
        immutable: Some(true),
        data: Some(data),
        ..Secret::default()
    }
}

fn stored_bytes(object: &Value, phase: &str, index: usize) -> Result<Vec<u8>, String> {
    let plain = canonical_json(object, Numbers::Exact).into_bytes();
    if plain.len() <= MAX_SECRET_DATA_BYTES {
        return Ok(plain);
    }
    let compressed = gzip(&plain)
        .map_err(|error| format!("compressing object in phase {phase} index {index}: {error}"))?;
    let size = compressed.len();
    if size > MAX_SECRET_DATA_BYTES {
        return Err(format!(
            "object in phase {phase} index {index} exceeds maximum Secret data size \
             ({size} bytes > {MAX_SECRET_DATA_BYTES} bytes) even after compression"
        ));
    }
    Ok(compressed)
}

pub(crate) fn gzip(plain: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain)?;
    encoder.finish()
}

/// Decodes the object stored as `bytes` under `key` of `secret` (`<namespace>/<name>`).
///
/// # Errors
/// The data is not a valid gzip stream, exceeds [`MAX_DECOMPRESSED_OBJECT_BYTES`], or is not a JSON object.
pub fn unpack(bytes: &[u8], secret: &str, key: &str) -> Result<Value, String> {
    let mut plain = Vec::new();
    let json = if bytes.starts_with(&[0x1f, 0x8b]) {
        let limit = MAX_DECOMPRESSED_OBJECT_BYTES as u64 + 1;
        MultiGzDecoder::new(bytes)
            .take(limit)
            .read_to_end(&mut plain)
            .map_err(|error| format!("decompressing key {key:?} in Secret {secret}: {error}"))?;
        if plain.len() > MAX_DECOMPRESSED_OBJECT_BYTES {
            return Err(format!(
                "decompressed data for key {key:?} in Secret {secret} exceeds maximum size \
                 ({MAX_DECOMPRESSED_OBJECT_BYTES} bytes)"
            ));
        }
        &plain[..]
    } else {
        bytes
    };
    let problem = match serde_json::from_slice(json) {
        Ok(value @ Value::Object(_)) => return Ok(value),
        Ok(_) => "the value is not an object".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(format!("unmarshaling object from key {key:?} in Secret {secret}: {problem}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pack(object: &Value) -> Result<(Vec<Phase>, Vec<Secret>), String> {
        super::pack(
            "demo-1",
            "demo",
            "system",
            &[ContentPhase::inline("configuration", vec![object.clone()])],
        )
    }

    // Case apply-43
    #[test]
    fn pack_uses_the_names_of_the_reference() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                            "metadata": {"name": "cm-1", "namespace": "default"}});
        let (phases, secrets) = pack(&object).unwrap();
        let reference = phases[0].objects[0].ref_.as_ref().unwrap();
        assert_eq!(reference.key, "iDvKGatixQAxuc8isjUUcVgwhDxz9ppcJLZ0BMKTF68");
        assert_eq!(reference.name, "demo-1-2395a9fd09b45335");
        let bytes = &secrets[0].data.as_ref().unwrap()[&reference.key].0;
        assert_eq!(unpack(bytes, "ns/s", &reference.key), Ok(object));
    }

    // Case apply-42
    #[test]
    fn large_object_is_compressed() {
        let object = json!({"data": {"k": "x".repeat(3 << 20)}});
        let (_, secrets) = pack(&object).unwrap();
        let (key, ByteString(bytes)) = secrets[0].data.as_ref().unwrap().iter().next().unwrap();
        assert_eq!(bytes[..2], [0x1f, 0x8b]);
        assert_eq!(unpack(bytes, "ns/s", key), Ok(object));
    }

    // Case apply-42
    #[test]
    fn oversized_object_is_rejected() {
        let object = json!({"data": "x".repeat(MAX_DECOMPRESSED_OBJECT_BYTES)});
        let bytes = stored_bytes(&object, "p", 0).unwrap();
        assert_eq!(
            unpack(&bytes, "ns/s", "k").unwrap_err(),
            "decompressed data for key \"k\" in Secret ns/s exceeds maximum size (10485760 bytes)"
        );
        // Hexadecimal digests do not compress below half their size.
        let noise: String = (0..40_000u32).map(|n| hex::encode(Sha256::digest(n.to_be_bytes()))).collect();
        let message = pack(&json!({"d": noise})).unwrap_err();
        assert!(
            message.starts_with("object in phase configuration index 0 exceeds maximum Secret data size ("),
            "{message}"
        );
        assert!(message.ends_with("bytes > 921600 bytes) even after compression"), "{message}");
    }

    #[test]
    fn corrupt_data_error_names_the_secret() {
        for (bytes, prefix) in [
            (&b"\x1f\x8bnope"[..], "decompressing key \"k\" in Secret ns/s: "),
            (b"{", "unmarshaling object from key \"k\" in Secret ns/s: "),
            (b"[]", "unmarshaling object from key \"k\" in Secret ns/s: the value is not an object"),
        ] {
            let message = unpack(bytes, "ns/s", "k").unwrap_err();
            assert!(message.starts_with(prefix), "{message}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(mut bytes: Vec<u8>, gzip: bool) {
            if gzip {
                bytes.splice(0..0, [0x1f, 0x8b]);
            }
            if let Ok(value) = unpack(&bytes, "ns/s", "k") {
                proptest::prop_assert!(value.is_object());
            }
        }
    }
}
