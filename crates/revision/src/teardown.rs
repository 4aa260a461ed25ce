//! Removal of a revision: first its CustomResourceDefinitions, while the operator still runs, then the other phases
//! in reverse order, each completely before the next.
//!
//! Objects that another active revision also lists are handed over to it instead of deleted, so that a return to an
//! older revision loses nothing.

mod result;

use std::collections::HashMap;

use kube::core::GroupVersionKind;
use olm_api::{annotations, labels};
use serde_json::{Value, json};

use crate::cluster::{Answer, ApiErrorReason, Cluster, ClusterError};
use crate::content::ContentPhase;
use crate::engine::{Engine, Revision};
use crate::error::{EngineError, ObjectError};
use crate::fields::Moves;
use crate::memory::Memory;
use crate::object::{ObjectKey, is_crd, resource_version, storage_version, uid};
use crate::plan::{
    Owner, is_controlled, is_deleting, is_keeper, is_left_behind, is_revision, keeper_reference,
    metadata_patch, owners, without, without_keeper,
};

pub use result::{DENIED, TeardownResult};

/// Active revision that lists objects of the removed one and takes them over.
#[derive(Clone, Debug)]
pub struct NewOwner {
    owner: Owner,
    /// Objects by their key without API version: revisions can write the same object in different versions.
    objects: HashMap<ObjectKey, ObjectKey>,
}

impl NewOwner {
    /// Creates the new owner `owner` with these phases.
    pub fn new(owner: Owner, phases: &[ContentPhase]) -> Self {
        let objects = phases.iter().flat_map(keys).map(|key| (key.unversioned(), key));
        Self { owner, objects: objects.collect() }
    }
}

/// Handling of CustomResourceDefinitions, whose deletion deletes all custom resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrdPolicy {
    /// Deletes them with their custom resources.
    #[default]
    Delete,
    /// Retains them without an owner.
    Keep,
    /// Deletes no object at all while a custom resource exists.
    BlockIfInUse,
    /// Retains those with custom resources until there are none. If one of them needs a conversion webhook, all other
    /// objects are retained too.
    SpareIfInUse,
}

/// Options for the removal of a revision.
#[derive(Clone, Debug, Default)]
pub struct TeardownOptions {
    /// Other active revisions, the preferred one first.
    pub new_owners: Vec<NewOwner>,
    /// Handling of CustomResourceDefinitions.
    pub crds: CrdPolicy,
    /// `true` if the revision itself is being deleted, so that objects without another owner are left to garbage
    /// collection.
    pub is_final: bool,
    /// `true` to stop waiting for custom resources. Their conversion webhooks are removed, so that the API server can
    /// still read and delete them.
    pub abandons: bool,
}

impl Revision {
    /// CustomResourceDefinitions of the revision.
    pub fn crds(&self) -> Vec<ObjectKey> {
        self.phases.iter().flat_map(keys).filter(|key| is_crd(&key.gvk)).collect()
    }
}

fn keys(phase: &ContentPhase) -> impl Iterator<Item = ObjectKey> + '_ {
    phase.objects.iter().map(|content| ObjectKey::of(&content.object))
}

impl<C: Cluster> Engine<C> {
    /// Removes the objects that `revision` controls, and its owner references on all others. Repeat until complete:
    /// each pass reads only the remaining objects of watched kinds.
    pub async fn teardown(
        &self,
        revision: &Revision,
        options: &TeardownOptions,
    ) -> Result<TeardownResult, EngineError> {
        let uid = &revision.owner.uid;
        let mut removed = self.shared.memories.lock().remove(uid).unwrap_or_default().removed;
        let result = self.remove_left(revision, options, &mut removed).await;
        let denied = result.as_ref().map(|result| result.denied.clone()).unwrap_or_default();
        self.shared.memories.lock().insert(uid.clone(), Memory { removed, denied, ..Memory::default() });
        result
    }

    /// Objects whose deletion or release the last [`Self::teardown`] of this revision was denied.
    pub fn denied(&self, owner_uid: &str) -> Vec<(ObjectKey, String)> {
        self.shared.memories.lock().get(owner_uid).map(|memory| memory.denied.clone()).unwrap_or_default()
    }

