//! Objects that a bundle ships besides its ClusterServiceVersion and CRDs
//! (docs/design/bundles.md#shipped-objects).

use std::collections::HashSet;

use serde_json::Value;

use crate::kinds::{Scope, scope_of};

/// Object as installed: as authored, except for its namespace.
pub(crate) fn placed(object: &Value, install_namespace: &str) -> Value {
    let mut object = object.clone();
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
    if scope_of(kind) == Some(Scope::InstallNamespace)
        && let Some(entries) = object.as_object_mut()
    {
        let metadata = entries.entry("metadata").or_insert_with(|| Value::Object(Default::default()));
        // The reference does not set the namespace if metadata is null.
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("namespace".into(), Value::from(install_namespace));
        }
    }
    object
}

/// Removes duplicates of equal objects and keeps the first (docs/design/bundles.md#author-checks). A bundle may
/// ship the ServiceAccount that is also generated for it, and a revision with a duplicate never completes its
/// rollout. The result of rendering keeps duplicates, as in the reference.
pub fn distinct(objects: Vec<Value>) -> Vec<Value> {
    let mut seen = HashSet::new();
    let is_first: Vec<bool> = objects.iter().map(|object| seen.insert(object)).collect();
    objects.into_iter().zip(is_first).filter_map(|(object, is_first)| is_first.then_some(object)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_objects_are_deduplicated() {
        let account = |label: &str| json!({"kind": "ServiceAccount", "metadata": {"name": "a", "labels": {"x": label}}});
        let objects = vec![account("1"), account("2"), account("1")];
        assert_eq!(distinct(objects), [account("1"), account("2")]);
    }

    #[test]
    fn namespaced_kinds_get_the_install_namespace() {
        // Case bundles-45
        let authored = json!({"kind": "ConfigMap", "metadata": {"name": "c", "namespace": "x"}});
        let expected = json!({"kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns"}});
        assert_eq!(placed(&authored, "ns"), expected);
        for kind in ["PriorityClass", "VerticalPodAutoscaler"] {
            let authored = json!({"kind": kind, "metadata": {"name": "p", "namespace": "kept"}});
            assert_eq!(placed(&authored, "ns"), authored);
        }
        assert_eq!(placed(&json!({"kind": "Secret"}), "ns")["metadata"], json!({"namespace": "ns"}));
        let null = json!({"kind": "Secret", "metadata": null});
        assert_eq!(placed(&null, "ns"), null);
    }
}
