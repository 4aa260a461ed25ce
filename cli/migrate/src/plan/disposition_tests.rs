//! Tests of the disposition: each kind of object, and each way in which classic OLM marks its objects.

use olm_plan::fields::FieldChange;
use olm_plan::objects::ChangeKind;
use serde_json::json;

use super::*;

const CSV: Owner<'static> = Owner { namespace: "ops", name: "lamp.v1.0.0", uid: "u-csv" };

fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "uid": format!("u-{name}")}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn with(mut object: Value, field: &str, value: Value) -> Value {
    object["metadata"][field] = value;
    object
}

fn by_label(object: Value) -> Value {
    with(object, "labels", json!({"olm.owner": "lamp.v1.0.0", "olm.owner.namespace": "ops"}))
}

fn by_reference(object: Value) -> Value {
    let reference = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "name": "lamp.v1.0.0", "uid": "u-csv", "controller": false});
    with(object, "ownerReferences", json!([reference]))
}

#[test]
fn objects_of_classic_olm_are_found_by_reference_and_label() {
    let role = || object("rbac.authorization.k8s.io/v1", "Role", "ops", "r");
    let condition = json!([{"apiVersion": "operators.coreos.com/v2", "kind": "OperatorCondition", "name": "lamp.v1.0.0",
        "uid": "u-oc", "controller": true}]);
    let labels = |owner: &str, namespace: &str, copied: &str| json!({"olm.owner": owner, "olm.owner.namespace": namespace, "olm.copiedFrom": copied});
    for (object, expected) in [
        (role(), false),
        (by_reference(role()), true),
        (by_label(role()), true),
        (with(role(), "ownerReferences", condition), true),
        (with(role(), "labels", labels("lamp.v1.0.0", "shop", "ops")), true),
        (with(role(), "labels", labels("lamp.v1.0.0", "shop", "other")), false),
        (with(role(), "labels", labels("lamp.v1.0.0", "shop", "shop")), false),
        (with(role(), "labels", labels("lamp.v2.0.0", "ops", "")), false),
    ] {
        assert_eq!(CSV.owns(&object), expected, "{object}");
    }
    let copy = |name: &str, from: &str| {
        let copy = object("operators.coreos.com/v1alpha1", "ClusterServiceVersion", "shop", name);
        CSV.is_copied_to(&with(copy, "labels", json!({"olm.copiedFrom": from})))
    };
    assert!(copy("lamp.v1.0.0", "ops") && !copy("lamp.v1.0.0", "shop") && !copy("shade.v1.0.0", "ops"));
}

#[test]
fn migration_plan_removes_or_retains_object_by_kind_and_owner() {
    let rbac = |kind: &str, name: &str| object("rbac.authorization.k8s.io/v1", kind, "ops", name);
    let classic = |kind: &str| object("operators.coreos.com/v1", kind, "ops", "x");
    let certificate =
        with(object("v1", "Secret", "ops", "d-service-cert"), "annotations", json!({"olmcahash": "0"}));
    let token = |account: &str| {
        let annotations = json!({"kubernetes.io/service-account.name": account});
        with(object("v1", "Secret", "ops", "token"), "annotations", annotations)
    };
    let condition =
        json!([{"apiVersion": "operators.coreos.com/v2", "kind": "OperatorCondition", "name": "x"}]);
    let webhook = object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "v-x7f2p");
    let accounts = BTreeSet::from([("ops", "lamp")]);
    for (object, is_removed, reason) in [
        (classic("ClusterServiceVersion"), true, "copy"),
        (classic("InstallPlan"), true, "record"),
        (classic("Operator"), true, "list of the components"),
        (classic("OperatorCondition"), false, "the pods have its name"),
        (
            with(rbac("Role", "x"), "ownerReferences", condition),
            false,
            "permissions on the OperatorCondition",
        ),
        (by_label(rbac("ClusterRole", "x")), true, "generated permissions: "),
        (by_reference(rbac("Role", "d-service-cert")), true, "generated permissions of a webhook"),
        (rbac("RoleBinding", "d-service-auth-reader"), true, "generated permissions of a webhook"),
        (by_reference(rbac("Role", "of-the-operator")), false, "not an object of the bundle"),
        (by_label(webhook), true, "the extension has its own"),
        (by_reference(certificate), false, "serving certificate"),
        (token("lamp"), false, "token of an adopted"),
        (token("other"), false, "not an object of the bundle"),
        (object("v1", "ServiceAccount", "ops", "default"), false, "exists in every namespace"),
        (by_reference(object("v1", "ConfigMap", "ops", "state")), false, "not an object of the bundle"),
    ] {
        let (found, why) = fate(&object, &accounts);
        assert!(found == is_removed && why.starts_with(reason), "{object}: {found} {why}");
    }
}

