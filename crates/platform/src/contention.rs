//! Two writers of one condition must not write for ever (docs/design/operations.md#outlets; case operations-e35).

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

use crate::cluster_operator::ClusterOperatorCondition;

/// So many overwrites within the window are a fight.
const MOST_OVERWRITES: usize = 5;
const WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// Remembers what we wrote, and when others wrote over it.
#[derive(Debug, Default)]
pub struct Contention {
    /// UID of the object, and what it was made to say.
    written: Option<(String, ClusterOperatorCondition)>,
    overwrites: VecDeque<Timestamp>,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Leave it: it is as wanted.
    Rest,
    /// Write it.
    Write,
    /// Leave it to the other writer until the overwrites are long ago.
    Yield,
}

impl Contention {
    /// Decides about the object with this UID. `still_says` tells whether it says what was written into it, with all
    /// that was written together with that.
    pub fn turn(
        &mut self,
        uid: &str,
        is_as_wanted: bool,
        still_says: impl Fn(&ClusterOperatorCondition) -> bool,
        now: Timestamp,
    ) -> Turn {
        while self.overwrites.front().is_some_and(|first| now.duration_since(*first) >= WINDOW) {
            self.overwrites.pop_front();
        }
        if is_as_wanted {
            return Turn::Rest;
        }
        // An object that was deleted is made anew, with another UID: nobody else claims it.
        if self.written.take_if(|(object, written)| object == uid && !still_says(written)).is_some() {
            self.overwrites.push_back(now);
        }
        if self.overwrites.len() >= MOST_OVERWRITES { Turn::Yield } else { Turn::Write }
    }

    /// Whether nobody wrote over anything within the window.
    pub fn is_quiet(&self) -> bool {
        self.overwrites.is_empty()
    }

    /// `condition` was written into the object with this UID.
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

    /// The turn where object `uid` has the condition `stored`.
    fn turn(contention: &mut Contention, uid: &str, stored: &str, wanted: &str, minute: i64) -> Turn {
        contention.turn(uid, stored == wanted, |written| written.reason == stored, at(minute))
    }

    #[test]
    fn the_fifth_overwrite_ends_the_fight_for_a_while() {
        // Who takes the condition away overwrites it, too.
        for theirs in ["Theirs", ""] {
            let mut contention = Contention::default();
            let mut turn = |stored: &str, minute| {
                let turn = turn(&mut contention, "u", stored, "Ours", minute);
                if turn == Turn::Write {
                    contention.wrote("u", &condition("Ours"));
                }
                turn
            };
            // What stood there before us is no overwrite.
            assert_eq!(turn(theirs, 0), Turn::Write);
            assert_eq!(turn("Ours", 0), Turn::Rest);
            for minute in 1..5 {
                assert_eq!(turn(theirs, minute), Turn::Write, "{minute}");
            }
            assert_eq!(turn(theirs, 5), Turn::Yield);
            assert_eq!(turn(theirs, 10), Turn::Yield);
            assert_eq!(turn("Ours", 10), Turn::Rest);
            assert_eq!(turn(theirs, 11), Turn::Write);
            assert_eq!(turn(theirs, 11), Turn::Yield);
            assert!(!contention.is_quiet());
        }
    }

    #[test]
    fn deletions_and_new_verdicts_are_no_fight() {
        let mut contention = Contention::default();
        for number in 0..20 {
            let (wanted, before) = (number.to_string(), (number - 1).to_string());
            assert_eq!(turn(&mut contention, "u", &before, &wanted, 0), Turn::Write);
            contention.wrote("u", &condition(&wanted));
            // A write whose answer was lost.
            assert_eq!(turn(&mut contention, "u", "lost", "lost", 0), Turn::Rest);
        }
        for uid in 0..20 {
            assert_eq!(turn(&mut contention, &uid.to_string(), "", "Ours", 0), Turn::Write);
            contention.wrote(&uid.to_string(), &condition("Ours"));
        }
        assert!(contention.is_quiet());
    }
}
