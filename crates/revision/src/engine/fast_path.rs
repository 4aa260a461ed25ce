//! Fast path: a pass without the content, valid while there is nothing to do.

use olm_api::cluster_object_set::CollisionProtection;
use serde_json::Value;

use super::Engine;
use super::execute::probed;
use crate::cluster::Cluster;
use crate::memory::{VerifiedObject, hash_of_ours};
use crate::object::{ObjectKey, is_crd};
use crate::plan::{ObjectPlan, Owner, is_controlled, plan};
use crate::probes::Probes;
use crate::result::{Action, ObjectResult, PhaseResult, RevisionResult};

impl<C: Cluster> Engine<C> {
    /// Fast path over a revision without its content, which must be the same as at the last [`Self::reconcile`].
    /// Reads only objects that changed since. Returns `None` if the content is needed.
    pub async fn fast_path(
        &self,
        owner: &Owner,
        siblings: &[String],
        probes: &Probes,
    ) -> Option<RevisionResult> {
        let mut memory = self.shared.memories.lock().remove(&owner.uid)?;
        memory.compare_siblings(siblings);
        let mut result = RevisionResult::new(memory.phase_count);
        let pass = async {
            for phase in &mut memory.phases {
                let mut objects = Vec::with_capacity(phase.objects.len());
                for object in &mut phase.objects {
                    objects.push(self.recheck(object.as_mut()?, owner, siblings, probes).await?);
                }
                result.watch(objects.iter().map(|object| object.key.gvk.clone()));
                let phase = PhaseResult { name: phase.name.clone(), objects, ..PhaseResult::default() };
                let complete = phase.is_complete();
                result.phases.push(phase);
                if !complete {
                    return Some(result);
                }
            }
            result.is_complete().then_some(result)
        };
        let result = pass.await;
        self.shared.memories.lock().insert(owner.uid.clone(), memory);
        result
    }

    /// Reads the object if it has changed. Returns `None` unless it is still as verified.
    async fn recheck(
        &self,
        verified: &mut VerifiedObject,
        owner: &Owner,
        siblings: &[String],
        probes: &Probes,
    ) -> Option<ObjectResult> {
        if let Some(result) = verified.unchanged(&self.shared.observed_versions) {
            return Some(result);
        }
        let actual = self.recent(&verified.result.key, siblings).await?;
        // Collision protection does not matter for objects of this revision or a sibling.
        let protection = CollisionProtection::Prevent;
        let action = match plan(Some(&actual), owner, siblings, &protection) {
            ObjectPlan::Repair if verified.live_hash == hash_of_ours(&actual) => Action::Idle,
            ObjectPlan::AwaitDeletion
                if !is_crd(&verified.result.key.gvk) && is_controlled(&actual, owner) =>
            {
                Action::Idle
            }
            ObjectPlan::Leave => Action::Progressed,
            _ => return None,
        };
        let result = probed(verified.result.key.clone(), action, &actual, probes);
        *verified =
            VerifiedObject::of(&self.shared.observed_versions, &result, verified.desired_hash, &actual)?;
        Some(result)
    }

    /// Returns the object in its last observed version. Reads it, unless a sibling has just done so.
    async fn recent(&self, key: &ObjectKey, siblings: &[String]) -> Option<Value> {
        if let Some(object) = self.shared.recent_objects.current(&self.shared.observed_versions, key) {
            return Some(object);
        }
        let actual = self.cluster.get(key).await.ok()??;
        if !siblings.is_empty() {
            self.share(key, &actual);
        }
        Some(actual)
    }
}
