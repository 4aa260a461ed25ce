//! Names reserved for the cluster or for OLM: objects that exist before any bundle is installed, or that the API
//! server reserves. Similar names (`system:mine`, another kind in the group of OLM) are allowed, because apply
//! protects existing objects.

use olm_version::quote;
use serde_json::Value;

use super::{DEFINITION, RBAC_GROUP, text, title};
use crate::api_services;
use crate::bundle::{group_of, name_of};

/// Namespace of OLM in its install files.
const SYSTEM_NAMESPACE: &str = "olmv1-system";
/// CRDs of OLM.
const SYSTEM_DEFINITIONS: [&str; 5] = [
    "clustercatalogs.olm.operatorframework.io",
    "clusterextensions.olm.operatorframework.io",
    "clusterobjectsets.olm.operatorframework.io",
    "clusterupgradestatuses.ext.olm.operatorframework.io",
    "extensionplans.ext.olm.operatorframework.io",
];
/// Groups of OLM.
const SYSTEM_GROUPS: [&str; 2] = ["olm.operatorframework.io", "ext.olm.operatorframework.io"];
/// Groups that the API server itself serves. Others in `k8s.io`, such as `metrics.k8s.io`, exist to be aggregated.
const BUILT_IN_GROUPS: [&str; 18] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];
/// Annotation with the approval of a CRD in a group of Kubernetes.
const APPROVAL: &str = "api-approved.kubernetes.io";

/// Default user-facing ClusterRoles of Kubernetes.
const USER_ROLES: [&str; 4] = ["admin", ADMINISTRATOR, "edit", "view"];
/// The only one of them with a default ClusterRoleBinding of the same name.
const ADMINISTRATOR: &str = "cluster-admin";

/// Names of the ClusterRoles and ClusterRoleBindings of OLM.
const SYSTEM_ROLES: [&str; 10] = [
    "catalogd-manager-role",
    "catalogd-manager-rolebinding",
    "catalogd-metrics-reader",
    "catalogd-proxy-role",
    "catalogd-proxy-rolebinding",
    "operator-controller-cluster-admin-rolebinding",
    "operator-controller-clusterextension-viewer-role",
    "operator-controller-metrics-reader",
    "operator-controller-proxy-role",
    "operator-controller-proxy-rolebinding",
];

/// Names of the namespaced objects of OLM.
const SYSTEM_OBJECTS: [&str; 14] = [
    "catalogd-controller-manager",
    "catalogd-leader-election-role",
    "catalogd-leader-election-rolebinding",
    "catalogd-manager-role",
    "catalogd-manager-rolebinding",
    "catalogd-pull-secrets",
    "catalogd-service",
    "default-deny-all-traffic",
    "operator-controller-controller-manager",
    "operator-controller-leader-election-role",
    "operator-controller-leader-election-rolebinding",
    "operator-controller-manager-role",
    "operator-controller-manager-rolebinding",
    "operator-controller-service",
];

/// Reason why the name of the object is reserved, if it is.
pub(super) fn reserved_name(object: &Value, install_namespace: &str) -> Option<String> {
    let name = name_of(object);
    let of_cluster = || Some(format!("{} belongs to the cluster: choose another name", title(object)));
    let group = text(object, "/spec/group");
    let of_system = || Some(format!("{} belongs to OLM itself: choose another name", title(object)));
    let in_system = install_namespace == SYSTEM_NAMESPACE && SYSTEM_OBJECTS.contains(&name);
    match (group_of(object), text(object, "/kind")) {
        (RBAC_GROUP, "ClusterRole") if USER_ROLES.contains(&name) => of_cluster(),
        (RBAC_GROUP, "ClusterRoleBinding") if name == ADMINISTRATOR => of_cluster(),
        (RBAC_GROUP, "ClusterRole" | "ClusterRoleBinding") if SYSTEM_ROLES.contains(&name) => of_system(),
        ("scheduling.k8s.io", "PriorityClass") if name.starts_with("system-") => of_cluster(),
        ("", "ServiceAccount") if name == "default" => of_cluster(),
        ("", "ConfigMap") if name == "kube-root-ca.crt" => of_cluster(),
        ("", "Service") if name == "kubernetes" && install_namespace == "default" => of_cluster(),
        (api_services::GROUP, "APIService") if BUILT_IN_GROUPS.contains(&group) => of_cluster(),
        (api_services::GROUP, "APIService") if SYSTEM_GROUPS.contains(&group) => of_system(),
        (_, DEFINITION) if SYSTEM_DEFINITIONS.contains(&name) => of_system(),
        (_, DEFINITION) => unapproved(object),
        (
            "" | RBAC_GROUP | "policy" | "networking.k8s.io" | "apps",
            "Deployment"
            | "NetworkPolicy"
            | "PodDisruptionBudget"
            | "Role"
            | "RoleBinding"
            | "Service"
            | "ServiceAccount",
        ) if in_system => of_system(),
        _ => None,
    }
}

/// Reports a CRD in a group of Kubernetes without approval.
fn unapproved(object: &Value) -> Option<String> {
    let group = text(object, "/spec/group");
    let is_of =
        |owner: &str| group == owner || group.strip_suffix(owner).is_some_and(|prefix| prefix.ends_with('.'));
    if !is_of("k8s.io") && !is_of("kubernetes.io") {
        return None;
    }
    let approval = object.pointer("/metadata/annotations").and_then(|annotations| annotations.get(APPROVAL));
    let approval = approval.and_then(Value::as_str).unwrap_or_default();
    let is_url = approval
        .split_once("://")
        .is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty() && !rest.starts_with('/'));
    (!is_url && !approval.starts_with("unapproved")).then(|| {
        format!(
            "{}: group {} belongs to Kubernetes: annotation {APPROVAL} has to be the URL of the approval or start \
             with \"unapproved\"",
            title(object),
            quote(group)
        )
    })
}
