//! Helm releases of the reference: selection of the release to adopt, and its content
//! (docs/design/apply.md#helm-releases). Pure.
//!
//! A release may contain secrets: errors name positions in it, never content.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};

use flate2::read::MultiGzDecoder;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use olm_api::annotations;
use olm_revision::generate::BundleIdentity;
use serde::Deserialize;
use serde_json::Value;
use serde_json::error::Category;

/// Type of the Secrets that hold the first piece of a release.
const INDEX_TYPE: &str = "operatorframework.io/index.v1";
/// Maximum number of pieces of a release.
const MAX_PIECES: usize = 11;
/// Maximum bytes of a release after decompression. Eleven pieces of real releases stay below half of it.
const MAX_BYTES: u64 = 128 << 20;

/// Error of reading a stored release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReleaseError {
    /// The index lists no other pieces.
    #[error("index secret {0:?} missing chunks data: no key \"extraChunks\"")]
    NoNames(String),
    /// The list is invalid.
    #[error("index secret {0:?}: \"extraChunks\" is not a JSON list of names")]
    InvalidNames(String),
    /// The list exceeds [`MAX_PIECES`].
    #[error(
        "release too large: {index:?} consists of {count} chunks, which exceeds the maximum of {MAX_PIECES}"
    )]
    TooManyPieces {
        index: String,
        /// Number of pieces, including the index.
        count: usize,
    },
    #[error("chunk {number} secret {secret:?} missing chunk data")]
    NoPiece {
        /// Name of the Secret.
        secret: String,
        /// Position of the piece, from 1.
        number: usize,
    },
    /// The index is not the owner of a piece.
    #[error(
        "chunk {number} secret {secret:?} is not owned by index secret {index:?}; to adopt the release nevertheless, set \
         annotation {key}={index}",
        key = annotations::EXT_ADOPT_RELEASE
    )]
    NotOwned {
        /// Name of the Secret.
        secret: String,
        /// Position of the piece, from 1.
        number: usize,
        index: String,
    },
    /// The pieces are not a gzip stream.
    #[error("release {index:?} cannot be decompressed: {message}")]
    Gzip {
        index: String,
        /// Error of the decompression.
        message: String,
    },
    /// The release exceeds [`MAX_BYTES`].
    #[error("release too large: {0:?} has more than {MAX_BYTES} bytes after decompression")]
    TooLarge(String),
    /// The content is not the JSON of a release.
    #[error("release {index:?} is not the JSON of a release: see line {line} column {column}")]
    Json {
        index: String,
        /// Line of the error, from 1.
        line: usize,
        /// Column of the error.
        column: usize,
    },
    /// A line of the manifest is not a JSON object.
    #[error("release {index:?}: line {line} of its manifest is not a JSON object")]
    Manifest {
        index: String,
        /// Line of the manifest, from 1.
        line: usize,
    },
}

/// Content of a release.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Release {
    pub bundle: BundleIdentity,
    /// Objects as they were installed.
    pub objects: Vec<Value>,
}

/// Label and field selectors of the index Secrets of an extension.
pub(super) fn selectors(extension: &str) -> (String, String) {
    (format!("owner=operator-controller,type=index,name={extension}"), format!("type={INDEX_TYPE}"))
}

/// Deployed releases of an extension. Failed and pending ones are ignored, however new they are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Deployed {
    /// Index name and release number of the newest release that may be adopted.
    pub adopted: Option<(String, u64)>,
    /// Index names of the deployed releases that may not be adopted.
    pub passed_over: Vec<String>,
}

/// Selects deployed releases by owner. In the reference the ClusterExtension owns its releases. A Secret without
/// this owner may be planted, and its content would be applied without pulling or verifying an image. It is adopted
/// only if an administrator has `named` it.
pub(super) fn deployed(
    indices: &[PartialObjectMeta<Secret>],
    extension_uid: &str,
    named: Option<&str>,
) -> Deployed {
    let label = |index: &PartialObjectMeta<Secret>, key: &str| index.labels().get(key).cloned();
    let mut found = Deployed::default();
    for index in indices.iter().filter(|index| label(index, "status").as_deref() == Some("deployed")) {
        let name = index.name_any();
        let Some(number) = label(index, "version").and_then(|version| version.parse().ok()) else { continue };
        if !is_owned_by(index, extension_uid) && named != Some(&name) {
            found.passed_over.push(name);
        } else if found.adopted.as_ref().is_none_or(|(_, newest)| number > *newest) {
            found.adopted = Some((name, number));
        }
    }
    found
}

