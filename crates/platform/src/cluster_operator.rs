//! The verdict as a condition of OpenShift's objects (docs/design/operations.md#clusteroperator,
//! docs/design/operations.md#outlets).

use jiff::Timestamp;
use olm_api::conditions::{Status, reasons};
use olm_api::{cluster_upgrade_status, names};
use serde_json::{Map, Value, json};

use crate::verdict::Verdict;

/// Stem of the condition that OpenShift's own OLM operator writes on the OLM object. The aggregated form mimics it.
const STEM: &str = "InstalledOLMOperators";
/// Suffix of the condition types that OpenShift's operators aggregate.
const UPGRADEABLE: &str = "Upgradeable";
/// Reason of an Unknown verdict.
const ERROR_CHECKING: &str = "ErrorCheckingOperatorCompatibility";
const ALL_IS_WELL: &str = "All is well";

/// Condition of an OpenShift object, without type and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterOperatorCondition {
    /// True or False.
    pub status: Status,
    /// CamelCase reason.
    pub reason: String,
    /// Message of the condition.
    pub message: String,
}

impl ClusterOperatorCondition {
    /// Returns the condition `type_` in the status of an object, or `None` if it is absent or malformed.
    pub fn stored(object: &Value, type_: &str) -> Option<Self> {
        let conditions = object.pointer("/status/conditions")?.as_array()?;
        let stored = conditions.iter().find(|condition| condition["type"] == type_)?;
        let mut statuses = [Status::True, Status::False, Status::Unknown].into_iter();
        let status = statuses.find(|status| stored["status"] == status.as_str())?;
        let text = |key: &str| stored[key].as_str().unwrap_or_default().to_owned();
        Some(Self { status, reason: text("reason"), message: text("message") })
    }

    /// Returns the condition as JSON. `before` is the object's condition of this type. Its `lastTransitionTime` is
    /// retained while the status is equal.
    pub fn to_value(&self, type_: &str, before: Option<&Value>, now: Timestamp) -> Value {
        let status = self.status.as_str();
        let same = before.filter(|before| before["status"] == status);
        let since = same.and_then(|before| before["lastTransitionTime"].as_str());
        // Kubernetes times have whole seconds.
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        let since = since.map_or_else(|| now.to_string(), str::to_owned);
        let (reason, message) = (&self.reason, &self.message);
        json!({"type": type_, "status": status, "lastTransitionTime": since, "reason": reason, "message": message})
    }
}

/// Returns the Upgradeable condition of the ClusterOperator, in the form that OpenShift's operators aggregate. `None`
/// before the first evaluation: the stored condition is retained.
pub fn aggregated(verdict: &Verdict) -> Option<ClusterOperatorCondition> {
    let own = contributed(verdict)?;
    if own.status == Status::True {
        return Some(ClusterOperatorCondition { message: ALL_IS_WELL.to_owned(), ..own });
    }
    let mut lines: Vec<&str> = Vec::new();
    for line in own.message.lines() {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    let lines: Vec<String> = lines.iter().map(|line| format!("{STEM}{UPGRADEABLE}: {line}")).collect();
    let reason = format!("{STEM}_{}", own.reason);
    Some(ClusterOperatorCondition { status: own.status, reason, message: lines.join("\n") })
}

/// Returns the condition for the OLM object, which its operator aggregates. `None` before the first evaluation.
pub fn contributed(verdict: &Verdict) -> Option<ClusterOperatorCondition> {
    let message = verdict.message.clone();
    let (status, reason, message) = match verdict.status {
        // The aggregation shows the messages of good conditions, too.
        Status::True => (Status::True, reasons::AS_EXPECTED, String::new()),
        Status::False => (Status::False, verdict.reason, message),
        Status::Unknown if verdict.reason == reasons::INITIALIZING => return None,
        // Unknown becomes False. A client that waits for True must not pass, and a client that waits for False must
        // not wait forever.
        Status::Unknown => (Status::False, ERROR_CHECKING, message),
    };
    Some(ClusterOperatorCondition { status, reason: reason.to_owned(), message })
}

/// Inputs for our other fields of the ClusterOperator.
#[derive(Clone, Copy, Debug)]
pub struct ClusterOperatorFields<'a> {
    /// Namespaces of this installation.
    pub system_namespaces: &'a [String],
    /// Version of the cluster's last completed update.
    pub completed_version: Option<&'a str>,
    /// Version of operator-controller.
    pub version: &'a str,
}

