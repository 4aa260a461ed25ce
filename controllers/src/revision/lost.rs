//! What a revision that goes still holds: what its content says, or, where that is lost or no longer what was applied, what
//! the objects themselves say. Without that it would keep them for ever, and its successors would collide with them.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource, ResourceExt};
use olm_api::ClusterObjectSet;
use olm_revision::content::{ContentPhase, SecretKey, digests, secrets};
use olm_revision::digest::changed_content;
use olm_revision::engine::Revision;
use olm_revision::object::ObjectKey;
use olm_revision::phases::phases_of_keys;
use olm_service::cluster::describe;

use super::Context;
use super::content::{Unusable, secret_kind};
use super::drift::extension_of;

const REASON: &str = "ContentLost";

impl Context {
    /// What is to be removed of the revision, in phases.
    ///
    /// # Errors
    /// It could not be found out now.
    pub(super) async fn holdings(&self, set: &ClusterObjectSet) -> Result<Revision, String> {
        let why = match self.content_to_remove(set).await {
            Ok(content) => match changed(set, &content.phases) {
                None => return Ok(content),
                Some(why) => why,
            },
            Err(Unusable::Unreachable(error)) => return Err(error),
            Err(Unusable::Blocked(why) | Unusable::Broken(why)) => why,
        };
        let revision = self.revision(set, Vec::new());
        let found = self.engine.cluster().dependents(&revision.owner).await;
        let found = found.map_err(|error| format!("looking for objects of this revision: {error}"))?;
        let stored = set.spec.as_ref().map(|spec| secrets(spec, &self.system_namespace)).unwrap_or_default();
        let is_content = |key: &ObjectKey| {
            let secret = SecretKey { namespace: key.namespace.clone(), name: key.name.clone() };
            key.gvk == secret_kind() && stored.contains(&secret)
        };
        let mut keys: Vec<ObjectKey> = found.objects.into_iter().filter(|key| !is_content(key)).collect();
        // Those without our label too: what depends on them is not ours.
        let definitions = match self.definitions(&revision.owner.uid).await {
            Err(kube::Error::Api(status)) if status.is_forbidden() => Vec::new(),
            other => other
                .map_err(|error| format!("looking for definitions of this revision: {}", describe(&error)))?,
        };
        for key in definitions {
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        let name = set.name_any();
        if !keys.is_empty() {
            let objects: Vec<String> = keys.iter().map(ObjectKey::kind_first).collect();
            tracing::warn!(revision = name, why, ?objects, forbidden = ?found.forbidden, "content is lost");
            let about = extension_of(set)
                .unwrap_or_else(|| ObjectReference { uid: set.uid(), ..set.object_ref(&()) });
            self.events.warning(about, REASON, note(&name, &why, &found.forbidden));
        }
        let phases = phases_of_keys(keys);
        let phases = phases.into_iter().map(|phase| ContentPhase::inline(&phase.name, phase.objects));
        Ok(Revision { phases: phases.collect(), ..revision })
    }
}

/// Why content is not what the revision has applied, if it is not.
pub(super) fn changed(set: &ClusterObjectSet, phases: &[ContentPhase]) -> Option<String> {
    let recorded = &set.status.as_ref()?.observed_phases;
    if recorded.is_empty() {
        return None;
    }
    changed_content(recorded, &tokio::task::block_in_place(|| digests(phases)))
}

fn note(revision: &str, why: &str, forbidden: &[String]) -> String {
    let mut note = format!(
        "revision {revision} goes without its content ({why}): what names it as owner is handed over or removed"
    );
    if !forbidden.is_empty() {
        note.push_str(&format!("; not looked for: {}", forbidden.join(", ")));
    }
    note
}

#[cfg(test)]
mod tests {
    use super::note;

    #[test]
    fn what_is_told() {
        let why = "resolving ref in phase \"p\": getting Secret ns/s: Secret \"s\" not found";
        assert_eq!(
            note("demo-1", why, &["nodes".to_owned(), "widgets.acme.example".to_owned()]),
            "revision demo-1 goes without its content (resolving ref in phase \"p\": getting Secret ns/s: Secret \"s\" not \
             found): what names it as owner is handed over or removed; not looked for: nodes, widgets.acme.example"
        );
    }
}
