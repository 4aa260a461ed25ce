//! Policies of `hardened.yaml`, evaluated by the API server (docs/design/operations.md#hardened-rights).

use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use olm_control_plane::eventually;
use serde_json::{Value, json};

use crate::fixture::documents;
use crate::policies::Cluster;

const LABEL: &str = "ext.olm.operatorframework.io/aggregate-to-operator-controller";
const CONTROLLER: &str = "system:serviceaccount:olmv1-system:operator-controller-controller-manager";
pub(crate) const SYSTEM: &str = "olmv1-system";
const POLICIES: [&str; 3] =
    ["operator-controller-aggregation", "operator-controller-exceptions", "operator-controller-limits"];
/// CA bundle in Base64.
pub(crate) const CA: &str = "Y2E=";

/// A cluster with the roles and policies of `hardened.yaml`. The aggregation controller of Kubernetes does not run, so
/// the content role gets the shipped rules here.
pub(crate) async fn start() -> Cluster {
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

/// A cluster in which operator-controller has the rights of `cluster-admin`, so that only the policies refuse.
pub(crate) async fn start_with_all_rights() -> Cluster {
    let cluster = start().await;
    let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": CONTROLLER});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "everything"}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}});
    cluster.apply(&binding).await;
    for name in ["apps", "kube-green"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        cluster.apply(&namespace).await;
    }
    cluster
}

/// Client for dry runs of one user.
pub(crate) struct DryRun {
    pub(crate) client: Client,
    pub(crate) admin: Client,
}

impl DryRun {
    pub(crate) async fn of(cluster: &Cluster) -> Self {
        Self { client: cluster.client_of(CONTROLLER, &[]).await, admin: cluster.plane.client() }
    }

    pub(crate) fn api(&self, client: &Client, object: &Value) -> Api<DynamicObject> {
        let typed: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let gvk = GroupVersionKind::try_from(typed.types.unwrap()).unwrap();
        let resource = ApiResource::from_gvk(&gvk);
        match typed.metadata.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        }
    }

    /// `None` if the object could be created, else the reason of the policy.
    pub(crate) async fn create(&self, object: &Value) -> Option<String> {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let typed = serde_json::from_value(object.clone()).unwrap();
        denial(self.api(&self.client, object).create(&params, &typed).await)
    }

    /// As [`Self::create`], for a change of an object that an administrator has created.
    pub(crate) async fn patch(&self, object: &Value, patch: &Value) -> Option<String> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let params = PatchParams { dry_run: true, ..PatchParams::default() };
        denial(self.api(&self.client, object).patch(name, &params, &Patch::Merge(patch)).await)
    }

    pub(crate) async fn delete(&self, object: &Value) -> Option<String> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let params = DeleteParams { dry_run: true, ..DeleteParams::default() };
        denial(self.api(&self.client, object).delete(name, &params).await)
    }

    pub(crate) async fn given(&self, object: &Value) {
        let typed = serde_json::from_value(object.clone()).unwrap();
        self.api(&self.admin, object).create(&PostParams::default(), &typed).await.unwrap();
    }
}