/// Returns the status of the ClusterOperator with `upgradeable` and our other fields merged in. Fields of other
/// writers are retained, and so are our own where nothing changed.
pub fn merged(
    object: &Value,
    upgradeable: &ClusterOperatorCondition,
    own: ClusterOperatorFields<'_>,
    now: Timestamp,
) -> Value {
    let mut status = object["status"].as_object().cloned().unwrap_or_default();
    let lists = [
        ("conditions", conditions(object, take_list(&mut status, "conditions"), upgradeable, now)),
        ("versions", versions(take_list(&mut status, "versions"), own)),
        ("relatedObjects", related(take_list(&mut status, "relatedObjects"), own.system_namespaces)),
    ];
    status.extend(lists.map(|(key, list)| (key.to_owned(), Value::Array(list))));
    Value::Object(status)
}

fn conditions(
    object: &Value,
    mut conditions: Vec<Value>,
    upgradeable: &ClusterOperatorCondition,
    now: Timestamp,
) -> Vec<Value> {
    for (type_, status) in
        [("Available", Status::True), ("Progressing", Status::False), ("Degraded", Status::False)]
    {
        if !conditions.iter().any(|condition| condition["type"] == type_) {
            let (reason, message) = (reasons::AS_EXPECTED.to_owned(), ALL_IS_WELL.to_owned());
            conditions.push(ClusterOperatorCondition { status, reason, message }.to_value(type_, None, now));
        }
    }
    // An equal condition is retained with all its fields.
    if ClusterOperatorCondition::stored(object, UPGRADEABLE).as_ref() != Some(upgradeable) {
        let index = conditions.iter().position(|condition| condition["type"] == UPGRADEABLE);
        let next = upgradeable.to_value(UPGRADEABLE, index.map(|index| &conditions[index]), now);
        match index {
            Some(index) => conditions[index] = next,
            None => conditions.push(next),
        }
    }
    conditions
}

fn versions(mut versions: Vec<Value>, own: ClusterOperatorFields<'_>) -> Vec<Value> {
    if let Some(completed) = own.completed_version
        && !versions.iter().any(|entry| entry["name"] == "operator")
    {
        versions.push(json!({"name": "operator", "version": completed}));
    }
    let ours = json!({"name": "operator-controller", "version": own.version});
    match versions.iter_mut().find(|entry| entry["name"] == ours["name"]) {
        Some(entry) => *entry = ours,
        None => versions.push(ours),
    }
    versions
}

fn related(mut related: Vec<Value>, system_namespaces: &[String]) -> Vec<Value> {
    let object =
        |group: &str, resource: &str, name: &str| json!({"group": group, "resource": resource, "name": name});
    let kinds = [
        (names::GROUP, "clusterextensions", ""),
        (names::GROUP, "clusterobjectsets", ""),
        (names::GROUP, "clustercatalogs", ""),
        (names::EXT_GROUP, cluster_upgrade_status::PLURAL, names::CLUSTER_UPGRADE_STATUS_NAME),
        (names::EXT_GROUP, "extensionplans", ""),
    ];
    let crds = kinds.map(|(group, plural, _)| format!("{plural}.{group}"));
    let namespaces = system_namespaces.iter().map(|name| object("", "namespaces", name));
    let kinds = kinds.map(|(group, plural, name)| object(group, plural, name));
    let crds = crds.map(|name| object("apiextensions.k8s.io", "customresourcedefinitions", &name));
    for required in namespaces.chain(kinds).chain(crds) {
        if !related.iter().any(|entry| is_same_object(entry, &required)) {
            related.push(required);
        }
    }
    related
}

/// Removes a list from the status. Any other type yields an empty list.
fn take_list(status: &mut Map<String, Value>, key: &str) -> Vec<Value> {
    match status.remove(key) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    }
}

