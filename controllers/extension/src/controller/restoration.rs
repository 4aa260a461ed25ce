//! Restores the last revision that succeeded, as a new revision with its content
//! (docs/design/approvals.md#automatic-rollback). Neither catalog nor registry is needed. [`super::rollback`] decides.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::{Client, ResourceExt};
use olm_controller_core::content::target_namespaces;
use olm_controller_core::install_error::InstallError;
use olm_crd_safety::is_crd;
use olm_request::{RolledBackContent, operator_condition};
use olm_revision::content::{ContentPhase, content_digest, objects};
use olm_revision::generate::{Draft, Extension};
use olm_revision::kube_cluster::KubeCluster;
use olm_revision::losses::{custom_resources, loss};
use olm_runtime::reconcile::{RESYNC, ReconcileError};
use tokio::task::block_in_place;

use super::choice::ResolutionFailure;
use super::installation::{CreatedRevision, Installation, Restoration};
use super::memory::Memories;
use super::observed::ObservedExtension;
use super::outcome::ReconcileOutcome;
use super::revisions::{self, Revision};
use super::rollback;
use crate::operator_conditions::OperatorConditions;
use crate::preflight::{CrdVerdict, Preflight, crd_check};
use crate::revision_writer::RevisionWriter;

/// Rolls extensions back.
pub(super) struct Restorer<'a> {
    pub client: &'a Client,
    pub writer: &'a RevisionWriter,
    pub preflight: &'a Preflight,
    /// OperatorConditions, with gate `OperatorConditionCompat`.
    pub conditions: Option<&'a OperatorConditions>,
    pub memories: &'a Memories,
}

