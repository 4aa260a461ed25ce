//! Answers to small queries that were asked before: reading many short ranges costs more than sending them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use olm_fbc::Selector;

/// Longer answers are read each time.
pub const LONGEST: u64 = 256 << 10;
/// All remembered answers of a catalog with their queries; at the limit all are forgotten.
const TOTAL: usize = 4 << 20;

type Key = [String; 3];

/// Answers by query.
#[derive(Debug, Default)]
pub struct Answers(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    total: usize,
    answers: BTreeMap<Key, Bytes>,
}

impl Answers {
    /// The answer to `selector`, if it was remembered.
    pub fn get(&self, selector: &Selector) -> Option<Bytes> {
        self.lock().answers.get(&key(selector)).cloned()
    }

    /// Remembers an answer of at most [`LONGEST`] bytes.
    pub fn insert(&self, selector: &Selector, answer: Bytes) {
        let key = key(selector);
        let size = answer.len() + key.iter().map(String::len).sum::<usize>();
        let mut remembered = self.lock();
        if remembered.total + size > TOTAL {
            *remembered = Remembered::default();
        }
        if remembered.answers.insert(key, answer).is_none() {
            remembered.total += size;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(selector: &Selector) -> Key {
    [&selector.schema, &selector.package, &selector.name].map(String::clone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_bounded() {
        let answers = Answers::default();
        let selector = |name: usize| Selector { name: name.to_string(), ..Selector::default() };
        let longest = usize::try_from(LONGEST).unwrap();
        for number in 0..100 {
            answers.insert(&selector(number), Bytes::from(vec![0; longest]));
            answers.insert(&selector(number), Bytes::from(vec![0; longest]));
            assert!(answers.get(&selector(number)).is_some());
            assert!(answers.lock().answers.len() <= TOTAL / longest);
        }
        assert_eq!(answers.get(&selector(0)), None);
    }
}
