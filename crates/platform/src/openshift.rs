//! What OpenShift's own objects say, and where the verdict goes on OpenShift (docs/design/operations.md#verdict,
//! docs/design/operations.md#outlets).

use olm_api::cluster_upgrade_status::PlatformType;
use olm_api::conditions::Status;
use serde_json::Value;

use crate::cluster_operator::ClusterOperatorCondition;
use crate::version::MinorVersion;

/// Feature gate of OpenShift under which another operator evaluates the annotations of revisions itself.
const REVISIONS_ARE_READ: &str = "NewOLMBoxCutterRuntime";
/// Condition of the OLM object in which that operator says what it has found.
const INSTALLED_UPGRADEABLE: &str = "InstalledOLMOperatorsUpgradeable";
/// Condition that we contribute to the OLM object; its operator aggregates all whose type ends in Upgradeable.
pub const CONTRIBUTED: &str = "ClusterExtensionsUpgradeable";

/// The version of a ClusterVersion object: the higher one of that which is desired and the newest that was completed.
/// So during an update what is in the way of the update after it counts already.
pub fn cluster_version(object: &Value) -> Option<MinorVersion> {
    let desired = object.pointer("/status/desired/version").and_then(Value::as_str);
    let known = [desired, completed_version(object)].into_iter().flatten();
    known.filter_map(|text| text.parse().ok()).max()
}

/// The newest version that a ClusterVersion object calls completed, as written there.
pub fn completed_version(object: &Value) -> Option<&str> {
    let history = object.pointer("/status/history").and_then(Value::as_array)?;
    // The newest entry is the first.
    let completed = history.iter().find(|entry| entry["state"] == "Completed")?;
    completed["version"].as_str().filter(|version| !version.is_empty())
}

/// How the administrator wants the verdict to reach OpenShift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterOperatorMode {
    /// As the cluster's own OLM operator needs it.
    Auto,
    /// In the Upgradeable condition of a ClusterOperator of our own.
    Own,
    /// In a condition of OpenShift's OLM object, whose operator publishes it.
    Contribute,
    /// Not at all.
    Off,
}

/// Where the verdict goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlet {
    /// Into the ClusterOperator.
    Own,
    /// Into the OLM object.
    Contribute,
    /// Nowhere, and what was contributed is taken back.
    Off,
    /// Nowhere now. What was contributed stays: taken back too early, it would let an update through.
    Wait,
}

/// Why the verdict goes nowhere although OpenShift is there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reluctance {
    /// Its operator keeps rewriting the ClusterOperator.
    #[error("OLM \"cluster\" has managementState {0}: its operator decides about the ClusterOperator")]
    NotManaged(String),
    /// There is nothing to write to.
    #[error("ClusterOperators are not served: the verdict is not written to one")]
    NoClusterOperators,
    /// There is nothing to contribute to.
    #[error("there is no OLM \"cluster\" of operator.openshift.io: nothing to contribute to")]
    NoOlm,
}

/// What decides about the outlet.
#[derive(Clone, Copy, Debug)]
pub struct OutletFacts<'a> {
    /// The platform.
    pub platform: &'a PlatformType,
    /// Whether ClusterOperators are served.
    pub cluster_operators: bool,
    /// `olms.operator.openshift.io/cluster`.
    pub olm: Option<&'a Value>,
    /// `featuregates.config.openshift.io/cluster`.
    pub feature_gate: Option<&'a Value>,
}

/// Chooses where the verdict goes.
pub fn outlet(mode: ClusterOperatorMode, facts: &OutletFacts<'_>) -> (Outlet, Option<Reluctance>) {
    match mode {
        ClusterOperatorMode::Off => (Outlet::Off, None),
        ClusterOperatorMode::Own if facts.cluster_operators => (Outlet::Own, None),
        ClusterOperatorMode::Own => (Outlet::Wait, Some(Reluctance::NoClusterOperators)),
        ClusterOperatorMode::Contribute if facts.olm.is_some() => (Outlet::Contribute, None),
        ClusterOperatorMode::Contribute => (Outlet::Wait, Some(Reluctance::NoOlm)),
        ClusterOperatorMode::Auto => automatic(facts),
    }
}

fn automatic(facts: &OutletFacts<'_>) -> (Outlet, Option<Reluctance>) {
    if !facts.cluster_operators {
        return (Outlet::Wait, None);
    }
    if *facts.platform != PlatformType::OpenShift {
        return (Outlet::Off, None);
    }
    let Some(olm) = facts.olm else {
        return (Outlet::Own, None);
    };
    match olm.pointer("/spec/managementState").and_then(Value::as_str).unwrap_or_default() {
        state @ ("Unmanaged" | "Removed") => (Outlet::Wait, Some(Reluctance::NotManaged(state.to_owned()))),
        _ if facts.feature_gate.is_some_and(reads_revisions) && !is_blocked_by_us_alone(olm) => {
            (Outlet::Off, None)
        }
        _ => (Outlet::Contribute, None),
    }
}

/// Whether only our condition stops an update: the other reader may not have looked yet.
fn is_blocked_by_us_alone(olm: &Value) -> bool {
    let is_false = |type_| {
        ClusterOperatorCondition::stored(olm, type_).is_some_and(|stored| stored.status == Status::False)
    };
    is_false(CONTRIBUTED) && !is_false(INSTALLED_UPGRADEABLE)
}

