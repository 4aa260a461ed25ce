//! The constraint language of `spec.source.catalog.version` (spec 03 §4).
//!
//! ```text
//! constraint = group *( "||" group )              ; any group
//! group      = comparator *( sep comparator )     ; every comparator; sep is white space, a comma or both
//! comparator = [op] version
//! version    = ["v"] part [ "." part [ "." part ] ] [ "-" idents ] [ "+" idents ]
//! ```
//!
//! Before all that, a hyphen range `A - B` is rewritten as text to `>= A, <= B `. The result decides which
//! bundle is installed, so what the reference's library accepts by accident is accepted here too.

use std::str::FromStr;

use crate::quote::quote;
use crate::version::{Version, has_leading_zero, is_digits, is_identifier_char};

const MAX_CONSTRAINT_BYTES: usize = 512;
const MAX_GROUPS: usize = 32;
const MAX_OPERAND_BYTES: usize = 256;

/// A parsed version constraint: alternatives of comparators that must all hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constraint {
    groups: Vec<Group>,
}

/// Why a text is not a constraint. The texts are part of the API (spec 03 §4.2).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConstraintError {
    /// The whole text exceeds 512 bytes.
    #[error("constraint string is too long (max {MAX_CONSTRAINT_BYTES} bytes)")]
    TooLong,
    /// More than 32 alternatives.
    #[error("too many constraint groups (max {MAX_GROUPS})")]
    TooManyGroups,
    /// A group that breaks the grammar, as it reads after hyphen ranges were rewritten.
    #[error("improper constraint: {}", quote(.0))]
    Improper(String),
    /// A group of the right form with an operand that is no version.
    #[error("constraint parser error")]
    Parser,
}

impl Constraint {
    /// Reads a constraint.
    ///
    /// # Errors
    /// The first violated rule, group by group from the left.
    pub fn parse(text: &str) -> Result<Self, ConstraintError> {
        if text.len() > MAX_CONSTRAINT_BYTES {
            return Err(ConstraintError::TooLong);
        }
        let text = rewrite_hyphen_ranges(text);
        let groups: Vec<_> = text.split("||").collect();
        if groups.len() > MAX_GROUPS {
            return Err(ConstraintError::TooManyGroups);
        }
        Ok(Self { groups: groups.into_iter().map(Group::parse).collect::<Result<_, _>>()? })
    }

    /// True if `version` satisfies some group.
    ///
    /// A pre-release satisfies only groups in which at least one operand has a pre-release itself.
    pub fn matches(&self, version: &Version) -> bool {
        self.groups.iter().any(|group| group.matches(version))
    }
}

impl FromStr for Constraint {
    type Err = ConstraintError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    comparators: Vec<Comparator>,
}

impl Group {
    /// The form of the whole group is checked before the value of any operand.
    fn parse(text: &str) -> Result<Self, ConstraintError> {
        let terms = split_group(text).ok_or_else(|| ConstraintError::Improper(text.to_owned()))?;
        let comparators = terms.iter().map(|(op, operand)| Comparator::new(*op, operand));
        Ok(Self { comparators: comparators.collect::<Result<_, _>>()? })
    }

    fn matches(&self, version: &Version) -> bool {
        let admits_pre = version.pre.is_empty() || self.comparators.iter().any(|c| !c.bound.pre.is_empty());
        admits_pre && self.comparators.iter().all(|c| c.matches(version))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Equal,
    NotEqual,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
    Tilde,
    Caret,
}

/// Longer spellings stand before their prefixes; no operator at all means equal.
const OPS: [(&str, Op); 12] = [
    ("!=", Op::NotEqual),
    (">=", Op::GreaterOrEqual),
    ("=>", Op::GreaterOrEqual),
    ("<=", Op::LessOrEqual),
    ("=<", Op::LessOrEqual),
    ("~>", Op::Tilde),
    ("=", Op::Equal),
    (">", Op::Greater),
    ("<", Op::Less),
    ("~", Op::Tilde),
    ("^", Op::Caret),
    ("", Op::Equal),
];

/// How many numbers of an operand count: those before the first wildcard or missing part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Precision {
    Any,
    Major,
    Minor,
    Full,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Comparator {
    op: Op,
    precision: Precision,
    /// The operand with 0 for parts that do not count, its pre-release kept, its build dropped.
    bound: Version,
}

impl Comparator {
    fn new(op: Op, operand: &Operand<'_>) -> Result<Self, ConstraintError> {
        let counted: Vec<&str> =
            operand.parts.iter().map_while(|part| part.filter(|p| !is_wildcard(p))).collect();
        let precision = match counted.len() {
            0 => Precision::Any,
            1 => Precision::Major,
            2 => Precision::Minor,
            _ => Precision::Full,
        };
        let pre = operand.pre.unwrap_or_default();
        let bad_pre = |identifier: &str| is_digits(identifier) && has_leading_zero(identifier);
        if measured_length(operand, &counted) > MAX_OPERAND_BYTES || pre.split('.').any(bad_pre) {
            return Err(ConstraintError::Parser);
        }
        let number = |index: usize| match counted.get(index) {
            Some(part) if is_digits(part) => part.parse().map_err(|_| ConstraintError::Parser),
            Some(_) => Err(ConstraintError::Parser),
            None => Ok(0),
        };
        let (major, minor, patch) = (number(0)?, number(1)?, number(2)?);
        let bound = Version { major, minor, patch, pre: pre.to_owned(), build: String::new() };
        Ok(Self { op, precision, bound })
    }

