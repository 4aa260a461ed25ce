//! RFC 3339 times as parsed and formatted by Go.

use jiff::SignedDuration;
use jiff::civil::DateTime;
use olm_version::names::is_number;

/// Formats a time as Go does, in UTC and whole seconds. `None` for the zero time, which Go omits.
///
/// # Errors
/// `text` is not a time. The message is that of Go.
pub(crate) fn normal(text: &str) -> Result<Option<String>, String> {
    let place = |rest: &str, element: &str| {
        format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {rest:?} as {element:?}"
        )
    };
    let out_of_range = |what: &str| format!("parsing time {text:?}: {what} out of range");
    let mut rest = text;
    let mut numbers = [0i16; 6];
    let elements = [
        ("year", "2006", 0..=9999, "-"),
        ("month", "01", 1..=12, "-"),
        ("day", "02", 0..=99, "T"),
        ("hour", "15", 0..=23, ":"),
        ("minute", "04", 0..=59, ":"),
        ("second", "05", 0..=59, ""),
    ];
    for (number, (name, element, allowed, separator)) in numbers.iter_mut().zip(elements) {
        let digits = rest.bytes().take(element.len()).take_while(u8::is_ascii_digit).count();
        // Go accepts an hour of one digit.
        if digits < element.len() && !(name == "hour" && digits == 1) {
            return Err(place(rest, element));
        }
        *number = rest[..digits].parse().unwrap_or_default();
        rest = &rest[digits..];
        if !allowed.contains(number) {
            return Err(out_of_range(name));
        }
        let Some(behind) = rest.strip_prefix(separator) else {
            return Err(place(rest, separator));
        };
        rest = behind;
    }
    if let Some(fraction) = rest.strip_prefix(['.', ',']) {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            rest = &fraction[digits..];
        }
    }
    let mut offset = 0;
    if let Some(behind) = rest.strip_prefix('Z') {
        rest = behind;
    } else {
        let number = |at: usize| {
            let digits = rest.get(at..at + 2).filter(|text| is_number(text))?;
            digits.parse::<i64>().ok()
        };
        let is_zone = rest.starts_with(['+', '-']) && rest.get(3..4) == Some(":");
        let (Some(hours), Some(minutes), true) = (number(1), number(4), is_zone) else {
            return Err(place(rest, "Z07:00"));
        };
        if minutes > 60 {
            return Err(out_of_range("time zone offset minute"));
        }
        if hours > 24 {
            return Err(out_of_range("time zone offset hour"));
        }
        offset = (hours * 60 + minutes) * if rest.starts_with('-') { -1 } else { 1 };
        rest = &rest[6..];
    }
    if !rest.is_empty() {
        return Err(format!("parsing time {text:?}: extra text: {rest:?}"));
    }
    let [year, rest @ ..] = numbers;
    let [month, day, hour, minute, second] = rest.map(|number| i8::try_from(number).unwrap_or_default());
    let Ok(local) = DateTime::new(year, month, day, hour, minute, second, 0) else {
        return Err(out_of_range("day"));
    };
    // At both ends of the calendar the offset is ignored.
    let utc = local.checked_sub(SignedDuration::from_mins(offset)).unwrap_or(local);
    let written = utc.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    Ok((written != "0001-01-01T00:00:00Z").then_some(written))
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
