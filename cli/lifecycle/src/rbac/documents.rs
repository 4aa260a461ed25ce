//! Rendering of permissions as roles for `kubectl apply`, or as a table. Pure.

use olm_bundle::rights::{RbacRule, Scoped};
use olm_cli_core::output::Table;
use serde_json::{Value, json};

use crate::hardened::{AGGREGATION_LABEL, binding, namespaced_binding};

const API_VERSION: &str = "rbac.authorization.k8s.io/v1";

/// One role per scope. With a service account in `namespace`, also that account and a binding of each role to it. All
/// roles and bindings have the name `name`.
pub(super) fn documents(name: &str, rights: &Scoped, namespace: &str, account: Option<&str>) -> Vec<Value> {
    let mut documents = Vec::new();
    if let Some(account) = account {
        documents.push(json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": account, "namespace": namespace}}));
    }
    for (scope, rules) in rights {
        let (kind, metadata) = match scope {
            None => ("ClusterRole", json!({"name": name})),
            Some(namespace) => ("Role", json!({"name": name, "namespace": namespace})),
        };
        documents
            .push(json!({"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "rules": rules}));
        if let Some(account) = account {
            documents.push(
                json!({"apiVersion": API_VERSION, "kind": format!("{kind}Binding"), "metadata": metadata,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]}),
            );
        }
    }
    documents
}

/// Roles named `name` that operator-controller of `hardened.yaml` needs in addition to those of its install file: a labeled
/// ClusterRole, and in each namespace a RoleBinding of the ClusterRole with the rules `shipped`, and a Role with the others.
/// `system` is the namespace of operator-controller.
pub(super) fn additions(name: &str, rights: &Scoped, shipped: &[RbacRule], system: &str) -> Vec<Value> {
    let mut documents = Vec::new();
    for (scope, rules) in rights {
        let Some(namespace) = scope else {
            let metadata = json!({"name": name, "labels": {AGGREGATION_LABEL: "true"}});
            documents.push(json!({"apiVersion": API_VERSION, "kind": "ClusterRole", "metadata": metadata,
                "rules": rules}));
            continue;
        };
        let namespaced = namespaced_binding(namespace, system);
        let is_shipped = |rule: &&RbacRule| {
            namespaced.is_some() && rule.rights().all(|right| shipped.iter().any(|rule| rule.allows(&right)))
        };
        let rest: Vec<&RbacRule> = rules.iter().filter(|rule| !is_shipped(rule)).collect();
        documents.extend(namespaced.clone());
        if !rest.is_empty() {
            documents.push(json!({"apiVersion": API_VERSION, "kind": "Role",
                "metadata": {"name": name, "namespace": namespace}, "rules": rest}));
            documents.push(binding(namespace, name, "Role", name, system));
        }
    }
    documents
}

/// One row per rule. `*` stands for the whole cluster.
pub(super) fn table(rights: &Scoped) -> String {
    let mut table = Table::new(&["NAMESPACE", "API GROUP", "RESOURCES", "NAMES", "VERBS"]);
    for (scope, rules) in rights {
        for RbacRule { api_groups, resources, resource_names, non_resource_urls, verbs } in rules {
            let joined = |texts: &mut dyn Iterator<Item = &String>| {
                texts.map(String::as_str).collect::<Vec<_>>().join(",")
            };
            table.row([
                scope.clone().unwrap_or_else(|| "*".to_owned()),
                joined(&mut api_groups.iter()),
                joined(&mut resources.iter().chain(non_resource_urls)),
                joined(&mut resource_names.iter()),
                joined(&mut verbs.iter()),
            ]);
        }
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn additions_are_labeled_and_bound_to_operator_controller() {
        let rule = |resource: &str, verb: &str| {
            RbacRule::of(&json!({"apiGroups": [""], "resources": [resource], "verbs": [verb]}))
        };
        let scope = |namespace: &str| Some(namespace.to_owned());
        let rights = Scoped::from([
            (None, BTreeSet::from([rule("nodes", "get")])),
            (scope("apps"), BTreeSet::from([rule("secrets", "create"), rule("pods", "create")])),
            (scope("kube-system"), BTreeSet::from([rule("secrets", "create")])),
            (scope("quiet"), BTreeSet::from([rule("secrets", "create")])),
        ]);
        let documents = additions("lamp", &rights, &[rule("secrets", "create")], "my-olm");
        let line = |document: &Value| {
            let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let rules = document["rules"].as_array().map_or(0, Vec::len);
            let of =
                [text("/kind"), text("/metadata/namespace"), text("/metadata/name"), text("/roleRef/name")];
            format!("{} {rules}", of.join(" "))
        };
        let general = "operator-controller-content operator-controller-content-namespaced";
        assert_eq!(
            documents.iter().map(line).collect::<Vec<_>>(),
            [
                "ClusterRole  lamp  1".to_owned(),
                format!("RoleBinding apps {general} 0"),
                "Role apps lamp  1".to_owned(),
                "RoleBinding apps lamp lamp 0".to_owned(),
                "Role kube-system lamp  1".to_owned(),
                "RoleBinding kube-system lamp lamp 0".to_owned(),
                format!("RoleBinding quiet {general} 0"),
            ]
        );
        assert_eq!(documents[0]["metadata"]["labels"][AGGREGATION_LABEL], "true");
        assert_eq!(documents[2]["rules"][0]["resources"], json!(["pods"]));
        assert_eq!(documents[3]["subjects"][0]["namespace"], "my-olm");
    }
}
