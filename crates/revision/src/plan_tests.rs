use super::*;
use crate::fields::{classic_managers, superseded_managers};

const OURS: &str = "uid-2";

fn owner() -> Owner {
    Owner { name: "demo-2".to_owned(), uid: OURS.to_owned(), number: 2, extension: "demo".to_owned() }
}

fn reference(kind: &str, name: &str, uid: &str, controller: bool) -> Value {
    json!({"apiVersion": "olm.operatorframework.io/v1", "kind": kind, "name": name, "uid": uid, "controller": controller})
}

fn set(name: &str, uid: &str) -> Value {
    reference("ClusterObjectSet", name, uid, true)
}

fn foreign() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "uid-rs", "controller": true})
}

fn actual(owners: &[Value], revision: Option<&str>) -> Value {
    let annotations = json!(revision.map(|n| json!({"olm.operatorframework.io/revision": n})));
    json!({"metadata": {"ownerReferences": owners, "annotations": annotations}})
}

fn decide(actual: &Value, protection: &str) -> ObjectPlan {
    let siblings = ["uid-1".to_owned(), "uid-3".to_owned()];
    let protection = CollisionProtection::from(protection.to_owned());
    plan(Some(actual), &owner(), &siblings, &protection)
}

fn deleting(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
    object
}

fn labeled(mut object: Value, name: &str) -> Value {
    object["metadata"]["labels"] = json!({"olm.operatorframework.io/owner-name": name});
    object
}

fn managed(object: Value, name: &str) -> Value {
    let mut object = labeled(object, name);
    object["metadata"]["labels"][labels::MANAGED_BY] = json!(labels::MANAGED_BY_OLM);
    object
}

/// Rows: actual object, then the plan under Prevent, IfNoController and None (docs/design/apply.md#decision-table,
/// docs/design/apply.md#collision-protection).
fn compare(rows: &[(&str, Value, [ObjectPlan; 3])]) {
    for (name, object, plans) in rows {
        for (protection, expected) in ["Prevent", "IfNoController", "None"].into_iter().zip(plans) {
            assert_eq!(decide(object, protection), *expected, "{name}, {protection}");
        }
    }
}

#[test]
fn plan_of_unowned_object_follows_the_decision_table() {
    use ObjectPlan::*;
    let plain_owner = reference("ClusterObjectSet", "demo-1", "uid-1", false);
    compare(&[
        ("no owner, never ours", actual(&[], None), [Collide, Adopt, Adopt]),
        (
            "no controller, never ours",
            actual(std::slice::from_ref(&plain_owner), None),
            [Collide, Adopt, Adopt],
        ),
        (
            "no controller, annotated, another owner that may be deleted",
            actual(&[reference("ClusterObjectSet", "demo-0", "uid-0", false)], Some("1")),
            [Collide; 3],
        ),
        (
            "no controller, annotated, only an active sibling",
            labeled(actual(&[plain_owner], Some("1")), "demo"),
            [Adopt; 3],
        ),
        ("no owner, annotated, being deleted", deleting(actual(&[], Some("1"))), [Collide; 3]),
        ("no owner, annotated, of this extension", labeled(actual(&[], Some("1")), "demo"), [Adopt; 3]),
        (
            "no owner, annotated, of another extension",
            labeled(actual(&[], Some("1")), "x"),
            [Collide, Adopt, Adopt],
        ),
        ("no owner, only labels of this extension", managed(actual(&[], None), "demo"), [Adopt; 3]),
        ("no owner, only labels of another one", managed(actual(&[], None), "x"), [Collide, Adopt, Adopt]),
        ("no owner, only one label", labeled(actual(&[], None), "demo"), [Collide, Adopt, Adopt]),
        (
            "no owner, only labels of this extension, being deleted",
            deleting(managed(actual(&[], None), "demo")),
            [AwaitDeletion; 3],
        ),
        ("no owner, corrupt number", labeled(actual(&[], Some("one")), "demo"), [Adopt; 3]),
    ]);
    assert_eq!(plan(None, &owner(), &[], &CollisionProtection::Prevent), Create);
}

