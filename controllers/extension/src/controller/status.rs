//! Next status of an extension, from the outcome of one reconcile (docs/design/apply.md#mirrored-conditions,
//! docs/design/apply.md#extension-conditions, docs/design/api.md#clusterextension-conditions). Pure.

use jiff::Timestamp;
use olm_api::cluster_extension::{InstallStatus, RevisionStatus};
use olm_api::conditions::{self, Status, reasons, types};
use olm_api::{ClusterExtensionStatus, Condition};
use olm_controller_core::install_error::{InstallError, InstallErrorClass};

use olm_resolve::{ConditionState, DeprecationConditions, Deprecations};

use super::findings::{ConditionChange, ConditionChanges};
use super::revisions::{Revision, RevisionStates};

/// Deprecation data of a package.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DeprecationData {
    /// There is no catalog.
    None,
    /// No catalog was asked, or the resolution failed: the previous conditions still hold
    /// (docs/design/apply.md#extension-conditions).
    Unchanged,
    /// Data of the chosen catalog, with the channels in the spec of the extension.
    Catalog(Deprecations, Vec<String>),
}

/// Outcome of one reconcile.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum StatusUpdate {
    /// Only `Progressing` changes: something blocks the finalizers, or a Helm installation cannot be adopted.
    OnlyProgressing(InstallError),
    /// An attempt to apply the spec.
    Attempted(Box<AttemptResult>),
}

/// State of the target.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Applied {
    /// The bundle is active, or its upgrade waits.
    Active,
    /// The image of the bundle is being pulled, as this message says.
    Pulling(String),
    /// The first installation waits for an approval or a window, as this message says.
    Held(String),
    /// The attempt failed.
    Failed(InstallError),
}

/// Result of choosing and applying a bundle.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AttemptResult {
    pub applied: Applied,
    /// Deprecation data.
    pub deprecation: DeprecationData,
    /// Conditions of annotations and gates.
    pub findings: ConditionChanges,
    /// Generation that `UpgradeAvailable` describes, if it differs from that of the other conditions.
    pub upgrade_generation: Option<i64>,
}

/// Computes the next status. `states` include a revision created in this reconcile. Conditions without an outcome
/// remain unchanged.
pub(crate) fn next(
    old: &ClusterExtensionStatus,
    generation: Option<i64>,
    states: &RevisionStates,
    outcome: &StatusUpdate,
    now: Timestamp,
) -> ClusterExtensionStatus {
    let mut next = StatusDraft { status: old.clone(), generation, now };
    match outcome {
        StatusUpdate::OnlyProgressing(failure) => next.failed(failure, ""),
        StatusUpdate::Attempted(attempt) => {
            let AttemptResult { applied, deprecation, findings, upgrade_generation } = &**attempt;
            let suffix = findings.suffix();
            match applied {
                Applied::Active => next.mirror(states, findings.restored.as_deref(), &suffix),
                Applied::Pulling(message) => {
                    next.progressing(Status::True, reasons::ROLLING_OUT, message, &suffix);
                }
                Applied::Held(message) => next.progressing(Status::False, reasons::BLOCKED, message, &suffix),
                Applied::Failed(failure) => next.failed(failure, &suffix),
            }
            next.installed(states, matches!(applied, Applied::Pulling(_) | Applied::Held(_)));
            next.deprecation(deprecation);
            next.generation = upgrade_generation.or(generation);
            next.finding(types::UPGRADE_AVAILABLE, &findings.upgrade);
            if findings.upgrade != ConditionChange::Unchanged {
                next.status.available_version.clone_from(&findings.available_version);
            }
            next.generation = generation;
            next.finding(types::DEPENDENCIES_SATISFIED, &findings.dependencies);
            next.finding(types::PAUSED, &findings.paused);
            next.finding(types::SIGNATURE_VERIFIED, &findings.signature);
        }
    }
    next.status
}

struct StatusDraft {
    status: ClusterExtensionStatus,
    generation: Option<i64>,
    now: Timestamp,
}

impl StatusDraft {
    fn set(&mut self, type_: &str, status: Status, reason: &str, message: &str) {
        let (all, generation) = (&mut self.status.conditions, self.generation);
        conditions::set(all, type_, status, reason, message, generation, self.now);
    }

    fn progressing(&mut self, status: Status, reason: &str, message: &str, suffix: &str) {
        self.set(types::PROGRESSING, status, reason, &format!("{message}{suffix}"));
    }

    fn failed(&mut self, failure: &InstallError, suffix: &str) {
        let (status, reason) = match failure.class {
            InstallErrorClass::Retry | InstallErrorClass::Rejected => (Status::True, reasons::RETRYING),
            InstallErrorClass::Blocked => (Status::False, reasons::BLOCKED),
            InstallErrorClass::InvalidConfiguration => (Status::False, reasons::INVALID_CONFIGURATION),
        };
        self.progressing(status, reason, &failure.message, suffix);
    }

