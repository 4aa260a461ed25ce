//! Removing an archived revision: phases backwards, each gone before the next (spec 05 §7.7).
//!
//! Objects that another active revision still lists are handed to it instead of deleted, so that going
//! back to an older revision loses nothing (spec 05 §18.4).

use std::collections::{HashMap, HashSet};

use kube::core::GroupVersionKind;
use olm_api::{annotations, labels};
use serde_json::{Value, json};

use crate::cluster::{Cluster, ClusterError, Reason};
use crate::content::ContentPhase;
use crate::engine::{Engine, EngineError, ObjectError, Revision};
use crate::memory::Memory;
use crate::object::{ObjectKey, is_crd, resource_version, text, uid};
use crate::plan::{Owner, controller, is_deleting, metadata_patch, owners, without};

/// An active revision that lists objects of the one that goes.
#[derive(Clone, Debug)]
pub struct Heir {
    owner: Owner,
    /// By the key without API version: revisions may write the same object in different ones.
    objects: HashMap<ObjectKey, ObjectKey>,
}

impl Heir {
    /// The heir `owner` with these phases.
    pub fn new(owner: Owner, phases: &[ContentPhase]) -> Self {
        let objects = phases.iter().flat_map(keys).map(|key| (key.unversioned(), key));
        Self { owner, objects: objects.collect() }
    }
}

/// What happens to CustomResourceDefinitions, whose deletion deletes all custom resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrdPolicy {
    /// They are deleted like everything else.
    #[default]
    Delete,
    /// They stay, without an owner. They are let go of before anything is deleted.
    Keep,
    /// Nothing at all is deleted while a custom resource is left.
    BlockIfInUse,
    /// Those of which custom resources are left stay until there are none; everything else goes.
    SpareIfInUse,
}

/// How to remove a revision.
#[derive(Clone, Debug, Default)]
pub struct TeardownOptions {
    /// Other active revisions, the preferred first.
    pub heirs: Vec<Heir>,
    /// What happens to CustomResourceDefinitions.
    pub crds: CrdPolicy,
    /// The revision goes itself, so that what names no other owner is left to garbage collection.
    pub is_final: bool,
}

/// How far the removal got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TeardownResult {
    /// Objects that are being deleted but still exist, or have to be looked at again.
    pub waiting: Vec<ObjectKey>,
    /// What must be resolved by users, one line each.
    pub blocked: Vec<String>,
}

impl TeardownResult {
    /// Nothing of the revision is left that must go.
    pub fn is_complete(&self) -> bool {
        self.waiting.is_empty() && self.blocked.is_empty()
    }
}

impl Revision {
    /// Its CustomResourceDefinitions.
    pub fn definitions(&self) -> Vec<ObjectKey> {
        self.phases.iter().flat_map(keys).filter(|key| is_crd(&key.gvk)).collect()
    }
}

fn keys(phase: &ContentPhase) -> impl Iterator<Item = ObjectKey> + '_ {
    phase.objects.iter().map(|content| ObjectKey::of(&content.object))
}

impl<C: Cluster> Engine<C> {
    /// Removes what `revision` controls, and its claim on everything else. Repeat until complete: each time only the
    /// objects that are left are read.
    pub async fn teardown(
        &self,
        revision: &Revision,
        options: &TeardownOptions,
    ) -> Result<TeardownResult, EngineError> {
        let uid = &revision.owner.uid;
        let mut removed = self.memories().remove(uid).unwrap_or_default().removed;
        let result = self.remove_left(revision, options, &mut removed).await;
        self.memories().insert(uid.clone(), Memory { removed, ..Memory::default() });
        result
    }

    async fn remove_left(
        &self,
        revision: &Revision,
        options: &TeardownOptions,
        removed: &mut HashSet<ObjectKey>,
    ) -> Result<TeardownResult, EngineError> {
        let (owner, heirs) = (&revision.owner, &options.heirs);
        let mut result = match options.crds {
            CrdPolicy::Keep => self.release(owner, revision.definitions(), heirs).await?,
            CrdPolicy::BlockIfInUse => self.in_use(owner, revision.definitions(), heirs).await?,
            _ => TeardownResult::default(),
        };
        if !result.is_complete() {
            return Ok(result);
        }
        for phase in revision.phases.iter().rev() {
            for key in keys(phase) {
                if removed.contains(&key) {
                    continue;
                }
                let open = (result.waiting.len(), result.blocked.len());
                self.remove(&key, owner, options, &mut result).await.map_err(failed(&key))?;
                if open == (result.waiting.len(), result.blocked.len()) {
                    removed.insert(key);
                }
            }
            // What must not go holds up only what it needs, which `remove` knows.
            if !result.waiting.is_empty() {
                break;
            }
        }
        Ok(result)
    }

