//! RFC 3339 times as parsed and formatted by Go.

use std::ops::RangeInclusive;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use olm_version::names::is_number;

/// Layout of RFC 3339 times, in error messages.
const LAYOUT: &str = "2006-01-02T15:04:05Z07:00";
/// Elements of a time before its fraction: name, layout, allowed values, separator behind it.
const ELEMENTS: [(&str, &str, RangeInclusive<i16>, &str); 6] = [
    ("year", "2006", 0..=9999, "-"),
    ("month", "01", 1..=12, "-"),
    ("day", "02", 0..=99, "T"),
    ("hour", "15", 0..=23, ":"),
    ("minute", "04", 0..=59, ":"),
    ("second", "05", 0..=59, ""),
];

/// Formats a time as Go does, in UTC and whole seconds. `None` for the zero time, which Go omits.
///
/// # Errors
/// `text` is not a time. The message is that of Go.
pub(crate) fn normal(text: &str) -> Result<Option<String>, String> {
    let error = |problem: String| format!("parsing time {text:?}{problem}");
    let (numbers, rest) = date_and_time(text).map_err(error)?;
    let (offset, rest) = zone(without_fraction(rest)).map_err(error)?;
    if !rest.is_empty() {
        return Err(error(format!(": extra text: {rest:?}")));
    }
    let [year, others @ ..] = numbers;
    let [month, day, hour, minute, second] = others.map(|number| i8::try_from(number).unwrap_or_default());
    let Ok(local) = DateTime::new(year, month, day, hour, minute, second, 0) else {
        return Err(error(out_of_range("day")));
    };
    // At both ends of the calendar the offset is ignored.
    let utc = local.checked_sub(SignedDuration::from_mins(offset)).unwrap_or(local);
    let written = utc.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    Ok((written != "0001-01-01T00:00:00Z").then_some(written))
}

/// Values of [`ELEMENTS`], and the text behind them.
fn date_and_time(text: &str) -> Result<([i16; 6], &str), String> {
    let mut rest = text;
    let mut numbers = [0; 6];
    for (number, (name, element, allowed, separator)) in numbers.iter_mut().zip(ELEMENTS) {
        let digits = rest.bytes().take(element.len()).take_while(u8::is_ascii_digit).count();
        // Go accepts an hour of one digit.
        if digits < element.len() && !(name == "hour" && digits == 1) {
            return Err(unexpected(rest, element));
        }
        *number = rest[..digits].parse().unwrap_or_default();
        rest = &rest[digits..];
        if !allowed.contains(number) {
            return Err(out_of_range(name));
        }
        rest = rest.strip_prefix(separator).ok_or_else(|| unexpected(rest, separator))?;
    }
    Ok((numbers, rest))
}

/// `text` without a leading fraction of a second.
fn without_fraction(text: &str) -> &str {
    let fraction = text.strip_prefix(['.', ',']).unwrap_or_default();
    let rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
    if rest.len() < fraction.len() { rest } else { text }
}

/// Offset of a time zone in minutes, and the text behind it.
fn zone(text: &str) -> Result<(i64, &str), String> {
    if let Some(rest) = text.strip_prefix('Z') {
        return Ok((0, rest));
    }
    let number = |at: usize| {
        let digits = text.get(at..at + 2).filter(|digits| is_number(digits))?;
        digits.parse::<i64>().ok()
    };
    let is_zone = text.starts_with(['+', '-']) && text.get(3..4) == Some(":");
    let (Some(hours), Some(minutes), true) = (number(1), number(4), is_zone) else {
        return Err(unexpected(text, "Z07:00"));
    };
    if minutes > 60 {
        return Err(out_of_range("time zone offset minute"));
    }
    if hours > 24 {
        return Err(out_of_range("time zone offset hour"));
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    Ok(((hours * 60 + minutes) * sign, &text[6..]))
}

fn unexpected(rest: &str, element: &str) -> String {
    format!(" as {LAYOUT:?}: cannot parse {rest:?} as {element:?}")
}

fn out_of_range(what: &str) -> String {
    format!(": {what} out of range")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_normalized_and_invalid_ones_fail_as_in_go() {
        for (text, expected) in [
            ("2024-02-29T00:00:00Z", Some("2024-02-29T00:00:00Z")),
            ("2024-01-01T01:59:59.5+02:00", Some("2023-12-31T23:59:59Z")),
            ("2024-01-01T5:00:00,5Z", Some("2024-01-01T05:00:00Z")),
            ("2024-12-31T23:00:00-01:30", Some("2025-01-01T00:30:00Z")),
            ("0000-01-01T00:00:00Z", Some("0000-01-01T00:00:00Z")),
            ("0001-01-01T00:00:00-00:00", None),
        ] {
            assert_eq!(normal(text), Ok(expected.map(str::to_owned)), "{text}");
        }
        let layout = "as \"2006-01-02T15:04:05Z07:00\": cannot parse";
        let rows = [
            ("-", format!("parsing time \"-\" {layout} \"-\" as \"2006\"")),
            ("", format!("parsing time \"\" {layout} \"\" as \"2006\"")),
            ("2024-01-01", format!("parsing time \"2024-01-01\" {layout} \"\" as \"T\"")),
            ("2024-13-01T00:00:00Z", "parsing time \"2024-13-01T00:00:00Z\": month out of range".into()),
            ("2023-02-29T00:00:00Z", "parsing time \"2023-02-29T00:00:00Z\": day out of range".into()),
            (
                "2024-01-01T00:00:00",
                format!("parsing time \"2024-01-01T00:00:00\" {layout} \"\" as \"Z07:00\""),
            ),
            ("2024-01-32T25:00:00Z", "parsing time \"2024-01-32T25:00:00Z\": hour out of range".into()),
            (
                "2024-01-01T05:00:00+25:61",
                "parsing time \"2024-01-01T05:00:00+25:61\": time zone offset minute out of range".into(),
            ),
            (
                "2024-01-01T05:00:00+25:00",
                "parsing time \"2024-01-01T05:00:00+25:00\": time zone offset hour out of range".into(),
            ),
            ("2024-01-01Ü", format!("parsing time \"2024-01-01Ü\" {layout} \"Ü\" as \"T\"")),
            ("2024-01-01T00:00:00Zx", "parsing time \"2024-01-01T00:00:00Zx\": extra text: \"x\"".into()),
        ];
        for (text, expected) in rows {
            assert_eq!(normal(text), Err(expected), "{text}");
        }
    }
}
