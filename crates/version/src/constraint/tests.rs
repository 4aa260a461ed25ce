//! Constraints, by the tables of docs/design/resolution.md#version-constraints.

use super::Constraint;
use crate::Version;

fn matches(constraint: &str, version: &str) -> bool {
    Constraint::parse(constraint).unwrap().matches(&Version::parse(version).unwrap())
}

fn error(constraint: &str) -> String {
    Constraint::parse(constraint).unwrap_err().to_string()
}

// Cases resolution-50, resolution-51, resolution-52, resolution-53, resolution-54, resolution-55, resolution-56
#[test]
fn unusual_constraints_match_as_in_the_reference() {
    for (constraint, version, expected) in [
        ("^*", "0.1.0", false),
        ("^*", "0.0.0", true),
        ("<=*", "0.0.7", true),
        ("<=*", "1.0.0", false),
        ("~0.0.0", "4.0.0", true),
        (">11", "11.1.0", false),
        (">11", "12.0.0", true),
        ("!=1.2-beta", "1.2.5-beta", false),
        ("!=1.2-beta", "1.2.0", true),
        (">=2.0.0 || 1.0.0-rc.1", "2.5.0-rc.1", false),
        (">=2.0.0 || 1.0.0-rc.1", "1.0.0-rc.1", true),
        ("1.2 - 1.4", "1.4.9", true),
    ] {
        assert_eq!(matches(constraint, version), expected, "{constraint} {version}");
    }
    assert_eq!(error(">1.0.0 - 2.0.0"), r#"improper constraint: ">>= 1.0.0, <= 2.0.0 ""#);
}

// Case seeds-s2-2. Each row: constraint, matching versions, other versions.
#[test]
fn documented_expansions_match() {
    for (constraint, inside, outside) in [
        ("1.11.x", &["1.11.0", "1.11.9"][..], &["1.12.0", "1.10.9", "1.11.1-rc.1"][..]),
        ("=1.11", &["1.11.0", "1.11.9"], &["1.12.0"]),
        (">=1.12.X", &["1.12.0", "2.0.0"], &["1.11.9"]),
        ("<=2.x", &["2.9.9", "0.0.0"], &["3.0.0", "3.0.0-rc.1"]),
        ("*", &["0.0.0", "9.9.9"], &["1.0.0-rc.1"]),
        ("~1.11.0", &["1.11.0", "1.11.9"], &["1.12.0"]),
        ("~1", &["1.0.0", "1.99.0"], &["2.0.0"]),
        ("~1.12", &["1.12.0"], &["1.13.0"]),
        ("~1.12.x", &["1.12.7"], &["1.13.0"]),
        ("~1.x", &["1.99.0"], &["2.0.0"]),
        ("^0", &["0.0.0", "0.99.0"], &["1.0.0"]),
        ("^0.0", &["0.0.9"], &["0.1.0"]),
        ("^0.0.3", &["0.0.3"], &["0.0.4", "0.0.2"]),
        ("^0.2", &["0.2.0", "0.2.9"], &["0.3.0"]),
        ("^0.2.3", &["0.2.3", "0.2.9"], &["0.3.0", "0.2.2"]),
        ("^1.2.x", &["1.2.0", "1.99.0"], &["2.0.0", "1.1.9"]),
        ("^1.2.3", &["1.2.3", "1.99.0"], &["2.0.0"]),
        ("^2.x", &["2.0.0", "2.99.0"], &["3.0.0"]),
        ("^2.3", &["2.3.0", "2.99.0"], &["3.0.0"]),
        (">=1.11, <1.13", &["1.11.0", "1.12.9"], &["1.13.0"]),
        ("1.11.x || 1.13.x", &["1.11.1", "1.13.1"], &["1.12.0"]),
        (">= 1.2.0, < 2.0.0", &["1.2.0", "1.9.9"], &["2.0.0"]),
        (">1.11.1", &["1.11.2"], &["1.11.1"]),
        (">=1.16", &["1.16.0"], &["1.15.9"]),
        ("v1.2.3", &["1.2.3", "1.2.3+b"], &["1.2.4"]),
    ] {
        for version in inside {
            assert!(matches(constraint, version), "{constraint} admits {version}");
        }
        for version in outside {
            assert!(!matches(constraint, version), "{constraint} refuses {version}");
        }
    }
}

#[test]
fn hyphen_range_extends_across_bars_without_blanks() {
    assert!(matches("1.0||2.0 - 3.0", "9.0.0"));
    assert!(!matches("1.0 || 2.0 - 3.0", "9.0.0"));
    assert!(matches("1.0 - 2.0||3.0", "3.0.0"));
    assert_eq!(error("1.0.0 - 2.0||3.0 - 4.0"), r#"improper constraint: "3.0 - 4.0""#);
    assert_eq!(error(">=1.1.0 1.0.0 - 2.0.0"), r#"improper constraint: ">=1.1.0>= 1.0.0, <= 2.0.0 ""#);
}

#[test]
fn repeated_hyphen_range_replaces_the_first_occurrence() {
    assert_eq!(
        error("1 - 2 - 3 || 2 - 3"),
        r#"improper constraint: ">= 1, <=>= 2, <= 3  ""#,
        "the text of the second match occurs first in the expansion of the first match"
    );
}

#[test]
fn limits_reject_longer_constraints_and_operands() {
    assert_eq!(error(&" ".repeat(513)), "constraint string is too long (max 512 bytes)");
    assert_eq!(error(&["1"; 33].join("||")), "too many constraint groups (max 32)");
    assert!(Constraint::parse(&["1"; 32].join("||")).is_ok());
    let operand = |length: usize| format!("1.2.3-{}", "a".repeat(length - 6));
    assert!(Constraint::parse(&operand(256)).is_ok());
    assert_eq!(error(&operand(257)), "constraint parser error");
    let wildcard = |length: usize| format!("1.2-{}+{}", "a".repeat(length - 6), "b".repeat(99));
    assert!(Constraint::parse(&wildcard(256)).is_ok());
    assert_eq!(error(&wildcard(257)), "constraint parser error");
}

#[test]
fn pre_release_digits_beyond_64_bits_compare_as_text() {
    let bound = ">1.0.0-99999999999999999999";
    assert!(!matches(bound, "1.0.0-18446744073709551615"), "numbers sort before text");
    assert!(!matches(bound, "1.0.0--"));
    assert!(matches(bound, "1.0.0-a"));
}

/// Filters `versions` by a constraint.
fn matching<'a>(constraint: &str, versions: &[&'a str]) -> Vec<&'a str> {
    versions.iter().copied().filter(|version| matches(constraint, version)).collect()
}

