//! Next step for an extension, from what was observed, chosen and remembered. Pure.

use std::sync::Arc;

use olm_api::cluster_extension::CatalogFilter;
use olm_api::conditions::{reasons, types};
use olm_api::{ClusterExtension, ClusterExtensionStatus, ClusterObjectSet};
use olm_controller_core::install_error::InstallError;
use olm_request::{ExtensionRules, SelectedNamespaces};
use olm_revision::generate::BundleIdentity;
use serde_json::Value;

use super::choice::{Choice, ResolutionFailure, is_other};
use super::memory::{ExtensionMemory, RevisionFingerprint};
use super::namespaces::NamespaceList;
use super::revisions::{Revision, RevisionStates};
use super::rollback::{self, RollbackStep};
use crate::preflight::CrdVerdict;

pub(super) struct ObservedExtension<'a> {
    pub extension: &'a ClusterExtension,
    pub name: String,
    pub rules: ExtensionRules,
    /// `<namespace>/<name>` of the service account that applies the objects. `None` means that of the controller.
    pub account: Option<String>,
    /// Revisions of the extension, unordered.
    pub sets: Vec<Arc<ClusterObjectSet>>,
    pub states: RevisionStates,
    /// `true` if the spec changed since a revision was last created or kept for it.
    pub edited: bool,
    /// `true` if bundles are rendered with an OperatorCondition.
    pub operator_condition: bool,
    /// Namespaces that the extension selects by label.
    pub selected: Option<SelectedNamespaces>,
    /// Decision about the namespace list, see [`ObservedExtension::settle_namespaces`].
    pub list: NamespaceList,
}

/// Inputs of a revision.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RevisionInputs {
    pub uid: Option<String>,
    /// `<namespace>/<name>` of the service account that applies the objects.
    pub account: Option<String>,
    pub namespace: String,
    pub config: Option<Value>,
    pub deadline: Option<i32>,
    /// `true` if the bundle is rendered with an OperatorCondition.
    pub operator_condition: bool,
    /// `true` if the bundle is rendered with roles for the users of its APIs.
    pub aggregate_api_roles: bool,
    /// Namespaces that the extension selects by label.
    pub namespaces: Option<Vec<String>>,
    pub bundle: BundleIdentity,
}

impl RevisionInputs {
    /// Namespaces in `watchNamespaces` of the configuration.
    pub(super) fn watched(&self) -> Vec<&str> {
        let listed = self.config.as_ref().and_then(|config| config.get("watchNamespaces"));
        listed.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    }
}

#[derive(Debug, PartialEq)]
pub(super) enum Decision {
    /// Catalog content is being fetched, and the current status remains correct until then.
    AwaitCatalog,
    /// No bundle was chosen.
    Refuse(Box<ResolutionFailure>),
    /// The extension is paused, or its newest revision is a restored one. `waits` names the pending change.
    Hold { choice: Choice, waits: Option<String> },
    /// The newest revision has the same inputs and no error.
    Keep { choice: Choice, crds: CrdVerdict },
    /// Restores this revision, because the newest one has failed.
    Restore { choice: Choice, to: Option<Box<Revision>> },
    /// Makes the target the newest revision, unless it already is.
    Install { choice: Choice, inputs: Box<RevisionInputs> },
}

