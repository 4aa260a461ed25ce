//! The two ends of a revision: archived after its successor rolled out, or deleted with its extension
//! (docs/design/apply.md#removal, docs/design/apply.md#recreated-extensions).
//!
//! A deleted revision has its objects deleted: first the CRDs, while the operator still runs, then the rest in
//! reverse order of the phases. Garbage collection would delete them too, in any order. It is the fallback when the
//! ordered removal is impossible or takes too long. In a foreground deletion it does not wait for finalizers. There,
//! a second owner protects the CRDs that are retained.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PartialObjectMeta};
use kube::core::GroupVersionKind;
use kube::runtime::controller::Action;
use kube::{Api, ResourceExt};
use olm_api::conditions::{reasons, types};
use olm_api::limits::LIST_PAGE;
use olm_api::names::KEEPER;
use olm_api::{ClusterExtension, ClusterObjectSet, annotations, finalizers, labels};
use olm_controller_core::membership::live_extension;
use olm_request::UninstallPolicy;
use olm_revision::engine::Revision;
use olm_revision::object::ObjectKey;
use olm_revision::teardown::{CrdPolicy, NewOwner, TeardownOptions, TeardownResult};
use olm_runtime::cluster::{describe, list_all, within_deadline};
use olm_runtime::reconcile::ReconcileError;
use tokio::time::Instant;

use super::content::{UnusableContent, has_same_extension, owner};
use super::status::RevisionOutcome;
use super::{ARCHIVAL_RETRY, Context, Pass};

/// Requeue interval of an ordered removal. Deletions of objects trigger events too.
const TEARDOWN_RETRY: Duration = Duration::from_secs(2);
/// Requeue interval of a removal that custom resources block: they are not watched.
const IN_USE_RETRY: Duration = Duration::from_secs(10);
/// Prefix of the message about custom resources that block a removal.
const WAITING: &str = "waiting for ";

/// Returns `true` if the revision is archived according to its status and has no finalizer of ours.
pub(super) fn is_done(set: &ClusterObjectSet) -> bool {
    let is_current = set
        .condition(types::PROGRESSING)
        .is_some_and(|c| c.reason == reasons::ARCHIVED && c.observed_generation == set.metadata.generation);
    is_current && !has_finalizer(set, finalizers::TEARDOWN)
}

pub(super) fn has_finalizer(set: &ClusterObjectSet, name: &str) -> bool {
    set.finalizers().iter().any(|finalizer| finalizer == name)
}

/// Returns the policy for CRDs: from the annotation of the extension if it exists, because a new policy may not have
/// reached the revision, else from that of the revision. `default` without annotation.
fn policy(
    set: &ClusterObjectSet,
    extension: Option<&PartialObjectMeta<ClusterExtension>>,
    default: CrdPolicy,
) -> CrdPolicy {
    let annotations = extension.map_or_else(|| set.annotations(), |extension| extension.annotations());
    let policy = annotations.get(annotations::EXT_UNINSTALL_POLICY);
    policy.map_or(default, |text| crd_policy(UninstallPolicy::of(text)))
}

fn crd_policy(policy: UninstallPolicy) -> CrdPolicy {
    match policy {
        UninstallPolicy::Delete => CrdPolicy::Delete,
        UninstallPolicy::KeepCrds => CrdPolicy::Keep,
        UninstallPolicy::BlockIfInUse => CrdPolicy::BlockIfInUse,
    }
}

/// Returns `true` if the CRDs of the revision may outlive it and therefore need a second owner.
pub(super) fn may_outlive(set: &ClusterObjectSet) -> bool {
    matches!(policy(set, None, CrdPolicy::Delete), CrdPolicy::Keep | CrdPolicy::BlockIfInUse)
}

fn waiting(left: &[String]) -> RevisionOutcome {
    match left {
        [] => RevisionOutcome::Archiving,
        _ => RevisionOutcome::Retrying(format!("{WAITING}{}", left.join("; "))),
    }
}