/// Covers each cell of the table of docs/design/resolution.md#constraint-matching with a ladder of versions.
#[test]
fn operators_match_by_the_table_at_every_precision() {
    const LADDER: [&str; 12] = [
        "0.0.0", "0.0.3", "0.2.0", "1.0.0", "1.1.9", "1.2.0", "1.2.3", "1.2.4", "1.3.0", "1.9.0", "2.0.0",
        "3.0.0",
    ];
    let at_least = |from: &str| LADDER[LADDER.iter().position(|v| *v == from).unwrap()..].to_vec();
    let below = |to: &str| LADDER[..LADDER.iter().position(|v| *v == to).unwrap()].to_vec();
    let from_to = |from: &str, to: &str| {
        let below = below(to);
        at_least(from).into_iter().filter(|v| below.contains(v)).collect::<Vec<_>>()
    };
    let except = |gone: &[&str]| LADDER.into_iter().filter(|v| !gone.contains(v)).collect::<Vec<_>>();
    for (constraints, expected) in [
        (&["1.2.3", "=1.2.3", "= 1.2.3"][..], vec!["1.2.3"]),
        (&["1.2", "=1.2", "1.2.x", "1.2.X", "1.2.*"], from_to("1.2.0", "1.3.0")),
        (&["1", "=1", "1.x", "1.x.9", "1.X", "1.*"], from_to("1.0.0", "2.0.0")),
        (&["*", "x", "X", "=*", "x.2.3", "*.9"], at_least("0.0.0")),
        (&["!=1.2.3"], except(&["1.2.3"])),
        (&["!=1.2"], except(&["1.2.0", "1.2.3", "1.2.4"])),
        (&["!=1"], except(&["1.0.0", "1.1.9", "1.2.0", "1.2.3", "1.2.4", "1.3.0", "1.9.0"])),
        (&["!=*"], except(&["0.0.0"])),
        (&[">1.2.3"], at_least("1.2.4")),
        (&[">1.2"], at_least("1.3.0")),
        (&[">1"], at_least("2.0.0")),
        (&[">*"], at_least("0.0.3")),
        (&[">=1.2.3", "=>1.2.3"], at_least("1.2.3")),
        (&[">=1.2", "=>1.2.x"], at_least("1.2.0")),
        (&[">=1"], at_least("1.0.0")),
        (&[">=*"], at_least("0.0.0")),
        (&["<1.2.3"], below("1.2.3")),
        (&["<1.2"], below("1.2.0")),
        (&["<1"], below("1.0.0")),
        (&["<*"], vec![]),
        (&["<=1.2.3", "=<1.2.3"], below("1.2.4")),
        (&["<=1.2", "=<1.2.x"], below("1.3.0")),
        (&["<=1"], below("2.0.0")),
        (&["<=*"], below("0.2.0")),
        (&["~1.2.3", "~>1.2.3"], from_to("1.2.3", "1.3.0")),
        (&["~0.0.0"], at_least("0.0.0")),
        (&["~1.2", "~>1.2.x"], from_to("1.2.0", "1.3.0")),
        (&["~0.0"], below("0.2.0")),
        (&["~1"], from_to("1.0.0", "2.0.0")),
        (&["~*"], at_least("0.0.0")),
        (&["^1.2.3"], from_to("1.2.3", "2.0.0")),
        (&["^0.2.0"], vec!["0.2.0"]),
        (&["^0.0.3"], vec!["0.0.3"]),
        (&["^1.2"], from_to("1.2.0", "2.0.0")),
        (&["^0.2"], vec!["0.2.0"]),
        (&["^0.0"], below("0.2.0")),
        (&["^1"], from_to("1.0.0", "2.0.0")),
        (&["^0"], below("1.0.0")),
        (&["^*"], vec!["0.0.0"]),
    ] {
        for constraint in constraints {
            assert_eq!(matching(constraint, &LADDER), expected, "{constraint}");
        }
    }
}

