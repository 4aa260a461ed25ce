//! Copies of images: manifests and blobs with unchanged bytes, between registries or to and from files
//! (docs/design/cli.md#mirroring).

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use oci_distribution::manifest::OciManifest;
use olm_version::excerpt;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::budget::RequestBudget;
use crate::fetch::Hasher;
use crate::image::{parse, verified_manifest};
use crate::inspect::is_foreign;
use crate::puller::Puller;
use crate::referrers::referrer_pages;
use crate::registries::Source;
use crate::request_error::RequestError;
use crate::session::Session;
use crate::{Digest, Reference, Selector};

/// Time limit of a request for a manifest or about a blob, with its retries.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);
/// Largest blob, in bytes.
const MAX_BLOB: u64 = 64 << 30;
/// Most blobs or manifests that one manifest may list.
const MAX_CHILDREN: usize = 1024;
/// Concurrent uploads of one push.
const PARALLEL: usize = 3;

/// Failure of a copy.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct TransferError(#[from] RequestError);

impl TransferError {
    /// Failure outside of registries, such as of a disk.
    pub fn local(text: impl Into<String>) -> Self {
        Self(RequestError::fatal(text))
    }

    /// `true` if the registry reports that the object does not exist.
    pub fn is_missing(&self) -> bool {
        self.0.not_found
    }
}

/// Manifest or index with unchanged bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawManifest {
    /// Digest of the bytes.
    pub digest: Digest,
    /// Media type that the manifest states, or that follows from its content.
    pub media_type: String,
    /// JSON text.
    pub bytes: Bytes,
}

/// Objects that a manifest lists, which a registry needs before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Children {
    /// Digests of the manifests in an index.
    pub manifests: Vec<Digest>,
    /// Digests and sizes of configuration and layers, without layers that registries do not distribute.
    pub blobs: Vec<(Digest, u64)>,
}

/// Manifests that refer to an image as their subject.
#[derive(Debug, Clone)]
pub struct ReferrersIndex {
    /// List of the manifests, as an index.
    pub index: RawManifest,
    /// Digests of the manifests.
    pub manifests: Vec<Digest>,
}

/// Blob that the registry has after a push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushedBlob {
    /// Digest of the blob.
    pub digest: Digest,
    /// Size of the blob.
    pub bytes: usize,
    /// `true` if the blob was sent, `false` if the registry had it.
    pub sent: bool,
}

/// One index with the entries of all pages. `None` without pages.
fn joined(pages: Vec<Bytes>) -> Result<Option<Bytes>, RequestError> {
    let invalid = |error: serde_json::Error| RequestError::fatal(format!("list of referrers: {error}"));
    if pages.len() < 2 {
        return Ok(pages.into_iter().next());
    }
    let mut index = serde_json::Value::Null;
    let mut all = Vec::new();
    for page in pages {
        let mut page: serde_json::Value = serde_json::from_slice(&page).map_err(invalid)?;
        let entries = page.get_mut("manifests").and_then(serde_json::Value::as_array_mut);
        all.append(entries.ok_or_else(|| RequestError::fatal("a page is not a list of referrers"))?);
        index = page;
    }
    index["manifests"] = all.into();
    Ok(Some(serde_json::to_vec(&index).map_err(invalid)?.into()))
}

impl RawManifest {
    /// Manifest with the SHA-256 of these bytes.
    pub fn new(bytes: Bytes) -> Self {
        Self::with_digest(Hasher::sha256(&bytes), bytes)
    }

    /// Manifest with these bytes, which must have the digest.
    ///
    /// # Errors
    /// The digest does not match.
    pub fn verified(digest: &Digest, bytes: Bytes) -> Result<Self, TransferError> {
        crate::session::check_digest(digest, &Hasher::digest(digest, &bytes))?;
        Ok(Self::with_digest(digest.clone(), bytes))
    }

    fn with_digest(digest: Digest, bytes: Bytes) -> Self {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Shape {
            media_type: String,
            manifests: Option<serde::de::IgnoredAny>,
        }
        let shape: Shape = serde_json::from_slice(&bytes).unwrap_or_default();
        let media_type = match (shape.media_type, shape.manifests) {
            (stated, _) if !stated.is_empty() => stated,
            (_, Some(_)) => oci_distribution::manifest::OCI_IMAGE_INDEX_MEDIA_TYPE.to_owned(),
            (_, None) => oci_distribution::manifest::OCI_IMAGE_MEDIA_TYPE.to_owned(),
        };
        Self { digest, media_type, bytes }
    }

