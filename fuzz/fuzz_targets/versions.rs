//! Fuzzes versions, releases and both range languages: no input panics, faults of constraints are located within the
//! text, parsed values equal themselves, and the canonical form round-trips.

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
    if let Some(pointer) = Constraint::fault_in(first) {
        assert!(first.get(pointer.at.clone()).is_some());
        let _ = pointer.draw(first);
    }
    if let Ok(constraint) = Constraint::parse(first) {
        let canonical = constraint.to_string();
        // Many short comparators can exceed the accepted length.
        if canonical.len() <= 256 {
            assert_eq!(Constraint::parse(&canonical).as_ref(), Ok(&constraint));
        }
    }
    let _ = Release::parse(first);
    let _ = VersionRelease::parse(first, Some(second));
});
