//! Reports of an operator about its replacement, in its OperatorCondition
//! (docs/design/approvals.md#operator-conditions). Pure.

use olm_api::cluster_upgrade_status::OperatorConditionMirror;
use olm_api::conditions::types::UPGRADEABLE;
use olm_api::conditions::{Status, find};
use olm_api::{ClusterObjectSet, Condition, OperatorCondition, OperatorConditionStatus, annotations, names};
use serde_json::Value;

/// Maximum length of a quoted message, in bytes. A condition also has to name the bundle and what releases it.
const MAX_MESSAGE: usize = 1024;

/// Namespace and name of the OperatorCondition among the objects of a revision.
pub fn operator_condition<'a>(objects: impl IntoIterator<Item = &'a Value>) -> Option<(String, String)> {
    let api_version = format!("{}/{}", names::CLASSIC_GROUP, names::OPERATOR_CONDITION_VERSION);
    let is_one = |object: &&Value| {
        object["apiVersion"] == api_version.as_str() && object["kind"] == "OperatorCondition"
    };
    let metadata = &objects.into_iter().find(is_one)?["metadata"];
    Some((metadata["namespace"].as_str()?.to_owned(), metadata["name"].as_str()?.to_owned()))
}

/// Namespace and name of the OperatorCondition of the operator of the `newest` revision, which runs in `namespace`.
/// Without the objects of the revision, the OperatorCondition is named after the bundle.
pub fn replaced_operator<'a>(
    newest: Option<&ClusterObjectSet>,
    objects: Option<impl IntoIterator<Item = &'a Value>>,
    namespace: &str,
) -> Option<(String, String)> {
    match objects {
        Some(objects) => operator_condition(objects),
        None => {
            let bundle = newest?.annotation(annotations::BUNDLE_NAME)?;
            Some((namespace.to_owned(), bundle.to_owned()))
        }
    }
}

/// Reason for which the operator must not be replaced, in the words of classic OLM. `None` allows it. A report that
/// has not been mirrored yet is outdated.
pub fn upgrade_blocker(object: &OperatorCondition) -> Option<String> {
    if let Some(decision) = overridden(object) {
        return (decision.status != Status::True.as_str()).then(|| refusal(decision));
    }
    let report = observed(object).or_else(|| reported(object))?;
    let is_outdated = report.observed_generation != object.metadata.generation;
    if is_outdated && !is_of_status(object, report) {
        let Condition { type_, status, .. } = report;
        return Some(format!("the operatorcondition status {type_:?}={status:?} is outdated"));
    }
    (report.status == Status::False.as_str()).then(|| refusal(report))
}

/// Status that reflects the reports of the operator at the current generation. The time of a condition changes only
/// with its status. Types that the spec lacks stay, as with classic OLM: operators of version v1 report in the status.
pub fn mirrored(object: &OperatorCondition) -> OperatorConditionStatus {
    let old = object.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let observed = |report: &Condition| {
        let same = find(old, &report.type_).filter(|old| old.status == report.status);
        let since = same.map_or(&report.last_transition_time, |old| &old.last_transition_time);
        Condition {
            observed_generation: object.metadata.generation,
            last_transition_time: since.clone(),
            ..report.clone()
        }
    };
    let reports = object.spec.as_ref().map_or(&[][..], |spec| &spec.conditions);
    let of_status = old.iter().filter(|report| find(reports, &report.type_).is_none()).cloned();
    OperatorConditionStatus { conditions: reports.iter().map(observed).chain(of_status).collect() }
}

/// Decision of the administrator about upgrades, else the report of the operator.
pub fn upgrade_report(object: &OperatorCondition) -> Option<OperatorConditionMirror> {
    let Condition { status, reason, message, .. } = overridden(object).or_else(|| reported(object))?;
    Some(OperatorConditionMirror {
        status: status.clone(),
        reason: shown(reason).to_owned(),
        message: shown(message).to_owned(),
    })
}

fn overridden(object: &OperatorCondition) -> Option<&Condition> {
    find(&object.spec.as_ref()?.overrides, UPGRADEABLE)
}

fn reported(object: &OperatorCondition) -> Option<&Condition> {
    let reports = object.spec.as_ref().map_or(&[][..], |spec| &spec.conditions);
    find(reports, UPGRADEABLE).or_else(|| observed(object))
}

fn observed(object: &OperatorCondition) -> Option<&Condition> {
    find(&object.status.as_ref()?.conditions, UPGRADEABLE)
}

/// Reports whether an operator of version v1 wrote the condition into the status. It does not know the generation, so that
/// its report is never outdated.
fn is_of_status(object: &OperatorCondition, condition: &Condition) -> bool {
    let reports = object.spec.as_ref().map_or(&[][..], |spec| &spec.conditions);
    find(reports, &condition.type_).is_none() && condition.observed_generation.is_none()
}

fn refusal(condition: &Condition) -> String {
    format!("the operator is not upgradeable: {}", shown(&condition.message))
}

fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_MESSAGE)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(spec: &Value, status: &Value) -> OperatorCondition {
        serde_json::from_value(json!({"metadata": {"name": "demo.v1", "namespace": "ns", "generation": 3},
            "spec": spec, "status": status}))
        .unwrap()
    }

    fn condition(status: &str, generation: Option<i64>) -> Value {
        let time = if generation.is_some() { "2026-11-24T10:00:00Z" } else { "2026-11-24T09:00:00Z" };
        let mut condition = json!({"type": "Upgradeable", "status": status, "reason": "Migrating",
            "message": "moving data", "lastTransitionTime": time});
        condition["observedGeneration"] = json!(generation);
        condition
    }

    // docs/design/approvals.md#operator-conditions
    #[test]
    fn only_false_outdated_and_overridden_reports_block() {
        let refused = Some("the operator is not upgradeable: moving data");
        let outdated = Some(r#"the operatorcondition status "Upgradeable"="True" is outdated"#);
        let unseen = Some(r#"the operatorcondition status "Upgradeable"="False" is outdated"#);
        let none = || json!([]);
        let over = |status: &str| json!([condition(status, None)]);
        let seen = |status: &str, generation: i64| json!([condition(status, Some(generation))]);
        let unrelated = json!([{"type": "Healthy", "status": "False", "reason": "R", "message": "",
            "lastTransitionTime": "2026-11-24T10:00:00Z", "observedGeneration": 3}]);
        for (case, overrides, reports, observed, expected) in [
            ("override True allows", over("True"), over("False"), seen("False", 3), None),
            ("override False blocks", over("False"), over("True"), seen("True", 3), refused),
            ("override Unknown blocks", over("Unknown"), none(), none(), refused),
            ("override precedes a stale generation", over("True"), none(), seen("False", 2), None),
            ("stale generation blocks", none(), over("True"), seen("True", 2), outdated),
            ("status False blocks", none(), over("False"), seen("False", 3), refused),
            ("status True allows", none(), over("True"), seen("True", 3), None),
            ("status Unknown allows", none(), over("Unknown"), seen("Unknown", 3), None),
            ("unobserved report blocks", none(), over("False"), none(), unseen),
            ("absent condition allows", none(), none(), none(), None),
            ("other conditions allow", none(), none(), unrelated, None),
            ("report in the status blocks", none(), none(), over("False"), refused),
            ("report in the status allows", none(), none(), over("True"), None),
            ("report in the status of another generation blocks", none(), none(), seen("True", 2), outdated),
            ("report in the spec precedes one in the status", none(), over("True"), over("False"), unseen),
        ] {
            let spec = json!({"overrides": overrides, "conditions": reports});
            let found = upgrade_blocker(&object(&spec, &json!({"conditions": observed})));
            assert_eq!(found.as_deref(), expected, "{case}");
        }
        assert_eq!(upgrade_blocker(&object(&Value::Null, &Value::Null)), None, "empty object allows");
    }

    #[test]
    fn status_mirrors_reports_at_the_current_generation() {
        let spec = json!({"conditions": [condition("False", None)], "overrides": [condition("True", None)]});
        let of = |status: Value| serde_json::to_value(mirrored(&object(&spec, &status))).unwrap();
        let mut first = condition("False", Some(3));
        first["lastTransitionTime"] = json!("2026-11-24T09:00:00Z");
        assert_eq!(of(Value::Null), json!({"conditions": [first]}));
        // The same status keeps its time, and another type stays.
        let mut gone = condition("True", Some(2));
        gone["type"] = json!("Gone");
        let old = json!({"conditions": [condition("False", Some(2)), gone]});
        let expected = json!({"conditions": [condition("False", Some(3)), gone]});
        assert_eq!(of(old), expected);
        assert_eq!(of(expected.clone()), expected);
        assert_eq!(of(json!({"conditions": [condition("True", Some(3))]})), json!({"conditions": [first]}));
        // Operators of version v1 write into the status.
        let mut direct = condition("True", None);
        direct["type"] = json!("Direct");
        direct.as_object_mut().unwrap().remove("observedGeneration");
        assert_eq!(of(json!({"conditions": [direct]})), json!({"conditions": [first, direct]}));
    }

    #[test]
    fn override_takes_precedence_over_operator_report() {
        let status = |spec: &Value| upgrade_report(&object(spec, &Value::Null)).map(|report| report.status);
        let reports = json!([condition("False", None)]);
        assert_eq!(status(&json!({"conditions": reports})).as_deref(), Some("False"));
        let both = json!({"conditions": reports, "overrides": [condition("True", None)]});
        assert_eq!(status(&both).as_deref(), Some("True"));
        assert_eq!(status(&json!({})), None);
        let direct = object(&json!({}), &json!({"conditions": [condition("False", None)]}));
        assert_eq!(upgrade_report(&direct).map(|report| report.status).as_deref(), Some("False"));
    }

    #[test]
    fn operator_condition_is_found_among_objects() {
        let named = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "demo.v1", "namespace": "ns"}});
        let v1 = named("operators.coreos.com/v1", "OperatorCondition");
        let v2 = named("operators.coreos.com/v2", "OperatorCondition");
        let found = Some(("ns".to_owned(), "demo.v1".to_owned()));
        assert_eq!(operator_condition([&named("v1", "Service"), &v2]), found);
        assert_eq!(operator_condition([&v1, &named("operators.coreos.com/v2", "Other")]), None);
        let newest = json!({"metadata": {"annotations": {annotations::BUNDLE_NAME: "demo.v0"}}});
        let newest: ClusterObjectSet = serde_json::from_value(newest).unwrap();
        let replaced = |objects: Option<[&Value; 1]>| replaced_operator(Some(&newest), objects, "install");
        assert_eq!(replaced(Some([&v2])), found);
        assert_eq!(replaced(Some([&v1])), None, "the operator has no OperatorCondition");
        assert_eq!(replaced(None), Some(("install".to_owned(), "demo.v0".to_owned())));
        assert_eq!(replaced_operator(None, None::<[&Value; 1]>, "install"), None);
    }
}