    /// Objects that the manifest lists.
    ///
    /// # Errors
    /// The manifest is in no supported format, lists too much, or has an invalid descriptor.
    pub fn children(&self) -> Result<Children, TransferError> {
        let invalid =
            |why: String| RequestError::fatal(format!("manifest {}: {why}", excerpt(self.digest.as_str())));
        let mut children = Children::default();
        match parse(&self.bytes, &self.digest).map_err(RequestError::fatal)? {
            OciManifest::ImageIndex(index) => {
                for entry in index.manifests {
                    children.manifests.push(digest(&entry.digest).map_err(invalid)?);
                }
            }
            OciManifest::Image(manifest) => {
                let layers = manifest.layers.iter().filter(|layer| !is_foreign(&layer.media_type));
                for descriptor in [&manifest.config].into_iter().chain(layers) {
                    let size = u64::try_from(descriptor.size).ok().filter(|size| *size <= MAX_BLOB);
                    let size = size.ok_or_else(|| {
                        invalid(format!("a blob has {} bytes, the limit is {MAX_BLOB}", descriptor.size))
                    })?;
                    children.blobs.push((digest(&descriptor.digest).map_err(invalid)?, size));
                }
            }
        }
        if children.manifests.len().max(children.blobs.len()) > MAX_CHILDREN {
            return Err(invalid(format!("lists more than {MAX_CHILDREN} objects")).into());
        }
        Ok(children)
    }
}

fn digest(text: &str) -> Result<Digest, String> {
    text.parse().map_err(|error| format!("digest {:?}: {error}", excerpt(text)))
}

/// Open repository of a registry.
pub struct Repository {
    session: Box<Session>,
    /// Name of the repository at this registry, which differs from the requested one for a mirror.
    reference: Reference,
}

impl Puller {
    /// Opens the first source that has the image `reference`, and reads its manifest, which must match a digest of
    /// the reference.
    ///
    /// # Errors
    /// The image does not exist, the registry does not respond or denies access, or the manifest does not match.
    pub async fn source(&self, reference: &Reference) -> Result<(Repository, RawManifest), TransferError> {
        let selector = reference.selector();
        let name = selector.as_str();
        let retry = self.config().retry.clone();
        let budget = RequestBudget::new(retry, Instant::now() + REQUEST_TIMEOUT);
        let ask = |session: Session, source: Source| async move {
            let manifest = match selector {
                Selector::Digest(digest) => {
                    let bytes = verified_manifest(&session, digest, &source.reference).await?;
                    RawManifest::with_digest(digest.clone(), bytes)
                }
                Selector::Tag(tag) => {
                    let reading = format!("reading manifest {tag} in {}", source.reference.name());
                    RawManifest::new(session.manifest(tag).await.map_err(|error| error.within(&reading))?)
                }
            };
            Ok((session, source.reference, manifest))
        };
        let found = Box::pin(self.sources().first(reference, name, &budget, ask));
        let (session, reference, manifest) = limited(found).await?;
        let session = Box::new(session.with_budget(self.copy_budget()));
        Ok((Repository { session, reference }, manifest))
    }

    /// Opens the repository of `reference` for pushes, without mirrors.
    ///
    /// # Errors
    /// The registry does not respond or denies access.
    pub async fn target(&self, reference: &Reference) -> Result<Repository, TransferError> {
        let session = limited(Box::pin(self.sources().target(reference, self.copy_budget()))).await?;
        Ok(Repository { session: Box::new(session), reference: reference.clone() })
    }

    fn copy_budget(&self) -> RequestBudget {
        let config = self.config();
        RequestBudget::new(config.retry.clone(), Instant::now() + config.pull_timeout)
    }
}

/// Output of a request, within [`REQUEST_TIMEOUT`].
pub(crate) async fn limited<T>(
    request: impl Future<Output = Result<T, RequestError>>,
) -> Result<T, RequestError> {
    timeout(REQUEST_TIMEOUT, request).await.unwrap_or_else(|_| {
        Err(RequestError::transient(format!("not done within {} s", REQUEST_TIMEOUT.as_secs())))
    })
}