fn was_waiting(set: &ClusterObjectSet) -> bool {
    set.condition(types::PROGRESSING).is_some_and(|condition| condition.message.starts_with(WAITING))
}

impl Context {
    /// Returns the UID of the second owner that the revision's CRDs need, if any.
    pub(super) async fn keeper(&self, set: &ClusterObjectSet) -> Result<Option<String>, ReconcileError> {
        if !may_outlive(set) {
            return Ok(None);
        }
        let read = async || {
            let namespaces: Api<Namespace> = Api::all(self.client.clone());
            within_deadline(namespaces.get_metadata(KEEPER))
                .await
                .map(|keeper| keeper.uid().unwrap_or_default())
        };
        let uid = self.keeper.get_or_try_init(read).await;
        uid.map(|uid| Some(uid.clone())).map_err(|error| {
            ReconcileError::retry(format!("getting Namespace {KEEPER}: {}", describe(&error)))
        })
    }

    /// Runs one pass of archiving.
    pub(super) async fn archive(&self, set: &ClusterObjectSet) -> Pass {
        let removed = async {
            let crds = self.policy_of_archived(set).await?;
            let new_owners = self.new_owners(set).await.map_err(UnusableContent::why)?;
            let keeper = self.keeper(set).await.map_err(|error| error.message)?;
            let engine = self.engine_of(set)?.with_keeper(keeper);
            let removed = match self.listed(set).await {
                Ok(listed) => {
                    let options = TeardownOptions { new_owners, crds, ..TeardownOptions::default() };
                    engine.teardown(&listed, &options).await
                }
                Err(UnusableContent::Unreachable(error)) => return Err(error),
                // It never applied anything: the finalizer is added before.
                Err(_) if !has_finalizer(set, finalizers::TEARDOWN) => Ok(TeardownResult::default()),
                // Successors must not collide with objects that cannot be removed.
                Err(lost) => engine.hand_over(&owner(set), &new_owners).await.map(|mut handed| {
                    let lost = lost.of(&set.name_any()).why();
                    handed.blocked = vec![format!("{lost}; delete this revision to remove its objects")];
                    handed
                }),
            };
            removed.map_err(|error| error.to_string())
        };
        match removed.await {
            Ok(result) if result.is_complete() => {
                self.forget(set);
                Pass::of(RevisionOutcome::Archived, None)
            }
            Ok(result) if !result.blocked.is_empty() => {
                let again = self.next_poll(set, IN_USE_RETRY, &result);
                Pass::of(RevisionOutcome::Blocked(result.blocked.join("; ")), Some(again))
            }
            Ok(result) if !result.denied.is_empty() => {
                let message =
                    format!("error archiving revision: teardown phase: teardown {}", result.denials());
                self.report_denied(set, &result);
                Pass::broke(message, "revision teardown")
            }
            Ok(result) => {
                let again = self.next_poll(set, ARCHIVAL_RETRY, &result);
                Pass::of(waiting(&result.awaited()), Some(again))
            }
            Err(error) => Pass::broke(format!("error archiving revision: {error}"), "revision teardown"),
        }
    }

    /// Returns the policy for the CRDs of an archived revision. Deleting a CRD deletes its custom resources, so it is
    /// retained while there are any, unless the user asks for deletion.
    async fn policy_of_archived(&self, set: &ClusterObjectSet) -> Result<CrdPolicy, String> {
        let spare = CrdPolicy::SpareIfInUse;
        if policy(set, None, spare) != CrdPolicy::Delete {
            return Ok(spare);
        }
        let extension = self.extension(set).await?;
        let is_asked = policy(set, extension.as_ref(), spare) == CrdPolicy::Delete;
        Ok(if is_asked { CrdPolicy::Delete } else { spare })
    }

