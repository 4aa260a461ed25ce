//! ClusterRoles for the users of a bundle's APIs (docs/design/additions.md#api-roles).

use std::collections::BTreeSet;

use olm_version::names::is_dns_label;
use serde_json::{Value, json};

use crate::bundle::name_of;
use crate::csv::ApiService;
use crate::pointer::{list, text};
use crate::rbac::GROUP;

/// Verbs that read custom resources.
pub const VIEW: [&str; 3] = ["get", "list", "watch"];
/// Verbs that change custom resources.
pub const EDIT: [&str; 4] = ["create", "update", "patch", "delete"];
/// Verbs of an administrator of custom resources.
pub const ADMIN: [&str; 1] = ["*"];

/// Size of a role without names.
const ROLE_BYTES: usize = 512;

/// Four roles for each served version of each CRD, and three for each resource of an aggregated API. Those for
/// cluster-scoped custom resources are not aggregated, because the built-in roles are for namespaces. The scope of an
/// aggregated resource is unknown.
pub(crate) fn roles(crds: &[Value], owned: &[ApiService]) -> Vec<Value> {
    let crds = crds.iter().flat_map(|crd| served(crd).flat_map(|version| of_crd(crd, version)));
    crds.chain(aggregated(owned).flat_map(of_api_service)).collect()
}

/// Approximate size of all roles.
pub(crate) fn size(crds: &[Value], owned: &[ApiService]) -> usize {
    let of = |crd: &Value| {
        let versions = served(crd).map(|version| 4 * (ROLE_BYTES + version.len()));
        let names = 4 * served(crd).count() * 2 * name_of(crd).len();
        versions.sum::<usize>().saturating_add(names)
    };
    let crds = crds.iter().map(of).fold(0, usize::saturating_add);
    let services = aggregated(owned).map(|one| 3 * (ROLE_BYTES + 2 * (one.name.len() + one.group.len())));
    services.fold(crds, usize::saturating_add)
}

fn served(crd: &Value) -> impl Iterator<Item = &str> {
    let versions = list(crd, "/spec/versions").iter();
    versions.filter(|version| version["served"] == true).map(|version| text(version, "/name"))
}

/// Resources of aggregated APIs, each once. Without a valid name the resource is unknown.
fn aggregated(owned: &[ApiService]) -> impl Iterator<Item = &ApiService> {
    let mut seen = BTreeSet::new();
    owned
        .iter()
        .filter(move |one| is_dns_label(&one.name) && seen.insert((&one.name, &one.group, &one.version)))
}

fn of_crd(crd: &Value, version: &str) -> [Value; 4] {
    let name = name_of(crd);
    let (group, plural) = (text(crd, "/spec/group"), text(crd, "/spec/names/plural"));
    let is_namespaced = text(crd, "/spec/scope") == "Namespaced";
    let read = json!({"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
        "resourceNames": [name], "verbs": ["get"]});
    let [admin, edit, view] = of_resource(name, version, group, plural, is_namespaced);
    [admin, edit, view, cluster_role(&format!("{name}-{version}-crdview"), Some("view"), &read)]
}

fn of_api_service(service: &ApiService) -> [Value; 3] {
    let ApiService { name, group, version, .. } = service;
    of_resource(&format!("{name}.{group}"), version, group, name, true)
}

fn of_resource(name: &str, version: &str, group: &str, plural: &str, is_namespaced: bool) -> [Value; 3] {
    let role = |role: &str, verbs: &[&str]| {
        let rule = json!({"apiGroups": [group], "resources": [plural], "verbs": verbs});
        cluster_role(&format!("{name}-{version}-{role}"), is_namespaced.then_some(role), &rule)
    };
    [role("admin", &ADMIN), role("edit", &EDIT), role("view", &VIEW)]
}

