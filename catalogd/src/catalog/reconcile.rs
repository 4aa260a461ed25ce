//! One reconcile of one catalog: carries out the decision of [`super::decide`].

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Resource, ResourceExt};
use olm_api::{ClusterCatalog, ClusterCatalogStatus, finalizers, labels, summary};
use olm_runtime::backoff::with_jitter;
use olm_runtime::cluster::within_deadline;
use olm_runtime::reconcile::ReconcileError;
use olm_runtime::status::write_status;
use serde_json::json;
use tokio::time::Instant;

use super::controller::{Controller, Reconciled};
use super::decide::{
    NextStep, ObservedCatalog, UnpackRecord, decide, has_finalizer, poll_interval, refresh_requested,
};
use super::notices::{self, Notice};
use super::reference::{effective_reference, image};
use super::status::{Outcome, Signature, next, set_signature};
use super::template::report;
use super::unpack_error::UnpackError;

/// Largest part added to the delay of a poll, so that catalogs do not poll at the same time.
const POLL_JITTER: f64 = 0.01;

type Result<T> = std::result::Result<T, ReconcileError>;

impl Controller {
    /// Reconciles content, status and finalizer of one catalog.
    pub(super) async fn reconcile(self: &Arc<Self>, catalog: &ClusterCatalog) -> Result<Reconciled> {
        let name = catalog.name_any();
        let held = self.store.get(&name);
        let record = held.as_ref().and_then(|snapshot| self.record(&name, &snapshot.canonical));
        let template = if self.is_leading() { self.resolve(catalog).await } else { None };
        let decision = decide(ObservedCatalog {
            catalog,
            template: template.as_ref(),
            held: held.as_ref().map(|snapshot| snapshot.canonical.as_str()),
            verified: held.as_ref().is_some_and(|held| self.is_verified(&name, held)),
            record: record.as_ref(),
            leading: self.is_leading(),
            now: Instant::now(),
        });
        if !matches!(decision, NextStep::Unpack { .. } | NextStep::Verify(_) | NextStep::Mirror(_)) {
            self.unpacks.release(&name);
        }
        match decision {
            NextStep::Nothing => Ok(settled(catalog, None)),
            NextStep::Adopt => self.adopt(catalog).await,
            NextStep::Withdraw => self.remove(catalog, &Outcome::Withdrawn).await,
            NextStep::Finalize => self.remove(catalog, &Outcome::Removed).await,
            NextStep::Refuse(message) => self.fail(catalog, &message, true, &Signature::Unchanged).await,
            NextStep::Publish(after) => self.publish(catalog, after).await,
            NextStep::Unpack { image, reason } => {
                tracing::info!(catalog = name, image, "unpack required: {reason}");
                match self.in_background(catalog, false, Some(&image)).await? {
                    Ok(refresh) => self.unpacked(catalog, image, refresh).await,
                    Err(error) => self.not_unpacked(catalog, &error).await,
                }
            }
            NextStep::Verify(next) => {
                let image =
                    if let NextStep::Unpack { image, .. } = &*next { Some(image.as_str()) } else { None };
                match (self.in_background(catalog, true, image).await?, *next) {
                    (Ok(refresh), NextStep::Unpack { image, .. }) => {
                        self.unpacked(catalog, image, refresh).await
                    }
                    (Ok(_), NextStep::Publish(after)) => self.publish(catalog, after).await,
                    (Ok(_), _) => Ok(Reconciled::default()),
                    (Err(error), _) => self.not_unpacked(catalog, &error).await,
                }
            }
            NextStep::Mirror(reference) => {
                match self.in_background(catalog, false, Some(&reference)).await? {
                    Ok(_) => Ok(settled(catalog, None)),
                    Err(error) => Err(ReconcileError::new(&error, error.is_terminal())),
                }
            }
            NextStep::Drop => {
                self.drop_content(&name).await.map_err(ReconcileError::retry)?;
                Ok(settled(catalog, None))
            }
        }
    }

    /// Adds finalizer and name label in one patch with the resourceVersion. The update causes the next reconcile.
    async fn adopt(&self, catalog: &ClusterCatalog) -> Result<Reconciled> {
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
        Ok(Reconciled::default())
    }

