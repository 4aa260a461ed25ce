//! Bundles as the extensions want them: pulled once for each digest, rendered once for each digest and set of wishes,
//! then kept on disk, so that an unchanged bundle costs neither registry nor CPU, not even after a restart (spec 05 §§3.5,
//! 18.5, spec 04 §17 #15).
//!
//! ```text
//! image ─ resolve ► digest ─┬ kept rendering ───────────────────────► Rendered
//!                           └ kept files, or else pull ─ rendering ───►┘ (kept)
//! ```
//!
//! Of each extension one rendering is kept, that of the content wanted last; the files of images are kept by digest
//! ([`images`]), for all extensions, while one of them has them installed, or wants to. What is damaged, foreign, or of
//! another program is made again.

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
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::UNIX_EPOCH;

use olm_oci::{BUNDLE_FOLDERS, CanonicalRef, Class, PullError, Puller, Reference};
use olm_service::component::version_text;
use tokio::sync::Semaphore;
use tokio::task::{block_in_place, spawn_blocking};

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
}

/// The bundles of all extensions.
pub(crate) struct Bundles {
    puller: Puller,
    images: Images,
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
    /// Bundles kept below `directory`.
    pub(crate) fn open(directory: &Path, puller: Puller) -> io::Result<Self> {
        let images = directory.join(IMAGES);
        fs::create_dir_all(&images)?;
        let directory = directory.join(EXTENSIONS);
        fs::create_dir_all(&directory)?;
        let processors = available_parallelism().map_or(1, usize::from);
        let rendering = Semaphore::new(processors);
        let (images, program) = (Images::new(images), program());
        Ok(Self { puller, images, directory, program, rendering, faults: Mutex::default() })
    }

    /// The extension has these images installed, or is rolling them out; files of others that it needed before may go.
    pub(crate) fn need<'a>(&self, extension: &str, images: impl Iterator<Item = &'a str>) {
        let digest =
            |image: &str| Some(CanonicalRef::from_digest(&image.parse().ok()?)?.digest().to_string());
        self.images.need(extension, images.filter_map(digest).collect());
    }

    /// Removes the files of images that none of all these extensions needs.
    pub(crate) fn sweep<'a>(&self, extensions: impl Iterator<Item = &'a str>) {
        if let Err(error) = block_in_place(|| self.images.sweep(extensions)) {
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
        let reference: Reference = image.parse().map_err(|error| unavailable(PullError::from(error)))?;
        let pinned = self.puller.resolve(&reference).await.map_err(unavailable)?;
        self.images.need_also(extension, pinned.digest().as_str());
        let key = wishes.key(pinned.digest().as_str(), &self.program);
        if let Some((_, failure)) = self.faults().get(extension).filter(|(faulty, _)| *faulty == key) {
            return Err(Unusable::Faulty(failure.clone()));
        }
        let place = self.directory.join(extension).join(RENDERED);
        if let Some(rendered) = block_in_place(|| read_rendered(&place, &key)) {
            return Ok(rendered);
        }
        let files = self.files(extension, &pinned).await?;
        let permit = self.rendering.acquire().await;
        let made = spawn_blocking(move || rendering::render(&files, &wishes)).await;
        drop(permit);
        let made = made.map_err(|error| {
            // Its text differs from one attempt to the next.
            tracing::error!(extension, %error, "rendering ended early");
            Unusable::Unavailable(Failure::retry("rendering the bundle ended early"))
        })?;
        let rendered = made.map_err(|failure| {
            self.faults().insert(extension.to_owned(), (key.clone(), failure.clone()));
            Unusable::Faulty(failure)
        })?;
        keep(extension, || kept::write(&place, &key, &serde_json::to_vec(&rendered)?));
        Ok(rendered)
    }

    /// Forgets what was kept for the extension; files that it alone needed go with the next [`sweep`](Self::sweep).
    pub(crate) fn remove(&self, extension: &str) -> io::Result<()> {
        self.faults().remove(extension);
        self.images.need_nothing(extension);
        match fs::remove_dir_all(self.directory.join(extension)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    async fn files(&self, extension: &str, image: &CanonicalRef) -> Result<Files, Unusable> {
        let digest = image.digest().as_str();
        if let Some(files) = block_in_place(|| self.images.read(digest)) {
            return Ok(files);
        }
        let files = self.puller.pull_files(image, &BUNDLE_FOLDERS).await.map_err(unavailable)?;
        keep(extension, || self.images.write(digest, &files));
        Ok(files)
    }

    fn faults(&self) -> MutexGuard<'_, HashMap<String, (String, Failure)>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes to disk. Where that fails, only the next restart pays for it.
fn keep(extension: &str, write: impl FnOnce() -> io::Result<()>) {
    if let Err(error) = block_in_place(write) {
        tracing::warn!(extension, %error, "bundle is not kept on disk");
    }
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

/// Without the mark by which other programs tell terminal errors (spec 01 §7.1 rule 7).
fn unavailable(error: PullError) -> Unusable {
    Unusable::Unavailable(match error.class() {
        Class::Terminal => Failure::blocked(error.unmarked()),
        Class::Retry => Failure::retry(error.unmarked()),
    })
}
