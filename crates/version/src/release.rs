//! Releases, that is packaging revisions of a version, and the order of bundles (docs/design/resolution.md#releases).

use std::cmp::Ordering;
use std::fmt;

use crate::quote::quote;
use crate::version::{Version, VersionError, check_pre_identifier, compare_identifiers};

/// Maximum length of a release in bytes.
const MAX_RELEASE_BYTES: usize = 20;

/// Release: dot-separated identifiers under the rules of a pre-release, or empty.
///
/// ```
/// use olm_version::Release;
///
/// assert_eq!(Release::parse("a.10")?.as_str(), "a.10");
/// assert!(Release::parse("01").is_err());
/// # Ok::<(), olm_version::ReleaseError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Release(String);

/// Parse error of a release. The texts are part of the API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// More than 20 bytes.
    #[error("invalid release {}: exceeds maximum length of {MAX_RELEASE_BYTES} characters", quote(.0))]
    TooLong(String),
    /// Invalid segments, each with its index from 0.
    #[error("invalid release {}: {}", quote(text), segment_lines(segments))]
    BadSegments {
        /// The release as given.
        text: String,
        /// Index and fault of each bad segment, ascending.
        segments: Vec<(usize, VersionError)>,
    },
}

fn segment_lines(segments: &[(usize, VersionError)]) -> String {
    let lines: Vec<_> = segments.iter().map(|(index, fault)| format!("segment {index}: {fault}")).collect();
    lines.join("\n")
}

impl Release {
    /// Parses a release. The empty text is the empty release.
    ///
    /// # Errors
    /// The text is too long, or some segment breaks the rules of a pre-release identifier.
    pub fn parse(text: &str) -> Result<Self, ReleaseError> {
        if text.len() > MAX_RELEASE_BYTES {
            return Err(ReleaseError::TooLong(text.to_owned()));
        }
        if text.is_empty() {
            return Ok(Self::default());
        }
        let faults = text.split('.').map(check_pre_identifier).enumerate();
        let segments: Vec<_> = faults.filter_map(|(index, fault)| Some((index, fault.err()?))).collect();
        if segments.is_empty() {
            Ok(Self(text.to_owned()))
        } else {
            Err(ReleaseError::BadSegments { text: text.to_owned(), segments })
        }
    }

    /// The release as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Version of a bundle with its release, the sort key of bundles.
///
/// Order and equality: version, then release. A missing release equals an explicitly empty one and is the lowest.
/// Others compare like pre-releases (`9` < `10` < `a`, `1` < `1.1`).
///
/// ```
/// use olm_version::VersionRelease;
///
/// let first = VersionRelease::parse("1.4.0", Some("1"))?;
/// let second = VersionRelease::parse("1.4.0+2", None)?;
/// assert!(first < second);
/// assert_eq!(second.shown(true), ("1.4.0".to_owned(), Some("2".to_owned())));
/// assert_eq!(second.shown(false), ("1.4.0+2".to_owned(), None));
/// # Ok::<(), olm_version::VersionReleaseError>(())
/// ```
#[derive(Debug, Clone)]
pub struct VersionRelease {
    version: Version,
    release: Option<Release>,
}

/// Parse error of version and release of a bundle. The texts are part of the API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionReleaseError {
    /// Invalid version without a separate release.
    #[error(transparent)]
    Version(#[from] VersionError),
    /// Invalid version beside an explicit release.
    #[error("error parsing version {}: {fault}", quote(text))]
    ExplicitVersion {
        /// The version as given.
        text: String,
        /// Fault of the version.
        fault: VersionError,
    },
    /// Invalid explicit release.
    #[error("error parsing release {}: {fault}", quote(text))]
    ExplicitRelease {
        /// The release as given.
        text: String,
        /// Fault of the release.
        fault: ReleaseError,
    },
}

impl VersionRelease {
    /// Parses a version with its release (docs/design/resolution.md#releases).
    ///
    /// Without a `release`, build metadata that is a valid release becomes the release and is removed from the
    /// version. Other build metadata stays in the version. With a `release`, even an empty one, the version keeps its
    /// build metadata. A caller without the feature gate `BundleReleaseSupport` passes `None`.
    ///
    /// # Errors
    /// The version, or else the explicit release, is not valid.
    pub fn parse(version: &str, release: Option<&str>) -> Result<Self, VersionReleaseError> {
        let Some(release) = release else {
            return Ok(Self::from_build_metadata(Version::parse(version)?));
        };
        let version = Version::parse(version)
            .map_err(|fault| VersionReleaseError::ExplicitVersion { text: version.to_owned(), fault })?;
        let release = Release::parse(release)
            .map_err(|fault| VersionReleaseError::ExplicitRelease { text: release.to_owned(), fault })?;
        Ok(Self { version, release: Some(release) })
    }

    fn from_build_metadata(mut version: Version) -> Self {
        let release = match Release::parse(version.build()) {
            Ok(release) if !release.0.is_empty() => {
                version.build.clear();
                Some(release)
            }
            _ => None,
        };
        Self { version, release }
    }

    /// Version without build metadata that became the release.
    pub fn version(&self) -> &Version {
        &self.version
    }

    /// Reports whether the version is a pre-release, such as `1.0.0-rc.1`.
    pub fn is_pre_release(&self) -> bool {
        !self.version.pre().is_empty()
    }

    /// Release: `None` if missing, empty if given as empty.
    pub fn release(&self) -> Option<&Release> {
        self.release.as_ref()
    }

    fn release_text(&self) -> &str {
        self.release.as_ref().map_or("", Release::as_str)
    }