    /// Removes the content, then writes the status, then removes the finalizer.
    async fn remove(&self, catalog: &ClusterCatalog, outcome: &Outcome<'_>) -> Result<Reconciled> {
        let name = catalog.name_any();
        if let Err(error) = self.drop_content(&name).await {
            let failed = self.fail(catalog, &error.to_string(), false, &Signature::Unchanged).await;
            return match outcome {
                Outcome::Removed => {
                    let finalizer = finalizers::DELETE_SERVER_CACHE;
                    Err(ReconcileError::retry(format!("finalizer {finalizer:?} failed: {error}")))
                }
                _ => failed,
            };
        }
        let catalog = self.write(catalog, outcome, &Signature::NotDemanded).await?;
        if !has_finalizer(&catalog) {
            return Ok(settled(&catalog, None));
        }
        let kept = catalog.finalizers().iter().filter(|one| *one != finalizers::DELETE_SERVER_CACHE);
        let kept: Vec<&String> = kept.collect();
        self.patch_metadata(&catalog, json!({ "finalizers": kept })).await?;
        Ok(Reconciled::default())
    }

    /// Records the poll of `reference` and the `refresh` request that it fulfilled, and publishes the content.
    async fn unpacked(
        &self,
        catalog: &ClusterCatalog,
        reference: String,
        refresh: Option<String>,
    ) -> Result<Reconciled> {
        let interval = image(catalog).ok().and_then(poll_interval);
        let is_current = refresh.as_deref() == refresh_requested(catalog);
        self.remember(catalog, Some(Instant::now()), Some(reference), refresh);
        self.polls.succeeded(catalog.name_any(), Timestamp::now());
        let published = self.publish(catalog, interval).await?;
        // A later request needs another poll. Its event came while the pull ran.
        let again = Reconciled { resource_version: None, requeue_after: Some(Duration::ZERO) };
        Ok(if is_current { published } else { again })
    }

    async fn publish(&self, catalog: &ClusterCatalog, requeue_after: Option<Duration>) -> Result<Reconciled> {
        let name = catalog.name_any();
        let Some(snapshot) = self.store.get(&name) else {
            return Err(ReconcileError::retry("content was removed while it was being published"));
        };
        let record = self.record(&name, &snapshot.canonical).unwrap_or_else(|| {
            // Content of a template is resolved once by each process.
            let reference = image(catalog).ok().filter(|_| catalog.image_template().is_none());
            let refresh = refresh_requested(catalog).map(str::to_owned);
            self.remember(catalog, None, reference.map(|image| image.ref_.clone()), refresh)
        });
        let outcome = Outcome::Served {
            canonical: &snapshot.canonical,
            base_url: &self.base_url(&name),
            unpacked_at: record.unpacked_at,
        };
        let signature = match self.accepted_signature(&name, &snapshot) {
            None => Signature::Unchanged,
            Some(false) => Signature::NotDemanded,
            Some(true) => Signature::Accepted(snapshot.canonical.clone()),
        };
        let written = self.write(catalog, &outcome, &signature).await?;
        match self.resolution(catalog) {
            // The version of the cluster is not known.
            Some(Err(error)) if !error.is_syntax() => Err(ReconcileError::retry(error)),
            _ => Ok(settled(&written, requeue_after.map(|delay| with_jitter(delay, POLL_JITTER)))),
        }
    }

    /// Records the success with the held content. Content that this process has not served before gets the present
    /// time as `lastUnpacked`.
    fn remember(
        &self,
        catalog: &ClusterCatalog,
        last_poll: Option<Instant>,
        reference: Option<String>,
        refresh: Option<String>,
    ) -> UnpackRecord {
        let name = catalog.name_any();
        let held = self.store.get(&name).map(|held| held.canonical.clone()).unwrap_or_default();
        let before = self.record(&name, &held).filter(|record| record.uid == catalog.metadata.uid);
        let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default();
        let record = UnpackRecord {
            uid: catalog.metadata.uid.clone(),
            generation: catalog.metadata.generation.unwrap_or_default(),
            unpacked_at: before.as_ref().map_or(now, |record| record.unpacked_at),
            last_poll: last_poll.or_else(|| before.and_then(|record| record.last_poll)),
            refresh,
            reference,
        };
        self.records.lock().insert(name, (held, record.clone()));
        record
    }