fn denial<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> Option<String> {
    match result {
        Ok(_) => None,
        Err(kube::Error::Api(status)) if status.message.contains("denied request: ") => {
            Some(status.message.clone())
        }
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn object(api_version: &str, kind: &str, namespace: &str, name: &str, more: Value) -> Value {
    let mut object =
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    object
}

pub(crate) fn secret(namespace: &str, name: &str, kind: &str) -> Value {
    let mut secret = object("v1", "Secret", namespace, name, json!({"type": kind}));
    secret["metadata"]["annotations"] = json!({"kubernetes.io/service-account.name": "a"});
    if kind == "kubernetes.io/tls" {
        secret["data"] = json!({"tls.crt": "", "tls.key": ""});
    }
    secret
}

fn role_binding(namespace: &str, name: &str, role: &str) -> Value {
    let more = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}});
    object("rbac.authorization.k8s.io/v1", "RoleBinding", namespace, name, more)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_own_objects_are_written_in_namespaces_of_cluster_and_olm() {
    let cluster = start_with_all_rights().await;
    let run = DryRun::of(&cluster).await;
    let (token, content) = ("kubernetes.io/service-account-token", "olm.operatorframework.io/object-data");
    let pods = json!({"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "a", "image": "a", "securityContext": {"privileged": true}}]}}});
    let daemons = |namespace: &str| object("apps/v1", "DaemonSet", namespace, "d", json!({"spec": pods}));
    eventually("the policies are active", async || run.create(&secret("apps", "t", token)).await).await;
    eventually("the policies are active", async || run.create(&daemons("kube-system")).await).await;
    let reader = "extension-apiserver-authentication-reader";
    let map = |namespace: &str, name: &str| object("v1", "ConfigMap", namespace, name, json!({}));
    let lease = |name: &str| object("coordination.k8s.io/v1", "Lease", SYSTEM, name, json!({}));
    let role = |name: &str| object("rbac.authorization.k8s.io/v1", "Role", SYSTEM, name, json!({}));
    let there = "operator-controller may only write RoleBindings of aggregated APIs there";
    let own = "in the namespace of OLM, operator-controller may only write its own objects";
    for (object, expected) in [
        // Both policies refuse these.
        (secret("kube-system", "t", token), "denied request: "),
        (secret(SYSTEM, "olmv1-ca", token), "denied request: "),
        (secret(SYSTEM, "t", token), "denied request: "),
        (secret("apps", "t", token), "a token Secret needs an exception"),
        (secret("apps", "s", "Opaque"), ""),
        (daemons("kube-system"), there),
        (daemons("kube-public"), there),
        (daemons("kube-green"), "a name with prefix kube- needs an exception"),
        (daemons("apps"), ""),
        (role_binding("kube-system", "b", reader), ""),
        (role_binding("kube-system", "b", "extension-apiserver"), there),
        (role_binding("kube-public", "b", reader), there),
        (role_binding(SYSTEM, "b", reader), own),
        (secret(SYSTEM, "lamp-1-x", content), ""),
        (secret(SYSTEM, "olmv1-ca", "kubernetes.io/tls"), ""),
        (secret(SYSTEM, "sh.helm.release.v1.a.v1", "Opaque"), own),
        (secret(SYSTEM, "olm-migrate-ns.lamp", "ext.olm.operatorframework.io/migration"), own),
        (map(SYSTEM, "olm-registry-ca"), own),
        (lease("9c4404e7.operatorframework.io"), ""),
        (lease("catalogd-operator-lock"), own),
        (role("catalogd-pull-secrets"), ""),
        (role("other"), own),
    ] {
        let denied = run.create(&object).await.unwrap_or_default();
        assert!(denied.contains(expected) && denied.is_empty() == expected.is_empty(), "{object}: {denied}");
    }
    let parameters = map(SYSTEM, "operator-controller-exceptions");
    assert!(run.delete(&parameters).await.is_some_and(|denied| denied.contains(own)));
    let listed = json!({"data": {"namespaces": "kube-a,kube-green", "token-secrets": "apps/t"}});
    run.api(&run.admin, &parameters)
        .patch("operator-controller-exceptions", &PatchParams::default(), &Patch::Merge(&listed))
        .await
        .unwrap();
    for object in [secret("apps", "t", token), daemons("kube-green")] {
        let excepted = async || run.create(&object).await.is_none().then_some(());
        eventually("the exception is active", excepted).await;
    }
    assert!(run.create(&secret("apps", "u", token)).await.is_some());
    assert!(run.create(&secret("kube-system", "t", token)).await.is_some());
}

const KUBERNETES: &str = "a rule on an API of Kubernetes needs an exception";

/// Webhook configuration of a revision, with one rule.
pub(crate) fn webhooks(name: &str, (group, resource): (&str, &str), selector: &Value) -> Value {
    let rule = json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]});
    let mut webhook = json!({"name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [rule], "clientConfig": {"service": {"name": "a", "namespace": "b"}}});
    if !selector.is_null() {
        webhook["namespaceSelector"] = selector.clone();
    }
    let owner = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "name": "lamp-1",
        "uid": "u", "controller": true});
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name, "ownerReferences": [owner]}, "webhooks": [webhook]})
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_are_those_of_revisions_and_spare_kubernetes_and_olm() {
    let cluster = start_with_all_rights().await;
    let run = DryRun::of(&cluster).await;
    let any = Value::Null;
    let lamps = webhooks("w", ("example.com", "*"), &any);
    let mut unowned = lamps.clone();
    unowned["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    eventually("the policies are active", async || run.create(&unowned).await).await;
    let secrets = webhooks("excepted", ("", "secrets"), &any);
    eventually("the policies are active", async || run.create(&secrets).await).await;
    for (object, expected) in [
        (lamps.clone(), ""),
        (unowned.clone(), "a webhook configuration of no revision needs an exception"),
        // Both policies refuse it.
        (webhooks("w", ("*", "*/*"), &any), "webhooks: "),
        (webhooks("w", ("", "pods"), &any), KUBERNETES),
        (webhooks("w", ("apps", "deployments"), &any), KUBERNETES),
        (webhooks("w", ("rbac.authorization.k8s.io", "*"), &any), KUBERNETES),
        (webhooks("w", ("olm.operatorframework.io", "*"), &any), "may not write a rule on an API of OLM"),
        (webhooks("w", ("ext.olm.operatorframework.io", "*"), &any), "may not write a rule on an API of OLM"),
    ] {
        let denied = run.create(&object).await.unwrap_or_default();
        assert!(denied.contains(expected) && denied.is_empty() == expected.is_empty(), "{object}: {denied}");
    }
    webhooks_of_others_and_deleted_ones_are_not_changed(&run, &unowned).await;
    exception_allows_other_apis_but_no_secrets_of_olm(&run).await;
}

async fn webhooks_of_others_and_deleted_ones_are_not_changed(run: &DryRun, unowned: &Value) {
    run.given(unowned).await;
    assert!(
        run.delete(unowned).await.is_some() && run.patch(unowned, &json!({"webhooks": []})).await.is_some()
    );
    // A configuration that is being deleted is still called.
    let any = Value::Null;
    let mut deleted = webhooks("deleted", ("example.com", "*"), &any);
    deleted["metadata"]["finalizers"] = json!(["example.com/wait"]);
    run.given(&deleted).await;
    run.api(&run.admin, &deleted).delete("deleted", &DeleteParams::default()).await.unwrap();
    assert_eq!(run.patch(&deleted, &json!({"metadata": {"finalizers": []}})).await, None);
    let widened = json!({"webhooks": webhooks("deleted", ("", "pods"), &any)["webhooks"]});
    assert!(run.patch(&deleted, &widened).await.is_some_and(|denied| denied.contains(KUBERNETES)));
}

async fn exception_allows_other_apis_but_no_secrets_of_olm(run: &DryRun) {
    let any = Value::Null;
    let mut other = webhooks("excepted", ("example.com", "*"), &any);
    other["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    assert!(run.create(&other).await.is_some());
    let listed = json!({"data": {"webhooks": "other,excepted"}});
    let parameters = object("v1", "ConfigMap", SYSTEM, "operator-controller-exceptions", json!({}));
    run.api(&run.admin, &parameters)
        .patch("operator-controller-exceptions", &PatchParams::default(), &Patch::Merge(&listed))
        .await
        .unwrap();
    eventually("the exception is active", async || run.create(&other).await.is_none().then_some(())).await;
    let denied = run.create(&webhooks("excepted", ("*", "*"), &any)).await.unwrap_or_default();
    assert!(denied.contains("may not write a rule on all API groups"), "{denied}");
    let names = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": operator, "values": values}]});
    for (resource, selector, is_allowed) in [
        ("*", any.clone(), false),
        ("secrets", any.clone(), false),
        ("secrets/*", any.clone(), false),
        ("secrets", json!({"matchLabels": {"a": "b"}}), false),
        ("secrets", names("In", &["apps", SYSTEM]), false),
        ("secrets", names("NotIn", &["apps"]), false),
        ("secrets", names("In", &["apps"]), true),
        ("secrets", names("NotIn", &[SYSTEM]), true),
        ("secrets", json!({"matchLabels": {"kubernetes.io/metadata.name": "apps"}}), true),
        ("pods", any.clone(), true),
    ] {
        let denied = run.create(&webhooks("excepted", ("", resource), &selector)).await;
        assert_eq!(denied.is_none(), is_allowed, "{resource} {selector}: {denied:?}");
        let expected = "a rule on Secrets needs a namespaceSelector that excludes the namespace olmv1-system";
        assert!(denied.is_none_or(|denied| denied.contains(expected)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_the_webhook_of_catalogd_only_its_ca_bundle_changes() {
    let cluster = start_with_all_rights().await;
    let run = DryRun::of(&cluster).await;
    let name = "catalogd-mutating-webhook-configuration";
    let all = documents("hardened.yaml");
    let of_catalogd = |one: &&Value| one["metadata"]["name"] == name;
    let configuration = all.iter().find(of_catalogd).unwrap();
    run.given(configuration).await;
    let webhook = configuration["webhooks"][0].clone();
    let with = |change: &dyn Fn(&mut Value)| {
        let mut webhook = webhook.clone();
        change(&mut webhook);
        json!({"webhooks": [webhook]})
    };
    let bundle = with(&|webhook| webhook["clientConfig"]["caBundle"] = json!(CA));
    let rules = with(&|webhook| webhook["rules"][0]["apiGroups"] = json!(["example.com"]));
    let denied = eventually("the policy is active", async || run.patch(configuration, &rules).await).await;
    assert!(
        denied.contains("operator-controller may change only caBundle of catalogd's webhook"),
        "{denied}"
    );
    assert_eq!(run.patch(configuration, &bundle).await, None);
    for change in [
        with(&|webhook| webhook["clientConfig"]["service"]["namespace"] = json!("apps")),
        with(&|webhook| webhook["clientConfig"] = json!({"url": "https://example.com", "service": null})),
        with(&|webhook| webhook["failurePolicy"] = json!("Ignore")),
        with(&|webhook| webhook["objectSelector"] = json!({"matchLabels": {"a": "b"}})),
        with(&|webhook| webhook["matchConditions"] = json!([{"name": "never", "expression": "false"}])),
        json!({"webhooks": []}),
        json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "a", "uid": "u"}]}}),
    ] {
        assert!(run.patch(configuration, &change).await.is_some(), "{change}");
    }
    assert!(run.delete(configuration).await.is_some());
}