#[test]
fn plan_of_controlled_object_follows_the_decision_table() {
    use ObjectPlan::*;
    compare(&[
        ("foreign controller", actual(&[foreign()], None), [Collide, Collide, Adopt]),
        (
            "controlled by a Helm-era extension",
            actual(&[reference("ClusterExtension", "demo", "uid-ce", true)], None),
            [Collide, Collide, Adopt],
        ),
        (
            "revision of another extension",
            actual(&[set("other-1", "uid-o")], Some("1")),
            [Collide, Collide, Adopt],
        ),
        ("older sibling", actual(&[set("demo-1", "uid-1")], Some("1")), [Adopt; 3]),
        ("sibling, no number", actual(&[set("demo-1", "uid-1")], None), [Adopt; 3]),
        ("sibling, corrupt number", actual(&[set("demo-1", "uid-1")], Some("one")), [Adopt; 3]),
        ("newer sibling", actual(&[set("demo-3", "uid-3")], Some("3")), [Leave; 3]),
        ("newer sibling, altered number", actual(&[set("demo-3", "uid-3")], Some("1")), [Leave; 3]),
        ("newer sibling, number removed", actual(&[set("demo-3", "uid-3")], None), [Leave; 3]),
        ("sibling with our number", actual(&[set("other", "uid-3")], Some("2")), [Collide; 3]),
        ("older sibling, altered number", actual(&[set("demo-1", "uid-1")], Some("99")), [Adopt; 3]),
        ("sibling without number in its name", actual(&[set("other", "uid-3")], Some("3")), [Leave; 3]),
        ("ours", actual(&[set("demo-2", OURS)], Some("2")), [Repair; 3]),
        ("ours, number altered", actual(&[set("demo-2", OURS)], Some("7")), [Repair; 3]),
        ("ours, corrupt number", actual(&[set("demo-2", OURS)], Some("two")), [Repair; 3]),
        ("ours, being deleted", deleting(actual(&[set("demo-2", OURS)], Some("2"))), [AwaitDeletion; 3]),
        (
            "former revision of this extension, being deleted",
            deleting(labeled(actual(&[set("demo-2", "uid-old")], Some("2")), "demo")),
            [AwaitDeletion; 3],
        ),
        (
            "revision of another extension, being deleted",
            deleting(labeled(actual(&[set("other-1", "uid-o")], Some("1")), "other")),
            [Collide, Collide, Adopt],
        ),
        ("our name, other UID", actual(&[set("demo-2", "uid-old")], Some("2")), [Collide, Collide, Adopt]),
    ]);
}

#[test]
fn retained_crd_is_adopted_by_its_extension() {
    let kept = |change: fn(&mut Value)| {
        let mut object = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"annotations": {"ext.olm.operatorframework.io/kept-for": "demo"}}});
        change(&mut object);
        decide(&object, "Prevent")
    };
    assert_eq!(kept(|_| ()), ObjectPlan::Adopt);
    assert_eq!(kept(|object| object["metadata"]["ownerReferences"] = json!([keeper()])), ObjectPlan::Adopt);
    assert_eq!(
        kept(|object| object["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z")),
        ObjectPlan::AwaitDeletion
    );
    let others: [fn(&mut Value); 5] = [
        |object| {
            object["metadata"]["annotations"] = json!({"ext.olm.operatorframework.io/kept-for": "other"})
        },
        |object| object["metadata"]["annotations"] = json!({}),
        |object| object["kind"] = json!("ConfigMap"),
        |object| object["metadata"]["ownerReferences"] = json!([foreign()]),
        |object| {
            let going = reference("ClusterObjectSet", "demo-0", "uid-0", false);
            object["metadata"]["ownerReferences"] = json!([going]);
        },
    ];
    for change in others {
        assert_eq!(kept(change), ObjectPlan::Collide);
    }
}

fn crd(owners: &[Value]) -> Value {
    let mut object = actual(owners, Some("1"));
    object["apiVersion"] = json!("apiextensions.k8s.io/v1");
    object["kind"] = json!("CustomResourceDefinition");
    object
}

fn keeper() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "name": "kube-system", "uid": "uid-keeper"})
}

