//! Memory of a revision between two passes: for each object the verified state as hashes, and the results of its
//! probes. Never the objects themselves (docs/design/apply.md#fast-path).

use std::collections::HashMap;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use crate::fields::scaled;
use crate::managed_fields::owned;
use crate::object::{ObjectKey, uid};
use crate::observed_versions::{ObservedVersions, Stamp};
use crate::plan::{controller, is_deleting, is_keeper, owners};
use crate::result::{Action, ObjectResult};

/// Results of the last passes over a revision.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Number of phases of the revision.
    pub phase_count: usize,
    /// UIDs of the siblings at that time. Objects that moved to a sibling can come back without it.
    pub siblings: Vec<String>,
    /// Phases that were reached.
    pub phases: Vec<VerifiedPhase>,
    /// Objects whose removal is complete: deleted, handed over or never controlled by the revision. With the
    /// [`ObservedVersions::list`] before it: after a later list they may exist again, in a restored cluster.
    pub removed: HashMap<ObjectKey, u64>,
    /// Objects whose deletion the last pass of a removal was denied, with the message of the API server.
    pub denied: Vec<(ObjectKey, String)>,
}

/// Phase that was reached.
#[derive(Debug, Default)]
pub(crate) struct VerifiedPhase {
    pub name: String,
    /// Objects in order. `None` where an object was not verified.
    pub objects: Vec<Option<VerifiedObject>>,
    /// `true` if the last pass over the phase failed at a check or a write, or the API server rejected an object.
    pub has_failed: bool,
    /// Objects whose creation is left to a newer revision, with the time since which they are missing.
    pub missing: HashMap<ObjectKey, Instant>,
}

/// Object that was verified.
#[derive(Clone, Debug)]
pub(crate) struct VerifiedObject {
    /// Result as of an unchanged object. Its action is idle, or progressed to a newer revision.
    pub result: ObjectResult,
    /// Hash of the desired object.
    pub desired_hash: Hash,
    /// [`hash_of_ours`] of the live object.
    pub live_hash: Hash,
    /// Exact version of the live object.
    stamp: Option<Stamp>,
}

impl Memory {
    /// Phase at `index`, empty when it is reached for the first time.
    pub(crate) fn phase(&mut self, index: usize, name: &str, objects: usize) -> &mut VerifiedPhase {
        if self.phases.len() <= index {
            self.phases.resize_with(index + 1, VerifiedPhase::default);
        }
        let phase = &mut self.phases[index];
        name.clone_into(&mut phase.name);
        // Most phases have one or two objects. A vector that grows has room for four.
        phase.objects.reserve_exact(objects.saturating_sub(phase.objects.len()));
        phase.objects.resize(objects, None);
        phase
    }

    /// Forgets the results that depend on the siblings if these changed.
    pub(crate) fn compare_siblings(&mut self, siblings: &[String]) {
        if self.siblings == siblings {
            return;
        }
        self.siblings = siblings.to_vec();
        for object in self.phases.iter_mut().flat_map(|phase| &mut phase.objects) {
            object.take_if(|verified| verified.result.action == Action::Progressed);
        }
    }
}

impl VerifiedObject {
    /// Remembers the result for an object, unless changes are pending.
    pub(crate) fn of(
        observed_versions: &ObservedVersions,
        result: &ObjectResult,
        desired_hash: Hash,
        live: &Value,
    ) -> Option<Self> {
        let action = match result.action {
            Action::Idle | Action::Created | Action::Updated | Action::Recovered => Action::Idle,
            Action::Progressed => Action::Progressed,
            // Changes are pending.
            _ => return None,
        };
        Some(Self {
            result: ObjectResult { action, contention: None, ..result.clone() },
            desired_hash,
            live_hash: hash_of_ours(live),
            stamp: observed_versions.stamp(&result.key.gvk, live),
        })
    }

    /// Result for the object if the observed versions show no change.
    pub(crate) fn unchanged(&self, observed_versions: &ObservedVersions) -> Option<ObjectResult> {
        let stamp = self.stamp.as_ref()?;
        observed_versions.is_current(&self.result.key, stamp).then(|| self.result.clone())
    }
}

