//! Reconcile of an extension: observe → prepare → choose → [`decide`] → act → report (one status write, Events) → verify the
//! content of its revisions.
//!
//! Each step is boxed: the future of all steps would be large, and is moved on the stack of a worker. Other modules do not
//! box.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use olm_api::ClusterExtension;
use olm_controller_core::install_error::{InstallError, InstallErrorClass};
use olm_request::InvalidAnnotation;
use olm_revision::generate::newest;
use olm_runtime::reconcile::{RESYNC, ReconcileError};
use olm_runtime::status::STALE_RETRY;
use tokio::time::Instant;

use super::choice::ResolutionFailure;
use super::decide::{Decision, decide};
use super::delays::{CONFLICT_RETRY, REQUEUE_DELAY};
use super::events::{self, ExtensionEvent};
use super::findings::{self, ConditionChange};
use super::installation::{InstallResult, Installation, Target};
use super::memory::ExtensionMemory;
use super::mirroring::mirror;
use super::observed::{NamespaceList, ObservedExtension};
use super::orphans::adopt_orphans;
use super::outcome::ReconcileOutcome;
use super::parts::ExtensionController;
use super::removal::FINALIZERS;
use super::resolver::CONTENT_WAIT;
use super::revisions::{self, Revision, RevisionStates};
use super::rollout_events;
use super::status::{Applied, StatusUpdate};
use crate::adoption::AdoptionState;
use crate::preflight::CrdVerdict;

/// Requeue delay of a blocked extension. The cause may end without an event.
const BLOCKED_RETRY: Duration = Duration::from_secs(600);

/// Result of the preparation of a reconcile.
enum Prepared {
    Complete,
    /// There is nothing else to do now.
    Ended(Action),
    /// The failure is reported, and nothing else is done.
    Stopped(InstallError),
}

impl ExtensionController {
    /// Reconciles one extension to its spec, or finalizes it.
    pub(super) async fn reconcile(&self, extension: &ClusterExtension) -> Result<Action, ReconcileError> {
        if let Some(action) = self.admit(extension).await? {
            return Ok(action);
        }
        let observed = match self.observe(extension).await {
            Ok(observed) => observed,
            Err(failure) => return self.reporter().fail(extension, failure).await,
        };
        match self.prepare(&observed).await? {
            Prepared::Ended(action) => Ok(action),
            Prepared::Stopped(failure) => {
                let outcome = ReconcileOutcome::stopped(failure, &observed.rules);
                self.conclude(observed, outcome).await
            }
            Prepared::Complete => {
                let result = self.advance(observed).await;
                self.parts.bundles.pulls.release_unrequested(&extension.name_any());
                self.parts.bundles.verifications.release_unrequested(&extension.name_any());
                result
            }
        }
    }

    /// Chooses a bundle, takes the next step and reports it.
    async fn advance(&self, mut observed: ObservedExtension<'_>) -> Result<Action, ReconcileError> {
        let choice = match observed.filter() {
            Ok(filter) => self.resolver().choose(&observed, filter).boxed().await,
            Err(failure) => Err(ResolutionFailure::other(failure, &observed.rules)),
        };
        let revisions = self.parts.cache.of_extension(&observed.name);
        let name = observed.name.clone();
        let decision = self.memories.with(&name, |memory| {
            if let Ok(choice) = &choice {
                observed.settle_namespaces(&choice.target, memory, Timestamp::now(), Instant::now());
            }
            decide(&observed, choice, memory, newest(&revisions))
        });
        let outcome = self.act(&observed, decision).await?;
        self.conclude(observed, outcome).await
    }

