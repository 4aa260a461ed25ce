//! One reconcile of one catalog: carries out what [`super::decide`] says.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use olm_api::{ClusterCatalog, finalizers, labels};
use olm_oci::{CanonicalRef, Class, PullError, Reference, catalog_folder};
use olm_service::cluster::within_deadline;
use olm_service::reconcile::Failure;
use olm_service::status::write_status;
use serde_json::json;

use super::controller::Controller;
use super::decide::{Decision, Observed, Record, decide, has_finalizer, image, poll_interval};
use super::status::{Outcome, next};
use crate::content::WriteError;

/// Why content could not be brought here.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnpackError {
    #[error("source catalog content: {0}")]
    Pull(#[from] PullError),
    #[error("error storing fbc: {0}")]
    Store(#[from] WriteError),
    /// The same image was refused before; nothing is pulled again.
    #[error("{0}")]
    Refused(String),
    #[error("error storing fbc: {0}")]
    Disk(#[from] std::io::Error),
    /// The catalog changed meanwhile; the next reconcile knows what is wanted now.
    #[error("the catalog was changed while its image was being pulled")]
    Superseded,
}

impl UnpackError {
    fn is_terminal(&self) -> bool {
        matches!(self, Self::Pull(error) if error.class() == Class::Terminal)
    }
}

impl Controller {
    /// Brings content, status and finalizer of one catalog to where they belong.
    pub(super) async fn reconcile(&self, catalog: &ClusterCatalog) -> Result<Action, Failure> {
        let name = catalog.name_any();
        let held = self.store.get(&name);
        let leading = self.is_leading();
        let decision = decide(Observed {
            catalog,
            held: held.as_ref().map(|snapshot| snapshot.canonical()),
            record: held.as_ref().and_then(|snapshot| self.record(&name, snapshot.canonical())),
            leading,
            now: now(),
        });
        match decision {
            Decision::Nothing => Ok(Action::await_change()),
            Decision::Adopt => self.adopt(catalog).await,
            Decision::Withdraw => self.remove(catalog, &Outcome::Withdrawn).await,
            Decision::Finalize => self.remove(catalog, &Outcome::Removed).await,
            Decision::Refuse(message) => self.fail(catalog, &message, true).await,
            Decision::Publish(again) => self.publish(catalog, again).await,
            Decision::Unpack { image, reason } => {
                tracing::info!(catalog = name, image, "unpack required: {reason}");
                match self.unpack(catalog, &image).await {
                    Ok(()) => self.unpacked(catalog).await,
                    Err(UnpackError::Superseded) => Ok(Action::await_change()),
                    Err(error) => self.fail(catalog, &error.to_string(), error.is_terminal()).await,
                }
            }
            Decision::Mirror(reference) => match self.unpack(catalog, &reference).await {
                Ok(()) | Err(UnpackError::Superseded) => Ok(Action::await_change()),
                Err(error) => Err(Failure { terminal: error.is_terminal(), message: error.to_string() }),
            },
            Decision::Drop => {
                self.drop_content(&name).await.map_err(Failure::retry)?;
                Ok(Action::await_change())
            }
        }
    }

    /// Finalizer and name label in one write, which fails if somebody wrote in between.
    async fn adopt(&self, catalog: &ClusterCatalog) -> Result<Action, Failure> {
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
        Ok(Action::await_change())
    }

    /// Content first, then the status that tells of it, then the finalizer that lets the object go.
    async fn remove(&self, catalog: &ClusterCatalog, outcome: &Outcome<'_>) -> Result<Action, Failure> {
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
        if has_finalizer(&catalog) {
            let kept = catalog.finalizers().iter().filter(|one| *one != finalizers::DELETE_SERVER_CACHE);
            let kept: Vec<&String> = kept.collect();
            self.patch_metadata(&catalog, json!({ "finalizers": kept })).await?;
        }
        Ok(Action::await_change())
    }

    /// The registry answered: remember when, and publish.
    async fn unpacked(&self, catalog: &ClusterCatalog) -> Result<Action, Failure> {
        let interval = image(catalog).ok().and_then(poll_interval);
        self.remember(catalog, Some(now()));
        self.publish(catalog, interval).await
    }

    async fn publish(&self, catalog: &ClusterCatalog, again: Option<Duration>) -> Result<Action, Failure> {
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
        self.write(catalog, &outcome).await?;
        Ok(again.map_or_else(Action::await_change, |again| Action::requeue(with_jitter(again))))
    }

    /// What the leader knows of the content held now. Content that this process has not served before counts
    /// as unpacked now.
    fn remember(&self, catalog: &ClusterCatalog, last_poll: Option<Timestamp>) -> Record {
        let name = catalog.name_any();
        let held = self.store.get(&name).map(|held| held.canonical().to_owned()).unwrap_or_default();
        let before = self.record(&name, &held);
        let generation = catalog.metadata.generation.unwrap_or_default();
        let record = Record {
            generation,
            unpacked_at: before.map_or_else(|| whole_seconds(now()), |record| record.unpacked_at),
            last_poll: last_poll.or_else(|| before.and_then(|record| record.last_poll)),
        };
        self.records().insert(name, (held, record));
        record
    }

    /// Resolves `image` and brings its content here, unless that content is held already.
    async fn unpack(&self, catalog: &ClusterCatalog, image: &str) -> Result<(), UnpackError> {
        let reference: Reference = image.parse().map_err(PullError::from)?;
        let canonical = self.while_wanted(catalog, self.puller.resolve(&reference)).await?;
        let held = self.store.get(&catalog.name_any());
        let is_held = held.is_some_and(|held| held.canonical() == canonical.to_string());
        if is_held { Ok(()) } else { self.pull(catalog, &canonical).await }
    }

    /// Network traffic ends as soon as the catalog changes; it may take long and may never end well.
    async fn while_wanted<T>(
        &self,
        catalog: &ClusterCatalog,
        traffic: impl Future<Output = Result<T, PullError>>,
    ) -> Result<T, UnpackError> {
        tokio::select! {
            result = traffic => Ok(result?),
            () = self.superseded(catalog) => Err(UnpackError::Superseded),
        }
    }

    async fn pull(&self, catalog: &ClusterCatalog, image: &CanonicalRef) -> Result<(), UnpackError> {
        let name = &catalog.name_any();
        let canonical = image.to_string();
        if let Some(message) = self.refusal(name, &canonical) {
            return Err(UnpackError::Refused(message));
        }
        let directory = self.store.unpack_directory(name)?;
        let destination = directory.destination();
        let pull = self.puller.pull_folder(image, catalog_folder, &destination);
        let folder = self.while_wanted(catalog, pull).await?;
        tracing::info!(
            catalog = name,
            image = canonical,
            files = folder.files,
            bytes = folder.bytes,
            "image unpacked"
        );
        let stored = self.store_content(name, folder.path, canonical.clone()).await;
        // Up to gigabytes of files: not on this thread.
        let removed = tokio::task::spawn_blocking(move || drop(directory)).await;
        stored.inspect_err(|error| {
            if let UnpackError::Store(WriteError::Load(_) | WriteError::TooLarge(_)) = error {
                self.refuse(name, &canonical, &error.to_string());
            }
        })?;
        Ok(removed.map_err(std::io::Error::other)?)
    }

    /// Reads and writes the whole content: on a thread for blocking work, few at a time.
    async fn store_content(&self, name: &str, root: PathBuf, canonical: String) -> Result<(), UnpackError> {
        let permit = self.storing.acquire().await.map_err(std::io::Error::other)?;
        let (store, catalog) = (self.store.clone(), name.to_owned());
        let work = tokio::task::spawn_blocking(move || store.replace(&catalog, &root, canonical));
        let stored = work.await.map_err(std::io::Error::other)?;
        drop(permit);
        let snapshot = stored?;
        tracing::info!(catalog = name, bytes = snapshot.length(), "content stored");
        Ok(())
    }

    async fn drop_content(&self, name: &str) -> std::io::Result<()> {
        self.forget(name);
        let (store, name) = (self.store.clone(), name.to_owned());
        tokio::task::spawn_blocking(move || store.remove(&name)).await?
    }

    /// Tells the user what went wrong, and the caller that it did.
    async fn fail(&self, catalog: &ClusterCatalog, message: &str, terminal: bool) -> Result<Action, Failure> {
        let failure = Failure { message: message.to_owned(), terminal };
        match self.write(catalog, &Outcome::Failed { message, terminal }).await {
            Ok(_) => Err(failure),
            Err(write) => Err(Failure::retry(format!("{message}; {}", write.message))),
        }
    }

    /// Writes the status of `outcome` if it differs; returns the object as it is then.
    async fn write(
        &self,
        catalog: &ClusterCatalog,
        outcome: &Outcome<'_>,
    ) -> Result<ClusterCatalog, Failure> {
        let status = next(catalog, outcome, now());
        let written = write_status(&self.api, catalog, &status).await;
        let written = written.map_err(|error| Failure::retry(format!("error updating status: {error}")))?;
        Ok(written.unwrap_or_else(|| catalog.clone()))
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
            // Gone already: there is nothing left to hold on to.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(Failure::retry(format!("error updating finalizers: {error}"))),
        }
    }
}

fn now() -> Timestamp {
    Timestamp::now()
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

/// Up to 1 % later, so that catalogs do not poll in step.
fn with_jitter(delay: Duration) -> Duration {
    let fraction = f64::from(Timestamp::now().subsec_nanosecond()) / 1e9;
    delay.mul_f64(1.0 + fraction.abs() * 0.01)
}
