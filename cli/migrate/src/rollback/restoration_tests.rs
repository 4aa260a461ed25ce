use super::super::super::apply::fixture::{id, plan};
use super::super::super::plan::model::Reasoned;
use super::*;

fn csv(uid: &str) -> Value {
    json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "metadata": {"name": "lamp.v1.0.0", "namespace": "ns", "uid": uid}})
}

fn saved() -> Value {
    let owner = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
        "name": "lamp.v1.0.0", "uid": "old"});
    json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "lamp", "namespace": "ns", "uid": "u", "resourceVersion": "1",
            "labels": {"olm.owner": "lamp.v1.0.0", "app": "lamp"}, "annotations": {"a": "b"},
            "ownerReferences": [owner]},
        "spec": {"replicas": 1, "template": {"a": 1}}, "status": {"replicas": 1}})
}

/// Object after its adoption, with changes of an administrator.
fn adopted() -> Value {
    let revision = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "name": "lamp-1",
        "uid": "r", "controller": true});
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "o"});
    let mut live = saved();
    live["metadata"]["resourceVersion"] = json!("9");
    live["metadata"]["labels"] =
        json!({"app": "lamp", "team": "light", "olm.operatorframework.io/owner-name": "lamp"});
    live["metadata"]["annotations"] = json!({"note": "new", "olm.operatorframework.io/revision": "1"});
    live["metadata"]["finalizers"] = json!(["example.com/f"]);
    live["metadata"]["ownerReferences"] = json!([revision, other]);
    live["spec"] = json!({"replicas": 3, "template": {"a": 2}});
    live
}

#[test]
fn recreated_object_is_recognized_by_content_without_controller() {
    let webhook = |bundle: &str| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "lamp-abc", "uid": bundle}, "webhooks": [{"name": "a", "clientConfig":
                {"service": {"namespace": "ns", "name": "lamp"}, "caBundle": bundle}}]})
    };
    // Base64 of "old", and of both CAs.
    let (saved, recreated) = (webhook("b2xk"), webhook("b2xkCm5ldw=="));
    assert!(is_recreated(&saved, &recreated));
    assert!(!is_recreated(&recreated, &saved));
    let mut controlled = recreated.clone();
    controlled["metadata"]["ownerReferences"] = adopted()["metadata"]["ownerReferences"].clone();
    assert!(!is_recreated(&saved, &controlled));
    let mut changed = recreated;
    changed["webhooks"][0]["name"] = json!("b");
    assert!(!is_recreated(&saved, &changed));
    assert!(!is_recreated(&csv("old"), &csv("new")));
}

#[test]
fn subscription_returns_paused_and_installed() {
    let saved = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
        "metadata": {"name": "lamp", "namespace": "ns", "uid": "u"},
        "spec": {"name": "lamp", "source": "hub", "config": {"env": [{"name": "A", "value": "b"}]}},
        "status": {"installedCSV": "lamp.v1.0.0", "currentCSV": "lamp.v2.0.0", "state": "UpgradePending",
            "installPlanRef": {"name": "install-2"}, "lastUpdated": "2026-01-01T00:00:00Z"}});
    let created = paused(&saved);
    assert_eq!(created["spec"]["config"], saved["spec"]["config"]);
    assert_eq!((&created["spec"]["source"], created.get("status")), (&json!(PAUSED), None));
    let status = installed(&saved, "lamp.v1.0.0");
    let expected = json!({"installedCSV": "lamp.v1.0.0", "currentCSV": "lamp.v1.0.0", "state": "AtLatestKnown",
        "installPlanRef": {"name": "install-2"}, "lastUpdated": "2026-01-01T00:00:00Z"});
    assert_eq!(status, expected);
    assert!(has_installed(&status, "lamp.v1.0.0"));
    assert!(!has_installed(&saved["status"], "lamp.v1.0.0") && !has_installed(&Value::Null, "lamp.v1.0.0"));
}

#[test]
fn second_owner_of_protected_crd_is_removed() {
    let revision = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "name": "lamp-1", "uid": "r"});
    let keeper = json!({"apiVersion": "v1", "kind": "Namespace", "name": "kube-system", "uid": "k"});
    let crd = |owners: &[&Value]| {
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "lamps.example.com", "labels": {}, "ownerReferences": owners}})
    };
    let owners = |saved: &Value| {
        released(&plan(), saved, &crd(&[&revision, &keeper]), false)["metadata"]["ownerReferences"].clone()
    };
    assert_eq!(owners(&crd(&[])), json!([]));
    assert_eq!(owners(&crd(&[&keeper])), json!([keeper]));
}