#[test]
fn terminating_crd_is_awaited_under_any_controller() {
    for (owners, expected) in [
        (vec![], ObjectPlan::AwaitDeletion),
        (vec![foreign()], ObjectPlan::AwaitDeletion),
        (vec![set("demo-0", "uid-0")], ObjectPlan::AwaitDeletion),
        (vec![set("other-1", "uid-o")], ObjectPlan::AwaitDeletion),
        (vec![set("demo-2", OURS)], ObjectPlan::AwaitDeletion),
        (vec![set("demo-1", "uid-1")], ObjectPlan::Adopt),
    ] {
        let mut object = crd(&owners);
        object["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
        for protection in ["Prevent", "None"] {
            assert_eq!(decide(&object, protection), expected, "{owners:?}, {protection}");
        }
    }
}

#[test]
fn retained_crd_has_kube_system_owner_only_if_desired() {
    let owners_of = |object: &Value| object["metadata"]["ownerReferences"].as_array().unwrap().clone();
    let plain = crd(&[owner().reference()]);
    let mut kept = plain.clone();
    add_keeper(&mut kept, "uid-keeper");
    assert_eq!(owners_of(&kept), [owner().reference(), keeper()]);
    for (desired, live) in [(&kept, &plain), (&plain, &kept), (&kept, &kept), (&plain, &plain)] {
        assert_eq!(owners_of(&check_body(desired, live, &owner())), owners_of(desired));
    }
    let mut other = plain.clone();
    other["kind"] = json!("ConfigMap");
    add_keeper(&mut other, "uid-keeper");
    assert_eq!(owners_of(&other), [owner().reference()]);
}

#[test]
fn crd_that_lost_its_controller_is_recognized() {
    let left = |change: fn(&mut Value)| {
        let mut object = crd(&[keeper()]);
        object["metadata"]["annotations"]["olm.operatorframework.io/revision"] = json!("2");
        object["metadata"]["labels"] = json!({"olm.operatorframework.io/owner-name": "demo"});
        change(&mut object);
        is_left_behind(&object, &owner())
    };
    assert!(left(|_| ()));
    assert!(left(|object| {
        object["metadata"]["annotations"]["olm.operatorframework.io/revision"] = json!("99");
    }));
    assert!(left(|object| {
        let mut reference = owner().reference();
        reference["controller"] = json!(false);
        object["metadata"]["ownerReferences"] = json!([reference]);
    }));
    let others: [fn(&mut Value); 4] = [
        |object| object["metadata"]["ownerReferences"] = json!([]),
        |object| object["metadata"]["ownerReferences"] = json!([keeper(), foreign()]),
        |object| object["metadata"]["labels"] = json!({"olm.operatorframework.io/owner-name": "other"}),
        |object| object["metadata"]["annotations"]["olm.operatorframework.io/revision"] = json!("1"),
    ];
    for change in others {
        assert!(!left(change));
    }
}

#[test]
fn desired_object_has_labels_annotation_and_owner() {
    let content = ContentObject {
        object: json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labels": {"a": "b"}}}),
        numbers: crate::canonical::Numbers::Exact,
        collision_protection: CollisionProtection::Prevent,
    };
    assert_eq!(
        desired(&content, &owner())["metadata"],
        json!({
            "name": "c",
            "labels": {"a": "b", "app.kubernetes.io/managed-by": "olm.operatorframework.io",
                       "olm.operatorframework.io/owner-name": "demo"},
            "annotations": {"olm.operatorframework.io/revision": "2"},
            "ownerReferences": [owner().reference()]})
    );
}

#[test]
fn apply_keeps_other_owners_without_control() {
    let extension = reference("ClusterExtension", "demo", "uid-ce", true);
    let mut object = actual(&[set("demo-1", "uid-1"), extension, foreign()], None);
    object["metadata"]["resourceVersion"] = json!("7");
    let body = write_body(&json!({"metadata": {}}), &object, &owner());
    let mut foreign = foreign();
    foreign["controller"] = json!(false);
    assert_eq!(
        body["metadata"],
        json!({"resourceVersion": "7", "ownerReferences": [
            reference("ClusterObjectSet", "demo-1", "uid-1", false), foreign, owner().reference()]})
    );
    assert_eq!(superseded_managers(&object, &owner()), ["olm.operatorframework.io", "operator-controller"]);
    assert_eq!(superseded_managers(&body, &owner()), ["olm.operatorframework.io"]);
}

// docs/design/migration.md#fields-of-classic-olm
#[test]
fn classic_managers_are_superseded_at_handover_unless_pods_would_restart() {
    let siblings = ["uid-1".to_owned()];
    let with_template = |owners: &[Value], template: Value| {
        let mut object = actual(owners, Some("1"));
        object["spec"] = json!({"replicas": 1, "template": template});
        object
    };
    let (old, new) = (json!({"image": "v1"}), json!({"image": "v2"}));
    let sibling = [set("demo-1", "uid-1")];
    let all = &["olm", "catalog", "olm.install"][..];
    for (case, actual, outcome, expected) in [
        ("no pod template", actual(&sibling, Some("1")), actual(&sibling, Some("2")), all),
        ("new pod template", with_template(&sibling, old.clone()), with_template(&sibling, new.clone()), all),
        (
            "same pod template",
            with_template(&sibling, old.clone()),
            with_template(&sibling, old.clone()),
            &[],
        ),
        ("no controller", with_template(&[], old.clone()), with_template(&[], new), &[]),
        ("this revision", actual(&[set("demo-2", OURS)], Some("2")), json!({}), &[]),
        ("foreign controller", actual(&[foreign()], None), json!({}), &[]),
    ] {
        assert_eq!(classic_managers(&actual, &outcome, &siblings), expected, "{case}");
    }
}