    /// Version and release as in `status.install.bundle` (docs/design/resolution.md#releases).
    ///
    /// Without `release_support` the release is shown as build metadata, so that parsing the text returns the same
    /// value.
    pub fn shown(&self, release_support: bool) -> (String, Option<String>) {
        if release_support {
            return (self.version.to_string(), self.release.as_ref().map(|r| r.0.clone()));
        }
        let mut version = self.version.clone();
        if !self.release_text().is_empty() {
            self.release_text().clone_into(&mut version.build);
        }
        (version.to_string(), None)
    }
}

impl Ord for VersionRelease {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b) = (self.release_text(), other.release_text());
        self.version
            .cmp(&other.version)
            .then_with(|| b.is_empty().cmp(&a.is_empty()))
            .then_with(|| compare_identifiers(a, b))
    }
}

impl PartialOrd for VersionRelease {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for VersionRelease {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for VersionRelease {}

#[cfg(test)]
mod tests {
    use super::{Release, VersionRelease};

    fn read(version: &str, release: Option<&str>) -> VersionRelease {
        VersionRelease::parse(version, release).unwrap()
    }

    #[test]
    fn release_errors_are_exact() {
        for (text, message) in [
            (
                "123456789012345678901",
                r#"invalid release "123456789012345678901": exceeds maximum length of 20 characters"#,
            ),
            (
                "01.a..b_c",
                "invalid release \"01.a..b_c\": segment 0: Numeric PreRelease version must not contain leading \
                 zeroes \"01\"\nsegment 2: Prerelease is empty\nsegment 3: Invalid character(s) found in \
                 prerelease \"b_c\"",
            ),
        ] {
            assert_eq!(Release::parse(text).map_err(|e| e.to_string()), Err(message.to_owned()));
        }
    }

    // docs/design/resolution.md#releases: version and release for build metadata and explicit releases.
    #[test]
    fn version_and_release_parse_by_the_table() {
        let at_limit = "12345678901234567890";
        for (version, release, expected) in [
            ("1.0.0+2", None, ("1.0.0", Some("2"))),
            ("1.0.0+a.1", None, ("1.0.0", Some("a.1"))),
            ("1.0.0", None, ("1.0.0", None)),
            ("1.0.0+007", None, ("1.0.0+007", None)),
            ("1.0.0+1.01", None, ("1.0.0+1.01", None)),
            ("1.0.0+abcdefghij.1234567890", None, ("1.0.0+abcdefghij.1234567890", None)),
            ("1.0.0+18446744073709551616", None, ("1.0.0+18446744073709551616", None)),
            ("1.0.0+18446744073709551615", None, ("1.0.0", Some("18446744073709551615"))),
            ("1.0.0+2", Some("5"), ("1.0.0+2", Some("5"))),
            ("1.0.0", Some(""), ("1.0.0", Some(""))),
            ("1.0.0-rc.1", Some("a.9"), ("1.0.0-rc.1", Some("a.9"))),
        ] {
            let read = read(version, release);
            let shown = (read.version().to_string(), read.release().map(Release::as_str));
            assert_eq!((shown.0.as_str(), shown.1), expected, "{version} {release:?}");
        }
        assert_eq!(Release::parse(at_limit).map_err(|e| e.to_string()), Ok(Release(at_limit.to_owned())));
        for (version, release, message) in [
            ("1.0", None, "No Major.Minor.Patch elements found"),
            ("1.0", Some("1"), r#"error parsing version "1.0": No Major.Minor.Patch elements found"#),
            (
                "1.0.0",
                Some("01"),
                "error parsing release \"01\": invalid release \"01\": segment 0: Numeric PreRelease version must \
                 not contain leading zeroes \"01\"",
            ),
        ] {
            let error = VersionRelease::parse(version, release).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }

    // Case resolution-61
    #[test]
    fn releases_order_bundles_of_the_same_version() {
        assert!(read("1.0.0+1", None) > read("1.0.0", None));
        assert_eq!(read("1.0.0+007", None), read("1.0.0", None));
        assert_eq!(read("1.0.0+abcdefghij.1234567890", None), read("1.0.0", None));
        assert!(read("1.0.0-rc.1+5", None) < read("1.0.0", None));
        for pair in ["", "9", "10", "10.1", "a"].windows(2) {
            assert!(read("1.0.0", Some(pair[0])) < read("1.0.0", Some(pair[1])), "{pair:?}");
        }
        assert_eq!(read("1.0.0", Some("")), read("1.0.0", None));
    }

    // Case resolution-62
    #[test]
    fn explicit_release_outranks_build_metadata() {
        let (explicit, legacy) = (read("1.0.0", Some("5")), read("1.0.0+2", None));
        assert!(explicit > legacy);
        assert_eq!(explicit.shown(true), ("1.0.0".to_owned(), Some("5".to_owned())));
        assert!(read("1.0.0", None) < legacy);
        assert_eq!(legacy.shown(false), ("1.0.0+2".to_owned(), None));
    }

    #[test]
    fn shown_build_metadata_parses_back() {
        assert_eq!(read("1.0.0+2", None).shown(true), ("1.0.0".to_owned(), Some("2".to_owned())));
        assert_eq!(read("1.0.0+2", Some("")).shown(true), ("1.0.0+2".to_owned(), Some(String::new())));
        assert_eq!(read("1.0.0+007", None).shown(true), ("1.0.0+007".to_owned(), None));
        assert_eq!(read("1.0.0+007", None).shown(false), ("1.0.0+007".to_owned(), None));
    }
}
