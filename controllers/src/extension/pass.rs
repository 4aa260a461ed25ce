//! One pass over an extension: from what is observed to one status write and the Events about it (spec 05 §3.3).

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use kube::runtime::controller::Action;
use kube::{Resource, ResourceExt};
use olm_api::cluster_extension::CatalogFilter;
use olm_api::conditions::{self, types};
use olm_api::{ClusterExtension, ClusterExtensionStatus};
use olm_extension::ExtensionRules;
use olm_service::cluster::describe;
use olm_service::reconcile::Failure as Attempt;
use olm_service::status::write_status;
use tokio::time::Instant;

use super::attempted::Attempted;
use super::findings::{self, Finding};
use super::install::Installation;
use super::mirroring::mirror;
use super::notices::{self, Notice};
use super::removal::FINALIZERS;
use super::revisions::{self, Revision, RevisionStates};
use super::status::{self, Outcome};
use super::wanted::Refusal;
use super::{Context, LOOK_AGAIN, lock, milestones};
use crate::adoption::Migrated;
use crate::failure::{Class, Failure};
use crate::preflight::CrdVerdict;

/// How long an extension awaits the content of a catalog before it says so.
const PATIENCE: Duration = Duration::from_secs(20);

impl Context {
    /// What the controller does for an extension.
    pub(super) async fn reconcile(&self, extension: &ClusterExtension) -> Result<Action, Attempt> {
        if extension.metadata.deletion_timestamp.is_some() {
            return self.finalize(extension).await;
        }
        let is_missing = |name: &&&str| !extension.finalizers().iter().any(|has| has == *name);
        let missing: Vec<&str> = FINALIZERS.iter().filter(is_missing).copied().collect();
        if !missing.is_empty() {
            let mut all = extension.finalizers().to_vec();
            all.extend(missing.into_iter().map(str::to_owned));
            self.set_finalizers(extension, &all).await?;
            return Ok(Action::await_change());
        }
        if !self.parts.features.impersonation {
            warn_of_service_account(extension);
        }
        // Without its revisions an installed extension would look like a new one.
        self.parts.cache.listed().cancelled().await;
        let name = extension.name_any();
        let rules = self.rules(extension);
        let sets = self.revisions_of(&name);
        match self.adoption.migrate(extension, &sets).boxed().await {
            Ok(Migrated::Settled) => {}
            Ok(Migrated::Awaited(note)) => {
                let note = note.map(|note| Notice::normal(milestones::ADOPTED, note));
                self.publish(extension, &[], note.into_iter().collect());
                return Ok(Action::await_change());
            }
            // What is installed is not known before it is taken over; what the status says of it holds.
            Err(failure) => {
                self.cannot_go(extension, failure.clone()).await?;
                return Err(Attempt::retry(failure));
            }
        }
        let prepared = match self.own_orphans(extension, &sets).boxed().await {
            // It goes, which is an event.
            Ok(false) => return Ok(Action::await_change()),
            Ok(true) => {
                let account = self.account(extension);
                let sets = sets.iter().map(Arc::as_ref);
                mirror(&self.sets, sets, &rules, account.as_deref()).boxed().await
            }
            Err(failure) => Err(failure),
        };
        let mut states = revisions::states(&sets);
        let changed = self.is_changed(extension, &states);
        let attempted = match prepared {
            Ok(()) => self.pass(extension, &rules, &states, changed).await,
            Err(failure) => Some(Attempted::stopped(failure, &rules)),
        };
        let Some(attempted) = attempted else { return Ok(Action::requeue(PATIENCE)) };
        states.rolling_out.extend(attempted.made.as_ref().map(Revision::of));
        self.conclude(extension, &rules, &states, attempted).await
    }

