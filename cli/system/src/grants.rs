//! Grants that the extensions of a running installation need before `hardened.yaml` takes wider rights away
//! (docs/design/operations.md#hardened-rights).

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use olm_api::ClusterObjectSet;
use olm_bundle::pointer::{list, texts};
use olm_bundle::rights::{RbacRule, Rights};
use olm_cli_core::error::CliError;
use olm_cli_core::object_access::{ObjectAccess, ObjectId};
use olm_cli_lifecycle::hardened::{self, AGGREGATION_LABEL, NAMESPACED_ROLE, namespaced_binding};
use olm_cli_lifecycle::status::observe::stored;
use olm_revision::content;
use serde_json::{Value, json};

use super::check::{Check, Level};
use super::manifest::Manifest;
use super::observe::Installed;

const CLUSTER_ROLE: (&str, &str) = ("rbac.authorization.k8s.io/v1", "ClusterRole");

/// Grants that are missing, and what they do not cover.
#[derive(Debug, Default)]
pub(super) struct MissingGrants {
    /// RoleBindings in the namespaces of all extensions.
    pub(super) bindings: Vec<Value>,
    /// Extensions with further rights, and objects that the policies of the file limit.
    pub(super) checks: Vec<Check>,
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
    let added: Vec<RbacRule> = added.iter().flat_map(hardened::rules).collect();
    let extensions = cluster.extensions(session).await?;
    let mut namespaces: BTreeSet<String> = extensions.iter().flat_map(hardened::namespaces).collect();
    let (mut unheld, mut limited) = (BTreeSet::new(), Exceptions::new());
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
        for (key, value) in objects.iter().filter_map(exception) {
            limited.entry(key).or_default().insert(value);
        }
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
    let unheld = (!unheld.is_empty()).then(|| check(&unheld));
    let limited = (!limited.is_empty()).then(|| limits(&limited, cluster.namespace()));
    Ok(MissingGrants { bindings, checks: unheld.into_iter().chain(limited).collect() })
}

/// Reports whether objects need more than the RoleBindings and the ClusterRoles of an administrator grant.
fn exceeds(objects: &[Value], added: &[RbacRule], system: &str) -> bool {
    let is_added = |rule: &RbacRule| rule.rights().all(|right| added.iter().any(|rule| rule.allows(&right)));
    let granted = Rights::of(objects).granted;
    let elsewhere = |namespace: String| namespaced_binding(&namespace, system).is_none();
    !granted.get(&None).is_none_or(|rules| rules.iter().all(is_added))
        || objects.iter().filter_map(namespace).any(elsewhere)
}

/// Values of ConfigMap `operator-controller-exceptions`, by key.
type Exceptions = BTreeMap<&'static str, BTreeSet<String>>;

/// Key and value without which the policies of `hardened.yaml` deny operator-controller to create the object and to
/// change its rules.
fn exception(object: &Value) -> Option<(&'static str, String)> {
    let name = object["metadata"]["name"].as_str()?.to_owned();
    match object["kind"].as_str()? {
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            let of_kubernetes = |group: &str| !group.contains('.') || group.ends_with(".k8s.io");
            let mut rules = list(object, "/webhooks").iter().flat_map(|webhook| list(webhook, "/rules"));
            rules.any(|rule| texts(rule, "/apiGroups").any(of_kubernetes)).then_some(("webhooks", name))
        }
        "ClusterRole" => {
            let is_group = |group: &str| ["*", "admissionregistration.k8s.io"].contains(&group);
            let is_webhook = |resource: &str| resource == "*" || resource.ends_with("webhookconfigurations");
            let writes = |verb: &str| !["get", "list", "watch"].contains(&verb);
            let is_limited = |rule: &Value| {
                texts(rule, "/apiGroups").any(is_group)
                    && texts(rule, "/resources").any(is_webhook)
                    && texts(rule, "/verbs").any(writes)
            };
            list(object, "/rules").iter().any(is_limited).then_some(("cluster-roles", name))
        }
        "Secret" if object["type"] == "kubernetes.io/service-account-token" => {
            Some(("token-secrets", format!("{}/{name}", namespace(object)?)))
        }
        _ => None,
    }
}

/// Warns of objects that operator-controller can then neither create again nor change.
fn limits(exceptions: &Exceptions, system: &str) -> Check {
    let joined = |values: &BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>().join(",");
    let data: BTreeMap<_, _> = exceptions.iter().map(|(key, values)| (*key, joined(values))).collect();
    let message = format!(
        "the policies of this install file prevent operator-controller from recreating these objects and from changing \
         their rules. Existing objects are kept. Permit the objects after the upgrade: kubectl -n {system} patch \
         configmap operator-controller-exceptions --type merge -p '{}'",
        json!({ "data": data })
    );
    Check::new("objects", Level::Warning, message)
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
        "{} may need permissions that this install file no longer grants. Existing objects are kept. Grant the \
         permissions before the next upgrade of each extension: olm rbac required --extension NAME \
         --operator-controller | kubectl apply -f -",
        names.join(", ")
    );
    Check::new("extensions", Level::Warning, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_wide_rights_of_no_administrator_and_reserved_namespaces_exceed() {
        let rule = json!({"apiGroups": ["a.b"], "resources": ["lamps"], "verbs": ["get", "list"]});
        let of = |kind: &str, namespace: &str| {
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
                "metadata": {"name": "x", "namespace": namespace}, "rules": [rule]})
        };
        let all = RbacRule::of(&json!({"apiGroups": ["a.b"], "resources": ["*"], "verbs": ["*"]}));
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

    #[test]
    fn objects_that_the_policies_limit_are_listed_with_their_key() {
        let webhooks = |group: &str| {
            let rules = json!([{"apiGroups": ["a.b", group]}]);
            json!({"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "x"}, "webhooks": [{}, {"rules": rules}]})
        };
        let role = |group: &str, resource: &str, verb: &str| {
            let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": ["get", verb]});
            json!({"kind": "ClusterRole", "metadata": {"name": "x"}, "rules": [rule]})
        };
        let secret = |kind: &str| json!({"kind": "Secret", "metadata": {"name": "x", "namespace": "apps"}, "type": kind});
        let admission = "admissionregistration.k8s.io";
        for (object, expected) in [
            (webhooks("a.b"), None),
            (webhooks("apps"), Some(("webhooks", "x"))),
            (webhooks("*"), Some(("webhooks", "x"))),
            (webhooks("rbac.authorization.k8s.io"), Some(("webhooks", "x"))),
            (role(admission, "mutatingwebhookconfigurations", "patch"), Some(("cluster-roles", "x"))),
            (role("*", "*", "*"), Some(("cluster-roles", "x"))),
            (role(admission, "validatingwebhookconfigurations", "list"), None),
            (role(admission, "validatingadmissionpolicies", "patch"), None),
            (role("a.b", "*", "*"), None),
            (secret("kubernetes.io/service-account-token"), Some(("token-secrets", "apps/x"))),
            (secret("Opaque"), None),
        ] {
            let found = exception(&object);
            assert_eq!(found.as_ref().map(|(key, value)| (*key, value.as_str())), expected, "{object}");
        }
        let values = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let message = limits(&Exceptions::from([("webhooks", values)]), "my-olm").message;
        let command = r#"kubectl -n my-olm patch configmap operator-controller-exceptions --type merge -p '{"data":{"webhooks":"a,b"}}'"#;
        assert!(message.ends_with(command), "{message}");
    }
}
