//! Versions of a platform. Only `major.minor` is compared (docs/design/operations.md#version-values).

use std::fmt;
use std::str::FromStr;

/// OpenShift release with two numbers: 4.23 is also 5.0.
const LAST_OF_FOUR: MinorVersion = MinorVersion { major: 4, minor: 23 };
const FIRST_OF_FIVE: MinorVersion = MinorVersion { major: 5, minor: 0 };

/// Minor release of a platform, such as 4.18 or 1.36. Ordered by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MinorVersion {
    /// Major number.
    pub major: u64,
    /// Minor number.
    pub minor: u64,
}

/// Error for a text that does not begin with `major.minor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected <major>.<minor>, such as 4.18")]
pub struct NotAVersion;

impl MinorVersion {
    /// Creates a version.
    pub const fn new(major: u64, minor: u64) -> Self {
        Self { major, minor }
    }

    /// Returns the OpenShift release that follows this one: 5.1 after 4.23, which is also 5.0.
    #[must_use]
    pub fn next_openshift(self) -> Self {
        let from = if self == LAST_OF_FOUR { FIRST_OF_FIVE } else { self };
        Self { minor: from.minor.saturating_add(1), ..from }
    }

    /// Returns the Kubernetes release that follows this one.
    #[must_use]
    pub fn next_kubernetes(self) -> Self {
        Self { minor: self.minor.saturating_add(1), ..self }
    }

    /// Returns the Kubernetes version in this OpenShift version: 1.(y+13) in 4.y, and 1.36 in 5.0, which is also
    /// 4.23. `None` for other major versions, which have no published mapping.
    pub(crate) fn kubernetes_of_openshift(self) -> Option<Self> {
        let first = match self.major {
            4 => 13,
            5 => 36,
            _ => return None,
        };
        Some(Self::new(1, self.minor.saturating_add(first)))
    }

    /// Returns `true` if a bundle that supports OpenShift up to this version supports `next`.
    pub fn supports_openshift(self, next: Self) -> bool {
        self >= next || (self == LAST_OF_FOUR && next == FIRST_OF_FIVE)
    }
}

impl FromStr for MinorVersion {
    type Err = NotAVersion;

    /// Parses the leading version in the notations of the platforms: `4.18`, `v1.36.2+k3s1`, `4.19.0-rc.2`, `1.30+`.
    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let (major, rest) = text.split_once('.').ok_or(NotAVersion)?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if !rest[end..].is_empty() && !rest[end..].starts_with(['.', '-', '+']) {
            return Err(NotAVersion);
        }
        Ok(Self { major: number(major)?, minor: number(&rest[..end])? })
    }
}

fn number(digits: &str) -> Result<u64, NotAVersion> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NotAVersion);
    }
    digits.parse().map_err(|_| NotAVersion)
}

impl fmt::Display for MinorVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn version(text: &str) -> MinorVersion {
        text.parse().unwrap()
    }

    // docs/design/operations.md#version-values last table, A38; docs/design/additions.md#platform-compatibility
    #[test]
    fn supported_maximum_by_current_openshift_version() {
        let rows = [
            ("4.21", "4.22", [true, true, true, true]),
            ("4.22", "4.23", [false, true, true, true]),
            ("4.23", "5.1", [false, false, false, true]),
            ("5.0", "5.1", [false, false, false, true]),
            ("5.1", "5.2", [false, false, false, false]),
        ];
        for (current, next, supported) in rows {
            assert_eq!(version(current).next_openshift(), version(next), "{current}");
            for (max, expected) in ["4.22", "4.23", "5.0", "5.1"].into_iter().zip(supported) {
                let got = version(max).supports_openshift(version(next));
                assert_eq!(got, expected, "at most {max} on {current}");
            }
        }
    }

    // docs/design/operations.md#constraints
    #[test]
    fn openshift_version_maps_to_kubernetes_version() {
        for (openshift, kubernetes) in
            [("4.0", "1.13"), ("4.18", "1.31"), ("4.23", "1.36"), ("5.0", "1.36"), ("5.1", "1.37")]
        {
            assert_eq!(
                version(openshift).kubernetes_of_openshift(),
                Some(version(kubernetes)),
                "{openshift}"
            );
        }
        for unknown in ["3.11", "6.0", "0.5"] {
            assert_eq!(version(unknown).kubernetes_of_openshift(), None, "{unknown}");
        }
    }

    // Cases operations-e33, seeds-s2-7
    #[test]
    fn version_notations_of_platforms_parse() {
        let rows = [
            ("4.18", Some((4, 18))),
            ("4.18.0-rc1", Some((4, 18))),
            ("4.19.0-0.nightly-2026-01-01-000000", Some((4, 19))),
            ("4.19.0-rc.2+x", Some((4, 19))),
            ("v1.36.2+k3s1", Some((1, 36))),
            ("1.30+", Some((1, 30))),
            ("", None),
            ("4", None),
            ("4.", None),
            (".18", None),
            ("4.x", None),
            ("4.18x", None),
            ("+4.18", None),
            ("4.18446744073709551616", None),
        ];
        for (text, expected) in rows {
            let got: Result<MinorVersion, NotAVersion> = text.parse();
            assert_eq!(got.ok(), expected.map(|(major, minor)| MinorVersion::new(major, minor)), "{text}");
        }
    }

    #[test]
    fn release_with_two_numbers_supports_both() {
        assert!(version("4.23").supports_openshift(version("5.0")));
        assert!(version("5.0").supports_openshift(version("4.23")));
        assert!(!version("4.22").supports_openshift(version("5.0")));
    }

    proptest! {
        /// The rule of the reference: the supported version must be higher than the current version, and 4.23 counts
        /// as 5.0.
        #[test]
        fn support_matches_the_rule_of_the_reference(max in (3..7_u64, 0..30_u64), current in (3..7_u64, 0..30_u64)) {
            let [max, current] = [max, current].map(|(major, minor)| MinorVersion::new(major, minor));
            let effective = if current == LAST_OF_FOUR { FIRST_OF_FIVE } else { current };
            prop_assert_eq!(max.supports_openshift(current.next_openshift()), max > effective);
        }

        #[test]
        fn displayed_version_parses_to_itself(major: u64, minor: u64) {
            let version = MinorVersion::new(major, minor);
            prop_assert_eq!(version.to_string().parse(), Ok(version));
        }
    }
}