    /// Returns the active siblings that adopt the objects they list, newest first. Siblings older than one that has
    /// rolled out are about to be archived and adopt nothing.
    ///
    /// # Errors
    /// The objects of a sibling are unknown. Without them, objects would be deleted instead of adopted. Until then, the
    /// newer siblings adopt theirs, because they would collide with this revision.
    async fn new_owners(&self, set: &ClusterObjectSet) -> Result<Vec<NewOwner>, UnusableContent> {
        let mut new_owners = Vec::new();
        for sibling in self.siblings(set).iter().rev() {
            match self.listed(sibling).await {
                Ok(listed) => new_owners.push(NewOwner::new(owner(sibling), &listed.phases)),
                Err(unknown) => {
                    let engine = self.engine_of(set).map_err(UnusableContent::Unreachable)?;
                    let handed = engine.hand_over(&owner(set), &new_owners).await;
                    handed.map_err(|error| UnusableContent::Unreachable(error.to_string()))?;
                    return Err(unknown.of(&sibling.name_any()));
                }
            }
            if sibling.is_true(types::SUCCEEDED) {
                break;
            }
        }
        Ok(new_owners)
    }

    /// Runs one pass over a revision that is being deleted.
    pub(super) async fn delete(&self, set: &ClusterObjectSet) -> Result<Action, ReconcileError> {
        let mut stored = set.clone();
        if has_finalizer(set, finalizers::TEARDOWN) {
            let result = self.tear_down(set).await;
            match &result {
                Ok(done) if done.is_complete() => stored = self.report_left(set, done).await?,
                Ok(held) if !held.blocked.is_empty() => {
                    let again = self.next_poll(set, IN_USE_RETRY, held);
                    self.write_outcome(set, &RevisionOutcome::Blocked(held.blocked.join("; "))).await?;
                    return Ok(Action::requeue(again));
                }
                _ => {
                    let left = result.as_ref().map(TeardownResult::awaited).unwrap_or_default();
                    result.iter().for_each(|result| self.report_denied(set, result));
                    // Other removals need no status write.
                    if !left.is_empty() || was_waiting(set) {
                        self.write_outcome(set, &waiting(&left)).await?;
                    }
                    return Ok(Action::requeue(self.next_attempt(set, &result)));
                }
            }
        }
        self.remove_finalizer(&stored).await?;
        self.forget(set);
        Ok(Action::await_change())
    }

    /// Returns the delay until the next attempt of a removal that waits. It ends at the latest at the removal's
    /// deadline, and early enough to notice a lost operator.
    fn next_attempt(&self, set: &ClusterObjectSet, result: &Result<TeardownResult, String>) -> Duration {
        let age = self.time_since_deletion(set);
        if age >= self.pace.teardown {
            return TEARDOWN_RETRY;
        }
        let left = Duration::try_from(self.pace.teardown.saturating_sub(age)).unwrap_or_default();
        self.next_poll(set, TEARDOWN_RETRY, result).min(left).min(self.pace.operator)
    }

    /// Writes the status of a removal.
    pub(super) async fn write_outcome(
        &self,
        set: &ClusterObjectSet,
        outcome: &RevisionOutcome,
    ) -> Result<ClusterObjectSet, ReconcileError> {
        self.write(set, &self.next_status(set, outcome, None, None)).await
    }