fn is_same_object(one: &Value, other: &Value) -> bool {
    let text = |object: &Value, key: &str| object[key].as_str().unwrap_or_default().to_owned();
    ["group", "resource", "namespace", "name"].iter().all(|key| text(one, key) == text(other, key))
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    fn verdict(status: Status, reason: &'static str, message: &str) -> Verdict {
        Verdict { status, reason, message: message.to_owned(), ..Verdict::initializing() }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::new(second, 700_000_000).unwrap()
    }

    static NAMESPACES: LazyLock<[String; 2]> =
        LazyLock::new(|| ["openshift-operator-controller".to_owned(), "openshift-catalogd".to_owned()]);
    static OWN: LazyLock<ClusterOperatorFields<'_>> = LazyLock::new(|| ClusterOperatorFields {
        system_namespaces: &*NAMESPACES,
        completed_version: Some("4.18.3"),
        version: "1.0.0",
    });

    // docs/design/operations.md#clusteroperator, docs/design/operations.md#outlets; case operations-a47
    #[test]
    fn verdict_aggregates_to_upgradeable_condition() {
        let blocked = "Found ClusterExtensions that require upgrades prior to upgrading cluster to version 4.19: \
                       bundle \"kiwi.v1.2.0\" for ClusterExtension \"kiwi\".";
        let additionally =
            " Additionally the following errors were encountered while getting extension metadata: x\nx\ny";
        let unknown =
            "Cannot determine the cluster version; 1 installed extension declares a maximum version: a";
        let rows = [
            (
                verdict(Status::True, "AsExpected", "All is well"),
                Some(("True", "AsExpected", "All is well".to_owned())),
            ),
            (
                verdict(Status::True, "AsExpected", "All is well; something was ignored"),
                Some(("True", "AsExpected", "All is well".to_owned())),
            ),
            (
                verdict(Status::False, "IncompatibleOperatorsInstalled", blocked),
                Some((
                    "False",
                    "InstalledOLMOperators_IncompatibleOperatorsInstalled",
                    format!("InstalledOLMOperatorsUpgradeable: {blocked}"),
                )),
            ),
            (
                verdict(
                    Status::False,
                    "IncompatibleOperatorsInstalled",
                    &format!("{blocked}\n{additionally}"),
                ),
                Some((
                    "False",
                    "InstalledOLMOperators_IncompatibleOperatorsInstalled",
                    format!(
                        "InstalledOLMOperatorsUpgradeable: {blocked}\nInstalledOLMOperatorsUpgradeable:  Additionally \
                         the following errors were encountered while getting extension metadata: x\n\
                         InstalledOLMOperatorsUpgradeable: x\nInstalledOLMOperatorsUpgradeable: y"
                    ),
                )),
            ),
            (
                verdict(Status::Unknown, "PlatformVersionUnknown", unknown),
                Some((
                    "False",
                    "InstalledOLMOperators_ErrorCheckingOperatorCompatibility",
                    format!("InstalledOLMOperatorsUpgradeable: {unknown}"),
                )),
            ),
            (Verdict::initializing(), None),
        ];
        for (verdict, expected) in rows {
            let expected = expected.map(|(status, reason, message)| (status, reason.to_owned(), message));
            let got = aggregated(&verdict).map(|got| (got.status.as_str(), got.reason, got.message));
            assert_eq!(got, expected);
        }
    }

    #[test]
    fn contributed_condition_of_compatible_cluster_has_no_message() {
        let good = contributed(&verdict(Status::True, "AsExpected", "All is well")).unwrap();
        assert_eq!(
            (good.status, good.reason.as_str(), good.message.as_str()),
            (Status::True, "AsExpected", "")
        );
    }

    fn condition(status: Status, reason: &str) -> ClusterOperatorCondition {
        ClusterOperatorCondition { status, reason: reason.to_owned(), message: "m".to_owned() }
    }

    #[test]
    fn merged_empty_object_gets_all_own_fields() {
        let status = merged(&json!({}), &condition(Status::False, "R"), *OWN, at(10));
        let time = "1970-01-01T00:00:10Z";
        let well = |type_: &str, status: &str| json!({"type": type_, "status": status, "lastTransitionTime": time, "reason": "AsExpected", "message": "All is well"});
        assert_eq!(
            status["conditions"],
            json!([
                well("Available", "True"),
                well("Progressing", "False"),
                well("Degraded", "False"),
                {"type": "Upgradeable", "status": "False", "lastTransitionTime": time, "reason": "R", "message": "m"},
            ])
        );
        assert_eq!(
            status["versions"],
            json!([
                {"name": "operator", "version": "4.18.3"},
                {"name": "operator-controller", "version": "1.0.0"},
            ])
        );
        let crd = |name: &str| json!({"group": "apiextensions.k8s.io", "resource": "customresourcedefinitions", "name": name});
        assert_eq!(
            status["relatedObjects"],
            json!([
                {"group": "", "resource": "namespaces", "name": "openshift-operator-controller"},
                {"group": "", "resource": "namespaces", "name": "openshift-catalogd"},
                {"group": "olm.operatorframework.io", "resource": "clusterextensions", "name": ""},
                {"group": "olm.operatorframework.io", "resource": "clusterobjectsets", "name": ""},
                {"group": "olm.operatorframework.io", "resource": "clustercatalogs", "name": ""},
                {"group": "ext.olm.operatorframework.io", "resource": "clusterupgradestatuses", "name": "cluster"},
                {"group": "ext.olm.operatorframework.io", "resource": "extensionplans", "name": ""},
                crd("clusterextensions.olm.operatorframework.io"),
                crd("clusterobjectsets.olm.operatorframework.io"),
                crd("clustercatalogs.olm.operatorframework.io"),
                crd("clusterupgradestatuses.ext.olm.operatorframework.io"),
                crd("extensionplans.ext.olm.operatorframework.io"),
            ])
        );
        // Case operations-a50: merging again changes nothing.
        let object = json!({ "status": status });
        assert_eq!(merged(&object, &condition(Status::False, "R"), *OWN, at(20)), object["status"]);
    }

    #[test]
    fn merged_keeps_fields_of_other_writers() {
        let theirs = json!({"status": {
            "conditions": [
                {"type": "Degraded", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Bad"},
                {"type": "Upgradeable", "status": "False", "lastTransitionTime": "2026-01-02T00:00:00Z", "reason": "Old"},
                {"type": "EvaluationConditionsDetected", "status": "False"},
            ],
            "versions": [{"name": "operator", "version": "4.17.0"}, {"name": "operator-controller", "version": "0.9.0"}],
            "relatedObjects": [
                {"group": "", "resource": "namespaces", "name": "openshift-catalogd"},
                {"group": "x", "resource": "y", "name": "z"},
            ],
            "extension": null,
            "unknown": {"a": 1},
        }});
        let status = merged(&theirs, &condition(Status::False, "New"), *OWN, at(10));
        let conditions = status["conditions"].as_array().unwrap();
        assert_eq!(conditions[0], theirs["status"]["conditions"][0]);
        let upgradeable = json!({"type": "Upgradeable", "status": "False", "lastTransitionTime": "2026-01-02T00:00:00Z",
            "reason": "New", "message": "m"});
        assert_eq!(conditions[1], upgradeable);
        assert_eq!(conditions[2], theirs["status"]["conditions"][2]);
        assert_eq!(conditions[3]["type"], "Available");
        assert_eq!(conditions.len(), 5);
        assert_eq!(
            status["versions"],
            json!([{"name": "operator", "version": "4.17.0"}, {"name": "operator-controller", "version": "1.0.0"}])
        );
        assert_eq!(status["relatedObjects"].as_array().unwrap().len(), 13);
        assert_eq!((&status["extension"], &status["unknown"]), (&json!(null), &json!({"a": 1})));
        // A changed status gets a new transition time.
        let status = merged(&theirs, &condition(Status::True, "New"), *OWN, at(10));
        assert_eq!(status["conditions"][1]["lastTransitionTime"], "1970-01-01T00:00:10Z");
    }

    #[test]
    fn merged_and_stored_tolerate_malformed_objects() {
        let odd = json!({"status": {"conditions": "x", "versions": {}, "relatedObjects": [1]}});
        let own = ClusterOperatorFields { completed_version: None, ..*OWN };
        let status = merged(&odd, &condition(Status::False, "R"), own, at(10));
        assert_eq!(status["conditions"].as_array().unwrap().len(), 4);
        assert_eq!(status["versions"], json!([{"name": "operator-controller", "version": "1.0.0"}]));
        for object in [json!(null), odd, json!({"status": {"conditions": [{"type": "Upgradeable"}]}})] {
            assert_eq!(ClusterOperatorCondition::stored(&object, "Upgradeable"), None, "{object}");
        }
    }
}
