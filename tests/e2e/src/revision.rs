//! ClusterObjectSets and their conditions.

use kube::runtime::wait::Condition as Wait;
use olm_api::{ClusterObjectSet, conditions};
use serde_json::{Value, json};

/// Builds an active ClusterObjectSet. `spec` is merged into its spec.
pub fn object_set(name: &str, spec: Value) -> ClusterObjectSet {
    let mut whole = json!({"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"});
    if let (Some(whole), Some(more)) = (whole.as_object_mut(), spec.as_object()) {
        whole.extend(more.clone());
    }
    let object = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
        "metadata": {"name": name}, "spec": whole,
    });
    serde_json::from_value(object)
        .unwrap_or_else(|error| unreachable!("the caller's spec is one of a ClusterObjectSet: {error}"))
}

/// Holds once a condition of the revision, as `Status/Reason: message`, has this prefix.
pub fn revision_says(type_: &'static str, begins: impl Into<String>) -> impl Wait<ClusterObjectSet> {
    let begins = begins.into();
    move |set: Option<&ClusterObjectSet>| {
        let conditions = set.and_then(|set| set.status.as_ref()).map(|status| status.conditions.as_slice());
        conditions::find(conditions.unwrap_or_default(), type_)
            .is_some_and(|c| format!("{}/{}: {}", c.status, c.reason, c.message).starts_with(&begins))
    }
}
