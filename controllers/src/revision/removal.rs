//! The two ends of a revision: archived after its successor rolled out, or deleted with its extension
//! (spec 05 §§6.7, 7.7, 12).
//!
//! A deleted revision takes its objects with it in reverse order of the phases. Garbage collection would remove them
//! too, in any order; it is what remains when the ordered removal cannot be done or takes too long. A foreground deletion
//! does not wait for us: then garbage collection takes also the definitions that were to be kept.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::ListParams;
use kube::core::GroupVersionKind;
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt};
use olm_api::conditions::{self, reasons, types};
use olm_api::{ClusterObjectSet, annotations, finalizers, labels};
use olm_revision::engine::Revision;
use olm_revision::object::ObjectKey;
use olm_revision::teardown::{CrdPolicy, Heir, TeardownOptions, TeardownResult};
use olm_service::cluster::{describe, within_deadline};
use olm_service::reconcile::Failure;

use super::content::{Unusable, owner};
use super::status::Outcome;
use super::{ARCHIVAL_RETRY, Context, Pass};

/// How long an ordered removal may take before the rest is left to garbage collection.
const TEARDOWN_DEADLINE: SignedDuration = SignedDuration::from_mins(2);
/// How often an ordered removal looks again; the deletion of objects is an event too.
const TEARDOWN_RETRY: Duration = Duration::from_secs(2);
/// How often a removal that custom resources are in the way of looks again: they are not watched.
const IN_USE_RETRY: Duration = Duration::from_secs(10);
/// Set by the API server for a deletion that leaves dependents in place.
const ORPHAN: &str = "orphan";

/// Whether the revision says that it is archived and holds nothing any more.
pub(super) fn is_done(set: &ClusterObjectSet) -> bool {
    let progressing =
        set.status.as_ref().and_then(|status| conditions::find(&status.conditions, types::PROGRESSING));
    let is_current = progressing
        .is_some_and(|c| c.reason == reasons::ARCHIVED && c.observed_generation == set.metadata.generation);
    is_current && !has_finalizer(set, finalizers::TEARDOWN)
}

pub(super) fn has_finalizer(set: &ClusterObjectSet, name: &str) -> bool {
    set.finalizers().iter().any(|finalizer| finalizer == name)
}

/// What becomes of definitions: as the revision's annotation says, else `default`.
///
/// # Errors
/// The annotation says nothing that is known. Better nothing is removed than what was to be kept.
fn policy(set: &ClusterObjectSet, default: CrdPolicy) -> Result<CrdPolicy, String> {
    match set.annotations().get(annotations::EXT_UNINSTALL_POLICY).map(String::as_str) {
        None => Ok(default),
        Some("Delete") => Ok(CrdPolicy::Delete),
        Some("KeepCRDs") => Ok(CrdPolicy::Keep),
        Some("BlockIfInUse") => Ok(CrdPolicy::BlockIfInUse),
        Some(other) => Err(format!(
            "annotation {}: Unsupported value: {other:?}: supported values: \"Delete\", \"KeepCRDs\", \
             \"BlockIfInUse\"",
            annotations::EXT_UNINSTALL_POLICY
        )),
    }
}

/// How far the removal of a deleted revision is.
enum Removal {
    /// What is left is for garbage collection.
    Done,
    Waiting,
    /// Somebody has to act.
    Blocked(String),
}

fn blocked(result: &TeardownResult) -> String {
    result.blocked.join("; ")
}

impl Context {
    /// One pass of archiving. A definition that the extension no longer has takes its custom resources with it, so it
    /// stays while there are any, unless that is what the user asked for.
    pub(super) async fn archive(&self, set: &ClusterObjectSet) -> Pass {
        let removed = async {
            let crds = match policy(set, CrdPolicy::SpareIfInUse) {
                Ok(CrdPolicy::Delete) => CrdPolicy::Delete,
                Ok(CrdPolicy::Keep | CrdPolicy::BlockIfInUse | CrdPolicy::SpareIfInUse) | Err(_) => {
                    CrdPolicy::SpareIfInUse
                }
            };
            let content = self.content_to_remove(set).await.map_err(why)?;
            let options =
                TeardownOptions { heirs: self.heirs(set).await?, crds, ..TeardownOptions::default() };
            self.engine.teardown(&content, &options).await.map_err(|error| error.to_string())
        };
        match removed.await {
            Ok(result) if result.is_complete() => {
                self.forget(set);
                Pass::of(Outcome::Archived, None)
            }
            Ok(result) if !result.blocked.is_empty() => {
                Pass::of(Outcome::Blocked(blocked(&result)), Some(IN_USE_RETRY))
            }
            Ok(_) => Pass::of(Outcome::Archiving, Some(ARCHIVAL_RETRY)),
            Err(error) => Pass::broke(format!("error archiving revision: {error}"), "revision teardown"),
        }
    }

    /// Active siblings that inherit what they list, the newest first.
    ///
    /// # Errors
    /// The content of one cannot be read: without it, objects would be deleted instead of handed over.
    async fn heirs(&self, set: &ClusterObjectSet) -> Result<Vec<Heir>, String> {
        let mut siblings = self.siblings(set);
        siblings.sort_by_key(|sibling| std::cmp::Reverse(olm_revision::generate::number_of(sibling)));
        let mut heirs = Vec::new();
        for sibling in siblings {
            let content = self.content_to_remove(&sibling).await.map_err(why)?;
            heirs.push(Heir::new(owner(&sibling), &content.phases));
        }
        Ok(heirs)
    }

