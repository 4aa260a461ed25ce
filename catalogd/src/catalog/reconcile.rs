//! One reconcile of one catalog: carries out the decision of [`super::decide`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Resource, ResourceExt};
use olm_api::{ClusterCatalog, ClusterCatalogStatus, finalizers, labels};
use olm_oci::policy::Verification;
use olm_oci::{CanonicalRef, Class, PullError, Reference, catalog_folder};
use olm_runtime::cluster::within_deadline;
use olm_runtime::reconcile::{Failure, RESYNC};
use olm_runtime::status::write_status;
use serde_json::json;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::controller::{Controller, Done, Refused, with_jitter};
use super::decide::{
    Decision, Observed, Record, decide, has_finalizer, image, poll_interval, refresh_requested,
};
use super::notices::{self, Notice};
use super::status::{Outcome, next};
use crate::content::{Snapshot, UnpackDirectory, WriteError};

/// Nice value of threads that store content: requests take precedence. It gets a quarter of a contended processor.
const BACKGROUND: i32 = 5;

/// Background work on a catalog's content.
#[derive(Clone, Debug)]
enum Work {
    /// Unpacks this image.
    Unpack(String),
    /// Verifies the held content, then unpacks this image, if any.
    Verify(Option<String>),
}

/// Error of unpacking or verifying content.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnpackError {
    #[error("source catalog content: {0}")]
    Pull(#[from] PullError),
    #[error("error storing fbc: {0}")]
    Store(#[from] WriteError),
    /// The same image was refused before and is not pulled again.
    #[error("{}", .0.message)]
    Refused(Refused),
    #[error("error storing fbc: {0}")]
    Disk(#[from] std::io::Error),
    /// An earlier process ended while it unpacked the image.
    #[error(
        "source catalog content: catalogd ended while it unpacked image {0}: it is unpacked again after all other catalogs"
    )]
    Suspect(String),
    /// The catalog changed meanwhile, or the process stops.
    #[error("the image is not wanted any more")]
    Superseded,
}

impl UnpackError {
    fn is_terminal(&self) -> bool {
        match self {
            Self::Pull(error) => error.class() == Class::Terminal,
            Self::Refused(refused) => refused.terminal,
            Self::Store(_) | Self::Disk(_) | Self::Suspect(_) | Self::Superseded => false,
        }
    }

    /// `true` if the signature policy definitely rejects the image.
    fn is_rejected(&self) -> bool {
        matches!(self, Self::Pull(error) if error.is_rejected())
    }

    /// `true` if every attempt with the same image fails in the same way.
    fn is_of_the_content(&self) -> bool {
        match self {
            Self::Pull(error) => error.is_of_the_content(),
            Self::Store(error) => error.is_of_the_content(),
            Self::Refused(_) | Self::Disk(_) | Self::Suspect(_) | Self::Superseded => false,
        }
    }
}

impl Controller {
    /// Reconciles content, status and finalizer of one catalog.
    pub(super) async fn reconcile(self: &Arc<Self>, catalog: &ClusterCatalog) -> Result<Done, Failure> {
        let name = catalog.name_any();
        let held = self.store.get(&name);
        let record = held.as_ref().and_then(|snapshot| self.record(&name, snapshot.canonical()));
        let decision = decide(Observed {
            catalog,
            held: held.as_ref().map(|snapshot| snapshot.canonical()),
            verified: held.as_ref().is_some_and(|held| self.is_verified(&name, held)),
            record: record.as_ref(),
            leading: self.is_leading(),
            now: Instant::now(),
        });
        if !matches!(decision, Decision::Unpack { .. } | Decision::Verify(_) | Decision::Mirror(_)) {
            self.unpacks.release(&name);
        }
        match decision {
            Decision::Nothing => Ok(settled(catalog, None)),
            Decision::Adopt => self.adopt(catalog).await,
            Decision::Withdraw => self.remove(catalog, &Outcome::Withdrawn).await,
            Decision::Finalize => self.remove(catalog, &Outcome::Removed).await,
            Decision::Refuse(message) => self.fail(catalog, &message, true).await,
            Decision::Publish(again) => self.publish(catalog, again).await,
            Decision::Unpack { image, reason } => {
                tracing::info!(catalog = name, image, "unpack required: {reason}");
                match self.in_background(catalog, Work::Unpack(image)).await? {
                    Ok(()) => self.unpacked(catalog).await,
                    Err(error) => self.not_unpacked(catalog, &error).await,
                }
            }
            Decision::Verify(next) => {
                let image =
                    if let Decision::Unpack { image, .. } = &*next { Some(image.clone()) } else { None };
                match (self.in_background(catalog, Work::Verify(image)).await?, *next) {
                    (Ok(()), Decision::Publish(again)) => self.publish(catalog, again).await,
                    (Ok(()), _) => self.unpacked(catalog).await,
                    (Err(error), _) => self.not_unpacked(catalog, &error).await,
                }
            }
            Decision::Mirror(reference) => {
                match self.in_background(catalog, Work::Unpack(reference)).await? {
                    Ok(()) => Ok(settled(catalog, None)),
                    Err(error) => Err(Failure::new(&error, error.is_terminal())),
                }
            }
            Decision::Drop => {
                self.drop_content(&name).await.map_err(Failure::retry)?;
                Ok(settled(catalog, None))
            }
        }
    }

