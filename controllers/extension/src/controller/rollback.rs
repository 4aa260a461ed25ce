//! Automatic rollback (docs/design/approvals.md#automatic-rollback). Pure.

use olm_api::annotations;
use olm_api::conditions::{self, reasons, types};
use olm_request::{ExtensionRules, RolledBackContent};
use olm_resolve::ConditionState;
use olm_revision::generate::BundleIdentity;

use super::choice::Choice;
use super::memory::ExtensionMemory;
use super::observed::ObservedExtension;
use super::revisions::Revision;

/// Part of the next step that concerns a rollback.
#[derive(Debug, PartialEq)]
pub(super) enum RollbackStep {
    /// The target is installed as without rollbacks.
    None,
    /// The newest revision has failed: this one, the last that succeeded, is restored.
    Restore(Option<Box<Revision>>),
    /// The newest revision is a restored one, and is kept.
    Keep,
}

/// Decides about a rollback of the newest revision.
pub(super) fn step(
    observed: &ObservedExtension<'_>,
    choice: &Choice,
    memory: &ExtensionMemory,
) -> RollbackStep {
    let ObservedExtension { rules, states, edited, .. } = observed;
    let newest = states.newest_active().filter(|_| rules.rollback && observed.is_newest(&choice.target));
    let Some(newest) = newest else { return RollbackStep::None };
    if let Some(refusal) = &newest.refusal {
        let is_kept = choice.catalog.is_none() && !edited && refusal.holds(rules);
        return if is_kept { RollbackStep::Keep } else { RollbackStep::None };
    }
    if !has_failed(newest) || observed.inputs_changed(&observed.inputs(&choice.target), memory) {
        return RollbackStep::None;
    }
    RollbackStep::Restore(states.installed.clone().map(Box::new))
}

/// Reports whether a failed newest revision is rolled back unless a change of it succeeds.
pub(super) fn is_due(observed: &ObservedExtension<'_>) -> bool {
    observed.rules.rollback
        && !observed.rules.paused
        && observed.states.newest_active().is_some_and(has_failed)
}

/// Reports whether a rollout of the revision is to be rolled back. A restored revision never is.
pub(super) fn has_failed(revision: &Revision) -> bool {
    let progressing = revision.condition(types::PROGRESSING);
    let is_late = progressing.is_some_and(|one| one.reason == reasons::PROGRESS_DEADLINE_EXCEEDED);
    is_late && revision.refusal.is_none() && !conditions::is_true(&revision.conditions, types::SUCCEEDED)
}

/// Reports whether the newest revision is a restored one that keeps its target no longer.
pub(super) fn is_ended(observed: &ObservedExtension<'_>) -> bool {
    let refusal = observed.states.newest_active().and_then(|newest| newest.refusal.as_ref());
    refusal.is_some_and(|refusal| !refusal.holds(&observed.rules))
}

/// Content that is refused because this revision restores its predecessor.
pub(super) fn refusal<'a>(newest: &'a Revision, rules: &ExtensionRules) -> Option<&'a RolledBackContent> {
    newest.refusal.as_ref().filter(|refusal| refusal.holds(rules))
}

/// Reports whether content with this digest was rolled back, according to the newest revision.
pub(super) fn refuses(newest: Option<&Revision>, rules: &ExtensionRules, digest: &str) -> bool {
    let refusal = newest.filter(|newest| newest.is_active).and_then(|newest| refusal(newest, rules));
    refusal.is_some_and(|refusal| refusal.digest == digest)
}

/// Message of `Progressing` while the newest revision is a restored one.
pub(super) fn restored(newest: &Revision, rules: &ExtensionRules) -> Option<String> {
    let refusal = refusal(newest, rules)?;
    let status = newest.condition(types::PROGRESSING);
    let status = status.filter(|_| !conditions::is_true(&newest.conditions, types::SUCCEEDED));
    let status = status.map(|status| format!("; last status: {}", status.message)).unwrap_or_default();
    Some(format!(
        "Revision {} of bundle {} version {} has exceeded its progress deadline and was rolled back: revision {} restores \
         {}; to try it again, set annotation {} to a new value{status}",
        refusal.revision,
        refusal.bundle,
        refusal.version,
        newest.name,
        described(newest),
        annotations::EXT_RETRY_REQUESTED_AT,
    ))
}

/// State of `UpgradeAvailable` for a target that was rolled back.
pub(super) fn rolled_back(target: &BundleIdentity) -> ConditionState {
    let BundleIdentity { name, version, .. } = target;
    let message = format!(
        "bundle {name} version {version} is available and was rolled back; to try it again, set annotation {} to a new value",
        annotations::EXT_RETRY_REQUESTED_AT
    );
    ConditionState { status: Some(true), reason: reasons::ROLLED_BACK, message }
}

/// Suffix of the `Progressing` message if this revision cannot be restored because of `risks`. `None` without risks.
pub(super) fn forbidden(extension: &str, to: &Revision, risks: &[String]) -> Option<String> {
    (!risks.is_empty()).then(|| {
        format!(
            "not rolled back to {}: {}; back up your data, then run `olm rollback {extension} --accept-risk`",
            described(to),
            risks.join("; ")
        )
    })
}

/// Suffix of the `Progressing` message if no revision can be restored.
pub(super) fn no_predecessor() -> String {
    "not rolled back: no earlier revision has rolled out; correct the cause, or install another version"
        .to_owned()
}

fn described(revision: &Revision) -> String {
    format!("bundle {} version {}", revision.bundle.name, revision.bundle.version)
}

#[cfg(test)]
#[path = "rollback_tests.rs"]
mod tests;
