//! Semantics of the probes of docs/design/apply.md#revision-metadata for Deployments and StatefulSets with missing
//! status fields (docs/design/apply.md#writing-a-revision).
//!
//! Pure. Each function returns a result only where the literal evaluation could never become True, and `None`
//! everywhere else.

use serde_json::Value;

use super::{ProbeResult, ProbeStatus};
use crate::object::gvk;

fn is_apps(object: &Value, kinds: &[&str]) -> bool {
    let gvk = gvk(object);
    gvk.group == "apps" && kinds.contains(&gvk.kind.as_str())
}

/// Result for a workload scaled to 0. The API server omits counters that are 0, so the status has neither counter, or
/// only one, which is 0.
pub(super) fn no_replicas(object: &Value, a: &str, b: &str) -> Option<ProbeResult> {
    let counters = ["status.updatedReplicas", "status.replicas"];
    if !is_apps(object, &["Deployment", "StatefulSet"]) || !counters.contains(&a) || !counters.contains(&b) {
        return None;
    }
    let status = object.get("status")?.as_object()?;
    let zero = |key: &str| status.get(key).is_none_or(|value| value.as_i64() == Some(0));
    (zero("updatedReplicas") && zero("replicas"))
        .then(|| ProbeResult { status: ProbeStatus::True, messages: vec![format!("{a:?} == {b:?}")] })
}

/// Result for a StatefulSet, which never has conditions: ready if all of its replicas are.
pub(super) fn stateful_set_available(object: &Value, condition: &str, status: &str) -> Option<ProbeResult> {
    if !is_apps(object, &["StatefulSet"]) || (condition, status) != ("Available", "True") {
        return None;
    }
    let status = object.get("status")?.as_object()?;
    status.get("observedGeneration")?.as_i64()?;
    if status.contains_key("conditions") {
        return None;
    }
    let count = |value: Option<&Value>| value.and_then(Value::as_i64);
    let replicas =
        count(object.pointer("/spec/replicas")).or_else(|| count(status.get("replicas"))).unwrap_or(1);
    let ready = count(status.get("readyReplicas")).unwrap_or(0);
    let verdict = if ready >= replicas { ProbeStatus::True } else { ProbeStatus::False };
    Some(ProbeResult { status: verdict, messages: vec![format!("{ready} of {replicas} replicas are ready")] })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::probes::{Probes, default_probes};

    #[test]
    fn unready_deployment_reports_missing_counters_and_false_condition() {
        let conditions = json!([{"type": "Available", "status": "False"}]);
        let unavailable = ".status.condition[\"Available\"] is False";
        for (status, counter) in [
            (json!({"conditions": conditions}), "\"status.updatedReplicas\" missing"),
            (json!({"replicas": 0, "conditions": conditions}), "\"status.updatedReplicas\" missing"),
            (json!({"updatedReplicas": 0, "conditions": conditions}), "\"status.replicas\" missing"),
        ] {
            let expected = vec![counter.to_owned(), unavailable.to_owned()];
            assert_eq!(default_verdict("Deployment", status), (ProbeStatus::False, expected));
        }
    }

    fn default_verdict(kind: &str, status: Value) -> (ProbeStatus, Vec<String>) {
        let object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"generation": 1},
            "spec": {"replicas": 2}, "status": status});
        let result = Probes::new(&default_probes()).unwrap().probe(&object);
        (result.status, result.messages)
    }

    #[test]
    fn workloads_with_missing_status_fields_follow_the_table() {
        let available = json!([{"type": "Available", "status": "True"}]);
        for (kind, status, expected, last_message) in [
            (
                "Deployment",
                json!({"conditions": available}),
                ProbeStatus::True,
                ".status.condition[\"Available\"] is True",
            ),
            (
                "Deployment",
                json!({"replicas": 1, "conditions": available}),
                ProbeStatus::False,
                "\"status.updatedReplicas\" missing",
            ),
            (
                "StatefulSet",
                json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}),
                ProbeStatus::True,
                "2 of 2 replicas are ready",
            ),
            (
                "StatefulSet",
                json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 1}),
                ProbeStatus::False,
                "1 of 2 replicas are ready",
            ),
            ("StatefulSet", json!({"replicas": 0}), ProbeStatus::Unknown, "missing .status.conditions"),
        ] {
            let (verdict, messages) = default_verdict(kind, status.clone());
            assert_eq!(verdict, expected, "{kind} {status}");
            assert_eq!(messages.last().map(String::as_str), Some(last_message), "{kind} {status}");
        }
    }
}
