//! Fuzzes stored indexes of catalog content: any bytes are rejected or yield an index whose ranges are within the
//! content and ordered.

#![no_main]

use std::ops::Range;

use libfuzzer_sys::fuzz_target;
use olm_fbc::MetaSelector;
use serde_json::Value;

#[allow(dead_code)]
#[path = "../../crates/catalog-server/src/content/index.rs"]
mod index;

/// Number of index texts used in queries.
const ASKED: usize = 4;

fn check(ranges: impl IntoIterator<Item = Range<u64>>, length: u64) {
    let ranges: Vec<Range<u64>> = ranges.into_iter().collect();
    assert!(ranges.iter().all(|range| range.start <= range.end && range.end <= length), "{ranges:?}");
    assert!(ranges.windows(2).all(|two| two[0].end <= two[1].start), "{ranges:?}");
}

fuzz_target!(|input: &[u8]| {
    let Ok(index) = serde_json::from_slice::<index::Index>(input) else { return };
    let again = serde_json::to_vec(&index).expect("an index can be stored");
    assert_eq!(serde_json::from_slice::<index::Index>(&again).expect("a stored index can be parsed"), index);

    let length = index.content_length();
    check(index.ranges(&MetaSelector::default()), length);
    let blobs: Vec<Range<u64>> = index.blobs().map(|(_, range)| range).collect();
    assert_eq!(blobs.last().map_or(0, |range| range.end), length);
    check(blobs, length);
    let value: Value = serde_json::from_slice(&again).expect("a stored index is JSON");
    let texts = value["texts"].as_array().expect("texts").iter().filter_map(Value::as_str).take(ASKED);
    let texts: Vec<&str> = texts.chain(["none"]).collect();
    for schema in &texts {
        check(index.page(schema, 1, 3), length);
        for package in &texts {
            for name in &texts {
                let [schema, package, name] = [schema, package, name].map(|text| (*text).to_owned());
                check(index.ranges(&MetaSelector { schema, package, name }), length);
            }
        }
    }
});