    /// Removes the objects that are not in `removed` yet.
    async fn remove_left(
        &self,
        revision: &Revision,
        options: &TeardownOptions,
        removed: &mut HashMap<ObjectKey, u64>,
    ) -> Result<TeardownResult, EngineError> {
        let mut removal = Removal::new(self, &revision.owner, options);
        removal.crds(revision.crds()).await?;
        if removal.result.is_held {
            return Ok(removal.result);
        }
        for phase in revision.phases.iter().rev() {
            for key in keys(phase).filter(|key| !is_crd(&key.gvk)) {
                let list = self.observed_versions().list(&key.gvk);
                if list.is_some() && removed.get(&key) == list.as_ref() {
                    continue;
                }
                let open = removal.result.waiting.len();
                removal.remove(&key).await.map_err(failed(&key))?;
                if open == removal.result.waiting.len() {
                    removed.extend(list.map(|list| (key, list)));
                }
            }
            if !removal.result.waiting.is_empty() {
                break;
            }
        }
        Ok(removal.result)
    }

    /// Runs only the first step of [`Self::teardown`], with these CustomResourceDefinitions.
    pub async fn remove_crds(
        &self,
        owner: &Owner,
        crds: impl IntoIterator<Item = ObjectKey>,
        options: &TeardownOptions,
    ) -> Result<TeardownResult, EngineError> {
        let mut removal = Removal::new(self, owner, options);
        removal.crds(crds).await?;
        Ok(removal.result)
    }

