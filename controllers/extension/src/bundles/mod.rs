//! Bundles of the extensions: pulled once for each digest, rendered once for each digest and set of render options,
//! then stored on disk, so that an unchanged bundle costs neither registry nor CPU, not even after a restart
//! (docs/design/apply.md#missing-bundle-content, docs/design/bundles.md#author-checks).
//!
//! ```text
//! image ─ resolve ► digest ─┬ stored rendering ─────────────────────► Rendered
//!                           └ stored files, or pull ─── rendering ───►┘ (stored)
//! ```
//!
//! Registries are accessed in the background, by one task for each extension ([`Background`]). A reconcile waits for
//! it briefly. If the task ends later, it requeues the extension.
//!
//! One rendering is stored for each extension, that of the content requested last. The files of images are stored by
//! digest ([`images`]), for all extensions, while one of them has them installed or requests them. A damaged or
//! foreign file, or one written by another build, is rendered again.
//!
//! Stored bundles are rendered under any name and policy. [`Bundles::judge`] decides whether the current signature
//! policy accepts the image under the name that the extension uses. The verifications are stored with the files.

mod checksummed_file;
#[cfg(test)]
pub(crate) mod fixture;
mod images;
mod rendering;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use olm_controller_core::install_error::{InstallError, InstallErrorClass};
use olm_oci::policy::Verification;
use olm_oci::{BUNDLE_FOLDERS, CanonicalRef, PullError, Puller, Reference};
use olm_runtime::background::{Background, Pending};
use olm_runtime::component::version_text;
use olm_runtime::traces::{TRACES, failed, traced};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use images::Images;
pub(crate) use rendering::{RenderRequest, Rendered};

/// Files of a bundle by their path in the image.
type Files = BTreeMap<String, Vec<u8>>;

/// Bundles that are rendered concurrently. One at the limits takes more than a hundred megabytes.
const CONCURRENT_RENDERINGS: usize = 2;
/// Folder with the files of images.
const IMAGES: &str = "images";
/// Folder with a folder for each extension.
const EXTENSIONS: &str = "extensions";
/// File in the extension's folder with its rendering.
const RENDERED: &str = "rendered";

/// Reason why there is no rendered bundle.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum UnusableBundle {
    /// The image is not available.
    Unavailable(InstallError),
    /// The bundle cannot be rendered with these options. Another attempt has the same result.
    Faulty(InstallError),
    /// The image is still being pulled. The end of the pull requeues the extension.
    Pulling(Pending),
}

/// Verdict of the signature policy on an image.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SignatureVerdict {
    /// The policy accepts the image without a signature.
    NotRequired,
    /// The image has the signatures that the policy requires.
    Verified,
    /// The policy rejects the image.
    Rejected(InstallError),
    /// The signatures cannot be verified now.
    Unknown(InstallError),
}

impl SignatureVerdict {
    /// Verdict without an answer, or with an answer that rejects the image.
    pub(crate) fn failed(failure: InstallError) -> Self {
        match failure.class {
            InstallErrorClass::Rejected => Self::Rejected(failure),
            _ => Self::Unknown(failure),
        }
    }

    /// # Errors
    /// The reason for which no revision is created from the image.
    pub(crate) fn accepted(&self) -> Result<(), InstallError> {
        match self {
            Self::NotRequired | Self::Verified => Ok(()),
            Self::Rejected(failure) | Self::Unknown(failure) => Err(failure.clone()),
        }
    }
}

pub(crate) struct Pulled {
    image: CanonicalRef,
    /// Files of the image, if they could not be stored on disk.
    files: Option<Files>,
}

/// Bundles of all extensions.
pub struct Bundles {
    puller: Arc<Puller>,
    images: Arc<Images>,
    /// Pull of the requested image, by extension.
    pub(crate) pulls: Background<String, Result<Pulled, InstallError>>,
    /// Verification of the requested or installed image, by extension.
    pub(crate) verifications: Background<Verification, Result<(), InstallError>>,
    /// Parent of the extensions' folders.
    directory: PathBuf,
    /// Identity of this build. Another one might render differently.
    build_identity: String,
    /// Limits concurrent renderings to the number of processors: each needs megabytes of memory.
    rendering: Semaphore,
    /// Key of the last faulty content and options, and the error, by extension.
    faults: Mutex<HashMap<String, (String, InstallError)>>,
}

