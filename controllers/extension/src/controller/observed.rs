//! An extension with what was observed of it. Pure.

use std::sync::Arc;
use std::time::Duration;

use olm_api::cluster_extension::CatalogFilter;
use olm_api::conditions::{reasons, types};
use olm_api::{ClusterExtension, ClusterExtensionStatus, ClusterObjectSet};
use olm_controller_core::install_error::InstallError;
use olm_request::{ExtensionRules, SelectedNamespaces};
use olm_revision::generate::BundleIdentity;
use serde_json::Value;

use super::memory::ExtensionMemory;
use super::revisions::{RevisionInputs, RevisionStates, is_other};

pub(super) struct ObservedExtension<'a> {
    pub extension: &'a ClusterExtension,
    pub name: String,
    pub rules: ExtensionRules,
    /// `<namespace>/<name>` of the service account that applies the objects. `None` means that of the controller.
    pub account: Option<String>,
    /// Revisions of the extension, unordered.
    pub revisions: Vec<Arc<ClusterObjectSet>>,
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

/// Decision about the list of selected namespaces.
#[derive(Debug, Default)]
pub(super) struct NamespaceList {
    /// List for the revision of the target. `None` without a selector.
    pub names: Option<Vec<String>>,
    /// Inputs of the newest revision with a changed list that is due, if the target is another bundle.
    pub overdue: Option<Box<RevisionInputs>>,
    /// Delay until the list must be changed.
    pub due: Option<Duration>,
}

impl NamespaceList {
    pub(super) fn of(names: Vec<String>) -> Self {
        Self { names: Some(names), ..Self::default() }
    }
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
}
