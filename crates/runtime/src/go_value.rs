//! Parsers of flag values in Go's syntax: durations (`1m0s`), booleans (`T`, `false`), listen addresses (`:8443`).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// Units of a Go duration with their length in nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Parses a non-negative Go duration such as `12h0m0s`, `1.5h` or `0`.
///
/// # Errors
/// A sentence with the text if it is not such a duration.
pub fn duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total = 0f64;
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(invalid)?;
        let number: f64 = rest[..digits].parse().map_err(|_| invalid())?;
        rest = &rest[digits..];
        let (unit, nanoseconds) = UNITS
            .iter()
            .filter(|(unit, _)| rest.starts_with(unit))
            .max_by_key(|(unit, _)| unit.len())
            .ok_or_else(invalid)?;
        total += number * *nanoseconds as f64;
        rest = &rest[unit.len()..];
    }
    if total > i64::MAX as f64 {
        return Err(invalid());
    }
    Ok(Duration::from_nanos(total.round() as u64))
}

/// Parses a Go boolean: `1 t T TRUE true True 0 f F FALSE false False`.
///
/// # Errors
/// Go's own wording, which is part of the flag errors of docs/design/operations.md#start-up-errors.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(format!("strconv.ParseBool: parsing {text:?}: invalid syntax")),
    }
}

/// Parses a listen address: `:8443` (every interface), `host:port` with an IP host, or `localhost:port`.
///
/// # Errors
/// A sentence with the text and the allowed forms.
pub fn listen_address(text: &str) -> Result<SocketAddr, String> {
    let invalid = || format!("{text:?} is not a listen address: want \":port\" or \"IP:port\"");
    let (host, port) = text.rsplit_once(':').ok_or_else(invalid)?;
    let port: u16 = port.parse().map_err(|_| invalid())?;
    let ip = match host {
        "" => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        "localhost" => IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
        host => host.trim_start_matches('[').trim_end_matches(']').parse().map_err(|_| invalid())?,
    };
    Ok(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_parsed() {
        let rows = [
            ("12h0m0s", Some(43_200_000)),
            ("1m0s", Some(60_000)),
            ("137s", Some(137_000)),
            ("1.5h", Some(5_400_000)),
            ("500ms", Some(500)),
            ("0", Some(0)),
            ("", None),
            ("5", None),
            ("s", None),
            ("-1s", None),
            ("1x", None),
            ("1..5s", None),
            ("9999999999h", None),
        ];
        for (text, millis) in rows {
            assert_eq!(duration(text).ok(), millis.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn go_booleans_are_parsed() {
        assert_eq!(boolean("T"), Ok(true));
        assert_eq!(boolean("False"), Ok(false));
        assert_eq!(boolean("maybe"), Err("strconv.ParseBool: parsing \"maybe\": invalid syntax".to_owned()));
    }

    #[test]
    fn listen_addresses_are_parsed() {
        assert_eq!(listen_address(":8443").map(|a| a.to_string()), Ok("[::]:8443".to_owned()));
        assert_eq!(listen_address("127.0.0.1:1").map(|a| a.to_string()), Ok("127.0.0.1:1".to_owned()));
        assert_eq!(listen_address("[::1]:1").map(|a| a.to_string()), Ok("[::1]:1".to_owned()));
        assert!(listen_address("8443").is_err());
        assert!(listen_address("host:8443").is_err());
    }
}
