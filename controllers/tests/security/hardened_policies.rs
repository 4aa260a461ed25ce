//! Policies of `hardened.yaml`, evaluated by the API server (docs/design/operations.md#hardened-rights).

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use olm_control_plane::eventually;
use serde_json::{Value, json};

use crate::fixture::documents;
use crate::policies::Cluster;

const LABEL: &str = "ext.olm.operatorframework.io/aggregate-to-operator-controller";
const CONTROLLER: &str = "system:serviceaccount:olmv1-system:operator-controller-controller-manager";
const POLICIES: [&str; 2] = ["operator-controller-aggregation", "operator-controller-webhooks"];

/// A cluster with the roles and policies of `hardened.yaml`. The aggregation controller of Kubernetes does not run, so
/// the content role gets the shipped rules here.
async fn start() -> Cluster {
    let cluster = Cluster::start().await;
    let all = documents("hardened.yaml");
    for object in &all {
        let kind = object["kind"].as_str().unwrap();
        let name = object["metadata"]["name"].as_str().unwrap();
        if kind.starts_with("ClusterRole") || POLICIES.contains(&name) {
            cluster.apply(object).await;
        }
    }
    let shipped =
        all.iter().find(|one| one["metadata"]["name"] == "operator-controller-content-common").unwrap();
    let roles: Api<ClusterRole> = Api::all(cluster.plane.client());
    let rules = Patch::Merge(json!({"rules": shipped["rules"]}));
    roles.patch("operator-controller-content-role", &PatchParams::default(), &rules).await.unwrap();
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn only_holders_of_escalate_extend_the_rights_of_operator_controller() {
    let cluster = start().await;
    let label = |value: Value| Patch::Merge(json!({"metadata": {"labels": {LABEL: value}}}));
    let controller: Api<ClusterRole> = Api::all(cluster.client_of(CONTROLLER, &[]).await);
    let own: ClusterRole = serde_json::from_value(json!({"metadata": {"name": "own"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]})).unwrap();
    eventually("the rights are active", async || controller.create(&PostParams::default(), &own).await.ok())
        .await;
    let params = PatchParams::default();
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let refused = async || controller.patch("own", &dry_run, &label(json!("true"))).await.err();
    let error = eventually("the policy is active", refused).await.to_string();
    let expected = format!("{CONTROLLER} needs verb escalate on clusterroles");
    assert!(error.contains(&expected), "{error}");
    let mut labeled = own.clone();
    labeled.metadata.name = Some("labeled".to_owned());
    labeled.metadata.labels = Some([(LABEL.to_owned(), "true".to_owned())].into());
    let error = controller.create(&PostParams::default(), &labeled).await.unwrap_err().to_string();
    assert!(error.contains(&expected), "{error}");
    // A role without the label, and an administrator.
    let note = Patch::Merge(json!({"metadata": {"labels": {"note": "mine"}}}));
    controller.patch("own", &params, &note).await.unwrap();
    let admin: Api<ClusterRole> = Api::all(cluster.plane.client());
    admin.patch("own", &params, &label(json!("true"))).await.unwrap();
    let rule =
        Patch::Merge(json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]}));
    let error = controller.patch("own", &params, &rule).await.unwrap_err().to_string();
    assert!(error.contains(&expected), "{error}");
    // It takes the label away, and writes what does not change the rules.
    let note = Patch::Merge(json!({"metadata": {"annotations": {"note": "mine"}}}));
    controller.patch("own", &params, &note).await.unwrap();
    controller.patch("own", &params, &label(Value::Null)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_on_secrets_of_the_system_namespace_is_denied() {
    let cluster = start().await;
    let kind = "ValidatingWebhookConfiguration";
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
    let controller = cluster.client_of(CONTROLLER, &[]).await;
    let [controller, admin] =
        [controller, cluster.plane.client()].map(|client| Api::all_with(client, &resource));
    let configuration = |group: &str, resource: &str, selector: Value| -> DynamicObject {
        let rule = json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]});
        let mut webhook = json!({"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "rules": [rule], "clientConfig": {"service": {"name": "a", "namespace": "b"}}});
        if !selector.is_null() {
            webhook["namespaceSelector"] = selector;
        }
        serde_json::from_value(json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": "w"}, "webhooks": [webhook]}))
        .unwrap()
    };
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let secrets = configuration("", "secrets", Value::Null);
    eventually("the policy is active", async || {
        let error = controller.create(&dry_run, &secrets).await.err()?;
        error.to_string().contains("excludes the namespace olmv1-system").then_some(())
    })
    .await;
    let names = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": operator, "values": values}]});
    for (group, resource, selector, is_allowed) in [
        ("", "*", Value::Null, false),
        ("*", "secrets", Value::Null, false),
        ("", "secrets", json!({"matchLabels": {"a": "b"}}), false),
        ("", "secrets", names("In", &["apps", "olmv1-system"]), false),
        ("", "secrets", names("NotIn", &["apps"]), false),
        ("", "secrets", names("In", &["apps"]), true),
        ("", "secrets", names("NotIn", &["olmv1-system"]), true),
        ("", "secrets", json!({"matchLabels": {"kubernetes.io/metadata.name": "apps"}}), true),
        ("", "pods", Value::Null, true),
        ("example.com", "*", Value::Null, true),
    ] {
        let created = controller.create(&dry_run, &configuration(group, resource, selector.clone())).await;
        assert_eq!(created.is_ok(), is_allowed, "{group}/{resource} {selector}: {created:?}");
    }
    admin.create(&dry_run, &secrets).await.unwrap();
}
