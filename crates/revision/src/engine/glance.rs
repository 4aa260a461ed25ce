//! Fast path: a pass without the content, valid while there is nothing to do.

use olm_api::cluster_object_set::CollisionProtection;

use super::Engine;
use super::settle::probed;
use crate::cluster::Cluster;
use crate::memory::{Known, Memory, hash_of_ours};
use crate::object::is_crd;
use crate::plan::{Owner, Plan, plan};
use crate::probes::Probes;
use crate::result::{Action, ObjectResult, PhaseResult, RevisionResult};

impl<C: Cluster> Engine<C> {
    /// Fast path over a revision without its content, which must be the same as at the last [`Self::reconcile`].
    /// Reads only objects that changed since. Returns `None` if the content is needed.
    pub async fn glance(
        &self,
        owner: &Owner,
        siblings: &[String],
        probes: &Probes,
    ) -> Option<RevisionResult> {
        let mut memory = self.memories.lock().remove(&owner.uid)?;
        memory.compare_siblings(siblings);
        let result = self.glance_at(&mut memory, owner, siblings, probes).await;
        self.memories.lock().insert(owner.uid.clone(), memory);
        result
    }

    async fn glance_at(
        &self,
        memory: &mut Memory,
        owner: &Owner,
        siblings: &[String],
        probes: &Probes,
    ) -> Option<RevisionResult> {
        let mut result = RevisionResult::new(memory.phase_count);
        for phase in &mut memory.phases {
            let mut objects = Vec::with_capacity(phase.objects.len());
            for object in &mut phase.objects {
                let known = object.as_mut()?;
                objects.push(self.look_again(known, owner, siblings, probes).await?);
            }
            result.watch(objects.iter().map(|object| object.key.gvk.clone()));
            result.phases.push(PhaseResult { name: phase.name.clone(), objects, ..PhaseResult::default() });
            if !result.phases.last().is_some_and(PhaseResult::is_complete) {
                return Some(result);
            }
        }
        result.is_complete().then_some(result)
    }

    /// Reads the object again. Returns `None` unless it is still as verified.
    async fn look_again(
        &self,
        known: &mut Known,
        owner: &Owner,
        siblings: &[String],
        probes: &Probes,
    ) -> Option<ObjectResult> {
        if let Some(result) = known.unchanged(&self.sightings) {
            return Some(result);
        }
        let actual = self.cluster.get(&known.key).await.ok()??;
        // Collision protection does not matter for objects of this revision or a sibling.
        let protection = CollisionProtection::Prevent;
        let action = match plan(Some(&actual), owner, siblings, &protection) {
            Plan::Repair if known.found == hash_of_ours(&actual) => Action::Idle,
            Plan::AwaitDeletion if !is_crd(&known.key.gvk) => Action::Idle,
            Plan::Leave => Action::Progressed,
            _ => return None,
        };
        let result = probed(known.key.clone(), action, &actual, probes);
        *known = Known::of(&self.sightings, &result, known.wanted, &actual)?;
        Some(result)
    }
}
