//! Next status of an extension for given outcomes.

use super::super::revisions::{states, tests::set};
use super::*;
use std::sync::Arc;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn with(number: i64, succeeded: bool, all: &[(&str, Status, &str, &str)]) -> Arc<olm_api::ClusterObjectSet> {
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

fn tried(applied: Applied, deprecation: DeprecationData) -> StatusUpdate {
    StatusUpdate::Attempted(Box::new(AttemptResult {
        applied,
        deprecation,
        findings: ConditionChanges::default(),
        upgrade_generation: None,
    }))
}

fn applied() -> StatusUpdate {
    tried(Applied::Active, DeprecationData::None)
}

type RevisionCondition = (&'static str, Status, &'static str, &'static str);
const ROLLING: &[RevisionCondition] =
    &[(types::PROGRESSING, Status::True, "RollingOut", "Revision 1.0.0 is rolling out.")];
const RETRYING: &[RevisionCondition] = &[(types::PROGRESSING, Status::True, "Retrying", "collision")];
const DONE: &[RevisionCondition] = &[
    (types::PROGRESSING, Status::True, "Succeeded", "Revision 1.0.0 has rolled out."),
    (types::AVAILABLE, Status::True, "ProbesSucceeded", "Objects are available and pass all probes."),
];

/// Revisions, outcome of the attempt, conditions of the extension, active revisions.
type Row = (Vec<Arc<olm_api::ClusterObjectSet>>, StatusUpdate, Vec<&'static str>, Vec<&'static str>);

fn compare(rows: Vec<Row>) {
    for (sets, outcome, expect, revisions) in rows {
        let next = next(&ClusterExtensionStatus::default(), Some(3), &states(&sets), &outcome, NOW);
        assert_eq!(lines(&next), expect);
        assert_eq!(next.active_revisions.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(), revisions);
        assert!(next.conditions.iter().all(|c| c.observed_generation == Some(3)));
    }
}

// docs/design/apply.md#extension-conditions, docs/design/api.md#install-and-upgrade-states
#[test]
fn install_mirrors_revision_conditions() {
    compare(vec![
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
            vec![with(1, false, ROLLING)],
            applied(),
            vec![
                "Progressing True/RollingOut Revision 1.0.0 is rolling out.",
                "Installed False/Absent No bundle installed",
            ],
            vec!["demo-1"],
        ),
        (
            vec![with(1, false, RETRYING)],
            applied(),
            vec!["Progressing True/Retrying collision", "Installed False/Failed No bundle installed"],
            vec!["demo-1"],
        ),
        // docs/design/approvals.md#approval: a first installation that waits has not failed.
        (
            vec![],
            tried(Applied::Held("installation of x".to_owned()), DeprecationData::None),
            vec!["Progressing False/Blocked installation of x", "Installed False/Absent No bundle installed"],
            vec![],
        ),
        (
            vec![with(1, true, DONE)],
            applied(),
            vec![
                "Available True/ProbesSucceeded Objects are available and pass all probes.",
                "Progressing True/Succeeded Revision 1.0.0 has rolled out.",
                "Installed True/Succeeded Installed bundle r.example/demo:v1 successfully",
            ],
            vec!["demo-1"],
        ),
    ]);
}

#[test]
fn upgrade_keeps_installed_and_mirrors_new_revision() {
    compare(vec![
        (
            vec![with(1, true, DONE), with(2, false, &[])],
            applied(),
            vec![
                "Available True/ProbesSucceeded Objects are available and pass all probes.",
                "Progressing True/RollingOut Revision 2.0.0 is rolling out.",
                "Installed True/Succeeded Installed bundle r.example/demo:v1 successfully",
            ],
            vec!["demo-1", "demo-2"],
        ),
        (
            vec![with(1, true, DONE), with(2, false, RETRYING)],
            applied(),
            vec![
                "Available True/ProbesSucceeded Objects are available and pass all probes.",
                "Progressing True/Retrying collision",
                "Installed True/Succeeded Installed bundle r.example/demo:v1 successfully",
            ],
            vec!["demo-1", "demo-2"],
        ),
    ]);
}

#[test]
fn failure_class_sets_progressing_and_installed() {
    let none = RevisionStates::default();
    let installed = states(&[with(1, true, &[])]);
    let failed = |failure| tried(Applied::Failed(failure), DeprecationData::None);
    let invalid = InstallError { class: InstallErrorClass::InvalidConfiguration, message: "bad".into() };
    let rows = [
        (
            &none,
            failed(InstallError::retry("x")),
            vec!["Progressing True/Retrying x", "Installed False/Failed No bundle installed"],
        ),
        (
            &none,
            failed(InstallError::blocked("x")),
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
        (&none, StatusUpdate::OnlyProgressing(InstallError::retry("f")), vec!["Progressing True/Retrying f"]),
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

fn ruled(applied: Applied, findings: ConditionChanges) -> StatusUpdate {
    let deprecation = DeprecationData::None;
    StatusUpdate::Attempted(Box::new(AttemptResult {
        applied,
        deprecation,
        findings,
        upgrade_generation: None,
    }))
}

fn state(status: Option<bool>, reason: &'static str) -> ConditionChange {
    ConditionChange::State(ConditionState { status, reason, message: reason.to_lowercase() })
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
    let step = |old: &ClusterExtensionStatus, findings: ConditionChanges| {
        next(old, Some(1), &states, &ruled(Applied::Active, findings), NOW)
    };
    let held = ConditionChanges {
        upgrade: state(Some(true), "OutsideScope"),
        dependencies: state(None, "Unsatisfied"),
        ..ConditionChanges::default()
    };
    let without = step(&ClusterExtensionStatus::default(), ConditionChanges::default());
    assert_eq!(ours(&without), [""; 0]);
    let with_rules = step(&without, held.clone());
    let shown = [
        "UpgradeAvailable True/OutsideScope outsidescope",
        "DependenciesSatisfied Unknown/Unsatisfied unsatisfied",
    ];
    assert_eq!(ours(&with_rules), shown);
    assert_eq!(lines(&with_rules), lines(&without), "a held upgrade changes no standard condition");
    assert_eq!(step(&with_rules, held), with_rules, "unchanged findings change no status");
    let nobody_looked = ConditionChanges {
        upgrade: ConditionChange::Unchanged,
        dependencies: ConditionChange::Unchanged,
        ..ConditionChanges::default()
    };
    assert_eq!(step(&with_rules, nobody_looked.clone()), with_rules);
    assert_eq!(step(&without, nobody_looked), without, "unchanged findings create no condition");
    assert_eq!(step(&with_rules, ConditionChanges::default()), without, "removed with the last rule");
}

// docs/design/additions.md#update-notifications
#[test]
fn available_version_follows_its_condition() {
    let states = states(&[with(1, true, &[])]);
    let step = |old: &ClusterExtensionStatus, upgrade: ConditionChange, version: Option<&str>| {
        let available_version = version.map(str::to_owned);
        let findings = ConditionChanges { upgrade, available_version, ..ConditionChanges::default() };
        next(old, Some(1), &states, &ruled(Applied::Active, findings), NOW)
    };
    let none = step(&ClusterExtensionStatus::default(), ConditionChange::Inactive, None);
    assert_eq!(none.available_version, None);
    let waits = || state(Some(true), "OutsideVersionRange");
    let waiting = step(&none, waits(), Some("2.0.0"));
    assert_eq!(waiting.available_version.as_deref(), Some("2.0.0"));
    assert_eq!(step(&waiting, waits(), Some("2.0.0")), waiting);
    assert_eq!(step(&waiting, ConditionChange::Unchanged, None), waiting);
    assert!(waiting.active_revisions.iter().all(|revision| revision.conditions.is_empty()));
    assert_eq!(step(&waiting, state(Some(false), "UpToDate"), None).available_version, None);
    assert_eq!(step(&waiting, ConditionChange::Inactive, None), none, "removed with the gate");
}

// docs/design/additions.md#best-effort-resolution; case additions-a34
#[test]
fn skipped_catalogs_are_appended_to_progressing_message() {
    let done: &[_] = &[(types::PROGRESSING, Status::True, "Succeeded", "Revision 1.0.0 has rolled out.")];
    let rolling: &[_] = &[(types::PROGRESSING, Status::True, "RollingOut", "Revision 2.0.0 is rolling out.")];
    let fault = olm_resolve::CatalogError::NotServing("x".to_owned());
    let findings = ConditionChanges {
        left_out: vec![olm_resolve::LeftOut { catalog: "x".to_owned(), fault }],
        ..ConditionChanges::default()
    };
    let states = states(&[with(1, true, done), with(2, false, rolling)]);
    let suffix = "; skipped unavailable catalogs: [x]";
    let message = |applied: Applied, findings: &ConditionChanges| {
        let outcome = ruled(applied, findings.clone());
        let first = next(&ClusterExtensionStatus::default(), Some(1), &states, &outcome, NOW);
        assert_eq!(next(&first, Some(1), &states, &outcome, NOW), first);
        let entry = first.active_revisions.last().map(|revision| revision.conditions.clone());
        let mirrored = entry.and_then(|all| conditions::find(&all, types::PROGRESSING).cloned());
        assert!(mirrored.is_none_or(|condition| !condition.message.contains("skipped")));
        conditions::find(&first.conditions, types::PROGRESSING).unwrap().message.clone()
    };
    assert_eq!(message(Applied::Active, &findings), format!("Revision 2.0.0 is rolling out.{suffix}"));
    assert_eq!(message(Applied::Failed(InstallError::retry("x")), &findings), format!("x{suffix}"));
    assert_eq!(message(Applied::Active, &ConditionChanges::default()), "Revision 2.0.0 is rolling out.");
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
    let paused = |finding| ConditionChanges { paused: finding, ..ConditionChanges::default() };
    let step = |old: &ClusterExtensionStatus, finding| {
        next(old, Some(1), &states, &ruled(Applied::Active, paused(finding)), NOW)
    };
    let plain = step(&ClusterExtensionStatus::default(), ConditionChange::Inactive);
    let held = step(&plain, state(Some(true), "Paused"));
    assert!(conditions::is_true(&held.conditions, types::PAUSED));
    assert_eq!(lines(&held), lines(&plain), "a pause changes no standard condition");
    assert_eq!(step(&held, ConditionChange::Unchanged), held);
    assert_eq!(step(&held, ConditionChange::Inactive), plain);
}

// Case additions-e20
#[test]
fn blocked_deletion_changes_only_progressing() {
    let states = states(&[with(1, true, &[])]);
    let before = next(&ClusterExtensionStatus::default(), Some(1), &states, &applied(), NOW);
    let after =
        next(&before, Some(1), &states, &StatusUpdate::OnlyProgressing(InstallError::retry("needed")), NOW);
    assert_eq!(lines(&after)[1..], ["Progressing True/Retrying needed"]);
    assert_eq!(lines(&after)[..1], lines(&before));
    assert_eq!((after.install, after.active_revisions), (before.install, before.active_revisions));
}

// A rollout keeps the known deprecation (docs/design/apply.md#extension-conditions).
#[test]
fn rollout_keeps_known_deprecation() {
    let states = states(&[with(1, true, &[])]);
    let known = tried(Applied::Active, DeprecationData::Catalog(Deprecations::default(), Vec::new()));
    let before = next(&ClusterExtensionStatus::default(), Some(1), &states, &known, NOW);
    let rollout = tried(Applied::Active, DeprecationData::Unchanged);
    assert_eq!(next(&before, Some(1), &states, &rollout, NOW), before);
    let fresh = next(&ClusterExtensionStatus::default(), Some(1), &states, &rollout, NOW);
    let deprecated = conditions::find(&fresh.conditions, types::DEPRECATED).unwrap();
    assert_eq!(deprecated.reason, "DeprecationStatusUnknown");
}

// docs/design/additions.md#status-summary
#[test]
fn active_revisions_do_not_copy_the_summary() {
    let rolling: &[_] = &[
        (types::PROGRESSING, Status::True, "RollingOut", "Revision 1.0.0 is rolling out."),
        (types::READY, Status::False, "RollingOut", "Revision 1.0.0 is rolling out."),
        (types::RECONCILING, Status::True, "RollingOut", "Revision 1.0.0 is rolling out."),
    ];
    let states = states(&[with(1, false, rolling)]);
    let next = next(&ClusterExtensionStatus::default(), Some(1), &states, &applied(), NOW);
    let copied = next.active_revisions[0].conditions.iter().map(|copied| copied.type_.as_str());
    assert_eq!(copied.collect::<Vec<_>>(), [types::PROGRESSING]);
    assert!(conditions::find(&next.conditions, types::READY).is_none());
}

// docs/design/approvals.md#approval: the conditions of the installed revision describe the spec that is applied
#[test]
fn held_upgrade_describes_the_newest_generation() {
    let state =
        ConditionState { status: Some(true), reason: reasons::APPROVAL_REQUIRED, message: "m".to_owned() };
    let attempt = AttemptResult {
        applied: Applied::Active,
        deprecation: DeprecationData::None,
        findings: ConditionChanges { upgrade: ConditionChange::State(state), ..ConditionChanges::default() },
        upgrade_generation: Some(4),
    };
    let done: &[_] = &[(types::PROGRESSING, Status::True, "Succeeded", "Revision 1.0.0 has rolled out.")];
    let (old, states) = (ClusterExtensionStatus::default(), states(&[with(1, true, done)]));
    let next = next(&old, Some(3), &states, &StatusUpdate::Attempted(Box::new(attempt)), NOW);
    let generation = |type_| conditions::find(&next.conditions, type_).unwrap().observed_generation;
    assert_eq!(
        [types::UPGRADE_AVAILABLE, types::PROGRESSING, types::INSTALLED].map(generation),
        [Some(4), Some(3), Some(3)]
    );
}

// docs/design/approvals.md#automatic-rollback
#[test]
fn rollback_replaces_progressing_and_mirrors_the_rest() {
    let done: &[_] = &[
        (types::PROGRESSING, Status::True, "Succeeded", "Revision 1.0.0 has rolled out."),
        (types::AVAILABLE, Status::True, "ProbesSucceeded", "Objects are available and pass all probes."),
    ];
    let rolling: &[_] = &[(types::PROGRESSING, Status::True, "RollingOut", "Revision 3.0.0 is rolling out.")];
    let findings =
        ConditionChanges { restored: Some("rolled back".to_owned()), ..ConditionChanges::default() };
    let update = StatusUpdate::Attempted(Box::new(AttemptResult {
        applied: Applied::Active,
        deprecation: DeprecationData::None,
        findings,
        upgrade_generation: None,
    }));
    let restoring = states(&[with(1, true, done), with(2, false, &[]), with(3, false, rolling)]);
    let status = next(&ClusterExtensionStatus::default(), Some(2), &restoring, &update, NOW);
    assert_eq!(
        lines(&status),
        [
            "Available True/ProbesSucceeded Objects are available and pass all probes.",
            "Progressing False/ProgressDeadlineExceeded rolled back",
            "Installed True/Succeeded Installed bundle r.example/demo:v1 successfully",
        ]
    );
    assert_eq!(status.active_revisions.len(), 3);
    // The transition time does not change with each reconcile.
    let later = Timestamp::from_second(60).unwrap();
    assert_eq!(next(&status, Some(2), &restoring, &update, later), status);
}