    /// Adds finalizer and name label in one patch with the resourceVersion. The update causes the next reconcile.
    async fn adopt(&self, catalog: &ClusterCatalog) -> Result<Done, Failure> {
        let mut finalizers = catalog.metadata.finalizers.clone().unwrap_or_default();
        if !has_finalizer(catalog) {
            finalizers.push(finalizers::DELETE_SERVER_CACHE.to_owned());
        }
        self.patch_metadata(
            catalog,
            json!({
                "finalizers": finalizers,
                "labels": {labels::METADATA_NAME: catalog.name_any()},
            }),
        )
        .await?;
        Ok(unsettled())
    }

    /// Removes the content, then writes the status, then removes the finalizer.
    async fn remove(&self, catalog: &ClusterCatalog, outcome: &Outcome<'_>) -> Result<Done, Failure> {
        let name = catalog.name_any();
        if let Err(error) = self.drop_content(&name).await {
            let failed = self.fail(catalog, &error.to_string(), false).await;
            return match outcome {
                Outcome::Removed => {
                    let finalizer = finalizers::DELETE_SERVER_CACHE;
                    Err(Failure::retry(format!("finalizer {finalizer:?} failed: {error}")))
                }
                _ => failed,
            };
        }
        let catalog = self.write(catalog, outcome).await?;
        if !has_finalizer(&catalog) {
            return Ok(settled(&catalog, None));
        }
        let kept = catalog.finalizers().iter().filter(|one| *one != finalizers::DELETE_SERVER_CACHE);
        let kept: Vec<&String> = kept.collect();
        self.patch_metadata(&catalog, json!({ "finalizers": kept })).await?;
        Ok(unsettled())
    }

    /// Records the time of the poll and publishes the content.
    async fn unpacked(&self, catalog: &ClusterCatalog) -> Result<Done, Failure> {
        let interval = image(catalog).ok().and_then(poll_interval);
        self.remember(catalog, Some(Instant::now()));
        self.publish(catalog, interval).await
    }

    async fn publish(&self, catalog: &ClusterCatalog, again: Option<Duration>) -> Result<Done, Failure> {
        let name = catalog.name_any();
        let Some(snapshot) = self.store.get(&name) else {
            return Err(Failure::retry("content was removed while it was being published"));
        };
        let record = match self.record(&name, snapshot.canonical()) {
            Some(record) => record,
            None => self.remember(catalog, None),
        };
        let outcome = Outcome::Served {
            canonical: snapshot.canonical(),
            base_url: &self.base_url(&name),
            unpacked_at: record.unpacked_at,
        };
        let catalog = self.write(catalog, &outcome).await?;
        Ok(settled(&catalog, again.map(with_jitter)))
    }

    /// Records the success with the held content. Content that this process has not served before gets the present
    /// time as `lastUnpacked`.
    fn remember(&self, catalog: &ClusterCatalog, last_poll: Option<Instant>) -> Record {
        let name = catalog.name_any();
        let held = self.store.get(&name).map(|held| held.canonical().to_owned()).unwrap_or_default();
        let before = self.record(&name, &held).filter(|record| record.uid == catalog.metadata.uid);
        let record = Record {
            uid: catalog.metadata.uid.clone(),
            generation: catalog.metadata.generation.unwrap_or_default(),
            unpacked_at: before.as_ref().map_or_else(|| whole_seconds(now()), |record| record.unpacked_at),
            last_poll: last_poll.or_else(|| before.and_then(|record| record.last_poll)),
            refresh: refresh_requested(catalog).map(str::to_owned),
        };
        self.records.lock().insert(name, (held, record.clone()));
        record
    }