    /// Removes the objects in order. The result is complete when the rest can be garbage-collected, except for custom
    /// resources that have a finalizer.
    ///
    /// # Errors
    /// The attempt failed and must be retried.
    async fn tear_down(&self, set: &ClusterObjectSet) -> Result<TeardownResult, String> {
        let (revision, age) = (set.name_any(), self.time_since_deletion(set));
        let is_late = age >= self.pace.teardown;
        if has_finalizer(set, finalizers::ORPHAN) {
            return Ok(TeardownResult::default());
        }
        // While the extension exists, deleting one of its revisions must not delete custom resources.
        let extension = self.extension(set).await?;
        let stays =
            extension.as_ref().is_some_and(|extension| extension.metadata.deletion_timestamp.is_none());
        let lives_on = stays || !self.siblings(set).is_empty();
        let default = if lives_on { CrdPolicy::SpareIfInUse } else { CrdPolicy::Delete };
        let crds = policy(set, extension.as_ref(), default);
        let new_owners = match self.new_owners(set).await {
            Ok(new_owners) => new_owners,
            Err(UnusableContent::Unreachable(error)) => {
                tracing::warn!(revision, error, "removal of objects failed");
                return Err(error);
            }
            Err(unknown) => return Ok(TeardownResult::blocked(unknown.why())),
        };
        // Its CRDs may belong to a newer revision, whose custom resources need the operator of this one.
        if let Some(newer) = self.newer_in_removal(set).filter(|_| !is_late) {
            return Err(format!("waiting for the removal of revision {newer}"));
        }
        let mut options = TeardownOptions { new_owners, crds, is_final: true, abandons: is_late };
        let removed = async {
            match self.listed(set).await {
                Ok(listed) if !is_late => {
                    let has_operator = listed.crds().is_empty() || self.engine.has_operator(&listed).await;
                    let unattended = self.timers.unattended(&listed.owner.uid, has_operator, Instant::now());
                    options.abandons = !has_operator && unattended >= self.pace.operator;
                    self.engine_of(set)?.teardown(&listed, &options).await.map_err(|error| error.to_string())
                }
                Ok(listed) => self.save(set, Some(listed), &options).await,
                Err(UnusableContent::Unreachable(error)) if !is_late => Err(error),
                Err(lost) => {
                    tracing::warn!(
                        revision,
                        error = lost.why(),
                        "content of revision unknown, skipped ordered removal"
                    );
                    self.save(set, None, &options).await
                }
            }
        };
        let removed =
            removed.await.inspect_err(|error| tracing::warn!(revision, error, "removal of objects failed"));
        match removed {
            Err(_) if is_late && crds == CrdPolicy::Delete && !lives_on => Ok(TeardownResult::default()),
            Err(error) if is_late => Ok(TeardownResult::blocked(error)),
            // Garbage collection could delete them later, with custom resources.
            Ok(result) if is_late && lives_on && !result.denied.is_empty() => {
                Ok(TeardownResult::blocked(format!("deletions are denied: {}", result.denials())))
            }
            removed => removed,
        }
    }

    /// Returns the extension of the revision, if it still exists.
    async fn extension(
        &self,
        set: &ClusterObjectSet,
    ) -> Result<Option<PartialObjectMeta<ClusterExtension>>, String> {
        let owner = set.controller().filter(|owner| owner.kind == labels::OWNER_KIND_EXTENSION);
        let Some(owner) = owner else { return Ok(None) };
        live_extension(&self.client, owner).await.map_err(|error| {
            let error = format!("getting ClusterExtension {:?}: {error}", owner.name);
            tracing::warn!(revision = set.name_any(), error, "removal of objects failed");
            error
        })
    }

    /// Returns a newer revision of the same extension that is being removed.
    fn newer_in_removal(&self, set: &ClusterObjectSet) -> Option<String> {
        let extension = set.labels().get(labels::OWNER_NAME)?;
        let is_newer = |other: &Arc<ClusterObjectSet>| {
            other.metadata.deletion_timestamp.is_some()
                && has_finalizer(other, finalizers::TEARDOWN)
                && has_same_extension(set, other)
                && other.number() > set.number()
        };
        self.cache.labeled(extension).iter().find(|other| is_newer(other)).map(|other| other.name_any())
    }

    fn time_since_deletion(&self, set: &ClusterObjectSet) -> SignedDuration {
        let asked = set.metadata.deletion_timestamp.as_ref();
        asked.map_or(SignedDuration::ZERO, |asked| self.age(set, asked.0))
    }

    fn next_poll(&self, set: &ClusterObjectSet, first: Duration, found: &impl Debug) -> Duration {
        self.timers.next_poll(&set.uid().unwrap_or_default(), first, found, Instant::now())
    }

