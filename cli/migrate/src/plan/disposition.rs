//! What becomes of each object: adopted, created, removed or left (docs/design/migration.md#objects-of-a-plan). Pure.

use std::collections::{BTreeMap, BTreeSet};

use olm_cli_core::object_access::ObjectId;
use olm_plan::objects::{self, ObjectChange, ObjectName};
use olm_revision::plan::controller;
use serde_json::Value;

use super::model::{Reasoned, Restart};
use crate::objects::CLASSIC;

/// Label with the name of the owning ClusterServiceVersion.
pub(super) const OWNER: &str = "olm.owner";
const OWNER_NAMESPACE: &str = "olm.owner.namespace";
/// Label with the namespace of the original, on copies in watched namespaces.
pub(super) const COPIED_FROM: &str = "olm.copiedFrom";
/// Annotation with the hash of a CA, on the Secret of a serving certificate.
const CA_HASH: &str = "olmcahash";
/// Annotation with the ServiceAccount of a token Secret.
const TOKEN_OF: &str = "kubernetes.io/service-account.name";
const RBAC: &str = "rbac.authorization.k8s.io";

/// Identity of a ClusterServiceVersion.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
}

/// Objects by what becomes of them, sorted.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Disposition {
    pub(super) adopted: Vec<ObjectId>,
    pub(super) created: Vec<ObjectId>,
    pub(super) removed: Vec<Reasoned>,
    pub(super) left: Vec<Reasoned>,
}

impl Owner<'_> {
    /// Reports whether classic OLM made `object` for the ClusterServiceVersion: by an owner reference to it or to its
    /// OperatorCondition, or by a label.
    pub(super) fn owns(&self, object: &Value) -> bool {
        let references = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let is_owner = |reference: &Value| {
            reference["uid"] == self.uid || (is_condition(reference) && reference["name"] == self.name)
        };
        let is_here = object["metadata"]["namespace"] == self.namespace;
        // A reference without namespace is one to an object of the same namespace.
        let is_referenced = is_here && references.into_iter().any(is_owner);
        let label = |key: &str| object["metadata"]["labels"][key].as_str();
        is_referenced
            || (label(OWNER) == Some(self.name)
                && (label(OWNER_NAMESPACE) == Some(self.namespace)
                    || label(COPIED_FROM) == Some(self.namespace)))
    }

    /// Reports whether `object` is a copy of the ClusterServiceVersion.
    pub(super) fn is_copied_to(&self, object: &Value) -> bool {
        let copied_from = object["metadata"]["labels"][COPIED_FROM].as_str();
        object["metadata"]["name"] == self.name && copied_from == Some(self.namespace)
    }
}

fn is_condition(reference: &Value) -> bool {
    is_classic(reference) && reference["kind"] == "OperatorCondition"
}

/// Reports whether an object or a reference is of a kind of classic OLM.
fn is_classic(object: &Value) -> bool {
    object["apiVersion"]
        .as_str()
        .and_then(|version| version.split_once('/'))
        .is_some_and(|(group, _)| group == CLASSIC)
}

/// Sorts objects: those of the bundle (`rendered`), of which `live` exist, and those that classic OLM made (`owned`).
///
/// # Errors
/// Objects of the bundle that belong to another controller.
pub(super) fn dispose(
    rendered: &[Value],
    live: &BTreeMap<ObjectName, Value>,
    owned: &[Value],
) -> Result<Disposition, Vec<String>> {
    let mut found = Disposition::default();
    let mut collisions = Vec::new();
    let rendered = objects::by_name(rendered);
    for (name, object) in &rendered {
        match live.get(name) {
            None => found.created.push(ObjectId { uid: String::new(), ..ObjectId::of(object) }),
            Some(live) => {
                let foreign = controller(live).filter(|reference| !is_classic(reference));
                let text =
                    |reference: &Value, field: &str| reference[field].as_str().unwrap_or_default().to_owned();
                collisions.extend(foreign.map(|owner| {
                    format!("{name} is controlled by {} {}", text(owner, "kind"), text(owner, "name"))
                }));
                found.adopted.push(ObjectId::of(live));
            }
        }
    }
    let accounts: BTreeSet<(&str, &str)> = rendered
        .keys()
        .filter(|name| name.kind == "ServiceAccount")
        .map(|name| (name.namespace.as_str(), name.name.as_str()))
        .collect();
    let mut seen = BTreeSet::new();
    for object in owned {
        if rendered.contains_key(&ObjectName::of(object)) || !seen.insert(ObjectName::of(object)) {
            continue;
        }
        let (is_removed, reason) = fate(object, &accounts);
        let object = Reasoned { object: ObjectId::of(object), reason: reason.to_owned() };
        if is_removed { found.removed.push(object) } else { found.left.push(object) }
    }
    found.adopted.sort();
    found.created.sort();
    found.removed.sort();
    found.left.sort();
    if collisions.is_empty() { Ok(found) } else { Err(collisions) }
}

