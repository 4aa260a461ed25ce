//! Names reserved for the cluster or for OLM: objects that exist before any bundle is installed, or that the API
//! server reserves. Similar names (`system:mine`, another kind in the group of OLM) are allowed, because apply
//! protects existing objects.

use olm_version::quote;
use serde_json::Value;

use super::{CRD, RBAC_GROUP, text, title};
use crate::api_services;
use crate::bundle::{group_of, name_of};
use crate::kinds::{BundleKind, Scope};
use crate::pointer::{list, texts};

/// CRDs of OLM.
const SYSTEM_CRDS: [&str; 5] = [
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
const SYSTEM_ROLES: [&str; 21] = [
    "catalogd-manager-role",
    "catalogd-manager-rolebinding",
    "catalogd-metrics-reader",
    "catalogd-proxy-role",
    "catalogd-proxy-rolebinding",
    "operator-controller-base-role",
    "operator-controller-base-rolebinding",
    "operator-controller-cluster-admin-rolebinding",
    "operator-controller-clusterextension-viewer-role",
    "operator-controller-content-api-services",
    "operator-controller-content-common",
    "operator-controller-content-escalate",
    "operator-controller-content-namespaced",
    "operator-controller-content-role",
    "operator-controller-content-rolebinding",
    "operator-controller-impersonation",
    "operator-controller-metrics-reader",
    "operator-controller-proxy-role",
    "operator-controller-proxy-rolebinding",
    "operator-controller-read-role",
    "operator-controller-read-rolebinding",
];

/// Names of the namespaced objects of OLM, also of ConfigMaps that it reads: CAs of registries and parameters of policies.
const SYSTEM_OBJECTS: [&str; 23] = [
    "catalogd-controller-manager",
    "catalogd-default-deny-all-traffic",
    "catalogd-leader-election-role",
    "catalogd-leader-election-rolebinding",
    "catalogd-manager-role",
    "catalogd-manager-rolebinding",
    "catalogd-pull-secrets",
    "catalogd-service",
    "catalogd-trusted-ca-bundle",
    "default-deny-all-traffic",
    "delegated-installers",
    "olm-registry-ca",
    "operator-controller-controller-manager",
    "operator-controller-default-deny-all-traffic",
    "operator-controller-exceptions",
    "operator-controller-leader-election-role",
    "operator-controller-leader-election-rolebinding",
    "operator-controller-manager-role",
    "operator-controller-manager-rolebinding",
    "operator-controller-service",
    "operator-controller-trusted-ca-bundle",
    "reserved-api-groups",
    "trusted-catalogs",
];

/// Namespace of catalogd on OpenShift, where the system namespace is that of operator-controller.
const OPENSHIFT_CATALOGD: &str = "openshift-catalogd";

/// Label that aggregates a ClusterRole into that of operator-controller in `hardened.yaml`.
const AGGREGATION_LABEL: &str = "ext.olm.operatorframework.io/aggregate-to-operator-controller";
/// Group of the OperatorConditions that operator-controller serves with a gate, which then adds one to the objects.
const CLASSIC_GROUP: &str = "operators.coreos.com";

/// Reports a ClusterRole that would extend the rights of operator-controller.
pub(super) fn aggregation_label(object: &Value) -> Option<String> {
    let labels = object.pointer("/metadata/labels")?.as_object()?;
    let is_role = group_of(object) == RBAC_GROUP && text(object, "/kind") == "ClusterRole";
    (is_role && labels.contains_key(AGGREGATION_LABEL)).then(|| {
        format!(
            "{}: label {AGGREGATION_LABEL} would give its rules to operator-controller: only an administrator may do \
             that, outside of a bundle",
            title(object)
        )
    })
}

/// Reports webhooks that would intercept the objects with which OLM approves and holds upgrades. Rendering refuses
/// those for `olm.operatorframework.io` and for all groups.
pub(super) fn intercepted_groups(objects: &[Value]) -> Vec<String> {
    let is_classic =
        |object: &Value| group_of(object) == CLASSIC_GROUP && text(object, "/kind") == "OperatorCondition";
    let classic = objects.iter().any(is_classic).then_some(CLASSIC_GROUP);
    let groups: Vec<&str> = std::iter::once(SYSTEM_GROUPS[1]).chain(classic).collect();
    let of_webhooks = objects.iter().filter(|object| group_of(object) == "admissionregistration.k8s.io");
    let found = of_webhooks.flat_map(|object| {
        let rules = list(object, "/webhooks").iter().flat_map(|webhook| list(webhook, "/rules"));
        let named = rules.flat_map(|rule| texts(rule, "/apiGroups")).filter(|group| groups.contains(group));
        named.map(move |group| {
            format!(
                "{}: a rule has API group {group}: webhooks of a bundle may not intercept OLM",
                title(object)
            )
        })
    });
    found.collect()
}

/// Reason why the name of the object is reserved, if it is.
pub(super) fn reserved_name(
    object: &Value,
    install_namespace: &str,
    system_namespace: &str,
) -> Option<String> {
    let name = name_of(object);
    let of_cluster = || Some(format!("{} belongs to the cluster: choose another name", title(object)));
    let group = text(object, "/spec/group");
    let of_system = || Some(format!("{} belongs to OLM itself: choose another name", title(object)));
    let in_system = [system_namespace, OPENSHIFT_CATALOGD].contains(&install_namespace);
    let in_system = in_system && SYSTEM_OBJECTS.contains(&name);
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
        (_, CRD) if SYSTEM_CRDS.contains(&name) => of_system(),
        (_, CRD) => unapproved(object),
        (group, kind) if in_system && is_of_system(group, kind) => of_system(),
        _ => None,
    }
}

/// Reports whether OLM has objects of the kind in its namespace.
fn is_of_system(group: &str, kind: &str) -> bool {
    let built_in = BundleKind::of(group, kind).filter(|row| row.built_in.is_some());
    built_in.is_some_and(|row| row.scope == Scope::InstallNamespace)
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
            "{}: group {} belongs to Kubernetes: annotation {APPROVAL} must be the URL of the approval or start with \
             \"unapproved\"",
            title(object),
            quote(group)
        )
    })
}
