//! Range language of `skipRange` and of dependency `versionRange`s (docs/design/resolution.md#versions).
//!
//! Comparators separated by blanks must all hold. `||` separates alternatives. Operands are complete versions, but a
//! lower-case `x` may replace trailing numbers. Pre-releases are ordinary versions. Many plausible texts have another
//! meaning without an error (`! 1.0.0` is `1.0.0`), see docs/design/resolution.md#range-tokens.

use crate::quote::quote;
use crate::version::{Version, VersionError};

/// A parsed version range: alternatives of comparators that must all hold.
///
/// ```
/// use olm_version::{Range, Version};
///
/// let range = Range::parse(">=1.2.0 <2.0.0 || 3.x")?;
/// assert!(range.contains(&Version::parse("1.9.0")?));
/// assert!(range.contains(&Version::parse("3.7.1")?));
/// // A pre-release is an ordinary version.
/// assert!(range.contains(&Version::parse("2.0.0-rc.1")?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    groups: Vec<Vec<Comparator>>,
}

/// Parse error of a range. Only the kind of error is binding, the texts inform.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// The text starts with `||`.
    #[error("First element in range is '||'")]
    LeadingOr,
    /// The text ends with `||`, or has no token.
    #[error("Last element in range is '||'")]
    EmptyOrTrailingOr,
    /// A token without any digit.
    #[error("Could not get version from string: {}", quote(.0))]
    NoVersion(String),
    /// A token with an unknown operator.
    #[error(
        "Could not parse Range {}: Could not parse comparator {} in {}",
        quote(token),
        quote(comparator),
        quote(term)
    )]
    BadComparator {
        /// The token, after wildcards were expanded.
        token: String,
        /// The operator.
        comparator: String,
        /// Operator and operand.
        term: String,
    },
    /// A token whose operand is not a complete version.
    #[error(
        "Could not parse Range {}: Could not parse version {} in {}: {fault}",
        quote(token),
        quote(operand),
        quote(term)
    )]
    BadVersion {
        /// The token, after wildcards were expanded.
        token: String,
        /// The operand.
        operand: String,
        /// Operator and operand.
        term: String,
        /// Parse error of the operand.
        fault: VersionError,
    },
    /// Nothing between two `||`. The reference accepts this and crashes on use.
    #[error("Empty element between two '||' in range")]
    EmptyGroup,
}

impl Range {
    /// Parses a range.
    ///
    /// # Errors
    /// Misplaced `||` first, then wildcards that cannot be expanded, then the first bad comparator, then empty
    /// alternatives.
    pub fn parse(text: &str) -> Result<Self, RangeError> {
        let tokens = tokens(text);
        let is_or = |token: &String| token == "||";
        if tokens.first().is_some_and(is_or) {
            return Err(RangeError::LeadingOr);
        }
        if tokens.last().is_none_or(is_or) {
            return Err(RangeError::EmptyOrTrailingOr);
        }
        let expand = |group: &[String]| -> Result<Vec<_>, _> {
            group.iter().map(|token| expand_wildcard(token)).collect()
        };
        let expanded: Vec<Vec<Vec<String>>> = tokens.split(is_or).map(expand).collect::<Result<_, _>>()?;
        let parse = |group: &Vec<Vec<String>>| -> Result<Vec<_>, _> {
            group.iter().flatten().map(|token| Comparator::parse(token)).collect()
        };
        let groups = expanded.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        if groups.iter().any(Vec::is_empty) {
            return Err(RangeError::EmptyGroup);
        }
        Ok(Self { groups })
    }

    /// `true` if `version` satisfies every comparator of at least one alternative. Comparison is by precedence, so
    /// build metadata is ignored and a pre-release is an ordinary version.
    pub fn contains(&self, version: &Version) -> bool {
        self.groups.iter().any(|group| group.iter().all(|comparator| comparator.matches(version)))
    }