    /// Lets go of CustomResourceDefinitions: they stay, without `owner` and our marks, or go to an heir. One that
    /// depends on a conversion webhook which goes loses that, or blocks if it cannot do without.
    pub async fn release(
        &self,
        owner: &Owner,
        definitions: impl IntoIterator<Item = ObjectKey>,
        heirs: &[Heir],
    ) -> Result<TeardownResult, EngineError> {
        let mut result = TeardownResult::default();
        for key in definitions {
            self.release_one(&key, owner, heirs, &mut result).await.map_err(failed(&key))?;
        }
        Ok(result)
    }

    async fn release_one(
        &self,
        key: &ObjectKey,
        owner: &Owner,
        heirs: &[Heir],
        result: &mut TeardownResult,
    ) -> Result<(), ClusterError> {
        let Some(actual) = self.live(key).await? else { return Ok(()) };
        if !is_controlled(&actual, owner) {
            return self.disown(key, &actual, owner, result).await;
        }
        if let Some(heir) = heir(heirs, key) {
            return self.change(key, &hand_over_patch(&actual, owner, heir), result).await;
        }
        let mut patch = release_patch(&actual, owner);
        if actual.pointer("/spec/conversion/webhook/clientConfig/service").is_some_and(|s| !s.is_null()) {
            if let Some(versions) = versions_to_migrate(&actual) {
                result.blocked.push(format!(
                    "cannot keep CustomResourceDefinition {}: its conversion webhook goes with the extension, and \
                     custom resources may be stored as {versions}",
                    key.name
                ));
                return Ok(());
            }
            patch["spec"] = json!({"conversion": {"strategy": "None", "webhook": null}});
        }
        self.change(key, &patch, result).await
    }

    /// Which of these CustomResourceDefinitions cannot go, because custom resources of them are left. Those that are not
    /// `owner`'s, or go to an heir, are in nobody's way.
    pub async fn in_use(
        &self,
        owner: &Owner,
        definitions: impl IntoIterator<Item = ObjectKey>,
        heirs: &[Heir],
    ) -> Result<TeardownResult, EngineError> {
        let mut result = TeardownResult::default();
        for key in definitions.into_iter().filter(|key| heir(heirs, key).is_none()) {
            let message = async {
                match self.live(&key).await? {
                    Some(actual) if is_controlled(&actual, owner) => self.instances_of(&key, &actual).await,
                    _ => Ok(None),
                }
            };
            result.blocked.extend(message.await.map_err(failed(&key))?);
        }
        Ok(result)
    }

    /// What to say about a definition of which custom resources are left.
    async fn instances_of(&self, key: &ObjectKey, actual: &Value) -> Result<Option<String>, ClusterError> {
        if is_deleting(actual) {
            return Ok(None);
        }
        let Some(kind) = served_kind(actual) else { return Ok(None) };
        Ok(self.cluster().instances(&kind).await?.map(|instances| {
            format!(
                "cannot delete CustomResourceDefinition {}: {} custom resources exist (first: {})",
                key.name, instances.count, instances.first
            )
        }))
    }

    /// Gives heirs what they list of `owner`'s, and removes nothing.
    pub async fn hand_over(&self, owner: &Owner, heirs: &[Heir]) -> Result<TeardownResult, EngineError> {
        let mut result = TeardownResult::default();
        let options = TeardownOptions { heirs: heirs.to_vec(), ..TeardownOptions::default() };
        let mut listed: Vec<&ObjectKey> = heirs.iter().flat_map(|heir| heir.objects.values()).collect();
        listed.sort_by_key(|key| key.to_string());
        for key in listed {
            self.remove(key, owner, &options, &mut result).await.map_err(failed(key))?;
        }
        Ok(result)
    }

    async fn live(&self, key: &ObjectKey) -> Result<Option<Value>, ClusterError> {
        match self.cluster().get(key).await {
            Err(error) if error.reason == Reason::UnknownKind => Ok(None),
            answer => answer,
        }
    }

    async fn remove(
        &self,
        key: &ObjectKey,
        owner: &Owner,
        options: &TeardownOptions,
        result: &mut TeardownResult,
    ) -> Result<(), ClusterError> {
        let Some(actual) = self.live(key).await? else { return Ok(()) };
        let heir = heir(&options.heirs, key);
        if !is_controlled(&actual, owner) {
            // The collector takes off references of owners that go in foreground, the controller's too.
            let is_last = options.is_final && heir.is_none() && without(&actual, owner).is_empty();
            if is_last && !is_crd(&key.gvk) {
                return Ok(());
            }
            return self.disown(key, &actual, owner, result).await;
        }
        if let Some(heir) = heir {
            return self.change(key, &hand_over_patch(&actual, owner, heir), result).await;
        }
        if is_crd(&key.gvk) && options.crds == CrdPolicy::Keep {
            return self.release_one(key, owner, &options.heirs, result).await;
        }
        if is_crd(&key.gvk)
            && options.crds != CrdPolicy::Delete
            && let Some(message) = self.instances_of(key, &actual).await?
        {
            result.blocked.push(message);
            return Ok(());
        }
        if is_namespace(key) && !result.blocked.is_empty() {
            // It may hold the very custom resources that must not be lost.
            result.waiting.push(key.clone());
            return Ok(());
        }
        self.delete(key, &actual, result).await
    }