#[test]
fn rollback_removes_only_olm_v1_metadata_from_adopted_object() {
    let released = released(&plan(), &saved(), &adopted(), true);
    let mut expected = adopted();
    expected["metadata"]["labels"] = json!({"app": "lamp", "team": "light"});
    expected["metadata"]["annotations"] = json!({"note": "new"});
    expected["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "o"}]);
    assert_eq!(released, expected);
    assert_eq!(super::released(&plan(), &saved(), &released, false), released);
    assert!(is_restored(&plan(), &saved()));
}

#[test]
fn object_that_stays_keeps_its_content_and_is_not_created_again() {
    let saved = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "old"}, "metadata": {"name": "settings",
        "namespace": "ns", "labels": {"olm.managed": "true", "olm.owner": "lamp.v1.0.0"}}});
    let live = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "new"}, "metadata": {"name": "settings",
        "namespace": "ns", "labels": {"team": "light"}}});
    let mut expected = live.clone();
    expected["metadata"]["labels"]["olm.managed"] = json!("true");
    assert_eq!(released(&plan(), &saved, &live, false), expected);
    assert!(!is_restored(&plan(), &saved));
    let patch = owning(&saved, &expected, Some(&csv("new"))).unwrap();
    assert_eq!(patch["metadata"]["labels"], json!({"olm.owner": "lamp.v1.0.0"}));
}

#[test]
fn certificate_of_classic_olm_is_restored() {
    let saved = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "data": {"tls.crt": "b2xk", "olmCAKey": "b2xk"},
        "metadata": {"name": "lamp-service-cert", "namespace": "ns", "annotations": {"olmcahash": "h"}}});
    let owner = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": "lamp", "uid": "e"});
    let live = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "data": {"tls.crt": "bmV3", "ca.crt": "bmV3"},
        "metadata": {"name": "lamp-service-cert", "namespace": "ns", "ownerReferences": [owner],
            "labels": {"ext.olm.operatorframework.io/webhook-certificate": "serving", "team": "light"},
            "annotations": {"ext.olm.operatorframework.io/certificate-since": "now"}}});
    assert_eq!(released(&plan(), &saved, &live, true), live, "operator-controller would write it again");
    let released = released(&plan(), &saved, &live, false);
    assert_eq!(released["data"], saved["data"]);
    let expected = json!({"name": "lamp-service-cert", "namespace": "ns", "ownerReferences": [],
        "labels": {"team": "light"}, "annotations": {"olmcahash": "h"}});
    assert_eq!(released["metadata"], expected);
    assert!(is_restored(&plan(), &saved));
}

#[test]
fn rolled_back_webhook_configuration_trusts_old_and_new_ca() {
    let kind = "ValidatingWebhookConfiguration";
    let mut plan = plan();
    let object = id("admissionregistration.k8s.io/v1", kind, "", "lamp-abc");
    plan.removed.push(Reasoned { object, reason: String::new() });
    let webhook = |bundle: &str, path: &str| {
        json!({"kind": kind, "metadata": {"name": "lamp-abc"}, "webhooks": [{"name": path,
            "clientConfig": {"service": {"namespace": "ns", "name": "lamp"}, "caBundle": bundle}}]})
    };
    let (saved, live) = (webhook("b2xk", "a"), webhook("bmV3", "b"));
    let restored = released(&plan, &saved, &live, true);
    assert_eq!(restored, webhook("b2xkCm5ldw==", "a"));
    assert_eq!(released(&plan, &saved, &restored, false), restored);
}

#[test]
fn grant_is_compared_without_defaults() {
    let grant = json!({"kind": "RoleBinding", "metadata": {"name": "a"}, "subjects": [{"kind": "User", "name": "ann"}]});
    let mut live = grant.clone();
    live["metadata"]["uid"] = json!("u");
    live["subjects"][0]["apiGroup"] = json!("rbac.authorization.k8s.io");
    assert!(is_same_content(&grant, &live));
    live["subjects"][0]["name"] = json!("eve");
    assert!(!is_same_content(&grant, &live));
}

#[test]
fn owner_gets_the_uid_of_the_restored_csv() {
    let mut live = saved();
    live["metadata"]["labels"] = json!({"app": "lamp"});
    live["metadata"]["ownerReferences"] = json!([]);
    live["metadata"]["resourceVersion"] = json!("9");
    assert_eq!(owning(&saved(), &live, None), None);
    let patch = owning(&saved(), &live, Some(&csv("new"))).unwrap();
    assert_eq!(patch["metadata"]["labels"], json!({"olm.owner": "lamp.v1.0.0"}));
    assert_eq!(patch["metadata"]["resourceVersion"], "9");
    assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "new");
    live["metadata"]["labels"] = saved()["metadata"]["labels"].clone();
    live["metadata"]["ownerReferences"] = patch["metadata"]["ownerReferences"].clone();
    assert_eq!(owning(&saved(), &live, Some(&csv("new"))), None);
}

#[test]
fn new_object_has_only_the_label_that_classic_olm_reads() {
    let mut managed = saved();
    managed["metadata"]["labels"][MANAGED] = json!("true");
    assert_eq!(unowned(&managed)["metadata"]["labels"], json!({"app": "lamp", "olm.managed": "true"}));
    assert!(unowned(&managed).get("status").is_none());
}
