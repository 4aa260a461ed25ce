//! Fuzzes `Range` headers: any header is rejected, requests everything, or yields a few parts that are within the
//! content and do not overlap.
//!
//! The first line is the size of the content, the rest the header.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/catalog-server/src/http/range.rs"]
mod range;

fuzz_target!(|input: &str| {
    let (size, header) = input.split_once('\n').unwrap_or(("100", input));
    let size = size.parse().unwrap_or(u64::MAX);
    let range::RequestedRange::Parts(mut parts) = range::parse_range(Some(header), size) else { return };
    assert!((1..=16).contains(&parts.len()), "{} parts", parts.len());
    parts.sort_by_key(|part| part.start);
    let mut end = 0;
    for part in parts {
        assert!(end <= part.start && part.start < part.end && part.end <= size, "{part:?} after {end}");
        end = part.end;
        let shown = range::content_range(&part, size);
        assert_eq!(shown, format!("bytes {}-{}/{size}", part.start, part.end - 1));
    }
});
