//! RFC 3339 times as parsed and formatted by Go.

use jiff::SignedDuration;
use jiff::civil::DateTime;

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
    const ELEMENTS: [(&str, usize, &str); 6] =
        [("2006", 4, "-"), ("01", 2, "-"), ("02", 2, "T"), ("15", 2, ":"), ("04", 2, ":"), ("05", 2, "")];
    for (index, (element, width, separator)) in ELEMENTS.into_iter().enumerate() {
        let digits = rest.bytes().take(width).take_while(u8::is_ascii_digit).count();
        // Go accepts an hour of one digit.
        if digits < width && !(element == "15" && digits == 1) {
            return Err(place(rest, element));
        }
        numbers[index] = rest[..digits].parse().unwrap_or_default();
        rest = &rest[digits..];
        let allowed = [0..=9999, 1..=12, 0..=99, 0..=23, 0..=59, 0..=59];
        if !allowed[index].contains(&numbers[index]) {
            return Err(out_of_range(["year", "month", "day", "hour", "minute", "second"][index]));
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
        let zone = rest.get(..6).filter(|zone| {
            let pattern = |(index, byte): (usize, u8)| match index {
                0 => matches!(byte, b'+' | b'-'),
                3 => byte == b':',
                _ => byte.is_ascii_digit(),
            };
            zone.bytes().enumerate().all(pattern)
        });
        let Some(zone) = zone else {
            return Err(place(rest, "Z07:00"));
        };
        let number = |at: usize| zone[at..at + 2].parse::<i64>().unwrap_or_default();
        let (hours, minutes) = (number(1), number(4));
        if minutes > 60 {
            return Err(out_of_range("time zone offset minute"));
        }
        if hours > 24 {
            return Err(out_of_range("time zone offset hour"));
        }
        offset = (hours * 60 + minutes) * if zone.starts_with('-') { -1 } else { 1 };
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
