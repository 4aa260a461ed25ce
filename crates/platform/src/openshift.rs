//! State of OpenShift's own objects, and the choice of the outlet: the object that receives the verdict
//! (docs/design/operations.md#verdict, docs/design/operations.md#outlets).

use olm_api::cluster_upgrade_status::PlatformType;
use olm_api::conditions::Status;
use serde_json::Value;

use crate::cluster_operator::ClusterOperatorCondition;
use crate::version::MinorVersion;

/// OpenShift feature gate that makes OpenShift's own OLM operator evaluate the annotations of revisions.
const REVISION_RUNTIME_GATE: &str = "NewOLMBoxCutterRuntime";
/// Condition of the OLM object with which that operator reports its result.
const INSTALLED_UPGRADEABLE: &str = "InstalledOLMOperatorsUpgradeable";
/// Condition that we write to the OLM object. Its operator aggregates every type that ends in Upgradeable.
pub const CONTRIBUTED: &str = "ClusterExtensionsUpgradeable";

/// Returns the version of a ClusterVersion object: the higher one of the desired version and the newest completed
/// one. During an update, extensions that block the following update are therefore already reported.
pub fn cluster_version(object: &Value) -> Option<MinorVersion> {
    let desired = object.pointer("/status/desired/version").and_then(Value::as_str);
    let known = [desired, completed_version(object)].into_iter().flatten();
    known.filter_map(|text| text.parse().ok()).max()
}

/// Returns the newest completed version of a ClusterVersion object, verbatim.
pub fn completed_version(object: &Value) -> Option<&str> {
    let history = object.pointer("/status/history").and_then(Value::as_array)?;
    // The newest entry is the first.
    let completed = history.iter().find(|entry| entry["state"] == "Completed")?;
    completed["version"].as_str().filter(|version| !version.is_empty())
}

/// Mode of the outlet, set by the administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterOperatorMode {
    /// Chosen to suit the cluster's own OLM operator.
    Auto,
    /// Upgradeable condition of our own ClusterOperator.
    Own,
    /// Condition of OpenShift's OLM object, which its operator publishes.
    Contribute,
    /// Disabled.
    Off,
}

/// Object that receives the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlet {
    /// The ClusterOperator.
    Own,
    /// The OLM object.
    Contribute,
    /// None. A contributed condition is removed.
    Off,
    /// None for now. A contributed condition is retained: if removed too early, it would let an update pass.
    Wait,
}

/// Reason why the verdict is not written although OpenShift was detected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutletUnavailable {
    /// The OLM operator rewrites the ClusterOperator.
    #[error("OLM \"cluster\" has managementState {0}: its operator decides about the ClusterOperator")]
    NotManaged(String),
    /// The ClusterOperator API is not served.
    #[error("ClusterOperators are not served: the verdict is not written to one")]
    NoClusterOperators,
    /// The OLM object does not exist.
    #[error("there is no OLM \"cluster\" of operator.openshift.io: nothing to contribute to")]
    NoOlm,
}

/// Inputs for the choice of the outlet.
#[derive(Clone, Copy, Debug)]
pub struct OutletFacts<'a> {
    /// Detected or configured platform.
    pub platform: &'a PlatformType,
    /// `true` if ClusterOperators are served.
    pub cluster_operators: bool,
    /// Object `olms.operator.openshift.io/cluster`.
    pub olm: Option<&'a Value>,
    /// Object `featuregates.config.openshift.io/cluster`.
    pub feature_gate: Option<&'a Value>,
}