    /// `true` if the range contains a version higher than `version`.
    ///
    /// ```
    /// use olm_version::{Range, Version};
    ///
    /// let own = Version::parse("1.2.0")?;
    /// assert!(!Range::parse(">=1.0.0 <1.2.0")?.reaches_above(&own));
    /// assert!(Range::parse(">=1.0.0 <2.0.0")?.reaches_above(&own));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reaches_above(&self, version: &Version) -> bool {
        self.samples(version).any(|sample| sample > *version && self.contains(&sample))
    }

    /// `true` if the range contains a version lower than `version`.
    pub fn reaches_below(&self, version: &Version) -> bool {
        self.samples(version).any(|sample| sample < *version && self.contains(&sample))
    }

    /// Versions of which the range contains some on a side of `version` if it contains any there: those at its bounds
    /// and at `version`, directly before and after each, and the lowest and highest version.
    fn samples(&self, version: &Version) -> impl Iterator<Item = Version> {
        let bounds = self.groups.iter().flatten().map(|comparator| &comparator.bound).chain([version]);
        let around = |bound: &Version| {
            let (major, minor, patch) = (bound.major(), bound.minor(), bound.patch());
            let pre = Some(bound.pre()).filter(|pre| !pre.is_empty());
            [
                bound.to_string(),
                format!("{major}.{minor}.{patch}-0"),
                pre.map_or_else(
                    || format!("{major}.{minor}.{}-0", patch.saturating_add(1)),
                    |pre| format!("{major}.{minor}.{patch}-{pre}.0"),
                ),
                format!("{major}.{minor}.{}", patch.saturating_sub(1)),
                format!("{major}.{minor}.{}", patch.saturating_add(1)),
            ]
        };
        let ends = ["0.0.0-0".to_owned(), format!("{}.0.0", u64::MAX)];
        let texts: Vec<String> = bounds.flat_map(around).chain(ends).collect();
        texts.into_iter().filter_map(|text| Version::parse(&text).ok())
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
}

impl Op {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "" | "=" | "==" => Self::Equal,
            "!" | "!=" => Self::NotEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterOrEqual,
            "<" => Self::Less,
            "<=" => Self::LessOrEqual,
            _ => return None,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Comparator {
    op: Op,
    bound: Version,
}

impl Comparator {
    fn parse(token: &str) -> Result<Self, RangeError> {
        let (comparator, operand) = split_operator(token)?;
        let term = || format!("{comparator}{operand}");
        let op = Op::parse(comparator).ok_or_else(|| RangeError::BadComparator {
            token: token.to_owned(),
            comparator: comparator.to_owned(),
            term: term(),
        })?;
        let bound = Version::parse(operand).map_err(|fault| RangeError::BadVersion {
            token: token.to_owned(),
            operand: operand.to_owned(),
            term: term(),
            fault,
        })?;
        Ok(Self { op, bound })
    }