#[test]
fn pre_releases_match_only_in_groups_that_opt_in() {
    for (constraint, inside, outside) in [
        ("~1.2.3-beta", &["1.2.3-beta", "1.2.9-alpha"][..], &["1.3.0-alpha", "1.2.3-alpha"][..]),
        (">=1.0.0-0 <2.0.0", &["2.0.0-rc.1", "1.0.0-0", "1.0.0"], &["2.0.0"]),
        (">=1.0.0-0 <2.0.0-0", &["1.9.9-rc.1"], &["2.0.0-rc.1"]),
        ("!=1.0.0", &["1.0.1"], &["1.0.1-rc.1"]),
        ("*-0", &["0.0.0-0", "0.0.0", "9.9.9-rc.1", "1.0.0"], &[]),
        (">=0.0.0-0", &["0.0.0-0", "9.9.9-rc.1"], &[]),
        (">=0", &["0.0.0", "9.0.0"], &["1.0.0-rc.1"]),
        ("!=1.2-beta", &["1.2.0", "1.2.9", "1.2.7-alpha", "2.0.0-beta"], &["1.2.7-beta"]),
        ("=1-beta", &["1.0.0-beta", "1.0.0", "1.4.0-alpha"], &["1.0.0-alpha", "2.0.0"]),
        ("^*-0", &["0.0.0-0", "0.0.0"], &["0.0.1"]),
        ("<=*-0", &["0.0.7", "0.0.7-rc.1"], &["0.1.0"]),
        (">1-rc", &["2.0.0-alpha"], &["1.9.0", "1.0.0-rc"]),
        ("<2.0.0-rc.1", &["2.0.0-beta", "1.0.0"], &["2.0.0-rc.1"]),
    ] {
        assert_eq!(matching(constraint, inside), inside, "{constraint}");
        assert_eq!(matching(constraint, outside), [""; 0], "{constraint}");
    }
}

