//! The next status of an extension from what one pass found and did (spec 05 §§3.6–3.7, spec 01 §7.3). Pure.

use jiff::Timestamp;
use olm_api::cluster_extension::{InstallStatus, RevisionStatus};
use olm_api::conditions::{self, Status, reasons, types};
use olm_api::{ClusterExtensionStatus, Condition};

use olm_resolve::{ConditionState, DeprecationConditions, Deprecations};

use super::findings::{Finding, Findings};
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
    /// It was to go, and cannot yet.
    CannotGo(Failure),
    /// It was to be what its spec says.
    Tried(Box<Pass>),
}

/// A pass that chose a bundle, or could not, and applied it, or could not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pass {
    /// Whether this pass made a revision, or why the wanted one is not in force.
    pub applied: Result<bool, Failure>,
    /// What is known of deprecation.
    pub deprecation: Knowledge,
    /// What our own rules say.
    pub findings: Findings,
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
        Outcome::CannotGo(failure) => next.progressing(failure, ""),
        Outcome::Tried(pass) => {
            let Pass { applied, deprecation, findings } = &**pass;
            let suffix = findings.suffix();
            match applied {
                Err(failure) => next.progressing(failure, &suffix),
                Ok(_) => next.mirror(states, &suffix),
            }
            next.installed(states, *applied == Ok(true));
            next.deprecation(deprecation);
            next.finding(types::UPGRADE_AVAILABLE, &findings.upgrade);
            next.finding(types::DEPENDENCIES_SATISFIED, &findings.dependencies);
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

    fn progressing(&mut self, failure: &Failure, suffix: &str) {
        let (status, reason) = match failure.class {
            Class::Retry => (Status::True, reasons::RETRYING),
            Class::Blocked => (Status::False, reasons::BLOCKED),
            Class::InvalidConfiguration => (Status::False, reasons::INVALID_CONFIGURATION),
        };
        self.set(types::PROGRESSING, status, reason, &format!("{}{suffix}", failure.message));
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

    /// Copies what the revisions say of themselves; `suffix` is what we add about progress.
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
        let progressing = states
            .rolling_out
            .last()
            .and_then(|revision| revision.condition(types::PROGRESSING))
            .or_else(|| installed.and_then(|revision| revision.condition(types::PROGRESSING)));
        if let Some(condition) = available {
            self.copy(condition.clone());
        }
        if let Some(mut condition) = progressing.cloned() {
            if !suffix.is_empty() {
                condition.message = conditions::truncate(&format!("{}{suffix}", condition.message));
            }
            self.copy(condition);
        }
    }

    /// Takes over a revision's condition with its transition time, and our generation.
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

    fn tried(applied: Result<bool, Failure>, deprecation: Knowledge) -> Outcome {
        Outcome::Tried(Box::new(Pass { applied, deprecation, findings: Findings::default() }))
    }

    fn applied(created: bool) -> Outcome {
        tried(Ok(created), Knowledge::None)
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
    fn the_same_pass_again_changes_nothing() {
        let states = states(&[with(1, true, &[])]);
        let later = NOW + jiff::SignedDuration::from_secs(60);
        let first = next(&ClusterExtensionStatus::default(), Some(1), &states, &applied(false), NOW);
        assert_eq!(next(&first, Some(1), &states, &applied(false), later), first);
    }

    fn ruled(applied: Result<bool, Failure>, findings: Findings) -> Outcome {
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

    // spec 07 §1.1, §4.5, A-01
    #[test]
    fn conditions_of_our_rules_come_stay_and_go() {
        let done: &[_] = &[(types::PROGRESSING, Status::True, "Succeeded", "Revision 1.0.0 has rolled out.")];
        let states = states(&[with(1, true, done)]);
        let step = |old: &ClusterExtensionStatus, findings: Findings| {
            next(old, Some(1), &states, &ruled(Ok(false), findings), NOW)
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
        assert_eq!(lines(&with_rules), lines(&without), "what is held back does not disturb");
        assert_eq!(step(&with_rules, held), with_rules, "the same again writes nothing");
        let nobody_looked =
            Findings { upgrade: Finding::Unchanged, dependencies: Finding::Unchanged, ..Findings::default() };
        assert_eq!(step(&with_rules, nobody_looked.clone()), with_rules);
        assert_eq!(step(&without, nobody_looked), without, "nothing is made up");
        assert_eq!(step(&with_rules, Findings::default()), without, "gone with the last rule");
    }

    // spec 07 §6.3, A-34
    #[test]
    fn catalogs_that_are_left_out_are_named_with_progress() {
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
        let message = |applied: Result<bool, Failure>, findings: &Findings| {
            let outcome = ruled(applied, findings.clone());
            let first = next(&ClusterExtensionStatus::default(), Some(1), &states, &outcome, NOW);
            assert_eq!(next(&first, Some(1), &states, &outcome, NOW), first);
            let entry = first.active_revisions.last().map(|revision| revision.conditions.clone());
            let mirrored = entry.and_then(|all| conditions::find(&all, types::PROGRESSING).cloned());
            assert!(mirrored.is_none_or(|condition| !condition.message.contains("skipped")));
            conditions::find(&first.conditions, types::PROGRESSING).unwrap().message.clone()
        };
        assert_eq!(message(Ok(false), &findings), format!("Revision 2.0.0 is rolling out.{suffix}"));
        assert_eq!(message(Err(Failure::retry("x")), &findings), format!("x{suffix}"));
        assert_eq!(message(Ok(false), &Findings::default()), "Revision 2.0.0 is rolling out.");
    }

    // spec 07 E-20
    #[test]
    fn an_extension_that_cannot_go_says_so_and_nothing_else_changes() {
        let states = states(&[with(1, true, &[])]);
        let before = next(&ClusterExtensionStatus::default(), Some(1), &states, &applied(false), NOW);
        let after = next(&before, Some(1), &states, &Outcome::CannotGo(Failure::retry("needed")), NOW);
        assert_eq!(lines(&after)[1..], ["Progressing True/Retrying needed"]);
        assert_eq!(lines(&after)[..1], lines(&before));
        assert_eq!((after.install, after.active_revisions), (before.install, before.active_revisions));
    }

    // A rollout does not make us forget what is deprecated (spec 05 §18.17).
    #[test]
    fn known_deprecation_survives_a_rollout() {
        let states = states(&[with(1, true, &[])]);
        let known = tried(Ok(false), Knowledge::Catalog(Deprecations::default(), Vec::new()));
        let before = next(&ClusterExtensionStatus::default(), Some(1), &states, &known, NOW);
        let rollout = tried(Ok(false), Knowledge::Unchanged);
        assert_eq!(next(&before, Some(1), &states, &rollout, NOW), before);
        let fresh = next(&ClusterExtensionStatus::default(), Some(1), &states, &rollout, NOW);
        let deprecated = conditions::find(&fresh.conditions, types::DEPRECATED).unwrap();
        assert_eq!(deprecated.reason, "DeprecationStatusUnknown");
    }
}
