//! Revisions for tests.

use olm_api::cluster_object_set::LifecycleState;
use olm_api::{ClusterObjectSet, annotations, labels};
use serde_json::json;

/// Returns an active revision of `extension` that has succeeded, of the bundle `<extension>.v<number>`.
pub(super) fn set(extension: &str, number: i64, more: &[(&str, &str)]) -> ClusterObjectSet {
    let mut set: ClusterObjectSet = serde_json::from_value(json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
        "metadata": {
            "name": format!("{extension}-{number}"),
            "labels": {labels::OWNER_KIND: labels::OWNER_KIND_EXTENSION, labels::OWNER_NAME: extension},
            "annotations": {
                annotations::BUNDLE_NAME: format!("{extension}.v{number}"),
                annotations::BUNDLE_VERSION: format!("{number}.0.0"),
                annotations::PACKAGE_NAME: extension,
            },
        },
        "spec": {"lifecycleState": "Active", "revision": number, "collisionProtection": "Prevent"},
        "status": {"conditions": [{"type": "Succeeded", "status": "True", "reason": "Succeeded", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }))
    .unwrap();
    let more = more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    set.metadata.annotations.get_or_insert_default().extend(more);
    set
}

pub(super) fn archived(mut set: ClusterObjectSet) -> ClusterObjectSet {
    set.spec.as_mut().unwrap().lifecycle_state = LifecycleState::Archived;
    set
}

pub(super) fn rolling_out(mut set: ClusterObjectSet) -> ClusterObjectSet {
    set.status = None;
    set
}
