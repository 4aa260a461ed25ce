//! Referrers: files attached to an image (OCI image specification 1.1), and the index of those of an image for
//! registries without the referrers API. Pure.

use bytes::Bytes;
use oci_distribution::manifest::{OCI_IMAGE_INDEX_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Artifact, PackError, digest_of};

/// Media type and content of the configuration of an artifact that needs none.
const EMPTY: (&str, &str) = ("application/vnd.oci.empty.v1+json", "{}");
/// Annotation with the name of a file.
const TITLE: &str = "org.opencontainers.image.title";

/// Descriptor of the image to which a referrer belongs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReferrerSubject {
    /// Media type of the manifest.
    pub media_type: String,
    /// Digest of the manifest.
    pub digest: String,
    /// Size of the manifest in bytes.
    pub size: usize,
}

impl ReferrerSubject {
    /// Descriptor of `manifest`, a manifest or an index.
    pub fn of(manifest: &[u8]) -> Self {
        let parsed: Value = serde_json::from_slice(manifest).unwrap_or_default();
        let media_type = match parsed["mediaType"].as_str() {
            Some(media_type) => media_type,
            None if parsed["manifests"].is_array() => OCI_IMAGE_INDEX_MEDIA_TYPE,
            None => OCI_IMAGE_MEDIA_TYPE,
        };
        Self { media_type: media_type.to_owned(), digest: digest_of(manifest), size: manifest.len() }
    }
}

/// Artifact that attaches the file `content` with name `title` to `subject`. The same arguments give the same digest.
///
/// # Errors
/// Only those of encoding JSON.
pub fn referrer(
    subject: &ReferrerSubject,
    artifact_type: &str,
    title: &str,
    content: Bytes,
) -> Result<Artifact, PackError> {
    let (empty_type, empty) = EMPTY;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": OCI_IMAGE_MEDIA_TYPE,
        "artifactType": artifact_type,
        "config": { "mediaType": empty_type, "digest": digest_of(empty.as_bytes()), "size": empty.len() },
        "layers": [{
            "mediaType": artifact_type,
            "digest": digest_of(&content),
            "size": content.len(),
            "annotations": { TITLE: title },
        }],
        "subject": subject,
        "annotations": { TITLE: title },
    });
    let manifest = serde_json::to_vec(&manifest)?.into();
    let blobs = vec![content, Bytes::from_static(empty.as_bytes())];
    Ok(Artifact { blobs, manifest, media_type: OCI_IMAGE_MEDIA_TYPE })
}

/// Index of the referrers of an image with `added` after those of `existing`, the index under `tag`. `None` if it has
/// this one.
///
/// # Errors
/// `existing` is not an index.
pub fn add_referrer(
    existing: Option<&[u8]>,
    tag: &str,
    added: &Artifact,
) -> Result<Option<Artifact>, PackError> {
    let manifest: Value = serde_json::from_slice(&added.manifest)?;
    let entry = json!({
        "mediaType": added.media_type,
        "digest": added.digest(),
        "size": added.manifest.len(),
        "artifactType": manifest["artifactType"],
        "annotations": manifest["annotations"],
    });
    let index = match existing {
        Some(bytes) => parse(tag, bytes)?,
        None => {
            json!({ "schemaVersion": 2, "mediaType": OCI_IMAGE_INDEX_MEDIA_TYPE, "manifests": [] })
        }
    };
    with_entries(index, &[entry])
}

/// Index of the referrers of an image with the entries of the index `added` after those of `existing`, the index under
/// `tag`. `None` if it has them.
///
/// # Errors
/// Either is not an index.
pub fn merge_referrers(tag: &str, existing: &[u8], added: &[u8]) -> Result<Option<Artifact>, PackError> {
    let added = parse(tag, added)?;
    with_entries(parse(tag, existing)?, entries(&added))
}

fn parse(tag: &str, bytes: &[u8]) -> Result<Value, PackError> {
    let wrong = || PackError::Tag {
        tag: tag.to_owned(),
        why: "expected an OCI image index, to which an attachment can be added".to_owned(),
    };
    let index: Value = serde_json::from_slice(bytes).map_err(|_| wrong())?;
    let kind = index.get("mediaType").unwrap_or(&Value::Null);
    let is_index = index["manifests"].is_array() && (kind.is_null() || kind == OCI_IMAGE_INDEX_MEDIA_TYPE);
    if is_index { Ok(index) } else { Err(wrong()) }
}

