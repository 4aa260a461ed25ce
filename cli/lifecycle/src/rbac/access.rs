//! Access of subjects to the APIs of an extension, computed from roles and bindings. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject as Bound,
};
use kube::ResourceExt;
use olm_cli_core::access_level::{ANY, level};
use olm_cli_core::source::ApiKind;
use serde::Serialize;

use super::subject::Subject;

/// Access by a role that the caller may not read.
pub(super) const UNKNOWN: &str = "unknown";

/// Roles and bindings of a cluster. `None` if the caller may not list them.
#[derive(Debug, Default)]
pub(super) struct Rbac {
    pub(super) cluster_roles: Option<Vec<ClusterRole>>,
    pub(super) roles: Option<Vec<Role>>,
    pub(super) cluster_bindings: Option<Vec<ClusterRoleBinding>>,
    pub(super) bindings: Option<Vec<RoleBinding>>,
}

/// Access of a subject through one binding.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Holder {
    pub(super) subject: Subject,
    /// Namespace of the access. `None` for all namespaces.
    pub(super) namespace: Option<String>,
    /// `admin`, `edit` (with view), `view`, else the verbs, or [`UNKNOWN`].
    pub(super) access: String,
    /// Names of the CRDs.
    pub(super) apis: Vec<String>,
    pub(super) binding: RbacObject,
    pub(super) role: RbacObject,
}

/// Binding or role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct RbacObject {
    kind: String,
    name: String,
}

impl RbacObject {
    fn new(kind: &str, name: String) -> Self {
        Self { kind: kind.to_owned(), name }
    }
}

/// `Role lamp-viewer`
impl fmt::Display for RbacObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// Holders of access to the APIs, sorted by subject, and the number of omitted bindings of Kubernetes components.
pub(super) fn holders(apis: &[ApiKind], rbac: &Rbac, components: bool) -> (Vec<Holder>, usize) {
    let mut all = BTreeSet::new();
    let mut omitted = 0;
    let everywhere = rbac.cluster_bindings.iter().flatten().map(|binding| {
        let name = RbacObject::new("ClusterRoleBinding", binding.name_any());
        (None, name, &binding.role_ref, binding.subjects.as_deref().unwrap_or_default())
    });
    let somewhere = rbac.bindings.iter().flatten().map(|binding| {
        let name = RbacObject::new("RoleBinding", binding.name_any());
        (binding.namespace(), name, &binding.role_ref, binding.subjects.as_deref().unwrap_or_default())
    });
    for (namespace, binding, role, subjects) in everywhere.chain(somewhere) {
        let held = held(apis, rbac, namespace.as_deref(), role);
        if !components && role.name.starts_with("system:") && held.keys().any(|access| access != UNKNOWN) {
            omitted += 1;
            continue;
        }
        for (access, apis) in held {
            all.extend(subjects.iter().map(|subject: &Bound| Holder {
                subject: subject.into(),
                namespace: namespace.clone(),
                access: access.clone(),
                apis: apis.clone(),
                binding: binding.clone(),
                role: RbacObject::new(&role.kind, role.name.clone()),
            }));
        }
    }
    (all.into_iter().collect(), omitted)
}

/// APIs by the access that a bound role gives.
fn held(
    apis: &[ApiKind],
    rbac: &Rbac,
    namespace: Option<&str>,
    role: &RoleRef,
) -> BTreeMap<String, Vec<String>> {
    let mut held: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let Some(rules) = rules(rbac, namespace, role) else {
        return BTreeMap::from([(UNKNOWN.to_owned(), Vec::new())]);
    };
    // A RoleBinding grants no access to cluster-scoped objects.
    for api in apis.iter().filter(|api| namespace.is_none() || api.is_namespaced()) {
        for access in access(api, rules) {
            held.entry(access).or_default().push(api.name());
        }
    }
    held
}

/// Rules of a role. None at all if it does not exist, `None` if the caller may not read it.
fn rules<'a>(rbac: &'a Rbac, namespace: Option<&str>, role: &RoleRef) -> Option<&'a [PolicyRule]> {
    let rules = if role.kind == "Role" {
        let is_it =
            |found: &&Role| found.name_any() == role.name && found.namespace().as_deref() == namespace;
        rbac.roles.as_ref()?.iter().find(is_it).map(|found| &found.rules)
    } else {
        let is_it = |found: &&ClusterRole| found.name_any() == role.name;
        rbac.cluster_roles.as_ref()?.iter().find(is_it).map(|found| &found.rules)
    };
    Some(rules.and_then(Option::as_deref).unwrap_or_default())
}

