//! Service accounts, roles and bindings (docs/design/bundles.md#serviceaccounts, docs/design/bundles.md#clusterroles).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::csv::{Csv, DEFAULT_ACCOUNT, Permission};
use crate::names;
use crate::support::Targets;

const GROUP: &str = "rbac.authorization.k8s.io";

/// One account per name that a permission uses; `default` exists in every namespace.
pub(crate) fn service_accounts(csv: &Csv, install_namespace: &str) -> Vec<Value> {
    let strategy = &csv.spec.install.spec;
    let permissions = strategy.permissions.iter().chain(&strategy.cluster_permissions);
    let names: BTreeSet<&str> = permissions.map(Permission::account).collect();
    let account = |name: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": install_namespace},
        })
    };
    names.into_iter().filter(|name| *name != DEFAULT_ACCOUNT).map(account).collect()
}

/// A role and a binding for each permission in each watched namespace; none when all are watched.
pub(crate) fn roles(csv: &Csv, targets: &Targets, install_namespace: &str) -> Vec<Value> {
    let Targets::Namespaces(namespaces) = targets else {
        return Vec::new();
    };
    let permissions = &csv.spec.install.spec.permissions;
    let pair = |namespace: &str, permission: &Permission| {
        let metadata = json!({"name": names::role(&csv.metadata.name, permission), "namespace": namespace});
        role_and_binding("Role", &metadata, permission, install_namespace)
    };
    namespaces
        .iter()
        .flat_map(|namespace| permissions.iter().flat_map(move |entry| pair(namespace, entry)))
        .collect()
}

/// A cluster role and a binding for each cluster permission, and for each permission when all namespaces are
/// watched. The latter may read namespaces as well.
pub(crate) fn cluster_roles(csv: &Csv, targets: &Targets, install_namespace: &str) -> Vec<Value> {
    let strategy = &csv.spec.install.spec;
    let mut entries = strategy.cluster_permissions.clone();
    if *targets == Targets::All {
        entries.extend(strategy.permissions.iter().cloned().map(|mut permission| {
            let rules = permission.rules.get_or_insert_default();
            rules.push(
                json!({"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["namespaces"]}),
            );
            permission
        }));
    }
    let pair = |permission: &Permission| {
        let metadata = json!({"name": names::role(&csv.metadata.name, permission)});
        role_and_binding("ClusterRole", &metadata, permission, install_namespace)
    };
    entries.iter().flat_map(pair).collect()
}

fn role_and_binding(
    kind: &str,
    metadata: &Value,
    permission: &Permission,
    install_namespace: &str,
) -> [Value; 2] {
    let api_version = format!("{GROUP}/v1");
    let role = json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": metadata,
        "rules": permission.rules,
    });
    let binding = json!({
        "apiVersion": api_version,
        "kind": format!("{kind}Binding"),
        "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": metadata["name"]},
        "subjects": [
            {"kind": "ServiceAccount", "name": permission.account(), "namespace": install_namespace},
        ],
    });
    [role, binding]
}