    /// Makes the keeper an owner of the CustomResourceDefinitions that `revision` controls. Without a keeper, makes no
    /// request.
    pub async fn protect_crds(&self, revision: &Revision) -> Result<(), EngineError> {
        for key in revision.crds().into_iter().filter(|_| self.keeper.is_some()) {
            match self.protect_crd(&key, &revision.owner).await {
                Err(error) if error.reason != ApiErrorReason::NotFound => {
                    return Err(EngineError::Objects(vec![ObjectError::new(&key, "", error)]));
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn protect_crd(&self, key: &ObjectKey, owner: &Owner) -> Answer<()> {
        let controlled = self.live(key).await?.filter(|actual| is_controlled(actual, owner));
        if let Some(patch) = controlled.and_then(|actual| self.protection_patch(&actual)) {
            let patched = self.cluster().merge(key, &patch).await?;
            let moves = Moves::of(&patched, owner);
            self.move_fields(&moves, &patched.clone(), patched).await?;
        }
        Ok(())
    }

    /// Patch that makes the keeper an owner of a CustomResourceDefinition. `None` without a keeper, or if it is an owner
    /// already.
    fn protection_patch(&self, actual: &Value) -> Option<Value> {
        let mut references = owners(actual).to_vec();
        let keeper = self.keeper.as_deref().filter(|_| !references.iter().any(is_keeper))?;
        references.push(keeper_reference(keeper));
        Some(metadata_patch(actual, [("ownerReferences", references.into())]))
    }

    /// Hands over the objects of `owner` that new owners list, and removes nothing.
    pub async fn hand_over(
        &self,
        owner: &Owner,
        new_owners: &[NewOwner],
    ) -> Result<TeardownResult, EngineError> {
        let options = TeardownOptions { new_owners: new_owners.to_vec(), ..TeardownOptions::default() };
        let mut removal = Removal::new(self, owner, &options);
        let mut listed: Vec<&ObjectKey> =
            new_owners.iter().flat_map(|new_owner| new_owner.objects.values()).collect();
        listed.sort_by_key(|key| key.to_string());
        for key in listed {
            removal.remove(key).await.map_err(failed(key))?;
        }
        Ok(removal.result)
    }

    /// `true` if a pod of the revision's Deployments is ready: only a running operator removes the finalizers of its
    /// custom resources. Also `true` if the cluster does not answer.
    pub async fn has_operator(&self, revision: &Revision) -> bool {
        for key in revision.phases.iter().flat_map(keys).filter(|key| key.is("apps", "Deployment")) {
            let gvk = GroupVersionKind::gvk("", "v1", "Namespace");
            let namespace = ObjectKey { gvk, namespace: String::new(), name: key.namespace.clone() };
            let (Ok(deployment), Ok(namespace)) = (self.live(&key).await, self.live(&namespace).await) else {
                return true;
            };
            let ready =
                deployment.and_then(|deployment| deployment.pointer("/status/readyReplicas")?.as_u64());
            if ready > Some(0) && !namespace.is_some_and(|namespace| is_deleting(&namespace)) {
                return true;
            }
        }
        false
    }

    async fn live(&self, key: &ObjectKey) -> Answer<Option<Value>> {
        match self.cluster().get(key).await {
            Err(error) if error.reason == ApiErrorReason::UnknownKind => Ok(None),
            answer => answer,
        }
    }
}

/// State of one pass of a removal.
struct Removal<'a, C> {
    engine: &'a Engine<C>,
    owner: &'a Owner,
    options: &'a TeardownOptions,
    result: TeardownResult,
}

impl<'a, C: Cluster> Removal<'a, C> {
    fn new(engine: &'a Engine<C>, owner: &'a Owner, options: &'a TeardownOptions) -> Self {
        Self { engine, owner, options, result: TeardownResult::default() }
    }

    /// Runs the first step of a removal: hands over, releases, retains or deletes each CustomResourceDefinition.
    async fn crds(&mut self, keys: impl IntoIterator<Item = ObjectKey>) -> Result<(), EngineError> {
        let (mut unused, policy) = (Vec::new(), self.options.crds);
        for key in keys {
            unused.extend(self.decide(&key).await.map_err(failed(&key))?.map(|actual| (key, actual)));
        }
        if policy != CrdPolicy::BlockIfInUse || self.result.blocked.is_empty() {
            for (key, actual) in unused {
                self.delete_crd(&key, actual).await.map_err(failed(&key))?;
            }
        }
        self.result.is_held |= !self.result.waiting.is_empty()
            || policy != CrdPolicy::SpareIfInUse && !self.result.blocked.is_empty();
        Ok(())
    }

    /// Handles a CustomResourceDefinition, and returns its live state if it is to be deleted.
    async fn decide(&mut self, key: &ObjectKey) -> Answer<Option<Value>> {
        let Some(actual) = self.engine.live(key).await? else { return Ok(None) };
        if !is_controlled(&actual, self.owner) && !is_left_behind(&actual, self.owner) {
            self.remove_owner(key, &actual).await?;
        } else if let Some(new_owner) = new_owner(&self.options.new_owners, key) {
            self.change(key, &hand_over_patch(&actual, self.owner, new_owner)).await?;
        } else if self.options.crds == CrdPolicy::Keep {
            self.release(key, &actual).await?;
        } else if self.options.crds != CrdPolicy::Delete
            && !is_deleting(&actual)
            && let Some(found) = self.engine.instances_of(&actual).await?
        {
            if let Some(patch) = self.engine.protection_patch(&actual) {
                self.change(key, &patch).await?;
            }
            self.result.is_held |= has_conversion_webhook(&actual);
            self.result.blocked.push(format!(
                "cannot delete CustomResourceDefinition {}: {} custom resources exist (first: {})",
                key.name, found.count, found.first
            ));
        } else {
            return Ok(Some(actual));
        }
        Ok(None)
    }

    /// Removes the owner and our labels from a CustomResourceDefinition. Also removes a conversion webhook of the
    /// extension, or blocks if the CRD needs the conversion.
    async fn release(&mut self, key: &ObjectKey, actual: &Value) -> Answer<()> {
        let mut patch = release_patch(actual, self.owner);
        if has_conversion_webhook(actual) {
            if let Some(versions) = versions_to_migrate(actual) {
                self.result.blocked.push(format!(
                    "cannot keep CustomResourceDefinition {}: its conversion webhook is deleted with the extension, \
                     and custom resources may be stored as {versions}",
                    key.name
                ));
                return Ok(());
            }
            patch["spec"] = no_conversion();
        }
        self.change(key, &patch).await.map(drop)
    }

    /// Deletes a CustomResourceDefinition. The API server deletes its custom resources first.
    async fn delete_crd(&mut self, key: &ObjectKey, mut actual: Value) -> Answer<()> {
        if self.options.abandons && has_conversion_webhook(&actual) {
            let mut patch = metadata_patch(&actual, []);
            patch["spec"] = no_conversion();
            let Some(changed) = self.change(key, &patch).await? else { return Ok(()) };
            actual = changed;
        }
        if !self.delete(key, &actual).await? {
            return Ok(());
        }
        if self.result.is_denied(key) {
            self.result.waiting.push(key.clone());
            return Ok(());
        }
        match self.engine.instances_of(&actual).await {
            Ok(found) => self.result.terminating.extend(found.map(|found| found.summary(&key.name))),
            // The kind is no longer served.
            Err(error) if error.reason == ApiErrorReason::NotFound => {}
            Err(error) => {
                self.result.terminating.push(format!("{}, which cannot be listed: {error}", key.name));
            }
        }
        if !self.options.abandons || !is_deleting(&actual) {
            self.result.waiting.push(key.clone());
        }
        Ok(())
    }

    async fn remove(&mut self, key: &ObjectKey) -> Answer<()> {
        let Some(actual) = self.engine.live(key).await? else { return Ok(()) };
        let new_owner = new_owner(&self.options.new_owners, key);
        if !is_controlled(&actual, self.owner) {
            // Garbage collection removes references to owners in foreground deletion, even the controller's.
            if self.options.is_final && new_owner.is_none() && without(&actual, self.owner).is_empty() {
                return Ok(());
            }
            self.remove_owner(key, &actual).await?;
        } else if let Some(new_owner) = new_owner {
            self.change(key, &hand_over_patch(&actual, self.owner, new_owner)).await?;
        } else if key.is("", "Namespace") && !self.result.blocked.is_empty()
            || self.delete(key, &actual).await?
        {
            // A namespace can contain the custom resources that must not be lost.
            self.result.waiting.push(key.clone());
            self.result
                .held
                .extend(finalizers(&actual).map(|names| format!("{}: {names}", key.kind_first())));
        }
        Ok(())
    }

    /// Deletes the object. Returns `true` if it still exists.
    async fn delete(&mut self, key: &ObjectKey, actual: &Value) -> Answer<bool> {
        if is_deleting(actual) {
            return Ok(true);
        }
        match self.engine.cluster().delete(key, uid(actual), resource_version(actual)).await {
            Err(error) if error.reason == ApiErrorReason::NotFound => Ok(false),
            // 409: the next pass reads it again.
            Err(error) if error.reason == ApiErrorReason::Conflict => Ok(true),
            // Other objects of the phase can still be deleted.
            Err(error) if is_denial(&error) => {
                self.result.denied.push((key.clone(), error.message));
                Ok(true)
            }
            deleted => deleted.map(|is_gone| !is_gone),
        }
    }

    /// Removes our reference from an object with another controller. Without one, makes no request.
    async fn remove_owner(&mut self, key: &ObjectKey, actual: &Value) -> Answer<()> {
        let rest = without(actual, self.owner);
        if rest.len() < owners(actual).len() {
            self.change(key, &metadata_patch(actual, [("ownerReferences", rest.into())])).await?;
        }
        Ok(())
    }

    /// Patches an object. Returns `None` if it is deleted, if it changed and must be read again by the next pass, or if the
    /// API server denies the patch.
    async fn change(&mut self, key: &ObjectKey, patch: &Value) -> Answer<Option<Value>> {
        match self.engine.cluster().merge(key, patch).await {
            Err(error) if error.reason == ApiErrorReason::Conflict => self.result.waiting.push(key.clone()),
            Err(error) if error.reason == ApiErrorReason::NotFound => {}
            Err(error) if is_denial(&error) => {
                self.result.waiting.push(key.clone());
                self.result.denied.push((key.clone(), error.message));
            }
            changed => return changed.inspect(|changed| self.engine.share(key, changed)).map(Some),
        }
        Ok(None)
    }
}

/// Names the finalizers of an object that is being deleted. `None` without any.
pub(crate) fn finalizers(actual: &Value) -> Option<String> {
    let list = actual.pointer("/metadata/finalizers").filter(|_| is_deleting(actual))?.as_array()?;
    let names: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
    (!names.is_empty()).then(|| format!("finalizer {}", names.join(", ")))
}

fn failed(key: &ObjectKey) -> impl FnOnce(ClusterError) -> EngineError + '_ {
    |error| EngineError::Teardown(ObjectError::new(key, "", error))
}

/// `true` if the API server denies the request, also because an admission webhook that must agree does not answer.
fn is_denial(error: &ClusterError) -> bool {
    matches!(error.reason, ApiErrorReason::Rejected | ApiErrorReason::NotPermitted)
        || error.message.contains("failed calling webhook ")
}

fn new_owner<'a>(new_owners: &'a [NewOwner], key: &ObjectKey) -> Option<&'a Owner> {
    let lists = |new_owner: &&NewOwner| new_owner.objects.contains_key(&key.unversioned());
    new_owners.iter().find(lists).map(|new_owner| &new_owner.owner)
}

