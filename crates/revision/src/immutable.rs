//! Changes of fields that the API server never changes: the remedy for users, and the replacement of objects without
//! data of their own (docs/design/apply.md#immutable-fields).
//!
//! Pure.

use kube::core::GroupVersionKind;
use kube::core::response::StatusCause;
use olm_api::annotations;
use serde_json::Value;

use crate::cluster::ClusterError;
use crate::object::{ObjectKey, gvk, text};

/// Parts of the API server's messages about immutable fields. It has no own reason for them.
const PHRASES: [&str; 6] = [
    "field is immutable",
    "cannot change roleRef",
    "may not change once set",
    "may not be changed in an update",
    "updates to statefulset spec for fields other than",
    "is immutable after creation",
];

/// Part of the message about a second PriorityClass with `globalDefault`, after the name of the first one.
const SECOND_DEFAULT: &str = " is already marked as default";

/// Kinds without data of their own, with the name of their resource.
const REPLACEABLE: [(&str, &str, &str); 7] = [
    ("apps", "Deployment", "deployment.apps"),
    ("apps", "DaemonSet", "daemonset.apps"),
    ("rbac.authorization.k8s.io", "RoleBinding", "rolebinding"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebinding"),
    ("", "Service", "service"),
    ("batch", "Job", "job.batch"),
    ("scheduling.k8s.io", "PriorityClass", "priorityclass"),
];

fn replaceable(gvk: &GroupVersionKind) -> Option<&'static str> {
    let found = REPLACEABLE.iter().find(|(group, kind, _)| gvk.group == *group && gvk.kind == *kind);
    found.map(|(_, _, resource)| *resource)
}

/// `true` if a rejected change concerns an immutable field.
pub(crate) fn is_violated(causes: &[StatusCause]) -> bool {
    causes.iter().any(|cause| PHRASES.iter().any(|phrase| cause.message.contains(phrase)))
}

/// `true` if deleting the object and creating it again loses nothing.
pub(crate) fn is_replaceable(object: &Value) -> bool {
    let gvk = gvk(object);
    let has_address_only = || ["", "ClusterIP"].contains(&text(object, "/spec/type"));
    replaceable(&gvk).is_some() && (gvk.kind != "Service" || has_address_only())
}

/// Name of a trial, which no object has.
const TRIAL: &str = "olm-dry-run-of-a-replacement";

/// Copy of `desired` under another name, whose dry run checks the creation while the existing object remains.
pub(crate) fn trial(desired: &Value) -> Value {
    let mut trial = desired.clone();
    trial["metadata"]["name"] = TRIAL.into();
    if let Some(class) = trial.as_object_mut().filter(|_| gvk(desired).kind == "PriorityClass") {
        // Only one can have it, perhaps the existing one.
        class.remove("globalDefault");
    }
    trial
}

/// The verdict on the trial of `desired`, with its name.
pub(crate) fn about_object(mut verdict: ClusterError, desired: &Value) -> ClusterError {
    verdict.message = verdict.message.replace(TRIAL, text(desired, "/metadata/name"));
    verdict
}

/// Remedies for the immutable fields that a condition of a revision names: one sentence for each object.
pub fn remedies(message: &str) -> Vec<String> {
    let keys: Vec<(usize, ObjectKey, usize)> =
        message.match_indices(", Kind=").filter_map(|(at, _)| key_at(message, at)).collect();
    let ends = keys.iter().skip(1).map(|(start, ..)| *start).chain([message.len()]);
    keys.iter()
        .zip(ends)
        .filter_map(|((_, key, start), end)| remedy(key, message.get(*start..end)?))
        .collect()
}

/// Key around `, Kind=` at `at`, as [`ObjectKey`] prints it, with its start and end.
fn key_at(message: &str, at: usize) -> Option<(usize, ObjectKey, usize)> {
    let start = message[..at].rfind(char::is_whitespace).map_or(0, |space| space + 1);
    let (group, version) = message[start..at].split_once('/')?;
    let rest = &message[at + ", Kind=".len()..];
    let length = rest.find(": ")?;
    let (kind, name) = rest[..length].split_once(' ')?;
    let (namespace, name) = name.split_once('/')?;
    let gvk = GroupVersionKind::gvk(group, version, kind);
    let key = ObjectKey { gvk, namespace: namespace.to_owned(), name: name.to_owned() };
    Some((start, key, message.len() - rest.len() + length))
}

