//! Health of an extension, and the holds on its upgrades.
//!
//! Pure. Derived from its conditions and annotations only (docs/design/apply.md#extension-conditions).

use olm_api::conditions::{PULLING, Status, reasons, types};
use olm_api::{ClusterExtension, Condition, annotations};
use olm_request::{ExtensionRules, HeldChange, HeldMessage, Settings};
use serde::Serialize;

/// Health of an extension. The names of the variants are the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Health {
    /// No revision exists, and no condition reports progress.
    Pending,
    /// The first revision is rolling out.
    Installing,
    /// The installed bundle works, and no change is in progress.
    Healthy,
    /// A probe of the installed bundle fails.
    Degraded,
    /// Objects of the installed revision are being restored.
    Repairing,
    /// A newer revision is rolling out over the installed one.
    Upgrading,
    /// A step fails and is retried.
    Retrying,
    /// A rollout exceeds its progress deadline.
    Stalled,
    /// The bundle rejects the configuration.
    Misconfigured,
    /// Manual intervention is required.
    Blocked,
    /// The extension is being deleted.
    Deleting,
}

impl Health {
    /// Derives the health from the conditions.
    pub(crate) fn of(extension: &ClusterExtension) -> Self {
        let progress = extension.condition(types::PROGRESSING);
        let reason = progress.map(|condition| condition.reason.as_str()).unwrap_or_default();
        let installed = extension.is_true(types::INSTALLED);
        let available = extension.condition(types::AVAILABLE);
        let is_broken =
            available.is_some_and(|condition| condition.status == Status::False.as_str()) && installed;
        let is_pulling = progress.is_some_and(|condition| condition.message.starts_with(PULLING));
        let revisions = extension.status.as_ref().map_or(0, |status| status.active_revisions.len());
        match reason {
            _ if extension.metadata.deletion_timestamp.is_some() => Self::Deleting,
            reasons::RETRYING => Self::Retrying,
            reasons::PROGRESS_DEADLINE_EXCEEDED => Self::Stalled,
            reasons::INVALID_CONFIGURATION => Self::Misconfigured,
            reasons::BLOCKED => Self::Blocked,
            reasons::SUCCEEDED if is_broken => Self::Degraded,
            reasons::SUCCEEDED if installed => Self::Healthy,
            reasons::ROLLING_OUT if installed && (is_pulling || revisions > 1) => Self::Upgrading,
            reasons::ROLLING_OUT if is_broken => Self::Degraded,
            reasons::ROLLING_OUT if installed => Self::Repairing,
            reasons::ROLLING_OUT => Self::Installing,
            _ if revisions > 0 => Self::Installing,
            _ => Self::Pending,
        }
    }
}

/// Reports whether the extension has the pause annotation (docs/design/additions.md#pause).
pub(crate) fn is_paused(extension: &ClusterExtension) -> bool {
    ExtensionRules::of(extension.metadata.annotations.as_ref(), Settings::default()).paused
}

/// Hold that prevents an upgrade, or every change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hold {
    /// `Paused`, or the reason of a condition.
    pub by: String,
    /// Reason, and the command or change that releases the hold.
    pub message: String,
}

impl Hold {
    /// All holds on the extension.
    pub fn all(extension: &ClusterExtension) -> Vec<Self> {
        let name = extension.metadata.name.as_deref().unwrap_or_default();
        let paused = is_paused(extension).then(|| Self {
            by: "Paused".to_owned(),
            message: format!(
                "nothing is applied or upgraded; to resume: kubectl annotate clusterextension {name} {}-",
                annotations::EXT_PAUSED
            ),
        });
        // A first installation that waits has no upgrade (docs/design/approvals.md#approval).
        let first = extension.condition(types::PROGRESSING);
        let first = first.filter(|condition| condition.reason == reasons::BLOCKED).and_then(|condition| {
            let by = match HeldMessage::parse(&condition.message)?.change {
                HeldChange::UnapprovedInstallation => reasons::APPROVAL_REQUIRED,
                _ => reasons::OUTSIDE_WINDOW,
            };
            Some(Self { by: by.to_owned(), message: condition.message.clone() })
        });
        let held = extension.condition(types::UPGRADE_AVAILABLE);
        let of_condition =
            |condition: &Condition| Self { by: condition.reason.clone(), message: condition.message.clone() };
        let held = held.filter(|condition| condition.status == Status::True.as_str()).map(of_condition);
        paused.into_iter().chain(first).chain(held).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // docs/design/approvals.md#approval
    #[test]
    fn first_installation_that_waits_is_held() {
        let holds = |reason: &str, message: &str| {
            let condition = json!({"type": "Progressing", "status": "False", "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let extension = json!({"metadata": {"name": "a"}, "status": {"conditions": [condition]}});
            let all = Hold::all(&serde_json::from_value(extension).unwrap());
            all.into_iter().map(|hold| hold.by).collect::<Vec<_>>()
        };
        let waits = "installation of bundle a.v1 version 1 requires approval; plan sha256:a: x";
        assert_eq!(holds("Blocked", waits), ["ApprovalRequired"]);
        let waits = "installation of bundle a.v1 version 1 waits for its upgrade window; plan sha256:a: x";
        assert_eq!(holds("Blocked", waits), ["OutsideWindow"]);
        assert_eq!(holds("Blocked", "metadata.name is too long"), [""; 0]);
    }
}
