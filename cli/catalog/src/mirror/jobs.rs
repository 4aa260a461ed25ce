//! All copies of a run: several at a time, each with its deadline. A failed image does not stop the others.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::{StreamExt, stream};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use olm_oci::{Digest, ImageLimits, Puller, RawManifest, Reference, Selector};

use super::copy::{Copy, Destination, Origin, Stats};
use super::layout::Layout;
use super::plan::{MovableTags, TargetRegistry};

/// Images that are copied at a time.
const PARALLEL: usize = 6;
/// Time limit of an image.
const DEADLINE: Duration = Duration::from_secs(6 * 3600);

/// Image to copy.
pub(super) struct Job {
    /// Reference in the catalog.
    pub(super) source: Reference,
    pub(super) content: Content,
    /// Name of the ClusterCatalog, if the image is a catalog.
    pub(super) catalog: Option<String>,
}

/// Source of the content of an image.
pub(super) enum Content {
    /// Registry, where the image has this reference.
    Registry(Reference),
    /// The layout that is copied.
    Layout(Digest),
    Built(olm_pack::Image),
}

/// Destination of all images.
pub(super) enum Target<'a> {
    Registry(&'a TargetRegistry, &'a MovableTags),
    Layout(&'a Layout),
}

impl Target<'_> {
    /// Reference of the copy of an image.
    pub(super) fn name(&self, source: &Reference) -> String {
        match self {
            Self::Registry(registry, _) => {
                registry.target(source).map_or_else(|error| error.to_string(), |target| target.to_string())
            }
            Self::Layout(_) => source.to_string(),
        }
    }
}

/// Copies the images, catalogs last. Returns those that failed, with the reason.
///
/// # Errors
/// A file that a flag names cannot be used, or a signal arrived.
pub(super) async fn run(
    jobs: &[Job],
    target: &Target<'_>,
    layout: Option<&Layout>,
    images: &ImageArgs,
    stats: &Stats,
    session: &Session,
) -> Result<Vec<(String, String)>, CliError> {
    let mut pullers = Pullers::default();
    for job in jobs {
        if let Content::Registry(from) = &job.content {
            pullers.add(from, false, images)?;
        }
        if let Target::Registry(registry, _) = target
            && let Ok(target) = registry.target(&job.source)
        {
            pullers.add(&target, true, images)?;
        }
    }
    let pullers = &pullers;
    let step = session.progress.step(format!("copying {} images", jobs.len()));
    let (mut done, mut failures) = (0, Vec::new());
    for is_catalog in [false, true] {
        // A reader of the mirror must not see a catalog before its bundles.
        let part = jobs.iter().filter(|job| job.catalog.is_some() == is_catalog);
        let copies = part.map(|job| async move {
            let copied = copy(job, target, layout, pullers, images, stats);
            let late = |_| Err(format!("not done within {} s", DEADLINE.as_secs()));
            let copied = tokio::time::timeout(DEADLINE, copied).await.unwrap_or_else(late);
            (job.source.to_string(), copied)
        });
        let copies: Vec<_> = copies.collect();
        let mut copies = stream::iter(copies).buffer_unordered(PARALLEL);
        loop {
            // The progress of large images is shown before they are complete.
            let next = tokio::time::timeout(Duration::from_secs(1), copies.next());
            match session.interruptible(next).await? {
                Ok(None) => break,
                Ok(Some((image, copied))) => {
                    done += 1;
                    failures.extend(copied.err().map(|error| (image, error)));
                }
                Err(_) => {}
            }
            let (blobs, mib) =
                (stats.blobs.load(Ordering::Relaxed), stats.bytes.load(Ordering::Relaxed) >> 20);
            let failed = failures.len();
            let total = jobs.len();
            step.update(format!(
                "copied {done} of {total} images, {blobs} blobs, {mib} MiB, failed: {failed}"
            ));
        }
    }
    failures.sort();
    Ok(failures)
}

async fn copy(
    job: &Job,
    target: &Target<'_>,
    layout: Option<&Layout>,
    pullers: &Pullers,
    images: &ImageArgs,
    stats: &Stats,
) -> Result<(), String> {
    let (origin, manifest) = match (&job.content, layout) {
        (Content::Registry(from), _) => {
            let source = Box::pin(pullers.get(from, false, images)?.source(from)).await;
            let (repository, manifest) = source.map_err(|error| error.to_string())?;
            (Origin::Registry(repository), manifest)
        }
        (Content::Layout(digest), Some(layout)) => {
            (Origin::Layout(layout), layout.manifest(digest).map_err(|error| error.to_string())?)
        }
        (Content::Layout(_), None) => return Err("no layout".to_owned()),
        (Content::Built(image), _) => (Origin::Built(image), RawManifest::new(image.manifest.clone())),
    };
    let mut may_move = true;
    let destination = match target {
        Target::Registry(registry, tags) => {
            let target = registry.target(&job.source).map_err(|error| error.to_string())?;
            may_move = tags.may_move(&job.source, &target, job.catalog.is_some());
            let puller = pullers.get(&target, true, images)?;
            let repository = Box::pin(puller.target(&target)).await;
            Destination::Registry(repository.map_err(|error| format!("to {target}: {error}"))?)
        }
        Target::Layout(layout) => Destination::Layout(layout, job.source.name()),
    };
    let tag = match job.source.selector() {
        Selector::Tag(tag) => Some(tag.as_str()),
        Selector::Digest(_) => None,
    };
    let copy = Copy { origin, destination, stats, may_move, copied: Mutex::default() };
    copy.image(&manifest, tag, job.catalog.as_deref()).await.map_err(|error| error.to_string())
}

/// Clients for registries, one for each credentials file, to read from and to write to.
#[derive(Default)]
struct Pullers(BTreeMap<(Option<PathBuf>, bool), Puller>);

impl Pullers {
    fn add(&mut self, reference: &Reference, is_target: bool, images: &ImageArgs) -> Result<(), CliError> {
        let key = (images.authfile(reference)?, is_target);
        if let Entry::Vacant(entry) = self.0.entry(key) {
            let mut config = images.config(reference, ImageLimits::BUNDLE)?;
            config.pull_timeout = DEADLINE;
            if is_target {
                // The client takes the time of an upload for a pause. Uploads have limits of their own.
                config.read_timeout = DEADLINE;
            }
            entry.insert(Puller::new(config));
        }
        Ok(())
    }

    fn get(&self, reference: &Reference, is_target: bool, images: &ImageArgs) -> Result<&Puller, String> {
        let authfile = images.authfile(reference).map_err(|error| error.to_string())?;
        self.0.get(&(authfile, is_target)).ok_or_else(|| "no client for the registry".to_owned())
    }
}
