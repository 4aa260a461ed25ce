//! Removing an archived revision: phases backwards, each gone before the next (spec 05 §7.7).
//!
//! Objects that another active revision still lists are handed to it instead of deleted, so that going
//! back to an older revision loses nothing (spec 05 §18.4).

use std::collections::HashSet;

use kube::core::GroupVersionKind;
use olm_api::{annotations, labels};
use serde_json::{Value, json};

use crate::cluster::{Cluster, ClusterError, Reason};
use crate::content::ContentPhase;
use crate::engine::{Engine, EngineError, ObjectError, Revision};
use crate::object::{ObjectKey, resource_version, text, uid};
use crate::plan::{Owner, controller, metadata_patch, owners, without};

/// An active revision that lists objects of the archived one.
#[derive(Clone, Debug)]
pub struct Heir {
    owner: Owner,
    /// Without API versions: revisions may write the same object in different ones.
    objects: HashSet<ObjectKey>,
}

impl Heir {
    /// The heir `owner` with these phases.
    pub fn new(owner: Owner, phases: &[ContentPhase]) -> Self {
        let objects = phases.iter().flat_map(|phase| &phase.objects);
        Self { owner, objects: objects.map(|content| ObjectKey::of(&content.object).unversioned()).collect() }
    }
}

/// What happens to CustomResourceDefinitions, whose deletion deletes all custom resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CrdPolicy {
    /// They are deleted like everything else.
    #[default]
    Delete,
    /// They stay, without an owner.
    Keep,
    /// They are deleted once no custom resource is left.
    BlockIfInUse,
}

/// How to remove a revision.
#[derive(Clone, Debug, Default)]
pub struct TeardownOptions {
    /// Leave every object in place, without an owner: the revision is deleted with its dependents orphaned.
    pub orphan: bool,
    /// Other active revisions, the preferred first.
    pub heirs: Vec<Heir>,
    /// What happens to CustomResourceDefinitions.
    pub crds: CrdPolicy,
}

/// How far the removal got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TeardownResult {
    /// Objects that are being deleted but still exist.
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

impl<C: Cluster> Engine<C> {
    /// Removes what `revision` controls, and its claim on everything else. Repeat until complete.
    pub async fn teardown(
        &self,
        revision: &Revision,
        options: &TeardownOptions,
    ) -> Result<TeardownResult, EngineError> {
        self.forget(&revision.owner.uid);
        let mut result = TeardownResult::default();
        for phase in revision.phases.iter().rev() {
            for content in &phase.objects {
                let key = ObjectKey::of(&content.object);
                self.remove(&key, &revision.owner, options, &mut result)
                    .await
                    .map_err(|error| EngineError::Teardown(ObjectError::new(&key, "", error)))?;
            }
            if !result.is_complete() {
                break;
            }
        }
        Ok(result)
    }

    async fn remove(
        &self,
        key: &ObjectKey,
        owner: &Owner,
        options: &TeardownOptions,
        result: &mut TeardownResult,
    ) -> Result<(), ClusterError> {
        let actual = match self.cluster().get(key).await {
            Ok(Some(actual)) => actual,
            Ok(None) => return Ok(()),
            Err(error) if error.reason == Reason::UnknownKind => return Ok(()),
            Err(error) => return Err(error),
        };
        if !controller(&actual).is_some_and(|reference| owner.is(reference)) {
            return self.disown(key, &actual, owner).await;
        }
        if options.orphan {
            return self.gone(self.cluster().merge(key, &release_patch(&actual, owner)).await);
        }
        if let Some(heir) = options.heirs.iter().find(|heir| heir.objects.contains(&key.unversioned())) {
            return self.gone(self.cluster().merge(key, &hand_over_patch(&actual, owner, &heir.owner)).await);
        }
        if is_crd(key) && options.crds == CrdPolicy::Keep {
            return self.gone(self.cluster().merge(key, &release_patch(&actual, owner)).await);
        }
        if is_crd(key)
            && options.crds == CrdPolicy::BlockIfInUse
            && let Some(kind) = served_kind(&actual)
            && let Some(instances) = self.cluster().instances(&kind).await?
        {
            result.blocked.push(format!(
                "cannot delete CustomResourceDefinition {}: {} custom resources exist (first: {})",
                key.name, instances.count, instances.first
            ));
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
        if actual.pointer("/metadata/deletionTimestamp").is_none() {
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
    async fn disown(&self, key: &ObjectKey, actual: &Value, owner: &Owner) -> Result<(), ClusterError> {
        let rest = without(actual, owner);
        if rest.len() == owners(actual).len() {
            return Ok(());
        }
        let patch = metadata_patch(actual, [("ownerReferences", rest.into())]);
        self.gone(self.cluster().merge(key, &patch).await)
    }

    /// An object that vanishes while its owner is changed needs no change any more.
    fn gone(&self, patched: Result<Value, ClusterError>) -> Result<(), ClusterError> {
        match patched {
            Err(error) if error.reason != Reason::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Takes our marks and our reference off the object.
fn release_patch(actual: &Value, owner: &Owner) -> Value {
    metadata_patch(
        actual,
        [
            ("ownerReferences", without(actual, owner).into()),
            ("annotations", json!({annotations::REVISION: null})),
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

fn is_crd(key: &ObjectKey) -> bool {
    key.gvk.group == "apiextensions.k8s.io" && key.gvk.kind == "CustomResourceDefinition"
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