    /// The table of spec 03 §4.3; pre-release admission is the group's business.
    fn matches(&self, v: &Version) -> bool {
        let k = &self.bound;
        let same_minor = v.major == k.major && v.minor == k.minor;
        match self.op {
            Op::Equal if self.precision == Precision::Full => v == k,
            Op::Equal | Op::Tilde => self.within_tilde(v),
            Op::NotEqual => match self.precision {
                Precision::Full | Precision::Any => v != k,
                Precision::Major => v.major != k.major,
                // `!=1.2-beta` refuses every 1.2.z-beta and nothing else.
                Precision::Minor => !same_minor || v.pre != k.pre,
            },
            Op::Greater => match self.precision {
                Precision::Full | Precision::Any => v > k,
                Precision::Major => v.major > k.major,
                Precision::Minor => (v.major, v.minor) > (k.major, k.minor),
            },
            Op::GreaterOrEqual => v >= k,
            Op::Less => v < k,
            Op::LessOrEqual => match self.precision {
                Precision::Full => v <= k,
                Precision::Major => v.major <= k.major,
                // Also for `*`, which admits nothing but 0.0.z here.
                Precision::Minor | Precision::Any => (v.major, v.minor) <= (k.major, k.minor),
            },
            Op::Caret => v >= k && self.within_caret(v),
        }
    }

    fn within_tilde(&self, v: &Version) -> bool {
        let k = &self.bound;
        // `~0.0.0` bounds nothing from above.
        let unbounded = self.precision == Precision::Full && (k.major, k.minor, k.patch) == (0, 0, 0);
        v >= k
            && (unbounded
                || match self.precision {
                    Precision::Any => true,
                    Precision::Major => v.major == k.major,
                    Precision::Minor | Precision::Full => v.major == k.major && v.minor == k.minor,
                })
    }

    /// The upper bound: no change of the leftmost number that is not 0. `^*` counts as `^0.0.0`.
    fn within_caret(&self, v: &Version) -> bool {
        let k = &self.bound;
        if k.major > 0 || self.precision == Precision::Major {
            v.major == k.major
        } else if k.minor > 0 || self.precision == Precision::Minor {
            v.major == 0 && v.minor == k.minor
        } else {
            (v.major, v.minor, v.patch) == (0, 0, k.patch)
        }
    }
}

/// The size that the limit applies to: a complete operand as written, another one as it reads with zeros for
/// what does not count and without build metadata.
fn measured_length(operand: &Operand<'_>, counted: &[&str]) -> usize {
    if counted.len() == operand.parts.len() {
        return operand.text.len();
    }
    let digits = counted.iter().map(|part| part.len()).sum::<usize>() + operand.parts.len() - counted.len();
    digits + 2 + operand.pre.map_or(0, |pre| pre.len() + 1)
}

fn is_wildcard(part: &str) -> bool {
    matches!(part, "x" | "X" | "*")
}

/// A version as an operand is written, split but not yet valued.
#[derive(Debug)]
struct Operand<'a> {
    text: &'a str,
    parts: [Option<&'a str>; 3],
    pre: Option<&'a str>,
}

/// Splits a group into operators and operands; `None` if it breaks the grammar.
fn split_group(group: &str) -> Option<Vec<(Op, Operand<'_>)>> {
    let mut terms = Vec::new();
    let mut rest = skip_space(group);
    loop {
        let (op, after_op) = OPS.iter().find_map(|(text, op)| Some((*op, rest.strip_prefix(text)?)))?;
        let (operand, after_operand) = scan_operand(skip_space(after_op))?;
        terms.push((op, operand));
        let next = skip_space(after_operand);
        if next.is_empty() {
            return Some(terms);
        }
        rest = match next.strip_prefix(',') {
            Some(after_comma) => skip_space(after_comma),
            None if next.len() < after_operand.len() => next,
            None => return None,
        };
    }
}

/// Rewrites every `A - B` to `>= A, <= B `, with white space around it swallowed.
///
/// Like the reference, this looks for matches in the original text, wherever they start, and then replaces
/// the first occurrence of each match's text in the result so far.
fn rewrite_hyphen_ranges(text: &str) -> String {
    let mut rewritten = text.to_owned();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        match scan_hyphen_range(rest) {
            Some((low, high, after)) => {
                let range = &rest[..rest.len() - after.len()];
                rewritten = rewritten.replacen(range, &format!(">= {low}, <= {high} "), 1);
                rest = after;
            }
            None => rest = &rest[first.len_utf8()..],
        }
    }
    rewritten
}