// Rows of docs/design/resolution.md#constraint-matching that no other test covers.
#[test]
fn unusual_groups_match_by_the_table() {
    for (constraint, inside, outside) in [
        ("1.0.0 2.0.0", &[][..], &["1.0.0", "2.0.0"][..]),
        ("2.0.0 - 1.0.0", &[], &["1.0.0", "1.5.0", "2.0.0"]),
        ("1.0.0 - 2.0.0 !=1.5.0", &["1.0.0", "2.0.0"], &["1.5.0", "2.0.1"]),
        (">=1.1.0, 1.0.0 - 2.0.0", &["1.1.0", "2.0.0"], &["1.0.0"]),
        ("x.2.3", &["7.0.0"], &[]),
        ("*.9|9", &["7.0.0"], &[]),
        ("1.0.0+1", &["1.0.0", "1.0.0+2"], &["1.0.1"]),
        ("01.2.3", &["1.2.3"], &["1.2.4"]),
        ("1.2-rc1", &["1.2.0-rc1", "1.2.7"], &["1.3.0"]),
        (">11.1", &["11.2.0"], &["11.1.5"]),
        ("1.2.3\u{c},\t1.2.3\r\n", &["1.2.3"], &[]),
    ] {
        assert_eq!(matching(constraint, inside), inside, "{constraint}");
        assert_eq!(matching(constraint, outside), [""; 0], "{constraint}");
    }
}