/// Removes our labels and the references to revisions from a CRD, and records its former extension. That annotation is
/// a field of ours that no revision lists, so the next apply by a revision removes it. An older revision that is being
/// deleted, too, must not stay the only owner: the garbage collector would delete the CRD.
fn release_patch(actual: &Value, owner: &Owner) -> Value {
    let kept_for = Some(&owner.extension).filter(|extension| !extension.is_empty());
    let mut rest = without_keeper(owners(actual).to_vec());
    rest.retain(|reference| !is_revision(reference));
    metadata_patch(
        actual,
        [
            ("ownerReferences", rest.into()),
            ("annotations", json!({annotations::REVISION: null, annotations::EXT_KEPT_FOR: kept_for})),
            ("labels", json!({labels::MANAGED_BY: null, labels::OWNER_KIND: null, labels::OWNER_NAME: null})),
        ],
    )
}

/// Makes `new_owner` the controller. The new owner applies its desired fields itself.
fn hand_over_patch(actual: &Value, owner: &Owner, new_owner: &Owner) -> Value {
    let mut references = without(actual, owner);
    references.retain(|reference| !new_owner.is(reference));
    references.push(new_owner.reference());
    metadata_patch(
        actual,
        [
            ("ownerReferences", references.into()),
            ("annotations", json!({annotations::REVISION: new_owner.number.to_string()})),
        ],
    )
}

