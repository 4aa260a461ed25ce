//! Fuzzes requests to the content server: any path, query and headers are parsed without panic, and parsed ranges
//! are within bounds.
//!
//! Input, one per line: path, query, then the values of Range, If-None-Match, If-Modified-Since and
//! Accept-Encoding.

#![no_main]

use http::{HeaderMap, HeaderValue, header};
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;

// Only the pure modules: otherwise the whole server would have to be built with its Kubernetes client.
#[allow(dead_code)]
#[path = "../../crates/catalog-server/src/encoding.rs"]
mod encoding;
#[allow(dead_code)]
#[path = "../../crates/catalog-server/src/http/precondition.rs"]
mod precondition;
#[allow(dead_code)]
#[path = "../../crates/catalog-server/src/http/range.rs"]
mod range;
#[allow(dead_code)]
#[path = "../../crates/catalog-server/src/http/route.rs"]
mod route;

const SIZE: u64 = 1000;

fuzz_target!(|input: &str| {
    let mut lines = input.split('\n');
    let mut next = || lines.next().unwrap_or_default();
    if let route::Route::Redirect(cleaned) = route::route(next()) {
        assert!(!matches!(route::route(&cleaned), route::Route::Redirect(_)), "{cleaned:?} redirects again");
    }
    if let Some(selector) = route::selector(next()) {
        let _ = selector.matches("olm.bundle", "a", "a.v1");
    }
    if let range::RequestedRange::Parts(parts) = range::parse_range(Some(next()), SIZE) {
        assert!(!parts.is_empty());
        for part in parts {
            assert!(part.start < part.end && part.end <= SIZE, "{part:?}");
            let _ = range::content_range(&part, SIZE);
        }
    }
    let mut headers = HeaderMap::new();
    for name in [header::IF_NONE_MATCH, header::IF_MODIFIED_SINCE] {
        let value = next();
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(
                if name == header::IF_NONE_MATCH { header::IF_MATCH } else { header::IF_RANGE },
                value.clone(),
            );
            headers.insert(name, value);
        }
    }
    let _ = precondition::evaluate(&headers, "sha256:0", Timestamp::UNIX_EPOCH);
    headers.remove(header::IF_MATCH);
    let _ = precondition::evaluate(&headers, "sha256:0", Timestamp::UNIX_EPOCH);
    let _ = precondition::range_applies(&headers, "sha256:0", Timestamp::UNIX_EPOCH);
    let _ = encoding::negotiate([next()]);
});
