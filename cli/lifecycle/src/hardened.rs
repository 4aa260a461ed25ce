//! Rights of operator-controller with `hardened.yaml`, which lets it write objects of extensions only in namespaces with
//! a RoleBinding (docs/design/operations.md#hardened-rights). Other install files need none.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::{ClusterRole, RoleBinding};
use kube::api::{Api, PostParams};
use olm_api::ClusterExtension;
use olm_bundle::rights::RbacRule;
use olm_cli_core::change::{self, DryRun, FIELD_MANAGER, WriteResult, WrittenObject};
use olm_cli_core::error::CliError;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use olm_runtime::Component;
use olm_version::quote;
use serde_json::{Value, json};

use crate::install_files::Variant;

/// ClusterRole with the rights in a namespace of extensions.
pub const NAMESPACED_ROLE: &str = "operator-controller-content-namespaced";
/// Label of the ClusterRoles that extend the rights of operator-controller in the whole cluster.
pub const AGGREGATION_LABEL: &str = "ext.olm.operatorframework.io/aggregate-to-operator-controller";
const BINDING: &str = "operator-controller-content";

/// RoleBinding `name` of a role to operator-controller, whose namespace is `system`.
pub(crate) fn binding(namespace: &str, name: &str, kind: &str, role: &str, system: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    let account = Component::OperatorController.deployment_name();
    json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": system}],
    })
}

/// RoleBinding of [`NAMESPACED_ROLE`]. `None` for the namespaces of the cluster and of OLM.
pub fn namespaced_binding(namespace: &str, system: &str) -> Option<Value> {
    let is_grantable = !namespace.is_empty() && !namespace.starts_with("kube-") && namespace != system;
    is_grantable.then(|| binding(namespace, BINDING, "ClusterRole", NAMESPACED_ROLE, system))
}

/// Rules of operator-controller in a namespace with a RoleBinding, as in the install file of this program.
///
/// # Errors
/// The program was built with an invalid file.
pub(crate) fn namespaced_rules() -> Result<Vec<RbacRule>, CliError> {
    let file = Variant::Hardened;
    let objects = olm_yaml::all_from_slice(file.text()?.as_bytes());
    let objects = objects.map_err(|error| CliError::at(file.origin(), error))?;
    let mut roles = objects.iter().filter(|object| object["kind"] == "ClusterRole");
    Ok(roles.find(|role| role["metadata"]["name"] == NAMESPACED_ROLE).map(rules).unwrap_or_default())
}

/// Rules of a Role or ClusterRole.
pub fn rules(role: &Value) -> Vec<RbacRule> {
    role["rules"].as_array().into_iter().flatten().map(RbacRule::of).collect()
}

/// Namespaces that an extension names: where it is installed, and those that it watches.
pub fn namespaces(extension: &ClusterExtension) -> BTreeSet<String> {
    let Some(spec) = &extension.spec else { return BTreeSet::new() };
    let inline = spec.config.as_ref().and_then(|config| config.inline.as_ref());
    let field = |name: &str| inline.and_then(|inline| inline.get(name));
    let listed = field("watchNamespaces").and_then(Value::as_array).into_iter().flatten();
    let watched = field("watchNamespace").into_iter().chain(listed).filter_map(Value::as_str);
    watched.filter(|name| !name.is_empty()).chain([spec.namespace.as_str()]).map(str::to_owned).collect()
}

/// Creates the missing RoleBindings for an extension, if the cluster has the rights of `hardened.yaml`. Warns of a refused
/// one: the status of the extension then names the missing rights.
///
/// # Errors
/// A signal arrived.
pub async fn grant(
    cluster: &ClusterConnection,
    extension: &ClusterExtension,
    dry_run: Option<DryRun>,
    session: &Session,
) -> Result<Vec<WrittenObject>, CliError> {
    let roles: Api<ClusterRole> = Api::all(cluster.client().clone());
    let role = cluster.call("ClusterRoles", roles.get_metadata_opt(NAMESPACED_ROLE), session).await;
    session.check()?;
    // Users without access to ClusterRoles may not bind one either.
    let Ok(Some(_)) = role else { return Ok(Vec::new()) };
    let mut written = Vec::new();
    for namespace in namespaces(extension) {
        let Some(binding) = namespaced_binding(&namespace, cluster.namespace()) else { continue };
        let api: Api<RoleBinding> = Api::namespaced(cluster.client().clone(), &namespace);
        let what = format!("RoleBinding {BINDING} in namespace {}", quote(&namespace));
        let found = cluster.call(&what, api.get_metadata_opt(BINDING), session).await;
        session.check()?;
        if matches!(found, Ok(Some(_))) {
            continue;
        }
        if dry_run.is_none() {
            let parameters =
                PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..Default::default() };
            let object = serde_json::from_value(binding.clone())?;
            let created = api.create(&parameters, &object);
            if let Err(error) = change::call(&format!("create {what}"), created, session).await {
                session.check()?;
                say(&format!("warning: {error}; operator-controller cannot write there without it"));
                continue;
            }
        }
        written.push(WrittenObject::new(binding, WriteResult::Created, dry_run));
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_are_those_of_installation_and_watched_ones() {
        let of = |inline: Value| {
            let source = json!({"sourceType": "Catalog", "catalog": {"packageName": "lamp"}});
            let config = json!({"configType": "Inline", "inline": inline});
            let spec = json!({"namespace": "ns", "source": source, "config": config});
            let extension = json!({"metadata": {"name": "lamp"}, "spec": spec});
            namespaces(&serde_json::from_value(extension).unwrap()).into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of(json!({})), "ns");
        assert_eq!(of(json!({"watchNamespace": "apps"})), "apps ns");
        assert_eq!(of(json!({"watchNamespaces": ["b", "a"]})), "a b ns");
        assert_eq!(of(json!({"watchNamespace": ""})), "ns");
    }

    #[test]
    fn namespaces_of_cluster_and_olm_get_no_binding() {
        assert!(namespaced_binding("apps", "my-olm").is_some());
        for namespace in ["", "kube-system", "kube-flannel", "my-olm"] {
            assert!(namespaced_binding(namespace, "my-olm").is_none(), "{namespace}");
        }
    }

    #[test]
    fn embedded_file_has_the_rules_of_a_namespace() {
        let rules = namespaced_rules().unwrap();
        let write =
            RbacRule::of(&json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["patch"]}));
        assert!(write.rights().all(|right| rules.iter().any(|rule| rule.allows(&right))));
    }
}
