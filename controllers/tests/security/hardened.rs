//! Both servers with only the rights of `manifests/hardened.yaml`.

use std::path::Path;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use olm_api::annotations;
use olm_api::conditions::find;
use olm_bundle::rights::{RbacRule, Rights, Scoped};
use olm_control_plane::{HOUSEKEEPING, eventually};
use olm_servers::{Catalog, NAMESPACE, Programs, Server, ServerFixture, Workloads, extension};
use serde_json::{Value, json};

use crate::fixture::{apply, documents};
use crate::impersonation::{bundle, rights, rights_with, until_message};

const LABEL: &str = "ext.olm.operatorframework.io/aggregate-to-operator-controller";
const READ_ROLE: &str = "operator-controller-read-role";
const BINDING: &str = "operator-controller-content";

// Case operations-a53
#[tokio::test(flavor = "multi_thread")]
async fn hardened_controller_installs_only_with_sufficient_rights() {
    let (fixture, _servers) = start().await;
    let _workloads = Workloads::start(fixture.client());
    fixture.create_namespace("apps").await.unwrap();
    let bundles =
        [bundle("1.0.0"), bundle("1.0.1").manifest("webhooks.yaml", webhook_writer()), bundle("1.1.0")];
    let versions = bundles.map(|bundle| fixture.publish(&bundle).unwrap());
    fixture.serve("packages", &Catalog::default().chain(&versions)).await.unwrap();
    let lamp = serde_json::from_value(extension("lamp", "apps", "lamp", Some("1.0.0"))).unwrap();
    fixture.extensions().create(&PostParams::default(), &lamp).await.unwrap();

    bundle_is_refused_before_a_write_until_all_rights_are_granted(&fixture).await;
    revoked_rights_are_reported(&fixture).await;
    denied_objects_are_named_before_a_write(&fixture).await;
    api_roles_require_what_they_grant(&fixture).await;
    bundles_without_secrets_need_no_secrets(&fixture).await;
    fixture.remove("lamp").await.unwrap();
}

/// Both servers with the objects of `hardened.yaml`. Kubernetes aggregates the ClusterRoles.
async fn start() -> (ServerFixture, [Server; 2]) {
    let programs = Programs::beside(crate::PROGRAM).unwrap();
    let fixture = ServerFixture::start_without_controllers(programs).await.unwrap();
    let aggregation = [HOUSEKEEPING, &["clusterrole-aggregation-controller"]].concat();
    fixture.plane.start_controllers(&aggregation).unwrap();
    for object in documents("hardened.yaml") {
        let kind = object["kind"].as_str().unwrap();
        let is_policy = kind.starts_with("ValidatingAdmissionPolicy") || kind == "ConfigMap";
        if kind.ends_with("Role") || kind.ends_with("RoleBinding") || kind == "ServiceAccount" || is_policy {
            apply(&fixture.client(), &object).await;
        }
    }
    let roles: Api<ClusterRole> = Api::all(fixture.client());
    let aggregated = async || roles.get("operator-controller-content-role").await.unwrap().rules;
    eventually("the rules are aggregated", aggregated).await;
    let account = kubeconfig_of(&fixture, "catalogd-controller-manager");
    let mut catalogd = fixture.launch_catalogd(&[&account]).unwrap();
    catalogd.ready().await.unwrap();
    let account = proxied_kubeconfig_of(&fixture, "operator-controller-controller-manager");
    let mut controller = fixture.launch_controller(&[&account]).unwrap();
    controller.ready().await.unwrap();
    (fixture, [catalogd, controller])
}

