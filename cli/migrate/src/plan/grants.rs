//! Bindings of users to the API roles of an extension, in place of roles that classic OLM generates for an OperatorGroup
//! (docs/design/migration.md#access-of-users). Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::group_role;
use crate::objects::{Binding, Csv, Key};

const API_VERSION: &str = "rbac.authorization.k8s.io/v1";

/// Bindings for the owned APIs of `csv`, one for each binding to a role of the OperatorGroup and each API role. `group` is
/// the namespace and the name of the OperatorGroup.
pub(super) fn grants(group: (&str, &str), bindings: &BTreeMap<Key, Binding>, csv: &Csv) -> Vec<Value> {
    let mut grants = Vec::new();
    for ((namespace, name), binding) in bindings {
        let Some(access) = group_role::access(group.0, group.1, &binding.role) else { continue };
        for (api, version) in &csv.apis {
            let role = format!("{api}-{version}-{access}");
            grants.push(grant(namespace, name, &role, &binding.subjects));
            // Reading the definition of an API is cluster-scoped, so a RoleBinding cannot grant it.
            if access == "view" && namespace.is_empty() {
                let role = format!("{api}-{version}-crdview");
                grants.push(grant(namespace, name, &role, &binding.subjects));
            }
        }
    }
    grants
}

fn grant(namespace: &str, binding: &str, role: &str, subjects: &[Value]) -> Value {
    let mut metadata = json!({"name": format!("{binding}:{role}")});
    let kind = if namespace.is_empty() {
        "ClusterRoleBinding"
    } else {
        metadata["namespace"] = json!(namespace);
        "RoleBinding"
    };
    json!({
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_binding_gets_the_roles_of_each_api() {
        let subjects = vec![json!({"kind": "User", "name": "ann"})];
        let binding = |(namespace, access)| {
            let role = group_role::name(namespace, "team", access);
            Binding { role, subjects: subjects.clone() }
        };
        let key = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        let bindings = BTreeMap::from([
            (key("", "all"), binding(("ops", "view"))),
            (key("shop", "ann"), binding(("ops", "edit"))),
            (key("shop", "eve"), binding(("other", "edit"))),
        ]);
        let api = |name: &str| (name.to_owned(), "v1".to_owned());
        let csv =
            Csv { apis: [api("lamps.lamp.example"), api("suns.lamp.example")].into(), ..Csv::default() };
        let grants = grants(("ops", "team"), &bindings, &csv);
        let rows: Vec<String> = grants
            .iter()
            .map(|grant| {
                format!("{} {}", grant["kind"].as_str().unwrap(), grant["metadata"]["name"].as_str().unwrap())
            })
            .collect();
        assert_eq!(
            rows,
            [
                "ClusterRoleBinding all:lamps.lamp.example-v1-view",
                "ClusterRoleBinding all:lamps.lamp.example-v1-crdview",
                "ClusterRoleBinding all:suns.lamp.example-v1-view",
                "ClusterRoleBinding all:suns.lamp.example-v1-crdview",
                "RoleBinding ann:lamps.lamp.example-v1-edit",
                "RoleBinding ann:suns.lamp.example-v1-edit",
            ]
        );
        assert_eq!(grants[4]["roleRef"]["name"], "lamps.lamp.example-v1-edit");
        assert_eq!(
            (&grants[4]["metadata"]["namespace"], &grants[4]["subjects"]),
            (&json!("shop"), &json!(subjects))
        );
    }
}
