//! Conditions `Ready`, `Reconciling` and `Stalled` in the sense of kstatus, derived from the other conditions of an
//! object so that they never contradict them (docs/design/additions.md#status-summary). Pure.

use jiff::Timestamp;

use crate::conditions::{self, Status, reasons, types};
use crate::{ClusterCatalogStatus, ClusterExtensionStatus, ClusterObjectSetStatus, Condition};

/// Status with a summary.
pub trait Summarized {
    /// Type of the condition that is `True` while the object works.
    const HEALTH: &'static str;
    /// Types of further conditions that a ready object has. `Progressing` must also have reason `Succeeded`.
    const REQUIRED: &'static [&'static str];
    /// Conditions and `observedGeneration`.
    fn parts(&mut self) -> (&mut Vec<Condition>, &mut Option<i64>);
}

macro_rules! summarized {
    ($status:ty, $health:expr, $required:expr) => {
        impl Summarized for $status {
            const HEALTH: &'static str = $health;
            const REQUIRED: &'static [&'static str] = $required;
            fn parts(&mut self) -> (&mut Vec<Condition>, &mut Option<i64>) {
                (&mut self.conditions, &mut self.observed_generation)
            }
        }
    };
}

// A failed poll does not matter to a catalog: it serves what its spec names.
summarized!(ClusterCatalogStatus, types::SERVING, &[]);
summarized!(ClusterExtensionStatus, types::AVAILABLE, &[types::INSTALLED, types::PROGRESSING]);
summarized!(ClusterObjectSetStatus, types::AVAILABLE, &[types::PROGRESSING]);

/// Sets the summary of a status that is otherwise complete, or removes it while the gate is off. `generation` is that
/// of the object, which a paused extension has not applied.
pub fn update<S: Summarized>(status: &mut S, is_enabled: bool, generation: Option<i64>, now: Timestamp) {
    let (all, observed) = status.parts();
    if !is_enabled && observed.is_none() {
        // Any such condition is that of another writer.
        return;
    }
    *observed = generation.filter(|_| is_enabled);
    let summary = is_enabled.then(|| summarize(all, S::HEALTH, S::REQUIRED, generation)).flatten();
    let ready = summary.as_ref().map(|summary| Status::from(summary.is_true == types::READY));
    let abnormal = |type_| summary.as_ref().filter(|summary| summary.is_true == type_).map(|_| Status::True);
    let states = [
        (types::READY, ready),
        (types::RECONCILING, abnormal(types::RECONCILING)),
        (types::STALLED, abnormal(types::STALLED)),
    ];
    for (type_, state) in states {
        match (state, &summary) {
            (Some(state), Some(Summary { reason, message, .. })) => {
                conditions::set(all, type_, state, reason, message, generation, now);
            }
            _ => conditions::remove(all, type_),
        }
    }
}

struct Summary {
    /// Type of the one condition that is `True`.
    is_true: &'static str,
    reason: String,
    message: String,
}

/// Returns `None` for an object that need not become ready: archived or switched off. Conditions of another generation
/// prove nothing.
fn summarize(all: &[Condition], health: &str, required: &[&str], generation: Option<i64>) -> Option<Summary> {
    let current =
        |type_: &str| conditions::find(all, type_).filter(|found| found.observed_generation == generation);
    let (progressing, health) = (current(types::PROGRESSING), current(health));
    let is = |condition: &Condition, status: Status| condition.status == status.as_str();
    let because = |is_true, cause: &Condition| {
        Some(Summary { is_true, reason: cause.reason.clone(), message: cause.message.clone() })
    };
    let is_final = |found: &Condition| {
        [reasons::ARCHIVED, reasons::USER_SPECIFIED_UNAVAILABLE].contains(&found.reason.as_str())
    };
    if progressing.is_some_and(is_final) || health.is_some_and(is_final) {
        return None;
    }
    if let Some(stalled) = progressing.filter(|found| is(found, Status::False)) {
        return because(types::STALLED, stalled);
    }
    let is_met = |type_: &&str| {
        let is_done = |found: &Condition| *type_ != types::PROGRESSING || found.reason == reasons::SUCCEEDED;
        current(type_).is_some_and(|found| is(found, Status::True) && is_done(found))
    };
    if let Some(healthy) = health.filter(|found| is(found, Status::True) && required.iter().all(is_met)) {
        return because(types::READY, healthy);
    }
    // A held edit: the other conditions, `Paused` included, have the generation that was applied last.
    let paused = conditions::find(all, types::PAUSED);
    let is_held = progressing.is_none() && conditions::find(all, types::PROGRESSING).is_some();
    let held = current(types::UPGRADE_AVAILABLE).filter(|_| is_held);
    if let Some(waits) = [paused, held].into_iter().flatten().find(|found| is(found, Status::True)) {
        return because(types::STALLED, waits);
    }
    let unfinished = progressing.filter(|found| found.reason != reasons::SUCCEEDED);
    let unhealthy = health.filter(|found| !is(found, Status::True));
    // A failing probe says more than `is rolling out`, an error more than a failing probe.
    let error = unfinished.filter(|found| found.reason != reasons::ROLLING_OUT);
    match error.or(unhealthy).or(unfinished) {
        Some(cause) => because(types::RECONCILING, cause),
        None => Some(Summary {
            is_true: types::RECONCILING,
            reason: reasons::RECONCILING.to_owned(),
            message: "the state of this generation is not known yet".to_owned(),
        }),
    }
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