    /// Runs the work in a background task that may outlast this reconcile, which then ends with a pending
    /// `Failure`.
    async fn in_background(
        self: &Arc<Self>,
        catalog: &ClusterCatalog,
        work: Work,
    ) -> Result<Result<(), UnpackError>, Failure> {
        let want = format!("{:?} {work:?}", self.goal(catalog));
        let work = |stop: CancellationToken| {
            let (controller, catalog, work) = (Arc::clone(self), catalog.clone(), work.clone());
            async move {
                let (image, verified) = match work {
                    Work::Unpack(image) => (Some(image), Ok(())),
                    Work::Verify(next) => (next, controller.verify_held(&catalog, &stop).await),
                };
                // Unpack even if the held content failed verification: the next image may pass.
                let Some(image) = image else { return verified };
                match (controller.unpack(&catalog, &image, &stop).await, verified) {
                    // The rejection takes precedence, because the rejected content is no longer served.
                    (Err(_), Err(rejected)) if rejected.is_rejected() => Err(rejected),
                    (unpacked, _) => unpacked,
                }
            }
        };
        let outcome = self.unpacks.outcome(&catalog.name_any(), want, work).await;
        outcome.map_err(|_| Failure::pending(RESYNC))
    }

    /// The held image, under the reference that was verified last, or else the one it was pulled under.
    fn held_image(&self, name: &str, held: &Snapshot) -> Option<CanonicalRef> {
        let verified = self.store.verification(name).and_then(|verification| verification.image());
        verified.filter(|image| image.to_string() == held.canonical()).or_else(|| {
            let reference: Reference = held.canonical().parse().ok()?;
            CanonicalRef::from_digest(&reference)
        })
    }

    fn is_verified(&self, name: &str, held: &Snapshot) -> bool {
        let Some(image) = self.held_image(name, held) else { return false };
        let is_verified =
            |needed: Verification| !needed.is_signed() || self.store.verification(name) == Some(needed);
        self.puller.verification(&image).is_ok_and(is_verified)
    }

    /// Verifies the held content by the present signature policy. Removes it if rejected.
    async fn verify_held(
        &self,
        catalog: &ClusterCatalog,
        stop: &CancellationToken,
    ) -> Result<(), UnpackError> {
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
    async fn verify(
        &self,
        name: &str,
        image: &CanonicalRef,
        stop: &CancellationToken,
    ) -> Result<(), UnpackError> {
        let needed = self.puller.verification(image)?;
        if self.store.verification(name).as_ref() == Some(&needed) {
            return Ok(());
        }
        if !needed.is_signed() {
            return Ok(());
        }
        let verified = stop.run_until_cancelled(self.puller.verify(image)).await;
        Ok(self.store.set_verification(name, &verified.ok_or(UnpackError::Superseded)??)?)
    }

    /// Resolves `image`, pulls and stores its content unless it is held already. `stop` interrupts network traffic
    /// only. A complete pull is still stored.
    async fn unpack(
        &self,
        catalog: &ClusterCatalog,
        image: &str,
        stop: &CancellationToken,
    ) -> Result<(), UnpackError> {
        let (name, reference) = (catalog.name_any(), image.parse().map_err(PullError::from)?);
        let image = stop.run_until_cancelled(self.puller.resolve(&reference)).await;
        let image = image.ok_or(UnpackError::Superseded)??;
        let canonical = image.to_string();
        if self.store.get(&name).is_some_and(|held| held.canonical() == canonical) {
            return self.verify(&name, &image, stop).await;
        }
        if let Some(refused) = self.refusal(catalog, &canonical) {
            return Err(UnpackError::Refused(refused));
        }
        let _turn = self.turn(&name, &image)?;
        let pulled = self.pull_and_store(&name, &image, stop).await;
        pulled.inspect_err(|error| {
            if error.is_of_the_content() {
                let refused = Refused { message: error.to_string(), terminal: error.is_terminal() };
                self.refuse(catalog, &canonical, refused);
            }
        })
    }

    /// Delays images that ended an earlier process: one at a time, after all other catalogs and a growing wait.
    fn turn(&self, name: &str, image: &CanonicalRef) -> Result<Option<SemaphorePermit<'_>>, UnpackError> {
        let Some(suspect) = self.store.suspect(image.digest().as_str()) else {
            return Ok(None);
        };
        let is_due = suspect.is_due(SystemTime::now()) && self.others_were_tried(name);
        let turn = if is_due { self.suspect.try_acquire().ok() } else { None };
        turn.map(Some).ok_or_else(|| UnpackError::Suspect(image.to_string()))
    }

