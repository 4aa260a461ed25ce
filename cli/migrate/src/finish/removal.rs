//! Removal of classic OLM (docs/design/migration.md#finish). Pure.

use std::collections::BTreeSet;

use olm_cli_core::object_access::ObjectId;
use serde::Serialize;
use serde_json::Value;

use super::super::detach::{has_records, is_of_classic};

/// Deployments of classic OLM.
pub(super) const DEPLOYMENTS: [&str; 3] = ["olm-operator", "catalog-operator", "packageserver"];
/// ClusterServiceVersion and Subscription that are a part of classic OLM.
const PACKAGE_SERVER: &str = "packageserver";
/// API of the package server.
const API_SERVICE: &str = "v1.packages.operators.coreos.com";
/// Cluster-scoped RBAC objects of classic OLM. The binding has the namespace as suffix.
const CLUSTER_ROLES: [&str; 3] =
    ["system:controller:operator-lifecycle-manager", "aggregate-olm-edit", "aggregate-olm-view"];
const CLUSTER_ROLE_BINDING: &str = "olm-operator-binding-";
const SERVICE_ACCOUNT: &str = "olm-operator-serviceaccount";
/// Label of objects that classic OLM generated, with the kind of their owner.
const OWNER_KIND: &str = "olm.owner.kind";
const OWNER: &str = "olm.owner";
/// Environment variable with the name of an OperatorCondition.
const CONDITION_NAME: &str = "OPERATOR_CONDITION_NAME";
const CONDITIONS: &str = "operatorconditions.operators.coreos.com";
/// CustomResourceDefinitions of classic OLM. Others of its group belong to other software.
const CRDS: [&str; 8] = [
    "catalogsources.operators.coreos.com",
    "clusterserviceversions.operators.coreos.com",
    "installplans.operators.coreos.com",
    "olmconfigs.operators.coreos.com",
    CONDITIONS,
    "operatorgroups.operators.coreos.com",
    "operators.operators.coreos.com",
    "subscriptions.operators.coreos.com",
];

/// Removal of classic OLM, in this order.
#[derive(Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Removal {
    /// Deployments of classic OLM.
    pub(super) deployments: Vec<ObjectId>,
    /// Objects that lose their owners of classic OLM, so that nothing deletes them, and its labels and annotations.
    pub(super) released: Vec<ObjectId>,
    /// Other objects of classic OLM.
    pub(super) objects: Vec<ObjectId>,
    /// Its CustomResourceDefinitions.
    #[serde(rename = "definitions")]
    pub(super) crds: Vec<ObjectId>,
    /// What stays, with the reason.
    pub(super) left: Vec<String>,
    /// Namespace of classic OLM. Empty if it is not known.
    #[serde(skip)]
    pub(super) home: String,
}

/// Objects by kind.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Objects of the kinds of classic OLM.
    pub(super) classic: Vec<Value>,
    pub(super) deployments: Vec<Value>,
    /// Metadata of namespaced and cluster-scoped objects that can have an owner of classic OLM.
    pub(super) others: Vec<Value>,
    /// Metadata of all CustomResourceDefinitions.
    pub(super) crds: Vec<Value>,
    /// Migrations that are not complete, as `namespace/package`.
    pub(super) incomplete: Vec<String>,
    pub(super) is_openshift: bool,
}

fn text<'o>(object: &'o Value, pointer: &str) -> &'o str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn is_of_package_server(object: &Value) -> bool {
    text(object, "/metadata/name") == PACKAGE_SERVER || text(object, "/spec/name") == PACKAGE_SERVER
}

/// Reason for which classic OLM cannot be removed.
pub(super) fn refusal(found: &Found) -> Option<String> {
    if found.is_openshift {
        return Some(
            "on OpenShift, the cluster version operator manages classic OLM, and would install it again: disable the \
             capability OperatorLifecycleManager of the ClusterVersion where the release permits it"
                .to_owned(),
        );
    }
    let home = home(found);
    let is_unknown = |deployment: &&Value| {
        text(deployment, "/metadata/name") == DEPLOYMENTS[0]
            && home != Some(text(deployment, "/metadata/namespace"))
    };
    if let Some(unknown) = found.deployments.iter().find(is_unknown) {
        return Some(format!(
            "{} is not recognized as that of classic OLM, because label app, ServiceAccount {SERVICE_ACCOUNT} or \
             ClusterRoleBinding {CLUSTER_ROLE_BINDING}NAMESPACE is missing or names another namespace: delete it",
            ObjectId::of(unknown)
        ));
    }
    let is_installed = |object: &&Value| {
        let kind = text(object, "/kind");
        let is_copy = object["metadata"]["labels"].get("olm.copiedFrom").is_some();
        (kind == "Subscription" || (kind == "ClusterServiceVersion" && !is_copy))
            && !is_of_package_server(object)
    };
    let installed = found.classic.iter().filter(is_installed).map(|object| ObjectId::of(object).to_string());
    let incomplete = found.incomplete.iter().map(|id| format!("the migration of {id}"));
    let all: Vec<String> = installed.chain(incomplete).collect();
    (!all.is_empty()).then(|| {
        format!(
            "classic OLM is still in use: {}; run `olm migrate scan`, then `olm migrate apply`",
            all.join(", ")
        )
    })
}

