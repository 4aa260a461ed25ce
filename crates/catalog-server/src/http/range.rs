//! The `Range` header (RFC 9110 §14), parsed as in the reference, except that more than 16 parts, or overlapping
//! parts, get the whole content: RFC 9110 §14.2 allows that, and they would cost more than any client needs. Pure.

use std::ops::Range;

/// The parts that a `Range` header requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedRange {
    /// Everything: no header, or more than `MOST_PARTS` parts, or parts that overlap.
    Whole,
    /// These parts, in the requested order.
    Parts(Vec<Range<u64>>),
    /// Status 416 with this text.
    Unsatisfiable(&'static str),
}

/// Maximum number of parts in an answer.
const MOST_PARTS: usize = 16;
const INVALID: RequestedRange = RequestedRange::Unsatisfiable("invalid range");
const NO_OVERLAP: RequestedRange = RequestedRange::Unsatisfiable("invalid range: failed to overlap");

/// Parses the header for content of `size` bytes.
pub fn parse_range(header: Option<&str>, size: u64) -> RequestedRange {
    let Some(header) = header else {
        return RequestedRange::Whole;
    };
    let Some(list) = header.strip_prefix("bytes=") else {
        return INVALID;
    };
    let mut parts = Vec::new();
    let mut missed = false;
    for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        match part(item, size) {
            Ok(Some(part)) if parts.len() <= MOST_PARTS => parts.push(part),
            Ok(Some(_)) => {}
            Ok(None) => missed = true,
            Err(Invalid) => return INVALID,
        }
    }
    if parts.is_empty() {
        // An empty list requests everything, and so does any part of empty content.
        return if missed && size > 0 { NO_OVERLAP } else { RequestedRange::Whole };
    }
    if parts.len() > MOST_PARTS || overlap(&parts) {
        RequestedRange::Whole
    } else {
        RequestedRange::Parts(parts)
    }
}

fn overlap(parts: &[Range<u64>]) -> bool {
    let mut sorted = parts.to_vec();
    sorted.sort_unstable_by_key(|part| part.start);
    sorted.windows(2).any(|two| two[1].start < two[0].end)
}

struct Invalid;

/// Parses one `first-last`, `first-` or `-length`. `None` if it begins after the end.
fn part(item: &str, size: u64) -> Result<Option<Range<u64>>, Invalid> {
    let (first, last) = item.split_once('-').ok_or(Invalid)?;
    let (first, last) = (first.trim(), last.trim());
    if first.is_empty() {
        let length = number(last)?.min(size);
        // `-0` requests no bytes.
        return Ok((length > 0).then(|| size - length..size));
    }
    let first = number(first)?;
    let end = match last {
        "" => size,
        last => {
            let last = number(last)?;
            if last < first {
                return Err(Invalid);
            }
            last.saturating_add(1).min(size)
        }
    };
    Ok((first < size).then_some(first..end))
}

fn number(text: &str) -> Result<u64, Invalid> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Invalid);
    }
    text.parse().map_err(|_| Invalid)
}

/// `Content-Range` of a part.
pub fn content_range(part: &Range<u64>, size: u64) -> String {
    format!("bytes {}-{}/{size}", part.start, part.end - 1)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "the list has one element, a range")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn range_header_is_parsed_as_in_the_reference() {
        let rows = [
            (None, RequestedRange::Whole),
            (Some("bytes=0-9"), RequestedRange::Parts(vec![0..10])),
            (Some("bytes=90-"), RequestedRange::Parts(vec![90..100])),
            (Some("bytes=-5"), RequestedRange::Parts(vec![95..100])),
            (Some("bytes=-500"), RequestedRange::Parts(vec![0..100])),
            (Some("bytes=50-500"), RequestedRange::Parts(vec![50..100])),
            (Some("bytes=0-1, 4-5"), RequestedRange::Parts(vec![0..2, 4..6])),
            (Some("bytes=0-1,200-"), RequestedRange::Parts(vec![0..2])),
            (Some("bytes=0-99,0-0"), RequestedRange::Whole),
            (Some("bytes=0-9,5-14"), RequestedRange::Whole),
            (Some("bytes=20-29,0-19"), RequestedRange::Parts(vec![20..30, 0..20])),
            (Some("bytes="), RequestedRange::Whole),
            (Some("bytes=100-"), NO_OVERLAP),
            (Some("bytes=-0"), NO_OVERLAP),
            (Some("bytes=5-4"), INVALID),
            (Some("bytes=a-"), INVALID),
            (Some("bytes=+1-2"), INVALID),
            (Some("bytes=--1"), INVALID),
            (Some("lines=1-2"), INVALID),
            (Some("bytes=99999999999999999999-"), INVALID),
        ];
        for (header, expect) in rows {
            assert_eq!(parse_range(header, 100), expect, "{header:?}");
        }
        assert_eq!(parse_range(Some("bytes=0-"), 0), RequestedRange::Whole);
        let many = |count: u64| {
            let parts: Vec<String> = (0..count).map(|at| format!("{0}-{0}", 2 * at)).collect();
            parse_range(Some(&format!("bytes={}", parts.join(","))), 1000)
        };
        assert!(matches!(many(16), RequestedRange::Parts(parts) if parts.len() == 16));
        assert_eq!(many(17), RequestedRange::Whole);
        assert_eq!(many(10_000), RequestedRange::Whole);
        assert_eq!(content_range(&(0..10), 100), "bytes 0-9/100");
    }

    proptest! {
        #[test]
        fn parts_lie_within_content(header in "bytes=[-0-9, ]{0,20}", size in 0u64..50) {
            if let RequestedRange::Parts(parts) = parse_range(Some(&header), size) {
                prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= size));
                prop_assert!(parts.len() <= MOST_PARTS && !overlap(&parts));
            }
        }
    }
}
