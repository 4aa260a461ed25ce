//! Both servers with only the rights of `manifests/hardened.yaml`.

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use olm_api::annotations;
use olm_bundle::rights::{Rule, Scoped};
use olm_control_plane::eventually;
use olm_servers::{Catalog, Programs, ServerFixture, Workloads, extension};
use serde_json::{Value, json};

use crate::fixture::{apply, documents};
use crate::impersonation::{bundle, rights, rights_with, until_message};

const CONTENT: &str = "operator-controller-content-role";

// Case operations-a53
#[tokio::test(flavor = "multi_thread")]
async fn hardened_controller_installs_only_with_sufficient_rights() {
    let fixture = ServerFixture::start(Programs::beside(crate::PROGRAM).unwrap()).await.unwrap();
    let _workloads = Workloads::start(fixture.client());
    for object in documents("hardened.yaml") {
        let kind = object["kind"].as_str().unwrap();
        let is_policy = kind.starts_with("ValidatingAdmissionPolicy");
        if kind.ends_with("Role") || kind.ends_with("RoleBinding") || kind == "ServiceAccount" || is_policy {
            apply(&fixture.client(), &object).await;
        }
    }
    aggregate(&fixture, &[]).await;
    let account = kubeconfig_of(&fixture, "catalogd-controller-manager");
    let mut catalogd = fixture.launch_catalogd(&[&account]).unwrap();
    catalogd.ready().await.unwrap();
    let account = kubeconfig_of(&fixture, "operator-controller-controller-manager");
    let mut controller = fixture.launch_controller(&[&account]).unwrap();
    controller.ready().await.unwrap();
    fixture.create_namespace("apps").await.unwrap();
    let published = fixture.publish(&bundle("1.0.0")).unwrap();
    fixture.serve("packages", &Catalog::default().chain(&[published])).await.unwrap();
    let lamp = serde_json::from_value(extension("lamp", "apps", "lamp", None)).unwrap();
    fixture.extensions().create(&PostParams::default(), &lamp).await.unwrap();

    let message = until_message(&fixture, "is attempting to grant RBAC permissions not currently held").await;
    let user = "user \"system:serviceaccount:olmv1-system:operator-controller-controller-manager\"";
    assert!(message.contains(user), "{message}");
    // Case operations-e41
    let events: Api<Event> = Api::namespaced(fixture.client(), "default");
    let about = ListParams::default().fields("reason=PermissionMissing");
    let event =
        eventually("Event PermissionMissing", async || events.list(&about).await.unwrap().items.pop()).await;
    assert_eq!(event.regarding.and_then(|object| object.name).as_deref(), Some("lamp"));
    let note = event.note.unwrap();
    assert!(note.contains("is attempting to grant RBAC permissions not currently held"), "{note}");
    // Rights that `olm rbac required` prints.
    let needed: Scoped = rights("1.0.0").exact();
    let needed: Vec<&Rule> = needed.values().flatten().collect();
    aggregate(&fixture, &needed).await;
    fixture.until_installed("lamp", "1.0.0").await.unwrap();
    api_roles_require_what_they_grant(&fixture).await;
    fixture.remove("lamp").await.unwrap();
}

// docs/design/additions.md#api-roles
async fn api_roles_require_what_they_grant(fixture: &ServerFixture) {
    let annotation = json!({"metadata": {"annotations": {annotations::EXT_AGGREGATE_API_ROLES: "true"}}});
    let patch = Patch::Merge(annotation);
    fixture.extensions().patch("lamp", &PatchParams::default(), &patch).await.unwrap();
    let message = until_message(fixture, "is attempting to grant RBAC permissions not currently held").await;
    assert!(message.contains("-v1-admin"), "{message}");
    let needed: Scoped = rights_with("1.0.0", true).exact();
    let needed: Vec<&Rule> = needed.values().flatten().collect();
    aggregate(fixture, &needed).await;
    let roles: Api<ClusterRole> = Api::all(fixture.client());
    let edit = ListParams::default().labels("rbac.authorization.k8s.io/aggregate-to-edit=true");
    let of = |role: &ClusterRole| role.name_any().ends_with("-v1-edit");
    eventually("roles", async || roles.list(&edit).await.unwrap().items.iter().any(of).then_some(())).await;
}

/// Flag `--kubeconfig` with the credentials of a ServiceAccount of the system namespace.
pub(crate) fn kubeconfig_of(fixture: &ServerFixture, account: &str) -> String {
    let text = std::fs::read_to_string(fixture.plane.kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["users"][0]["user"]["as"] = json!(format!("system:serviceaccount:olmv1-system:{account}"));
    let path = fixture.file(account);
    std::fs::write(&path, config.to_string()).unwrap();
    format!("--kubeconfig={}", path.display())
}

/// Writes the shipped rules and these into the aggregated ClusterRole. The aggregation controller of Kubernetes does
/// not run here.
async fn aggregate(fixture: &ServerFixture, more: &[&Rule]) {
    let roles: Api<ClusterRole> = Api::all(fixture.client());
    let shipped = roles.get("operator-controller-content-common").await.unwrap().rules.unwrap_or_default();
    let mut rules: Vec<Value> = shipped.iter().map(|rule| json!(rule)).collect();
    rules.extend(more.iter().map(|rule| json!(rule)));
    let patch = Patch::Merge(json!({"rules": rules}));
    roles.patch(CONTENT, &PatchParams::default(), &patch).await.unwrap();
}
