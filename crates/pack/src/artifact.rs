//! Artifacts: manifests that belong to an image, such as its signatures, and their pushes.

use bytes::Bytes;
use oci_distribution::Reference;

use crate::push::{Content, push_content};
use crate::{PackError, Push, digest_of};

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
    #[must_use]
    pub fn digest(&self) -> String {
        digest_of(&self.manifest)
    }
}

/// Pushes `artifact` to `repository` (`registry/repository`) under `tag`, or without a tag under its digest.
///
/// # Errors
/// `repository` is invalid, or the registry does not accept the artifact. The text names the reference.
pub async fn push_artifact(
    repository: &str,
    tag: Option<&str>,
    artifact: &Artifact,
    options: &Push,
) -> Result<(), PackError> {
    let named: Reference =
        format!("{repository}:artifact").parse().map_err(|error: oci_distribution::ParseError| {
            PackError::Reference { text: repository.to_owned(), why: error.to_string() }
        })?;
    // A digest in place of the tag has the right URL. As the digest of the reference, it ends oci-client with a panic
    // if the registry sends no Location header.
    let selector = tag.map_or_else(|| artifact.digest(), str::to_owned);
    let to = Reference::with_tag(named.registry().to_owned(), named.repository().to_owned(), selector);
    let Artifact { blobs, manifest, media_type } = artifact.clone();
    let reference = || match tag {
        Some(tag) => format!("{repository}:{tag}"),
        None => format!("{repository}@{}", artifact.digest()),
    };
    push_content(&to, Content { blobs, manifest, media_type }, options, &|_| ())
        .await
        .map_err(|why| PackError::Push { reference: reference(), why })
}