#[test]
fn objects_of_the_bundle_are_adopted_if_they_exist() {
    let deployment = object("apps/v1", "Deployment", "ops", "lamp");
    let account = object("v1", "ServiceAccount", "ops", "lamp");
    let role = by_label(object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "generated"));
    let rendered = [deployment.clone(), account.clone()];
    let running = by_label(deployment.clone());
    let live = BTreeMap::from([(ObjectName::of(&running), running.clone())]);
    let found = dispose(&rendered, &live, &[running.clone(), role.clone(), role.clone()]).unwrap();
    assert_eq!(found.adopted, [ObjectId::of(&deployment)]);
    assert_eq!(found.created, [ObjectId { uid: String::new(), ..ObjectId::of(&account) }]);
    assert_eq!(
        found.removed.iter().map(|removed| &removed.object).collect::<Vec<_>>(),
        [&ObjectId::of(&role)]
    );
    assert_eq!(found.left, []);
}

#[test]
fn object_of_another_controller_is_a_collision() {
    let deployment = object("apps/v1", "Deployment", "ops", "lamp");
    let owned = |api_version: &str, kind: &str| {
        let reference =
            json!([{"apiVersion": api_version, "kind": kind, "name": "x-1", "uid": "u", "controller": true}]);
        let running = with(deployment.clone(), "ownerReferences", reference);
        dispose(
            std::slice::from_ref(&deployment),
            &BTreeMap::from([(ObjectName::of(&running), running)]),
            &[],
        )
    };
    assert!(owned("operators.coreos.com/v1alpha1", "ClusterServiceVersion").is_ok());
    let collision = owned("olm.operatorframework.io/v1", "ClusterObjectSet").unwrap_err();
    assert_eq!(collision, ["Deployment ops/lamp is controlled by ClusterObjectSet x-1"]);
}

#[test]
fn changed_pod_template_is_a_restart_with_its_cause() {
    let deployment = object("apps/v1", "Deployment", "ops", "lamp");
    let name = ObjectName::of(&deployment);
    let live = BTreeMap::from([(name.clone(), deployment)]);
    let reason = |paths: &[&str]| {
        let field =
            |path: &&str| FieldChange { path: (*path).to_owned(), old: None, new: None, secret: false };
        let fields = paths.iter().map(field).collect();
        let change =
            ObjectChange { change: ChangeKind::Changed, object: name.clone(), fields, notes: Vec::new() };
        restarts(&[change], &live).first().map(|restart| (restart.fields.len(), restart.reason.clone()))
    };
    let namespaces = "spec.template.metadata.annotations[\"olm.targetNamespaces\"]";
    for (paths, expected) in [
        (&["spec.replicas", "metadata.labels.a"][..], None),
        (&["spec.templates"], None),
        (&[namespaces], Some((1, "the list of watched namespaces"))),
        (&["spec.template.spec.volumes[webhook-cert].secret.secretName"], Some((1, "the certificates"))),
        (
            &["spec.replicas", namespaces, "spec.template.spec.containers[m].image"],
            Some((2, "the bundle has")),
        ),
    ] {
        let found = reason(paths);
        let is_expected = match (&found, expected) {
            (Some((count, why)), Some((expected, start))) => *count == expected && why.starts_with(start),
            (found, expected) => found.is_none() && expected.is_none(),
        };
        assert!(is_expected, "{paths:?}: {found:?}");
    }
}

#[test]
fn bindings_of_a_serving_certificate_follow_from_its_secret() {
    let secret = object("v1", "Secret", "ops", "d-service-cert");
    assert_eq!(delegation(&secret), None);
    let secret = with(secret, "annotations", json!({"olmcahash": "0"}));
    let expected = ("d-service-auth-reader".to_owned(), "d-service-system:auth-delegator".to_owned());
    assert_eq!(delegation(&secret), Some(expected));
}