/// Reads a hyphen range at the start of `text`: both operands and what follows.
fn scan_hyphen_range(text: &str) -> Option<(&str, &str, &str)> {
    let (low, rest) = scan_operand(skip_space(text))?;
    let rest = some_space(some_space(rest)?.strip_prefix('-')?)?;
    let (high, rest) = scan_operand(rest)?;
    Some((low.text, high.text, skip_space(rest)))
}

/// Reads the longest operand at the start of `text`; `None` if there is none.
fn scan_operand(text: &str) -> Option<(Operand<'_>, &str)> {
    let (major, mut rest) = scan_some(text.strip_prefix('v').unwrap_or(text), is_part_char)?;
    let mut parts = [Some(major), None, None];
    for part in &mut parts[1..] {
        let Some((found, after)) = rest.strip_prefix('.').and_then(|r| scan_some(r, is_part_char)) else {
            break;
        };
        (*part, rest) = (Some(found), after);
    }
    let (pre, rest) = scan_suffix(rest, '-');
    let (_, rest) = scan_suffix(rest, '+');
    let text = &text[..text.len() - rest.len()];
    Some((Operand { text, parts, pre }, rest))
}

/// Reads `lead` and the dot-separated identifiers behind it, or nothing.
fn scan_suffix(text: &str, lead: char) -> (Option<&str>, &str) {
    let Some(body) = text.strip_prefix(lead) else {
        return (None, text);
    };
    let Some((_, mut rest)) = scan_some(body, is_identifier_char) else {
        return (None, text);
    };
    while let Some((_, after)) = rest.strip_prefix('.').and_then(|r| scan_some(r, is_identifier_char)) {
        rest = after;
    }
    (Some(&body[..body.len() - rest.len()]), rest)
}

/// Splits off the longest prefix of accepted characters, at least one.
fn scan_some(text: &str, accepts: fn(char) -> bool) -> Option<(&str, &str)> {
    let end = text.find(|c| !accepts(c)).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// The bar is an accident of the reference's pattern; it lets hyphen ranges reach across `||`.
fn is_part_char(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, 'x' | 'X' | '*' | '|')
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\x0c' | '\r')
}

fn skip_space(text: &str) -> &str {
    text.trim_start_matches(is_space)
}

fn some_space(text: &str) -> Option<&str> {
    let rest = skip_space(text);
    (rest.len() < text.len()).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::Constraint;
    use crate::Version;

    fn matches(constraint: &str, version: &str) -> bool {
        Constraint::parse(constraint).unwrap().matches(&Version::parse(version).unwrap())
    }

    fn error(constraint: &str) -> String {
        Constraint::parse(constraint).unwrap_err().to_string()
    }

    // spec 03 acceptance 50–56
    #[test]
    fn surprising_matches_are_kept() {
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

    // spec 08 S2-2: each row as constraint, versions inside, versions outside
    #[test]
    fn documented_expansions_hold() {
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
    fn bars_belong_to_operands_of_a_hyphen_range() {
        assert!(matches("1.0||2.0 - 3.0", "9.0.0"));
        assert!(!matches("1.0 || 2.0 - 3.0", "9.0.0"));
        assert!(matches("1.0 - 2.0||3.0", "3.0.0"));
        assert_eq!(error("1.0.0 - 2.0||3.0 - 4.0"), r#"improper constraint: "3.0 - 4.0""#);
        assert_eq!(error(">=1.1.0 1.0.0 - 2.0.0"), r#"improper constraint: ">=1.1.0>= 1.0.0, <= 2.0.0 ""#);
    }

    #[test]
    fn a_repeated_hyphen_range_replaces_the_first_occurrence() {
        assert_eq!(
            error("1 - 2 - 3 || 2 - 3"),
            r#"improper constraint: ">= 1, <=>= 2, <= 3  ""#,
            "the text of the second match occurs first in what the first one became"
        );
    }

    #[test]
    fn limits_are_enforced() {
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
    fn digits_beyond_64_bits_in_a_pre_release_compare_as_text() {
        let bound = ">1.0.0-99999999999999999999";
        assert!(!matches(bound, "1.0.0-18446744073709551615"), "numbers come first");
        assert!(!matches(bound, "1.0.0--"));
        assert!(matches(bound, "1.0.0-a"));
    }
}
