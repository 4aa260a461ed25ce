//! OCI image layout with many images, each under its reference. Blobs are streamed, and appear complete or not at all.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use olm_cli_core::error::CliError;
use olm_oci::{Digest, Hasher, RawManifest, TransferError};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// File that identifies a layout, and its content.
const LAYOUT_FILE: (&str, &str) = ("oci-layout", r#"{"imageLayoutVersion":"1.0.0"}"#);
const INDEX: &str = "index.json";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
/// Annotation with the name of an image, here its whole reference.
const NAME: &str = "org.opencontainers.image.ref.name";
/// Annotation of a catalog image: the name of its ClusterCatalog.
const CATALOG: &str = "ext.olm.operatorframework.io/catalog";
/// Annotation of the index: images that could not be copied with their errors, by source, as JSON.
const MISSING: &str = "ext.olm.operatorframework.io/missing-images";
/// Largest index or manifest, in bytes.
const MAX_JSON: u64 = 64 << 20;
/// Size of the parts in which a blob is read.
const CHUNK: usize = 1 << 18;
/// Parts of a blob between network and disk.
const QUEUE: usize = 16;

/// Layout in a folder.
pub(super) struct Layout {
    root: PathBuf,
    entries: Mutex<BTreeMap<String, Entry>>,
    missing: Mutex<Missing>,
}

/// Images that could not be copied to a layout with their errors, by source of the run.
type Missing = BTreeMap<String, BTreeMap<String, String>>;

/// Image of a layout.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    media_type: String,
    pub(super) digest: String,
    size: u64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

impl Entry {
    /// Name of the ClusterCatalog, if the image is a catalog.
    pub(super) fn catalog(&self) -> Option<&str> {
        self.annotations.get(CATALOG).map(String::as_str)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Index {
    schema_version: u8,
    #[serde(default)]
    media_type: String,
    manifests: Vec<Entry>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

impl Layout {
    /// Opens the layout in `root`.
    ///
    /// # Errors
    /// The index cannot be read, or has an image without a reference as its name.
    pub(super) fn open(root: &Path) -> Result<Self, CliError> {
        let path = root.join(INDEX);
        let text = read(&path, MAX_JSON).map_err(CliError::operational)?;
        let index: Index =
            serde_json::from_slice(&text).map_err(|error| CliError::at(path.display(), error))?;
        let missing = index.annotations.get(MISSING).map(|text| serde_json::from_str(text)).transpose();
        let missing = missing.map_err(|error| {
            CliError::at(path.display(), format!("annotation {MISSING} is not valid: {error}"))
        })?;
        let mut entries = BTreeMap::new();
        for entry in index.manifests {
            let name = entry.annotations.get(NAME).cloned().ok_or_else(|| {
                let why = format!("image {} has no reference in annotation {NAME}", entry.digest);
                CliError::at(path.display(), why)
            })?;
            entries.insert(name, entry);
        }
        let missing = Mutex::new(missing.unwrap_or_default());
        Ok(Self { root: root.to_owned(), entries: Mutex::new(entries), missing })
    }

    /// Opens the layout in `root`, or creates one in an empty or new folder.
    ///
    /// # Errors
    /// The folder contains something else, or cannot be written.
    pub(super) fn create(root: &Path) -> Result<Self, CliError> {
        if olm_pack::is_layout(root) && root.join(INDEX).exists() {
            return Self::open(root);
        }
        let empty = match fs::read_dir(root).map(|mut listing| listing.next().is_none()) {
            Ok(empty) => empty,
            Err(error) if error.kind() == ErrorKind::NotFound => true,
            Err(error) => return Err(CliError::at(root.display(), error)),
        };
        // A first run that was interrupted has no index yet.
        if !empty && !olm_pack::is_layout(root) {
            let why = "the directory is neither empty nor an OCI image layout; nothing was changed";
            return Err(CliError::at(root.display(), why));
        }
        let layout = Self { root: root.to_owned(), entries: Mutex::default(), missing: Mutex::default() };
        layout.write(LAYOUT_FILE.0, LAYOUT_FILE.1.as_bytes()).map_err(CliError::operational)?;
        Ok(layout)
    }

    /// Images by reference.
    pub(super) fn entries(&self) -> BTreeMap<String, Entry> {
        locked(&self.entries).clone()
    }

    /// Images that the layout should have but could not be copied, with their errors.
    pub(super) fn missing(&self) -> BTreeMap<String, String> {
        let missing = locked(&self.missing);
        missing.values().flatten().map(|(image, error)| (image.clone(), error.clone())).collect()
    }

    /// Adds an image whose parts are written. `catalog` is the name of its ClusterCatalog.
    pub(super) fn add(&self, reference: String, manifest: &RawManifest, catalog: Option<&str>) {
        let mut annotations = BTreeMap::from([(NAME.to_owned(), reference.clone())]);
        annotations.extend(catalog.map(|name| (CATALOG.to_owned(), name.to_owned())));
        let entry = Entry {
            media_type: manifest.media_type.clone(),
            digest: manifest.digest.to_string(),
            size: manifest.bytes.len() as u64,
            annotations,
        };
        // Another run may have failed to copy it.
        locked(&self.missing).values_mut().for_each(|missing| drop(missing.remove(&reference)));
        locked(&self.entries).insert(reference, entry);
    }

    /// Writes the index. `missing` are the images of `source` that could not be copied, which replace those of its last
    /// run.
    ///
    /// # Errors
    /// The disk refuses.
    pub(super) fn finish(&self, source: &str, missing: BTreeMap<String, String>) -> Result<(), CliError> {
        let manifests = self.entries().into_values().collect();
        let mut all = locked(&self.missing).clone();
        all.insert(source.to_owned(), missing);
        all.retain(|_, missing| !missing.is_empty());
        let mut annotations = BTreeMap::new();
        if !all.is_empty() {
            annotations.insert(MISSING.to_owned(), serde_json::to_string(&all)?);
        }
        let index = Index { schema_version: 2, media_type: INDEX_TYPE.to_owned(), manifests, annotations };
        self.write(INDEX, &serde_json::to_vec(&index)?).map_err(CliError::operational)
    }

    /// Manifest with this digest.
    pub(super) fn manifest(&self, digest: &Digest) -> Result<RawManifest, TransferError> {
        let bytes = read(&self.path(digest), MAX_JSON).map_err(TransferError::local)?;
        RawManifest::verified(digest, bytes.into())
    }

    /// Writes a manifest whose parts are written.
    pub(super) fn write_manifest(&self, manifest: &RawManifest) -> Result<(), TransferError> {
        let path = format!("blobs/{}", manifest.digest.as_str().replace(':', "/"));
        self.write(&path, &manifest.bytes).map_err(TransferError::local)
    }

    /// `true` if the layout has the blob with the right content.
    pub(super) async fn has_blob(&self, digest: &Digest, size: u64) -> Result<bool, TransferError> {
        let (path, digest) = (self.path(digest), digest.clone());
        let check = move || {
            let is_complete = fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() == size);
            is_complete && digest_of(&digest, &path).is_ok_and(|actual| actual == digest.as_str())
        };
        tokio::task::spawn_blocking(check).await.map_err(|error| TransferError::local(error.to_string()))
    }

    /// Sends a blob to `sink`, unverified. A closed sink ends the transfer without an error.
    pub(super) async fn read_blob(
        &self,
        digest: &Digest,
        sink: mpsc::Sender<Bytes>,
    ) -> Result<(), TransferError> {
        let path = self.path(digest);
        let send = move || {
            let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
            let mut file = fs::File::open(&path).map_err(failed)?;
            loop {
                let mut chunk = vec![0; CHUNK];
                let length = file.read(&mut chunk).map_err(failed)?;
                chunk.truncate(length);
                if length == 0 || sink.blocking_send(chunk.into()).is_err() {
                    return Ok(());
                }
            }
        };
        let sent = tokio::task::spawn_blocking(send).await;
        sent.map_err(|error| error.to_string()).flatten().map_err(TransferError::local)
    }

    /// Writes a blob that `feed` sends to the given channel.
    ///
    /// # Errors
    /// Errors of `feed`, the disk refuses, or the content does not match the digest.
    pub(super) async fn write_blob<F: Future<Output = Result<(), TransferError>>>(
        &self,
        digest: &Digest,
        feed: impl FnOnce(mpsc::Sender<Bytes>) -> F,
    ) -> Result<(), TransferError> {
        let (sink, mut chunks) = mpsc::channel::<Bytes>(QUEUE);
        let (path, like) = (self.path(digest), digest.clone());
        let write = move || {
            let failed = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
            let mut file = temporary(&path).map_err(failed)?;
            let mut hasher = Hasher::new(&like);
            while let Some(chunk) = chunks.blocking_recv() {
                hasher.update(&chunk);
                file.write_all(&chunk).map_err(failed)?;
            }
            Ok((file, hasher.finish(), path))
        };
        let written = tokio::task::spawn_blocking(write);
        let fed = feed(sink).await;
        let written = written.await.map_err(|error| error.to_string()).flatten();
        // A broken transfer explains a wrong digest, a full disk ends the transfer.
        fed?;
        let (file, actual, path) = written.map_err(TransferError::local)?;
        if actual != digest.as_str() {
            let why = format!("blob {digest}: the content has digest {actual}");
            return Err(TransferError::local(why));
        }
        file.persist(&path).map_err(|error| {
            TransferError::local(format!("cannot write {}: {}", path.display(), error.error))
        })?;
        Ok(())
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs").join(digest.as_str().replace(':', "/"))
    }

    /// Writes a file of the layout atomically.
    fn write(&self, name: &str, content: &[u8]) -> Result<(), String> {
        let path = self.root.join(name);
        let failed = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
        let mut file = temporary(&path).map_err(failed)?;
        file.write_all(content).map_err(failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        Ok(())
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Temporary file beside `path`, readable for everyone.
fn temporary(path: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let parent = path.parent().unwrap_or_else(|| Path::new("."));
    fs::create_dir_all(parent)?;
    let file = tempfile::Builder::new().prefix(".olm-").tempfile_in(parent)?;
    olm_os::set_mode(file.path(), 0o644)?;
    Ok(file)
}

fn read(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    let failed = |why: &dyn std::fmt::Display| format!("cannot read {}: {why}", path.display());
    let mut content = Vec::new();
    let file = fs::File::open(path).map_err(|error| failed(&error))?;
    file.take(limit + 1).read_to_end(&mut content).map_err(|error| failed(&error))?;
    if content.len() as u64 > limit {
        return Err(failed(&format!("larger than {limit} bytes")));
    }
    Ok(content)
}

/// Digest of a file in the algorithm of `like`.
fn digest_of(like: &Digest, path: &Path) -> std::io::Result<String> {
    let mut file = fs::File::open(path)?;
    let mut hasher = Hasher::new(like);
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            length => hasher.update(&buffer[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(text: &str) -> Digest {
        RawManifest::new(Bytes::copy_from_slice(text.as_bytes())).digest
    }

    async fn send(sink: mpsc::Sender<Bytes>, text: &'static str) -> Result<(), TransferError> {
        sink.send(Bytes::from_static(text.as_bytes())).await.map_err(|_| TransferError::local("closed"))
    }

    #[tokio::test]
    async fn blob_appears_only_with_its_digest() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::create(&folder.path().join("layout")).unwrap();
        let digest_of_content = digest("content");
        let error = layout.write_blob(&digest_of_content, |sink| send(sink, "conten!")).await.unwrap_err();
        assert!(error.to_string().contains("the content has digest sha256:"), "{error}");
        let error =
            layout.write_blob(&digest_of_content, async |_| Err(TransferError::local("broken"))).await;
        assert_eq!(error.unwrap_err().to_string(), "broken");
        assert!(!layout.has_blob(&digest_of_content, 7).await.unwrap());
        assert_eq!(fs::read_dir(folder.path().join("layout/blobs/sha256")).unwrap().count(), 0);
        layout.write_blob(&digest_of_content, |sink| send(sink, "content")).await.unwrap();
        assert!(layout.has_blob(&digest_of_content, 7).await.unwrap());
        assert!(!layout.has_blob(&digest_of_content, 8).await.unwrap());
        fs::write(layout.path(&digest_of_content), "CONTENT").unwrap();
        assert!(!layout.has_blob(&digest_of_content, 7).await.unwrap(), "damaged blob");
    }

    #[test]
    fn mirror_layout_refuses_directory_with_other_files() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("notes"), "").unwrap();
        let error = Layout::create(folder.path()).err().unwrap().to_string();
        assert!(error.ends_with("neither empty nor an OCI image layout; nothing was changed"), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
