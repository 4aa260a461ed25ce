//! Expected reports of denied requests. Pure.
//!
//! A revision either has nothing to write, or its condition names the phase in which a write is denied. That phase is not
//! applied, and later ones are not reached.

use crate::admission::DENIAL;
use crate::intent::Denied;
use crate::settled::{Judge, Progress};
use crate::snapshot::{Condition, Revision, condition};

impl Judge<'_> {
    /// Progress and faults of an active revision if its condition explains why it does not write.
    pub(crate) fn denied(&self, revision: &Revision) -> Option<(Progress, Vec<String>)> {
        if self.intent.denied != Some(Denied::Writes) {
            return None;
        }
        let (phases, reported) = (revision.content.as_ref()?, condition(&revision.object, "Progressing")?);
        let collision = number_after(&reported, "revision object collisions in phase ");
        if let Some(phase) = collision {
            let is_expected = self.progress(revision).0 == Progress::Collision(phase);
            return is_expected.then(|| self.before(revision, phase)).flatten();
        }
        let denied = number_after(&reported, "phase ").filter(|_| is_denial(&reported))?;
        self.before(revision, denied.min(phases.len()))
    }

    /// Progress of a revision that stops in this phase. `None` unless those before are complete.
    fn before(&self, revision: &Revision, phase: usize) -> Option<(Progress, Vec<String>)> {
        let (progress, wrong) = self.progress_of(revision, revision.content.as_ref()?.get(..phase)?);
        [Progress::Complete, Progress::Overtaken].contains(&progress).then_some((Progress::Denied, wrong))
    }

    /// Reports whether a revision that is being deleted reports a denial. Older ones wait for it.
    pub(crate) fn a_removal_is_denied(&self) -> bool {
        let mut leaving = self.snapshot.revisions.iter().filter(|revision| revision.is_deleting());
        leaving.any(|revision| self.removal_is_denied(revision))
    }

    /// Reports whether the condition of an archived or deleted revision reports a denial. It may still have that of its
    /// rollout.
    pub(crate) fn removal_is_denied(&self, revision: &Revision) -> bool {
        self.intent.denied.is_some()
            && condition(&revision.object, "Progressing")
                .is_some_and(|reported| is_denial(&reported) && number_after(&reported, "phase ").is_none())
    }
}

fn is_denial(reported: &Condition) -> bool {
    let is_open = [("True", "Retrying"), ("False", "Blocked")]
        .contains(&(reported.status.as_str(), reported.reason.as_str()));
    is_open && reported.message.contains(DENIAL)
}

/// Number in the message after these words.
fn number_after(reported: &Condition, words: &str) -> Option<usize> {
    let rest = reported.message.strip_prefix(words)?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().ok()
}
