//! Uninstall policies that the product may have read.

use std::sync::Arc;

use serde_json::Value;

use super::{History, Life};
use crate::intent::UninstallPolicy;
use crate::settled::uninstall_policy;
use crate::snapshot::{controller, is_deleting, text};

impl History {
    /// Reports whether the policy of the extension changed since everything had settled.
    pub(super) fn has_new_policy(&self, version: u64) -> bool {
        let settled = self.extension.range(..=self.rested).next_back();
        let start = (self.rested + 1).min(version);
        let states = settled.into_iter().chain(self.extension.range(start..version));
        let mut policies = states.map(|(_, extension)| uninstall_policy(extension));
        policies.next().is_some_and(|first| policies.any(|policy| policy != first))
    }

    /// Policies that the product may have read for a revision that is being deleted: those of its extension since the
    /// deletion was requested, or since everything had settled. Without such an extension, and for an archived revision,
    /// that of the revision.
    pub(super) fn policies(&self, state: &Value, life: &Life, version: u64) -> Vec<Option<UninstallPolicy>> {
        let mut states = life.states.range(..version);
        let requested = states.find(|(_, state)| state.as_ref().is_none_or(|state| is_deleting(state)));
        let start =
            requested.map_or(version, |(requested, _)| (self.rested + 1).max(*requested).min(version));
        let current = self.extension.range(..start).next_back();
        let extensions = current.into_iter().chain(self.extension.range(start..version));
        let is_owner = |extension: &&Arc<Value>| {
            controller(state) == Some(text(extension, "/metadata/uid"))
                && (requested.is_some() || is_deleting(extension))
        };
        let owners = extensions.map(|(_, state)| state).filter(is_owner);
        let policies: Vec<_> = owners.map(|extension| uninstall_policy(extension)).collect();
        if policies.is_empty() { vec![uninstall_policy(state)] } else { policies }
    }
}
