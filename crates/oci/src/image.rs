//! One image at its registry: manifest, labels, and its layers as they are streamed through an [`Unpacker`].

use std::collections::BTreeMap;

use bytes::Bytes;
use oci_distribution::manifest::{ImageIndexEntry, OciDescriptor, OciImageManifest, OciManifest};
use olm_version::excerpt;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::mpsc;

use crate::archive::UnpackError;
use crate::fetch::{Hasher, LayerReader, QUEUE};
use crate::limits::{Exceeded, ImageLimits};
use crate::policy::{PolicySource, Verification};
use crate::request_error::RequestError;
use crate::session::{MAX_MANIFEST, Session, check_digest};
use crate::store::Store;
use crate::unpack::Unpacker;
use crate::{CanonicalRef, Digest, ImagePlatform, PullError, Reference};

/// Labels of an image configuration.
pub type ImageLabels = BTreeMap<String, String>;

/// Manifest or index of an image, with the source that has it.
pub(crate) struct FoundManifest {
    pub(crate) session: Session,
    /// Name of the image at this source. Differs from the requested name for a mirror.
    pub(crate) source: Reference,
    /// Content, verified against the digest of the image.
    pub(crate) manifest: Bytes,
}

/// Image with known manifest and configuration.
pub(crate) struct Image<'a> {
    session: Session,
    reference: &'a CanonicalRef,
    /// Digest and size of each layer, lowest first.
    layers: Vec<(Digest, u64)>,
    pub(crate) labels: ImageLabels,
    /// Result of the policy check that accepted the image.
    pub(crate) verification: Verification,
}

/// Used part of an image configuration. Catalogs often have nothing else in it.
#[derive(Default, Deserialize)]
struct ImageConfig {
    config: Option<ImageSettings>,
}

/// Used part of the settings of containers in an image configuration.
#[derive(Deserialize)]
pub(crate) struct ImageSettings {
    #[serde(rename = "Labels")]
    pub(crate) labels: Option<ImageLabels>,
}

impl<'a> Image<'a> {
    /// Reads manifest and configuration and checks them against digests, policy and limits.
    pub(crate) async fn open(
        found: FoundManifest,
        reference: &'a CanonicalRef,
        policy: &PolicySource,
        platform: &ImagePlatform,
        limits: &ImageLimits,
    ) -> Result<Self, PullError> {
        let FoundManifest { session, source, manifest } = found;
        let (mut own, manifest) = manifest_for(&session, &source, &manifest, reference, platform).await?;
        if *platform == ImagePlatform::any() {
            // A signature of one image in an index says nothing about the others.
            own = reference.digest().clone();
        }
        let verification = policy.check(&session, &source, reference, own).await?;
        let invalid = |error| unpack_error(reference, error, None);
        let layers = layers(&manifest, limits).map_err(invalid)?;
        let (config, size) = descriptor(&manifest.config).map_err(invalid)?;
        let config = session
            .blob(&config, size.min(MAX_MANIFEST))
            .await
            .map_err(|error| PullError::copying(error.within(&format!("reading config blob {config}"))))?;
        // Artifacts without an image configuration have no labels.
        let config: ImageConfig = serde_json::from_slice(&config).unwrap_or_default();
        let labels = config.config.and_then(|settings| settings.labels).unwrap_or_default();
        Ok(Self { session, reference, layers, labels, verification })
    }

    /// Streams every layer through `unpacker`, one at a time, and then calls `finish`. The archive is read on a
    /// blocking thread while the network is at most [`QUEUE`] chunks ahead. Dropping the future also ends the work
    /// of the thread.
    pub(crate) async fn unpack<S: Store, T: Send + 'static>(
        &self,
        mut unpacker: Unpacker<S>,
        finish: impl FnOnce(Unpacker<S>) -> Result<T, UnpackError> + Send + 'static,
    ) -> Result<T, PullError> {
        for (index, (digest, size)) in self.layers.iter().enumerate() {
            let (sink, chunks) = mpsc::channel(QUEUE);
            let mut reader = LayerReader::new(chunks, digest);
            let blocking = tokio::task::spawn_blocking(move || {
                let applied = unpacker.apply(&mut reader);
                (unpacker, applied, reader.finish())
            });
            let fetched = self.session.stream_blob(digest, *size, sink).await;
            let (back, applied, actual) = blocking.await.map_err(PullError::applying)?;
            unpacker = back;
            // A broken transfer explains all later errors, and a wrong digest any fault of the archive.
            fetched
                .and_then(|()| check_digest(digest, &actual))
                .map_err(|error| PullError::copying(error.within(&format!("reading blob {digest}"))))?;
            applied.map_err(|error| unpack_error(self.reference, error, Some(index)))?;
        }
        let finished = tokio::task::spawn_blocking(move || finish(unpacker)).await;
        finished.map_err(PullError::applying)?.map_err(|error| unpack_error(self.reference, error, None))
    }
}

/// Maps `error` to the caller's error. `layer` is the index of the faulty layer, if any.
fn unpack_error(image: &CanonicalRef, error: UnpackError, layer: Option<usize>) -> PullError {
    let cause = match (&error, layer) {
        (UnpackError::Limit(_), _) | (_, None) => error.to_string(),
        (_, Some(index)) => format!("error applying layer[{index}]: {error}"),
    };
    match error {
        UnpackError::Disk(_) => PullError::applying(cause),
        UnpackError::Limit(Exceeded { key, .. }) => {
            PullError { limit: Some(key), ..PullError::content(image.is_pinned(), cause) }
        }
        _ => PullError::content(image.is_pinned(), cause),
    }
}

