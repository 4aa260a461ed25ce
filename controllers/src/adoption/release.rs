//! Releases that the reference stored with Helm: which one counts, and what it installed
//! (docs/design/apply.md#helm-releases). Pure.
//!
//! What a release holds may be secret: errors name places in it, never content.

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
/// Pieces of a release, at most.
const MOST_PIECES: usize = 11;
/// Bytes of a release after decompression, at most. Eleven pieces of real releases stay below half of it.
const MOST_BYTES: u64 = 128 << 20;

/// A stored release that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ReleaseError {
    /// The index does not say which other pieces there are.
    #[error("index secret {0:?} missing chunks data: no key \"extraChunks\"")]
    NoNames(String),
    /// What it says are not names.
    #[error("index secret {0:?}: \"extraChunks\" is not a JSON list of names")]
    InvalidNames(String),
    /// More pieces than a release can have.
    #[error(
        "release too large: {index:?} consists of {count} chunks, which exceeds the maximum of {MOST_PIECES}"
    )]
    TooManyPieces {
        /// Name of the index.
        index: String,
        /// How many pieces it names, itself included.
        count: usize,
    },
    /// A Secret without its piece.
    #[error("chunk {number} secret {secret:?} missing chunk data")]
    NoPiece {
        /// Name of the Secret.
        secret: String,
        /// Position of the piece, from 1.
        number: usize,
    },
    /// A piece without the index as owner.
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
        /// Name of the index.
        index: String,
    },
    /// The pieces are no gzip stream.
    #[error("release {index:?} cannot be decompressed: {message}")]
    Gzip {
        /// Name of the index.
        index: String,
        /// Why.
        message: String,
    },
    /// It is larger than [`MOST_BYTES`].
    #[error("release too large: {0:?} has more than {MOST_BYTES} bytes after decompression")]
    TooLarge(String),
    /// It is not the JSON of a release.
    #[error("release {index:?} is not the JSON of a release: see line {line} column {column}")]
    Json {
        /// Name of the index.
        index: String,
        /// Line of the fault, from 1.
        line: usize,
        /// Column of the fault.
        column: usize,
    },
    /// A line of its manifest is no object.
    #[error("release {index:?}: line {line} of its manifest is not a JSON object")]
    Manifest {
        /// Name of the index.
        index: String,
        /// Line of the manifest, from 1.
        line: usize,
    },
}

/// What a release installed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Release {
    /// The bundle.
    pub bundle: BundleIdentity,
    /// The objects, as they were installed.
    pub objects: Vec<Value>,
}

/// What selects the indices of an extension's releases: labels and fields.
pub(super) fn selectors(extension: &str) -> (String, String) {
    (format!("owner=operator-controller,type=index,name={extension}"), format!("type={INDEX_TYPE}"))
}

/// Deployed releases of an extension. Failed and pending ones are ignored, however new they are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Deployed {
    /// Name of the index of the newest that may be adopted, and number of the release.
    pub adopted: Option<(String, u64)>,
    /// Names of the indices of those that may not.
    pub passed_over: Vec<String>,
}

/// Selects deployed releases by owner. The reference makes the ClusterExtension the owner of its releases. A Secret
/// without this owner may be planted, and its content would be applied without pulling or verifying an image: it is
/// adopted only if an administrator has `named` it.
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

/// Checks that the pieces after the first are owned by the index, which is the first.
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

/// Names of the Secrets with the pieces after the first.
pub(super) fn further_pieces(index: &Secret) -> Result<Vec<String>, ReleaseError> {
    let name = index.name_any();
    let data = index.data.as_ref().and_then(|data| data.get("extraChunks"));
    let Some(listed) = data else { return Err(ReleaseError::NoNames(name)) };
    let Ok(names) = serde_json::from_slice::<Option<Vec<String>>>(&listed.0) else {
        return Err(ReleaseError::InvalidNames(name));
    };
    let names = names.unwrap_or_default();
    let count = names.len() + 1;
    if count > MOST_PIECES {
        return Err(ReleaseError::TooManyPieces { index: name, count });
    }
    Ok(names)
}

/// Puts the release together from the Secrets with its pieces, the index first.
pub(super) fn read(secrets: &[Secret]) -> Result<Release, ReleaseError> {
    let index = secrets.first().map(ResourceExt::name_any).unwrap_or_default();
    let mut compressed = Vec::new();
    for (position, secret) in secrets.iter().enumerate() {
        let piece = secret.data.as_ref().and_then(|data| data.get("chunk"));
        let missing = || ReleaseError::NoPiece { secret: secret.name_any(), number: position + 1 };
        compressed.extend_from_slice(&piece.ok_or_else(missing)?.0);
    }
    let stored = decode(&compressed, &index, MOST_BYTES)?;
    let mut objects = Vec::new();
    for (number, line) in stored.manifest.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        match serde_json::from_str(line) {
            Ok(object @ Value::Object(_)) => objects.push(object),
            _ => return Err(ReleaseError::Manifest { index, line: number + 1 }),
        }
    }
    Ok(Release { bundle: stored.bundle(), objects })
}

/// The parts of a release that matter.
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
    /// The labels say which bundle it is. Its properties are among the annotations of the chart; they say which
    /// versions of the platform it supports, and must not be forgotten while revision 1 is in force.
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
