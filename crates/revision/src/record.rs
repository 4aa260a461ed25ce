//! Record of the identities of a revision's objects, in the annotation [`annotations::EXT_OBJECTS`] of its
//! ClusterObjectSet. With it, a removal or a handover needs no content Secret, which can be lost.
//!
//! Pure. The value is base64 of gzip of JSON, `{"phases": [{"name", "objects"}]}`. An object has apiVersion, kind,
//! namespace and name.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use kube::ResourceExt;
use olm_api::{ClusterObjectSet, annotations};
use serde_json::{Value, json};

use crate::content::{ContentObject, ContentPhase};
use crate::object::ObjectKey;
use crate::packing::{gzip, unpack};

/// Maximum size of all annotations of an object in bytes, including keys.
pub(crate) const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// Record of these phases to add to `set`. `None` if `set` has it, needs none because all content is inline, or has
/// no space for it. A record of other objects, as on a copied revision, is replaced.
pub fn missing(set: &ClusterObjectSet, phases: &[ContentPhase]) -> Option<String> {
    let mut objects = set.spec.iter().flat_map(|spec| &spec.phases).flat_map(|phase| &phase.objects);
    if objects.all(|object| object.ref_.is_none()) || phases.is_empty() {
        return None;
    }
    let identity = |content: &ContentObject| ObjectKey::of(&content.object).to_object();
    let phase = |phase: &ContentPhase| -> Value {
        let objects: Vec<Value> = phase.objects.iter().map(identity).collect();
        json!({"name": phase.name, "objects": objects})
    };
    let record = json!({"phases": phases.iter().map(phase).collect::<Vec<_>>()});
    if read(set).as_ref() == Some(&record) {
        return None;
    }
    let record = BASE64_URL_SAFE_NO_PAD.encode(gzip(record.to_string().as_bytes()).ok()?);
    let size = size_with(set.annotations(), annotations::EXT_OBJECTS, &record);
    (size <= MAX_ANNOTATION_BYTES).then_some(record)
}

/// Phases and objects in the record of `set`, with identities only. `None` without a readable record.
pub fn recorded(set: &ClusterObjectSet) -> Option<Vec<ContentPhase>> {
    let record = read(set)?;
    let phase = |phase: &Value| {
        Some(ContentPhase::inline(phase["name"].as_str()?, phase["objects"].as_array()?.clone()))
    };
    record["phases"].as_array()?.iter().map(phase).collect()
}

fn read(set: &ClusterObjectSet) -> Option<Value> {
    let value = set.annotation(annotations::EXT_OBJECTS)?;
    unpack(&BASE64_URL_SAFE_NO_PAD.decode(value).ok()?, "", "").ok()
}

/// Size of `annotations` in bytes with `key` added.
pub(crate) fn size_with(annotations: &BTreeMap<String, String>, key: &str, value: &str) -> usize {
    let others = annotations.iter().filter(|(other, _)| *other != key);
    others.map(|(key, value)| key.len() + value.len()).sum::<usize>() + key.len() + value.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(annotations: Value) -> ClusterObjectSet {
        serde_json::from_value(
            json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": {"name": "demo-1", "annotations": annotations},
            "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent", "phases": [
                {"name": "p", "objects": [{"ref": {"name": "s", "key": "k"}}]}]}}),
        )
        .unwrap()
    }

    fn maps(count: usize) -> Vec<ContentPhase> {
        let map = |n: usize| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
                "metadata": {"name": format!("map-{n}"), "namespace": "ns", "labels": {"a": "b"}}})
        };
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"}});
        vec![
            ContentPhase::inline("configuration", (0..count).map(map).collect()),
            ContentPhase::inline("roles", vec![role]),
        ]
    }

    #[test]
    fn record_contains_the_identity_of_every_object() {
        let phases = maps(2);
        let value = missing(&set(json!({})), &phases).unwrap();
        let read = recorded(&set(json!({ annotations::EXT_OBJECTS: value }))).unwrap();
        let keys = |phases: &[ContentPhase]| -> Vec<(String, Vec<ObjectKey>)> {
            let keys =
                |phase: &ContentPhase| phase.objects.iter().map(|o| ObjectKey::of(&o.object)).collect();
            phases.iter().map(|phase| (phase.name.clone(), keys(phase))).collect()
        };
        assert_eq!(keys(&read), keys(&phases));
        assert_eq!(
            read[0].objects[0].object,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map-0", "namespace": "ns"}})
        );
    }

    #[test]
    fn record_of_the_largest_revision_is_small() {
        let value = missing(&set(json!({})), &maps(1000)).unwrap();
        assert!(value.len() < 32 * 1024, "{} bytes", value.len());
    }

    #[test]
    fn record_is_created_if_missing_and_it_fits() {
        let value = missing(&set(json!({})), &maps(1)).unwrap();
        let recorded = set(json!({ annotations::EXT_OBJECTS: value }));
        assert_eq!(missing(&recorded, &maps(1)), None);
        assert_eq!(missing(&recorded, &maps(2)), missing(&set(json!({})), &maps(2)), "copied record");
        assert_eq!(missing(&set(json!({})), &[]), None, "phases may be added to an empty revision");
        let mut inline = set(json!({}));
        inline.spec.as_mut().unwrap().phases.clear();
        assert_eq!(missing(&inline, &maps(1)), None);
        let full = "x".repeat(MAX_ANNOTATION_BYTES - 100);
        assert_eq!(missing(&set(json!({ "a": full })), &maps(1)), None);
    }

    #[test]
    fn unreadable_record_is_treated_as_missing() {
        for broken in ["", "~", "AAAA", "e30"] {
            let broken = set(json!({ annotations::EXT_OBJECTS: broken }));
            assert!(recorded(&broken).is_none());
            assert!(missing(&broken, &maps(1)).is_some());
        }
    }
}
