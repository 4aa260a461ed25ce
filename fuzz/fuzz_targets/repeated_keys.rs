//! Fuzzes repeated keys: of any bytes, both lines of a repeated key are lines of the text in order, and JSON has exactly
//! those that its text repeats.

#![no_main]

use std::collections::BTreeSet;
use std::fmt;

use libfuzzer_sys::fuzz_target;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

fuzz_target!(|input: &[u8]| {
    let found = olm_yaml::all_repeated_keys(input);
    // Each of CR, LF and CR LF ends a line, and in UTF-16 these have more bytes.
    let lines = input.iter().filter(|byte| matches!(byte, b'\n' | b'\r')).count() + 1;
    for key in &found {
        assert!(!key.path.is_empty() && key.first >= 1, "{key:?}");
        assert!(key.first <= key.line && key.line <= lines, "{key:?} of {lines}");
    }
    let first = olm_yaml::repeated_keys(input, 1);
    assert!(first.len() <= lines.saturating_mul(input.len() + 1));
    if let Ok(counted) = serde_json::from_slice::<Repeated>(input)
        && olm_yaml::from_slice(input).is_ok()
    {
        assert_eq!(found.len(), counted.0, "{found:?}");
    }
});

/// Number of keys in a JSON text that their object has before them.
struct Repeated(usize);

impl<'de> Deserialize<'de> for Repeated {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Count)
    }
}

struct Count;

impl<'de> Visitor<'de> for Count {
    type Value = Repeated;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Repeated, A::Error> {
        let (mut known, mut count) = (BTreeSet::new(), 0);
        while let Some((key, value)) = map.next_entry::<String, Repeated>()? {
            count += value.0 + usize::from(!known.insert(key));
        }
        Ok(Repeated(count))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Repeated, A::Error> {
        let mut count = 0;
        while let Some(item) = items.next_element::<Repeated>()? {
            count += item.0;
        }
        Ok(Repeated(count))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Repeated, E> {
        Ok(Repeated(0))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Repeated, E> {
        Ok(Repeated(0))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Repeated, E> {
        Ok(Repeated(0))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Repeated, E> {
        Ok(Repeated(0))
    }

    fn visit_str<E>(self, _: &str) -> Result<Repeated, E> {
        Ok(Repeated(0))
    }

    fn visit_unit<E>(self) -> Result<Repeated, E> {
        Ok(Repeated(0))
    }
}
