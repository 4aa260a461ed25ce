//! Limits how often two writers of one condition overwrite each other (docs/design/operations.md#outlets; case
//! operations-e35).

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

use crate::cluster_operator::ClusterOperatorCondition;

/// Number of overwrites within the window that counts as contention.
const MOST_OVERWRITES: usize = 5;
const WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// The last condition that we wrote, and the times at which other writers replaced it.
#[derive(Debug, Default)]
pub struct ConditionContention {
    /// UID of the object and the condition written to it.
    written: Option<(String, ClusterOperatorCondition)>,
    overwrites: VecDeque<Timestamp>,
}

/// Decision about writing one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteDecision {
    /// Nothing: the object is up to date.
    Unchanged,
    /// Writes the condition.
    Write,
    /// Yields to the other writer until the overwrites are older than the window.
    Yield,
}

impl ConditionContention {
    /// Decides on the object with this UID. `still_has` reports whether the object still has the given condition,
    /// which we wrote last, and everything that was written together with it.
    pub fn decide(
        &mut self,
        uid: &str,
        is_current: bool,
        still_has: impl Fn(&ClusterOperatorCondition) -> bool,
        now: Timestamp,
    ) -> WriteDecision {
        while self.overwrites.front().is_some_and(|first| now.duration_since(*first) >= WINDOW) {
            self.overwrites.pop_front();
        }
        if is_current {
            return WriteDecision::Unchanged;
        }
        // An object that was deleted and recreated has another UID. That is not an overwrite.
        if self.written.take_if(|(object, written)| object == uid && !still_has(written)).is_some() {
            self.overwrites.push_back(now);
        }
        if self.overwrites.len() >= MOST_OVERWRITES { WriteDecision::Yield } else { WriteDecision::Write }
    }

    /// Returns `true` if no overwrite happened within the window.
    pub fn is_quiet(&self) -> bool {
        self.overwrites.is_empty()
    }

    /// Records that `condition` was written to the object with this UID.
    pub fn wrote(&mut self, uid: &str, condition: &ClusterOperatorCondition) {
        self.written = Some((uid.to_owned(), condition.clone()));
    }
}

#[cfg(test)]
mod tests {
    use olm_api::conditions::Status;

    use super::*;

    fn condition(reason: &str) -> ClusterOperatorCondition {
        ClusterOperatorCondition { status: Status::False, reason: reason.to_owned(), message: String::new() }
    }

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    /// Returns the turn where object `uid` has the condition `stored`.
    fn turn(
        contention: &mut ConditionContention,
        uid: &str,
        stored: &str,
        desired: &str,
        minute: i64,
    ) -> WriteDecision {
        contention.decide(uid, stored == desired, |written| written.reason == stored, at(minute))
    }

    #[test]
    fn condition_overwritten_five_times_yields_for_ten_minutes() {
        // Removal of the condition is an overwrite, too.
        for theirs in ["Theirs", ""] {
            let mut contention = ConditionContention::default();
            let mut turn = |stored: &str, minute| {
                let turn = turn(&mut contention, "u", stored, "Ours", minute);
                if turn == WriteDecision::Write {
                    contention.wrote("u", &condition("Ours"));
                }
                turn
            };
            // A condition from before our first write is not an overwrite.
            assert_eq!(turn(theirs, 0), WriteDecision::Write);
            assert_eq!(turn("Ours", 0), WriteDecision::Unchanged);
            for minute in 1..5 {
                assert_eq!(turn(theirs, minute), WriteDecision::Write, "{minute}");
            }
            assert_eq!(turn(theirs, 5), WriteDecision::Yield);
            assert_eq!(turn(theirs, 10), WriteDecision::Yield);
            assert_eq!(turn("Ours", 10), WriteDecision::Unchanged);
            assert_eq!(turn(theirs, 11), WriteDecision::Write);
            assert_eq!(turn(theirs, 11), WriteDecision::Yield);
            assert!(!contention.is_quiet());
        }
    }

    #[test]
    fn recreated_object_or_new_verdict_is_not_counted_as_overwrite() {
        let mut contention = ConditionContention::default();
        for number in 0..20 {
            let (desired, before) = (number.to_string(), (number - 1).to_string());
            assert_eq!(turn(&mut contention, "u", &before, &desired, 0), WriteDecision::Write);
            contention.wrote("u", &condition(&desired));
            // A write whose response was lost.
            assert_eq!(turn(&mut contention, "u", "lost", "lost", 0), WriteDecision::Unchanged);
        }
        for uid in 0..20 {
            assert_eq!(turn(&mut contention, &uid.to_string(), "", "Ours", 0), WriteDecision::Write);
            contention.wrote(&uid.to_string(), &condition("Ours"));
        }
        assert!(contention.is_quiet());
    }
}
