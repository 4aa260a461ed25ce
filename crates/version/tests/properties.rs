//! Properties of the version languages: parsers never panic, the order is total, operators agree with the order.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::cmp::Ordering;

use olm_version::{Constraint, Range, Release, Version, VersionRelease, quote};
use proptest::prelude::*;

/// Random text from the alphabet of the grammars, so that most of it passes the first check.
const GRAMMAR: &str = "([0-9]{1,3}|[.x*|v ~^,+-]|>|<|=|!|\\|\\||rc|\t|\u{a0}|18446744073709551616){0,24}";

const VERSION: &str =
    "(0|[1-3])\\.(0|[1-3])\\.(0|[1-3])(-(0|[1-9][0-9]?|[ab-]{1,2})(\\.(0|[1-9]|a)){0,2})?(\\+[0-9a-b]{1,3})?";

fn version() -> impl Strategy<Value = Version> {
    VERSION.prop_map(|text| Version::parse(&text).unwrap())
}

fn version_release() -> impl Strategy<Value = VersionRelease> {
    (VERSION, prop::option::of("(|[1-9]|1[0-9]|a)(\\.[a-b])?"))
        .prop_filter_map("release", |(v, r)| VersionRelease::parse(&v, r.as_deref()).ok())
}

fn parse_everything(text: &str) {
    let probe = Version::parse("1.2.3-rc.1").unwrap();
    let _ = Version::parse_tolerant(text);
    let _ = Release::parse(text);
    let _ = VersionRelease::parse(text, Some(text));
    let _ = quote(text);
    let pointer = Constraint::fault_in(text);
    assert_eq!(pointer.is_none(), Constraint::parse(text).is_ok(), "{text:?}");
    if let Some(pointer) = pointer {
        assert!(text.get(pointer.at.clone()).is_some(), "{text:?}: {pointer:?}");
        assert_eq!(pointer.draw(text).lines().count(), 2, "{text:?}");
    }
    let _ = Constraint::parse(text).map(|constraint| constraint.matches(&probe));
    let _ = Range::parse(text).map(|range| range.contains(&probe));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics(text in any::<String>()) {
        parse_everything(&text);
    }

    #[test]
    fn grammar_like_text_never_panics(text in GRAMMAR) {
        parse_everything(&text);
    }

    #[test]
    fn parsed_version_displays_the_original_text(text in prop_oneof![GRAMMAR, VERSION]) {
        if let Ok(version) = Version::parse(&text) {
            prop_assert_eq!(version.to_string(), text.clone());
            prop_assert_eq!(Version::parse_tolerant(&text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn shown_version_and_release_parse_back(read in version_release()) {
        let (version, release) = read.shown(true);
        let again = VersionRelease::parse(&version, release.as_deref()).unwrap();
        prop_assert_eq!(&again, &read);
        prop_assert_eq!(again.shown(true), (version, release));
    }

    #[test]
    fn order_is_total(a in version_release(), b in version_release(), c in version_release()) {
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        prop_assert_eq!(a == b, a.cmp(&b) == Ordering::Equal);
        let mut sorted = [&a, &b, &c];
        sorted.sort();
        prop_assert!(sorted[0] <= sorted[1] && sorted[1] <= sorted[2] && sorted[0] <= sorted[2]);
    }

    #[test]
    fn operators_agree_with_the_order(v in version(), k in version()) {
        // A second operand with a pre-release admits pre-releases to the group without excluding any version.
        let constraint = |op: &str| Constraint::parse(&format!("{op}{k} >=0.0.0-0")).unwrap().matches(&v);
        let range = |op: &str| Range::parse(&format!("{op}{k}")).unwrap().contains(&v);
        for (op, holds) in [
            ("=", v == k), ("!=", v != k), (">", v > k), (">=", v >= k), ("<", v < k), ("<=", v <= k), ("", v == k),
        ] {
            prop_assert_eq!(constraint(op), holds, "constraint {} {} {}", &v, op, &k);
            prop_assert_eq!(range(op), holds, "range {} {} {}", &v, op, &k);
        }
    }

    #[test]
    fn pre_release_matches_only_with_a_pre_release_operand(v in version(), k in version(), op in "=|!=|>|<|>=|<=|~|\\^") {
        let matches = Constraint::parse(&format!("{op}{k}")).unwrap().matches(&v);
        prop_assert!(!matches || v.pre().is_empty() || !k.pre().is_empty());
    }

    #[test]
    fn canonical_form_is_equivalent(
        text in prop_oneof![
            GRAMMAR,
            "(|[~^]|[<>!]?=|>|~>) ?v?[0-2xX*](\\.[0-2x])?(\\.[0-3*])?(-rc\\.1|-0)?(, |  | - | \\|\\| )[0-2x](\\.[0-2])?"
        ],
        versions in prop::collection::vec(version(), 8),
    ) {
        if let Ok(constraint) = Constraint::parse(&text) {
            let canonical = constraint.to_string();
            let again = Constraint::parse(&canonical).unwrap();
            prop_assert_eq!(again.to_string(), canonical);
            for version in &versions {
                prop_assert_eq!(constraint.matches(version), again.matches(version), "{} {} {}", text, again, version);
            }
        }
    }
}