    /// Prepares for garbage collection: transfers objects that a sibling lists, and protects CRDs that are retained.
    async fn save(
        &self,
        set: &ClusterObjectSet,
        listed: Option<Revision>,
        options: &TeardownOptions,
    ) -> Result<TeardownResult, String> {
        let (engine, owner) = (self.engine_of(set)?, owner(set));
        let handed =
            engine.hand_over(&owner, &options.new_owners).await.map_err(|error| error.to_string())?;
        if !handed.is_complete() {
            return Ok(handed);
        }
        tracing::warn!(revision = owner.name, "left objects to garbage collection");
        let crds = match listed {
            Some(listed) => listed.crds(),
            None => self.crds(&owner.uid).await.map_err(|error| describe(&error))?,
        };
        let saved = engine.remove_crds(&owner, crds, options).await;
        // Garbage collection may be denied their deletion, too.
        saved.map(|saved| saved.without(engine.denied(&owner.uid))).map_err(|error| error.to_string())
    }

    /// Returns the CRDs that have the revision as an owner, for the case that its content is lost. Lists all CRDs
    /// without a label selector: a missed one would lose custom resources.
    async fn crds(&self, revision_uid: &str) -> Result<Vec<ObjectKey>, kube::Error> {
        let api: &Api<CustomResourceDefinition> = &Api::all(self.client.clone());
        let list = |page| async move { within_deadline(api.list_metadata(&page)).await };
        let all = list_all(ListParams::default().limit(LIST_PAGE), list).await?;
        let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let key = |name| ObjectKey { gvk: gvk.clone(), namespace: String::new(), name };
        let is_owned = |crd: &&PartialObjectMeta<CustomResourceDefinition>| {
            crd.owner_references().iter().any(|owner| owner.uid == revision_uid)
        };
        Ok(all.iter().filter(is_owned).map(|crd| key(crd.name_any())).collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(policy: Option<&str>) -> ClusterObjectSet {
        let annotations = policy.map(|policy| json!({annotations::EXT_UNINSTALL_POLICY: policy}));
        serde_json::from_value(json!({"apiVersion": "olm.operatorframework.io/v1",
            "kind": "ClusterObjectSet", "metadata": {"name": "demo-1", "annotations": annotations}}))
        .unwrap()
    }

    #[test]
    fn policy_of_existing_extension_overrides_that_of_the_revision() {
        let spare = CrdPolicy::SpareIfInUse;
        let extension = |policy: Option<&str>| -> PartialObjectMeta<ClusterExtension> {
            let annotations = policy.map(|policy| json!({annotations::EXT_UNINSTALL_POLICY: policy}));
            serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
        };
        for (of_revision, expected) in [
            (None, spare),
            (Some("Delete"), CrdPolicy::Delete),
            (Some("KeepCRDs"), CrdPolicy::Keep),
            (Some("BlockIfInUse"), CrdPolicy::BlockIfInUse),
            (Some("Keep"), CrdPolicy::BlockIfInUse),
        ] {
            assert_eq!(policy(&set(of_revision), None, spare), expected, "{of_revision:?}");
        }
        assert!(may_outlive(&set(Some("Keep"))) && !may_outlive(&set(Some("Delete"))));
        for (of_revision, of_extension, expected) in [
            (Some("KeepCRDs"), Some("Delete"), CrdPolicy::Delete),
            (None, Some("KeepCRDs"), CrdPolicy::Keep),
            (Some("Delete"), Some("BlockIfInUse"), CrdPolicy::BlockIfInUse),
            (Some("Delete"), None, spare),
            (Some("KeepCRDs"), Some("Keep"), CrdPolicy::BlockIfInUse),
            (Some("Delete"), Some("keepcrds"), CrdPolicy::BlockIfInUse),
        ] {
            let policy = policy(&set(of_revision), Some(&extension(of_extension)), spare);
            assert_eq!(policy, expected, "{of_revision:?}, {of_extension:?}");
        }
    }
}
