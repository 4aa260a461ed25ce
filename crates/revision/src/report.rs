//! Collision report: names the conflicting object and its owner (docs/design/apply.md#collision-protection).
//!
//! Pure. Users search for the first two lines and the last. The lines between explain the collision.

use olm_api::annotations;
use serde_json::Value;

use crate::managed_fields::conflicts;
use crate::object::{ObjectKey, text};
use crate::plan::controller;
use crate::probes::{ProbeResult, ProbeStatus};

/// Second line of a report.
const ACTION: &str = "Action: \"Collision\"";

/// Report on the collision of `actual` with `desired`. Ends with a newline.
pub(crate) fn collision(desired: &Value, actual: &Value, probe: &ProbeResult) -> String {
    let mut report = format!("Object {}\n{ACTION}\n", ObjectKey::of(actual).kind_first());
    let verdict = match probe.status {
        ProbeStatus::True => "Succeeded",
        ProbeStatus::False => "Failed",
        ProbeStatus::Unknown => "Unknown",
    };
    report.push_str(&format!("Probes:\n- Progress: {verdict}\n"));
    for message in &probe.messages {
        report.push_str(&format!("  - {message}\n"));
    }
    let conflicts = conflicts(desired, actual);
    if !conflicts.is_empty() {
        report.push_str("Conflicts:\n");
    }
    for (manager, paths) in conflicts {
        report.push_str(&format!("- {manager:?}\n"));
        for path in paths {
            report.push_str(&format!("  {path}\n"));
        }
    }
    report.push_str(&format!("Conflicting Owner: {}\n", owner_text(controller(actual))));
    report
}

/// Remedies for the CRDs without owner that a condition of `extension` reports as collisions, one sentence each: their
/// deletion would delete the custom resources.
pub fn adoptions(message: &str, extension: &str) -> Vec<String> {
    let of_report = |report: &str| {
        let (object, rest) = report.split_once('\n')?;
        let (kind, name) = object.split_once(" /")?;
        let is_free = rest.starts_with(ACTION) && rest.contains("Conflicting Owner: nil");
        (is_free && kind.starts_with("CustomResourceDefinition.apiextensions.k8s.io/")).then(|| {
            format!(
                "CustomResourceDefinition {name} exists without owner. To let the extension manage it, and retain its \
                 custom resources: kubectl annotate crd {name} {}={extension}",
                annotations::EXT_KEPT_FOR
            )
        })
    };
    message.split("Object ").skip(1).filter_map(of_report).collect()
}

fn owner_text(owner: Option<&Value>) -> String {
    let Some(owner) = owner else {
        return "nil".to_owned();
    };
    let flag = |name: &str| match owner.get(name).and_then(Value::as_bool) {
        Some(value) => format!("*{value}"),
        None => "nil".to_owned(),
    };
    format!(
        "&OwnerReference{{Kind:{},Name:{},UID:{},APIVersion:{},Controller:{},BlockOwnerDeletion:{},}}",
        text(owner, "/kind"),
        text(owner, "/name"),
        text(owner, "/uid"),
        text(owner, "/apiVersion"),
        flag("controller"),
        flag("blockOwnerDeletion"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn collision_names_owner_and_conflicting_fields() {
        let desired = json!({"spec": {"replicas": 1}});
        let mut actual = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "op", "namespace": "ns1",
                "ownerReferences": [{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
                    "name": "other-1", "uid": "u-1", "controller": true, "blockOwnerDeletion": true}],
                "managedFields": [{"manager": "kubectl-client-side-apply", "operation": "Update",
                    "fieldsV1": {"f:spec": {"f:replicas": {}}}}]}});
        let probe = ProbeResult {
            status: ProbeStatus::Unknown,
            messages: vec!["missing .status.conditions".to_owned()],
        };
        assert_eq!(
            collision(&desired, &actual, &probe),
            "Object Deployment.apps/v1 ns1/op\n\
             Action: \"Collision\"\n\
             Probes:\n\
             - Progress: Unknown\n  - missing .status.conditions\n\
             Conflicts:\n\
             - \"kubectl-client-side-apply\"\n  .spec.replicas\n\
             Conflicting Owner: &OwnerReference{Kind:ClusterObjectSet,Name:other-1,UID:u-1,\
             APIVersion:olm.operatorframework.io/v1,Controller:*true,BlockOwnerDeletion:*true,}\n"
        );
        actual["metadata"]["ownerReferences"] = json!([]);
        actual["metadata"]["managedFields"] = json!([]);
        let probe = ProbeResult { status: ProbeStatus::True, messages: Vec::new() };
        assert_eq!(
            collision(&desired, &actual, &probe),
            "Object Deployment.apps/v1 ns1/op\nAction: \"Collision\"\nProbes:\n- Progress: Succeeded\n\
             Conflicting Owner: nil\n"
        );
    }

    #[test]
    fn crd_without_owner_can_be_given_to_the_extension() {
        let crd = |name: &str, owners: Value| {
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": name, "ownerReferences": owners}})
        };
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "ns"}});
        let owned = crd("b.acme.example", json!([{"kind": "ConfigMap", "name": "o", "controller": true}]));
        let probe = ProbeResult { status: ProbeStatus::True, messages: Vec::new() };
        let reports: Vec<String> = [crd("a.acme.example", json!([])), map, owned]
            .iter()
            .map(|actual| collision(&json!({}), actual, &probe))
            .collect();
        let message = format!("revision object collisions in phase 0\n{}", reports.join("\n\n"));
        assert_eq!(
            adoptions(&message, "demo"),
            [
                "CustomResourceDefinition a.acme.example exists without owner. To let the extension manage it, and retain its \
              custom resources: kubectl annotate crd a.acme.example ext.olm.operatorframework.io/kept-for=demo"
            ]
        );
        assert!(adoptions("Object CustomResourceDefinition", "demo").is_empty());
    }
}