/// Returns `true` if an object of classic OLM that the bundle does not have is removed, and the reason.
fn fate(object: &Value, accounts: &BTreeSet<(&str, &str)>) -> (bool, &'static str) {
    let metadata = &object["metadata"];
    let group =
        object["apiVersion"].as_str().and_then(|version| version.split_once('/')).unwrap_or_default().0;
    let has_owner_label = metadata["labels"].get(OWNER).is_some();
    let is_of_condition =
        metadata["ownerReferences"].as_array().is_some_and(|references| references.iter().any(is_condition));
    let text =
        |value: &'static str, pointer: &str| object.pointer(pointer).and_then(Value::as_str) == Some(value);
    let account = metadata["annotations"][TOKEN_OF].as_str();
    let is_token = account.is_some_and(|account| {
        accounts.contains(&(metadata["namespace"].as_str().unwrap_or_default(), account))
    });
    match (group, object["kind"].as_str().unwrap_or_default()) {
        (CLASSIC, "ClusterServiceVersion") => {
            (true, "copy of the ClusterServiceVersion in a watched namespace")
        }
        (CLASSIC, "InstallPlan") => (true, "record of an installation by classic OLM"),
        (CLASSIC, "Operator") => (true, "list of the components that classic OLM labels"),
        (CLASSIC, "OperatorCondition") => (false, "the pods have its name until the next upgrade"),
        (RBAC, _) if is_of_condition => (false, "permissions on the OperatorCondition"),
        (RBAC, _) if has_owner_label => (true, "generated permissions: the extension has its own"),
        (RBAC, _) if is_of_certificate(object) => (true, "generated permissions of a webhook or API server"),
        ("admissionregistration.k8s.io", _) => (true, "the extension has its own, with a stable name"),
        ("", "Secret") if metadata["annotations"].get(CA_HASH).is_some() => {
            (false, "serving certificate: the certificate provider of the extension takes it over")
        }
        ("", "Secret") if is_token => (false, "token of an adopted ServiceAccount"),
        ("", "ServiceAccount") if text("default", "/metadata/name") => (false, "exists in every namespace"),
        _ => (false, "not an object of the bundle: loses its classic owner only"),
    }
}

/// Reports whether classic OLM made the role or binding for a serving certificate.
fn is_of_certificate(object: &Value) -> bool {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let suffixes = ["-service-cert", "-service-auth-reader", "-service-system:auth-delegator"];
    suffixes.iter().any(|suffix| name.ends_with(suffix))
}

/// Names of the bindings that classic OLM makes outside of the namespace for a serving certificate with this Secret:
/// RoleBinding in `kube-system`, and ClusterRoleBinding. `None` for another object.
pub(super) fn delegation(secret: &Value) -> Option<(String, String)> {
    let is_certificate =
        secret["kind"] == "Secret" && secret["metadata"]["annotations"].get(CA_HASH).is_some();
    let service = secret["metadata"]["name"].as_str()?.strip_suffix("-cert").filter(|_| is_certificate)?;
    Some((format!("{service}-auth-reader"), format!("{service}-system:auth-delegator")))
}

/// Reports whether a Secret has a token of a ServiceAccount of the bundle.
pub(super) fn is_token_of(secret: &Value, rendered: &[Value]) -> bool {
    let metadata = &secret["metadata"];
    let account = metadata["annotations"].get(TOKEN_OF);
    let is_it = |object: &Value| {
        object["kind"] == "ServiceAccount"
            && Some(&object["metadata"]["name"]) == account
            && object["metadata"]["namespace"] == metadata["namespace"]
    };
    secret["kind"] == "Secret" && rendered.iter().any(is_it)
}

/// Deployments among the changed objects whose pod template differs.
pub(super) fn restarts(changes: &[ObjectChange], live: &BTreeMap<ObjectName, Value>) -> Vec<Restart> {
    let is_template = |path: &str| path == "spec.template" || path.starts_with("spec.template.");
    let of_change = |change: &ObjectChange| {
        let deployment = live.get(&change.object).filter(|_| change.object.kind == "Deployment")?;
        let fields: Vec<String> =
            change.fields.iter().map(|field| field.path.clone()).filter(|path| is_template(path)).collect();
        let reason = cause(&fields)?.to_owned();
        Some(Restart { object: ObjectId::of(deployment), fields, reason })
    };
    changes.iter().filter_map(of_change).collect()
}

/// Cause of a changed pod template. `None` without changed fields.
fn cause(fields: &[String]) -> Option<&'static str> {
    let any = |part: &str| fields.iter().any(|field| field.contains(part));
    Some(if fields.is_empty() {
        return None;
    } else if any("webhook-cert") || any("apiservice-cert") {
        "the certificates of webhooks are mounted differently"
    } else if fields.iter().all(|field| field.ends_with("[\"olm.targetNamespaces\"]")) {
        "the list of watched namespaces is written differently"
    } else {
        "the bundle has another pod template than the one that runs"
    })
}

#[cfg(test)]
#[path = "disposition_tests.rs"]
mod tests;
