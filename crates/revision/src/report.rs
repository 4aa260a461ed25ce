//! Collision report: names the conflicting object and its owner (docs/design/apply.md#collision-protection).
//!
//! Pure. Users search for the first two lines and the last. The lines between explain the collision.

use serde_json::Value;

use crate::managed_fields::conflicts;
use crate::object::{ObjectKey, text};
use crate::plan::controller;
use crate::probes::{ProbeResult, ProbeStatus};

/// Report on the collision of `actual` with `desired`. Ends with a newline.
pub(crate) fn collision(desired: &Value, actual: &Value, probe: &ProbeResult) -> String {
    let mut report = format!("Object {}\nAction: \"Collision\"\n", ObjectKey::of(actual).kind_first());
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
}