    /// Writes the status, publishes Events, and says when to look again.
    async fn conclude(
        &self,
        extension: &ClusterExtension,
        rules: &ExtensionRules,
        states: &RevisionStates,
        attempted: Attempted,
    ) -> Result<Action, Attempt> {
        let name = extension.name_any();
        let Attempted { pass, mut notices, mut over, made, look_again } = attempted;
        let result = pass.applied.clone();
        notices.extend(
            rules.invalid.iter().map(|fault| Notice::warning(notices::INVALID_ANNOTATION, fault.to_string())),
        );
        over.extend(rules.invalid.is_empty().then_some(notices::INVALID_ANNOTATION));
        let generation = if rules.paused { self.honoured(extension) } else { extension.metadata.generation };
        let outcome = Outcome::Tried(Box::new(pass));
        let next = self.write(extension, generation, states, &outcome).await?;
        let old = extension.status.as_ref();
        notices.extend(notices::of_change(old, &next));
        notices.extend(milestones::reached(old, &next));
        over.extend(notices::over(&next));
        over.extend(milestones::over(&next));
        self.publish(extension, &over, notices);
        if let Some(set) = &made {
            // Another pass before that would take it for lost.
            self.parts.cache.shows(set).await;
        } else if let Err(error) = self.ref_secrets.sweep(&name).await {
            tracing::warn!(extension = name, %error, "Secrets without owner stay as they are");
        }
        match result {
            Ok(()) => {
                if !rules.paused {
                    lock(&self.honoured).insert(name.clone(), extension.metadata.generation);
                }
                Ok(if look_again { Action::requeue(LOOK_AGAIN) } else { Action::await_change() })
            }
            // No growing delays: what is missing may come any time.
            Err(failure) if look_again => {
                tracing::info!(name, error = failure.message, "looking again soon");
                Ok(Action::requeue(LOOK_AGAIN))
            }
            Err(Failure { class: Class::Retry, message }) => Err(Attempt::retry(message)),
            Err(failure) => Err(Attempt::terminal(failure)),
        }
    }

    /// Chooses and applies; `None` where there is nothing to say.
    async fn pass(
        &self,
        extension: &ClusterExtension,
        rules: &ExtensionRules,
        states: &RevisionStates,
        changed: bool,
    ) -> Option<Attempted> {
        let name = extension.name_any();
        let active = states.rolling_out.iter().chain(&states.installed);
        self.parts.bundles.need(&name, active.map(|revision| revision.image.as_str()));
        let lost = self.ref_secrets.was_lost(&name);
        if lost {
            lock(&self.settled).remove(&name);
        }
        let chosen = match catalog_filter(extension) {
            Ok(filter) => self.choose(&name, filter, rules, states, changed).boxed().await,
            Err(failure) => Err(Refusal::other(failure, rules)),
        };
        let old = extension.status.as_ref();
        let mut waits = None;
        let mut attempted = match chosen {
            // Content that is on its way is no news for an extension that has said all that there is to say.
            Err(refusal) if refusal.awaits_content && !changed && old.is_some() => {
                if lost {
                    self.ref_secrets.mark_lost(&name);
                }
                return None;
            }
            Err(refusal) => {
                self.tend(extension, rules, states, lost).await;
                Attempted::refused(*refusal, old)
            }
            Ok(choice) if rules.paused => {
                waits = self.waits(extension, &choice.wanted, states, changed);
                let nothing = Installation::unchanged(CrdVerdict::Safe);
                Attempted::chosen(choice, nothing, rules, states, changed, old)
            }
            Ok(choice) => {
                let wanted = &choice.wanted;
                let installation = self.install(extension, wanted, rules.crd_check, states, changed).await;
                Attempted::chosen(choice, installation, rules, states, changed, old)
            }
        };
        if rules.paused {
            attempted.pass.findings.paused = Finding::Is(findings::paused(waits));
        }
        Some(attempted)
    }

    /// Looks after the content of the newest revision where no bundle could be chosen: once, and whenever some is lost.
    async fn tend(
        &self,
        extension: &ClusterExtension,
        rules: &ExtensionRules,
        states: &RevisionStates,
        lost: bool,
    ) {
        let name = extension.name_any();
        let is_tended = lock(&self.settled).contains_key(&name) || lock(&self.tended).contains(&name);
        if rules.paused || is_tended && !lost {
            return;
        }
        match self.restore_content(extension, rules, states).boxed().await {
            Ok(()) => drop(lock(&self.tended).insert(name)),
            Err(error) => {
                self.ref_secrets.mark_lost(&name);
                tracing::warn!(extension = name, %error, "content of the newest revision was not looked after");
            }
        }
    }