    async fn delete(
        &self,
        key: &ObjectKey,
        actual: &Value,
        result: &mut TeardownResult,
    ) -> Result<(), ClusterError> {
        if !is_deleting(actual) {
            match self.cluster().delete(key, uid(actual), resource_version(actual)).await {
                // Changed since it was read: the next pass looks again.
                Err(error) if error.reason == Reason::Conflict => {}
                Err(error) if error.reason == Reason::NotFound => return Ok(()),
                other => other?,
            }
        }
        result.waiting.push(key.clone());
        Ok(())
    }

    /// Removes our reference from an object that somebody else controls; no request if there is none.
    async fn disown(
        &self,
        key: &ObjectKey,
        actual: &Value,
        owner: &Owner,
        result: &mut TeardownResult,
    ) -> Result<(), ClusterError> {
        let rest = without(actual, owner);
        if rest.len() == owners(actual).len() {
            return Ok(());
        }
        self.change(key, &metadata_patch(actual, [("ownerReferences", rest.into())]), result).await
    }

    /// Changes who owns an object. One that vanishes meanwhile needs no change any more; one that somebody else has
    /// changed is looked at again by the next pass.
    async fn change(
        &self,
        key: &ObjectKey,
        patch: &Value,
        result: &mut TeardownResult,
    ) -> Result<(), ClusterError> {
        match self.cluster().merge(key, patch).await {
            Err(error) if error.reason == Reason::Conflict => result.waiting.push(key.clone()),
            Err(error) if error.reason != Reason::NotFound => return Err(error),
            _ => {}
        }
        Ok(())
    }
}

fn failed(key: &ObjectKey) -> impl FnOnce(ClusterError) -> EngineError + '_ {
    |error| EngineError::Teardown(ObjectError::new(key, "", error))
}

fn is_controlled(actual: &Value, owner: &Owner) -> bool {
    controller(actual).is_some_and(|reference| owner.is(reference))
}

fn heir<'a>(heirs: &'a [Heir], key: &ObjectKey) -> Option<&'a Owner> {
    heirs.iter().find(|heir| heir.objects.contains_key(&key.unversioned())).map(|heir| &heir.owner)
}

/// Takes our marks and our reference off a definition, and says whose it was. That annotation is our field and no
/// revision's, so it goes when a revision applies the definition again.
fn release_patch(actual: &Value, owner: &Owner) -> Value {
    let kept_for = Some(&owner.extension).filter(|extension| !extension.is_empty());
    metadata_patch(
        actual,
        [
            ("ownerReferences", without(actual, owner).into()),
            ("annotations", json!({annotations::REVISION: null, annotations::EXT_KEPT_FOR: kept_for})),
            ("labels", json!({labels::MANAGED_BY: null, labels::OWNER_KIND: null, labels::OWNER_NAME: null})),
        ],
    )
}

/// Makes `heir` the controller. What it wants of the object, it applies itself.
fn hand_over_patch(actual: &Value, owner: &Owner, heir: &Owner) -> Value {
    let mut references = without(actual, owner);
    references.retain(|reference| !heir.is(reference));
    references.push(heir.reference());
    metadata_patch(
        actual,
        [
            ("ownerReferences", references.into()),
            ("annotations", json!({annotations::REVISION: heir.number.to_string()})),
        ],
    )
}

fn is_namespace(key: &ObjectKey) -> bool {
    key.gvk.group.is_empty() && key.gvk.kind == "Namespace"
}

/// The versions in which objects may be stored other than the one that they are written in now; `None` if there is none.
fn versions_to_migrate(crd: &Value) -> Option<String> {
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
    let is_storage = |version: &&Value| version.get("storage") == Some(&Value::Bool(true));
    let storage = versions.and_then(|versions| versions.iter().find(is_storage)).map(|v| text(v, "/name"));
    let stored = crd.pointer("/status/storedVersions").and_then(Value::as_array)?;
    let others: Vec<&str> =
        stored.iter().filter_map(Value::as_str).filter(|version| Some(*version) != storage).collect();
    (!others.is_empty()).then(|| others.join(", "))
}

/// The kind that a CustomResourceDefinition defines, in a version that is served.
fn served_kind(crd: &Value) -> Option<GroupVersionKind> {
    let versions = crd.pointer("/spec/versions")?.as_array()?;
    let served = versions.iter().find(|version| version.get("served") == Some(&Value::Bool(true)))?;
    Some(GroupVersionKind::gvk(
        text(crd, "/spec/group"),
        text(served, "/name"),
        text(crd, "/spec/names/kind"),
    ))
}