impl Restorer<'_> {
    /// Creates a revision with the content of `to`, unless data may be lost. Approvals and windows do not matter.
    ///
    /// # Errors
    /// The revisions have changed since they were observed. An event follows.
    pub(super) async fn restore(
        &self,
        observed: &ObservedExtension<'_>,
        to: Option<&Revision>,
    ) -> Result<Restoration, ReconcileError> {
        let Some(to) = to else {
            let why = rollback::no_predecessor();
            return Ok(Restoration::NotRestored { why, requeue: false, unfinished: false });
        };
        match self.restored(observed, to).await {
            Ok(Some(restoration)) => Ok(restoration),
            Ok(None) => Err(ReconcileError::pending(RESYNC)),
            Err(failure) => {
                self.memories.content_lost(&observed.name);
                let why = format!("not rolled back to revision {}: {failure}", to.name);
                Ok(Restoration::NotRestored { why, requeue: true, unfinished: true })
            }
        }
    }

    /// Rolls back a failed newest revision although a change of it waits or fails: neither may delay a rollback.
    ///
    /// # Errors
    /// Those of [`Restorer::restore`].
    pub(super) async fn restore_if_stopped(
        &self,
        observed: &ObservedExtension<'_>,
        installation: Installation,
    ) -> Result<Installation, ReconcileError> {
        if !installation.is_stopped() || !rollback::is_due(observed) {
            return Ok(installation);
        }
        Ok(installation.with(self.restore(observed, observed.states.installed.as_ref()).await?))
    }

    /// Outcome without a bundle. A failed newest revision is rolled back nevertheless.
    ///
    /// # Errors
    /// Those of [`Restorer::restore`].
    pub(super) async fn report_failure(
        &self,
        observed: &ObservedExtension<'_>,
        refusal: ResolutionFailure,
    ) -> Result<ReconcileOutcome, ReconcileError> {
        let is_due = !refusal.awaits_content && rollback::is_due(observed);
        let outcome = ReconcileOutcome::unresolved(refusal, observed.status());
        if !is_due {
            return Ok(outcome);
        }
        let restored = self.restore(observed, observed.states.installed.as_ref()).await?;
        Ok(outcome.with_rollback(restored, observed))
    }

    /// Report of the failed operator against its replacement by another bundle.
    async fn rollback_blocker(
        &self,
        observed: &ObservedExtension<'_>,
        failed: &Revision,
        kept: &Revision,
        content: &[ContentPhase],
    ) -> Result<Option<String>, InstallError> {
        let Some(conditions) = self.conditions else { return Ok(None) };
        let is_ignored = observed.rules.approval.ignore_operator_condition;
        match operator_condition(objects(content)) {
            Some((namespace, name)) if failed.image != kept.image && !is_ignored => {
                conditions.blocker(&observed.name, &namespace, &name).await
            }
            _ => Ok(None),
        }
    }

    /// `None` if the revisions have changed.
    async fn restored(
        &self,
        observed: &ObservedExtension<'_>,
        to: &Revision,
    ) -> Result<Option<Restoration>, InstallError> {
        let name = &observed.name;
        let existing = self.writer.list(name).await?;
        let live: Vec<_> = existing.iter().cloned().map(Arc::new).collect();
        let live = revisions::states_of(observed.extension, &live);
        let observed_newest = observed.states.newest_active().map(|newest| &newest.name);
        let failed = live
            .newest_active()
            .filter(|newest| Some(&newest.name) == observed_newest && rollback::has_failed(newest));
        let Some(before) = failed.cloned() else { return Ok(None) };
        let active = |name: &str| {
            existing.iter().find(|revision| revision.name_any() == name && !revision.is_archived())
        };
        let (Some(failed), Some(kept)) = (active(&before.name), active(&to.name)) else { return Ok(None) };
        let (content, refused) = (self.writer.content(kept).await?, self.writer.content(failed).await?);
        let risks = self.risks(observed, &content, &refused).await?;
        let not_restored = |why| Ok(Some(Restoration::NotRestored { why, requeue: true, unfinished: false }));
        if let Some(why) = rollback::forbidden(name, to, &risks) {
            return not_restored(why);
        }
        if let Some(blocker) = self.rollback_blocker(observed, &before, to, &refused).await? {
            return not_restored(format!("not rolled back to revision {}: {blocker}", to.name));
        }
        let refusal = RolledBackContent {
            digest: block_in_place(|| content_digest(&refused)),
            revision: before.name.clone(),
            bundle: before.bundle.name.clone(),
            version: before.bundle.version.clone(),
            retry_requested_at: observed.rules.retry_requested_at.clone(),
        };
        let refusal = serde_json::to_string(&refusal).map_err(InstallError::retry)?;
        let spec = observed.extension.spec.as_ref();
        let owner = Extension {
            name: name.clone(),
            uid: observed.extension.uid().unwrap_or_default(),
            progress_deadline_minutes: spec.and_then(|spec| spec.progress_deadline_minutes),
        };
        let targets = target_namespaces(objects(&content));
        let draft = Draft::restored(owner, kept, content, refusal);
        let set = self.writer.create_next(name, &draft, &existing).await?;
        self.preflight.forget(name);
        self.memories.with(name, |memory| (memory.newest, memory.targets) = (None, Some(targets)));
        Ok(Some(Restoration::Created(Box::new(CreatedRevision::new(set, Some(before))))))
    }

    /// Data that would be lost if the content `to` replaced the content `from`, or else the findings of the CRD check
    /// that hold it.
    async fn risks(
        &self,
        observed: &ObservedExtension<'_>,
        to: &[ContentPhase],
        from: &[ContentPhase],
    ) -> Result<Vec<String>, InstallError> {
        let (objects, crds) = (objects(to).collect::<Vec<_>>(), crds(to));
        let mut risks = self.preflight.losses(&objects).await?;
        let cluster = KubeCluster::new(self.client.clone());
        for name in self::crds(from).difference(&crds) {
            risks.extend(loss(name, &custom_resources(&cluster, name).await));
        }
        if risks.is_empty()
            && let Some(check) = crd_check(observed.extension, observed.rules.crd_check)
            && let CrdVerdict::Held(text) = self.preflight.check_crds(&observed.name, &objects, check).await?
        {
            risks.push(text);
        }
        Ok(risks)
    }
}

/// Names of the CRDs.
fn crds(phases: &[ContentPhase]) -> BTreeSet<&str> {
    let crds = objects(phases).filter(|object| is_crd(object));
    crds.filter_map(|object| object["metadata"]["name"].as_str()).collect()
}
