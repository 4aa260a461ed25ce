use super::super::decide::tests::{choice, extension, observed};
use super::super::revisions::tests::set;
use super::*;
use olm_request::{ApprovalMode, ExtensionRules};

fn held(is_first: bool, changes_bundle: bool, cause: HoldCause) -> HeldPlan {
    let digest = "sha256:a".to_owned();
    let blocker =
        Some("OperatorCondition ns/demo.v1.0.0: the operator is not upgradeable: moving".to_owned());
    let change = DraftChange { digest, is_first, changes_bundle, blocker, ..DraftChange::default() };
    let summary = "1 object created, 0 changed, 0 deleted".to_owned();
    let plan = ProposedPlan { change, summary, operator_condition: None, revision: 2, content: None };
    HeldPlan { plan, cause, wait: None }
}

fn reason_and_message(report: Result<ConditionState, String>) -> (Option<&'static str>, String) {
    match report {
        Ok(state) => (state.status.and(Some(state.reason)), state.message),
        Err(message) => (None, message),
    }
}

// docs/design/approvals.md#approval, docs/design/approvals.md#upgrade-windows
#[test]
fn held_plan_names_bundle_plan_changes_and_release() {
    let extension = extension();
    let observed = observed(&extension, ExtensionRules::default(), &[set(1, "Active", true)]);
    let choice = Choice { catalog: Some("hub".to_owned()), ..choice(2) };
    let opens = HoldCause::OutsideWindow { opens: Some(Timestamp::UNIX_EPOCH) };
    let approve = "to approve it, run `olm approve demo` or set annotation ext.olm.operatorframework.io/approved to \
                   the digest of the plan";
    let bundle = "bundle demo.v2.0.0 version 2.0.0 from catalog hub";
    let plan = "plan sha256:a: 1 object created, 0 changed, 0 deleted";
    let operator = "OperatorCondition ns/demo.v1.0.0: the operator is not upgradeable: moving; to upgrade anyway, set an \
                    override there or annotation ext.olm.operatorframework.io/ignore-operator-condition to \"true\"";
    let window = "the next upgrade window opens at 1970-01-01T00:00:00Z";
    let rows = [
        (
            false,
            true,
            HoldCause::ApprovalRequired,
            Some("ApprovalRequired"),
            format!("{bundle} is available; {plan}; {approve}"),
        ),
        (false, true, opens, Some("OutsideWindow"), format!("{bundle} is available; {plan}; {window}")),
        (
            false,
            true,
            HoldCause::OperatorNotUpgradeable,
            Some("OperatorNotUpgradeable"),
            format!("{bundle} is available; {plan}; {operator}"),
        ),
        (
            false,
            false,
            HoldCause::ApprovalRequired,
            Some("ApprovalRequired"),
            format!("a changed revision of {bundle} is available; {plan}; {approve}"),
        ),
        (
            true,
            true,
            HoldCause::ApprovalRequired,
            None,
            format!("installation of {bundle} requires approval; {plan}; {approve}"),
        ),
        (
            true,
            true,
            opens,
            None,
            format!("installation of {bundle} waits for its upgrade window; {plan}; {window}"),
        ),
    ];
    for (first, bundle_changes, cause, reason, expected) in rows {
        let report = held(first, bundle_changes, cause).report(&observed, &choice);
        assert_eq!(reason_and_message(report), (reason, expected));
    }
}

#[test]
fn only_a_closed_window_requeues_at_its_opening() {
    let mut plan = held(false, true, HoldCause::ApprovalRequired).plan;
    plan.change.blocker = None;
    let wait = |annotations: ApprovalRules, now: &str| {
        let held = plan.held(&annotations, now.parse().unwrap());
        held.map(|held| held.wait.map(|wait| wait.as_secs()))
    };
    let windows = |text: &str| ApprovalRules { windows: text.parse().unwrap(), ..ApprovalRules::default() };
    let nightly = || windows("0 22 * * * 1h");
    assert_eq!(wait(nightly(), "2026-11-21T21:58:30Z"), Some(Some(90)));
    assert_eq!(wait(nightly(), "2026-11-21T21:59:59.5Z"), Some(Some(1)));
    assert_eq!(wait(nightly(), "2026-11-21T22:00:00Z"), None);
    // A clock that is set forward in between must not miss the window.
    assert_eq!(wait(nightly(), "2026-11-21T12:00:00Z"), Some(Some(300)));
    assert_eq!(wait(windows("0 0 1 1 * 1h"), "2026-02-01T00:00:00Z"), Some(Some(300)));
    let manual = ApprovalRules { mode: ApprovalMode::ManualUpgrades, ..nightly() };
    assert_eq!(wait(manual, "2026-11-21T21:58:30Z"), Some(None));
}

#[test]
fn failed_write_of_a_plan_is_retried_before_its_window_opens() {
    let delay = Duration::from_secs(20);
    let wait =
        |wait| HeldPlan { wait, ..held(false, true, HoldCause::ApprovalRequired) }.retried_after(delay).wait;
    assert_eq!(wait(None), Some(delay));
    assert_eq!(wait(Some(LONGEST_WAIT)), Some(delay));
    assert_eq!(wait(Some(Duration::from_secs(1))), Some(Duration::from_secs(1)));
}
