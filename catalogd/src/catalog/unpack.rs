//! Background work on the content of one catalog: pull, verify, store, remove.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use kube::ResourceExt;
use olm_api::ClusterCatalog;
use olm_oci::{CanonicalRef, PullError, Reference, catalog_folder};
use olm_runtime::reconcile::{RESYNC, ReconcileError};
use olm_runtime::traces::{TRACES, traced};
use tokio::sync::SemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::controller::Controller;
use super::decide::refresh_requested;
use super::unpack_error::{ContentError, UnpackError};
use crate::content::{Snapshot, UnpackDirectory};

/// Nice value of threads that store content: requests take precedence. It gets a quarter of a contended processor.
const STORING_NICE: i32 = 5;

type Result<T, E = UnpackError> = std::result::Result<T, E>;

impl Controller {
    /// Verifies the held content if `verify`, then unpacks `image`, if any. Runs in a background task that may outlast
    /// this reconcile, which then ends with a pending `ReconcileError`. Returns the refresh that was requested when the
    /// task began: it may have resolved a tag before a later request.
    pub(super) async fn in_background(
        self: &Arc<Self>,
        catalog: &ClusterCatalog,
        verify: bool,
        image: Option<&str>,
    ) -> Result<Result<Option<String>>, ReconcileError> {
        let want = format!("{:?} {verify} {image:?}", self.goal(catalog));
        let work = |stop: CancellationToken| {
            let (controller, catalog) = (Arc::clone(self), catalog.clone());
            let image = image.map(str::to_owned);
            let reconcile = tracing::Span::current();
            async move {
                let refresh = refresh_requested(&catalog).map(str::to_owned);
                let verified = if verify { controller.verify_held(&catalog, &stop).await } else { Ok(()) };
                // Unpack even if the held content failed verification: the next image may pass.
                let Some(image) = image else { return verified.map(|()| refresh) };
                let span = tracing::info_span!(target: TRACES, parent: &reconcile, "pull", image);
                match (traced(span, controller.unpack(&catalog, &image, &stop)).await, verified) {
                    // The rejection takes precedence, because the rejected content is no longer served.
                    (Err(_), Err(rejected)) if rejected.is_rejected() => Err(rejected),
                    (unpacked, _) => unpacked.map(|()| refresh),
                }
            }
        };
        let outcome = self.unpacks.outcome(&catalog.name_any(), want, work).await;
        outcome.map_err(|_| ReconcileError::pending(RESYNC))
    }

    /// The held image, under the reference that was verified last, or else the one it was pulled under.
    fn held_image(&self, name: &str, held: &Snapshot) -> Option<CanonicalRef> {
        let verified = self.store.verification(name).and_then(|verification| verification.image());
        verified.filter(|image| image.to_string() == held.canonical).or_else(|| {
            let reference: Reference = held.canonical.parse().ok()?;
            CanonicalRef::from_digest(&reference)
        })
    }

    pub(super) fn is_verified(&self, name: &str, held: &Snapshot) -> bool {
        self.accepted_signature(name, held).is_some()
    }

    /// `true` if the present signature policy demands a signature of the held content. `None` if it is unreadable or
    /// has not accepted the content yet.
    pub(super) fn accepted_signature(&self, name: &str, held: &Snapshot) -> Option<bool> {
        let needed = self.puller.verification(&self.held_image(name, held)?).ok()?;
        (!needed.is_signed() || self.store.verification(name).as_ref() == Some(&needed))
            .then_some(needed.is_signed())
    }

    /// Verifies the held content by the present signature policy. Removes it if rejected.
    async fn verify_held(&self, catalog: &ClusterCatalog, stop: &CancellationToken) -> Result<()> {
        let name = catalog.name_any();
        let Some(held) = self.store.get(&name) else { return Ok(()) };
        let Some(image) = self.held_image(&name, &held) else { return Ok(()) };
        let verified = self.verify(&name, &image, stop).await;
        if let Err(error) = &verified
            && error.is_rejected()
        {
            tracing::warn!(catalog = name, image = %image, %error, "content is rejected by the signature policy");
            self.forget(&name);
            let store = self.store.clone();
            let removed = tokio::task::spawn_blocking(move || store.remove(&name)).await;
            if let Err(error) = removed.map_err(std::io::Error::other)? {
                tracing::error!(%error, "failed to remove files of rejected content");
            }
        }
        verified
    }

    /// Verifies a held image by the present signature policy, unless that was done before.
    async fn verify(&self, name: &str, image: &CanonicalRef, stop: &CancellationToken) -> Result<()> {
        let needed = self.puller.verification(image)?;
        if !needed.is_signed() || self.store.verification(name).as_ref() == Some(&needed) {
            return Ok(());
        }
        let verified = stop.run_until_cancelled(self.puller.verify(image)).await;
        Ok(self.store.set_verification(name, &verified.ok_or(UnpackError::Superseded)??)?)
    }

