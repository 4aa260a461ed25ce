//! A stolen token of operator-controller under `hardened.yaml` gives its rights to accounts that the policies do not limit:
//! by ClusterRoles, bindings and aggregation labels (docs/design/operations.md#hardened-rights).

use kube::api::{Patch, PatchParams};
use olm_control_plane::eventually;
use serde_json::{Value, json};

use crate::hardened_policies::{DryRun, SYSTEM, object, start};
use crate::policies::Cluster;

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const ADMISSION: &str = "admissionregistration.k8s.io";
const VIEW: &str = "rbac.authorization.k8s.io/aggregate-to-view";
const WEBHOOKS: &str = "a ClusterRole that permits to write webhook configurations needs an exception";
const OWN: &str = "operator-controller may not bind its own ClusterRoles";
const BUILT_IN: &str =
    "operator-controller may not change ClusterRoles and ClusterRoleBindings of Kubernetes and of OLM";

fn named(kind: &str, name: &str) -> Value {
    json!({"apiVersion": RBAC, "kind": kind, "metadata": {"name": name}})
}

fn role(name: &str, rules: &Value) -> Value {
    let mut role = named("ClusterRole", name);
    role["rules"] = rules.clone();
    role
}

/// Binds a ClusterRole to everybody, also without a login.
fn binding(name: &str, role: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    let mut binding = named("ClusterRoleBinding", name);
    binding["subjects"] = json!([{"apiGroup": group, "kind": "Group", "name": "system:unauthenticated"}]);
    binding["roleRef"] = json!({"apiGroup": group, "kind": "ClusterRole", "name": role});
    binding
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!([{"apiGroups": [group], "resources": [resource], "verbs": verbs}])
}

fn label(key: &str) -> Value {
    json!({"metadata": {"labels": {key: "true"}}})
}

/// Waits until all policies and the rights are active.
async fn ready(cluster: &Cluster) -> DryRun {
    let run = DryRun::of(cluster).await;
    let plain = role("plain", &rule("", "configmaps", &["get"]));
    let api = run.api(&run.client, &plain);
    let dry_run = PatchParams { dry_run: true, force: true, ..PatchParams::apply("test") };
    let permitted = async || api.patch("plain", &dry_run, &Patch::Apply(&plain)).await.ok();
    eventually("the rights are active", permitted).await;
    let writer = role("writer", &rule(ADMISSION, "validatingwebhookconfigurations", &["patch"]));
    eventually("the policy with exceptions is active", async || run.create(&writer).await).await;
    let common = binding("common", "operator-controller-content-common");
    eventually("the policy without exceptions is active", async || run.create(&common).await).await;
    run
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_on_webhooks_are_passed_on_neither_by_roles_nor_by_bindings() {
    let cluster = start().await;
    let run = ready(&cluster).await;
    let kind = "validatingwebhookconfigurations";
    for (object, expected) in [
        (role("a", &rule("", "secrets", &["get", "list"])), ""),
        (role("a", &rule(ADMISSION, kind, &["get", "list", "watch"])), ""),
        (role("a", &rule(ADMISSION, kind, &["get", "patch"])), WEBHOOKS),
        (role("a", &rule(ADMISSION, "mutatingwebhookconfigurations", &["create"])), WEBHOOKS),
        (binding("a", "operator-controller-content-role"), OWN),
        (binding("a", "operator-controller-content-common"), OWN),
        (binding("a", "operator-controller-base-role"), OWN),
        (binding("a", "operator-controller-read-role"), ""),
    ] {
        let denied = run.create(&object).await.unwrap_or_default();
        assert!(denied.contains(expected) && denied.is_empty() == expected.is_empty(), "{object}: {denied}");
    }
    // A ClusterRole of an earlier version stays, and gets other rules.
    let writer = rule(ADMISSION, kind, &["get", "patch"]);
    let existing = role("existing", &writer);
    run.given(&existing).await;
    let more = |rule: Value| json!({"rules": [writer[0], rule[0]]});
    assert_eq!(run.patch(&existing, &more(rule("", "secrets", &["get"]))).await, None);
    let wider = more(rule(ADMISSION, kind, &["create"]));
    assert!(run.patch(&existing, &wider).await.is_some_and(|denied| denied.contains(WEBHOOKS)));
    assert_eq!(run.delete(&existing).await, None);

    let parameters = object("v1", "ConfigMap", SYSTEM, "operator-controller-exceptions", json!({}));
    let listed = json!({"data": {"cluster-roles": "other,lamp.v*"}});
    run.api(&run.admin, &parameters)
        .patch("operator-controller-exceptions", &PatchParams::default(), &Patch::Merge(&listed))
        .await
        .unwrap();
    let excepted = role("lamp.v1.0.0-lamp-x", &writer);
    eventually("the exception is active", async || run.create(&excepted).await.is_none().then_some(())).await;
    assert_eq!(run.create(&role("other", &writer)).await, None);
    for name in ["others", "lamp-x", "b"] {
        assert!(run.create(&role(name, &writer)).await.is_some(), "{name}");
    }
    assert!(run.create(&binding("a", "operator-controller-content-common")).await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_of_kubernetes_and_olm_are_neither_changed_nor_deleted() {
    let cluster = start().await;
    let run = ready(&cluster).await;
    let check = |denied: Option<String>, object: &Value| {
        assert!(denied.as_ref().is_some_and(|denied| denied.contains(BUILT_IN)), "{object}: {denied:?}");
    };
    let own = ["operator-controller-base-role", "operator-controller-read-role"];
    for object in own.map(|name| named("ClusterRole", name)) {
        check(run.patch(&object, &label(VIEW)).await, &object);
    }
    for object in [
        named("ClusterRole", "operator-controller-content-common"),
        named("ClusterRole", "view"),
        named("ClusterRoleBinding", "cluster-admin"),
        named("ClusterRoleBinding", "operator-controller-read-rolebinding"),
    ] {
        check(run.delete(&object).await, &object);
    }
    let others = role("others", &rule("", "secrets", &["*"]));
    run.given(&others).await;
    assert_eq!(run.delete(&others).await, None);
}