impl Bundles {
    /// Opens the bundles below `directory`. Pulls end with `stop`.
    pub fn open(directory: &Path, puller: Puller, stop: &CancellationToken) -> io::Result<Self> {
        let images = directory.join(IMAGES);
        fs::create_dir_all(&images)?;
        let directory = directory.join(EXTENSIONS);
        fs::create_dir_all(&directory)?;
        let extensions = fs::read_dir(&directory)?.flatten().map(|entry| entry.path());
        extensions.chain([images.clone()]).for_each(|folder| checksummed_file::remove_temporary(&folder));
        let rendering = Semaphore::new(CONCURRENT_RENDERINGS);
        let (puller, images) = (Arc::new(puller), Arc::new(Images::new(images)));
        let (pulls, verifications) = (Background::new(stop), Background::new(stop));
        let (build_identity, faults) = (build_identity(), Mutex::default());
        Ok(Self { puller, images, pulls, verifications, directory, build_identity, rendering, faults })
    }

    /// Sets the images that the extension has installed or is rolling out. Files of other images may be removed.
    pub(crate) fn need<'a>(&self, extension: &str, images: impl Iterator<Item = &'a str>) {
        let digest =
            |image: &str| Some(CanonicalRef::from_digest(&image.parse().ok()?)?.digest().to_string());
        self.images.need(extension, images.filter_map(digest).collect());
    }

    /// Removes the files of images that none of these extensions needs.
    pub(crate) async fn sweep(&self, extensions: Vec<String>) {
        let images = Arc::clone(&self.images);
        let sweep = move || images.sweep(extensions.iter().map(String::as_str));
        if let Err(error) = blocking(sweep).await.flatten() {
            tracing::warn!(%error, "failed to remove unneeded bundle files");
        }
    }

    /// Returns the bundle of an image, rendered with these options.
    pub(crate) async fn rendered(
        &self,
        extension: &str,
        image: &str,
        request: RenderRequest,
    ) -> Result<Rendered, UnusableBundle> {
        let reference: Reference = image
            .parse()
            .map_err(|error| UnusableBundle::Unavailable(unavailable(PullError::from(error))))?;
        if let Some(pinned) = CanonicalRef::from_digest(&reference)
            && let Some(made) = self.made(extension, &pinned, None, &request).await
        {
            self.pulls.release(extension);
            return made;
        }
        let work = |stop: CancellationToken| {
            let pull = pull(Arc::clone(&self.puller), Arc::clone(&self.images), reference.clone());
            let pull = async move {
                stop.run_until_cancelled(pull).await.ok_or_else(|| InstallError::retry("cancelled"))?
            };
            traced(tracing::info_span!(target: TRACES, "pull", image), pull)
        };
        let pulled = self.pulls.outcome(extension, image.to_owned(), work).await;
        let pulled = pulled.map_err(UnusableBundle::Pulling)?.map_err(UnusableBundle::Unavailable)?;
        let made = self.made(extension, &pulled.image, pulled.files, &request).await;
        let lost = || UnusableBundle::Unavailable(InstallError::retry("the cache has no files of the image"));
        made.ok_or_else(lost)?
    }

    /// Returns the verdict of the current signature policy on a stored image.
    pub(crate) async fn judge(
        &self,
        extension: &str,
        image: &CanonicalRef,
    ) -> Result<SignatureVerdict, Pending> {
        let needed = match self.puller.verification(image) {
            Ok(needed) => needed,
            Err(error) => return Ok(SignatureVerdict::failed(unavailable(error))),
        };
        if !needed.is_signed() {
            return Ok(SignatureVerdict::NotRequired);
        }
        if self.is_verified(image, &needed).await {
            return Ok(SignatureVerdict::Verified);
        }
        let work = |stop: CancellationToken| {
            let (puller, images) = (Arc::clone(&self.puller), Arc::clone(&self.images));
            let image = image.clone();
            async move {
                let verified = stop.run_until_cancelled(puller.verify(&image)).await;
                let verified =
                    verified.ok_or_else(|| InstallError::retry("cancelled"))?.map_err(unavailable)?;
                store_verification(images, image, verified).await
            }
        };
        let verified = self.verifications.outcome(extension, needed.clone(), work).await?;
        Ok(verified.map_or_else(SignatureVerdict::failed, |()| SignatureVerdict::Verified))
    }

    async fn is_verified(&self, image: &CanonicalRef, needed: &Verification) -> bool {
        let (images, digest, needed) = (Arc::clone(&self.images), image.digest().to_string(), needed.clone());
        blocking(move || images.is_verified(&digest, &needed)).await.unwrap_or_default()
    }

    /// Returns the bundle of an image from memory or disk, or `None` if the image must be pulled.
    async fn made(
        &self,
        extension: &str,
        image: &CanonicalRef,
        files: Option<Files>,
        request: &RenderRequest,
    ) -> Option<Result<Rendered, UnusableBundle>> {
        let digest = image.digest().to_string();
        self.images.need_also(extension, &digest);
        let key = request.key(&digest, &self.build_identity);
        if let Some((_, failure)) = self.faults.lock().get(extension).filter(|(faulty, _)| *faulty == key) {
            return Some(Err(UnusableBundle::Faulty(failure.clone())));
        }
        let permit = self.rendering.acquire().await;
        let path = self.directory.join(extension).join(RENDERED);
        let (images, request, stored_under) = (Arc::clone(&self.images), request.clone(), key.clone());
        let reconcile = tracing::Span::current();
        let made = blocking(move || {
            let stored = checksummed_file::read(&path, &stored_under);
            if let Some(rendered) = stored.and_then(|stored| serde_json::from_slice(&stored).ok()) {
                return Some(Ok(rendered));
            }
            let files = files.or_else(|| images.read(&digest))?;
            let span = tracing::info_span!(target: TRACES, parent: &reconcile, "render", digest);
            let made = span.in_scope(|| rendering::render(&files, &digest, &request).inspect_err(failed));
            if let Ok(rendered) = &made {
                let written = serde_json::to_vec(rendered).map_err(io::Error::from);
                is_written(written.and_then(|bytes| checksummed_file::write(&path, &stored_under, &bytes)));
            }
            Some(made.map_err(UnusableBundle::Faulty))
        });
        let made = made.await.unwrap_or_else(|error| {
            // The error text varies between attempts and must not reach a status.
            tracing::error!(extension, %error, "rendering of the bundle aborted");
            Some(Err(UnusableBundle::Unavailable(InstallError::retry("rendering the bundle ended early"))))
        });
        drop(permit);
        if let Some(Err(UnusableBundle::Faulty(failure))) = &made {
            self.faults.lock().insert(extension.to_owned(), (key, failure.clone()));
        }
        let image = Some(image.clone());
        made.map(|made| made.map(|rendered| Rendered { image, ..rendered }))
    }

    /// Removes everything stored for the extension. Files that only it needed are removed by the next
    /// [`sweep`](Self::sweep).
    pub(crate) async fn remove(&self, extension: &str) -> io::Result<()> {
        self.pulls.end(extension).await;
        self.verifications.end(extension).await;
        self.faults.lock().remove(extension);
        self.images.need_nothing(extension);
        let folder = self.directory.join(extension);
        match blocking(move || fs::remove_dir_all(folder)).await.flatten() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

/// Ensures that the files of an image are on disk, and pulls them if necessary.
async fn pull(
    puller: Arc<Puller>,
    images: Arc<Images>,
    reference: Reference,
) -> Result<Pulled, InstallError> {
    let image = puller.resolve(&reference).await.map_err(unavailable)?;
    let (digest, store) = (image.digest().to_string(), Arc::clone(&images));
    let found = blocking(move || store.read(&digest).is_some()).await.map_err(InstallError::retry)?;
    if found {
        return Ok(Pulled { image, files: None });
    }
    let (files, verification) = puller.pull_files(&image, &BUNDLE_FOLDERS).await.map_err(unavailable)?;
    let (digest, store) = (image.digest().to_string(), Arc::clone(&images));
    let keep = move || (!is_written(store.write(&digest, &files))).then_some(files);
    let files = blocking(keep).await.map_err(InstallError::retry)?;
    if verification.is_signed() {
        store_verification(images, image.clone(), verification).await?;
    }
    Ok(Pulled { image, files })
}

async fn store_verification(
    images: Arc<Images>,
    image: CanonicalRef,
    verification: Verification,
) -> Result<(), InstallError> {
    let keep = move || is_written(images.set_verified(image.digest().as_str(), &verification));
    blocking(keep).await.map(drop).map_err(InstallError::retry)
}

/// Returns `true` if the file was written. If not, only the next restart is slower.
fn is_written(written: io::Result<()>) -> bool {
    written.inspect_err(|error| tracing::warn!(%error, "bundle not stored on disk")).is_ok()
}

/// Runs blocking or CPU-bound work outside of the async runtime.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)
}

/// Returns an identity of this build that differs between builds of one version.
fn build_identity() -> String {
    let file = std::env::current_exe().and_then(fs::metadata);
    let built = file.and_then(|file| Ok((file.len(), file.modified()?))).ok();
    let built = built.and_then(|(size, time)| Some((size, time.duration_since(UNIX_EPOCH).ok()?)));
    format!("{}, built: {built:?}", version_text())
}

/// Converts the error without the marker that signals terminal errors to the reference
/// (docs/design/api.md#condition-updates).
fn unavailable(error: PullError) -> InstallError {
    let class = if error.is_rejected() { InstallErrorClass::Rejected } else { InstallErrorClass::Retry };
    let class = if error.is_terminal() { InstallErrorClass::Blocked } else { class };
    InstallError::new(class, error.unmarked())
}
