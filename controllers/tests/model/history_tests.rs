use serde_json::json;

use super::*;

const NEW: u64 = 100;

/// Revision `number` of the extension, with ConfigMap `a`.
fn revision(number: i64, change: Value) -> Value {
    let mut object = json!({
        "kind": "ClusterObjectSet",
        "metadata": {"name": format!("xm1-{number}"), "uid": format!("r{number}"), "annotations": {
            "olm.operatorframework.io/bundle-version": "1.0.0"}},
        "spec": {"lifecycleState": "Active", "revision": number, "phases": [
            {"name": "configuration", "objects": [{"ref": {"key": number.to_string()}}]}]},
    });
    merge(&mut object, change);
    object
}

/// ConfigMap `a` with this controller.
fn config(controller: Option<i64>, change: Value) -> Value {
    let owners: Vec<Value> = controller
        .iter()
        .map(|number| json!({"kind": "ClusterObjectSet", "uid": format!("r{number}"), "controller": true}))
        .collect();
    let mut object = json!({
        "kind": "ConfigMap",
        "metadata": {"name": "a", "namespace": "xm1", "uid": "c1", "ownerReferences": owners,
            "annotations": {"olm.operatorframework.io/revision": "1"}},
    });
    merge(&mut object, change);
    object
}

fn merge(target: &mut Value, change: Value) {
    match change {
        Value::Object(members) => {
            members.into_iter().for_each(|(key, value)| merge(&mut target[&key], value))
        }
        other => *target = other,
    }
}

fn event(version: u64, object: Value) -> Event {
    Event { version, is_deletion: false, object: Arc::new(object) }
}

fn gone(version: u64, object: Value) -> Event {
    Event { is_deletion: true, ..event(version, object) }
}

/// These changes, in any order, after revision 1 has adopted ConfigMap `a`. All revisions list the ConfigMap.
fn recorded(events: Vec<Event>) -> History {
    let mut history = History::default();
    history.record(event(1, json!({"kind": "Namespace", "metadata": {"name": "xm1", "uid": "n"}})));
    history.record(event(2, revision(1, json!({}))));
    history.record(event(3, config(Some(1), json!({}))));
    let lists = BTreeSet::from([Key::new("ConfigMap", "xm1", "a")]);
    let revisions: BTreeSet<String> = events
        .iter()
        .map(|event| text(&event.object, "/metadata/uid").to_owned())
        .chain(["r1".to_owned()])
        .collect();
    events.into_iter().rev().for_each(|event| history.record(event));
    revisions.iter().for_each(|uid| history.learn(uid, lists.clone()));
    history
}

/// Faults of these changes.
fn after(test_changes: &TestChanges, events: Vec<Event>) -> Vec<String> {
    recorded(events).judge(test_changes, |_, _| true)
}

fn faults(events: Vec<Event>) -> Vec<String> {
    after(&TestChanges::default(), events)
}

#[test]
fn model_reports_no_fault_for_regular_upgrade() {
    let events = vec![
        event(10, revision(2, json!({}))),
        event(
            11,
            config(Some(2), json!({"metadata": {"annotations": {"olm.operatorframework.io/revision": "2"}}})),
        ),
        event(12, revision(1, json!({"spec": {"lifecycleState": "Archived"}}))),
        event(13, revision(2, json!({"metadata": {"deletionTimestamp": "now"}}))),
        gone(14, config(Some(2), json!({}))),
    ];
    assert_eq!(faults(events), [""; 0]);
}

#[test]
fn object_with_two_controller_owners_is_a_fault() {
    let owner = |uid: &str| json!({"uid": uid, "controller": true});
    let twice = config(None, json!({"metadata": {"ownerReferences": [owner("r1"), owner("r2")]}}));
    assert_eq!(faults(vec![event(NEW, twice)]), ["at 100: ConfigMap xm1/a: has two controllers"]);
}

