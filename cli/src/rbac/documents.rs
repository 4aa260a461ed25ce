//! Rendering of permissions as roles for `kubectl apply`, or as a table. Pure.

use olm_bundle::rights::{Rule, Scoped};
use serde_json::{Value, json};

use crate::output::Table;

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

/// One row per rule. `*` stands for the whole cluster.
pub(super) fn table(rights: &Scoped) -> String {
    let mut table = Table::new(&["NAMESPACE", "API GROUP", "RESOURCES", "NAMES", "VERBS"]);
    for (scope, rules) in rights {
        for Rule { api_groups, resources, resource_names, non_resource_urls, verbs } in rules {
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