fn is_owned_by(object: &impl ResourceExt, uid: &str) -> bool {
    object.owner_references().iter().any(|owner| owner.uid == uid)
}

/// Checks that the index, which is the first piece, owns the other pieces.
pub(super) fn check_owners(pieces: &[Secret]) -> Result<(), ReleaseError> {
    let Some((index, further)) = pieces.split_first() else { return Ok(()) };
    let uid = index.uid().unwrap_or_default();
    match further.iter().position(|piece| !is_owned_by(piece, &uid)) {
        None => Ok(()),
        Some(position) => Err(ReleaseError::NotOwned {
            secret: further[position].name_any(),
            number: position + 2,
            index: index.name_any(),
        }),
    }
}

/// Names of the Secrets with the other pieces.
pub(super) fn further_pieces(index: &Secret) -> Result<Vec<String>, ReleaseError> {
    let name = index.name_any();
    let data = index.data.as_ref().and_then(|data| data.get("extraChunks"));
    let Some(listed) = data else { return Err(ReleaseError::NoNames(name)) };
    let Ok(names) = serde_json::from_slice::<Option<Vec<String>>>(&listed.0) else {
        return Err(ReleaseError::InvalidNames(name));
    };
    let names = names.unwrap_or_default();
    let count = names.len() + 1;
    if count > MAX_PIECES {
        return Err(ReleaseError::TooManyPieces { index: name, count });
    }
    Ok(names)
}

/// Assembles a release from the Secrets with its pieces, the index first.
pub(super) fn read(secrets: &[Secret]) -> Result<Release, ReleaseError> {
    let index = secrets.first().map(ResourceExt::name_any).unwrap_or_default();
    let mut compressed = Vec::new();
    for (position, secret) in secrets.iter().enumerate() {
        let piece = secret.data.as_ref().and_then(|data| data.get("chunk"));
        let missing = || ReleaseError::NoPiece { secret: secret.name_any(), number: position + 1 };
        compressed.extend_from_slice(&piece.ok_or_else(missing)?.0);
    }
    let stored = decode(&compressed, &index, MAX_BYTES)?;
    let mut objects = Vec::new();
    for (number, line) in stored.manifest.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str(line) {
            Ok(object @ Value::Object(_)) => objects.push(object),
            _ => return Err(ReleaseError::Manifest { index, line: number + 1 }),
        }
    }
    Ok(Release { bundle: stored.bundle(), objects })
}

/// Fields of a release that are needed.
#[derive(Deserialize)]
struct Stored {
    #[serde(default)]
    manifest: String,
    labels: Option<BTreeMap<String, String>>,
    chart: Option<Chart>,
}

#[derive(Deserialize)]
struct Chart {
    metadata: Option<ChartMetadata>,
}

#[derive(Deserialize)]
struct ChartMetadata {
    annotations: Option<BTreeMap<String, String>>,
}

impl Stored {
    /// Reads the bundle from the labels, and its properties from the annotations of the chart. The properties state
    /// the supported platform versions, which must be known while revision 1 is active.
    fn bundle(self) -> BundleIdentity {
        let mut labels = self.labels.unwrap_or_default();
        let annotations = self.chart.and_then(|chart| chart.metadata?.annotations);
        let mut label = |key: &str| labels.remove(key);
        BundleIdentity {
            name: label(annotations::BUNDLE_NAME).unwrap_or_default(),
            package: label(annotations::PACKAGE_NAME).unwrap_or_default(),
            version: label(annotations::BUNDLE_VERSION).unwrap_or_default(),
            release: label(annotations::BUNDLE_RELEASE),
            image: label(annotations::BUNDLE_REFERENCE).unwrap_or_default(),
            properties: annotations.and_then(|mut all| all.remove(annotations::PROPERTIES)),
            max_openshift_version: None,
            catalog_properties: None,
        }
    }
}

fn decode(compressed: &[u8], index: &str, most_bytes: u64) -> Result<Stored, ReleaseError> {
    let mut plain = BufReader::new(MultiGzDecoder::new(compressed).take(most_bytes + 1));
    let decoded = serde_json::from_reader(&mut plain);
    if plain.get_ref().limit() == 0 {
        return Err(ReleaseError::TooLarge(index.to_owned()));
    }
    decoded.map_err(|error| match error.classify() {
        Category::Io => ReleaseError::Gzip { index: index.to_owned(), message: error.to_string() },
        _ => ReleaseError::Json { index: index.to_owned(), line: error.line(), column: error.column() },
    })
}

#[cfg(test)]
#[path = "release_tests.rs"]
mod tests;
