//! Next step for an extension, from what was observed, chosen and remembered. Pure.

use olm_api::ClusterObjectSet;
use olm_api::conditions::{reasons, types};
use olm_revision::generate::BundleIdentity;

use super::choice::{Choice, ResolutionFailure};
use super::memory::{ExtensionMemory, RevisionFingerprint};
use super::observed::ObservedExtension;
use super::revisions::{Revision, RevisionInputs};
use super::rollback::{self, RollbackStep};
use crate::preflight::CrdVerdict;

#[derive(Debug, PartialEq)]
pub(super) enum Decision {
    /// Catalog content is being fetched, and the current status remains correct until then.
    AwaitCatalog,
    /// No bundle was chosen.
    Refuse(Box<ResolutionFailure>),
    /// The extension is paused, or its newest revision is a restored one. `waits` names the pending change.
    Hold { choice: Choice, waits: Option<String> },
    /// The newest revision has the same inputs and no error.
    Keep { choice: Choice, crds: CrdVerdict },
    /// Restores this revision, because the newest one has failed.
    Restore { choice: Choice, to: Option<Box<Revision>> },
    /// Makes the target the newest revision, unless it already is.
    Install { choice: Choice, inputs: Box<RevisionInputs> },
}

/// Decides on the next step. `newest` is the current newest revision.
pub(super) fn decide(
    observed: &ObservedExtension<'_>,
    choice: Result<Choice, Box<ResolutionFailure>>,
    memory: &ExtensionMemory,
    newest: Option<&ClusterObjectSet>,
) -> Decision {
    let choice = match choice {
        Err(refusal) if refusal.awaits_content && !observed.edited && observed.status().is_some() => {
            return Decision::AwaitCatalog;
        }
        Err(refusal) => return Decision::Refuse(refusal),
        Ok(choice) => choice,
    };
    if observed.rules.paused {
        let waits = pending(observed, &choice.target, memory);
        return Decision::Hold { choice, waits };
    }
    match rollback::step(observed, &choice, memory) {
        RollbackStep::None => {}
        RollbackStep::Restore(to) => return Decision::Restore { choice, to },
        RollbackStep::Keep => return Decision::Hold { choice, waits: None },
    }
    let inputs = observed.inputs(&choice.target);
    let made = memory.newest.as_ref().filter(|made| made.inputs == inputs);
    let is_newest = |made: &&super::memory::RevisionRecord| {
        newest.is_some_and(|revision| made.newest == RevisionFingerprint::of(revision))
    };
    match made.filter(is_newest).filter(|_| newest.is_some_and(is_progressing)) {
        Some(made) => Decision::Keep { choice, crds: made.crds.clone() },
        None => Decision::Install { choice, inputs: Box::new(inputs) },
    }
}

/// Describes the change that a paused extension holds back.
fn pending(
    observed: &ObservedExtension<'_>,
    target: &BundleIdentity,
    memory: &ExtensionMemory,
) -> Option<String> {
    if !observed.is_newest(target) {
        let BundleIdentity { name, version, .. } = target;
        return Some(format!("bundle {name} version {version}"));
    }
    let mut inputs = observed.inputs(target);
    if !observed.inputs_changed(&inputs, memory) {
        return None;
    }
    inputs.namespaces = memory.newest.as_ref().and_then(|made| made.inputs.namespaces.clone());
    let is_same = memory.newest.as_ref().is_some_and(|made| made.inputs == inputs);
    Some(if is_same { "a changed list of selected namespaces" } else { "the change of spec" }.to_owned())
}

/// Reports whether a revision is rolling out, has rolled out, or has no condition yet.
fn is_progressing(revision: &ClusterObjectSet) -> bool {
    let reason = revision.condition(types::PROGRESSING).map(|condition| condition.reason.as_str());
    matches!(reason, None | Some(reasons::ROLLING_OUT | reasons::SUCCEEDED))
}

#[cfg(test)]
#[path = "decide_tests.rs"]
pub(super) mod tests;