#[test]
fn deletion_of_a_listed_object_is_a_fault() {
    let deleted = || gone(NEW, config(Some(1), json!({})));
    let wrong = ["at 100: ConfigMap xm1/a: was deleted though xm1-1 lists it"];
    assert_eq!(faults(vec![deleted()]), wrong);
    // The controlling revision is archived, but a revision that existed before lists the object.
    let archived = || event(20, revision(1, json!({"spec": {"lifecycleState": "Archived"}})));
    assert_eq!(faults(vec![archived(), deleted()]), [""; 0]);
    let early = event(10, revision(2, json!({})));
    let wrong = ["at 100: ConfigMap xm1/a: was deleted though xm1-2 lists it"];
    assert_eq!(faults(vec![early.clone(), archived(), deleted()]), wrong);
    // That revision is about to be archived, because a newer one has rolled out.
    let rolled_out = json!({"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}});
    let newest = event(15, revision(3, rolled_out));
    let mut history = recorded(vec![early, newest, archived(), deleted()]);
    history.learn("r3", BTreeSet::new());
    assert_eq!(history.judge(&TestChanges::default(), |_, _| true), [""; 0]);
    // The second revision was created too late to prevent the deletion.
    let late = event(30, revision(2, json!({})));
    assert_eq!(faults(vec![archived(), late.clone(), deleted()]), [""; 0]);
    // Nor does it prevent the deletion by adopting an object that is being deleted.
    let leaving = |number: i64| {
        let marks = json!({"deletionTimestamp": "now", "annotations": {REVISION: number.to_string()}});
        config(Some(number), json!({"metadata": marks}))
    };
    let taken = vec![archived(), event(25, leaving(1)), late, event(40, leaving(2)), gone(NEW, leaving(2))];
    assert_eq!(faults(taken), [""; 0]);
    let wrong = ["at 25: ConfigMap xm1/a: was deleted though xm1-1 lists it"];
    assert_eq!(faults(vec![event(25, leaving(1)), gone(NEW, leaving(1))]), wrong);
    let by_test = TestChanges { deleted: HashSet::from(["c1".to_owned()]), ..TestChanges::default() };
    assert_eq!(after(&by_test, vec![deleted()]), [""; 0]);
    let namespace =
        json!({"kind": "Namespace", "metadata": {"name": "xm1", "uid": "n", "deletionTimestamp": "now"}});
    assert_eq!(faults(vec![event(50, namespace), deleted()]), [""; 0]);
}

#[test]
fn lost_owner_reference_is_a_fault_unless_the_test_removed_it() {
    let loose = || config(None, json!({}));
    assert_eq!(faults(vec![event(NEW, loose())]), ["at 100: ConfigMap xm1/a: lost its owner"]);
    let by_test = TestChanges { writes: HashSet::from([NEW]), ..TestChanges::default() };
    assert_eq!(after(&by_test, vec![event(NEW, loose())]), [""; 0]);
    let leaving = event(20, revision(1, json!({"metadata": {"deletionTimestamp": "now"}})));
    assert_eq!(faults(vec![leaving, event(NEW, loose())]), [""; 0]);
    let by_test = TestChanges { writes: HashSet::from([50]), ..TestChanges::default() };
    let wrong = ["at 100: ConfigMap xm1/a: had no owner and was deleted"];
    assert_eq!(after(&by_test, vec![event(50, loose()), gone(NEW, loose())]), wrong);
}

#[test]
fn control_by_an_older_active_revision_is_a_fault() {
    let second = || event(10, revision(2, json!({})));
    let of_second = json!({"metadata": {"annotations": {REVISION: "2"}}});
    let taken = || event(20, config(Some(2), of_second.clone()));
    let wrong = ["at 100: ConfigMap xm1/a: went over to a revision that is not newer"];
    assert_eq!(faults(vec![second(), taken(), event(NEW, config(Some(1), json!({})))]), wrong);
    let archived = event(30, revision(2, json!({"spec": {"lifecycleState": "Archived"}})));
    assert_eq!(faults(vec![second(), taken(), archived, event(NEW, config(Some(1), json!({})))]), [""; 0]);
}

#[test]
fn change_of_a_foreign_object_is_a_fault() {
    let foreign =
        json!({"kind": "ConfigMap", "metadata": {"name": "b", "namespace": "xm1"}, "data": {"a": "b"}});
    let test_changes = TestChanges {
        foreign: BTreeMap::from([("f".to_owned(), foreign.clone())]),
        writes: HashSet::from([10]),
        ..TestChanges::default()
    };
    let is = |change| {
        let mut object = foreign.clone();
        merge(&mut object, json!({"metadata": {"uid": "f"}}));
        merge(&mut object, change);
        object
    };
    let rows = [
        (event(NEW, is(json!({}))), None),
        (gone(NEW, is(json!({}))), Some("had no owner and was deleted")),
        (event(NEW, is(json!({"data": {"a": "c"}}))), Some("is foreign, and .data.a is \"c\", not \"b\"")),
        (
            event(NEW, is(json!({"metadata": {"labels": {"olm.operatorframework.io/owner-name": "xm1"}}}))),
            Some("is foreign and got olm.operatorframework.io/owner-name"),
        ),
        (
            event(NEW, is(json!({"metadata": {"ownerReferences": [{"uid": "r1"}]}}))),
            Some("is foreign and got another owner"),
        ),
    ];
    for (change, expected) in rows {
        let expected = expected.map(|text| match text {
            "had no owner and was deleted" => {
                "at 100: ConfigMap xm1/b: is foreign and was deleted".to_owned()
            }
            text => format!("at 100: ConfigMap xm1/b: {text}"),
        });
        let found = after(&test_changes, vec![event(10, is(json!({}))), change]);
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn loss_of_user_metadata_is_a_fault() {
    let marked = config(Some(1), json!({"metadata": {"labels": {MARK: "kept"}}}));
    let test_changes = TestChanges { writes: HashSet::from([10]), ..TestChanges::default() };
    let wrong = ["at 100: ConfigMap xm1/a: lost what the user put on it"];
    let events = vec![event(10, marked.clone()), event(NEW, config(Some(1), json!({})))];
    assert_eq!(after(&test_changes, events), wrong);
    assert_eq!(after(&test_changes, vec![event(10, marked.clone()), event(NEW, marked)]), [""; 0]);
}

#[test]
fn identical_or_unjustified_revision_is_a_fault() {
    let same = revision(2, json!({"spec": {"phases": revision(1, json!({}))["spec"]["phases"]}}));
    let wrong = ["at 100: ClusterObjectSet /xm1-2: has the content of number 1"];
    assert_eq!(faults(vec![event(NEW, same.clone())]), wrong);
    let archived = event(20, revision(1, json!({"spec": {"lifecycleState": "Archived"}})));
    assert_eq!(faults(vec![archived, event(NEW, same)]), [""; 0]);
    let mut history = History::default();
    history.record(event(
        1,
        revision(1, json!({"status": {"conditions": [{"type": "Succeeded", "status": "True"}]}})),
    ));
    history.judge(&TestChanges::default(), |_, _| true);
    let version = json!({"metadata": {"annotations": {"olm.operatorframework.io/bundle-version": "1.2.0"}}});
    history.record(event(NEW, revision(2, version)));
    assert_eq!(
        history.judge(&TestChanges::default(), |installed, version| (installed, version) != (Some(0), 3)),
        ["at 100: ClusterObjectSet /xm1-2: 1.2.0 must not follow Some(\"1.0.0\")"]
    );
}

#[test]
fn archived_revisions_beyond_the_newest_five_are_outdated() {
    let outdated = |archived: i64| {
        let mut history = History::default();
        for number in 1..=7 {
            let state = if number <= archived { "Archived" } else { "Active" };
            let version = u64::try_from(number).unwrap();
            history.record(event(version, revision(number, json!({"spec": {"lifecycleState": state}}))));
        }
        history.record(event(NEW, revision(8, json!({}))));
        let archived = json!({"spec": {"lifecycleState": "Archived"}});
        (1..=7).for_each(|number| history.record(event(NEW + 1, revision(number, archived.clone()))));
        let before = history.outdated();
        history.record(gone(NEW + 2, revision(1, archived)));
        (before, history.outdated())
    };
    assert_eq!(outdated(0), (0, 0));
    assert_eq!(outdated(1), (1, 0));
    assert_eq!(outdated(7), (2, 1));
}

#[test]
fn change_of_a_paused_object_is_a_fault() {
    let paused = || revision(1, json!({"metadata": {"annotations": {PAUSED: "true"}}}));
    let mut history = History::default();
    history.record(event(2, paused()));
    history.record(event(3, config(Some(1), json!({}))));
    assert_eq!(history.judge(&TestChanges::default(), |_, _| true), [""; 0]);
    history.record(event(NEW, config(Some(1), json!({"status": {"a": 1}}))));
    assert_eq!(history.judge(&TestChanges::default(), |_, _| true), [""; 0]);
    history.record(event(NEW + 1, config(Some(1), json!({"data": {"a": "b"}}))));
    let wrong = ["at 101: ConfigMap xm1/a: was changed while its revision is paused"];
    assert_eq!(history.judge(&TestChanges::default(), |_, _| true), wrong);
}

/// A CRD of the first revision.
fn crd() -> Value {
    json!({"kind": "CustomResourceDefinition", "metadata": {"name": "widgets.xm1", "uid": "d",
        "ownerReferences": [{"kind": "ClusterObjectSet", "uid": "r1", "controller": true}]}})
}

/// A custom resource of [`crd`], which `is_over` or in use.
fn custom_resource(is_over: bool) -> TestChanges {
    let made = "2026-01-01T00:00:00Z".parse().ok();
    let instance = Instance { crd: "d".to_owned(), since: 5, made, is_over };
    TestChanges { instances: BTreeMap::from([("i".to_owned(), instance)]), ..TestChanges::default() }
}

fn with(mut object: Value, change: Value) -> Value {
    merge(&mut object, change);
    object
}

fn policy(policy: &str) -> Value {
    json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/uninstall-policy": policy}}})
}

fn archived(change: Value) -> Value {
    with(revision(1, json!({"spec": {"lifecycleState": "Archived"}})), change)
}

fn leaving(change: Value) -> Value {
    with(revision(1, json!({"metadata": {"deletionTimestamp": "now"}})), change)
}

#[test]
fn deletion_of_a_crd_in_use_is_a_fault_by_policy() {
    let archived_and_leaving =
        |change| with(archived(json!({"metadata": {"deletionTimestamp": "now"}})), change);
    let foreground = |change| with(change, json!({"metadata": {"finalizers": ["foregroundDeletion"]}}));
    let upgrade = Some("was deleted by an upgrade while in use");
    let kept = Some("was to be kept and was deleted");
    let rows = [
        (archived(json!({})), false, upgrade),
        (archived(json!({})), true, None),
        (archived(policy("Delete")), false, None),
        (archived(policy("KeepCRDs")), false, upgrade),
        (leaving(json!({})), false, None),
        (leaving(policy("KeepCRDs")), true, kept),
        (archived_and_leaving(policy("KeepCRDs")), true, None),
        (archived_and_leaving(policy("KeepCRDs")), false, kept),
        (leaving(policy("BlockIfInUse")), false, Some("was deleted while in use")),
        (leaving(policy("BlockIfInUse")), true, None),
        (leaving(json!({"metadata": {"finalizers": ["foregroundDeletion"]}})), false, None),
        (leaving(foreground(policy("KeepCRDs"))), false, kept),
    ];
    for (state, is_over, expected) in rows {
        let events = vec![event(4, crd()), event(20, state.clone()), gone(NEW, crd())];
        let expected = expected.map(|text| format!("at 100: CustomResourceDefinition /widgets.xm1: {text}"));
        assert_eq!(
            after(&custom_resource(is_over), events),
            expected.into_iter().collect::<Vec<_>>(),
            "{state}"
        );
    }
}

/// Extension that controls [`controlled`].
fn extension(change: Value) -> Value {
    with(json!({"kind": "ClusterExtension", "metadata": {"name": "xm1", "uid": "x"}}), change)
}

/// Revision whose deletion was requested.
fn controlled() -> Value {
    let owners = json!([{"uid": "x", "controller": true}]);
    revision(1, json!({"metadata": {"deletionTimestamp": "now", "ownerReferences": owners}}))
}

#[test]
fn policy_counts_if_it_is_that_of_the_request_or_a_later_one() {
    for (annotated, faults) in [(15, 1), (25, 0)] {
        let events = vec![
            event(4, crd()),
            event(5, extension(json!({}))),
            event(annotated, extension(policy("KeepCRDs"))),
            event(20, controlled()),
            gone(NEW, crd()),
        ];
        assert_eq!(after(&custom_resource(true), events).len(), faults, "annotated at {annotated}");
    }
}

#[test]
fn policy_counts_that_was_read_before_everything_settled() {
    let mut history = History::default();
    let events = [
        event(4, crd()),
        event(5, extension(json!({}))),
        event(20, controlled()),
        event(25, extension(policy("KeepCRDs"))),
    ];
    events.into_iter().for_each(|event| history.record(event));
    assert_eq!(history.judge(&custom_resource(true), |_, _| true), [""; 0]);
    history.record(gone(NEW, crd()));
    assert_eq!(history.judge(&custom_resource(true), |_, _| true).len(), 1);
}

#[test]
fn deletion_of_a_crd_within_a_second_of_a_new_custom_resource_is_no_fault() {
    for (second, faults) in [(1, 0), (2, 1)] {
        let asked =
            with(crd(), json!({"metadata": {"deletionTimestamp": format!("2026-01-01T00:00:0{second}Z")}}));
        let events = vec![event(4, crd()), event(20, archived(json!({}))), gone(NEW, asked)];
        assert_eq!(after(&custom_resource(false), events).len(), faults, "made {second} s before");
    }
}

#[test]
fn model_accepts_revision_based_on_stale_succeeded_condition() {
    let succeeded = |number: i64, version: &str, since: &str| {
        let conditions = json!([{"type": "Succeeded", "status": "True", "lastTransitionTime": since}]);
        let annotations = json!({"olm.operatorframework.io/bundle-version": version});
        revision(
            number,
            json!({"metadata": {"annotations": annotations}, "status": {"conditions": conditions}}),
        )
    };
    let chosen = |made: &str| {
        let mut history = History::default();
        history.record(event(1, succeeded(1, VERSIONS[0].text, "2026-01-01T00:00:00Z")));
        history.record(event(2, succeeded(2, VERSIONS[2].text, "2026-01-01T01:00:00Z")));
        let third = json!({"metadata": {"creationTimestamp": made,
            "annotations": {"olm.operatorframework.io/bundle-version": VERSIONS[1].text}}});
        history.record(event(3, revision(3, third)));
        history.judge(&TestChanges::default(), |installed, chosen| {
            installed.is_none_or(|installed| installed <= chosen)
        })
    };
    assert_eq!(chosen("2026-01-01T01:00:02Z"), Vec::<String>::new());
    let late = chosen("2026-01-01T01:00:10Z");
    assert!(matches!(&late[..], [fault] if fault.contains("must not follow")), "{late:?}");
}

#[test]
fn model_accepts_revision_based_on_stale_archival() {
    let chosen = |rests: bool| {
        let status = json!({"conditions": [{"type": "Succeeded", "status": "True"}]});
        let metadata = json!({"annotations": {"olm.operatorframework.io/bundle-version": VERSIONS[0].text}});
        let first = |state: &str| {
            let spec = json!({"revision": 1, "lifecycleState": state});
            revision(1, json!({"metadata": metadata, "status": status, "spec": spec}))
        };
        let follows = |installed: Option<usize>, _| installed == Some(0);
        let mut history = History::default();
        history.record(event(1, first("Active")));
        history.judge(&TestChanges::default(), follows);
        history.record(event(2, first("Archived")));
        if rests {
            history.judge(&TestChanges::default(), follows);
        }
        let metadata = json!({"annotations": {"olm.operatorframework.io/bundle-version": VERSIONS[1].text}});
        history.record(event(3, revision(2, json!({"metadata": metadata}))));
        history.judge(&TestChanges::default(), follows)
    };
    assert_eq!(chosen(false), Vec::<String>::new());
    let late = chosen(true);
    assert!(matches!(&late[..], [fault] if fault.contains("must not follow")), "{late:?}");
}

#[test]
fn model_accepts_adoption_of_recently_deleted_revision() {
    let chosen = |deleted: &str| {
        let succeeded = json!({"conditions": [{"type": "Succeeded", "status": "True"}]});
        let annotations = json!({"olm.operatorframework.io/bundle-version": VERSIONS[2].text});
        let metadata = json!({"deletionTimestamp": deleted, "annotations": annotations});
        let former = revision(1, json!({"metadata": metadata, "status": succeeded}));
        let annotations = json!({"olm.operatorframework.io/bundle-version": VERSIONS[3].text});
        let metadata =
            json!({"uid": "new", "creationTimestamp": "2026-01-01T01:00:00Z", "annotations": annotations});
        let mut history = History::default();
        history.record(event(1, former.clone()));
        history.record(gone(2, former));
        history.record(event(3, revision(1, json!({"metadata": metadata}))));
        history.judge(&TestChanges::default(), |installed, chosen| chosen == 2 || installed == Some(2))
    };
    assert_eq!(chosen("2026-01-01T00:59:30Z"), Vec::<String>::new());
    let late = chosen("2026-01-01T00:30:00Z");
    assert!(matches!(&late[..], [fault] if fault.contains("must not follow")), "{late:?}");
}
