//! Semantic versions: strict and tolerant parsing, precedence (docs/design/resolution.md#strict-versions,
//! docs/design/resolution.md#versions).

use std::cmp::Ordering;
use std::fmt;
use std::num::IntErrorKind;

use crate::quote::quote;

/// Semantic version.
///
/// Order and equality follow precedence: build metadata is kept for display and never compared.
///
/// ```
/// use olm_version::Version;
///
/// let version = Version::parse("1.4.0-rc.1+build7")?;
/// assert!(version < Version::parse("1.4.0")?);
/// assert_eq!((version.minor(), version.pre(), version.build()), (4, "rc.1", "build7"));
/// assert_eq!(Version::parse_tolerant("v1.4")?, Version::parse("1.4.0")?);
/// # Ok::<(), olm_version::VersionError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Version {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
    pub(crate) pre: String,
    pub(crate) build: String,
}

/// Parse error of a version. The texts are part of the API (docs/design/resolution.md#strict-versions).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each variant is its message")]
pub enum VersionError {
    #[error("Version string empty")]
    Empty,
    #[error("No Major.Minor.Patch elements found")]
    MissingParts,
    #[error("Invalid character(s) found in {} number {}", part.to_lowercase(), quote(text))]
    NumberCharacters { part: &'static str, text: String },
    #[error("{part} number must not contain leading zeroes {}", quote(text))]
    NumberLeadingZeroes { part: &'static str, text: String },
    #[error("strconv.ParseUint: parsing {}: invalid syntax", quote(text))]
    NumberEmpty { text: String },
    #[error("strconv.ParseUint: parsing {}: value out of range", quote(text))]
    NumberTooLarge { text: String },
    #[error("Prerelease is empty")]
    PrereleaseEmpty,
    #[error("Numeric PreRelease version must not contain leading zeroes {}", quote(text))]
    PrereleaseLeadingZeroes { text: String },
    #[error("Invalid character(s) found in prerelease {}", quote(text))]
    PrereleaseCharacters { text: String },
    #[error("Build meta data is empty")]
    BuildEmpty,
    #[error("Invalid character(s) found in build meta data {}", quote(text))]
    BuildCharacters { text: String },
    #[error("Short version cannot contain PreRelease/Build meta data")]
    ShortWithSuffix,
}

impl Version {
    /// Parses a complete version `major.minor.patch[-pre][+build]`: no `v`, no blanks, no missing parts. Used for
    /// bundle versions, installed versions and the operands of a [`crate::Range`].
    ///
    /// # Errors
    /// The first violated rule, reading from left to right (docs/design/resolution.md#strict-versions).
    pub fn parse(text: &str) -> Result<Self, VersionError> {
        if text.is_empty() {
            return Err(VersionError::Empty);
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(tail)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(VersionError::MissingParts);
        };
        let (major, minor) = (number("Major", major)?, number("Minor", minor)?);
        let (tail, build) = cut(tail, '+');
        let (patch, pre) = cut(tail, '-');
        let patch = number("Patch", patch)?;
        pre.iter().flat_map(|pre| pre.split('.')).try_for_each(check_pre_identifier)?;
        build.iter().flat_map(|build| build.split('.')).try_for_each(check_build_identifier)?;
        let owned = |part: Option<&str>| part.unwrap_or_default().to_owned();
        Ok(Self { major, minor, patch, pre: owned(pre), build: owned(build) })
    }

    /// Parses a version tolerantly: accepts surrounding white space, one leading `v`, leading zeros and missing minor
    /// or patch numbers. Used by CEL `semver_compare` and platform checks.
    ///
    /// # Errors
    /// A short version with a pre-release or build suffix, and any error of [`Version::parse`] after the repairs
    /// (docs/design/resolution.md#versions).
    pub fn parse_tolerant(text: &str) -> Result<Self, VersionError> {
        let trimmed = text.trim();
        let trimmed = trimmed.strip_prefix('v').unwrap_or(trimmed);
        let repaired = trimmed.splitn(3, '.').map(|part| {
            let digits = without_leading_zeros(part);
            let zero =
                if part.len() > 1 && !digits.starts_with(|c: char| c.is_ascii_digit()) { "0" } else { "" };
            format!("{zero}{digits}")
        });
        let mut repaired: Vec<String> = repaired.collect();
        if repaired.len() < 3 && repaired.last().is_some_and(|last| last.contains(['+', '-'])) {
            return Err(VersionError::ShortWithSuffix);
        }
        repaired.resize(3, "0".to_owned());
        Self::parse(&repaired.join("."))
    }

    /// The first number.
    pub fn major(&self) -> u64 {
        self.major
    }

    /// The second number.
    pub fn minor(&self) -> u64 {
        self.minor
    }

    /// The third number.
    pub fn patch(&self) -> u64 {
        self.patch
    }

    /// Pre-release identifiers without the leading `-`. Empty if there are none.
    pub fn pre(&self) -> &str {
        &self.pre
    }

    /// Build metadata without the leading `+`. Empty if there is none.
    pub fn build(&self) -> &str {
        &self.build
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.pre.is_empty() {
            write!(f, "-{}", self.pre)?;
        }
        if !self.build.is_empty() {
            write!(f, "+{}", self.build)?;
        }
        Ok(())
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.major, self.minor, self.patch)
            .cmp(&(other.major, other.minor, other.patch))
            .then_with(|| self.pre.is_empty().cmp(&other.pre.is_empty()))
            .then_with(|| compare_identifiers(&self.pre, &other.pre))
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

/// Identifier of a pre-release or release. Numbers sort before texts.
///
/// Digits beyond u64 occur only in constraint operands, where they compare as text.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Identifier<'a> {
    Number(u64),
    Text(&'a str),
}

/// Compares dot-separated identifiers pairwise. If all are equal, the longer list is greater.
pub(crate) fn compare_identifiers(a: &str, b: &str) -> Ordering {
    fn identifiers(text: &str) -> impl Iterator<Item = Identifier<'_>> {
        text.split('.').map(|part| part.parse().map_or(Identifier::Text(part), Identifier::Number))
    }
    identifiers(a).cmp(identifiers(b))
}

/// Checks one identifier of a pre-release or release.
pub(crate) fn check_pre_identifier(text: &str) -> Result<(), VersionError> {
    if text.is_empty() {
        Err(VersionError::PrereleaseEmpty)
    } else if !is_identifier(text) {
        Err(VersionError::PrereleaseCharacters { text: text.to_owned() })
    } else if !is_digits(text) {
        Ok(())
    } else if has_leading_zero(text) {
        Err(VersionError::PrereleaseLeadingZeroes { text: text.to_owned() })
    } else {
        parse_u64(text).map(drop)
    }
}

fn check_build_identifier(text: &str) -> Result<(), VersionError> {
    if text.is_empty() {
        Err(VersionError::BuildEmpty)
    } else if is_identifier(text) {
        Ok(())
    } else {
        Err(VersionError::BuildCharacters { text: text.to_owned() })
    }
}

fn number(part: &'static str, text: &str) -> Result<u64, VersionError> {
    if !is_digits(text) {
        return Err(VersionError::NumberCharacters { part, text: text.to_owned() });
    }
    if has_leading_zero(text) {
        return Err(VersionError::NumberLeadingZeroes { part, text: text.to_owned() });
    }
    parse_u64(text)
}

/// Parses a text that contains only digits.
fn parse_u64(text: &str) -> Result<u64, VersionError> {
    text.parse().map_err(|e: std::num::ParseIntError| match e.kind() {
        IntErrorKind::PosOverflow => VersionError::NumberTooLarge { text: text.to_owned() },
        _ => VersionError::NumberEmpty { text: text.to_owned() },
    })
}

fn cut(text: &str, separator: char) -> (&str, Option<&str>) {
    text.split_once(separator).map_or((text, None), |(head, tail)| (head, Some(tail)))
}

/// Strips leading zeros. A single character is kept.
fn without_leading_zeros(part: &str) -> &str {
    if part.len() < 2 { part } else { part.trim_start_matches('0') }
}

/// `true` for ASCII digits and for the empty text.
pub(crate) fn is_digits(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

pub(crate) fn has_leading_zero(digits: &str) -> bool {
    digits.len() > 1 && digits.starts_with('0')
}

fn is_identifier(text: &str) -> bool {
    text.chars().all(is_identifier_char)
}

pub(crate) fn is_identifier_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-'
}

#[cfg(test)]
mod tests {
    use super::{Version, VersionError};

    #[test]
    fn strict_errors_are_exact() {
        for (text, message) in [
            ("", "Version string empty"),
            ("1.2", "No Major.Minor.Patch elements found"),
            ("v1.2.3", r#"Invalid character(s) found in major number "v1""#),
            (" 1.2.3", r#"Invalid character(s) found in major number " 1""#),
            ("1.x.3", r#"Invalid character(s) found in minor number "x""#),
            ("1.2.3.4", r#"Invalid character(s) found in patch number "3.4""#),
            ("01.2.3", r#"Major number must not contain leading zeroes "01""#),
            ("1.02.3", r#"Minor number must not contain leading zeroes "02""#),
            ("1.2.03", r#"Patch number must not contain leading zeroes "03""#),
            ("1..3", r#"strconv.ParseUint: parsing "": invalid syntax"#),
            (
                "18446744073709551616.0.0",
                r#"strconv.ParseUint: parsing "18446744073709551616": value out of range"#,
            ),
            ("1.2.3-", "Prerelease is empty"),
            ("1.2.3-a..b", "Prerelease is empty"),
            ("1.2.3-01", r#"Numeric PreRelease version must not contain leading zeroes "01""#),
            ("1.2.3-a_b", r#"Invalid character(s) found in prerelease "a_b""#),
            (
                "1.2.3-18446744073709551616",
                r#"strconv.ParseUint: parsing "18446744073709551616": value out of range"#,
            ),
            ("1.2.3+", "Build meta data is empty"),
            ("1.2.3+a_b", r#"Invalid character(s) found in build meta data "a_b""#),
            ("1.2.3-_+_", r#"Invalid character(s) found in prerelease "_""#),
        ] {
            assert_eq!(Version::parse(text).map_err(|e| e.to_string()), Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn display_returns_the_parsed_text() {
        for text in ["0.0.0", "1.2.3-rc.1+b.007", "1.2.3+-", "18446744073709551615.0.0--"] {
            assert_eq!(Version::parse(text).map(|v| v.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn precedence_orders_versions() {
        let ascending = [
            "0.0.0-0",
            "0.0.0",
            "1.0.0--",
            "1.0.0-0a",
            "1.0.0-A",
            "1.0.0-a",
            "1.0.0-a.1",
            "1.0.0-a.9",
            "1.0.0-a.10",
            "1.0.0-a.a",
            "1.0.0-b",
            "1.0.0",
            "1.0.1",
            "1.10.0",
            "2.0.0",
        ]
        .map(|text| Version::parse(text).unwrap());
        for pair in ascending.windows(2) {
            assert!(pair[0] < pair[1], "{} < {}", pair[0], pair[1]);
        }
        let number_first = ("1.0.0-1", "1.0.0--");
        assert!(Version::parse(number_first.0).unwrap() < Version::parse(number_first.1).unwrap());
        assert_eq!(Version::parse("1.0.0+1"), Version::parse("1.0.0+2"));
    }

    // docs/design/resolution.md#versions. Each row: text, result of strict parsing, result of tolerant parsing.
    #[test]
    fn strict_and_tolerant_parsing_follow_the_table() {
        for (text, strict, tolerant) in [
            ("1.2.3-rc.1+b", Some("1.2.3-rc.1+b"), Some("1.2.3-rc.1+b")),
            ("v1.2.3", None, Some("1.2.3")),
            (" 1.2.3 ", None, Some("1.2.3")),
            ("\t1.2.3\n", None, Some("1.2.3")),
            ("1", None, Some("1.0.0")),
            ("1.2", None, Some("1.2.0")),
            ("v1", None, Some("1.0.0")),
            ("01.02.03", None, Some("1.2.3")),
            ("00.0.0", None, Some("0.0.0")),
            ("1.2-rc1", None, None),
            ("1.2+b", None, None),
            ("1.2.03-rc1", None, Some("1.2.3-rc1")),
            ("1.2.3-01", None, None),
            ("1.2.-1", None, Some("1.2.0-1")),
            ("V1.0.0", None, None),
            ("vv1.0.0", None, None),
            ("1.2.3.4", None, None),
            ("1.2.x", None, None),
            ("1..3", None, None),
            ("1. 2.3", None, None),
            ("v 1.2.3", None, None),
            ("", None, None),
            (" ", None, None),
            ("18446744073709551615.0.0", Some("18446744073709551615.0.0"), Some("18446744073709551615.0.0")),
            ("0018446744073709551616.0.0", None, None),
        ] {
            assert_eq!(Version::parse(text).ok().map(|v| v.to_string()).as_deref(), strict, "{text:?}");
            assert_eq!(
                Version::parse_tolerant(text).ok().map(|v| v.to_string()).as_deref(),
                tolerant,
                "{text:?}"
            );
        }
        for text in ["1.2-rc1", "1.2+b", "1-1"] {
            assert_eq!(Version::parse_tolerant(text), Err(VersionError::ShortWithSuffix));
        }
    }
}