/// Namespace of classic OLM: that of its operator, else that of its ServiceAccount, else that in the name of its binding.
fn home(found: &Found) -> Option<&str> {
    let namespace = |object| text(object, "/metadata/namespace");
    let operator = found.deployments.iter().find(|deployment| {
        text(deployment, "/metadata/name") == DEPLOYMENTS[0]
            && text(deployment, "/metadata/labels/app") == DEPLOYMENTS[0]
    });
    let account = || {
        found.others.iter().find(|object| {
            text(object, "/kind") == "ServiceAccount" && text(object, "/metadata/name") == SERVICE_ACCOUNT
        })
    };
    let mut bindings = found.others.iter().filter(|object| text(object, "/kind") == "ClusterRoleBinding");
    let binding =
        || bindings.find_map(|object| text(object, "/metadata/name").strip_prefix(CLUSTER_ROLE_BINDING));
    operator.or_else(account).map(namespace).or_else(binding)
}

/// Chooses what is removed.
pub(super) fn removal(found: &Found) -> Removal {
    let mut removal = Removal::default();
    let home = home(found);
    removal.home = home.unwrap_or_default().to_owned();
    for deployment in &found.deployments {
        let is_part = DEPLOYMENTS.contains(&text(deployment, "/metadata/name"));
        if is_part && home == Some(text(deployment, "/metadata/namespace")) {
            removal.deployments.push(ObjectId::of(deployment));
        }
    }
    // The operator stops before the package server, which it would start again.
    removal.deployments.sort_by_key(|id| DEPLOYMENTS.iter().position(|name| *name == id.name));
    let conditions = used_conditions(&found.deployments);
    let keeps_conditions = !conditions.is_empty();
    for object in &found.classic {
        if !(keeps_conditions && text(object, "/kind") == "OperatorCondition") {
            removal.objects.push(ObjectId::of(object));
        }
    }
    let is_own_crd = |crd: &&Value| CRDS.contains(&text(crd, "/metadata/name"));
    let crds = found.crds.iter().filter(|crd| !is_own_crd(crd));
    let group_roles: BTreeSet<&str> = found
        .others
        .iter()
        .filter(|one| is_group_role(one))
        .map(|role| text(role, "/metadata/name"))
        .collect();
    for object in found.others.iter().chain(&found.deployments).chain(crds) {
        let id = ObjectId::of(object);
        if is_part(object, home, &group_roles) {
            removal.objects.push(id);
        } else if is_released(object, keeps_conditions) || has_records(object) {
            removal.released.push(id);
        }
    }
    for crd in &found.crds {
        let id = ObjectId::of(crd);
        if CRDS.contains(&id.name.as_str()) && !(keeps_conditions && id.name == CONDITIONS) {
            removal.crds.push(id);
        }
    }
    if keeps_conditions {
        let names = conditions.join(", ");
        removal.left.push(format!(
            "OperatorConditions and their CRD: Deployments still name them until the next upgrade: {names}"
        ));
    }
    if let Some(home) = home {
        removal.left.push(format!(
            "Namespace {home}: delete it with `kubectl delete namespace {home}` if nothing else is in it"
        ));
    }
    removal
}

/// Deployments with an OperatorCondition.
fn used_conditions(deployments: &[Value]) -> Vec<String> {
    let has_name = |deployment: &&Value| {
        let containers = deployment.pointer("/spec/template/spec/containers").and_then(Value::as_array);
        let mut variables =
            containers.into_iter().flatten().filter_map(|container| container["env"].as_array()).flatten();
        variables.any(|variable| variable["name"] == CONDITION_NAME)
            && text(deployment, "/metadata/name") != PACKAGE_SERVER
    };
    deployments.iter().filter(has_name).map(|deployment| ObjectId::of(deployment).to_string()).collect()
}

