//! Next status of an extension, from the outcome of one reconcile (docs/design/apply.md#mirrored-conditions,
//! docs/design/apply.md#extension-conditions, docs/design/api.md#clusterextension-conditions). Pure.

use jiff::Timestamp;
use olm_api::cluster_extension::{InstallStatus, RevisionStatus};
use olm_api::conditions::{self, Status, reasons, types};
use olm_api::{ClusterExtensionStatus, Condition};

use olm_resolve::{ConditionState, DeprecationConditions, Deprecations};

use super::findings::{Finding, Findings};
use super::revisions::{Revision, RevisionStates};
use crate::failure::{Class, Failure};

/// Deprecation data of a package.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Knowledge {
    /// No catalog answered.
    None,
    /// No catalog was asked, and the previous conditions still hold (docs/design/apply.md#extension-conditions).
    Unchanged,
    /// Data of the chosen catalog, with the channels in the spec of the extension.
    Catalog(Deprecations, Vec<String>),
}

/// Outcome of one reconcile.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    /// The extension is being deleted, and something blocks its finalizers.
    CannotGo(Failure),
    /// An attempt to apply the spec.
    Tried(Box<Pass>),
}

/// Result of choosing and applying a bundle.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pass {
    /// `Ok` if the bundle is active, else the cause.
    pub applied: Result<(), Failure>,
    /// Deprecation data.
    pub deprecation: Knowledge,
    /// Conditions of our rules.
    pub findings: Findings,
}