    fn matches(&self, version: &Version) -> bool {
        match self.op {
            Op::Equal => *version == self.bound,
            Op::NotEqual => *version != self.bound,
            Op::Greater => *version > self.bound,
            Op::GreaterOrEqual => *version >= self.bound,
            Op::Less => *version < self.bound,
            Op::LessOrEqual => *version <= self.bound,
        }
    }
}

/// Splits a range at blanks that do not follow an operator. Drops tokens shorter than two bytes, and the blanks inside
/// of others.
///
/// The deciding byte is the last non-blank one of the whole text so far, not of the token.
fn tokens(text: &str) -> Vec<String> {
    let mut kept = Vec::new();
    let mut start = 0;
    let mut last = None;
    for (at, byte) in text.bytes().enumerate() {
        if byte != b' ' {
            last = Some(byte);
        } else if !matches!(last, Some(b'>' | b'<' | b'=')) {
            kept.push(&text[start..at]);
            start = at + 1;
        }
    }
    kept.push(&text[start..]);
    kept.into_iter().filter(|raw| raw.len() > 1).map(|raw| raw.replace(' ', "")).collect()
}

/// Splits a token before its first digit. Any Unicode number ends the operator, but only ASCII digits form a valid
/// operand.
fn split_operator(token: &str) -> Result<(&str, &str), RangeError> {
    let digit = token.find(char::is_numeric).ok_or_else(|| RangeError::NoVersion(token.to_owned()))?;
    let (operator, operand) = token.split_at(digit);
    Ok((operator.trim(), operand))
}

/// Expands a token that contains a lower-case `x` to comparators with complete operands
/// (docs/design/resolution.md#range-wildcards).
fn expand_wildcard(token: &str) -> Result<Vec<String>, RangeError> {
    if !token.contains('x') {
        return Ok(vec![token.to_owned()]);
    }
    let (operator, operand) = split_operator(token)?;
    let low = zero_filled(operand);
    let high = || next_after(operand, &low).unwrap_or_default();
    Ok(match operator {
        ">" => vec![format!(">={}", high())],
        ">=" => vec![format!(">={low}")],
        "<" => vec![format!("<{low}")],
        "<=" => vec![format!("<{}", high())],
        "" | "=" | "==" => vec![format!(">={low}"), format!("<{}", high())],
        "!" | "!=" => vec![format!("<{low}"), format!(">={}", high())],
        // An unknown operator is dropped: the token means equality.
        _ => vec![low],
    })
}

fn zero_filled(operand: &str) -> String {
    let mut filled = operand.replacen(".x.x", ".x", 1).replacen(".x", ".0", 1);
    if filled.matches('.').count() == 1 {
        filled.push_str(".0");
    }
    filled
}

/// First version after the wildcard. `None` where the operand does not end in a wildcard or the number before it is
/// invalid. Signed wrapping arithmetic as in the reference.
fn next_after(operand: &str, low: &str) -> Option<String> {
    let mut parts = operand.split('.');
    if parts.next_back() != Some("x") {
        return None;
    }
    let index = match parts.count() {
        1 => 0,
        2 => 1,
        _ => return None,
    };
    let mut numbers: Vec<String> = low.split('.').map(str::to_owned).collect();
    let number = numbers.get_mut(index)?;
    *number = number.parse::<i64>().ok()?.wrapping_add(1).to_string();
    Some(numbers.join("."))
}

#[cfg(test)]
mod tests {
    use super::{Range, RangeError, expand_wildcard};
    use crate::Version;

    fn contains(range: &str, version: &str) -> bool {
        Range::parse(range).unwrap().contains(&Version::parse(version).unwrap())
    }

    #[test]
    fn range_reaches_above_or_below_a_version() {
        for (range, version, above, below) in [
            ("<1.2.0", "1.2.0", false, true),
            ("<=1.2.0", "1.2.0", false, true),
            (">=1.0.0 <1.2.1", "1.2.0", true, true),
            (">=1.2.0 <2.0.0", "1.2.0", true, false),
            (">1.0.0 <1.0.1", "1.2.0", false, true),
            (">=2.0.0 <1.0.0", "1.2.0", false, false),
            ("1.2.0", "1.2.0", false, false),
            ("!1.2.0", "1.2.0", true, true),
            ("0.x || 3.x", "1.2.0", true, true),
            ("<1.2.0-rc.2", "1.2.0-rc.2", false, true),
            (">=1.2.0-rc.2 <1.2.0", "1.2.0-rc.2", true, false),
        ] {
            let (range, version) = (Range::parse(range).unwrap(), Version::parse(version).unwrap());
            assert_eq!(
                (range.reaches_above(&version), range.reaches_below(&version)),
                (above, below),
                "{range:?}"
            );
        }
    }