    /// Finalizes a deleted extension, and gives others their finalizers. `None` if the reconcile goes on.
    async fn admit(&self, extension: &ClusterExtension) -> Result<Option<Action>, ReconcileError> {
        if self.writes.is_stale(extension) {
            return Err(ReconcileError::pending(STALE_RETRY));
        }
        if extension.metadata.deletion_timestamp.is_some() {
            return self.remover().finalize(extension).boxed().await.map(Some);
        }
        let is_missing = |name: &&&str| !extension.finalizers().iter().any(|has| has == *name);
        let missing: Vec<&str> = FINALIZERS.iter().filter(is_missing).copied().collect();
        if !missing.is_empty() {
            let mut all = extension.finalizers().to_vec();
            all.extend(missing.into_iter().map(str::to_owned));
            self.remover().set_finalizers(extension, &all).await?;
            return Ok(Some(Action::await_change()));
        }
        if !self.parts.features.impersonation {
            warn_of_service_account(extension);
        }
        // Without its revisions an installed extension would look like a new one.
        self.parts.cache.listed().cancelled().await;
        Ok(None)
    }

    async fn observe<'a>(
        &self,
        extension: &'a ClusterExtension,
    ) -> Result<ObservedExtension<'a>, InstallError> {
        let name = extension.name_any();
        let operator_condition = match &self.parts.operator_conditions {
            Some(conditions) => conditions.is_served().await?,
            None => false,
        };
        let revisions = self.parts.cache.of_extension(&name);
        let states = revisions::states_of(extension, &revisions);
        let edited = self.spec_changed(extension, &states);
        let features = self.parts.features;
        let (rules, account) = (features.rules(extension), features.account(extension));
        let selected = self.selected_namespaces(extension).await?;
        Ok(ObservedExtension {
            extension,
            name,
            rules,
            account,
            revisions,
            states,
            edited,
            operator_condition,
            selected,
            list: NamespaceList::default(),
        })
    }

    /// Adopts an installation of Helm and orphaned revisions, and annotates the revisions.
    async fn prepare(&self, observed: &ObservedExtension<'_>) -> Result<Prepared, ReconcileError> {
        let ObservedExtension { extension, name, rules, account, revisions, states, .. } = observed;
        let active = states.rolling_out.iter().chain(&states.installed);
        self.parts.bundles.need(name, active.map(|revision| revision.image.as_str()));
        match self.adoption.migrate(extension, revisions).boxed().await {
            Ok(AdoptionState::Complete) => {}
            Ok(AdoptionState::Pending(note)) => {
                let note = note.map(|note| ExtensionEvent::normal(rollout_events::ADOPTED, note));
                self.reporter().publish(extension, &[], note.into_iter().collect());
                return Ok(Prepared::Ended(Action::await_change()));
            }
            // The installed bundle is unknown before the adoption, so the status keeps what it reports.
            Err(failure) => return self.reporter().fail(extension, failure).await.map(Prepared::Ended),
        }
        let uid = extension.metadata.uid.as_deref();
        let all = || revisions.iter().map(Arc::as_ref);
        let prepared = match adopt_orphans(&self.parts.client, extension, revisions).boxed().await {
            Ok(true) => mirror(&self.revisions, all(), rules, uid, account.as_deref()).boxed().await,
            unchanged => unchanged,
        };
        match prepared {
            Ok(true) => Ok(Prepared::Complete),
            // An object has changed since it was read.
            Ok(false) => Err(ReconcileError::pending(CONFLICT_RETRY)),
            Err(failure) => Ok(Prepared::Stopped(failure)),
        }
    }

    /// Takes the next step. An error means that there is nothing to report yet.
    async fn act(
        &self,
        observed: &ObservedExtension<'_>,
        decision: Decision,
    ) -> Result<ReconcileOutcome, ReconcileError> {
        let (mut waiting, mut is_newest, mut is_ready) = (None, false, false);
        let mut outcome = match decision {
            Decision::AwaitCatalog => return Err(ReconcileError::pending(CONTENT_WAIT)),
            Decision::Refuse(refusal) => self.restorer().report_failure(observed, *refusal).boxed().await?,
            Decision::Hold { choice, waits } => {
                waiting = waits;
                ReconcileOutcome::chosen(choice, Installation::unchanged(CrdVerdict::Safe), observed)
            }
            Decision::Keep { choice, crds } => {
                is_newest = true;
                let verdict = self.installer().judge_newest(&observed.name).await;
                let kept = Installation { verdict, ..Installation::unchanged(crds) };
                ReconcileOutcome::chosen(choice, kept, observed)
            }
            Decision::Restore { choice, to } => {
                let restoration = self.restorer().restore(observed, to.as_deref()).boxed().await?;
                let installation = Installation::unchanged(CrdVerdict::Safe).with(restoration);
                ReconcileOutcome::chosen(choice, installation, observed)
            }
            Decision::Install { choice, inputs } => {
                let (catalog, together) = (choice.catalog.as_deref(), &choice.together);
                let target = Target { inputs: *inputs, catalog, together };
                let installation = self.installer().install(observed, target).boxed().await?;
                is_newest = !installation.is_stopped();
                is_ready =
                    matches!(installation.result, InstallResult::AwaitsGroup(_) | InstallResult::Created(_));
                if installation.is_held() {
                    self.installer().relist(observed).boxed().await?;
                }
                let installation = self.restorer().restore_if_stopped(observed, installation).boxed().await?;
                ReconcileOutcome::chosen(choice, installation, observed)
            }
        };
        if !is_ready {
            self.memories.with(&observed.name, |memory| memory.ready = None);
        }
        if is_newest && !self.settle_plans(observed).await {
            outcome.requeue = Some(outcome.requeue.map_or(REQUEUE_DELAY, |delay| delay.min(REQUEUE_DELAY)));
        }
        if outcome.attempt.applied == Applied::Active {
            outcome.requeue = outcome.requeue.into_iter().chain(observed.list.due).min();
        }
        if observed.rules.paused {
            outcome.attempt.findings.paused = ConditionChange::State(findings::paused(waiting));
        }
        Ok(outcome)
    }

    /// Settles the plans of an extension whose newest revision has the target. Returns `false` if this must be repeated.
    async fn settle_plans(&self, observed: &ObservedExtension<'_>) -> bool {
        let newest = self.memories.with(&observed.name, |memory| Some(memory.newest.as_ref()?.plan.clone()));
        self.plans.settle(observed, newest).await
    }

    /// Reports the outcome, completes the content of the revisions, and returns when to reconcile again.
    async fn conclude(
        &self,
        mut observed: ObservedExtension<'_>,
        mut outcome: ReconcileOutcome,
    ) -> Result<Action, ReconcileError> {
        observed.states.rolling_out.extend(outcome.made.as_ref().map(Revision::of));
        outcome.is_held |= observed.rules.paused;
        let (applied, is_held, unfinished) =
            (outcome.attempt.applied.clone(), outcome.is_held, outcome.unfinished);
        let (made, mut requeue) = (outcome.made.take(), outcome.requeue);
        let reported = self.report(&observed, outcome).await;
        // Verifying may pull another bundle, which would replace the pull in progress.
        let is_pulling = matches!(applied, Applied::Pulling(_));
        let is_verified = reported.is_err() || is_pulling || self.verify(&observed, unfinished).await;
        if let Some(revision) = &made {
            // Wait for the cache: until it holds the revision, another reconcile would not find it.
            self.parts.cache.until_contains(revision).await;
        } else if reported.is_ok() && is_verified && !unfinished {
            self.sweep(&observed.name).await;
        }
        reported?;
        if !is_verified {
            requeue = Some(REQUEUE_DELAY);
        }
        if applied == Applied::Active && !is_held {
            let generation = Some(observed.extension.metadata.generation);
            self.memories.with(&observed.name, |memory| memory.applied_generation = generation);
        }
        next_action(&observed.name, applied, requeue)
    }

    /// Writes the status, and publishes Events.
    async fn report(
        &self,
        observed: &ObservedExtension<'_>,
        outcome: ReconcileOutcome,
    ) -> Result<(), ReconcileError> {
        let ReconcileOutcome { attempt, mut events, mut resolved, is_held, .. } = outcome;
        let ObservedExtension { extension, rules, states, .. } = observed;
        let invalid = |fault: &InvalidAnnotation| {
            ExtensionEvent::warning(events::INVALID_ANNOTATION, fault.to_string())
        };
        events.extend(rules.invalid.iter().map(invalid));
        resolved.extend(rules.invalid.is_empty().then_some(events::INVALID_ANNOTATION));
        let generation = match is_held {
            true => self.reporter().applied_generation(extension),
            false => extension.metadata.generation,
        };
        let update = StatusUpdate::Attempted(Box::new(attempt));
        let written = self.reporter().write(extension, generation, states, &update).await;
        if let Ok(next) = &written {
            events.extend(events::of_change(observed.status(), next));
            events.extend(rollout_events::reached(observed.status(), next));
            resolved.extend(events::resolved(next));
            resolved.extend(rollout_events::resolved(next));
        }
        // What was done is reported even if the status could not be written.
        self.reporter().publish(extension, &resolved, events);
        written.map(drop)
    }

    /// Deletes the content Secrets to which no revision refers.
    async fn sweep(&self, name: &str) {
        if let Err(error) = self.ref_secrets.sweep(name, &self.parts.cache.labeled(name)).await {
            tracing::warn!(extension = name, %error, "failed to delete Secrets without owner");
        }
    }

    /// Verifies the content of the active revisions, unless it was verified before and no Secret was lost since.
    /// Returns `false` if it must be verified again.
    async fn verify(&self, observed: &ObservedExtension<'_>, unfinished: bool) -> bool {
        // A paused extension writes nothing, and an unfinished write is retried anyway.
        if observed.rules.paused || unfinished {
            return true;
        }
        // Set before the check, so that a Secret lost during it resets the flag.
        let verified = |memory: &mut ExtensionMemory| std::mem::replace(&mut memory.content_verified, true);
        if self.memories.with(&observed.name, verified) {
            return true;
        }
        match self.installer().verify_content(observed).boxed().await {
            Ok(()) => true,
            Err(error) => {
                self.memories.content_lost(&observed.name);
                tracing::warn!(extension = observed.name, %error, "failed to verify revision content");
                false
            }
        }
    }

    /// Reports whether the spec changed since a revision was last created or kept for it. For generations before
    /// the start of this process, the status is the only source.
    fn spec_changed(&self, extension: &ClusterExtension, states: &RevisionStates) -> bool {
        let seen = states.applied_generation(extension);
        let applied = |memory: &mut ExtensionMemory| *memory.applied_generation.get_or_insert(seen);
        self.memories.with(&extension.name_any(), applied) != extension.metadata.generation
    }
}