    /// The rules that the extension is under.
    pub(super) fn rules(&self, extension: &ClusterExtension) -> ExtensionRules {
        ExtensionRules::of(extension.metadata.annotations.as_ref(), self.settings)
    }

    /// `<namespace>/<name>` of the service account as which the extension's objects are applied and removed; `None` where
    /// that is us.
    pub(super) fn account(&self, extension: &ClusterExtension) -> Option<String> {
        let spec = extension.spec.as_ref().filter(|_| self.parts.features.impersonation)?;
        let account = spec.service_account.as_ref().filter(|account| !account.name.is_empty())?;
        Some(format!("{}/{}", spec.namespace, account.name))
    }

    /// Whether the extension was edited since a revision was last made or kept for it. Of what was before our time only
    /// the status tells: what it says about progress is honoured if it is what a revision says.
    fn is_changed(&self, extension: &ClusterExtension, states: &RevisionStates) -> bool {
        let status = extension.status.as_ref();
        let seen = status.and_then(|status| conditions::find(&status.conditions, types::PROGRESSING));
        let seen = match seen {
            Some(seen) if states.say(seen) => seen.observed_generation,
            Some(_) => None,
            None => extension.metadata.generation,
        };
        let mut honoured = lock(&self.honoured);
        *honoured.entry(extension.name_any()).or_insert(seen) != extension.metadata.generation
    }

    /// The generation that a status may claim while nothing is applied.
    fn honoured(&self, extension: &ClusterExtension) -> Option<i64> {
        let honoured = lock(&self.honoured).get(&extension.name_any()).copied().flatten();
        let told = |status: &ClusterExtensionStatus| {
            conditions::find(&status.conditions, types::PROGRESSING)?.observed_generation
        };
        let told = || extension.status.as_ref().and_then(told);
        honoured.or_else(told).or(extension.metadata.generation)
    }

    /// Writes the status that follows, and returns it.
    pub(super) async fn write(
        &self,
        extension: &ClusterExtension,
        generation: Option<i64>,
        states: &RevisionStates,
        outcome: &Outcome,
    ) -> Result<ClusterExtensionStatus, Attempt> {
        let old = extension.status.clone().unwrap_or_default();
        let next = status::next(&old, generation, states, outcome, Timestamp::now());
        let written = write_status(&self.extensions, extension, &next).await;
        written
            .map(|_| next)
            .map_err(|error| Attempt::retry(format!("error updating status: {}", describe(&error))))
    }

    /// Whether an extension awaits the content of a catalog and has not done so for long.
    pub(super) fn is_patient(&self, extension: &str, awaits_content: bool) -> bool {
        let mut waiting = lock(&self.waiting);
        if !awaits_content {
            waiting.remove(extension);
            return false;
        }
        waiting.entry(extension.to_owned()).or_insert_with(Instant::now).elapsed() < PATIENCE
    }

    /// Publishes Events; those under the reasons that are `over` are news when they come again.
    pub(super) fn publish(&self, extension: &ClusterExtension, over: &[&'static str], all: Vec<Notice>) {
        let about = extension.object_ref(&());
        over.iter().for_each(|reason| self.parts.events.over(&about, reason));
        for Notice { warning, reason, note } in notices::merged(all) {
            let events = &self.parts.events;
            if warning {
                events.warning(about.clone(), reason, note);
            } else {
                events.normal(about.clone(), reason, note);
            }
        }
    }
}

fn catalog_filter(extension: &ClusterExtension) -> Result<&CatalogFilter, Failure> {
    extension
        .spec
        .as_ref()
        .and_then(|spec| spec.source.catalog.as_ref())
        .ok_or_else(|| Failure::blocked("spec.source.catalog: Required value: says which package to install"))
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
#[path = "pass_tests.rs"]
mod tests;