/// Chooses the outlet and, if none can be written, the reason.
pub fn outlet(mode: ClusterOperatorMode, facts: &OutletFacts<'_>) -> (Outlet, Option<OutletUnavailable>) {
    match mode {
        ClusterOperatorMode::Off => (Outlet::Off, None),
        ClusterOperatorMode::Own if facts.cluster_operators => (Outlet::Own, None),
        ClusterOperatorMode::Own => (Outlet::Wait, Some(OutletUnavailable::NoClusterOperators)),
        ClusterOperatorMode::Contribute if facts.olm.is_some() => (Outlet::Contribute, None),
        ClusterOperatorMode::Contribute => (Outlet::Wait, Some(OutletUnavailable::NoOlm)),
        ClusterOperatorMode::Auto => automatic_outlet(facts),
    }
}

fn automatic_outlet(facts: &OutletFacts<'_>) -> (Outlet, Option<OutletUnavailable>) {
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
        state @ ("Unmanaged" | "Removed") => {
            (Outlet::Wait, Some(OutletUnavailable::NotManaged(state.to_owned())))
        }
        _ if facts.feature_gate.is_some_and(reads_revisions) && !is_blocked_by_us_alone(olm) => {
            (Outlet::Off, None)
        }
        _ => (Outlet::Contribute, None),
    }
}

/// Returns `true` if only our condition blocks an update: the OLM operator may not have evaluated yet.
fn is_blocked_by_us_alone(olm: &Value) -> bool {
    let is_false = |type_| {
        ClusterOperatorCondition::stored(olm, type_).is_some_and(|stored| stored.status == Status::False)
    };
    is_false(CONTRIBUTED) && !is_false(INSTALLED_UPGRADEABLE)
}

/// Returns `true` if the gate is on in every version that the FeatureGate object lists. During an update there are
/// several.
fn reads_revisions(gate: &Value) -> bool {
    let versions = gate.pointer("/status/featureGates").and_then(Value::as_array);
    let is_enabled = |version: &Value| {
        let enabled = version["enabled"].as_array();
        enabled.is_some_and(|gates| gates.iter().any(|gate| gate["name"] == REVISION_RUNTIME_GATE))
    };
    versions.is_some_and(|versions| !versions.is_empty() && versions.iter().all(is_enabled))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // Cases operations-e31, operations-e32, operations-e33
    #[test]
    fn cluster_version_is_higher_of_desired_and_completed() {
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
    fn outlet_depends_on_mode_and_openshift_objects() {
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
        let on = gates(&[&["Other", REVISION_RUNTIME_GATE]]);
        let off = gates(&[&["Other"]]);
        let half = gates(&[&[REVISION_RUNTIME_GATE], &[]]);
        let removed = json!({"spec": {"managementState": "Removed"}});
        let blocked = |theirs: &str, ours: &str| {
            let conditions = json!([
                {"type": INSTALLED_UPGRADEABLE, "status": theirs},
                {"type": CONTRIBUTED, "status": ours},
            ]);
            json!({"spec": {"managementState": "Managed"}, "status": {"conditions": conditions}})
        };
        let not_managed = |state: &str| Some(OutletUnavailable::NotManaged(state.to_owned()));
        let rows = [
            (Mode::Off, true, Some(&managed), None, Outlet::Off, None),
            (Mode::Own, true, Some(&managed), None, Outlet::Own, None),
            (Mode::Own, false, None, None, Outlet::Wait, Some(OutletUnavailable::NoClusterOperators)),
            (Mode::Contribute, true, Some(&unmanaged), None, Outlet::Contribute, None),
            (Mode::Contribute, true, None, None, Outlet::Wait, Some(OutletUnavailable::NoOlm)),
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
        for (mode, cluster_operators, olm, feature_gate, expected, unavailable) in rows {
            let platform = &PlatformType::OpenShift;
            let facts = OutletFacts { platform, cluster_operators, olm, feature_gate };
            assert_eq!(outlet(mode, &facts), (expected, unavailable), "{mode:?} {facts:?}");
        }
        let platform = &PlatformType::Kubernetes;
        let facts = OutletFacts { platform, cluster_operators: true, olm: None, feature_gate: None };
        assert_eq!(outlet(Mode::Auto, &facts), (Outlet::Off, None));
    }
}