/// Access to an API: at most one for all objects, and one for each list of named objects.
fn access(api: &ApiKind, rules: &[PolicyRule]) -> Vec<String> {
    let mut verbs: BTreeMap<BTreeSet<&String>, BTreeSet<&str>> = BTreeMap::new();
    let has = |list: &Option<Vec<String>>, text: &str| {
        list.iter().flatten().any(|entry| entry == text || entry == ANY)
    };
    for rule in rules.iter().filter(|rule| has(&rule.api_groups, &api.group)) {
        if has(&rule.resources, &api.resource) {
            let names = rule.resource_names.iter().flatten().collect();
            verbs.entry(names).or_default().extend(rule.verbs.iter().map(String::as_str));
        }
    }
    let text = |(names, verbs): (BTreeSet<&String>, BTreeSet<&str>)| {
        let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
        let only = if names.is_empty() { String::new() } else { format!(" (only {})", names.join(", ")) };
        format!("{}{only}", level(verbs))
    };
    verbs.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn read<T: DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn role(name: &str, rules: Value) -> ClusterRole {
        read(json!({"metadata": {"name": name}, "rules": rules}))
    }

    fn rule(resources: &[&str], verbs: &[&str]) -> Value {
        json!({"apiGroups": ["example.com"], "resources": resources, "verbs": verbs})
    }

    fn bound(kind: &str, name: &str, subject: Value) -> Value {
        json!({"metadata": {"name": format!("{name}-binding"), "namespace": "shop"}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}})
    }

    fn user(name: &str) -> Value {
        json!({"kind": "User", "name": name})
    }

    fn rbac() -> Rbac {
        let edit = ["create", "update", "patch", "delete", "get", "list", "watch", "deletecollection"];
        let named = json!({"apiGroups": ["*"], "resources": ["lamps"], "resourceNames": ["a", "b"], "verbs": ["get"]});
        let cluster_roles = vec![
            role("cluster-admin", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])),
            role("edit", json!([rule(&["lamps", "suns"], &edit)])),
            role("named", json!([named])),
            role("other", json!([rule(&["shades"], &["get"])])),
            role(
                "system:controller:gc",
                json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["delete"]}]),
            ),
        ];
        let roles = vec![read(
            json!({"metadata": {"name": "local", "namespace": "shop"}, "rules": [rule(&["*"], &["get", "list", "watch"])]}),
        )];
        let bindings = [
            bound("ClusterRole", "edit", user("ann")),
            bound("ClusterRole", "named", user("bob")),
            bound("ClusterRole", "other", user("eve")),
            bound("ClusterRole", "missing", user("eve")),
            bound("Role", "local", json!({"kind": "ServiceAccount", "name": "ci", "namespace": "build"})),
        ];
        let cluster_bindings = [
            bound("ClusterRole", "cluster-admin", json!({"kind": "Group", "name": "system:masters"})),
            bound("ClusterRole", "system:controller:gc", user("system:gc")),
        ];
        Rbac {
            cluster_roles: Some(cluster_roles),
            roles: Some(roles),
            cluster_bindings: Some(cluster_bindings.map(read).into()),
            bindings: Some(bindings.map(read).into()),
        }
    }

    fn apis() -> [ApiKind; 2] {
        [("lamps", "Namespaced"), ("suns", "Cluster")].map(|(resource, scope)| ApiKind {
            group: "example.com".to_owned(),
            resource: resource.to_owned(),
            scope: scope.to_owned(),
            ..ApiKind::default()
        })
    }

    fn rows(rbac: &Rbac, components: bool) -> (Vec<String>, usize) {
        let (holders, omitted) = holders(&apis(), rbac, components);
        let row = |holder: &Holder| {
            let namespace = holder.namespace.as_deref().unwrap_or("*");
            format!("{} in {namespace}: {} of {}", holder.subject, holder.access, holder.apis.join(","))
        };
        (holders.iter().map(row).collect(), omitted)
    }

    #[test]
    fn access_is_named_by_its_verbs_and_scope() {
        let expected = [
            "Group system:masters in *: admin of lamps.example.com,suns.example.com",
            "ServiceAccount build/ci in shop: view of lamps.example.com",
            "User ann in shop: edit of lamps.example.com",
            "User bob in shop: get (only a, b) of lamps.example.com",
        ];
        let (found, omitted) = rows(&rbac(), false);
        assert_eq!((found.as_slice(), omitted), (&expected.map(str::to_owned)[..], 1));
        let (found, omitted) = rows(&rbac(), true);
        assert_eq!((found.len(), omitted), (5, 0));
        assert_eq!(found[4], "User system:gc in *: delete of lamps.example.com,suns.example.com");
    }

    #[test]
    fn access_by_unreadable_roles_is_unknown() {
        let rbac = Rbac { cluster_roles: None, cluster_bindings: None, ..rbac() };
        let expected = [
            "ServiceAccount build/ci in shop: view of lamps.example.com",
            "User ann in shop: unknown of ",
            "User bob in shop: unknown of ",
            "User eve in shop: unknown of ",
            "User eve in shop: unknown of ",
        ];
        assert_eq!(rows(&rbac, false).0, expected);
    }
}