    /// One pass over a revision that is being deleted.
    pub(super) async fn delete(&self, set: &ClusterObjectSet) -> Result<Action, Failure> {
        if has_finalizer(set, finalizers::TEARDOWN) {
            match self.tear_down(set).await {
                Removal::Done => {}
                Removal::Waiting => return Ok(Action::requeue(TEARDOWN_RETRY)),
                Removal::Blocked(message) => {
                    self.write(set, &Outcome::Blocked(message), None, None, Timestamp::now()).await?;
                    return Ok(Action::requeue(IN_USE_RETRY));
                }
            }
        }
        self.forget(set);
        self.remove_finalizer(set).await?;
        Ok(Action::await_change())
    }

    /// Removes the objects in order, until nothing more is to be done that way.
    async fn tear_down(&self, set: &ClusterObjectSet) -> Removal {
        let revision = set.name_any();
        if has_finalizer(set, ORPHAN) {
            return Removal::Done;
        }
        // As long as the extension lives, a revision that goes must not take custom resources with it.
        let lives_on = !self.siblings(set).is_empty();
        let default = if lives_on { CrdPolicy::SpareIfInUse } else { CrdPolicy::Delete };
        let crds = match policy(set, default) {
            Ok(crds) => crds,
            Err(message) => return Removal::Blocked(message),
        };
        let removed = async {
            match self.content_to_remove(set).await {
                Ok(content) if !is_late(set) => {
                    let heirs = self.heirs(set).await?;
                    let options = TeardownOptions { heirs, crds, ..TeardownOptions::default() };
                    self.engine.teardown(&content, &options).await.map_err(|error| error.to_string())
                }
                Ok(content) => self.save_definitions(set, crds, Some(content)).await,
                Err(Unusable::Unreachable(error)) if !is_late(set) => Err(error),
                Err(unusable) => {
                    let why = why(unusable);
                    tracing::warn!(
                        revision,
                        why,
                        "no ordered removal; objects are left to garbage collection"
                    );
                    self.save_definitions(set, crds, None).await
                }
            }
        };
        match removed.await {
            Ok(result) if result.is_complete() => Removal::Done,
            Ok(result) if !result.blocked.is_empty() => Removal::Blocked(blocked(&result)),
            Ok(_) => Removal::Waiting,
            Err(error) => {
                tracing::warn!(revision, error, "removing objects");
                let is_hopeless = is_late(set) && crds == CrdPolicy::Delete;
                if is_hopeless { Removal::Done } else { Removal::Waiting }
            }
        }
    }

    /// Before garbage collection takes what is left: sees to it that it takes no definition that is to stay.
    async fn save_definitions(
        &self,
        set: &ClusterObjectSet,
        crds: CrdPolicy,
        content: Option<Revision>,
    ) -> Result<TeardownResult, String> {
        if crds == CrdPolicy::Delete {
            tracing::warn!(revision = set.name_any(), "objects are left to garbage collection");
            return Ok(TeardownResult::default());
        }
        let owner = owner(set);
        let heirs = self.heirs(set).await?;
        let mut definitions = self.definitions(&owner.extension).await?;
        for key in content.iter().flat_map(Revision::definitions) {
            if !definitions.contains(&key) {
                definitions.push(key);
            }
        }
        let saved = match crds {
            CrdPolicy::Keep => self.engine.release(&owner, definitions, &heirs).await,
            _ => self.engine.in_use(&owner, definitions, &heirs).await,
        };
        saved.map_err(|error| error.to_string())
    }

    /// The definitions that carry the extension's label, for a revision whose content is lost.
    async fn definitions(&self, extension: &str) -> Result<Vec<ObjectKey>, String> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let ours = ListParams::default().labels(&format!("{}={extension}", labels::OWNER_NAME));
        let found = within_deadline(api.list_metadata(&ours)).await.map_err(|error| describe(&error))?;
        let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let key = |name| ObjectKey { gvk: gvk.clone(), namespace: String::new(), name };
        Ok(found.items.iter().map(|definition| key(definition.name_any())).collect())
    }
}

/// Whether an ordered removal has taken too long.
fn is_late(set: &ClusterObjectSet) -> bool {
    let asked = set.metadata.deletion_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    Timestamp::now().duration_since(asked) > TEARDOWN_DEADLINE
}

fn why(unusable: Unusable) -> String {
    match unusable {
        Unusable::Blocked(why) | Unusable::Broken(why) | Unusable::Unreachable(why) => why,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_annotation_says() {
        let set = |policy: Option<&str>| -> ClusterObjectSet {
            let annotations = policy.map(|policy| json!({annotations::EXT_UNINSTALL_POLICY: policy}));
            serde_json::from_value(json!({"apiVersion": "olm.operatorframework.io/v1",
                "kind": "ClusterObjectSet", "metadata": {"name": "demo-1", "annotations": annotations}}))
            .unwrap()
        };
        for (value, expected) in [
            (None, CrdPolicy::SpareIfInUse),
            (Some("Delete"), CrdPolicy::Delete),
            (Some("KeepCRDs"), CrdPolicy::Keep),
            (Some("BlockIfInUse"), CrdPolicy::BlockIfInUse),
        ] {
            assert_eq!(policy(&set(value), CrdPolicy::SpareIfInUse), Ok(expected));
        }
        assert_eq!(
            policy(&set(Some("Keep")), CrdPolicy::Delete).unwrap_err(),
            "annotation ext.olm.operatorframework.io/uninstall-policy: Unsupported value: \"Keep\": supported \
             values: \"Delete\", \"KeepCRDs\", \"BlockIfInUse\""
        );
    }
}