fn remedy(key: &ObjectKey, verdict: &str) -> Option<String> {
    let ObjectKey { gvk, namespace, name } = key;
    let object = match namespace.as_str() {
        "" => format!("{} {name}", gvk.kind),
        _ => format!("{} {namespace}/{name}", gvk.kind),
    };
    if let Some((before, _)) = verdict.split_once(SECOND_DEFAULT) {
        let other = before.rsplit(' ').next().unwrap_or_default();
        return Some(format!(
            "{object}: globalDefault can be set in one PriorityClass only, and is set in {other}. Delete {other}, and \
             the new revision creates {name}: kubectl delete priorityclass {other}"
        ));
    }
    let at = PHRASES.iter().filter_map(|phrase| verdict.find(phrase)).min()?;
    let field =
        [": Invalid value:", ": Forbidden:"].iter().filter_map(|kind| verdict[..at].rfind(kind)).max();
    let field = field.and_then(|end| verdict[..end].rsplit(' ').next());
    let field = field.map_or("a field", |field| field.trim_start_matches('['));
    let Some(resource) = replaceable(gvk) else {
        return Some(format!(
            "{object}: {field} cannot be changed, and the object may hold data. Return to the previous version, or save \
             the data and delete the object, and the new revision creates it again"
        ));
    };
    let scope = if namespace.is_empty() { String::new() } else { format!(" -n {namespace}") };
    Some(format!(
        "{object}: {field} cannot be changed. Delete the object, and the new revision creates it again: kubectl delete \
         {resource} {name}{scope}. The annotation {}=Allow of the ClusterExtension permits this permanently",
        annotations::EXT_REPLACE_IMMUTABLE
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn remedy_names_object_field_and_command() {
        let phase = "phase 3 validation error: phase \"deploy\": ";
        let more = ". The annotation ext.olm.operatorframework.io/replace-immutable=Allow of the ClusterExtension \
                    permits this permanently";
        let delete = |subject: &str, command: &str| {
            format!(
                "{subject} cannot be changed. Delete the object, and the new revision creates it again: kubectl delete \
                 {command}{more}"
            )
        };
        let selector = "apps/v1, Kind=Deployment ns/op: Deployment.apps \"op\" is invalid: spec.selector: Invalid value: \
                        {\"matchLabels\":{\"a\":\"b\"}}: field is immutable";
        let role = "rbac.authorization.k8s.io/v1, Kind=ClusterRoleBinding /b: ClusterRoleBinding.rbac.authorization.k8s.io \
                    \"b\" is invalid: roleRef: Invalid value: {\"kind\":\"ClusterRole\"}: cannot change roleRef";
        let address = "/v1, Kind=Service ns/s: Service \"s\" is invalid: [spec.clusterIPs[0]: Invalid value: [\"None\"]: may \
                       not change once set, spec.x: Required value]";
        let class = "scheduling.k8s.io/v1, Kind=PriorityClass /p: PriorityClass.scheduling.k8s.io \"p\" is invalid: value: \
                     Forbidden: may not be changed in an update.";
        let set = "apps/v1, Kind=StatefulSet ns/db: StatefulSet.apps \"db\" is invalid: spec: Forbidden: updates to \
                   statefulset spec for fields other than 'replicas', 'template' are forbidden";
        let second = "scheduling.k8s.io/v1, Kind=PriorityClass /b: priorityclasses.scheduling.k8s.io \"b\" is forbidden: \
                      PriorityClass a is already marked as default. Only one default can exist";
        let deployment = delete("Deployment ns/op: spec.selector", "deployment.apps op -n ns");
        let data = "StatefulSet ns/db: spec cannot be changed, and the object may hold data. Return to the previous version, \
                    or save the data and delete the object, and the new revision creates it again";
        let default = "PriorityClass b: globalDefault can be set in one PriorityClass only, and is set in a. Delete a, \
                       and the new revision creates b: kubectl delete priorityclass a";
        for (verdicts, expected) in [
            (vec![selector], vec![deployment.clone()]),
            (vec![role], vec![delete("ClusterRoleBinding b: roleRef", "clusterrolebinding b")]),
            (vec![address], vec![delete("Service ns/s: spec.clusterIPs[0]", "service s -n ns")]),
            (vec![class, set], vec![delete("PriorityClass p: value", "priorityclass p"), data.to_owned()]),
            (vec![second, selector], vec![default.to_owned(), deployment]),
            (vec!["/v1, Kind=ConfigMap ns/c: exceeded quota"], vec![]),
            (vec!["apps/v1, Kind=Deployment ns"], vec![]),
            (vec![], vec![]),
        ] {
            assert_eq!(remedies(&format!("{phase}{}", verdicts.join(", "))), expected);
        }
        let failure = format!("reconciling object: reconciling {selector}");
        assert_eq!(remedies(&failure).len(), 1);
    }

    #[test]
    fn only_objects_without_data_are_replaceable() {
        let object = |api_version: &str, kind: &str, type_: &str| {
            is_replaceable(&json!({"apiVersion": api_version, "kind": kind, "spec": {"type": type_}}))
        };
        assert!(object("apps/v1", "Deployment", "") && object("apps/v1", "DaemonSet", ""));
        assert!(object("v1", "Service", "") && object("v1", "Service", "ClusterIP"));
        assert!(object("rbac.authorization.k8s.io/v1", "RoleBinding", "") && object("batch/v1", "Job", ""));
        for type_ in ["NodePort", "LoadBalancer", "ExternalName"] {
            assert!(!object("v1", "Service", type_));
        }
        let core = ["Namespace", "PersistentVolumeClaim", "PersistentVolume", "Secret"];
        assert!(core.iter().all(|kind| !object("v1", kind, "")));
        assert!(!object("apps/v1", "StatefulSet", "") && !object("acme.example/v1", "Job", ""));
        assert!(!object("apiextensions.k8s.io/v1", "CustomResourceDefinition", ""));
    }

    #[test]
    fn trial_has_another_name_and_no_default_class() {
        let class =
            json!({"kind": "PriorityClass", "metadata": {"name": "a"}, "globalDefault": true, "value": 1});
        let expected = json!({"kind": "PriorityClass", "metadata": {"name": "olm-dry-run-of-a-replacement"}, "value": 1});
        assert_eq!(trial(&class), expected);
    }
}
