//! Copy of one image with all that belongs to it: the images of an index, blobs, signatures and referrers. Bytes do not
//! change (docs/design/cli.md#mirroring).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use olm_oci::{Digest, RawManifest, Repository, TransferError, referrers_tag};
use olm_pack::{PackError, merge_referrers, merge_signatures};
use tokio::sync::mpsc;

use super::layout::Layout;

/// Concurrent blobs of one image.
const PARALLEL: usize = 3;
/// Deepest nesting of indexes.
const MAX_DEPTH: usize = 4;
/// Deepest nesting of referrers whose own signatures and referrers are copied.
const MAX_ATTACHED: usize = 1;
/// Suffixes of the tags with which cosign attaches signatures, attestations and SBOMs.
const ATTACHMENTS: [&str; 3] = ["sig", "att", "sbom"];

/// Source of one image.
pub(super) enum Origin<'a> {
    /// Repository of a registry.
    Registry(Repository),
    Layout(&'a Layout),
    /// Image that this program built.
    Built(&'a olm_pack::Image),
}

/// Destination of one image.
pub(super) enum Destination<'a> {
    /// Repository of a registry.
    Registry(Repository),
    /// Layout, and the name of the repository in references.
    Layout(&'a Layout, String),
}

/// Counts of all copies.
#[derive(Debug, Default)]
pub(super) struct Stats {
    /// Blobs that were written.
    pub(super) blobs: AtomicU64,
    /// Their bytes.
    pub(super) bytes: AtomicU64,
    /// Blobs that the destination already had.
    pub(super) known: AtomicU64,
}

/// Copies from one place to another.
pub(super) struct Copy<'a> {
    pub(super) origin: Origin<'a>,
    pub(super) destination: Destination<'a>,
    pub(super) stats: &'a Stats,
    /// `true` if tags that have other manifests may move.
    pub(super) may_move: bool,
    /// Manifests that were copied. A hostile index may list the same one very often.
    pub(super) copied: Mutex<BTreeSet<Digest>>,
}

impl Copy<'_> {
    /// Copies an image, and its tag if it has one. `catalog` is the name of its ClusterCatalog.
    pub(super) async fn image(
        &self,
        manifest: &RawManifest,
        tag: Option<&str>,
        catalog: Option<&str>,
    ) -> Result<(), TransferError> {
        if let Some(tag) = tag {
            self.check_tag(tag, manifest).await?;
        }
        self.tree(manifest, 0).await?;
        self.name(manifest, tag, catalog).await?;
        // All images of a layout have names of their own.
        if let Origin::Registry(repository) = &self.origin {
            let mut digests = vec![manifest.digest.clone()];
            digests.extend(manifest.children()?.manifests);
            for digest in digests {
                self.attachments(repository, &digest, 0).await?;
            }
        }
        Ok(())
    }

    /// Fails if the registry has the tag with another manifest, and it may not move.
    async fn check_tag(&self, tag: &str, manifest: &RawManifest) -> Result<(), TransferError> {
        let Destination::Registry(to) = &self.destination else { return Ok(()) };
        if self.may_move || merge_of(tag).is_some() || to.has_manifest(tag, &manifest.digest).await? {
            return Ok(());
        }
        match to.tagged(tag).await? {
            Some(existing) if existing.digest != manifest.digest => Err(TransferError::local(format!(
                "tag {tag} of the mirror is {}, the source has {}: the tag may belong to another catalog or registry; \
                 choose another path with --to, or move the tag with --overwrite-tags",
                existing.digest, manifest.digest
            ))),
            _ => Ok(()),
        }
    }

    /// Copies what a manifest lists, then the manifest.
    async fn tree(&self, manifest: &RawManifest, depth: usize) -> Result<(), TransferError> {
        if self.is_copied(&manifest.digest) || self.destination.is_complete(manifest).await? {
            return Ok(());
        }
        if depth == MAX_DEPTH {
            let why = format!("manifest {}: more than {MAX_DEPTH} nested indexes", manifest.digest);
            return Err(TransferError::local(why));
        }
        let children = manifest.children()?;
        for digest in &children.manifests {
            if self.is_copied(digest) {
                continue;
            }
            let child = self.origin.manifest(digest).await?;
            Box::pin(self.tree(&child, depth + 1)).await?;
        }
        stream::iter(&children.blobs)
            .map(|(digest, size)| self.blob(digest, *size))
            .buffer_unordered(PARALLEL)
            .try_collect::<()>()
            .await?;
        match &self.destination {
            Destination::Registry(to) => to.push_manifest(manifest.digest.as_str(), manifest).await?,
            Destination::Layout(layout, _) => layout.write_manifest(manifest)?,
        }
        self.copied.lock().unwrap_or_else(PoisonError::into_inner).insert(manifest.digest.clone());
        Ok(())
    }

    fn is_copied(&self, digest: &Digest) -> bool {
        self.copied.lock().unwrap_or_else(PoisonError::into_inner).contains(digest)
    }

    async fn blob(&self, digest: &Digest, size: u64) -> Result<(), TransferError> {
        let is_known = match &self.destination {
            Destination::Registry(to) => to.has_blob(digest).await?,
            Destination::Layout(layout, _) => layout.has_blob(digest, size).await?,
        };
        if is_known {
            self.stats.known.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let feed = |sink| self.origin.read_blob(digest, size, sink);
        match &self.destination {
            Destination::Registry(to) => to.push_blob(digest, size, feed).await?,
            Destination::Layout(layout, _) => layout.write_blob(digest, feed).await?,
        }
        self.stats.blobs.fetch_add(1, Ordering::Relaxed);
        self.stats.bytes.fetch_add(size, Ordering::Relaxed);
        Ok(())
    }

    /// Gives a copied image its tag. In a layout, every image has a name.
    async fn name(
        &self,
        manifest: &RawManifest,
        tag: Option<&str>,
        catalog: Option<&str>,
    ) -> Result<(), TransferError> {
        match (&self.destination, tag) {
            (Destination::Layout(layout, name), Some(tag)) => {
                layout.add(format!("{name}:{tag}"), manifest, catalog);
            }
            (Destination::Layout(layout, name), None) => {
                layout.add(format!("{name}@{}", manifest.digest), manifest, catalog);
            }
            (Destination::Registry(to), Some(tag)) => {
                if !to.has_manifest(tag, &manifest.digest).await? {
                    retag(to, tag, manifest).await?;
                }
            }
            (Destination::Registry(_), None) => {}
        }
        Ok(())
    }

    /// Copies the signatures and referrers of an image, if there are any, and those of its referrers.
    async fn attachments(
        &self,
        from: &Repository,
        subject: &Digest,
        depth: usize,
    ) -> Result<(), TransferError> {
        for suffix in ATTACHMENTS {
            let tag = format!("{}.{suffix}", referrers_tag(subject));
            if let Some(manifest) = from.tagged(&tag).await? {
                self.check_tag(&tag, &manifest).await?;
                self.tree(&manifest, 0).await?;
                self.name(&manifest, Some(&tag), None).await?;
            }
        }
        let Some(referrers) = from.referrers(subject).await? else { return Ok(()) };
        for digest in &referrers.manifests {
            self.tree(&from.manifest(digest).await?, 0).await?;
            if depth < MAX_ATTACHED {
                Box::pin(self.attachments(from, digest, depth + 1)).await?;
            }
        }
        if let Destination::Registry(to) = &self.destination {
            let listed = to.referrers(subject).await?.map(|known| known.manifests).unwrap_or_default();
            if referrers.manifests.iter().all(|digest| listed.contains(digest)) {
                return Ok(());
            }
        }
        // A registry without lists of referrers has them in this tag, and so has a layout.
        self.tree(&referrers.index, 0).await?;
        self.name(&referrers.index, Some(&referrers_tag(subject)), None).await
    }
}

