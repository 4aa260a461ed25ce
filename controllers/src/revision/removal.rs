//! The two ends of a revision: archived after its successor rolled out, or deleted with its extension
//! (spec 05 §§6.7, 7.7, 12).
//!
//! A deleted revision takes its objects with it in reverse order of the phases. Garbage collection would remove them
//! too, in any order; it is what remains when the ordered removal cannot be done or takes too long.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::runtime::controller::Action;
use olm_api::conditions::{self, reasons, types};
use olm_api::{ClusterObjectSet, finalizers};
use olm_revision::teardown::{Heir, TeardownOptions};
use olm_service::reconcile::Failure;

use super::content::{Unusable, owner};
use super::status::Outcome;
use super::{ARCHIVAL_RETRY, Context, Pass};

/// How long an ordered removal may take before the rest is left to garbage collection.
const TEARDOWN_DEADLINE: SignedDuration = SignedDuration::from_mins(2);
/// How often an ordered removal looks again; the deletion of objects is an event too.
const TEARDOWN_RETRY: Duration = Duration::from_secs(2);
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

fn has_finalizer(set: &ClusterObjectSet, name: &str) -> bool {
    set.finalizers().iter().any(|finalizer| finalizer == name)
}

impl Context {
    /// One pass of archiving.
    pub(super) async fn archive(&self, set: &ClusterObjectSet) -> Pass {
        let removed = async {
            let content = self.content_to_remove(set).await.map_err(why)?;
            let options = TeardownOptions { heirs: self.heirs(set).await?, ..TeardownOptions::default() };
            self.engine.teardown(&content, &options).await.map_err(|error| error.to_string())
        };
        match removed.await {
            Ok(result) if result.is_complete() => {
                self.forget(set);
                Pass::of(Outcome::Archived, Action::await_change())
            }
            Ok(_) => Pass::of(Outcome::Archiving, Action::requeue(ARCHIVAL_RETRY)),
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
        if has_finalizer(set, finalizers::TEARDOWN)
            && let Some(next) = self.tear_down(set).await
        {
            return Ok(next);
        }
        self.forget(set);
        self.remove_finalizer(set).await?;
        Ok(Action::await_change())
    }

    /// Removes the objects in order; `None` once nothing more is to be done that way.
    async fn tear_down(&self, set: &ClusterObjectSet) -> Option<Action> {
        let revision = set.name_any();
        if has_finalizer(set, ORPHAN) {
            return None;
        }
        let asked = set.metadata.deletion_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        if Timestamp::now().duration_since(asked) > TEARDOWN_DEADLINE {
            tracing::warn!(
                revision,
                "ordered removal takes too long; the rest is left to garbage collection"
            );
            return None;
        }
        let content = match self.content_to_remove(set).await {
            Ok(content) => content,
            Err(Unusable::Unreachable(error)) => {
                tracing::warn!(revision, error, "removing objects");
                return Some(Action::requeue(TEARDOWN_RETRY));
            }
            Err(unusable) => {
                let why = why(unusable);
                tracing::warn!(revision, why, "no ordered removal; objects are left to garbage collection");
                return None;
            }
        };
        let removed = async {
            let options = TeardownOptions { heirs: self.heirs(set).await?, ..TeardownOptions::default() };
            self.engine.teardown(&content, &options).await.map_err(|error| error.to_string())
        };
        match removed.await {
            Ok(result) if result.is_complete() => None,
            Ok(_) => Some(Action::requeue(TEARDOWN_RETRY)),
            Err(error) => {
                tracing::warn!(revision, error, "removing objects");
                Some(Action::requeue(TEARDOWN_RETRY))
            }
        }
    }

    fn forget(&self, set: &ClusterObjectSet) {
        self.watches.release(&set.name_any());
        self.engine.forget(&set.uid().unwrap_or_default());
    }
}

fn why(unusable: Unusable) -> String {
    match unusable {
        Unusable::Blocked(why) | Unusable::Broken(why) | Unusable::Unreachable(why) => why,
    }
}