    async fn pull_and_store(
        &self,
        name: &str,
        image: &CanonicalRef,
        stop: &CancellationToken,
    ) -> Result<(), UnpackError> {
        let directory = self.unpack_directory(name, image).await?;
        let destination = directory.destination();
        let pull = self.puller.pull_folder(image, catalog_folder, &destination);
        let stored = match stop.run_until_cancelled(pull).await {
            Some(Ok((folder, verification))) => {
                let (files, bytes) = (folder.files, folder.bytes);
                tracing::info!(catalog = name, image = %image, files, bytes, "image unpacked");
                let stored = self.store_content(name, folder.path, image.to_string()).await;
                stored.and_then(|()| Ok(self.store.set_verification(name, &verification)?))
            }
            Some(Err(error)) => Err(error.into()),
            None => Err(UnpackError::Superseded),
        };
        if stored.as_ref().map_or_else(UnpackError::is_of_the_content, |()| true) {
            directory.survived();
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
    async fn store_content(&self, name: &str, root: PathBuf, canonical: String) -> Result<(), UnpackError> {
        let permit = self.storing.acquire().await.map_err(std::io::Error::other)?;
        let (store, catalog) = (self.store.clone(), name.to_owned());
        let stored = in_background(move || store.replace(&catalog, &root, canonical)).await?;
        drop(permit);
        let snapshot = stored?;
        tracing::info!(catalog = name, bytes = snapshot.length(), "content stored");
        Ok(())
    }

    async fn drop_content(&self, name: &str) -> std::io::Result<()> {
        self.unpacks.end(name).await;
        self.forget(name);
        let (store, name) = (self.store.clone(), name.to_owned());
        tokio::task::spawn_blocking(move || store.remove(&name)).await?
    }

    /// Reports that content could not be unpacked, or was rejected by the signature policy.
    async fn not_unpacked(&self, catalog: &ClusterCatalog, error: &UnpackError) -> Result<Done, Failure> {
        let message = error.to_string();
        if error.is_rejected() && self.store.get(&catalog.name_any()).is_none() {
            self.write(catalog, &Outcome::Rejected(&message)).await?;
            return Err(Failure::retry(message));
        }
        self.fail(catalog, &message, error.is_terminal()).await
    }

    /// Writes the failure to the status and returns it.
    async fn fail(&self, catalog: &ClusterCatalog, message: &str, terminal: bool) -> Result<Done, Failure> {
        let failure = Failure::new(message, terminal);
        match self.write(catalog, &Outcome::Failed { message, terminal }).await {
            Ok(_) => Err(failure),
            Err(write) => Err(Failure { message: format!("{message}; {}", write.message), ..write }),
        }
    }

    /// Writes the status of `outcome` if it differs. Returns the written object.
    async fn write(
        &self,
        catalog: &ClusterCatalog,
        outcome: &Outcome<'_>,
    ) -> Result<ClusterCatalog, Failure> {
        let status = next(catalog, outcome, now());
        let written = write_status(&self.api, catalog, &status).await;
        let written = written.map_err(|error| Failure::write("error updating status", &error))?;
        self.tell(catalog, &status);
        Ok(written.unwrap_or_else(|| catalog.clone()))
    }

    /// Publishes the Event for the change of status, if any.
    fn tell(&self, catalog: &ClusterCatalog, next: &ClusterCatalogStatus) {
        let about = catalog.object_ref(&());
        if notices::is_over(next) {
            self.events.over(&about, notices::UNAVAILABLE);
        }
        match notices::news(catalog.status.as_ref(), next) {
            Some(Notice::Updated(note)) => self.events.normal(about, notices::UPDATED, note),
            Some(Notice::Unavailable(note)) => self.events.warning(about, notices::UNAVAILABLE, note),
            None => {}
        }
    }

    async fn patch_metadata(
        &self,
        catalog: &ClusterCatalog,
        mut metadata: serde_json::Value,
    ) -> Result<(), Failure> {
        metadata["resourceVersion"] = json!(catalog.resource_version());
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let name = catalog.name_any();
        let patched = within_deadline(self.api.patch_metadata(&name, &PatchParams::default(), &patch)).await;
        match patched {
            Ok(_) => Ok(()),
            // Deleted already: no finalizer to remove.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(Failure::write("error updating finalizers", &error)),
        }
    }
}

/// No reconcile until the object changes or the delay `again` has passed.
fn settled(catalog: &ClusterCatalog, again: Option<Duration>) -> Done {
    Done { resource_version: catalog.resource_version(), again }
}

/// The next event causes a reconcile.
fn unsettled() -> Done {
    Done { resource_version: None, again: None }
}

fn now() -> Timestamp {
    Timestamp::now()
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Runs `work` on a thread of its own with low priority, so that requests take precedence.
async fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> std::io::Result<T> {
    let (sender, done) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("store".to_owned()).spawn(move || {
        // On Linux the priority applies to the calling thread only.
        if let Err(error) = rustix::process::setpriority_process(None, BACKGROUND) {
            tracing::debug!(%error, "failed to lower the priority of storing");
        }
        // The receiver is dropped when the process stops.
        let _ = sender.send(work());
    })?;
    done.await.map_err(std::io::Error::other)
}