// docs/design/api.md#version-expression, docs/design/resolution.md#constraint-grammar. Each row: text, error message,
// faulty substring, expectation.
#[test]
fn errors_are_exact_and_point_at_the_fault() {
    for (text, message, fault, expected) in [
        ("", r#"improper constraint: """#, "", "a version, such as 1.2.3, 1.2 or 1.2.x"),
        (" ", r#"improper constraint: " ""#, "", "a version"),
        ("foobar", r#"improper constraint: "foobar""#, "foobar", "a version"),
        ("1.11 OR 1.13", r#"improper constraint: "1.11 OR 1.13""#, "OR", "|| between alternatives"),
        (">=1 and <2", r#"improper constraint: ">=1 and <2""#, "and", "a blank or a comma between"),
        (">=1 && <2", r#"improper constraint: ">=1 && <2""#, "&&", "a blank or a comma between"),
        ("==1", r#"improper constraint: "==1""#, "=1", "one of = != >"),
        ("V1.2.3", r#"improper constraint: "V1.2.3""#, "V", "a lower-case v or none"),
        ("1.2.3.4", r#"improper constraint: "1.2.3.4""#, ".4", "a blank, a comma or || after a version"),
        ("1.2.3,", r#"improper constraint: "1.2.3,""#, "", "a version"),
        (",1.2.3", r#"improper constraint: ",1.2.3""#, ",1.2.3", "a version"),
        ("1.0.0 || *]", r#"improper constraint: " *]""#, "]", "a blank, a comma or ||"),
        ("1.*]", r#"improper constraint: "1.*]""#, "]", "a blank, a comma or ||"),
        ("1.0.0 || ", r#"improper constraint: " ""#, "", "a version"),
        ("1.0.0\u{a0}2.0.0", r#"improper constraint: "1.0.0\u00a02.0.0""#, "\u{a0}2", "a blank"),
        ("1.0.0\u{b}", r#"improper constraint: "1.0.0\v""#, "\u{b}", "a blank"),
        ("é", r#"improper constraint: "é""#, "é", "a version"),
        ("|", "constraint parser error", "|", "a number, or one of x X * alone"),
        ("1x", "constraint parser error", "1x", "a number, or one of"),
        ("xx", "constraint parser error", "xx", "a number, or one of"),
        (">=1.0 <2.**", "constraint parser error", "**", "a number, or one of"),
        ("1|2", "constraint parser error", "1|2", "a number, or one of"),
        ("1.0.0-01", "constraint parser error", "01", "a number without leading zeros"),
        ("18446744073709551616.0.0", "constraint parser error", "18446744073709551616.", "a number up to"),
        ("1 || 2.18446744073709551616", "constraint parser error", "18446744073709551616", "a number up to"),
        // Pointers into texts with rewritten hyphen ranges.
        (">1.0.0 - 2.0.0", r#"improper constraint: ">>= 1.0.0, <= 2.0.0 ""#, "1.0.0 -", "a version"),
        ("1.0.0 - 2.0.0-01", "constraint parser error", "01", "a number without leading zeros"),
        ("1 - 2 OR 3", r#"improper constraint: ">= 1, <= 2 OR 3""#, "OR", "|| between"),
        (
            ">=1.1.0 1.0.0 - 2.0.0",
            r#"improper constraint: ">=1.1.0>= 1.0.0, <= 2.0.0 ""#,
            "1.0.0 -",
            "a blank",
        ),
    ] {
        assert_eq!(error(text), message, "{text:?}");
        let pointer = Constraint::fault_in(text).unwrap();
        let rest = text.get(pointer.at.start..).unwrap();
        assert!(rest.starts_with(fault) && (!fault.is_empty() || rest.is_empty()), "{text:?}: {pointer:?}");
        assert!(pointer.expected.starts_with(expected), "{text:?}: {pointer:?}");
    }
    assert_eq!(Constraint::fault_in("1.x || 2"), None);
    assert_eq!(
        Constraint::fault_in("1.11 OR 1.13").unwrap().draw("1.11 OR 1.13"),
        "1.11 OR 1.13\n     ^^ expected || between alternatives"
    );
    let surplus = Constraint::fault_in(&["1"; 33].join("||")).unwrap();
    assert_eq!((surplus.at, &*surplus.expected), (96..97, "at most 32 alternatives"));
    let long = Constraint::fault_in(&" ".repeat(513)).unwrap();
    assert_eq!((long.at, &*long.expected), (512..513, "at most 512 bytes"));
    let operand = Constraint::fault_in(&format!("1 || 1.2.3-{}", "a".repeat(251))).unwrap();
    assert_eq!((operand.at, &*operand.expected), (5..262, "a version of at most 256 bytes"));
}

#[test]
fn canonical_form_is_short_and_equivalent() {
    for (text, canonical) in [
        ("*", "x"),
        ("1.11.x || *", "1.11.x || x"),
        ("1.2 - 1.4", ">=1.2, <=1.4"),
        ("01.02.3", "1.2.3"),
        (">=v1.0.0+b <2", ">=1.0.0, <2"),
        ("=1.2.*", "1.2"),
        ("~>1.2 =>1 =<3", "~1.2, >=1, <=3"),
        ("*.9|9-0||!=X", "x-0 || !=x"),
        (" 1.2.3-rc.1\n", "1.2.3-rc.1"),
    ] {
        let constraint = Constraint::parse(text).unwrap();
        // A trailing wildcard and a missing last part are equivalent.
        assert_eq!(constraint.to_string(), canonical.replace(".x", ""), "{text}");
        assert_eq!(Constraint::parse(&constraint.to_string()), Ok(constraint), "{text}");
    }
}