impl Repository {
    /// Manifest of a tag. `None` if there is none.
    ///
    /// # Errors
    /// The registry does not respond or denies access.
    pub async fn tagged(&self, tag: &str) -> Result<Option<RawManifest>, TransferError> {
        match limited(self.session.manifest(tag)).await {
            Ok(bytes) => Ok(Some(RawManifest::new(bytes))),
            Err(error) if error.not_found => Ok(None),
            Err(error) => Err(error.within(&format!("tag {tag} of {}", self.reference.name())).into()),
        }
    }

    /// Manifest with a digest.
    ///
    /// # Errors
    /// The registry does not have it, does not respond or denies access, or returns other bytes.
    pub async fn manifest(&self, digest: &Digest) -> Result<RawManifest, TransferError> {
        let bytes = limited(verified_manifest(&self.session, digest, &self.reference)).await?;
        Ok(RawManifest::with_digest(digest.clone(), bytes))
    }

    /// `true` if the registry has the manifest under this digest, or this digest under the tag.
    ///
    /// # Errors
    /// The registry does not respond or denies access.
    pub async fn has_manifest(&self, selector: &str, digest: &Digest) -> Result<bool, TransferError> {
        match limited(self.session.head(selector)).await {
            // Some registries omit the digest.
            Ok(None) => Ok(selector == digest.as_str()),
            Ok(Some(found)) => Ok(found == *digest),
            Err(error) if error.not_found => Ok(false),
            Err(error) => {
                Err(error.within(&format!("manifest {selector} of {}", self.reference.name())).into())
            }
        }
    }

    /// Manifests that refer to `subject`, from the list of the registry or from the tag that replaces it.
    ///
    /// # Errors
    /// The registry does not respond, or returns something else.
    pub async fn referrers(&self, subject: &Digest) -> Result<Option<ReferrersIndex>, TransferError> {
        let (_, pages) = limited(referrer_pages(&self.session, subject)).await?;
        let Some(index) = joined(pages)?.map(RawManifest::new) else { return Ok(None) };
        let manifests = index.children()?.manifests;
        Ok(Some(ReferrersIndex { index, manifests }).filter(|referrers| !referrers.manifests.is_empty()))
    }

    /// Sends a blob to `sink`, unverified. A closed sink ends the transfer without an error.
    ///
    /// # Errors
    /// The registry does not have it, does not respond or denies access.
    pub async fn read_blob(
        &self,
        digest: &Digest,
        size: u64,
        sink: mpsc::Sender<Bytes>,
    ) -> Result<(), TransferError> {
        let read = self.session.stream_blob(digest, size, sink).await;
        read.map_err(|error| error.within(&format!("reading blob {digest}")).into())
    }

    /// `true` if the registry has the blob.
    ///
    /// # Errors
    /// The registry does not respond or denies access.
    pub async fn has_blob(&self, digest: &Digest) -> Result<bool, TransferError> {
        let found = limited(self.session.has_blob(digest)).await;
        found.map_err(|error| error.within(&format!("blob {digest}")).into())
    }

    /// Pushes a blob that `feed` sends to the given channel. After a failure of the registry, `feed` is called again.
    ///
    /// # Errors
    /// Errors of `feed`, a digest that does not match, or the registry refuses the blob.
    pub async fn push_blob<F: Future<Output = Result<(), TransferError>>>(
        &self,
        digest: &Digest,
        size: u64,
        feed: impl Fn(mpsc::Sender<Bytes>) -> F,
    ) -> Result<(), TransferError> {
        let feed = |sink| {
            let fed = feed(sink);
            async { fed.await.map_err(|TransferError(error)| error) }
        };
        let pushed = self.session.push_blob(digest, size, feed).await;
        pushed.map_err(|error| error.within(&format!("writing blob {digest}")).into())
    }

    /// Pushes those of `blobs` that the registry does not have, then `manifest` under a tag or its digest. Calls
    /// `on_blob` for each blob once the registry has it.
    ///
    /// # Errors
    /// The registry refuses a blob or the manifest.
    pub async fn push(
        &self,
        selector: &str,
        manifest: &RawManifest,
        blobs: Vec<Bytes>,
        on_blob: &(dyn Fn(PushedBlob) + Sync),
    ) -> Result<(), TransferError> {
        stream::iter(blobs)
            .map(|blob| self.push_bytes(blob))
            .buffer_unordered(PARALLEL)
            .try_for_each(|pushed| async {
                on_blob(pushed);
                Ok(())
            })
            .await?;
        self.push_manifest(selector, manifest).await
    }

