//! The summary of named situations, and its invariants over all combinations of conditions.

use serde_json::{Value, json};

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
/// Generation of the object in all cases.
const CURRENT: Option<i64> = Some(2);
const SUMMARY: [&str; 3] = [types::READY, types::RECONCILING, types::STALLED];

/// Condition `Type=Status/Reason message`, with `@1` at the end of the reason if it is of the previous generation.
fn condition(text: &str) -> Condition {
    let (type_, rest) = text.split_once('=').unwrap();
    let (status, rest) = rest.split_once('/').unwrap();
    let (reason, message) = rest.split_once(' ').unwrap_or((rest, ""));
    let (reason, generation) =
        reason.strip_suffix("@1").map_or((reason, CURRENT), |reason| (reason, Some(1)));
    Condition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: crate::Time(NOW),
    }
}

fn lines(all: &[Condition]) -> Vec<String> {
    all.iter().map(|c| format!("{}={}/{} {}", c.type_, c.status, c.reason, c.message)).collect()
}

fn summarized<S: Summarized + Default + serde::Serialize>(
    conditions: &[Condition],
) -> (Vec<Condition>, Value) {
    let mut status = S::default();
    status.parts().0.extend_from_slice(conditions);
    update(&mut status, true, CURRENT, NOW);
    let with = serde_json::to_value(&status).unwrap();
    let all = status.parts().0.clone();
    update(&mut status, true, CURRENT, NOW);
    assert_eq!(serde_json::to_value(&status).unwrap(), with, "a second pass changes nothing");
    update(&mut status, false, CURRENT, NOW);
    let (kept, observed) = status.parts();
    assert_eq!((&kept[..], *observed), (conditions, None), "without the gate nothing remains");
    (all, with)
}

fn summarized_kind(kind: &str, conditions: &[Condition]) -> (Vec<Condition>, Value) {
    match kind {
        "ClusterCatalog" => summarized::<ClusterCatalogStatus>(conditions),
        "ClusterExtension" => summarized::<ClusterExtensionStatus>(conditions),
        _ => summarized::<ClusterObjectSetStatus>(conditions),
    }
}