/// Whether the gate is on in every version that the FeatureGate object lists: while an update runs, there are several.
fn reads_revisions(gate: &Value) -> bool {
    let versions = gate.pointer("/status/featureGates").and_then(Value::as_array);
    let is_enabled = |version: &Value| {
        let enabled = version["enabled"].as_array();
        enabled.is_some_and(|gates| gates.iter().any(|gate| gate["name"] == REVISIONS_ARE_READ))
    };
    versions.is_some_and(|versions| !versions.is_empty() && versions.iter().all(is_enabled))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // Cases operations-e31, operations-e32, operations-e33
    #[test]
    fn version_of_a_cluster() {
        let entry = |state: &str, version: &str| json!({"state": state, "version": version});
        let rows = [
            (json!({"desired": {"version": "4.18.3"}}), Some("4.18")),
            (
                json!({"desired": {"version": "4.19.0"}, "history": [entry("Completed", "4.18.3")]}),
                Some("4.19"),
            ),
            (
                json!({"desired": {"version": "4.18.0"}, "history": [entry("Partial", "4.20.0"), entry("Completed", "4.19.0")]}),
                Some("4.19"),
            ),
            (json!({"desired": {"version": ""}, "history": [entry("Completed", "4.18.0")]}), Some("4.18")),
            (json!({"history": [entry("Completed", "4.18.0"), entry("Completed", "4.19.0")]}), Some("4.18")),
            (json!({"history": [entry("Partial", "4.18.0")]}), None),
            (json!({"desired": {"version": "x"}, "history": null}), None),
            (json!(null), None),
        ];
        for (status, expected) in rows {
            let object = json!({ "status": status });
            let got = cluster_version(&object).map(|version| version.to_string());
            assert_eq!(got.as_deref(), expected, "{object}");
        }
    }

    // docs/design/operations.md#outlets
    #[test]
    fn outlets() {
        use ClusterOperatorMode as Mode;
        let managed = json!({"spec": {"managementState": "Managed"}});
        let unmanaged = json!({"spec": {"managementState": "Unmanaged"}});
        let gates = |lists: &[&[&str]]| {
            let list = |names: &&[&str]| {
                let enabled: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
                json!({"version": "4.18", "enabled": enabled})
            };
            json!({"status": {"featureGates": lists.iter().map(list).collect::<Vec<_>>()}})
        };
        let on = gates(&[&["Other", REVISIONS_ARE_READ]]);
        let off = gates(&[&["Other"]]);
        let half = gates(&[&[REVISIONS_ARE_READ], &[]]);
        let removed = json!({"spec": {"managementState": "Removed"}});
        let blocked = |theirs: &str, ours: &str| {
            let conditions = json!([
                {"type": INSTALLED_UPGRADEABLE, "status": theirs},
                {"type": CONTRIBUTED, "status": ours},
            ]);
            json!({"spec": {"managementState": "Managed"}, "status": {"conditions": conditions}})
        };
        let not_managed = |state: &str| Some(Reluctance::NotManaged(state.to_owned()));
        let rows = [
            (Mode::Off, true, Some(&managed), None, Outlet::Off, None),
            (Mode::Own, true, Some(&managed), None, Outlet::Own, None),
            (Mode::Own, false, None, None, Outlet::Wait, Some(Reluctance::NoClusterOperators)),
            (Mode::Contribute, true, Some(&unmanaged), None, Outlet::Contribute, None),
            (Mode::Contribute, true, None, None, Outlet::Wait, Some(Reluctance::NoOlm)),
            (Mode::Auto, false, Some(&managed), None, Outlet::Wait, None),
            (Mode::Auto, true, None, Some(&on), Outlet::Own, None),
            (Mode::Auto, true, Some(&managed), None, Outlet::Contribute, None),
            (Mode::Auto, true, Some(&managed), Some(&off), Outlet::Contribute, None),
            (Mode::Auto, true, Some(&managed), Some(&half), Outlet::Contribute, None),
            (Mode::Auto, true, Some(&managed), Some(&on), Outlet::Off, None),
            (Mode::Auto, true, Some(&blocked("True", "False")), Some(&on), Outlet::Contribute, None),
            (Mode::Auto, true, Some(&blocked("False", "False")), Some(&on), Outlet::Off, None),
            (Mode::Auto, true, Some(&blocked("True", "True")), Some(&on), Outlet::Off, None),
            (Mode::Off, true, Some(&blocked("True", "False")), None, Outlet::Off, None),
            (Mode::Auto, true, Some(&unmanaged), Some(&on), Outlet::Wait, not_managed("Unmanaged")),
            (Mode::Auto, true, Some(&removed), None, Outlet::Wait, not_managed("Removed")),
        ];
        for (mode, cluster_operators, olm, feature_gate, expected, reluctance) in rows {
            let platform = &PlatformType::OpenShift;
            let facts = OutletFacts { platform, cluster_operators, olm, feature_gate };
            assert_eq!(outlet(mode, &facts), (expected, reluctance), "{mode:?} {facts:?}");
        }
        let platform = &PlatformType::Kubernetes;
        let facts = OutletFacts { platform, cluster_operators: true, olm: None, feature_gate: None };
        assert_eq!(outlet(Mode::Auto, &facts), (Outlet::Off, None));
    }
}
