use std::sync::Arc;

use olm_api::ClusterObjectSet;
use olm_api::conditions::Status;
use olm_request::{ApprovalMode, ApprovalRules, RolledBackContent};

use super::super::decide::tests::{choice, extension, observed};
use super::super::decide::{Decision, decide};
use super::super::revisions::tests::set;
use super::*;

fn late(mut set: Arc<ClusterObjectSet>) -> Arc<ClusterObjectSet> {
    let conditions = &mut Arc::make_mut(&mut set).status.as_mut().unwrap().conditions;
    let reason = reasons::PROGRESS_DEADLINE_EXCEEDED;
    let now = jiff::Timestamp::UNIX_EPOCH;
    conditions::set(conditions, types::PROGRESSING, Status::False, reason, "late", None, now);
    set
}

/// Revision that restores version 1 in place of version 2.
fn restoring(number: i64, succeeded: bool) -> Arc<ClusterObjectSet> {
    let mut set = set(1, "Active", succeeded);
    let made = Arc::make_mut(&mut set);
    made.metadata.name = Some(format!("demo-{number}"));
    made.spec.as_mut().unwrap().revision = number;
    let refusal = RolledBackContent {
        digest: "sha256:2".to_owned(),
        revision: "demo-2".to_owned(),
        bundle: "demo.v2.0.0".to_owned(),
        version: "2.0.0".to_owned(),
        retry_requested_at: None,
    };
    let all = made.metadata.annotations.as_mut().unwrap();
    all.insert(annotations::EXT_REFUSED.to_owned(), serde_json::to_string(&refusal).unwrap());
    set
}

fn rollback() -> ExtensionRules {
    ExtensionRules { rollback: true, ..ExtensionRules::default() }
}

/// Decision about a target of this version: `restore demo-N`, or its name. No process has a memory of the revisions, as
/// after a restart.
fn decided(
    rules: &ExtensionRules,
    sets: &[Arc<ClusterObjectSet>],
    edited: bool,
    (version, catalog): (i64, Option<&str>),
) -> String {
    let extension = extension();
    let observed = ObservedExtension { edited, ..observed(&extension, rules.clone(), sets) };
    let choice = Choice { catalog: catalog.map(str::to_owned), ..choice(version) };
    let newest = olm_revision::generate::newest(sets);
    match decide(&observed, Ok(choice), &ExtensionMemory::default(), newest) {
        Decision::Restore { to: Some(to), .. } => format!("restore {}", to.name),
        Decision::Restore { to: None, .. } => "restore nothing".to_owned(),
        Decision::Hold { .. } => "hold".to_owned(),
        Decision::Install { .. } => "install".to_owned(),
        other => format!("{other:?}"),
    }
}

