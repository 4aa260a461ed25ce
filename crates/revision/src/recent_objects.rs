//! Copies of objects that a revision last read or wrote. Its siblings use them instead of a read
//! (docs/design/apply.md#fast-path).

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;

use crate::object::ObjectKey;
use crate::observed_versions::{ObservedVersions, Stamp};

/// Maximum size of all objects in bytes of JSON.
const MAX_BYTES: usize = 4 << 20;

/// Objects in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct RecentObjects(Mutex<VecDeque<RecentObject>>);

#[derive(Debug)]
struct RecentObject {
    key: ObjectKey,
    stamp: Stamp,
    json: Arc<str>,
}

impl RecentObjects {
    /// Adds a live object in place of its earlier version. Drops the oldest ones above the maximum size.
    pub(crate) fn add(&self, observed_versions: &ObservedVersions, key: &ObjectKey, live: &Value) {
        let Some(stamp) = observed_versions.stamp(&key.gvk, live) else { return };
        let json = live.to_string().into();
        let mut objects = self.0.lock();
        objects.retain(|object| object.key != *key);
        objects.push_back(RecentObject { key: key.clone(), stamp, json });
        let mut bytes: usize = objects.iter().map(|object| object.json.len()).sum();
        while bytes > MAX_BYTES {
            bytes -= objects.pop_front().map_or(bytes, |object| object.json.len());
        }
    }

    /// Returns the object if the observed versions show no later one.
    pub(crate) fn current(&self, observed_versions: &ObservedVersions, key: &ObjectKey) -> Option<Value> {
        let json = {
            let objects = self.0.lock();
            let object = objects.iter().find(|object| object.key == *key)?;
            let is_current = observed_versions.is_current(key, &object.stamp);
            is_current.then(|| Arc::clone(&object.json))?
        };
        serde_json::from_str(&json).ok()
    }
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectMeta;
    use serde_json::json;

    use super::*;

    fn config_map(name: &str, version: &str, text: &str) -> (ObjectKey, Value) {
        let metadata = json!({"name": name, "namespace": "ns", "uid": name, "resourceVersion": version});
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"k": text}});
        (ObjectKey::of(&object), object)
    }

    #[test]
    fn object_is_returned_until_a_later_version_is_observed() {
        let (observed_versions, recent) = (ObservedVersions::default(), RecentObjects::default());
        let (key, object) = config_map("a", "5", "");
        recent.add(&observed_versions, &key, &object);
        assert_eq!(recent.current(&observed_versions, &key), None, "no watch yet");
        let observe = |version: &str| {
            let metadata = &config_map("a", version, "").1["metadata"];
            let metadata: ObjectMeta = serde_json::from_value(metadata.clone()).unwrap();
            observed_versions.record(&key.gvk, &metadata);
        };
        observed_versions.begin_list(&key.gvk);
        observed_versions.complete_list(&key.gvk);
        observe("5");
        assert_eq!(recent.current(&observed_versions, &key), Some(object));
        observe("6");
        assert_eq!(recent.current(&observed_versions, &key), None);
        let (_, object) = config_map("a", "6", "");
        recent.add(&observed_versions, &key, &object);
        assert_eq!(recent.current(&observed_versions, &key), Some(object));
    }

    #[test]
    fn oldest_objects_are_dropped_above_the_maximum_size() {
        let (observed_versions, recent) = (ObservedVersions::default(), RecentObjects::default());
        let text = "x".repeat(MAX_BYTES / 3);
        for name in ["a", "b", "a", "c"] {
            let (key, object) = config_map(name, "5", &text);
            recent.add(&observed_versions, &key, &object);
        }
        let names =
            || -> Vec<String> { recent.0.lock().iter().map(|object| object.key.name.clone()).collect() };
        assert_eq!(names(), ["a", "c"]);
        let (key, object) = config_map("d", "5", &text.repeat(4));
        recent.add(&observed_versions, &key, &object);
        assert!(names().is_empty(), "an object above the maximum size");
    }
}