    /// Resolves `image`, pulls and stores its content unless it is held already. `stop` interrupts network traffic
    /// only. A complete pull is still stored.
    async fn unpack(&self, catalog: &ClusterCatalog, image: &str, stop: &CancellationToken) -> Result<()> {
        let (name, reference) = (catalog.name_any(), image.parse().map_err(PullError::from)?);
        let image = stop.run_until_cancelled(self.puller.resolve(&reference)).await;
        let image = image.ok_or(UnpackError::Superseded)??;
        let canonical = image.to_string();
        if self.store.get(&name).is_some_and(|held| held.canonical == canonical) {
            return self.verify(&name, &image, stop).await;
        }
        if let Some(failure) = self.known_failure(catalog, &canonical) {
            return Err(UnpackError::KnownFailure(failure));
        }
        let _permit = self.suspect_permit(&name, &image)?;
        let pulled = self.pull_and_store(&name, &image, stop).await;
        pulled.inspect_err(|error| {
            if error.is_of_the_content() {
                let failure = ContentError { message: error.to_string(), terminal: error.is_terminal() };
                self.remember_failure(catalog, &canonical, failure);
            }
        })
    }

    /// Delays images that ended an earlier process: one at a time, after all other catalogs and a growing wait.
    fn suspect_permit(&self, name: &str, image: &CanonicalRef) -> Result<Option<SemaphorePermit<'_>>> {
        let Some(suspect) = self.store.suspect(image.digest().as_str()) else {
            return Ok(None);
        };
        let is_due = suspect.is_due(SystemTime::now()) && self.others_were_tried(name);
        let permit = if is_due { self.suspect.try_acquire().ok() } else { None };
        permit.map(Some).ok_or_else(|| UnpackError::Suspect(image.to_string()))
    }

    async fn pull_and_store(&self, name: &str, image: &CanonicalRef, stop: &CancellationToken) -> Result<()> {
        let directory = self.unpack_directory(name, image).await?;
        let destination = directory.destination();
        let pull = self.puller.pull_folder(image, catalog_folder, &destination);
        let stored = match stop.run_until_cancelled(pull).await {
            Some(Ok((folder, verification))) => {
                let (files, bytes) = (folder.files, folder.bytes);
                tracing::info!(catalog = name, image = %image, files, bytes, "image unpacked");
                let store = self.store_content(name, folder.path, image.to_string());
                let stored = traced(tracing::info_span!(target: TRACES, "store"), store).await;
                stored.and_then(|()| Ok(self.store.set_verification(name, &verification)?))
            }
            Some(Err(error)) => Err(error.into()),
            None => Err(UnpackError::Superseded),
        };
        if stored.as_ref().map_or_else(UnpackError::is_of_the_content, |()| true) {
            directory.clear_suspicion();
        }
        // Blocking: removes up to gigabytes of files.
        tokio::task::spawn_blocking(move || drop(directory)).await.map_err(std::io::Error::other)?;
        stored
    }

    async fn unpack_directory(&self, name: &str, image: &CanonicalRef) -> std::io::Result<UnpackDirectory> {
        let (store, name, digest) = (self.store.clone(), name.to_owned(), image.digest().clone());
        tokio::task::spawn_blocking(move || store.unpack_directory(&name, digest.as_str())).await?
    }

    /// Parses and stores the content. At most `STORING` catalogs at a time.
    async fn store_content(&self, name: &str, root: PathBuf, canonical: String) -> Result<()> {
        let permit = self.storing.acquire().await.map_err(std::io::Error::other)?;
        let (store, catalog) = (self.store.clone(), name.to_owned());
        let stored = on_low_priority_thread(move || store.replace(&catalog, &root, canonical)).await?;
        drop(permit);
        let snapshot = stored?;
        tracing::info!(catalog = name, bytes = snapshot.data.length, "content stored");
        Ok(())
    }

    pub(super) async fn drop_content(&self, name: &str) -> std::io::Result<()> {
        self.unpacks.end(name).await;
        self.forget(name);
        let (store, name) = (self.store.clone(), name.to_owned());
        tokio::task::spawn_blocking(move || store.remove(&name)).await?
    }
}

/// Runs `work` on a thread of its own with low priority, so that requests take precedence.
async fn on_low_priority_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<T> {
    let (sender, done) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("store".to_owned()).spawn(move || {
        // On Linux the priority applies to the calling thread only.
        if let Err(error) = rustix::process::setpriority_process(None, STORING_NICE) {
            tracing::debug!(%error, "failed to lower the priority of storing");
        }
        // The receiver is dropped when the process stops.
        let _ = sender.send(work());
    })?;
    done.await.map_err(std::io::Error::other)
}
