//! Bundles as the extensions want them: pulled once for each digest, rendered once for each digest and set of wishes,
//! then kept on disk, so that an unchanged bundle costs neither registry nor CPU, not even after a restart
//! (docs/design/apply.md#missing-bundle-content, docs/design/bundles.md#author-checks).
//!
//! ```text
//! image ─ resolve ► digest ─┬ kept rendering ───────────────────────► Rendered
//!                           └ kept files, or else pull ─ rendering ───►┘ (kept)
//! ```
//!
//! Registries are asked in the background, by one task for each extension ([`Background`]). A reconcile waits for it a
//! moment; later its end wakes the extension.
//!
//! Of each extension one rendering is kept, that of the content wanted last; the files of images are kept by digest
//! ([`images`]), for all extensions, while one of them has them installed, or wants to. What is damaged, foreign, or of
//! another program is made again.
//!
//! What is kept is rendered under any name and policy; [`Bundles::judge`] tells whether the present signature policy accepts it
//! under the name that the extension uses. The verifications are kept with the files.

#[cfg(test)]
pub(crate) mod fixture;
mod images;
mod kept;
mod rendering;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::UNIX_EPOCH;

use olm_oci::policy::Verification;
use olm_oci::{BUNDLE_FOLDERS, CanonicalRef, Class, PullError, Puller, Reference};
use olm_service::background::{Background, Pending};
use olm_service::component::version_text;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use images::Images;
pub(crate) use rendering::{Rendered, Wishes};

/// Files of a bundle by their path in the image.
type Files = BTreeMap<String, Vec<u8>>;

/// Name of the folder with the files of images.
const IMAGES: &str = "images";
/// Name of the folder with a folder for each extension.
const EXTENSIONS: &str = "extensions";
/// Name of the file there that keeps what was made for it.
const RENDERED: &str = "rendered";

/// Why there is no rendered bundle.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Unusable {
    /// The image cannot be had.
    Unavailable(Failure),
    /// It is no bundle that can be rendered as wished; another attempt has the same result.
    Faulty(Failure),
    /// The image is still being pulled; the end of that wakes the extension.
    Pulling(Pending),
}

/// Verdict of the signature policy about an image: whether it was accepted for signatures that the policy demands, or why it
/// is not accepted.
pub(crate) type SignatureVerdict = Result<bool, Failure>;

/// An image that was pulled.
pub(crate) struct Pulled {
    image: CanonicalRef,
    /// Its files, where they could not be kept on disk.
    files: Option<Files>,
}

/// The bundles of all extensions.
pub(crate) struct Bundles {
    puller: Arc<Puller>,
    images: Arc<Images>,
    /// By extension: the pull of the image that it wants.
    pub(crate) pulls: Background<String, Result<Pulled, Failure>>,
    /// By extension: the verification of the image that it wants or has.
    pub(crate) verifications: Background<Verification, Result<(), Failure>>,
    /// A folder for each extension.
    directory: PathBuf,
    /// Which program renders: another one might render otherwise.
    program: String,
    /// Rendering needs memory by the megabyte, and no more at a time than there are processors would be faster.
    rendering: Semaphore,
    /// By extension: the content and wishes that were found faulty last, and how.
    faults: Mutex<HashMap<String, (String, Failure)>>,
}

impl Bundles {
    /// Bundles kept below `directory`; pulls end with `stop`.
    pub(crate) fn open(directory: &Path, puller: Puller, stop: &CancellationToken) -> io::Result<Self> {
        let images = directory.join(IMAGES);
        fs::create_dir_all(&images)?;
        let directory = directory.join(EXTENSIONS);
        fs::create_dir_all(&directory)?;
        let processors = available_parallelism().map_or(1, usize::from);
        let rendering = Semaphore::new(processors);
        let (puller, images) = (Arc::new(puller), Arc::new(Images::new(images)));
        let (pulls, verifications) = (Background::new(stop), Background::new(stop));
        let (program, faults) = (program(), Mutex::default());
        Ok(Self { puller, images, pulls, verifications, directory, program, rendering, faults })
    }