async fn bundle_is_refused_before_a_write_until_all_rights_are_granted(fixture: &ServerFixture) {
    let needs = "operator-controller requires the following permissions to manage the extension: ";
    let workload = "Namespace:\"apps\" APIGroups:[apps] Resources:[deployments] Verbs:[create]";
    // operator-controller itself reads all Secrets. Only an administrator gives that to a bundle.
    let secrets = "Namespace:\"\" APIGroups:[] Resources:[secrets] Verbs:[get,list]";
    let message = until_message(fixture, needs).await;
    for part in [workload, secrets, "; olm rbac required --extension lamp --operator-controller prints"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    grant_namespace(fixture).await;
    let without = |message: &str| !message.contains(workload);
    let message = eventually("the RoleBinding counts", async || {
        let message = until_message(fixture, needs).await;
        without(&message).then_some(message)
    });
    let message = message.await;
    assert!(message.contains(secrets), "{message}");
    assert_eq!(fixture.revisions().list(&ListParams::default()).await.unwrap().items.len(), 0);
    add(fixture, &rights("1.0.0")).await;
    fixture.until_installed("lamp", "1.0.0").await.unwrap();
    let refused = fixture.proxy.forbidden();
    assert_eq!(refused, [""; 0], "a refused call");
}

// Case operations-e41
async fn revoked_rights_are_reported(fixture: &ServerFixture) {
    let bindings: Api<RoleBinding> = Api::namespaced(fixture.client(), "apps");
    let granted = bindings.get(BINDING).await.unwrap();
    bindings.delete(BINDING, &DeleteParams::default()).await.unwrap();
    let settings: Api<ConfigMap> = Api::namespaced(fixture.client(), "apps");
    let drift = Patch::Merge(json!({"data": {"version": "mine"}}));
    let denied = "cannot patch resource \"configmaps\"";
    eventually("the denial is in the status", async || {
        settings.patch("lamp-settings", &PatchParams::default(), &drift).await.unwrap();
        let set = fixture.revisions().get("lamp-1").await.unwrap();
        find(&set.status?.conditions, "Progressing")?.message.contains(denied).then_some(())
    })
    .await;
    let events: Api<Event> = Api::namespaced(fixture.client(), "default");
    let about = ListParams::default().fields("reason=PermissionMissing");
    let event =
        eventually("Event PermissionMissing", async || events.list(&about).await.unwrap().items.pop()).await;
    assert_eq!(event.regarding.and_then(|object| object.name).as_deref(), Some("lamp"));
    let note = event.note.unwrap();
    assert!(note.contains(denied), "{note}");
    let again =
        json!({"metadata": {"name": BINDING}, "roleRef": granted.role_ref, "subjects": granted.subjects});
    bindings.create(&PostParams::default(), &serde_json::from_value(again).unwrap()).await.unwrap();
    let repaired =
        async || (settings.get("lamp-settings").await.unwrap().data?["version"] == "1.0.0").then_some(());
    eventually("the object is repaired", repaired).await;
}

/// ClusterRole that permits to write webhook configurations.
fn webhook_writer() -> Value {
    let rule = json!({"apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["validatingwebhookconfigurations"], "verbs": ["get", "patch"]});
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "lamp-webhooks"}, "rules": [rule]})
}