/// Action after an attempt with this result, which `requeue` repeats after a delay.
fn next_action(name: &str, applied: Applied, requeue: Option<Duration>) -> Result<Action, ReconcileError> {
    match applied {
        Applied::Active | Applied::Held(_) => Ok(requeue.map_or_else(Action::await_change, Action::requeue)),
        // Constant delay instead of backoff: the missing objects may appear at any time.
        Applied::Pulling(message) | Applied::Failed(InstallError { message, .. }) if requeue.is_some() => {
            tracing::info!(extension = name, error = message, delay = ?REQUEUE_DELAY, "requeued");
            Ok(Action::requeue(REQUEUE_DELAY))
        }
        Applied::Pulling(_) => Err(ReconcileError::pending(RESYNC)),
        Applied::Failed(InstallError {
            class: InstallErrorClass::Retry | InstallErrorClass::Rejected,
            message,
        }) => Err(ReconcileError::retry(message)),
        Applied::Failed(failure) => {
            Err(ReconcileError::terminal(failure).no_later_than(Some(Instant::now() + BLOCKED_RETRY)))
        }
    }
}

fn warn_of_service_account(extension: &ClusterExtension) {
    let account = extension.spec.as_ref().and_then(|spec| spec.service_account.as_ref());
    if account.is_some_and(|account| !account.name.is_empty()) {
        tracing::info!(
            name = extension.name_any(),
            "spec.serviceAccount is deprecated, ignored, and will be removed in a future release"
        );
    }
}

#[cfg(test)]
#[path = "reconcile_tests.rs"]
mod tests;