    /// The extension has these images installed, or is rolling them out; files of others that it needed before may go.
    pub(crate) fn need<'a>(&self, extension: &str, images: impl Iterator<Item = &'a str>) {
        let digest =
            |image: &str| Some(CanonicalRef::from_digest(&image.parse().ok()?)?.digest().to_string());
        self.images.need(extension, images.filter_map(digest).collect());
    }

    /// Removes the files of images that none of all these extensions needs.
    pub(crate) async fn sweep(&self, extensions: Vec<String>) {
        let images = Arc::clone(&self.images);
        let sweep = move || images.sweep(extensions.iter().map(String::as_str));
        if let Err(error) = blocking(sweep).await.flatten() {
            tracing::warn!(%error, "files of bundles that nobody needs stay on disk");
        }
    }

    /// The bundle of an image, rendered as the extension wishes.
    pub(crate) async fn rendered(
        &self,
        extension: &str,
        image: &str,
        wishes: Wishes,
    ) -> Result<Rendered, Unusable> {
        let reference: Reference =
            image.parse().map_err(|error| Unusable::Unavailable(unavailable(PullError::from(error))))?;
        if let Some(pinned) = CanonicalRef::from_digest(&reference)
            && let Some(made) = self.made(extension, &pinned, None, &wishes).await
        {
            self.pulls.release(extension);
            return made;
        }
        let work = |stop: CancellationToken| {
            let pull = pull(Arc::clone(&self.puller), Arc::clone(&self.images), reference.clone());
            async move { stop.run_until_cancelled(pull).await.ok_or_else(|| Failure::retry("cancelled"))? }
        };
        let pulled = self.pulls.outcome(extension, image.to_owned(), work).await;
        let pulled = pulled.map_err(Unusable::Pulling)?.map_err(Unusable::Unavailable)?;
        let made = self.made(extension, &pulled.image, pulled.files, &wishes).await;
        let lost = || Unusable::Unavailable(Failure::retry("files of the image are not on disk any more"));
        made.ok_or_else(lost)?
    }

    /// Verdict of the present signature policy about a held image.
    pub(crate) async fn judge(
        &self,
        extension: &str,
        image: &CanonicalRef,
    ) -> Result<SignatureVerdict, Pending> {
        let needed = match self.puller.verification(image) {
            Ok(needed) => needed,
            Err(error) => return Ok(Err(unavailable(error))),
        };
        let is_signed = needed.is_signed();
        if !is_signed || self.is_verified(image, &needed).await {
            return Ok(Ok(is_signed));
        }
        let work = |stop: CancellationToken| {
            let (puller, images) = (Arc::clone(&self.puller), Arc::clone(&self.images));
            let image = image.clone();
            async move {
                let verified = stop.run_until_cancelled(puller.verify(&image)).await;
                let verified = verified.ok_or_else(|| Failure::retry("cancelled"))?.map_err(unavailable)?;
                keep_verified(images, image, verified).await
            }
        };
        let verified = self.verifications.outcome(extension, needed.clone(), work).await?;
        Ok(verified.map(|()| is_signed))
    }

    async fn is_verified(&self, image: &CanonicalRef, needed: &Verification) -> bool {
        let (images, digest, needed) = (Arc::clone(&self.images), image.digest().to_string(), needed.clone());
        blocking(move || images.is_verified(&digest, &needed)).await.unwrap_or_default()
    }

    /// The bundle of an image from what is here; `None` where the image has to be pulled.
    async fn made(
        &self,
        extension: &str,
        image: &CanonicalRef,
        files: Option<Files>,
        wishes: &Wishes,
    ) -> Option<Result<Rendered, Unusable>> {
        let digest = image.digest().to_string();
        self.images.need_also(extension, &digest);
        let key = wishes.key(&digest, &self.program);
        if let Some((_, failure)) = self.faults.lock().get(extension).filter(|(faulty, _)| *faulty == key) {
            return Some(Err(Unusable::Faulty(failure.clone())));
        }
        let permit = self.rendering.acquire().await;
        let place = self.directory.join(extension).join(RENDERED);
        let (images, wishes, kept_under) = (Arc::clone(&self.images), wishes.clone(), key.clone());
        let made = blocking(move || {
            if let Some(rendered) = read_rendered(&place, &kept_under) {
                return Some(Ok(rendered));
            }
            let made = rendering::render(&files.or_else(|| images.read(&digest))?, &wishes);
            if let Ok(rendered) = &made {
                let written = serde_json::to_vec(rendered).map_err(io::Error::from);
                is_kept(written.and_then(|bytes| kept::write(&place, &kept_under, &bytes)));
            }
            Some(made.map_err(Unusable::Faulty))
        });
        let made = made.await.unwrap_or_else(|error| {
            // Its text differs from one attempt to the next.
            tracing::error!(extension, %error, "rendering ended early");
            Some(Err(Unusable::Unavailable(Failure::retry("rendering the bundle ended early"))))
        });
        drop(permit);
        if let Some(Err(Unusable::Faulty(failure))) = &made {
            self.faults.lock().insert(extension.to_owned(), (key, failure.clone()));
        }
        let image = Some(image.clone());
        made.map(|made| made.map(|rendered| Rendered { image, ..rendered }))
    }

    /// Forgets what was kept for the extension; files that it alone needed go with the next [`sweep`](Self::sweep).
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

