//! Semantic versions: the strict and the tolerant reading, and precedence (spec 03 §§3.1, 3.2, 3.4).

use std::cmp::Ordering;
use std::fmt;
use std::num::IntErrorKind;
use std::str::FromStr;

use crate::quote::quote;

/// A semantic version.
///
/// Order and equality are precedence: build metadata is kept for display and never compared.
#[derive(Debug, Clone)]
pub struct Version {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
    pub(crate) pre: String,
    pub(crate) build: String,
}

/// Which of the three numbers of a version an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberPart {
    /// The first number.
    Major,
    /// The second number.
    Minor,
    /// The third number.
    Patch,
}

impl NumberPart {
    fn lower(self) -> &'static str {
        match self {
            Self::Major => "major",
            Self::Minor => "minor",
            Self::Patch => "patch",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Major => "Major",
            Self::Minor => "Minor",
            Self::Patch => "Patch",
        }
    }
}

/// Why a text is not a version. The texts are part of the API (spec 03 §3.1).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each variant is its message")]
pub enum VersionError {
    #[error("Version string empty")]
    Empty,
    #[error("No Major.Minor.Patch elements found")]
    MissingParts,
    #[error("Invalid character(s) found in {} number {}", part.lower(), quote(text))]
    NumberCharacters { part: NumberPart, text: String },
    #[error("{} number must not contain leading zeroes {}", part.title(), quote(text))]
    NumberLeadingZeroes { part: NumberPart, text: String },
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
    /// Reads a complete version `major.minor.patch[-pre][+build]`: no `v`, no blanks, no missing parts.
    /// Used for bundle versions, installed versions and the operands of a [`crate::Range`].
    ///
    /// # Errors
    /// The first violated rule, reading from left to right (spec 03 §3.1).
    pub fn parse(text: &str) -> Result<Self, VersionError> {
        if text.is_empty() {
            return Err(VersionError::Empty);
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(tail)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(VersionError::MissingParts);
        };
        let major = number(NumberPart::Major, major)?;
        let minor = number(NumberPart::Minor, minor)?;
        let (tail, build) = cut(tail, '+');
        let (patch, pre) = cut(tail, '-');
        let patch = number(NumberPart::Patch, patch)?;
        if let Some(pre) = pre {
            pre.split('.').try_for_each(check_pre_identifier)?;
        }
        if let Some(build) = build {
            build.split('.').try_for_each(check_build_identifier)?;
        }
        let owned = |part: Option<&str>| part.unwrap_or_default().to_owned();
        Ok(Self { major, minor, patch, pre: owned(pre), build: owned(build) })
    }

    /// Reads a version as lenient callers do: surrounding white space, one leading `v`, leading zeros and
    /// missing minor or patch numbers are accepted. Used by CEL `semver_compare` and platform checks.
    ///
    /// # Errors
    /// A short version with a pre-release or build suffix, and whatever [`Version::parse`] refuses after
    /// the repairs (spec 03 §3.2).
    pub fn parse_tolerant(text: &str) -> Result<Self, VersionError> {
        let trimmed = text.trim();
        let trimmed = trimmed.strip_prefix('v').unwrap_or(trimmed);
        let mut parts: Vec<String> = trimmed.splitn(3, '.').map(without_leading_zeros).collect();
        if parts.len() < 3 {
            if parts.last().is_some_and(|last| last.contains(['+', '-'])) {
                return Err(VersionError::ShortWithSuffix);
            }
            parts.resize(3, "0".to_owned());
        }
        Self::parse(&parts.join("."))
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

    /// The pre-release identifiers without their leading `-`; empty if there are none.
    pub fn pre(&self) -> &str {
        &self.pre
    }

    /// The build metadata without its leading `+`; empty if there is none.
    pub fn build(&self) -> &str {
        &self.build
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
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

/// One identifier of a pre-release or release; numbers come before texts.
///
/// Digits beyond u64 occur in constraint operands only, and compare as text there.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Identifier<'a> {
    Number(u64),
    Text(&'a str),
}

/// Compares dot-separated identifiers pairwise; if all are equal, the longer list is greater.
pub(crate) fn compare_identifiers(a: &str, b: &str) -> Ordering {
    fn identifiers(text: &str) -> impl Iterator<Item = Identifier<'_>> {
        text.split('.').map(|part| part.parse().map_or(Identifier::Text(part), Identifier::Number))
    }
    identifiers(a).cmp(identifiers(b))
}

/// Checks one identifier of a pre-release, or of a release, which obeys the same rule.
pub(crate) fn check_pre_identifier(text: &str) -> Result<(), VersionError> {
    if text.is_empty() {
        Err(VersionError::PrereleaseEmpty)
    } else if is_digits(text) {
        if has_leading_zero(text) {
            return Err(VersionError::PrereleaseLeadingZeroes { text: text.to_owned() });
        }
        parse_u64(text).map(drop)
    } else if is_identifier(text) {
        Ok(())
    } else {
        Err(VersionError::PrereleaseCharacters { text: text.to_owned() })
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

fn number(part: NumberPart, text: &str) -> Result<u64, VersionError> {
    if !is_digits(text) {
        return Err(VersionError::NumberCharacters { part, text: text.to_owned() });
    }
    if has_leading_zero(text) {
        return Err(VersionError::NumberLeadingZeroes { part, text: text.to_owned() });
    }
    parse_u64(text)
}

/// Reads a text of which is known that it holds digits only.
fn parse_u64(text: &str) -> Result<u64, VersionError> {
    text.parse().map_err(|e: std::num::ParseIntError| match e.kind() {
        IntErrorKind::PosOverflow => VersionError::NumberTooLarge { text: text.to_owned() },
        _ => VersionError::NumberEmpty { text: text.to_owned() },
    })
}

fn cut(text: &str, separator: char) -> (&str, Option<&str>) {
    text.split_once(separator).map_or((text, None), |(head, tail)| (head, Some(tail)))
}

fn without_leading_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let stripped = part.trim_start_matches('0');
    if stripped.starts_with(|c: char| c.is_ascii_digit()) {
        stripped.to_owned()
    } else {
        format!("0{stripped}")
    }
}

/// True for ASCII digits only, and for the empty text.
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
    fn display_gives_the_text_back() {
        for text in ["0.0.0", "1.2.3-rc.1+b.007", "1.2.3+-", "18446744073709551615.0.0--"] {
            assert_eq!(Version::parse(text).map(|v| v.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn precedence_ascends() {
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

    #[test]
    fn tolerant_reading_follows_the_table() {
        for (text, expected) in [
            ("v1.2.3", "1.2.3"),
            (" 1.2.3 ", "1.2.3"),
            ("1", "1.0.0"),
            ("1.2", "1.2.0"),
            ("01.02.03", "1.2.3"),
            ("00.0.0", "0.0.0"),
            ("1.2.03-rc1", "1.2.3-rc1"),
            ("1.2.-1", "1.2.0-1"),
            ("1.2.3-rc.1+b", "1.2.3-rc.1+b"),
        ] {
            assert_eq!(Version::parse_tolerant(text).map(|v| v.to_string()), Ok(expected.to_owned()));
        }
        for text in ["1.2-rc1", "1.2+b"] {
            assert_eq!(Version::parse_tolerant(text), Err(VersionError::ShortWithSuffix));
        }
        for text in ["V1.0.0", "1.2.3.4", "1.2.x", "", "1.2.3-01", "vv1.0.0"] {
            assert!(Version::parse_tolerant(text).is_err(), "{text}");
        }
    }
}
