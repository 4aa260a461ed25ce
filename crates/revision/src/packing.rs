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
use kube::core::ObjectMeta;
use olm_api::limits::{MAX_DECOMPRESSED_OBJECT_BYTES, MAX_SECRET_DATA_BYTES};
use olm_api::{labels, names};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::canonical::{Numbers, canonical_json};
use crate::phases::Phase;

/// Location of one stored object of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentRef {
    /// Name of the Secret in the system namespace.
    pub secret: String,
    /// Key in the Secret's data.
    pub key: String,
}

/// Content of a revision, ready to be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Packed {
    /// Data of each Secret by its name, in the order of packing.
    pub secrets: Vec<(String, BTreeMap<String, Vec<u8>>)>,
    /// Location of each object, by phase.
    pub refs: Vec<Vec<ContentRef>>,
}

/// Error of packing.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PackError {
    /// An object exceeds the maximum size of a Secret.
    #[error(
        "object in phase {phase} index {index} exceeds maximum Secret data size \
         ({size} bytes > {MAX_SECRET_DATA_BYTES} bytes) even after compression"
    )]
    TooLarge {
        /// Name of the phase.
        phase: String,
        /// Index of the object in the phase, from 0.
        index: usize,
        /// Compressed size in bytes.
        size: usize,
    },
    /// The compression failed.
    #[error("compressing object in phase {phase} index {index}: {message}")]
    Compress {
        /// Name of the phase.
        phase: String,
        /// Index of the object in the phase, from 0.
        index: usize,
        /// Reason.
        message: String,
    },
}

/// Packs the objects of `phases`, in order, into Secrets for the revision `revision`.
pub fn pack(revision: &str, phases: &[Phase]) -> Result<Packed, PackError> {
    let mut packed = Packed::default();
    let mut open = BTreeMap::<String, Vec<u8>>::new();
    let mut open_size = 0;
    // Positions of the objects in the open Secret. Their refs are set when it is closed.
    let mut pending = Vec::new();
    for (phase_index, phase) in phases.iter().enumerate() {
        packed.refs.push(Vec::with_capacity(phase.objects.len()));
        for (index, object) in phase.objects.iter().enumerate() {
            let bytes = stored_bytes(object, &phase.name, index)?;
            let key = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&bytes));
            if !open.contains_key(&key) {
                if open_size + bytes.len() > MAX_SECRET_DATA_BYTES && !open.is_empty() {
                    packed.close(revision, std::mem::take(&mut open), std::mem::take(&mut pending));
                    open_size = 0;
                }
                open_size += bytes.len();
                open.insert(key.clone(), bytes);
            }
            pending.push((phase_index, index));
            packed.refs[phase_index].push(ContentRef { secret: String::new(), key });
        }
    }
    if !open.is_empty() {
        packed.close(revision, open, pending);
    }
    Ok(packed)
}

impl Packed {
    fn close(&mut self, revision: &str, data: BTreeMap<String, Vec<u8>>, objects: Vec<(usize, usize)>) {
        let mut hash = Sha256::new();
        for (key, bytes) in &data {
            hash.update(key);
            hash.update(bytes);
        }
        let name = format!("{revision}-{}", &hex::encode(hash.finalize())[..16]);
        for (phase, index) in objects {
            self.refs[phase][index].secret.clone_from(&name);
        }
        self.secrets.push((name, data));
    }

    /// Converts the Secrets of `revision` to API objects. `extension` is the name of the owning ClusterExtension.
    pub fn into_secrets(self, revision: &str, extension: &str, system_namespace: &str) -> Vec<Secret> {
        self.secrets
            .into_iter()
            .map(|(name, data)| Secret {
                metadata: ObjectMeta {
                    name: Some(name),
                    namespace: Some(system_namespace.to_owned()),
                    labels: Some(BTreeMap::from([
                        (labels::REVISION_NAME.to_owned(), revision.to_owned()),
                        (labels::OWNER_NAME.to_owned(), extension.to_owned()),
                    ])),
                    ..ObjectMeta::default()
                },
                type_: Some(names::OBJECT_DATA_SECRET_TYPE.to_owned()),
                immutable: Some(true),
                data: Some(data.into_iter().map(|(key, bytes)| (key, ByteString(bytes))).collect()),
                ..Secret::default()
            })
            .collect()
    }
}

fn stored_bytes(object: &Value, phase: &str, index: usize) -> Result<Vec<u8>, PackError> {
    let plain = canonical_json(object, Numbers::Exact).into_bytes();
    if plain.len() <= MAX_SECRET_DATA_BYTES {
        return Ok(plain);
    }
    let compressed = gzip(&plain).map_err(|error| PackError::Compress {
        phase: phase.to_owned(),
        index,
        message: error.to_string(),
    })?;
    if compressed.len() > MAX_SECRET_DATA_BYTES {
        return Err(PackError::TooLarge { phase: phase.to_owned(), index, size: compressed.len() });
    }
    Ok(compressed)
}