// docs/design/approvals.md#automatic-rollback
#[test]
fn failed_rollout_restores_the_installed_revision_once() {
    let (rules, none) = (rollback(), ExtensionRules::default());
    let paused = ExtensionRules { paused: true, ..rollback() };
    let windows = "0 0 29 2 * 1m".parse().unwrap();
    let approval = ApprovalRules { mode: ApprovalMode::Manual, windows, ..ApprovalRules::default() };
    let held = ExtensionRules { approval, ..rollback() };
    let retried = ExtensionRules { retry_requested_at: Some("1".to_owned()), ..rollback() };
    let (first, second) = (set(1, "Active", true), set(2, "Active", false));
    let failed = [first.clone(), late(second.clone())];
    let restored = [first.clone(), late(second.clone()), restoring(3, false)];
    let late_again = [first.clone(), late(second.clone()), late(restoring(3, false))];
    let stays = [restoring(3, true)];
    let mut fourth = (*late(second.clone())).clone();
    fourth.metadata.name = Some("demo-4".to_owned());
    fourth.spec.as_mut().unwrap().revision = 4;
    let second_attempt = [restoring(3, true), Arc::new(fourth)];
    for (what, rules, sets, edited, target, expected) in [
        ("not asked for", &none, &failed[..], false, (2, None), "install"),
        ("first attempt", &rules, &failed, false, (2, None), "restore demo-1"),
        ("rolling out", &rules, &[first.clone(), second.clone()], false, (2, None), "install"),
        ("edited", &rules, &failed, true, (2, None), "install"),
        ("another target", &rules, &failed, false, (3, Some("main")), "install"),
        ("paused", &paused, &failed, false, (2, None), "hold"),
        ("approval and window", &held, &failed, false, (2, None), "restore demo-1"),
        ("no predecessor", &rules, &[late(second)], false, (2, None), "restore nothing"),
        ("restored", &rules, &restored, false, (1, None), "hold"),
        ("restored one fails", &rules, &late_again, false, (1, None), "hold"),
        ("restored and edited", &rules, &late_again, true, (1, None), "install"),
        ("restored, without catalog", &rules, &stays, false, (1, None), "hold"),
        ("restored, desired", &rules, &stays, false, (1, Some("main")), "install"),
        ("restored, retry", &retried, &stays, false, (2, Some("main")), "install"),
        ("not asked for any more", &none, &stays, false, (1, None), "install"),
        ("second attempt fails", &retried, &second_attempt, false, (2, None), "restore demo-3"),
    ] {
        assert_eq!(decided(rules, sets, edited, target), expected, "{what}");
    }
}

#[test]
fn rolled_back_content_is_reapplied_only_after_retry_request() {
    let newest = Revision::of(&restoring(3, true));
    let archived = Revision { is_active: false, ..newest.clone() };
    let other = Revision::of(&set(3, "Active", true));
    let retried = ExtensionRules { retry_requested_at: Some("1".to_owned()), ..rollback() };
    let off = ExtensionRules::default();
    for (what, newest, rules, digest, expected) in [
        ("same digest", Some(&newest), &rollback(), "sha256:2", true),
        ("other digest", Some(&newest), &rollback(), "sha256:3", false),
        ("retry", Some(&newest), &retried, "sha256:2", false),
        ("not asked for any more", Some(&newest), &off, "sha256:2", false),
        ("archived", Some(&archived), &rollback(), "sha256:2", false),
        ("not restored", Some(&other), &rollback(), "sha256:2", false),
        ("nothing", None, &rollback(), "sha256:2", false),
    ] {
        assert_eq!(refuses(newest, rules, digest), expected, "{what}");
    }
}

#[test]
fn messages_name_rollback_and_next_step() {
    let text = "Revision demo-2 of bundle demo.v2.0.0 version 2.0.0 has exceeded its progress deadline and was rolled back: \
                revision demo-3 restores bundle demo.v1.0.0 version 1.0.0; to try it again, set annotation \
                ext.olm.operatorframework.io/retry-requested-at to a new value";
    let of = |set: Arc<ClusterObjectSet>, rules: &ExtensionRules| restored(&Revision::of(&set), rules);
    assert_eq!(of(restoring(3, true), &rollback()).as_deref(), Some(text));
    assert_eq!(of(late(restoring(3, true)), &rollback()).as_deref(), Some(text));
    let failing = format!("{text}; last status: late");
    assert_eq!(of(late(restoring(3, false)), &rollback()), Some(failing));
    assert_eq!(of(restoring(3, true), &ExtensionRules::default()), None);
    assert_eq!(of(set(3, "Active", true), &rollback()), None);

    let to = Revision::of(&set(1, "Active", true));
    assert_eq!(forbidden("demo", &to, &[]), None);
    let risks = ["a is deleted".to_owned(), "b: scope: x".to_owned()];
    let why = "not rolled back to bundle demo.v1.0.0 version 1.0.0: a is deleted; b: scope: x; back up your data, then run \
               `olm rollback demo --accept-risk`";
    assert_eq!(forbidden("demo", &to, &risks).as_deref(), Some(why));
}