/// Reports whether an object is a part of classic OLM. `group_roles` are the ClusterRoles of its OperatorGroups.
fn is_part(object: &Value, home: Option<&str>, group_roles: &BTreeSet<&str>) -> bool {
    let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
    match kind {
        "APIService" => name == API_SERVICE,
        "ClusterRole" => CLUSTER_ROLES.contains(&name) || is_group_role(object),
        "ClusterRoleBinding" | "RoleBinding" => {
            home.is_some_and(|home| name == format!("{CLUSTER_ROLE_BINDING}{home}"))
                || is_generated_for_package_server(object)
                // It grants nothing without the role: the migration has granted the same access by other bindings.
                || (text(object, "/roleRef/kind") == "ClusterRole"
                    && group_roles.contains(text(object, "/roleRef/name")))
        }
        "ServiceAccount" => name == SERVICE_ACCOUNT && home == Some(text(object, "/metadata/namespace")),
        _ => false,
    }
}

/// Reports whether classic OLM generated the object for the API of the package server. These have labels of an owner, but
/// no owner reference, because the owner is in another namespace.
fn is_generated_for_package_server(object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    labels[OWNER_KIND] == "ClusterServiceVersion" && labels[OWNER] == PACKAGE_SERVER
}

/// Reports whether classic OLM generated the ClusterRole for the users of an OperatorGroup. It is deleted.
fn is_group_role(object: &Value) -> bool {
    text(object, "/kind") == "ClusterRole" && object["metadata"]["labels"][OWNER_KIND] == "OperatorGroup"
}

/// Reports whether the object would be deleted with an object of classic OLM, and must not be: not the pods of catalogs
/// and the package server, and not what belongs to OperatorConditions that stay.
fn is_released(object: &Value, keeps_conditions: bool) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.filter(|owner| is_of_classic(owner)).any(|owner| match owner["kind"].as_str() {
        Some("CatalogSource") => false,
        Some("OperatorCondition") => !keeps_conditions,
        _ => owner["name"] != PACKAGE_SERVER,
    })
}