fn entries(index: &Value) -> &[Value] {
    index["manifests"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn with_entries(mut index: Value, added: &[Value]) -> Result<Option<Artifact>, PackError> {
    let mut all = entries(&index).to_vec();
    let before = all.len();
    for entry in added {
        if !all.iter().any(|known| known["digest"] == entry["digest"]) {
            all.push(entry.clone());
        }
    }
    if all.len() == before {
        return Ok(None);
    }
    index["manifests"] = all.into();
    let manifest = serde_json::to_vec(&index)?.into();
    Ok(Some(Artifact { blobs: Vec::new(), manifest, media_type: OCI_IMAGE_INDEX_MEDIA_TYPE }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attached(content: &'static [u8]) -> (ReferrerSubject, Artifact) {
        let subject = ReferrerSubject::of(br#"{"schemaVersion":2,"layers":[]}"#);
        let artifact =
            referrer(&subject, "application/spdx+json", "sbom.json", Bytes::from_static(content)).unwrap();
        (subject, artifact)
    }

    #[test]
    fn referrer_names_its_subject_and_type() {
        let (subject, artifact) = attached(b"{}");
        let manifest: Value = serde_json::from_slice(&artifact.manifest).unwrap();
        assert_eq!(manifest["subject"], serde_json::to_value(&subject).unwrap());
        assert_eq!(manifest["artifactType"], "application/spdx+json");
        assert_eq!(artifact, attached(b"{}").1);
        assert_ne!(artifact.digest(), attached(b"[]").1.digest());
    }

    #[test]
    fn media_type_of_subject_is_that_of_its_manifest() {
        for (manifest, expected) in [
            (r#"{"mediaType":"a/b"}"#, "a/b"),
            (r#"{"manifests":[]}"#, OCI_IMAGE_INDEX_MEDIA_TYPE),
            (r#"{"layers":[]}"#, OCI_IMAGE_MEDIA_TYPE),
        ] {
            let subject = ReferrerSubject::of(manifest.as_bytes());
            assert_eq!((subject.media_type.as_str(), subject.size), (expected, manifest.len()));
        }
    }

    #[test]
    fn index_gets_each_referrer_once_and_keeps_others() {
        let (_, first) = attached(b"{}");
        let (_, second) = attached(b"[]");
        let one = add_referrer(None, "tag", &first).unwrap().unwrap();
        assert_eq!(add_referrer(Some(&one.manifest), "tag", &first).unwrap(), None);
        let two = add_referrer(Some(&one.manifest), "tag", &second).unwrap().unwrap();
        let index: Value = serde_json::from_slice(&two.manifest).unwrap();
        assert_eq!(index["manifests"][0]["digest"], first.digest());
        assert_eq!(index["manifests"][1]["artifactType"], "application/spdx+json");
        assert_eq!(index["manifests"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn content_of_another_kind_is_not_replaced() {
        let (_, artifact) = attached(b"{}");
        for existing in ["", "[]", "{}", r#"{"layers":[]}"#, r#"{"manifests":[],"mediaType":"a/b"}"#] {
            let error = add_referrer(Some(existing.as_bytes()), "tag", &artifact).unwrap_err();
            assert!(error.to_string().contains("expected an OCI image index"), "{error}");
        }
    }

    #[test]
    fn indexes_are_merged_by_digest() {
        let [first, second] = [b"{}", b"[]"].map(|content| attached(content).1);
        let one = add_referrer(None, "tag", &first).unwrap().unwrap().manifest;
        let other = add_referrer(None, "tag", &second).unwrap().unwrap().manifest;
        let both = merge_referrers("tag", &one, &other).unwrap().unwrap().manifest;
        let index: Value = serde_json::from_slice(&both).unwrap();
        let digests = index["manifests"].as_array().unwrap().iter().map(|entry| entry["digest"].clone());
        assert_eq!(digests.collect::<Vec<_>>(), [first.digest(), second.digest()]);
        for added in [&one, &other] {
            assert_eq!(merge_referrers("tag", &both, added).unwrap(), None);
        }
        assert!(merge_referrers("tag", &one, b"[]").is_err());
        assert!(merge_referrers("tag", b"{}", &one).is_err());
    }
}
