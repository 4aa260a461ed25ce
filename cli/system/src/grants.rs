//! Grants that the extensions of a running installation need before `hardened.yaml` takes wider rights away
//! (docs/design/operations.md#hardened-rights).

use std::collections::BTreeSet;

use kube::ResourceExt;
use olm_api::ClusterObjectSet;
use olm_bundle::rights::{Rights, Rule};
use olm_cli_core::error::CliError;
use olm_cli_core::object_access::{ObjectAccess, ObjectId};
use olm_cli_lifecycle::hardened::{self, AGGREGATION_LABEL, NAMESPACED_ROLE, namespaced_binding};
use olm_cli_lifecycle::status::observe::stored;
use olm_revision::content;
use serde_json::Value;

use super::check::{Check, Level};
use super::manifest::Manifest;
use super::observe::Installed;

const CLUSTER_ROLE: (&str, &str) = ("rbac.authorization.k8s.io/v1", "ClusterRole");

/// Grants that are missing, and what they do not cover.
#[derive(Debug, Default)]
pub(super) struct MissingGrants {
    /// RoleBindings in the namespaces of all extensions.
    pub(super) bindings: Vec<Value>,
    /// Extensions with further rights.
    pub(super) check: Option<Check>,
}

/// Grants for the extensions of the cluster, if the install file grants rights by namespace and the cluster does not yet.
///
/// # Errors
/// The API server does not answer, or denies access.
pub(super) async fn missing(
    access: &ObjectAccess<'_>,
    manifest: &Manifest,
    installed: &Installed,
) -> Result<MissingGrants, CliError> {
    let narrows = manifest.of_kind(CLUSTER_ROLE.1).any(|role| role["metadata"]["name"] == NAMESPACED_ROLE);
    let role = ObjectId::new(CLUSTER_ROLE, "", NAMESPACED_ROLE);
    if !narrows || installed.deployments.is_empty() || access.get(&role).await?.is_some() {
        return Ok(MissingGrants::default());
    }
    let (cluster, session) = (access.cluster(), access.session());
    let labels = format!("{AGGREGATION_LABEL}=true,app.kubernetes.io/part-of!=olm");
    let added = access.list(CLUSTER_ROLE, "", Some(&labels)).await?;
    let added: Vec<Rule> = added.iter().flat_map(hardened::rules).collect();
    let extensions = cluster.extensions(session).await?;
    let mut namespaces: BTreeSet<String> = extensions.iter().flat_map(hardened::namespaces).collect();
    let mut unheld = BTreeSet::new();
    for set in cluster.object_sets(session).await?.iter().filter(|set| set.is_active()) {
        let objects: Vec<Value> = match stored(cluster, set).await {
            Ok(phases) => content::objects(&phases).cloned().collect(),
            Err(_) => Vec::new(),
        };
        session.check()?;
        if objects.is_empty() || exceeds(&objects, &added, cluster.namespace()) {
            unheld.insert(name(set));
        }
        namespaces.extend(objects.iter().filter_map(namespace));
    }
    let mut bindings = Vec::new();
    for binding in
        namespaces.iter().filter_map(|namespace| namespaced_binding(namespace, cluster.namespace()))
    {
        let namespace = binding["metadata"]["namespace"].as_str().unwrap_or_default();
        let found = access.get(&ObjectId::new(("v1", "Namespace"), "", namespace)).await?;
        if found.is_some_and(|found| found["metadata"]["deletionTimestamp"].is_null()) {
            bindings.push(binding);
        }
    }
    Ok(MissingGrants { bindings, check: (!unheld.is_empty()).then(|| check(&unheld)) })
}

/// Reports whether objects need more than the RoleBindings and the ClusterRoles of an administrator grant.
fn exceeds(objects: &[Value], added: &[Rule], system: &str) -> bool {
    let is_added = |rule: &Rule| rule.rights().all(|right| added.iter().any(|rule| rule.allows(&right)));
    let granted = Rights::of(objects).granted;
    let elsewhere = |namespace: String| namespaced_binding(&namespace, system).is_none();
    !granted.get(&None).is_none_or(|rules| rules.iter().all(is_added))
        || objects.iter().filter_map(namespace).any(elsewhere)
}

fn namespace(object: &Value) -> Option<String> {
    let namespace = object["metadata"]["namespace"].as_str()?;
    (!namespace.is_empty()).then(|| namespace.to_owned())
}

/// Name of the extension of a revision, or of the revision without one.
fn name(set: &ClusterObjectSet) -> String {
    olm_request::owner(set).map_or_else(|| set.name_any(), str::to_owned)
}

fn check(extensions: &BTreeSet<String>) -> Check {
    let names: Vec<&str> = extensions.iter().map(String::as_str).collect();
    let message = format!(
        "{} may need rights that only this install file no longer grants. What exists is kept. Grant them before the next \
         upgrade of each: olm rbac required --extension NAME --operator-controller | kubectl apply -f -",
        names.join(", ")
    );
    Check::new("extensions", Level::Warning, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cluster_wide_rights_of_no_administrator_and_reserved_namespaces_exceed() {
        let rule = json!({"apiGroups": ["a.b"], "resources": ["lamps"], "verbs": ["get", "list"]});
        let of = |kind: &str, namespace: &str| {
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
                "metadata": {"name": "x", "namespace": namespace}, "rules": [rule]})
        };
        let all = Rule::of(&json!({"apiGroups": ["a.b"], "resources": ["*"], "verbs": ["*"]}));
        for (object, added, expected) in [
            (of("ClusterRole", ""), vec![], true),
            (of("ClusterRole", ""), vec![all], false),
            (of("Role", "apps"), vec![], false),
            (of("Role", "kube-system"), vec![], true),
            (of("Role", "my-olm"), vec![], true),
        ] {
            assert_eq!(exceeds(std::slice::from_ref(&object), &added, "my-olm"), expected, "{object}");
        }
    }
}
