//! Which revisions belong together, so that a pass need not look through all of the cluster's. Pure.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use kube::ResourceExt;
use olm_api::{ClusterObjectSet, labels};

/// Names of revisions by extension. A revision may be listed where it no longer belongs: whoever uses a name looks at the
/// revision itself.
#[derive(Debug, Default)]
pub(super) struct Families(Mutex<HashMap<String, BTreeSet<String>>>);

impl Families {
    /// Notes a revision that exists.
    pub(super) fn add(&self, set: &ClusterObjectSet) {
        if let Some(extension) = set.labels().get(labels::OWNER_NAME) {
            self.lock().entry(extension.clone()).or_default().insert(set.name_any());
        }
    }

    /// Forgets a revision that is gone.
    pub(super) fn remove(&self, set: &ClusterObjectSet) {
        let name = set.name_any();
        self.retain(|other| other != name);
    }

    /// Forgets all but these.
    pub(super) fn retain(&self, is_alive: impl Fn(&str) -> bool) {
        self.lock().retain(|_, names| {
            names.retain(|name| is_alive(name));
            !names.is_empty()
        });
    }

    /// The revisions of an extension, in the order of their names.
    pub(super) fn of(&self, extension: &str) -> Vec<String> {
        self.lock().get(extension).into_iter().flatten().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, BTreeSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(name: &str, extension: Option<&str>) -> ClusterObjectSet {
        let labels = extension.map(|name| json!({labels::OWNER_NAME: name}));
        let metadata = json!({"name": name, "labels": labels});
        serde_json::from_value(
            json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
            "metadata": metadata}),
        )
        .unwrap()
    }

    #[test]
    fn revisions_of_one_extension() {
        let families = Families::default();
        for (name, extension) in [("a-2", Some("a")), ("a-1", Some("a")), ("b-1", Some("b")), ("c-1", None)] {
            families.add(&set(name, extension));
        }
        assert_eq!(families.of("a"), ["a-1", "a-2"]);
        families.remove(&set("a-1", Some("a")));
        families.retain(|name| name != "b-1");
        assert_eq!((families.of("a"), families.of("b")), (vec!["a-2".to_owned()], vec![]));
    }
}