impl Removal {
    /// Number of deleted objects.
    pub(super) fn count(&self) -> usize {
        self.deployments.len() + self.objects.len() + self.crds.len()
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let parts = [
            ("Deployments of classic OLM", &self.deployments),
            ("Released from classic OLM", &self.released),
            ("Deleted", &self.objects),
            ("Deleted last", &self.crds),
        ];
        for (title, objects) in parts.into_iter().filter(|(_, objects)| !objects.is_empty()) {
            text += &format!("{title}:\n");
            for object in objects {
                text += &format!("  {object}\n");
            }
        }
        for left in &self.left {
            text += &format!("Kept: {left}\n");
        }
        if text.is_empty() { "Nothing of classic OLM is left.\n".to_owned() } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"namespace": namespace, "name": name, "uid": name}})
    }

    fn installation() -> Found {
        let mut operator = object("apps/v1", "Deployment", "olm", "olm-operator");
        operator["metadata"]["labels"] = json!({"app": "olm-operator"});
        let server = object("apps/v1", "Deployment", "olm", "packageserver");
        let migrated = object("apps/v1", "Deployment", "operators", "lamp");
        let other = object("apps/v1", "Deployment", "other", "catalog-operator");
        let crd = |name: &str| object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name);
        Found {
            classic: vec![
                object("operators.coreos.com/v1alpha1", "ClusterServiceVersion", "olm", "packageserver"),
                object("operators.coreos.com/v2", "OperatorCondition", "operators", "lamp.v1.0.0"),
                object("operators.coreos.com/v1", "OperatorGroup", "operators", "global"),
            ],
            deployments: vec![server, migrated, other, operator],
            others: vec![
                object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "aggregate-olm-view"),
                object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "view"),
                object("apiregistration.k8s.io/v1", "APIService", "", API_SERVICE),
            ],
            crds: vec![crd(CONDITIONS), crd("lamps.operators.coreos.com")],
            ..Found::default()
        }
    }

    fn names(objects: &[ObjectId]) -> Vec<&str> {
        objects.iter().map(|object| object.name.as_str()).collect()
    }

    #[test]
    fn only_classic_olm_itself_is_removed() {
        let found = installation();
        assert_eq!(refusal(&found), None);
        let removal = removal(&found);
        assert_eq!(names(&removal.deployments), ["olm-operator", "packageserver"]);
        let objects = ["packageserver", "lamp.v1.0.0", "global", "aggregate-olm-view", API_SERVICE];
        assert_eq!(names(&removal.objects), objects);
        assert_eq!(names(&removal.crds), [CONDITIONS]);
        assert!(removal.released.is_empty());
        assert_eq!(removal.count(), 8);
    }

    #[test]
    fn namespace_is_known_after_the_deployments_are_deleted() {
        let mut found = installation();
        assert_eq!(home(&found), Some("olm"));
        found.deployments.clear();
        assert_eq!(home(&found), None);
        let binding = "olm-operator-binding-olm";
        found.others.push(object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", binding));
        assert_eq!(home(&found), Some("olm"));
        assert!(names(&removal(&found).objects).contains(&binding));
        found.others.push(object("v1", "ServiceAccount", "home", SERVICE_ACCOUNT));
        assert_eq!(home(&found), Some("home"));
    }

    #[test]
    fn unrecognized_operator_is_refused() {
        let mut found = installation();
        found.deployments.push(object("apps/v1", "Deployment", "elsewhere", "olm-operator"));
        let why = refusal(&found).unwrap();
        assert!(why.starts_with("Deployment elsewhere/olm-operator is not recognized"), "{why}");
        // Without its label, the ServiceAccount identifies it.
        found.deployments.truncate(3);
        found.deployments.push(object("apps/v1", "Deployment", "olm", "olm-operator"));
        assert!(refusal(&found).is_some());
        found.others.push(object("v1", "ServiceAccount", "olm", SERVICE_ACCOUNT));
        assert_eq!(refusal(&found), None);
    }

    #[test]
    fn workloads_lose_their_owner_and_catalog_pods_keep_it() {
        let mut found = installation();
        let owned = |kind: &str, name: &str, owner: &str| {
            let mut object = object("v1", kind, "operators", name);
            object["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "operators.coreos.com/v1alpha1", "kind": owner, "name": "a"}]);
            object
        };
        found.others = vec![
            owned("Service", "lamp", "ClusterServiceVersion"),
            owned("Service", "hub", "CatalogSource"),
            owned("Secret", "condition", "OperatorCondition"),
        ];
        assert_eq!(names(&removal(&found).released), ["lamp", "condition"]);
        let container = json!({"env": [{"name": "OPERATOR_CONDITION_NAME", "value": "lamp.v1.0.0"}]});
        found.deployments[1]["spec"] = json!({"template": {"spec": {"containers": [container]}}});
        let removal = removal(&found);
        assert_eq!(names(&removal.released), ["lamp"]);
        assert!(removal.crds.is_empty() && !names(&removal.objects).contains(&"lamp.v1.0.0"));
        assert!(removal.left[0].ends_with("Deployment operators/lamp"), "{:?}", removal.left);
    }

    #[test]
    fn records_and_bindings_of_classic_olm_do_not_stay() {
        let mut found = installation();
        let rbac = "rbac.authorization.k8s.io/v1";
        let binding = |kind: &str, name: &str, role: &str| {
            let mut binding = object(rbac, kind, "kube-system", name);
            binding["roleRef"] = json!({"kind": "ClusterRole", "name": role});
            binding
        };
        let mut of_server = binding("RoleBinding", "packageserver-service-auth-reader", "reader");
        of_server["metadata"]["labels"] =
            json!({"olm.owner": "packageserver", "olm.owner.kind": "ClusterServiceVersion"});
        let mut namespace = object("v1", "Namespace", "", "watched");
        namespace["metadata"]["labels"] = json!({"olm.operatorgroup.uid/u": "", "team": "light"});
        let mut role = object(rbac, "ClusterRole", "", "olm.og.global.view-x");
        role["metadata"]["labels"] = json!({"olm.owner": "global", "olm.owner.kind": "OperatorGroup"});
        found.others = vec![
            of_server,
            binding("RoleBinding", "users", "olm.og.global.view-x"),
            // The role is not that of an OperatorGroup, and stays.
            binding("RoleBinding", "own", "olm.og.own"),
            object(rbac, "ClusterRole", "", "olm.og.own"),
            role,
            binding("ClusterRoleBinding", "others", "view"),
            namespace,
            object("v1", "Namespace", "", "unwatched"),
        ];
        found.crds[1]["metadata"]["annotations"] =
            json!({"operatorframework.io/installed-alongside-h": "operators/lamp.v1.0.0"});
        let removal = removal(&found);
        let objects = ["packageserver-service-auth-reader", "users", "olm.og.global.view-x"];
        assert_eq!(names(&removal.objects[3..]), objects);
        assert_eq!(names(&removal.released), ["watched", "lamps.operators.coreos.com"]);
        assert_eq!(names(&removal.crds), [CONDITIONS]);
    }

    #[test]
    fn used_or_managed_classic_olm_is_refused() {
        let mut found = installation();
        found.classic.push(object("operators.coreos.com/v1alpha1", "Subscription", "operators", "pipe"));
        found.incomplete = vec!["operators/lamp".to_owned()];
        let why = refusal(&found).unwrap();
        assert!(why.contains("Subscription operators/pipe, the migration of operators/lamp; run"), "{why}");
        found.is_openshift = true;
        assert!(refusal(&found).unwrap().contains("cluster version operator"));
    }
}