/// Situation, kind, conditions, their summary, and the verdicts of kstatus (and Flux) and Argo CD.
type Case = (&'static str, &'static str, &'static [&'static str], &'static [&'static str], [&'static str; 2]);

const CASES: &[Case] = &[
    (
        "catalog is served",
        "ClusterCatalog",
        &["Progressing=True/Succeeded unpacked", "Serving=True/Available serving"],
        &["Ready=True/Available serving"],
        ["Current", "Healthy"],
    ),
    (
        "poll of a served catalog fails",
        "ClusterCatalog",
        &["Progressing=True/Retrying i/o timeout", "Serving=True/Available serving"],
        &["Ready=True/Available serving"],
        ["Current", "Healthy"],
    ),
    (
        "first pull of a catalog fails",
        "ClusterCatalog",
        &["Progressing=True/Retrying i/o timeout"],
        &["Ready=False/Retrying i/o timeout", "Reconciling=True/Retrying i/o timeout"],
        ["InProgress", "Progressing"],
    ),
    (
        "pull of an edited catalog fails",
        "ClusterCatalog",
        &["Progressing=True/Retrying i/o timeout", "Serving=True/Available@1 serving"],
        &["Ready=False/Retrying i/o timeout", "Reconciling=True/Retrying i/o timeout"],
        ["InProgress", "Progressing"],
    ),
    (
        "reference of a catalog is invalid",
        "ClusterCatalog",
        &["Progressing=False/Blocked terminal error", "Serving=True/Available@1 serving"],
        &["Ready=False/Blocked terminal error", "Stalled=True/Blocked terminal error"],
        ["Failed", "Degraded"],
    ),
    (
        "catalog is switched off",
        "ClusterCatalog",
        &["Progressing=True/Succeeded off", "Serving=False/UserSpecifiedUnavailable off"],
        &[],
        ["Current", "Healthy"],
    ),
    (
        "catalog is switched on, and its pull fails",
        "ClusterCatalog",
        &["Progressing=True/Retrying i/o timeout", "Serving=False/UserSpecifiedUnavailable@1 off"],
        &["Ready=False/Retrying i/o timeout", "Reconciling=True/Retrying i/o timeout"],
        ["InProgress", "Progressing"],
    ),
    (
        "signature of a catalog is rejected",
        "ClusterCatalog",
        &["Progressing=True/Retrying rejected", "Serving=False/Unavailable rejected"],
        &["Ready=False/Retrying rejected", "Reconciling=True/Retrying rejected"],
        ["InProgress", "Progressing"],
    ),
    (
        "extension is installed",
        "ClusterExtension",
        &[
            "Available=True/ProbesSucceeded ok",
            "Progressing=True/Succeeded done",
            "Installed=True/Succeeded in",
        ],
        &["Ready=True/ProbesSucceeded ok"],
        ["Current", "Healthy"],
    ),
    (
        "first revision rolls out",
        "ClusterExtension",
        &["Progressing=True/RollingOut rolling", "Installed=False/Absent none"],
        &["Ready=False/RollingOut rolling", "Reconciling=True/RollingOut rolling"],
        ["InProgress", "Progressing"],
    ),
    (
        "no bundle can be chosen",
        "ClusterExtension",
        &["Progressing=True/Retrying no bundles", "Installed=False/Failed none"],
        &["Ready=False/Retrying no bundles", "Reconciling=True/Retrying no bundles"],
        ["InProgress", "Progressing"],
    ),
    (
        "upgrade rolls out",
        "ClusterExtension",
        &[
            "Available=True/ProbesSucceeded ok",
            "Progressing=True/RollingOut rolling",
            "Installed=True/Succeeded in",
        ],
        &["Ready=False/RollingOut rolling", "Reconciling=True/RollingOut rolling"],
        ["InProgress", "Progressing"],
    ),
    (
        "installed extension degrades",
        "ClusterExtension",
        &[
            "Available=False/ProbeFailure Object x",
            "Progressing=True/RollingOut rolling",
            "Installed=True/Succeeded in",
        ],
        &["Ready=False/ProbeFailure Object x", "Reconciling=True/ProbeFailure Object x"],
        ["InProgress", "Progressing"],
    ),
    (
        "installed extension fails to apply an edit while it is degraded",
        "ClusterExtension",
        &[
            "Available=False/ProbeFailure@1 Object x",
            "Progressing=True/Retrying no bundles",
            "Installed=True/Succeeded in",
        ],
        &["Ready=False/Retrying no bundles", "Reconciling=True/Retrying no bundles"],
        ["InProgress", "Progressing"],
    ),
    (
        "configuration is invalid",
        "ClusterExtension",
        &[
            "Available=True/ProbesSucceeded@1 ok",
            "Progressing=False/InvalidConfiguration bad",
            "Installed=True/Succeeded in",
        ],
        &["Ready=False/InvalidConfiguration bad", "Stalled=True/InvalidConfiguration bad"],
        ["Failed", "Degraded"],
    ),
    (
        "progress deadline has passed",
        "ClusterExtension",
        &["Progressing=False/ProgressDeadlineExceeded late", "Installed=False/Absent none"],
        &["Ready=False/ProgressDeadlineExceeded late", "Stalled=True/ProgressDeadlineExceeded late"],
        ["Failed", "Degraded"],
    ),
    (
        "paused extension works",
        "ClusterExtension",
        &[
            "Available=True/ProbesSucceeded ok",
            "Progressing=True/Succeeded done",
            "Installed=True/Succeeded in",
            "Paused=True/Paused bundle x waits",
        ],
        &["Ready=True/ProbesSucceeded ok"],
        ["Current", "Healthy"],
    ),
    (
        "edit of a paused extension waits",
        "ClusterExtension",
        &[
            "Available=True/ProbesSucceeded@1 ok",
            "Progressing=True/Succeeded@1 done",
            "Installed=True/Succeeded@1 in",
            "Paused=True/Paused@1 what was changed waits",
        ],
        &["Ready=False/Paused what was changed waits", "Stalled=True/Paused what was changed waits"],
        ["Failed", "Suspended"],
    ),
    (
        "edit waits for an approval",
        "ClusterExtension",
        &[
            "Available=True/ProbesSucceeded@1 ok",
            "Progressing=True/Succeeded@1 done",
            "Installed=True/Succeeded@1 in",
            "UpgradeAvailable=True/Held bundle x waits",
        ],
        &["Ready=False/Held bundle x waits", "Stalled=True/Held bundle x waits"],
        ["Failed", "Degraded"],
    ),
    (
        "upgrade waits for an approval",
        "ClusterExtension",
        &[
            "Available=True/ProbesSucceeded ok",
            "Progressing=True/Succeeded done",
            "Installed=True/Succeeded in",
            "UpgradeAvailable=True/Held bundle x waits",
        ],
        &["Ready=True/ProbesSucceeded ok"],
        ["Current", "Healthy"],
    ),
    (
        "first installation of a paused extension waits",
        "ClusterExtension",
        &["Installed=False/Failed none", "Paused=True/Paused bundle x waits"],
        &["Ready=False/Paused bundle x waits", "Stalled=True/Paused bundle x waits"],
        ["Failed", "Suspended"],
    ),
    (
        "adopted extension has no revision conditions yet",
        "ClusterExtension",
        &["Installed=True/Succeeded in"],
        &[
            "Ready=False/Reconciling the state of this generation is not known yet",
            "Reconciling=True/Reconciling the state of this generation is not known yet",
        ],
        ["InProgress", "Progressing"],
    ),
    (
        "revision has rolled out",
        "ClusterObjectSet",
        &[
            "Progressing=True/Succeeded done",
            "Available=True/ProbesSucceeded ok",
            "Succeeded=True/Succeeded once",
        ],
        &["Ready=True/ProbesSucceeded ok"],
        ["Current", "Healthy"],
    ),
    (
        "revision rolls out",
        "ClusterObjectSet",
        &["Progressing=True/RollingOut rolling", "Available=False/ProbeFailure Object x"],
        &["Ready=False/ProbeFailure Object x", "Reconciling=True/ProbeFailure Object x"],
        ["InProgress", "Progressing"],
    ),
    (
        "revision collides",
        "ClusterObjectSet",
        &["Progressing=True/Retrying collision", "Available=Unknown/Reconciling collision"],
        &["Ready=False/Retrying collision", "Reconciling=True/Retrying collision"],
        ["InProgress", "Progressing"],
    ),
    (
        "content of a revision has changed",
        "ClusterObjectSet",
        &[
            "Progressing=False/Blocked changed",
            "Available=True/ProbesSucceeded ok",
            "Succeeded=True/Succeeded once",
        ],
        &["Ready=False/Blocked changed", "Stalled=True/Blocked changed"],
        ["Failed", "Degraded"],
    ),
    (
        "revision is archived",
        "ClusterObjectSet",
        &[
            "Progressing=False/Archived archived",
            "Available=Unknown/Archived archived",
            "Succeeded=True/Succeeded once",
        ],
        &[],
        ["Current", "Healthy"],
    ),
];

// docs/design/additions.md#status-summary
#[test]
fn summary_follows_from_conditions() {
    let mut golden = Vec::new();
    for (title, kind, conditions, expected, [kstatus, argocd]) in CASES {
        let conditions: Vec<Condition> = conditions.iter().map(|text| condition(text)).collect();
        let (all, status) = summarized_kind(kind, &conditions);
        assert_eq!(all[..conditions.len()], conditions, "{title}: other conditions are unchanged");
        assert_eq!(lines(&all[conditions.len()..]), *expected, "{title}");
        assert!(all[conditions.len()..].iter().all(|found| found.observed_generation == CURRENT));
        assert_eq!(status["observedGeneration"], json!(CURRENT), "{title}");
        golden.push(json!({"title": title, "kstatus": kstatus, "argocd": argocd, "object": {
            "apiVersion": "olm.operatorframework.io/v1", "kind": kind,
            "metadata": {"name": "example", "generation": CURRENT}, "status": status}}));
    }
    // tests/gitops evaluates these objects with the libraries of Argo CD and Flux.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/gitops/cases.json");
    let text = serde_json::to_string_pretty(&golden).unwrap() + "\n";
    if std::env::var_os("OLM_GOLDEN_WRITE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    similar_asserts::assert_eq!(computed: text, golden: golden, "set OLM_GOLDEN_WRITE=1 to update {path}");
}

/// All values of a condition, absent included.
fn values(type_: &str, states: &[&str]) -> Vec<Option<Condition>> {
    let both = |state: &&str| [format!("{type_}={state} m"), format!("{type_}={state}@1 m")];
    let present = states.iter().flat_map(both).map(|text| Some(condition(&text)));
    std::iter::once(None).chain(present).collect()
}

// docs/design/additions.md#status-summary
#[test]
fn at_most_one_of_three_conditions_is_true() {
    let progressing = [
        "True/Succeeded",
        "True/Retrying",
        "True/RollingOut",
        "False/Blocked",
        "False/InvalidConfiguration",
        "False/ProgressDeadlineExceeded",
        "False/Archived",
    ];
    let health = [
        "True/Available",
        "True/ProbesSucceeded",
        "False/Unavailable",
        "False/UserSpecifiedUnavailable",
        "False/ProbeFailure",
        "False/RollingOut",
        "Unknown/Reconciling",
        "Unknown/Archived",
    ];
    let installed = ["True/Succeeded", "False/Absent", "False/Failed"];
    let mut count = 0;
    for (kind, type_) in [
        ("ClusterCatalog", types::SERVING),
        ("ClusterExtension", types::AVAILABLE),
        ("ClusterObjectSet", types::AVAILABLE),
    ] {
        for progressing in &values(types::PROGRESSING, &progressing) {
            for health in &values(type_, &health) {
                for installed in &values(types::INSTALLED, &installed) {
                    for paused in &values(types::PAUSED, &["True/Paused"]) {
                        check(kind, [progressing, health, installed, paused]);
                        count += 1;
                    }
                }
            }
        }
    }
    assert!(count > 10_000, "{count}");
}

fn check(kind: &str, given: [&Option<Condition>; 4]) {
    let conditions: Vec<Condition> = given.into_iter().flatten().cloned().collect();
    let (all, _) = summarized_kind(kind, &conditions);
    let shown = lines(&all);
    let is = |found: &Option<Condition>, status: &str| {
        found.as_ref().is_some_and(|one| one.status == status && one.observed_generation == CURRENT)
    };
    let has_reason = |found: &Option<Condition>, reason: &str| {
        found.as_ref().is_some_and(|one| one.reason == reason && one.observed_generation == CURRENT)
    };
    let [progressing, health, installed, paused] = given;
    let is_true: Vec<&str> = SUMMARY.into_iter().filter(|type_| conditions::is_true(&all, type_)).collect();
    if has_reason(progressing, "Archived")
        || has_reason(health, "Archived")
        || has_reason(health, "UserSpecifiedUnavailable")
    {
        assert_eq!(all, conditions, "{kind} {shown:?}");
        return;
    }
    assert_eq!(is_true.len(), 1, "{kind} {shown:?}");
    assert!(conditions::find(&all, types::READY).is_some(), "{kind} {shown:?}");
    let works = is(health, "True")
        && (kind == "ClusterCatalog" || has_reason(progressing, "Succeeded"))
        && (kind != "ClusterExtension" || is(installed, "True"));
    let is_stopped = is(progressing, "False");
    let expected = match (works && !is_stopped, is_stopped || paused.is_some()) {
        (true, _) => types::READY,
        (false, true) => types::STALLED,
        (false, false) => types::RECONCILING,
    };
    assert_eq!(is_true, [expected], "{kind} {shown:?}");
}

#[test]
fn without_the_gate_conditions_of_other_writers_remain() {
    let mut status = ClusterCatalogStatus {
        conditions: vec![condition("Ready=True/Foreign x")],
        ..ClusterCatalogStatus::default()
    };
    let before = status.clone();
    update(&mut status, false, CURRENT, NOW);
    assert_eq!(status, before);
}
