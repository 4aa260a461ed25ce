//! ServiceAccounts, roles and bindings (docs/design/bundles.md#serviceaccounts,
//! docs/design/bundles.md#clusterroles).

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::csv::{Csv, DEFAULT_ACCOUNT, Permission};
use crate::install_modes::Targets;
use crate::names;

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// One ServiceAccount per name in the permissions, except `default`, which exists in every namespace.
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

/// Role and RoleBinding for each permission in each watched namespace. Empty if all namespaces are watched.
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

/// ClusterRole and ClusterRoleBinding for each cluster permission. If all namespaces are watched, also for each
/// permission, with additional read access to namespaces.
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