    /// Reports that content could not be unpacked, or was rejected by the signature policy.
    async fn not_unpacked(&self, catalog: &ClusterCatalog, error: &UnpackError) -> Result<Reconciled> {
        let message = error.to_string();
        let signature = self.signature_after(catalog, error);
        if error.is_rejected() && self.store.get(&catalog.name_any()).is_none() {
            self.write(catalog, &Outcome::Rejected(&message), &signature).await?;
            return Err(ReconcileError::retry(message));
        }
        self.fail(catalog, &message, error.is_terminal(), &signature).await
    }

    /// Verdict of the signature policy after a failure.
    fn signature_after(&self, catalog: &ClusterCatalog, error: &UnpackError) -> Signature {
        let configured = image(catalog).map(|image| image.ref_.as_str()).unwrap_or_default();
        let resolution = self.resolution(catalog);
        let image = effective_reference(catalog, configured, resolution.as_ref());
        if let Some(reason) = error.unverified() {
            let message = format!("image {image}: {reason}");
            return if reason.is_rejected() {
                Signature::Rejected(message)
            } else {
                Signature::Unknown(message)
            };
        }
        let name = catalog.name_any();
        let is_unverified = self.store.get(&name).is_some_and(|held| !self.is_verified(&name, &held));
        if is_unverified {
            Signature::Unknown(format!("image {image}: {error}"))
        } else {
            Signature::Unchanged
        }
    }

    /// Writes the failure to the status and returns it.
    async fn fail(
        &self,
        catalog: &ClusterCatalog,
        message: &str,
        terminal: bool,
        signature: &Signature,
    ) -> Result<Reconciled> {
        let failure = ReconcileError::new(message, terminal);
        match self.write(catalog, &Outcome::Failed { message, terminal }, signature).await {
            Ok(_) => Err(failure),
            Err(write) => Err(ReconcileError { message: format!("{message}; {}", write.message), ..write }),
        }
    }

    /// Writes the status of `outcome` if it differs. Returns the written object.
    async fn write(
        &self,
        catalog: &ClusterCatalog,
        outcome: &Outcome<'_>,
        signature: &Signature,
    ) -> Result<ClusterCatalog> {
        let now = Timestamp::now();
        let resolution = self.resolution(catalog);
        let mut status = next(catalog, outcome, resolution.as_ref(), now);
        report(&mut status, resolution.as_ref(), catalog.metadata.generation, now);
        set_signature(&mut status, signature, catalog.metadata.generation, now);
        summary::update(&mut status, self.status_summary, catalog.metadata.generation, now);
        let written = write_status(&self.writer(), catalog, &status).await;
        let written = written.map_err(|error| ReconcileError::write("error updating status", &error))?;
        self.publish_event(catalog, &status);
        Ok(written.unwrap_or_else(|| catalog.clone()))
    }

    /// Publishes the Event for the change of status, if any.
    fn publish_event(&self, catalog: &ClusterCatalog, next: &ClusterCatalogStatus) {
        let about = catalog.object_ref(&());
        if notices::is_over(next) {
            self.events.resolved(&about, notices::UNAVAILABLE);
        }
        match notices::notice(catalog.status.as_ref(), next) {
            Some(Notice::Updated(note)) => self.events.normal(about, notices::UPDATED, note),
            Some(Notice::Unavailable(note)) => self.events.warning(about, notices::UNAVAILABLE, note),
            None => {}
        }
    }

    async fn patch_metadata(&self, catalog: &ClusterCatalog, mut metadata: serde_json::Value) -> Result<()> {
        metadata["resourceVersion"] = json!(catalog.resource_version());
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let name = catalog.name_any();
        let writer = self.writer();
        let patched = within_deadline(writer.patch_metadata(&name, &PatchParams::default(), &patch)).await;
        match patched {
            Ok(_) => Ok(()),
            // Deleted already: no finalizer to remove.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(ReconcileError::write("error updating finalizers", &error)),
        }
    }
}

/// No reconcile until the object changes or `requeue_after` has passed.
fn settled(catalog: &ClusterCatalog, requeue_after: Option<Duration>) -> Reconciled {
    Reconciled { resource_version: catalog.resource_version(), requeue_after }
}