/// Has the files of an image on disk: those that are there, or else pulls them.
async fn pull(puller: Arc<Puller>, images: Arc<Images>, reference: Reference) -> Result<Pulled, Failure> {
    let image = puller.resolve(&reference).await.map_err(unavailable)?;
    let (digest, kept) = (image.digest().to_string(), Arc::clone(&images));
    let found = blocking(move || kept.read(&digest).is_some()).await.map_err(Failure::retry)?;
    if found {
        return Ok(Pulled { image, files: None });
    }
    let (files, verification) = puller.pull_files(&image, &BUNDLE_FOLDERS).await.map_err(unavailable)?;
    let (digest, kept) = (image.digest().to_string(), Arc::clone(&images));
    let keep = move || (!is_kept(kept.write(&digest, &files))).then_some(files);
    let files = blocking(keep).await.map_err(Failure::retry)?;
    if verification.is_signed() {
        keep_verified(images, image.clone(), verification).await?;
    }
    Ok(Pulled { image, files })
}

async fn keep_verified(
    images: Arc<Images>,
    image: CanonicalRef,
    verification: Verification,
) -> Result<(), Failure> {
    let keep = move || is_kept(images.set_verified(image.digest().as_str(), &verification));
    blocking(keep).await.map(drop).map_err(Failure::retry)
}

/// Whether something was written to disk. Where not, only the next restart pays for it.
fn is_kept(written: io::Result<()>) -> bool {
    written.inspect_err(|error| tracing::warn!(%error, "bundle is not kept on disk")).is_ok()
}

/// Runs what blocks or computes away from the reconciles.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    spawn_blocking(work).await.map_err(io::Error::other)
}

fn read_rendered(place: &Path, key: &str) -> Option<Rendered> {
    serde_json::from_slice(&kept::read(place, key)?).ok()
}

/// What tells this program from any other, builds of one version included.
fn program() -> String {
    let file = std::env::current_exe().and_then(fs::metadata);
    let built = file.and_then(|file| Ok((file.len(), file.modified()?))).ok();
    let built = built.and_then(|(size, time)| Some((size, time.duration_since(UNIX_EPOCH).ok()?)));
    format!("{}, built: {built:?}", version_text())
}

/// Without the mark by which other programs tell terminal errors (docs/design/api.md#condition-updates).
fn unavailable(error: PullError) -> Failure {
    match error.class() {
        Class::Terminal => Failure::blocked(error.unmarked()),
        Class::Retry if error.is_rejected() => Failure::rejected(error.unmarked()),
        Class::Retry => Failure::retry(error.unmarked()),
    }
}