/// Role with one rule. `into` is the built-in role that aggregates it.
fn cluster_role(name: &str, into: Option<&str>, rule: &Value) -> Value {
    let mut role = json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [rule],
    });
    if let Some(into) = into {
        role["metadata"]["labels"] = json!({format!("{GROUP}/aggregate-to-{into}"): "true"});
    }
    role
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crd(scope: &str, versions: &[(&str, bool)]) -> Value {
        let versions: Vec<Value> =
            versions.iter().map(|(name, served)| json!({"name": name, "served": served})).collect();
        json!({"metadata": {"name": "lamps.example.com"}, "spec": {"group": "example.com", "scope": scope,
            "names": {"plural": "lamps", "kind": "Lamp"}, "versions": versions}})
    }

    fn label(role: &Value) -> Option<&str> {
        let labels = role.pointer("/metadata/labels")?.as_object()?;
        assert!(labels.values().all(|value| value == "true"));
        labels.keys().next()?.strip_prefix("rbac.authorization.k8s.io/aggregate-to-")
    }

    // Case additions-r01
    #[test]
    fn served_versions_get_four_aggregated_roles_each() {
        let roles = roles(&[crd("Namespaced", &[("v1", true), ("v1beta1", true), ("v1alpha1", false)])], &[]);
        let rows: Vec<(&str, Option<&str>, &Value)> =
            roles.iter().map(|role| (name_of(role), label(role), &role["rules"])).collect();
        let on =
            |verbs: &[&str]| json!([{"apiGroups": ["example.com"], "resources": ["lamps"], "verbs": verbs}]);
        let crd = json!([{"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
            "resourceNames": ["lamps.example.com"], "verbs": ["get"]}]);
        let rules =
            [on(&["*"]), on(&["create", "update", "patch", "delete"]), on(&["get", "list", "watch"]), crd];
        let expected = [
            ("lamps.example.com-v1-admin", Some("admin"), &rules[0]),
            ("lamps.example.com-v1-edit", Some("edit"), &rules[1]),
            ("lamps.example.com-v1-view", Some("view"), &rules[2]),
            ("lamps.example.com-v1-crdview", Some("view"), &rules[3]),
            ("lamps.example.com-v1beta1-admin", Some("admin"), &rules[0]),
            ("lamps.example.com-v1beta1-edit", Some("edit"), &rules[1]),
            ("lamps.example.com-v1beta1-view", Some("view"), &rules[2]),
            ("lamps.example.com-v1beta1-crdview", Some("view"), &rules[3]),
        ];
        assert_eq!(rows, expected);
    }

    // Case additions-r02
    #[test]
    fn roles_of_cluster_scoped_resources_are_not_aggregated() {
        let roles = roles(&[crd("Cluster", &[("v1", true)])], &[]);
        let labels: Vec<Option<&str>> = roles.iter().map(label).collect();
        assert_eq!(labels, [None, None, None, Some("view")]);
    }

    #[test]
    fn resources_of_aggregated_apis_get_three_roles_each() {
        let owned = |name: &str| ApiService {
            name: name.to_owned(),
            group: "sky.example.com".to_owned(),
            version: "v1".to_owned(),
            ..ApiService::default()
        };
        let roles = roles(&[], &[owned("stars"), owned("stars"), owned(""), owned("a b")]);
        let rows: Vec<(&str, Option<&str>)> = roles.iter().map(|role| (name_of(role), label(role))).collect();
        let expected = [
            ("stars.sky.example.com-v1-admin", Some("admin")),
            ("stars.sky.example.com-v1-edit", Some("edit")),
            ("stars.sky.example.com-v1-view", Some("view")),
        ];
        assert_eq!(rows, expected);
        let view = json!([{"apiGroups": ["sky.example.com"], "resources": ["stars"], "verbs": VIEW}]);
        assert_eq!(roles[2]["rules"], view);
    }

    #[test]
    fn size_covers_all_roles() {
        let crds = [crd("Namespaced", &[("v1", true), ("v2", true)])];
        let owned = [ApiService { name: "stars".to_owned(), ..ApiService::default() }];
        let rendered: usize = roles(&crds, &owned).iter().map(|role| role.to_string().len()).sum();
        assert!(size(&crds, &owned) >= rendered, "{} {rendered}", size(&crds, &owned));
        assert_eq!(size(&[crd("Namespaced", &[("v1", false)])], &[]), 0);
    }
}
