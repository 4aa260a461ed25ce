//! Versions, releases and both range languages: no input may panic, and what was read compares with itself.

#![no_main]

use libfuzzer_sys::fuzz_target;
use olm_version::{Constraint, Range, Release, Version, VersionRelease};

fuzz_target!(|input: (&str, &str)| {
    let (first, second) = input;
    let version = Version::parse(second).or_else(|_| Version::parse_tolerant(second));
    if let Ok(version) = &version {
        assert_eq!(version, version);
        if let Ok(constraint) = Constraint::parse(first) {
            let _ = constraint.matches(version);
        }
        if let Ok(range) = Range::parse(first) {
            let _ = range.contains(version);
        }
    }
    let _ = Release::parse(first);
    let _ = VersionRelease::parse(first, Some(second));
});
