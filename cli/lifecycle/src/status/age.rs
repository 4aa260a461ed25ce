//! Durations for the text output.

use k8s_openapi::jiff::Timestamp;

/// Time since `at` (RFC 3339), in the largest unit with enough precision, such as `45s`, `12m`, `3h`, `20d`. Empty if
/// `at` is missing or invalid.
pub fn age(now: Timestamp, at: Option<&str>) -> String {
    let Some(at) = at.and_then(|at| at.parse::<Timestamp>().ok()) else { return String::new() };
    let seconds = now.as_second().saturating_sub(at.as_second()).max(0);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_uses_largest_unit_with_enough_precision() {
        let now = "2026-01-10T00:00:00Z".parse().unwrap();
        for (at, expected) in [
            (Some("2026-01-09T23:58:01Z"), "119s"),
            (Some("2026-01-09T23:58:00Z"), "2m"),
            (Some("2026-01-09T22:00:00Z"), "2h"),
            (Some("2026-01-08T00:00:00Z"), "2d"),
            (Some("2026-01-10T00:00:05Z"), "0s"),
            (Some("yesterday"), ""),
            (None, ""),
        ] {
            assert_eq!(age(now, at), expected, "{at:?}");
        }
    }
}