/// Gives a manifest at the registry its tag. Signatures and referrers that exist only at this registry are kept: those of
/// the manifest are added to them.
async fn retag(to: &Repository, tag: &str, manifest: &RawManifest) -> Result<(), TransferError> {
    let Some(merge) = merge_of(tag) else { return to.push_manifest(tag, manifest).await };
    let Some(existing) = to.tagged(tag).await? else { return to.push_manifest(tag, manifest).await };
    let merged = merge(tag, &existing.bytes, &manifest.bytes);
    let Some(merged) = merged.map_err(|error| TransferError::local(error.to_string()))? else {
        return Ok(());
    };
    to.push(tag, &RawManifest::new(merged.manifest), merged.blobs, &|_| ()).await
}

type Merge = fn(&str, &[u8], &[u8]) -> Result<Option<olm_pack::Artifact>, PackError>;

/// Merge for a tag of signatures, attestations or referrers. `None` for other tags, which belong to the source. Clients
/// read an SBOM only if it is alone in its tag.
fn merge_of(tag: &str) -> Option<Merge> {
    let encoded = tag.strip_prefix("sha256-").or_else(|| tag.strip_prefix("sha512-"))?;
    let (encoded, suffix) = encoded.split_once('.').unwrap_or((encoded, ""));
    if encoded.len() < 64 || !encoded.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    match suffix {
        "" => Some(merge_referrers),
        "sig" | "att" => Some(merge_signatures),
        _ => None,
    }
}

impl Origin<'_> {
    async fn manifest(&self, digest: &Digest) -> Result<RawManifest, TransferError> {
        match self {
            Self::Registry(repository) => repository.manifest(digest).await,
            Self::Layout(layout) => layout.manifest(digest),
            Self::Built(image) => RawManifest::verified(digest, image.manifest.clone()),
        }
    }

    async fn read_blob(
        &self,
        digest: &Digest,
        size: u64,
        sink: mpsc::Sender<Bytes>,
    ) -> Result<(), TransferError> {
        match self {
            Self::Registry(repository) => repository.read_blob(digest, size, sink).await,
            Self::Layout(layout) => layout.read_blob(digest, sink).await,
            Self::Built(image) => {
                let blob = image.blobs().find(|blob| RawManifest::new((*blob).clone()).digest == *digest);
                let blob = blob.ok_or_else(|| TransferError::local(format!("no blob {digest}")))?;
                // A closed sink ends the transfer.
                let _ = sink.send(blob.clone()).await;
                Ok(())
            }
        }
    }
}

impl Destination<'_> {
    /// `true` if the destination has the manifest with everything that it lists. A registry takes a manifest only after
    /// that; the blobs of a layout are checked.
    async fn is_complete(&self, manifest: &RawManifest) -> Result<bool, TransferError> {
        match self {
            Self::Registry(to) => to.has_manifest(manifest.digest.as_str(), &manifest.digest).await,
            Self::Layout(..) => Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tags_of_signatures_and_referrers_are_merged() {
        let hex = "0".repeat(64);
        for (tag, expected) in [
            (format!("sha256-{hex}"), true),
            (format!("sha256-{hex}.sig"), true),
            (format!("sha256-{hex}.att"), true),
            (format!("sha256-{hex}.sbom"), false),
            (format!("sha256-{hex}x"), false),
            ("sha256-0.sig".to_owned(), false),
            ("v1".to_owned(), false),
        ] {
            assert_eq!(merge_of(&tag).is_some(), expected, "{tag}");
        }
    }
}
