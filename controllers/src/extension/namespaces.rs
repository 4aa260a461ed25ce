//! Watched namespaces of an extension: those that it selects by label, and the report in its status
//! (docs/design/namespaces.md).

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use olm_api::{ClusterExtension, ClusterExtensionStatus, annotations};
use olm_request::{ListStep, NamespaceSelector, SelectedNamespaces, list_step};
use olm_revision::generate::BundleIdentity;
use serde_json::Value;

use super::Context;
use super::decide::Observed;
use super::garbage_collection::{RequeueSender, requeue_extension};
use super::memory::ExtensionMemory;
use super::revisions::RevisionStates;
use crate::install_error::InstallError;

impl Context {
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

impl Observed<'_> {
    /// Sets the list of selected namespaces for this target (docs/design/namespaces.md#changed-lists). A revision that
    /// is made for another reason gets the current list.
    pub(super) fn settle_namespaces(
        &mut self,
        target: &BundleIdentity,
        memory: &mut ExtensionMemory,
        now: Timestamp,
    ) {
        let Some(found) = &self.selected else { return };
        let (names, newest) = (found.names(), self.states.newest());
        let current = newest.and_then(|newest| Some((newest.namespaces.clone()?, newest.created)));
        let Some((current, created)) = current else {
            self.namespaces = Some(names);
            return;
        };
        let since = found.differ(&current).then(|| memory.list_differs_since.unwrap_or(now));
        memory.list_differs_since = since;
        self.namespaces = Some(current);
        if !self.is_newest(target) || self.is_edited(&self.inputs(target), memory) {
            self.namespaces = Some(names);
            return;
        }
        match list_step(since, created, now) {
            ListStep::Keep => {}
            ListStep::WaitUntil(due) => {
                self.list_due = Some(Duration::try_from(due.duration_since(now)).unwrap_or_default());
            }
            ListStep::Change => self.namespaces = Some(names),
        }
    }
}

/// Reports the target namespaces in the status. `known` are those of the newest revision, if they are known.
pub(super) fn report(
    status: &mut ClusterExtensionStatus,
    states: &RevisionStates,
    known: Option<Vec<String>>,
) {
    match known {
        _ if states.newest().is_none() => status.target_namespaces.clear(),
        Some(targets) => status.target_namespaces = targets,
        None => {}
    }
}

/// Target namespaces that the pods of the first Deployment get. An empty name means all namespaces, as in the status
/// of an OperatorGroup of classic OLM. Empty without a Deployment.
pub(super) fn target_namespaces<'a>(objects: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let annotations = "/spec/template/metadata/annotations";
    let mut deployments = objects.filter(|object| object["kind"] == "Deployment");
    let list =
        deployments.find_map(|one| one.pointer(annotations)?.get(annotations::TARGET_NAMESPACES)?.as_str());
    list.map(|list| list.split(',').map(str::to_owned).collect()).unwrap_or_default()
}