async fn denied_objects_are_named_before_a_write(fixture: &ServerFixture) {
    let mut added = webhook_writer();
    added["metadata"] = json!({"name": "lamp-more", "labels": {LABEL: "true"}});
    apply(&fixture.client(), &added).await;
    let edit = json!({"spec": {"source": {"catalog": {"version": "1.0.1"}}}});
    fixture.edit("lamp", edit).await.unwrap();
    let message = until_message(fixture, "lacks the permission to write some objects").await;
    for part in ["\"lamp-webhooks\"", "key cluster-roles of ConfigMap operator-controller-exceptions"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(fixture.revisions().list(&ListParams::default()).await.unwrap().items.len(), 1);
    let exceptions: Api<ConfigMap> = Api::namespaced(fixture.client(), NAMESPACE);
    let listed = Patch::Merge(json!({"data": {"cluster-roles": "lamp-*"}}));
    exceptions.patch("operator-controller-exceptions", &PatchParams::default(), &listed).await.unwrap();
    fixture.until_installed("lamp", "1.0.1").await.unwrap();
}

// docs/design/additions.md#api-roles
async fn api_roles_require_what_they_grant(fixture: &ServerFixture) {
    let annotation = json!({"metadata": {"annotations": {annotations::EXT_AGGREGATE_API_ROLES: "true"}}});
    let patch = Patch::Merge(annotation);
    fixture.extensions().patch("lamp", &PatchParams::default(), &patch).await.unwrap();
    let message = until_message(fixture, "requires the following permissions").await;
    assert!(message.contains("Resources:[widgets] Verbs:[*,create,delete,"), "{message}");
    add(fixture, &rights_with("1.0.1", true)).await;
    let roles: Api<ClusterRole> = Api::all(fixture.client());
    let edit = ListParams::default().labels("rbac.authorization.k8s.io/aggregate-to-edit=true");
    let of = |role: &ClusterRole| role.metadata.name.as_deref().unwrap_or_default().ends_with("-v1-edit");
    eventually("roles", async || roles.list(&edit).await.unwrap().items.iter().any(of).then_some(())).await;
}

/// The access to all Secrets can be taken away from operator-controller.
async fn bundles_without_secrets_need_no_secrets(fixture: &ServerFixture) {
    let roles: Api<ClusterRole> = Api::all(fixture.client());
    let mut role = serde_json::to_value(roles.get(READ_ROLE).await.unwrap()).unwrap();
    let core = &mut role["rules"][0]["resources"];
    core.as_array_mut().unwrap().retain(|resource| resource != "secrets");
    let narrowed = Patch::Merge(json!({"rules": role["rules"]}));
    roles.patch(READ_ROLE, &PatchParams::default(), &narrowed).await.unwrap();
    add(fixture, &rights_with("1.1.0", true)).await;
    let edit = json!({"spec": {"source": {"catalog": {"version": "1.1.0"}}}});
    fixture.edit("lamp", edit).await.unwrap();
    fixture.until_installed("lamp", "1.1.0").await.unwrap();
}

/// The RoleBinding that `olm install` creates.
async fn grant_namespace(fixture: &ServerFixture) {
    let bindings: Api<RoleBinding> = Api::namespaced(fixture.client(), "apps");
    let account = json!({"kind": "ServiceAccount", "name": "operator-controller-controller-manager", "namespace": NAMESPACE});
    let binding = json!({"metadata": {"name": BINDING}, "subjects": [account],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "operator-controller-content-namespaced"}});
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
}

/// Adds the ClusterRole that `olm rbac required --operator-controller` prints.
async fn add(fixture: &ServerFixture, rights: &Rights) {
    let exact: Scoped = rights.exact();
    let rules: Vec<&RbacRule> = exact.get(&None).into_iter().flatten().collect();
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "lamp-installer", "labels": {LABEL: "true"}}, "rules": rules});
    apply(&fixture.client(), &role).await;
}

/// Flag `--kubeconfig` with the credentials of a ServiceAccount of the system namespace.
pub(crate) fn kubeconfig_of(fixture: &ServerFixture, account: &str) -> String {
    kubeconfig(fixture, fixture.plane.kubeconfig(), account)
}

/// As [`kubeconfig_of`], through the proxy.
fn proxied_kubeconfig_of(fixture: &ServerFixture, account: &str) -> String {
    kubeconfig(fixture, fixture.proxy.kubeconfig(), account)
}

fn kubeconfig(fixture: &ServerFixture, base: &Path, account: &str) -> String {
    let text = std::fs::read_to_string(base).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["users"][0]["user"]["as"] = json!(format!("system:serviceaccount:{NAMESPACE}:{account}"));
    let path = fixture.file(account);
    std::fs::write(&path, config.to_string()).unwrap();
    format!("--kubeconfig={}", path.display())
}
