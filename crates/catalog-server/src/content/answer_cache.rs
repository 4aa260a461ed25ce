//! Cache of query answers, in bounded memory. Gathering many short ranges, and compressing, cost more than sending.

use std::collections::BTreeMap;

use bytes::Bytes;
use olm_fbc::MetaSelector;
use parking_lot::Mutex;

use crate::encoding::Encoding;

/// Longest cached answer in bytes.
pub const LONGEST: u64 = 512 << 10;
/// Bytes of all cached answers of a catalog with their queries. The cache is cleared at the limit.
const TOTAL: usize = 4 << 20;

type Key = ([String; 3], Option<Encoding>);

/// Answers by query and encoding.
#[derive(Debug, Default)]
pub struct AnswerCache(Mutex<CachedAnswers>);

#[derive(Debug, Default)]
struct CachedAnswers {
    total: usize,
    answers: BTreeMap<Key, Bytes>,
}

impl AnswerCache {
    /// The cached answer to `selector` in this encoding (`None`: plain).
    pub fn get(&self, selector: &MetaSelector, encoding: Option<Encoding>) -> Option<Bytes> {
        self.0.lock().answers.get(&key(selector, encoding)).cloned()
    }

    /// Caches an answer unless it is longer than [`LONGEST`].
    pub fn insert(&self, selector: &MetaSelector, encoding: Option<Encoding>, answer: Bytes) {
        if answer.len() as u64 > LONGEST {
            return;
        }
        let key = key(selector, encoding);
        let size = answer.len() + key.0.iter().map(String::len).sum::<usize>();
        let mut cached = self.0.lock();
        if cached.total + size > TOTAL {
            *cached = CachedAnswers::default();
        }
        if cached.answers.insert(key, answer).is_none() {
            cached.total += size;
        }
    }
}

fn key(selector: &MetaSelector, encoding: Option<Encoding>) -> Key {
    ([&selector.schema, &selector.package, &selector.name].map(String::clone), encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_cache_memory_is_bounded() {
        let answers = AnswerCache::default();
        let selector = |name: usize| MetaSelector { name: name.to_string(), ..MetaSelector::default() };
        let longest = usize::try_from(LONGEST).unwrap();
        for number in 0..100 {
            answers.insert(&selector(number), None, Bytes::from(vec![0; longest]));
            answers.insert(&selector(number), None, Bytes::from(vec![0; longest]));
            assert!(answers.get(&selector(number), None).is_some());
            assert_eq!(answers.get(&selector(number), Some(Encoding::Gzip)), None);
            assert!(answers.0.lock().answers.len() <= TOTAL / longest);
        }
        assert_eq!(answers.get(&selector(0), None), None);
        answers.insert(&selector(0), None, Bytes::from(vec![0; longest + 1]));
        assert_eq!(answers.get(&selector(0), None), None);
    }
}