    fn installed(&mut self, states: &RevisionStates, is_waiting: bool) {
        const NONE: &str = "No bundle installed";
        let Some(installed) = &states.installed else {
            self.status.install = None;
            let rolling = states.rolling_out.last();
            let is_rolling = rolling.is_some_and(|rolling| {
                rolling.condition(types::PROGRESSING).is_none_or(|c| c.reason != reasons::RETRYING)
            });
            let reason = if is_rolling || is_waiting { reasons::ABSENT } else { reasons::FAILED };
            self.set(types::INSTALLED, Status::False, reason, NONE);
            // A bundle that is no longer installed is not available (docs/design/apply.md#extension-conditions).
            if conditions::find(&self.status.conditions, types::AVAILABLE).is_some() {
                self.set(types::AVAILABLE, Status::Unknown, reasons::RECONCILING, NONE);
            }
            return;
        };
        self.status.install = Some(InstallStatus { bundle: installed.bundle.clone() });
        let message = format!("Installed bundle {} successfully", installed.image);
        self.set(types::INSTALLED, Status::True, reasons::SUCCEEDED, &message);
    }

    /// Copies the conditions of the revisions. `restored` is the message of `Progressing` after a rollback. `suffix` is
    /// appended to the message.
    fn mirror(&mut self, states: &RevisionStates, restored: Option<&str>, suffix: &str) {
        let installed = states.installed.as_ref();
        let entry =
            |name: &str, conditions: Vec<Condition>| RevisionStatus { name: name.to_owned(), conditions };
        self.status.active_revisions =
            installed.map(|revision| entry(&revision.name, Vec::new())).into_iter().collect();
        for revision in &states.rolling_out {
            let shown = [types::AVAILABLE, types::PROGRESSING];
            let conditions = shown.iter().filter_map(|type_| revision.condition(type_)).cloned().collect();
            self.status.active_revisions.push(entry(&revision.name, conditions));
        }
        let available = installed.and_then(|revision| revision.condition(types::AVAILABLE));
        let progressing = match states.rolling_out.last() {
            // Before its first condition, the one of its predecessor would describe another target.
            Some(rolling) => {
                Some(rolling.condition(types::PROGRESSING).cloned().unwrap_or_else(|| self.starting(rolling)))
            }
            None => installed.and_then(|revision| revision.condition(types::PROGRESSING)).cloned(),
        };
        if let Some(condition) = available {
            self.copy(condition.clone());
        }
        if let Some(restored) = restored {
            let message = format!("{restored}{suffix}");
            self.set(types::PROGRESSING, Status::False, reasons::PROGRESS_DEADLINE_EXCEEDED, &message);
        } else if let Some(mut condition) = progressing {
            if !suffix.is_empty() {
                condition.message = conditions::truncate(&format!("{}{suffix}", condition.message));
            }
            self.copy(condition);
        }
    }

    /// Condition that a new revision gets at its first reconcile (docs/design/apply.md#revision-conditions).
    fn starting(&self, revision: &Revision) -> Condition {
        let message = format!("Revision {} is rolling out.", revision.bundle.version);
        let mut all = Vec::new();
        let (reason, generation) = (reasons::ROLLING_OUT, self.generation);
        conditions::set(&mut all, types::PROGRESSING, Status::True, reason, &message, generation, self.now);
        all.remove(0)
    }

    /// Copies a condition of a revision with its transition time and the generation of the extension.
    fn copy(&mut self, mut copy: Condition) {
        copy.observed_generation = self.generation;
        match self.status.conditions.iter_mut().find(|current| current.type_ == copy.type_) {
            Some(current) => {
                if current.status == copy.status {
                    copy.last_transition_time = current.last_transition_time.clone();
                }
                *current = copy;
            }
            None => self.status.conditions.push(copy),
        }
    }

    fn deprecation(&mut self, knowledge: &DeprecationData) {
        let installed = self.status.install.as_ref().map(|install| install.bundle.name.clone());
        let known = conditions::find(&self.status.conditions, types::DEPRECATED).is_some();
        if matches!(knowledge, DeprecationData::Unchanged) && known {
            return;
        }
        let (data, channels) = match knowledge {
            DeprecationData::Catalog(data, channels) => (Some(data), channels.as_slice()),
            DeprecationData::None | DeprecationData::Unchanged => (None, &[][..]),
        };
        let all = DeprecationConditions::new(data, channels, installed.as_deref());
        let states = [
            (types::DEPRECATED, all.any),
            (types::PACKAGE_DEPRECATED, all.package),
            (types::CHANNEL_DEPRECATED, all.channel),
            (types::BUNDLE_DEPRECATED, all.bundle),
        ];
        for (type_, state) in states {
            self.state(type_, &state);
        }
    }

    fn finding(&mut self, type_: &str, finding: &ConditionChange) {
        match finding {
            ConditionChange::Inactive => conditions::remove(&mut self.status.conditions, type_),
            ConditionChange::Unchanged => {}
            ConditionChange::State(state) => self.state(type_, state),
        }
    }

    fn state(&mut self, type_: &str, state: &ConditionState) {
        let status = state.status.map_or(Status::Unknown, Status::from);
        self.set(type_, status, state.reason, &state.message);
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