fn has_conversion_webhook(crd: &Value) -> bool {
    crd.pointer("/spec/conversion/webhook/clientConfig/service").is_some_and(|service| !service.is_null())
}

/// `spec` of a merge patch that removes a conversion webhook.
fn no_conversion() -> Value {
    json!({"conversion": {"strategy": "None", "webhook": null}})
}

/// Versions in which objects can be stored, other than the current storage version. `None` if there are none.
fn versions_to_migrate(crd: &Value) -> Option<String> {
    let storage = storage_version(crd);
    let stored = crd.pointer("/status/storedVersions").and_then(Value::as_array)?;
    let others: Vec<&str> =
        stored.iter().filter_map(Value::as_str).filter(|version| Some(*version) != storage).collect();
    (!others.is_empty()).then(|| others.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    // docs/design/additions.md#uninstall-policy: without any owner, the garbage collector deletes nothing
    #[test]
    fn released_crd_keeps_only_foreign_owner_references() {
        let owner = |number: i64| Owner {
            name: format!("demo-{number}"),
            uid: format!("uid-{number}"),
            extension: "demo".to_owned(),
            number,
        };
        let mut older = owner(1).reference();
        older["controller"] = json!(false);
        let keeper = json!({"apiVersion": "v1", "kind": "Namespace", "name": "kube-system", "uid": "k"});
        let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": "f"});
        let owners = json!([older, owner(2).reference(), keeper, foreign]);
        let actual = json!({"metadata": {"uid": "c", "resourceVersion": "7", "ownerReferences": owners}});
        let patch = release_patch(&actual, &owner(2));
        assert_eq!(patch["metadata"]["ownerReferences"], json!([foreign]));
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
    }
}