impl<'a> ObservedExtension<'a> {
    /// Current status of the extension.
    pub(super) fn status(&self) -> Option<&'a ClusterExtensionStatus> {
        self.extension.status.as_ref()
    }

    /// `spec.source.catalog`.
    ///
    /// # Errors
    /// `spec.source.catalog` is missing.
    pub(super) fn filter(&self) -> Result<&'a CatalogFilter, InstallError> {
        let spec = self.extension.spec.as_ref();
        spec.and_then(|spec| spec.source.catalog.as_ref()).ok_or_else(|| {
            InstallError::blocked("spec.source.catalog: Required value: names the package to install")
        })
    }

    /// Inputs for the revision of this bundle.
    pub(super) fn inputs(&self, target: &BundleIdentity) -> RevisionInputs {
        let spec = self.extension.spec.as_ref();
        let config = spec.and_then(|spec| spec.config.as_ref()).and_then(|config| config.inline.clone());
        RevisionInputs {
            uid: self.extension.metadata.uid.clone(),
            account: self.account.clone(),
            namespace: spec.map(|spec| spec.namespace.clone()).unwrap_or_default(),
            config: config.map(Value::Object),
            deadline: spec.and_then(|spec| spec.progress_deadline_minutes),
            operator_condition: self.operator_condition,
            aggregate_api_roles: self.rules.aggregate_api_roles,
            namespaces: self.list.names.clone(),
            bundle: target.clone(),
        }
    }

    /// Reports whether these inputs differ from those of the newest revision, as far as they are known.
    pub(super) fn inputs_changed(&self, inputs: &RevisionInputs, memory: &ExtensionMemory) -> bool {
        memory.newest.as_ref().map_or(self.edited, |made| made.inputs != *inputs)
    }

    /// Reports whether the newest active revision has this bundle.
    pub(super) fn is_newest(&self, target: &BundleIdentity) -> bool {
        let newest = self.states.newest_active();
        newest.is_some_and(|newest| {
            let same = !is_other(&newest.bundle, target) && newest.bundle.release == target.release;
            same && newest.image == target.image
        })
    }

    /// Reports whether `Progressing` has reason `Retrying` at the current generation.
    pub(super) fn is_retrying(&self) -> bool {
        self.extension.condition(types::PROGRESSING).is_some_and(|condition| {
            condition.reason == reasons::RETRYING
                && condition.observed_generation == self.extension.metadata.generation
        })
    }

    /// Describes the change that a paused extension holds back.
    fn pending(&self, target: &BundleIdentity, memory: &ExtensionMemory) -> Option<String> {
        if !self.is_newest(target) {
            let BundleIdentity { name, version, .. } = target;
            return Some(format!("bundle {name} version {version}"));
        }
        let mut inputs = self.inputs(target);
        if !self.inputs_changed(&inputs, memory) {
            return None;
        }
        inputs.namespaces = memory.newest.as_ref().and_then(|made| made.inputs.namespaces.clone());
        let is_same = memory.newest.as_ref().is_some_and(|made| made.inputs == inputs);
        Some(if is_same { "a changed list of selected namespaces" } else { "the change of spec" }.to_owned())
    }
}

/// Decides on the next step. `newest` is the current newest revision.
pub(super) fn decide(
    observed: &ObservedExtension<'_>,
    choice: Result<Choice, Box<ResolutionFailure>>,
    memory: &ExtensionMemory,
    newest: Option<&ClusterObjectSet>,
) -> Decision {
    let choice = match choice {
        Err(refusal) if refusal.awaits_content && !observed.edited && observed.status().is_some() => {
            return Decision::AwaitCatalog;
        }
        Err(refusal) => return Decision::Refuse(refusal),
        Ok(choice) => choice,
    };
    if observed.rules.paused {
        let waits = observed.pending(&choice.target, memory);
        return Decision::Hold { choice, waits };
    }
    match rollback::step(observed, &choice, memory) {
        RollbackStep::None => {}
        RollbackStep::Restore(to) => return Decision::Restore { choice, to },
        RollbackStep::Keep => return Decision::Hold { choice, waits: None },
    }
    let inputs = observed.inputs(&choice.target);
    let made = memory.newest.as_ref().filter(|made| made.inputs == inputs);
    let is_newest = |made: &&super::memory::RevisionRecord| {
        newest.is_some_and(|set| made.newest == RevisionFingerprint::of(set))
    };
    match made.filter(is_newest).filter(|_| newest.is_some_and(is_progressing)) {
        Some(made) => Decision::Keep { choice, crds: made.crds.clone() },
        None => Decision::Install { choice, inputs: Box::new(inputs) },
    }
}

/// Reports whether a revision is rolling out, has rolled out, or has no condition yet.
fn is_progressing(set: &ClusterObjectSet) -> bool {
    let reason = set.condition(types::PROGRESSING).map(|condition| condition.reason.as_str());
    matches!(reason, None | Some(reasons::ROLLING_OUT | reasons::SUCCEEDED))
}

#[cfg(test)]
#[path = "decide_tests.rs"]
pub(super) mod tests;
