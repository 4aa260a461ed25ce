//! Bindings of users to the API roles of an extension, in place of roles that classic OLM generates for an OperatorGroup
//! (docs/design/migration.md#access-of-users). Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::migrate::objects::{Binding, Csv, Key};

const API_VERSION: &str = "rbac.authorization.k8s.io/v1";
/// Access that the roles of an OperatorGroup give. API roles have the same suffixes.
const SUFFIXES: [&str; 3] = ["admin", "edit", "view"];

/// Bindings for the owned APIs of `csv`, one for each binding to a role of the OperatorGroup `group` and each API role.
pub(super) fn grants(group: &str, bindings: &BTreeMap<Key, Binding>, csv: &Csv) -> Vec<Value> {
    let mut grants = Vec::new();
    for ((namespace, name), binding) in bindings {
        let Some(access) = access(group, &binding.role) else { continue };
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

/// Access that a role of the OperatorGroup gives: `olm.og.<group>.<access>-<hash>`, in old versions
/// `<group>-<access>`.
fn access(group: &str, role: &str) -> Option<&'static str> {
    let of_group = |prefix: &str| role.strip_prefix(prefix)?.strip_prefix(group);
    let is = |suffix: &&str| {
        of_group("olm.og.")
            .and_then(|rest| rest.strip_prefix('.')?.strip_prefix(*suffix))
            .is_some_and(|rest| rest.strip_prefix('-').is_some_and(|hash| !hash.contains('.')))
            || of_group("").and_then(|rest| rest.strip_prefix('-')) == Some(suffix)
    };
    SUFFIXES.into_iter().find(is)
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
    fn access_is_read_from_the_name_of_the_role() {
        for (role, expected) in [
            ("olm.og.team.admin-4kQ", Some("admin")),
            ("olm.og.team.edit-4kQ", Some("edit")),
            ("olm.og.team.view-4kQ", Some("view")),
            ("team-view", Some("view")),
            ("olm.og.team.view", None),
            ("olm.og.team.viewer-4kQ", None),
            ("olm.og.team-b.view-4kQ", None),
            ("olm.og.tea.view-4kQ", None),
            ("olm.og.team.b.view-4kQ", None),
            ("team-viewer", None),
            ("view", None),
        ] {
            assert_eq!(access("team", role), expected, "{role}");
        }
    }

    #[test]
    fn each_binding_gets_the_roles_of_each_api() {
        let subjects = vec![json!({"kind": "User", "name": "ann"})];
        let binding = |role: &str| Binding { role: role.to_owned(), subjects: subjects.clone() };
        let key = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        let bindings = BTreeMap::from([
            (key("", "all"), binding("olm.og.team.view-1")),
            (key("shop", "ann"), binding("olm.og.team.edit-1")),
            (key("shop", "eve"), binding("olm.og.other.edit-1")),
        ]);
        let api = |name: &str| (name.to_owned(), "v1".to_owned());
        let csv =
            Csv { apis: [api("lamps.lamp.example"), api("suns.lamp.example")].into(), ..Csv::default() };
        let grants = grants("team", &bindings, &csv);
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