    async fn push_bytes(&self, blob: Bytes) -> Result<PushedBlob, TransferError> {
        let (digest, bytes) = (Hasher::sha256(&blob), blob.len());
        let sent = !self.has_blob(&digest).await?;
        if sent {
            let feed = |sink: mpsc::Sender<Bytes>| {
                let blob = blob.clone();
                async move {
                    // A closed sink ends the transfer.
                    let _ = sink.send(blob).await;
                    Ok(())
                }
            };
            self.push_blob(&digest, bytes as u64, feed).await?;
        }
        Ok(PushedBlob { digest, bytes, sent })
    }

    /// Pushes a manifest under a tag or its digest.
    ///
    /// # Errors
    /// The registry refuses it.
    pub async fn push_manifest(&self, selector: &str, manifest: &RawManifest) -> Result<(), TransferError> {
        let pushed = self.session.push_manifest(selector, &manifest.media_type, &manifest.bytes);
        let writing = format!("writing manifest {selector} in {}", self.reference.name());
        limited(pushed).await.map_err(|error| error.within(&writing).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_joined_and_one_without_list_is_refused() {
        let join = |pages: &[&'static str]| {
            let joined = joined(pages.iter().map(|page| Bytes::from_static(page.as_bytes())).collect());
            let text = joined.map(|page| page.map(|page| String::from_utf8(page.to_vec()).unwrap()));
            text.map_err(|error| error.to_string())
        };
        let first = r#"{"manifests":[1],"schemaVersion":2}"#;
        assert_eq!(join(&[]), Ok(None));
        assert_eq!(join(&[first]), Ok(Some(first.to_owned())));
        let both = join(&[first, r#"{"schemaVersion":2,"manifests":[2,3]}"#]);
        assert_eq!(both, Ok(Some(r#"{"manifests":[1,2,3],"schemaVersion":2}"#.to_owned())));
        for page in ["null", "[]", "1", "{}", r#"{"manifests":null}"#] {
            for pages in [[first, page], [page, first]] {
                assert_eq!(join(&pages), Err("a page is not a list of referrers".to_owned()), "{pages:?}");
            }
        }
        assert!(join(&[first, "<"]).unwrap_err().starts_with("list of referrers: "));
    }

    #[test]
    fn children_of_a_manifest_are_listed_without_foreign_layers() {
        let hex = |c: &str| format!("sha256:{}", c.repeat(64));
        let layer = |kind: &str, c: &str| {
            format!(r#"{{"mediaType":"application/vnd.{kind}","digest":"{}","size":3}}"#, hex(c))
        };
        let image = format!(
            r#"{{"schemaVersion":2,"config":{},"layers":[{},{}]}}"#,
            layer("oci.image.config.v1+json", "a"),
            layer("oci.image.layer.v1.tar+gzip", "b"),
            layer("docker.image.rootfs.foreign.diff.tar.gzip", "c"),
        );
        let image = RawManifest::new(image.into());
        let digests = |list: &[&str]| list.iter().map(|c| hex(c).parse().unwrap()).collect::<Vec<Digest>>();
        let blobs = digests(&["a", "b"]).into_iter().map(|digest| (digest, 3)).collect();
        assert_eq!(image.children().unwrap(), Children { manifests: Vec::new(), blobs });
        assert_eq!(image.media_type, "application/vnd.oci.image.manifest.v1+json");
        let list = layer("oci.image.manifest.v1+json", "d");
        let index = RawManifest::new(format!(r#"{{"schemaVersion":2,"manifests":[{list}]}}"#).into());
        let manifests = digests(&["d"]);
        assert_eq!(index.children().unwrap(), Children { manifests, blobs: Vec::new() });
        assert_eq!(index.media_type, "application/vnd.oci.image.index.v1+json");
        for text in ["{}", "x", r#"{"schemaVersion":1,"layers":[]}"#] {
            assert!(RawManifest::new(text.into()).children().is_err(), "{text}");
        }
    }
}
