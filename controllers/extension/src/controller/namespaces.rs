//! Namespaces that an extension selects by label (docs/design/namespaces.md).

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use olm_api::ClusterExtension;
use olm_api::conditions::{self, types};
use olm_controller_core::ages::elapsed;
use olm_controller_core::install_error::InstallError;
use olm_request::{ApprovalMode, ListStep, NamespaceSelector, SelectedNamespaces, list_step, pace};
use olm_revision::generate::BundleIdentity;
use olm_runtime::reconcile::ReconcileError;
use serde_json::Value;
use tokio::time::Instant;

use super::choice::{Together, of_revision};
use super::garbage_collection::{RequeueSender, requeue_extension};
use super::install::Installer;
use super::installation::{InstallResult, Target};
use super::memory::ExtensionMemory;
use super::observed::{NamespaceList, ObservedExtension};
use super::parts::ExtensionController;
use super::revisions::{Revision, RevisionInputs};

impl ExtensionController {
    /// Namespaces that the extension selects by label. `None` without a selector or without the gate.
    ///
    /// # Errors
    /// The namespaces have not been listed.
    pub(super) async fn selected_namespaces(
        &self,
        extension: &ClusterExtension,
    ) -> Result<Option<SelectedNamespaces>, InstallError> {
        match (&self.parts.namespaces, NamespaceSelector::of(extension)) {
            (Some(namespaces), Some(selector)) => namespaces.select(&selector).await.map(Some),
            _ => Ok(None),
        }
    }

    /// Requeues the extensions that select namespaces.
    pub(super) fn requeue_selecting(&self, requeue: &RequeueSender) {
        for extension in self.extensions_in_store.state() {
            if NamespaceSelector::of(&extension).is_some() {
                requeue_extension(requeue, &extension.name_any());
            }
        }
    }
}

impl Installer<'_> {
    /// Makes a revision of the running bundle with its overdue list of namespaces, while another bundle waits. Its watch
    /// event requeues the extension.
    pub(super) async fn relist(&self, observed: &ObservedExtension<'_>) -> Result<(), ReconcileError> {
        let Some(inputs) = observed.list.overdue.clone() else { return Ok(()) };
        let target = Target { inputs: *inputs, catalog: None, together: &Together::default() };
        let installation = self.install(observed, target).await?;
        if let InstallResult::Failed(error) = &installation.result {
            tracing::warn!(
                extension = observed.name,
                error = error.message,
                "failed to change the list of namespaces"
            );
        }
        if let Some(made) = installation.created() {
            self.cache.until_contains(&made.set).await;
        }
        Ok(())
    }
}

impl ObservedExtension<'_> {
    /// Sets the list of selected namespaces for this target (docs/design/namespaces.md#changed-lists).
    pub(super) fn settle_namespaces(
        &mut self,
        target: &BundleIdentity,
        memory: &mut ExtensionMemory,
        wall: Timestamp,
        now: Instant,
    ) {
        let Some(found) = &self.selected else { return };
        let (names, newest) = (found.names(), self.states.newest_active());
        let current = newest.and_then(|newest| Some((newest, newest.namespaces.clone()?)));
        let Some((newest, current)) = current else {
            self.list = NamespaceList::of(names);
            return;
        };
        let since = found.differ(&current).then(|| memory.list_differs_since.unwrap_or(now));
        memory.list_differs_since = since;
        let has_rolled_out = conditions::is_true(&newest.conditions, types::SUCCEEDED);
        let deadline = self.extension.spec.as_ref().and_then(|spec| spec.progress_deadline_minutes);
        let pace = pace(has_rolled_out, deadline, self.rules.rollback);
        let age = memory.revision_ages.age(newest.created, false, wall, now);
        self.list = match list_step(since.map(|since| elapsed(since, now)), age, pace) {
            _ if self.has_other_selector(memory) => NamespaceList::of(names),
            ListStep::Change if self.is_newest(target) => NamespaceList::of(names),
            ListStep::Change => {
                let overdue = self.overdue(newest, names, memory).map(Box::new);
                NamespaceList { overdue, ..NamespaceList::of(current) }
            }
            ListStep::Wait(left) => {
                let due = Some(Duration::try_from(left).unwrap_or_default());
                NamespaceList { due, ..NamespaceList::of(current) }
            }
            ListStep::Keep => NamespaceList::of(current),
        };
    }

    /// Reports whether `watchNamespaceSelector` was edited since the newest revision, as far as its inputs are known.
    fn has_other_selector(&self, memory: &ExtensionMemory) -> bool {
        let Some(made) = &memory.newest else { return self.edited };
        let selector =
            |config: Option<&Value>| config.and_then(|config| config.get(NamespaceSelector::FIELD)).cloned();
        let inline = self.extension.spec.as_ref().and_then(|spec| spec.config.as_ref()?.inline.clone());
        selector(made.inputs.config.as_ref())
            != inline.and_then(|config| config.get(NamespaceSelector::FIELD).cloned())
    }

    /// Inputs of the newest revision with these namespaces. `None` if they are unknown, or if a rule can hold them: a
    /// second plan would compete with that of the target.
    fn overdue(
        &self,
        newest: &Revision,
        names: Vec<String>,
        memory: &ExtensionMemory,
    ) -> Option<RevisionInputs> {
        let approval = &self.rules.approval;
        let is_governed = approval.mode == ApprovalMode::Manual || approval.permission_increase;
        // A revision without the refusal would have the refused bundle tried again.
        if is_governed || newest.refusal.is_some() {
            return None;
        }
        let made = memory.newest.as_ref().map(|made| made.inputs.clone());
        let inputs =
            made.or_else(|| (!self.edited).then(|| self.inputs(&of_revision(newest, &self.rules))))?;
        Some(RevisionInputs { namespaces: Some(names), ..inputs })
    }
}