/// Computes the next status. `states` include a revision created in this reconcile. Conditions without an outcome
/// remain unchanged.
pub(crate) fn next(
    old: &ClusterExtensionStatus,
    generation: Option<i64>,
    states: &RevisionStates,
    outcome: &Outcome,
    now: Timestamp,
) -> ClusterExtensionStatus {
    let mut next = Draft { status: old.clone(), generation, now };
    match outcome {
        Outcome::CannotGo(failure) => next.progressing(failure, ""),
        Outcome::Tried(pass) => {
            let Pass { applied, deprecation, findings } = &**pass;
            let suffix = findings.suffix();
            match applied {
                Err(failure) => next.progressing(failure, &suffix),
                Ok(()) => next.mirror(states, &suffix),
            }
            next.installed(states, matches!(applied, Err(failure) if failure.class == Class::Pulling));
            next.deprecation(deprecation);
            next.finding(types::UPGRADE_AVAILABLE, &findings.upgrade);
            next.finding(types::DEPENDENCIES_SATISFIED, &findings.dependencies);
            next.finding(types::PAUSED, &findings.paused);
            next.finding(types::SIGNATURE_VERIFIED, &findings.signature);
        }
    }
    next.status
}

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

    fn progressing(&mut self, failure: &Failure, suffix: &str) {
        let (status, reason) = match failure.class {
            Class::Retry | Class::Rejected => (Status::True, reasons::RETRYING),
            Class::Blocked => (Status::False, reasons::BLOCKED),
            Class::InvalidConfiguration => (Status::False, reasons::INVALID_CONFIGURATION),
            Class::Pulling => (Status::True, reasons::ROLLING_OUT),
        };
        self.set(types::PROGRESSING, status, reason, &format!("{}{suffix}", failure.message));
    }

    fn installed(&mut self, states: &RevisionStates, is_pulling: bool) {
        const NONE: &str = "No bundle installed";
        let Some(installed) = &states.installed else {
            self.status.install = None;
            let retrying = |revision: &Revision| {
                revision.condition(types::PROGRESSING).is_some_and(|c| c.reason == reasons::RETRYING)
            };
            let reason = match states.rolling_out.last() {
                Some(rolling) if !retrying(rolling) => reasons::ABSENT,
                _ if is_pulling => reasons::ABSENT,
                _ => reasons::FAILED,
            };
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

    /// Copies the conditions of the revisions. `suffix` is appended to the message of `Progressing`.
    fn mirror(&mut self, states: &RevisionStates, suffix: &str) {
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
        if let Some(mut condition) = progressing {
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
        for (type_, state) in states {
            self.state(type_, &state);
        }
    }

    fn finding(&mut self, type_: &str, finding: &Finding) {
        match finding {
            Finding::NotInForce => conditions::remove(&mut self.status.conditions, type_),
            Finding::Unchanged => {}
            Finding::Is(state) => self.state(type_, state),
        }
    }

    fn state(&mut self, type_: &str, state: &ConditionState) {
        let status = state.status.map_or(Status::Unknown, Status::from);
        self.set(type_, status, state.reason, &state.message);
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

    fn tried(applied: Result<(), Failure>, deprecation: Knowledge) -> Outcome {
        Outcome::Tried(Box::new(Pass { applied, deprecation, findings: Findings::default() }))
    }

    fn applied() -> Outcome {
        tried(Ok(()), Knowledge::None)
    }

    // docs/design/apply.md#extension-conditions, docs/design/api.md#install-and-upgrade-states
    #[test]
    fn install_and_upgrade_mirror_revision_conditions() {
        let rolling: &[_] =
            &[(types::PROGRESSING, Status::True, "RollingOut", "Revision 1.0.0 is rolling out.")];
        let retrying: &[_] = &[(types::PROGRESSING, Status::True, "Retrying", "collision")];
        let done: &[_] = &[
            (types::PROGRESSING, Status::True, "Succeeded", "Revision 1.0.0 has rolled out."),
            (types::AVAILABLE, Status::True, "ProbesSucceeded", "Objects are available and pass all probes."),
        ];
        let rows = [
            (vec![], applied(), vec!["Installed False/Failed No bundle installed"], vec![]),
            // A new revision: neither a failure nor the conditions of its predecessor.
            (
                vec![with(1, false, &[])],
                applied(),
                vec![
                    "Progressing True/RollingOut Revision 1.0.0 is rolling out.",
                    "Installed False/Absent No bundle installed",
                ],
                vec!["demo-1"],
            ),
            (
                vec![with(1, true, done), with(2, false, &[])],
                applied(),
                vec![
                    "Available True/ProbesSucceeded Objects are available and pass all probes.",
                    "Progressing True/RollingOut Revision 2.0.0 is rolling out.",
                    "Installed True/Succeeded Installed bundle r.example/demo:v1 successfully",
                ],
                vec!["demo-1", "demo-2"],
            ),
            (
                vec![with(1, false, rolling)],
                applied(),
                vec![
                    "Progressing True/RollingOut Revision 1.0.0 is rolling out.",
                    "Installed False/Absent No bundle installed",
                ],
                vec!["demo-1"],
            ),
            (
                vec![with(1, false, retrying)],
                applied(),
                vec!["Progressing True/Retrying collision", "Installed False/Failed No bundle installed"],
                vec!["demo-1"],
            ),
            (
                vec![with(1, true, done)],
                applied(),
                vec![
                    "Available True/ProbesSucceeded Objects are available and pass all probes.",
                    "Progressing True/Succeeded Revision 1.0.0 has rolled out.",
                    "Installed True/Succeeded Installed bundle r.example/demo:v1 successfully",
                ],
                vec!["demo-1"],
            ),
            (
                vec![with(1, true, done), with(2, false, retrying)],
                applied(),
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
    fn failure_class_sets_progressing_and_installed() {
        let none = RevisionStates::default();
        let installed = states(&[with(1, true, &[])]);
        let failed = |failure| tried(Err(failure), Knowledge::None);
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
            (&none, Outcome::CannotGo(Failure::retry("f")), vec!["Progressing True/Retrying f"]),
        ];
        for (states, outcome, expect) in rows {
            let next = next(&ClusterExtensionStatus::default(), Some(1), states, &outcome, NOW);
            assert_eq!(lines(&next), expect);
        }
    }

    #[test]
    fn unchanged_reconcile_keeps_status() {
        let states = states(&[with(1, true, &[])]);
        let later = NOW + jiff::SignedDuration::from_secs(60);
        let first = next(&ClusterExtensionStatus::default(), Some(1), &states, &applied(), NOW);
        assert_eq!(next(&first, Some(1), &states, &applied(), later), first);
    }

    fn ruled(applied: Result<(), Failure>, findings: Findings) -> Outcome {
        Outcome::Tried(Box::new(Pass { applied, deprecation: Knowledge::None, findings }))
    }

    fn state(status: Option<bool>, reason: &'static str) -> Finding {
        Finding::Is(ConditionState { status, reason, message: reason.to_lowercase() })
    }

    fn ours(status: &ClusterExtensionStatus) -> Vec<String> {
        let shown = [types::UPGRADE_AVAILABLE, types::DEPENDENCIES_SATISFIED];
        let line = |c: &Condition| format!("{} {}/{} {}", c.type_, c.status, c.reason, c.message);
        status.conditions.iter().filter(|c| shown.contains(&c.type_.as_str())).map(line).collect()
    }

    // docs/design/additions.md#annotations, docs/design/additions.md#held-upgrades; case additions-a01
    #[test]
    fn rule_conditions_exist_only_while_a_rule_is_active() {
        let done: &[_] = &[(types::PROGRESSING, Status::True, "Succeeded", "Revision 1.0.0 has rolled out.")];
        let states = states(&[with(1, true, done)]);
        let step = |old: &ClusterExtensionStatus, findings: Findings| {
            next(old, Some(1), &states, &ruled(Ok(()), findings), NOW)
        };
        let held = Findings {
            upgrade: state(Some(true), "OutsideScope"),
            dependencies: state(None, "Unsatisfied"),
            ..Findings::default()
        };
        let without = step(&ClusterExtensionStatus::default(), Findings::default());
        assert_eq!(ours(&without), [""; 0]);
        let with_rules = step(&without, held.clone());
        let shown = [
            "UpgradeAvailable True/OutsideScope outsidescope",
            "DependenciesSatisfied Unknown/Unsatisfied unsatisfied",
        ];
        assert_eq!(ours(&with_rules), shown);
        assert_eq!(lines(&with_rules), lines(&without), "a held upgrade changes no standard condition");
        assert_eq!(step(&with_rules, held), with_rules, "unchanged findings change no status");
        let nobody_looked =
            Findings { upgrade: Finding::Unchanged, dependencies: Finding::Unchanged, ..Findings::default() };
        assert_eq!(step(&with_rules, nobody_looked.clone()), with_rules);
        assert_eq!(step(&without, nobody_looked), without, "unchanged findings create no condition");
        assert_eq!(step(&with_rules, Findings::default()), without, "removed with the last rule");
    }

    // docs/design/additions.md#best-effort-resolution; case additions-a34
    #[test]
    fn skipped_catalogs_are_appended_to_progressing_message() {
        let done: &[_] = &[(types::PROGRESSING, Status::True, "Succeeded", "Revision 1.0.0 has rolled out.")];
        let rolling: &[_] =
            &[(types::PROGRESSING, Status::True, "RollingOut", "Revision 2.0.0 is rolling out.")];
        let fault = olm_resolve::CatalogError::NotServing("x".to_owned());
        let findings = Findings {
            left_out: vec![olm_resolve::LeftOut { catalog: "x".to_owned(), fault }],
            ..Findings::default()
        };
        let states = states(&[with(1, true, done), with(2, false, rolling)]);
        let suffix = "; skipped unavailable catalogs: [x]";
        let message = |applied: Result<(), Failure>, findings: &Findings| {
            let outcome = ruled(applied, findings.clone());
            let first = next(&ClusterExtensionStatus::default(), Some(1), &states, &outcome, NOW);
            assert_eq!(next(&first, Some(1), &states, &outcome, NOW), first);
            let entry = first.active_revisions.last().map(|revision| revision.conditions.clone());
            let mirrored = entry.and_then(|all| conditions::find(&all, types::PROGRESSING).cloned());
            assert!(mirrored.is_none_or(|condition| !condition.message.contains("skipped")));
            conditions::find(&first.conditions, types::PROGRESSING).unwrap().message.clone()
        };
        assert_eq!(message(Ok(()), &findings), format!("Revision 2.0.0 is rolling out.{suffix}"));
        assert_eq!(message(Err(Failure::retry("x")), &findings), format!("x{suffix}"));
        assert_eq!(message(Ok(()), &Findings::default()), "Revision 2.0.0 is rolling out.");
    }

    // docs/design/apply.md#extension-conditions, docs/design/api.md#installed-condition,
    // docs/design/api.md#condition-updates
    #[test]
    fn available_is_unknown_without_installed_revision() {
        let done: &[_] = &[
            (types::PROGRESSING, Status::True, "Succeeded", "Revision 1.0.0 has rolled out."),
            (types::AVAILABLE, Status::True, "ProbesSucceeded", "Objects are available and pass all probes."),
        ];
        let installed = states(&[with(1, true, done)]);
        let before = next(&ClusterExtensionStatus::default(), Some(1), &installed, &applied(), NOW);
        let anew = states(&[with(2, false, &[])]);
        let after = next(&before, Some(1), &anew, &applied(), NOW);
        let expected = [
            "Available Unknown/Reconciling No bundle installed",
            "Progressing True/RollingOut Revision 2.0.0 is rolling out.",
            "Installed False/Absent No bundle installed",
        ];
        assert_eq!(lines(&after), expected);
        assert_eq!(next(&after, Some(1), &anew, &applied(), NOW), after);
    }

    // docs/design/additions.md#pause
    #[test]
    fn pause_condition_exists_only_while_paused() {
        let states = states(&[with(1, true, &[])]);
        let paused = |finding| Findings { paused: finding, ..Findings::default() };
        let step = |old: &ClusterExtensionStatus, finding| {
            next(old, Some(1), &states, &ruled(Ok(()), paused(finding)), NOW)
        };
        let plain = step(&ClusterExtensionStatus::default(), Finding::NotInForce);
        let held = step(&plain, state(Some(true), "Paused"));
        assert!(conditions::is_true(&held.conditions, types::PAUSED));
        assert_eq!(lines(&held), lines(&plain), "a pause changes no standard condition");
        assert_eq!(step(&held, Finding::Unchanged), held);
        assert_eq!(step(&held, Finding::NotInForce), plain);
    }

    // Case additions-e20
    #[test]
    fn blocked_deletion_changes_only_progressing() {
        let states = states(&[with(1, true, &[])]);
        let before = next(&ClusterExtensionStatus::default(), Some(1), &states, &applied(), NOW);
        let after = next(&before, Some(1), &states, &Outcome::CannotGo(Failure::retry("needed")), NOW);
        assert_eq!(lines(&after)[1..], ["Progressing True/Retrying needed"]);
        assert_eq!(lines(&after)[..1], lines(&before));
        assert_eq!((after.install, after.active_revisions), (before.install, before.active_revisions));
    }

    // A rollout keeps the known deprecation (docs/design/apply.md#extension-conditions).
    #[test]
    fn rollout_keeps_known_deprecation() {
        let states = states(&[with(1, true, &[])]);
        let known = tried(Ok(()), Knowledge::Catalog(Deprecations::default(), Vec::new()));
        let before = next(&ClusterExtensionStatus::default(), Some(1), &states, &known, NOW);
        let rollout = tried(Ok(()), Knowledge::Unchanged);
        assert_eq!(next(&before, Some(1), &states, &rollout, NOW), before);
        let fresh = next(&ClusterExtensionStatus::default(), Some(1), &states, &rollout, NOW);
        let deprecated = conditions::find(&fresh.conditions, types::DEPRECATED).unwrap();
        assert_eq!(deprecated.reason, "DeprecationStatusUnknown");
    }
}
