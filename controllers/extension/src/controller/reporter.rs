//! Writes the status of extensions and publishes their Events.

use jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::{Api, Resource, ResourceExt};
use olm_api::conditions::types;
use olm_api::{ClusterExtension, ClusterExtensionStatus, summary};
use olm_controller_core::RevisionCache;
use olm_controller_core::install_error::InstallError;
use olm_runtime::events::Events;
use olm_runtime::reconcile::ReconcileError;
use olm_runtime::status::Writes;

use super::events::{self, ExtensionEvent};
use super::memory::Memories;
use super::revisions::{self, RevisionStates};
use super::status::{self, StatusUpdate};
use crate::features::Features;

/// Reports to users.
#[derive(Clone, Copy)]
pub(super) struct Reporter<'a> {
    pub extensions: &'a Api<ClusterExtension>,
    pub writes: &'a Writes,
    pub events: &'a Events,
    pub cache: &'a RevisionCache,
    pub memories: &'a Memories,
    pub features: Features,
}

impl Reporter<'_> {
    /// Generation to report as observed while nothing is applied.
    pub(super) fn applied_generation(&self, extension: &ClusterExtension) -> Option<i64> {
        let applied = self.memories.with(&extension.name_any(), |memory| memory.applied_generation).flatten();
        let reported = || extension.condition(types::PROGRESSING)?.observed_generation;
        applied.or_else(reported).or(extension.metadata.generation)
    }

    /// Writes the next status and returns it.
    pub(super) async fn write(
        &self,
        extension: &ClusterExtension,
        generation: Option<i64>,
        states: &RevisionStates,
        outcome: &StatusUpdate,
    ) -> Result<ClusterExtensionStatus, ReconcileError> {
        let old = extension.status.clone().unwrap_or_default();
        let now = Timestamp::now();
        let mut next = status::next(&old, generation, states, outcome, now);
        if let StatusUpdate::Attempted(_) = outcome {
            let known = self.memories.with(&extension.name_any(), |memory| memory.targets.clone());
            report_namespaces(&mut next, states, known);
        }
        summary::update(&mut next, self.features.status_summary, extension.metadata.generation, now);
        let written = self.writes.write_status(self.extensions, extension, &next).await;
        written.map_err(|error| ReconcileError::write("error updating status", &error))?;
        Ok(next)
    }

    /// Reports a failure and returns it, to be retried.
    pub(super) async fn fail(
        &self,
        extension: &ClusterExtension,
        failure: InstallError,
    ) -> Result<Action, ReconcileError> {
        self.report_failure(extension, failure.clone()).await?;
        Err(ReconcileError::retry(failure))
    }

    pub(super) async fn report_failure(
        &self,
        extension: &ClusterExtension,
        failure: InstallError,
    ) -> Result<(), ReconcileError> {
        let states = revisions::states_of(extension, &self.cache.of_extension(&extension.name_any()));
        let generation = extension.metadata.generation;
        self.write(extension, generation, &states, &StatusUpdate::OnlyProgressing(failure)).await.map(drop)
    }

    /// Publishes Events. The reasons in `resolved` are reset first, so that their next Event is published again.
    pub(super) fn publish(
        &self,
        extension: &ClusterExtension,
        resolved: &[&'static str],
        all: Vec<ExtensionEvent>,
    ) {
        let about = extension.object_ref(&());
        resolved.iter().for_each(|reason| self.events.resolved(&about, reason));
        for ExtensionEvent { warning, reason, note } in events::merged(all) {
            let events = self.events;
            if warning {
                events.warning(about.clone(), reason, note);
            } else {
                events.normal(about.clone(), reason, note);
            }
        }
    }
}

/// Reports the target namespaces in the status. `known` are those of the newest revision, if they are known.
fn report_namespaces(
    status: &mut ClusterExtensionStatus,
    states: &RevisionStates,
    known: Option<Vec<String>>,
) {
    match known {
        _ if states.newest_active().is_none() => status.target_namespaces.clear(),
        Some(targets) => status.target_namespaces = targets,
        None => {}
    }
}