    // docs/design/resolution.md#range-tokens, cases resolution-57, resolution-58
    #[test]
    fn documented_ranges_match() {
        for (range, inside, outside) in [
            (">=1.0.0 <2.0.0", &["1.0.0", "2.0.0-rc.1"][..], &["2.0.0"][..]),
            ("> 1.0.0", &["1.0.1"], &["1.0.0"]),
            (">= 1.0.0 < 2.0.0", &["1.5.0"], &["2.0.0"]),
            ("\t>=1.0.0", &["1.0.0"], &["0.9.0"]),
            (">=\t1.0.0", &["1.0.0"], &["0.9.0"]),
            ("! 1.0.0", &["1.0.0"], &["1.0.1"]),
            (">=1.0.0 <", &["1.0.0"], &["0.9.0"]),
            (">=1.0.0 5", &["1.0.0"], &["0.9.0"]),
            (">=1.0.0 | <2.0.0", &["1.0.0"], &["0.9.0", "2.0.0"]),
            ("1.0.0 - 2.0.0", &[], &["1.0.0", "1.5.0", "2.0.0"]),
            ("1.x", &["1.0.0", "1.9.0", "2.0.0-alpha"], &["2.0.0", "1.0.0-alpha"]),
            ("1.2.x", &["1.2.0", "1.2.9"], &["1.3.0"]),
            ("1.x.x", &["1.0.0", "1.0.7"], &["1.1.0"]),
            ("!=1.x", &[], &["5.0.0", "0.1.0", "1.0.0"]),
            ("~1.2.x", &["1.2.0"], &["1.2.1"]),
            ("^1.x", &["1.0.0"], &["1.1.0"]),
            ("v1.x", &["1.0.0"], &["1.1.0"]),
            ("<1.0.0-next", &["0.9.0", "1.0.0-a"], &["1.0.0"]),
            (">=1.0.0-xyz", &["1.0.0"], &["1.0.0-a"]),
            ("==1.0.0 || !2.0.0", &["1.0.0", "3.0.0"], &["2.0.0"]),
        ] {
            for version in inside {
                assert!(contains(range, version), "{range:?} contains {version}");
            }
            for version in outside {
                assert!(!contains(range, version), "{range:?} does not contain {version}");
            }
        }
    }

    // Cases resolution-59, resolution-60
    #[test]
    fn invalid_ranges_are_rejected() {
        for text in [
            ">=1.0.0, <2.0.0",
            ">=1.0 <2.0",
            "~1.2.3",
            "^1.2.3",
            "v1.0.0",
            "1.2.X",
            "1.2.*",
            "1.0.0||2.0.0",
            ">=1.0.0\n",
            ">1.0.0-xyz",
            "1.0.0-next",
            "*",
            "x",
            "1",
            "",
            "   ",
            "x.x",
        ] {
            assert!(Range::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(Range::parse("1.0.0 || || 2.0.0"), Err(RangeError::EmptyGroup));
        assert_eq!(Range::parse("|| 1.0.0"), Err(RangeError::LeadingOr));
        assert_eq!(Range::parse("1.0.0 ||"), Err(RangeError::EmptyOrTrailingOr));
        assert_eq!(
            Range::parse("~1.2").unwrap_err().to_string(),
            r#"Could not parse Range "~1.2": Could not parse comparator "~" in "~1.2""#
        );
    }

    // docs/design/resolution.md#range-wildcards: expansion of a wildcard by operator.
    #[test]
    fn wildcards_expand_by_operator() {
        for (token, expanded) in [
            (">1.x", ">=2.0.0"),
            (">1.2.x", ">=1.3.0"),
            (">1.x.x", ">=1.1.0"),
            (">=1.x", ">=1.0.0"),
            ("<1.2.x", "<1.2.0"),
            ("<=1.x", "<2.0.0"),
            ("<=1.2.x", "<1.3.0"),
            ("1.x", ">=1.0.0 <2.0.0"),
            ("=1.2.x", ">=1.2.0 <1.3.0"),
            ("==1.x.x", ">=1.0.0 <1.1.0"),
            ("!1.x", "<1.0.0 >=2.0.0"),
            ("!=1.2.x", "<1.2.0 >=1.3.0"),
            ("~1.2.x", "1.2.0"),
            ("=>1.x", "1.0.0"),
            (">=01.x", ">=01.0.0"),
            ("<=01.x", "<2.0.0"),
            ("<=1.99999999999999999999.x", "<"),
            (">1.0.0-xyz", ">="),
        ] {
            assert_eq!(expand_wildcard(token).unwrap().join(" "), expanded, "{token}");
        }
    }

    #[test]
    fn wildcard_increment_wraps_as_in_the_reference() {
        assert_eq!(
            Range::parse("9223372036854775807.x").unwrap_err().to_string(),
            r#"Could not parse Range "<-9223372036854775808.0.0": Could not parse comparator "<-" in "<-9223372036854775808.0.0""#
        );
    }
}
