//! The next status of an extension from what one pass found and did (spec 05 §§3.6–3.7, spec 01 §7.3). Pure.

use jiff::Timestamp;
use olm_api::cluster_extension::{InstallStatus, RevisionStatus};
use olm_api::conditions::{self, Status, reasons, types};
use olm_api::{ClusterExtensionStatus, Condition};

use olm_resolve::{ConditionState, DeprecationConditions, Deprecations};

use super::revisions::RevisionStates;
use crate::failure::{Class, Failure};

/// What is known of the deprecation of a package.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Knowledge {
    /// No catalog could be asked.
    None,
    /// No catalog was asked; what was known before still holds (spec 05 §18.17).
    Unchanged,
    /// What the chosen catalog says, with the channels of the extension's spec.
    Catalog(Deprecations, Vec<String>),
}

/// What one pass over an extension came to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// A finalizer of ours could not be removed.
    FinalizerFailed(Failure),
    /// No bundle could be chosen.
    NotResolved {
        /// Why.
        failure: Failure,
        /// What is known of deprecation.
        deprecation: Knowledge,
    },
    /// A bundle was chosen and could not be turned into a revision.
    NotApplied {
        /// Why.
        failure: Failure,
        /// What is known of deprecation.
        deprecation: Knowledge,
    },
    /// The revision in force is the wanted one.
    Applied {
        /// Whether this pass made a revision.
        created: bool,
        /// What is known of deprecation.
        deprecation: Knowledge,
    },
}

/// The next status. Conditions that the outcome says nothing about stay.
pub(crate) fn next(
    old: &ClusterExtensionStatus,
    generation: Option<i64>,
    states: &RevisionStates,
    outcome: &Outcome,
    now: Timestamp,
) -> ClusterExtensionStatus {
    let mut next = Draft { status: old.clone(), generation, now };
    match outcome {
        Outcome::FinalizerFailed(failure) => next.progressing(failure),
        Outcome::NotResolved { failure, deprecation } | Outcome::NotApplied { failure, deprecation } => {
            next.progressing(failure);
            next.installed(states, false);
            next.deprecation(deprecation);
        }
        Outcome::Applied { created, deprecation } => {
            next.mirror(states);
            next.installed(states, *created);
            next.deprecation(deprecation);
        }
    }
    next.status
}

/// A status under construction.
struct Draft {
    status: ClusterExtensionStatus,
    generation: Option<i64>,
    now: Timestamp,
}

impl Draft {
    fn set(&mut self, type_: &str, status: Status, reason: &str, message: &str) {
        conditions::set(
            &mut self.status.conditions,
            type_,
            status,
            reason,
            message,
            self.generation,
            self.now,
        );
    }

    fn progressing(&mut self, failure: &Failure) {
        let (status, reason) = match failure.class {
            Class::Retry => (Status::True, reasons::RETRYING),
            Class::Blocked => (Status::False, reasons::BLOCKED),
            Class::InvalidConfiguration => (Status::False, reasons::INVALID_CONFIGURATION),
        };
        self.set(types::PROGRESSING, status, reason, &failure.message);
    }

    /// `created`: this pass made a revision, which is not among the states yet.
    fn installed(&mut self, states: &RevisionStates, created: bool) {
        let Some(installed) = &states.installed else {
            self.status.install = None;
            let retrying = states.rolling_out.last().map(|revision| {
                revision.condition(types::PROGRESSING).is_some_and(|c| c.reason == reasons::RETRYING)
            });
            let reason = match retrying {
                Some(true) => reasons::FAILED,
                None if !created => reasons::FAILED,
                _ => reasons::ABSENT,
            };
            self.set(types::INSTALLED, Status::False, reason, "No bundle installed");
            return;
        };
        self.status.install = Some(InstallStatus { bundle: installed.bundle.clone() });
        let message = format!("Installed bundle {} successfully", installed.image);
        self.set(types::INSTALLED, Status::True, reasons::SUCCEEDED, &message);
    }