pub(crate) fn gzip(plain: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain)?;
    encoder.finish()
}

/// Decode error of an object in a Secret.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UnpackError {
    /// The data is not a valid gzip stream.
    #[error("decompressing key {key:?} in Secret {secret}: {message}")]
    Gzip {
        /// `<namespace>/<name>`.
        secret: String,
        /// Key in the Secret.
        key: String,
        /// Reason.
        message: String,
    },
    /// The data exceeds [`MAX_DECOMPRESSED_OBJECT_BYTES`].
    #[error(
        "decompressed data for key {key:?} in Secret {secret} exceeds maximum size \
         ({MAX_DECOMPRESSED_OBJECT_BYTES} bytes)"
    )]
    TooLarge {
        /// `<namespace>/<name>`.
        secret: String,
        /// Key in the Secret.
        key: String,
    },
    /// The data is not JSON, or not a JSON object.
    #[error("unmarshaling object from key {key:?} in Secret {secret}: {message}")]
    Json {
        /// `<namespace>/<name>`.
        secret: String,
        /// Key in the Secret.
        key: String,
        /// Reason.
        message: String,
    },
}

/// Decodes the object stored as `bytes` under `key` of `secret` (`<namespace>/<name>`).
pub fn unpack(bytes: &[u8], secret: &str, key: &str) -> Result<Value, UnpackError> {
    let (secret, key) = (secret.to_owned(), key.to_owned());
    let mut plain = Vec::new();
    let json = if bytes.starts_with(&[0x1f, 0x8b]) {
        let limit = MAX_DECOMPRESSED_OBJECT_BYTES as u64 + 1;
        if let Err(error) = MultiGzDecoder::new(bytes).take(limit).read_to_end(&mut plain) {
            return Err(UnpackError::Gzip { secret, key, message: error.to_string() });
        }
        if plain.len() > MAX_DECOMPRESSED_OBJECT_BYTES {
            return Err(UnpackError::TooLarge { secret, key });
        }
        &plain[..]
    } else {
        bytes
    };
    match serde_json::from_slice(json) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(UnpackError::Json { secret, key, message: "the value is not an object".to_owned() }),
        Err(error) => Err(UnpackError::Json { secret, key, message: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn configuration(objects: Vec<Value>) -> Vec<Phase> {
        vec![Phase { name: "configuration".to_owned(), objects }]
    }

    // Case apply-43
    #[test]
    fn pack_uses_the_names_of_the_reference() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
                            "metadata": {"name": "cm-1", "namespace": "default"}});
        let packed = pack("demo-1", &configuration(vec![object.clone()])).unwrap();
        let reference = &packed.refs[0][0];
        assert_eq!(reference.key, "iDvKGatixQAxuc8isjUUcVgwhDxz9ppcJLZ0BMKTF68");
        assert_eq!(reference.secret, "demo-1-2395a9fd09b45335");
        let bytes = packed.secrets[0].1[&reference.key].clone();
        assert_eq!(unpack(&bytes, "ns/s", &reference.key), Ok(object));
    }

    // Case apply-42
    #[test]
    fn large_object_is_compressed() {
        let object = json!({"data": {"k": "x".repeat(3 << 20)}});
        let packed = pack("demo-1", &configuration(vec![object.clone()])).unwrap();
        let (_, data) = &packed.secrets[0];
        let (key, bytes) = data.iter().next().unwrap();
        assert_eq!(bytes[..2], [0x1f, 0x8b]);
        assert_eq!(unpack(bytes, "ns/s", key), Ok(object));
    }

    // Case apply-42
    #[test]
    fn oversized_object_is_rejected() {
        let object = json!({"data": "x".repeat(MAX_DECOMPRESSED_OBJECT_BYTES)});
        let bytes = stored_bytes(&object, "p", 0).unwrap();
        assert_eq!(
            unpack(&bytes, "ns/s", "k").unwrap_err().to_string(),
            "decompressed data for key \"k\" in Secret ns/s exceeds maximum size (10485760 bytes)"
        );
        // Hexadecimal digests do not compress below half their size.
        let noise: String = (0..40_000u32).map(|n| hex::encode(Sha256::digest(n.to_be_bytes()))).collect();
        let message = pack("demo-1", &configuration(vec![json!({"d": noise})])).unwrap_err().to_string();
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
            let message = unpack(bytes, "ns/s", "k").unwrap_err().to_string();
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
