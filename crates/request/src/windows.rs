//! Upgrade windows (docs/design/approvals.md#upgrade-windows): `<five-field cron> <duration> [<time zone>]`, several
//! separated by semicolons. Pure: the time is a parameter.

use std::str::FromStr;

use cronexpr::{Crontab, MakeTimestamp, parse_crontab};
use jiff::{SignedDuration, Timestamp};
use olm_resolve::UnknownValue;

const ALLOWED: &str = "windows such as `0 22 * * 6 4h Europe/Berlin`, separated by semicolons";
/// Largest number of windows.
const MAX_WINDOWS: usize = 32;
/// Number of cron fields.
const FIELDS: usize = 5;

/// Windows of one extension. Without any, upgrades are always possible.
#[derive(Clone, Debug, Default)]
pub struct UpgradeWindows {
    /// Value of the annotation.
    text: String,
    windows: Vec<Window>,
}

#[derive(Clone, Debug)]
struct Window {
    opens: Crontab,
    duration: SignedDuration,
}

/// State of all windows together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowState {
    /// A window is open, or the extension has no windows.
    Open,
    /// All windows are closed.
    Closed {
        /// Next opening. `None` if no window opens within four years.
        opens: Option<Timestamp>,
    },
}

impl UpgradeWindows {
    /// Windows that never open, in place of an invalid list.
    pub(crate) fn closed() -> Self {
        Self { text: "invalid".to_owned(), windows: Vec::new() }
    }

    /// Reports whether the extension has no windows.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// State at the time `now`.
    pub fn state(&self, now: Timestamp) -> WindowState {
        if self.is_empty() || self.windows.iter().any(|window| window.is_open(now)) {
            return WindowState::Open;
        }
        WindowState::Closed { opens: self.windows.iter().filter_map(|window| window.next(now)).min() }
    }
}

impl Window {
    fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (fields, rest) = words.split_at_checked(FIELDS)?;
        let (duration, zone) = match rest {
            [duration] => (duration, "UTC"),
            [duration, zone] => (duration, *zone),
            _ => return None,
        };
        let opens = parse_crontab(&format!("{} {zone}", fields.join(" "))).ok()?;
        let duration = duration.parse().ok().filter(SignedDuration::is_positive)?;
        let window = Self { opens, duration };
        window.next(Timestamp::UNIX_EPOCH).map(|_| window)
    }

    /// First opening after `time`.
    fn next(&self, time: Timestamp) -> Option<Timestamp> {
        self.opens.find_next(MakeTimestamp(time)).ok().map(|opens| opens.timestamp())
    }

    /// Reports whether an opening is at most `duration` ago.
    fn is_open(&self, now: Timestamp) -> bool {
        let earliest = now.checked_sub(self.duration).unwrap_or(Timestamp::MIN);
        self.next(earliest).is_some_and(|opened| opened <= now)
    }
}

impl FromStr for UpgradeWindows {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, UnknownValue> {
        let windows: Option<Vec<Window>> = text.split(';').map(Window::parse).collect();
        match windows.filter(|windows| windows.len() <= MAX_WINDOWS) {
            Some(windows) => Ok(Self { text: text.to_owned(), windows }),
            None => Err(UnknownValue { value: text.to_owned(), allowed: vec![ALLOWED] }),
        }
    }
}

impl PartialEq for UpgradeWindows {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for UpgradeWindows {}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn state(windows: &str, now: &str) -> String {
        match windows.parse::<UpgradeWindows>().unwrap().state(at(now)) {
            WindowState::Open => "open".to_owned(),
            WindowState::Closed { opens } => opens.unwrap().to_string(),
        }
    }

    #[test]
    fn window_is_open_from_its_opening_until_its_duration_has_passed() {
        // 2026-11-21 is a Saturday.
        for (windows, now, expected) in [
            ("0 22 * * 6 4h", "2026-11-21T21:59:59.999Z", "2026-11-21T22:00:00Z"),
            ("0 22 * * 6 4h", "2026-11-21T22:00:00Z", "open"),
            ("0 22 * * 6 4h", "2026-11-22T01:59:59Z", "open"),
            ("0 22 * * 6 4h", "2026-11-22T02:00:00Z", "2026-11-28T22:00:00Z"),
            ("0 22 * * SAT 1h30m UTC", "2026-11-21T23:29:00Z", "open"),
            ("0 22 * * 6 4h Europe/Berlin", "2026-11-21T20:59:00Z", "2026-11-21T21:00:00Z"),
            ("0 22 * * 6 4h America/New_York", "2026-11-22T03:00:00Z", "open"),
            ("0 22 * * 6 4h; 0 12 * * 3 1h ", "2026-11-21T21:00:00Z", "2026-11-21T22:00:00Z"),
            ("0 22 * * 6 4h; 0 12 * * 3 1h ", "2026-11-22T21:00:00Z", "2026-11-25T12:00:00Z"),
            ("0 22 * * 6 4h; 0 12 * * 3 1h ", "2026-11-25T12:30:00Z", "open"),
            // A window longer than the time between its openings never closes.
            ("0 0 * * * 25h", "2026-11-21T00:30:00Z", "open"),
            ("0 0 29 2 * 24h", "2026-11-21T00:00:00Z", "2028-02-29T00:00:00Z"),
            // Days of the month and of the week are alternatives.
            ("0 22 1-7 * 6 4h", "2026-11-22T12:00:00Z", "2026-11-28T22:00:00Z"),
            ("0 22 1-7 * 6 4h", "2026-11-29T12:00:00Z", "2026-12-01T22:00:00Z"),
        ] {
            assert_eq!(state(windows, now), expected, "{windows} at {now}");
        }
        assert_eq!(UpgradeWindows::default().state(Timestamp::UNIX_EPOCH), WindowState::Open);
    }

    #[test]
    fn window_follows_daylight_saving_time_of_its_zone() {
        let night = "30 2 * * * 1h Europe/Berlin";
        assert_eq!(state(night, "2026-07-01T12:00:00Z"), "2026-07-02T00:30:00Z");
        assert_eq!(state(night, "2026-12-01T12:00:00Z"), "2026-12-02T01:30:00Z");
        // 2:30 does not exist on 29 March 2026, and occurs twice on 25 October.
        assert_eq!(state(night, "2026-03-29T00:00:00Z"), "2026-03-30T00:30:00Z");
        assert_eq!(state(night, "2026-10-25T00:00:00Z"), "2026-10-25T00:30:00Z");
        assert_eq!(state(night, "2026-10-25T02:29:00Z"), "open");
    }

    #[test]
    fn invalid_windows_are_refused() {
        let many = ["0 22 * * 6 4h"; MAX_WINDOWS + 1].join(";");
        for text in [
            "",
            ";",
            "0 22 * * 6",
            "0 22 * * 6 4h;",
            "0 22 * * 6 4h Europe/Berlin UTC",
            "0 22 * * 6 4h Mars/Olympus",
            "0 22 * * 6 -4h",
            "0 22 * * 6 0s",
            "0 22 * * 6 four",
            "0 25 * * 6 4h",
            "0 0 30 2 * 4h",
            "@daily 4h",
            &many,
        ] {
            assert!(text.parse::<UpgradeWindows>().is_err(), "{text}");
        }
    }
}