    /// Copies what the revisions say of themselves.
    fn mirror(&mut self, states: &RevisionStates) {
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
        let progressing = states
            .rolling_out
            .last()
            .and_then(|revision| revision.condition(types::PROGRESSING))
            .or_else(|| installed.and_then(|revision| revision.condition(types::PROGRESSING)));
        for condition in [available, progressing].into_iter().flatten() {
            self.copy(condition);
        }
    }

    /// Takes over a revision's condition with its transition time, and our generation.
    fn copy(&mut self, condition: &Condition) {
        let mut copy = Condition { observed_generation: self.generation, ..condition.clone() };
        match self.status.conditions.iter_mut().find(|current| current.type_ == condition.type_) {
            Some(current) => {
                if current.status == copy.status {
                    copy.last_transition_time = current.last_transition_time.clone();
                }
                *current = copy;
            }
            None => self.status.conditions.push(copy),
        }
    }

    fn deprecation(&mut self, knowledge: &Knowledge) {
        let installed = self.status.install.as_ref().map(|install| install.bundle.name.clone());
        let known = conditions::find(&self.status.conditions, types::DEPRECATED).is_some();
        if matches!(knowledge, Knowledge::Unchanged) && known {
            return;
        }
        let (data, channels) = match knowledge {
            Knowledge::Catalog(data, channels) => (Some(data), channels.as_slice()),
            Knowledge::None | Knowledge::Unchanged => (None, &[][..]),
        };
        let all = DeprecationConditions::new(data, channels, installed.as_deref());
        let states = [
            (types::DEPRECATED, all.any),
            (types::PACKAGE_DEPRECATED, all.package),
            (types::CHANNEL_DEPRECATED, all.channel),
            (types::BUNDLE_DEPRECATED, all.bundle),
        ];
        for (type_, ConditionState { status, reason, message }) in states {
            self.set(type_, status.map_or(Status::Unknown, Status::from), reason, &message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::revisions::{states, tests::set};
    use super::*;
    use std::sync::Arc;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn with(
        number: i64,
        succeeded: bool,
        all: &[(&str, Status, &str, &str)],
    ) -> Arc<olm_api::ClusterObjectSet> {
        let mut set = set(number, "Active", succeeded);
        let status = Arc::make_mut(&mut set).status.as_mut().unwrap();
        for (type_, value, reason, message) in all {
            conditions::set(&mut status.conditions, type_, *value, reason, message, Some(1), NOW);
        }
        set
    }

    fn lines(status: &ClusterExtensionStatus) -> Vec<String> {
        let shown = [types::INSTALLED, types::PROGRESSING, types::AVAILABLE];
        let line = |c: &Condition| format!("{} {}/{} {}", c.type_, c.status, c.reason, c.message);
        status.conditions.iter().filter(|c| shown.contains(&c.type_.as_str())).map(line).collect()
    }

    fn applied(created: bool) -> Outcome {
        Outcome::Applied { created, deprecation: Knowledge::None }
    }

    // spec 05 §3.9, spec 01 E11–E16
    #[test]
    fn a_first_install_and_an_upgrade() {
        let rolling: &[_] =
            &[(types::PROGRESSING, Status::True, "RollingOut", "Revision 1.0.0 is rolling out.")];
        let retrying: &[_] = &[(types::PROGRESSING, Status::True, "Retrying", "collision")];
        let done: &[_] = &[
            (types::PROGRESSING, Status::True, "Succeeded", "Revision 1.0.0 has rolled out."),
            (types::AVAILABLE, Status::True, "ProbesSucceeded", "Objects are available and pass all probes."),
        ];
        let rows = [
            (vec![], applied(true), vec!["Installed False/Absent No bundle installed"], vec![]),
            (vec![], applied(false), vec!["Installed False/Failed No bundle installed"], vec![]),
            (
                vec![with(1, false, &[])],
                applied(false),
                vec!["Installed False/Absent No bundle installed"],
                vec!["demo-1"],
            ),
            (
                vec![with(1, false, rolling)],
                applied(false),
                vec![
                    "Progressing True/RollingOut Revision 1.0.0 is rolling out.",
                    "Installed False/Absent No bundle installed",
                ],
                vec!["demo-1"],
            ),
            (
                vec![with(1, false, retrying)],
                applied(false),
                vec!["Progressing True/Retrying collision", "Installed False/Failed No bundle installed"],
                vec!["demo-1"],
            ),
            (
                vec![with(1, true, done)],
                applied(false),
                vec![
                    "Available True/ProbesSucceeded Objects are available and pass all probes.",
                    "Progressing True/Succeeded Revision 1.0.0 has rolled out.",
                    "Installed True/Succeeded Installed bundle r.example/demo:v1 successfully",
                ],
                vec!["demo-1"],
            ),
            (
                vec![with(1, true, done), with(2, false, retrying)],
                applied(false),
                vec![
                    "Available True/ProbesSucceeded Objects are available and pass all probes.",
                    "Progressing True/Retrying collision",
                    "Installed True/Succeeded Installed bundle r.example/demo:v1 successfully",
                ],
                vec!["demo-1", "demo-2"],
            ),
        ];
        for (sets, outcome, expect, revisions) in rows {
            let next = next(&ClusterExtensionStatus::default(), Some(3), &states(&sets), &outcome, NOW);
            assert_eq!(lines(&next), expect);
            assert_eq!(next.active_revisions.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), revisions);
            assert!(next.conditions.iter().all(|c| c.observed_generation == Some(3)));
        }
    }

    #[test]
    fn failures() {
        let none = RevisionStates::default();
        let installed = states(&[with(1, true, &[])]);
        let failed = |failure| Outcome::NotApplied { failure, deprecation: Knowledge::None };
        let invalid = Failure { class: Class::InvalidConfiguration, message: "bad".into() };
        let rows = [
            (
                &none,
                failed(Failure::retry("x")),
                vec!["Progressing True/Retrying x", "Installed False/Failed No bundle installed"],
            ),
            (
                &none,
                failed(Failure::blocked("x")),
                vec!["Progressing False/Blocked x", "Installed False/Failed No bundle installed"],
            ),
            (
                &installed,
                failed(invalid),
                vec![
                    "Progressing False/InvalidConfiguration bad",
                    "Installed True/Succeeded Installed bundle r.example/demo:v1 successfully",
                ],
            ),
            (&none, Outcome::FinalizerFailed(Failure::retry("f")), vec!["Progressing True/Retrying f"]),
        ];
        for (states, outcome, expect) in rows {
            let next = next(&ClusterExtensionStatus::default(), Some(1), states, &outcome, NOW);
            assert_eq!(lines(&next), expect);
        }
    }

    #[test]
    fn the_same_pass_again_changes_nothing() {
        let states = states(&[with(1, true, &[])]);
        let later = NOW + jiff::SignedDuration::from_secs(60);
        let first = next(&ClusterExtensionStatus::default(), Some(1), &states, &applied(false), NOW);
        assert_eq!(next(&first, Some(1), &states, &applied(false), later), first);
    }

    // A rollout does not make us forget what is deprecated (spec 05 §18.17).
    #[test]
    fn known_deprecation_survives_a_rollout() {
        let states = states(&[with(1, true, &[])]);
        let known = Outcome::Applied {
            created: false,
            deprecation: Knowledge::Catalog(Deprecations::default(), Vec::new()),
        };
        let before = next(&ClusterExtensionStatus::default(), Some(1), &states, &known, NOW);
        let rollout = Outcome::Applied { created: false, deprecation: Knowledge::Unchanged };
        assert_eq!(next(&before, Some(1), &states, &rollout, NOW), before);
        let fresh = next(&ClusterExtensionStatus::default(), Some(1), &states, &rollout, NOW);
        let deprecated = conditions::find(&fresh.conditions, types::DEPRECATED).unwrap();
        assert_eq!(deprecated.reason, "DeprecationStatusUnknown");
    }
}