/// SHA-256 digest.
pub(crate) type Hash = [u8; 32];

/// Hash of a complete object.
pub(crate) fn hash(object: &Value) -> Hash {
    Sha256::digest(object.to_string()).into()
}

/// Hash of the compared parts of an object: everything but status, field ownership and the counters of the API
/// server.
pub(crate) fn hash_of_state(object: &Value) -> Hash {
    let mut state = object.clone();
    let counters = &["managedFields", "resourceVersion", "generation"];
    for (path, ignored) in [("", &["status"][..]), ("/metadata", counters)] {
        if let Some(Value::Object(map)) = state.pointer_mut(path) {
            map.retain(|member, _| !ignored.contains(&member.as_str()));
        }
    }
    hash(&state)
}

/// Hash of the parts that our apply could change: the fields that we own, the owner references, and the names of the fields
/// that an autoscaler holds, which can become ours again. Equals
/// [`hash_of_state`] where the API server does not report field ownership.
pub(crate) fn hash_of_ours(object: &Value) -> Hash {
    match owned(object) {
        Some(fields) => {
            let is_kept = owners(object).iter().any(is_keeper);
            let scaled: Vec<&Value> = scaled(object).collect();
            hash(&json!([fields, scaled, uid(object), controller(object), is_kept, is_deleting(object)]))
        }
        None => hash_of_state(object),
    }
}

#[cfg(test)]
mod tests {
    use olm_api::names::{KEEPER, REVISION_ENGINE_MANAGER};

    use super::*;

    #[test]
    fn hash_of_state_ignores_status_and_counters() {
        let state = |labels: Value, data: Value, version: &str| {
            json!({"kind": "K", "metadata": {"labels": labels, "resourceVersion": version, "generation": 1,
                "managedFields": [version]}, "data": data, "status": {"at": version}})
        };
        let base = hash_of_state(&state(json!({"a": "b"}), json!({}), "1"));
        assert_eq!(hash_of_state(&state(json!({"a": "b"}), json!({}), "2")), base);
        assert_ne!(hash_of_state(&state(json!({"a": "c"}), json!({}), "1")), base);
        assert_ne!(hash_of_state(&state(json!({"a": "b"}), json!({"k": "v"}), "1")), base);
        assert_ne!(hash(&json!({"a": "bc"})), hash(&json!({"ab": "c"})));
    }

    #[test]
    fn hash_of_owned_fields_ignores_other_managers() {
        let object = |ours: Value, note: &str, owners: Value| {
            let entry = |manager: &str, operation: &str, fields: Value| {
                json!({"manager": manager, "operation": operation,
                "time": note, "fieldsV1": {"f:data": fields, "f:metadata": {"f:ownerReferences": owners}}})
            };
            json!({"metadata": {"uid": "u", "annotations": {"note": note}, "ownerReferences": owners, "managedFields": [
                entry(REVISION_ENGINE_MANAGER, "Apply", ours), entry("kubectl", "Update", json!({"note": note}))]}})
        };
        let of = |controller: bool| json!([{"uid": "r", "controller": controller}, {"uid": "s"}]);
        let base = hash_of_ours(&object(json!({"f:a": {}}), "1", of(true)));
        let others = json!([{"uid": "r", "controller": true}]);
        assert_eq!(hash_of_ours(&object(json!({"f:a": {}}), "2", others)), base);
        assert_ne!(hash_of_ours(&object(json!({}), "1", of(true))), base, "owner of a field changed");
        assert_ne!(hash_of_ours(&object(json!({"f:a": {}}), "1", of(false))), base, "no controller");
        let keeper = json!([{"uid": "r", "controller": true}, {"apiVersion": "v1", "kind": "Namespace", "name": KEEPER}]);
        assert_ne!(hash_of_ours(&object(json!({"f:a": {}}), "1", keeper)), base, "a keeper");
        let unmanaged = json!({"data": {"a": "b"}});
        assert_eq!(hash_of_ours(&unmanaged), hash_of_state(&unmanaged));
    }
}
