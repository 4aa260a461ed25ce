//! Conditional requests (RFC 9110 §13) in the order in which the reference evaluates them
//! (docs/design/catalogd.md#conditional-requests). Pure. Unlike the reference we send and accept entity tags.

use http::{HeaderMap, HeaderName, header};
use jiff::Timestamp;

/// Result of the conditions of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreconditionResult {
    /// Answer the request.
    Proceed,
    /// Status 304: the client has this content.
    NotModified,
    /// Status 412: the condition on the content is not met.
    Failed,
}

/// Evaluates the conditions of a GET or HEAD request on content with this tag and date. All encodings of the same
/// content match.
pub fn evaluate(headers: &HeaderMap, tag: &str, modified: Timestamp) -> PreconditionResult {
    let date = |name: HeaderName| text(headers, name).and_then(parse_date);
    if let Some(required) = text(headers, header::IF_MATCH) {
        if !list_matches(required, tag, false) {
            return PreconditionResult::Failed;
        }
    } else if date(header::IF_UNMODIFIED_SINCE).is_some_and(|since| modified > since) {
        return PreconditionResult::Failed;
    }
    if let Some(known) = text(headers, header::IF_NONE_MATCH) {
        return if list_matches(known, tag, true) {
            PreconditionResult::NotModified
        } else {
            PreconditionResult::Proceed
        };
    }
    match date(header::IF_MODIFIED_SINCE) {
        Some(since) if modified <= since => PreconditionResult::NotModified,
        _ => PreconditionResult::Proceed,
    }
}

/// `true` if `If-Range` allows the `Range` header. Parts are of the plain content, so a tag with the name of an
/// encoding does not match.
pub fn range_applies(headers: &HeaderMap, tag: &str, modified: Timestamp) -> bool {
    match text(headers, header::IF_RANGE) {
        None => true,
        Some(value) if value.contains('"') => value.trim() == format!("\"{tag}\""),
        Some(value) => parse_date(value) == Some(modified),
    }
}

/// Formats a date for HTTP headers.
pub fn format_date(time: Timestamp) -> String {
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// `true` if a list of entity tags is `*` or contains `tag`, with or without the name of an encoding. A
/// weak tag matches only if `weak` is `true`.
fn list_matches(list: &str, tag: &str, weak: bool) -> bool {
    list.split(',').map(str::trim).any(|item| {
        let strong = item.strip_prefix("W/").filter(|_| weak).unwrap_or(item);
        let opaque = strong.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let base = opaque.map(|opaque| opaque.split_once('-').map_or(opaque, |(base, _)| base));
        item == "*" || base == Some(tag)
    })
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Parses the three forms of RFC 9110 §5.6.7. Anything else is treated as absent.
fn parse_date(text: &str) -> Option<Timestamp> {
    const FORMS: [&str; 3] =
        ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];
    FORMS.iter().find_map(|form| {
        let broken_down = jiff::fmt::strtime::parse(form, text.trim()).ok()?;
        broken_down.to_datetime().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    const SAME: &str = "Tue, 15 Nov 1994 08:12:31 GMT";
    const OLDER: &str = "Tue, 15 Nov 1994 08:12:30 GMT";
    const NEWER: &str = "Tuesday, 15-Nov-94 08:12:32 GMT";

    fn modified() -> Timestamp {
        "1994-11-15T08:12:31Z".parse().unwrap()
    }

    fn headers(rows: &[(&str, &str)]) -> HeaderMap {
        let row = |(name, value): &(&str, &str)| {
            (HeaderName::from_bytes(name.as_bytes()).unwrap(), HeaderValue::from_str(value).unwrap())
        };
        rows.iter().map(row).collect()
    }

    // Case catalogd-48
    #[test]
    fn preconditions_determine_result() {
        use PreconditionResult::{Failed, NotModified, Proceed};
        let rows: [(&[(&str, &str)], PreconditionResult); 18] = [
            (&[], Proceed),
            (&[("if-modified-since", SAME)], NotModified),
            (&[("if-modified-since", NEWER)], NotModified),
            (&[("if-modified-since", OLDER)], Proceed),
            (&[("if-modified-since", "yesterday")], Proceed),
            (&[("if-modified-since", "Tue Nov 15 08:12:31 1994")], NotModified),
            (&[("if-none-match", "*")], NotModified),
            (&[("if-none-match", "\"abc\"")], NotModified),
            (&[("if-none-match", "\"x\", W/\"abc-gzip\"")], NotModified),
            (&[("if-none-match", "\"x\""), ("if-modified-since", SAME)], Proceed),
            (&[("if-none-match", "abc")], Proceed),
            (&[("if-match", "*")], Proceed),
            (&[("if-match", "\"abc-zstd\"")], Proceed),
            (&[("if-match", "W/\"abc\"")], Failed),
            (&[("if-match", "\"x\""), ("if-unmodified-since", SAME)], Failed),
            (&[("if-unmodified-since", SAME)], Proceed),
            (&[("if-unmodified-since", OLDER)], Failed),
            (&[("if-match", "\"abc\""), ("if-none-match", "\"abc\"")], NotModified),
        ];
        for (given, expect) in rows {
            assert_eq!(evaluate(&headers(given), "abc", modified()), expect, "{given:?}");
        }
    }

    #[test]
    fn if_range_requires_exact_plain_tag_or_date() {
        let rows = [
            (SAME, true),
            (OLDER, false),
            ("\"abc\"", true),
            ("\"abc-gzip\"", false),
            ("W/\"abc\"", false),
            ("\"x\"", false),
            ("?", false),
        ];
        for (value, expect) in rows {
            assert_eq!(range_applies(&headers(&[("if-range", value)]), "abc", modified()), expect, "{value}");
        }
        assert!(range_applies(&headers(&[]), "abc", modified()));
        assert_eq!(format_date(modified()), SAME);
    }

    proptest! {
        #[test]
        fn dates_round_trip(second in 0i64..4_000_000_000) {
            let time = Timestamp::from_second(second).unwrap();
            prop_assert_eq!(parse_date(&format_date(time)), Some(time));
        }

        #[test]
        fn date_parser_accepts_any_text_without_panic(text in ".*") {
            let _ = parse_date(&text);
        }
    }
}