/// Manifest of the image with its digest. If `top` is an index, that of the entry for `platform`.
async fn manifest_for(
    session: &Session,
    source: &Reference,
    top: &Bytes,
    reference: &CanonicalRef,
    platform: &ImagePlatform,
) -> Result<(Digest, OciImageManifest), PullError> {
    let content = |cause| PullError::content(reference.is_pinned(), cause);
    let entries = match parse(top, reference.digest()).map_err(content)? {
        OciManifest::Image(manifest) => return Ok((reference.digest().clone(), manifest)),
        OciManifest::ImageIndex(index) => index.manifests,
    };
    let choosing = |error| {
        let error = RequestError::fatal(error);
        PullError::copying(
            error.within(&format!("choosing an image from manifest list docker://{reference}")),
        )
    };
    let chosen = choose(&entries, platform).map_err(choosing)?;
    let body = verified_manifest(session, &chosen, source).await;
    let body = body.map_err(|error| PullError::copying(error.within(&initializing(reference))))?;
    match parse(&body, &chosen).map_err(content)? {
        OciManifest::Image(manifest) => Ok((chosen, manifest)),
        OciManifest::ImageIndex(_) => Err(choosing(format!("{chosen} is an index again"))),
    }
}

pub(crate) fn choose(entries: &[ImageIndexEntry], platform: &ImagePlatform) -> Result<Digest, String> {
    let ImagePlatform { os, architecture, variant } = platform;
    let entry = platform.choose(entries).ok_or_else(|| {
        format!(
            "no image found in image index for architecture \"{architecture}\", variant \"{variant}\", OS \"{os}\""
        )
    })?;
    entry.digest.parse().map_err(|error| format!("digest {:?}: {error}", excerpt(&entry.digest)))
}

/// Manifest or index with this digest, checked against it.
pub(crate) async fn verified_manifest(
    session: &Session,
    digest: &Digest,
    source: &Reference,
) -> Result<Bytes, RequestError> {
    let reading = format!("reading manifest {digest} in {}", source.name());
    let manifest = session.manifest(digest.as_str()).await.map_err(|error| error.within(&reading))?;
    if Hasher::digest(digest, &manifest) == digest.as_str() {
        return Ok(manifest);
    }
    Err(RequestError::fatal(format!("Manifest does not match provided manifest digest {digest}")))
}

pub(crate) fn parse(manifest: &[u8], digest: &Digest) -> Result<OciManifest, String> {
    #[derive(Deserialize)]
    struct Shape {
        #[serde(rename = "schemaVersion")]
        version: u8,
        layers: Option<IgnoredAny>,
        manifests: Option<IgnoredAny>,
    }
    let unknown = |_| format!("manifest {digest} is neither an image nor an index in a known format");
    let shape: Shape = serde_json::from_slice(manifest).map_err(unknown)?;
    if shape.layers.is_some() && shape.manifests.is_some() {
        // Otherwise its type would depend on the parser (CVE-2021-41190).
        return Err(format!(
            "manifest {digest} has both layers and manifests: it is either an image or an index"
        ));
    }
    if shape.version == 1 {
        return Err(format!(
            "manifest {digest} is of Docker's schema 1, which is not supported: push the image again as an OCI image or in \
             Docker's schema 2"
        ));
    }
    // `OciManifest` itself would hold all of the manifest in memory, in a form that can be 70 times as large.
    if shape.manifests.is_some() {
        return serde_json::from_slice(manifest).map(OciManifest::ImageIndex).map_err(unknown);
    }
    serde_json::from_slice(manifest).map(OciManifest::Image).map_err(unknown)
}

/// Error prefix of the step that finds the registry and the manifest.
pub(crate) fn initializing(reference: &CanonicalRef) -> String {
    format!("initializing source docker://{reference}")
}

pub(crate) fn layers(
    manifest: &OciImageManifest,
    limits: &ImageLimits,
) -> Result<Vec<(Digest, u64)>, UnpackError> {
    Exceeded::check("layers", manifest.layers.len() as u64, limits.layers)?;
    let checked = |(index, layer): (usize, &OciDescriptor)| {
        let (digest, size) = descriptor(layer)?;
        if layer.media_type.ends_with("+encrypted") {
            let cause = format!(
                "layer[{index}] {digest} is encrypted ({}): only layers as plain, gzip or zstd tar are supported",
                excerpt(&layer.media_type)
            );
            return Err(UnpackError::Archive(cause));
        }
        Exceeded::check("blob-bytes", size, limits.blob_bytes)?;
        Ok((digest, size))
    };
    manifest.layers.iter().enumerate().map(checked).collect()
}

/// Validated digest and size of a blob.
pub(crate) fn descriptor(descriptor: &OciDescriptor) -> Result<(Digest, u64), UnpackError> {
    let OciDescriptor { digest, size, .. } = descriptor;
    let invalid = |fault: String| UnpackError::Archive(format!("manifest: {fault}"));
    let parsed = digest.parse().map_err(|error| invalid(format!("digest {:?}: {error}", excerpt(digest))))?;
    let size = u64::try_from(*size).map_err(|_| invalid(format!("blob {digest} has size {size}")))?;
    Ok((parsed, size))
}
