//! What an extension or a gate asks for beyond the reference (docs/design/additions.md#annotations,
//! docs/design/additions.md#dependency-modes, docs/design/additions.md#best-effort-resolution,
//! docs/design/additions.md#upgrade-scope, docs/design/additions.md#unsatisfied-candidates,
//! docs/design/additions.md#skipped-versions).

use std::fmt;
use std::str::FromStr;

use olm_version::{Version, quote};

use crate::cluster::ClusterFacts;
use crate::constraint::{Requirement, Surroundings};

/// Everything beyond the reference. The default is the reference.
///
/// No rule ever drops a bundle of the installed version: rules decide what may come, not what may stay.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules<'a> {
    /// What a declared dependency means.
    pub dependencies: DependencyMode,
    /// Property types whose requirements do not count (annotation `ext/ignore-dependencies`).
    pub ignored_requirements: &'a [String],
    /// What is installed and served besides this extension. Under [`DependencyMode::Report`] and
    /// [`DependencyMode::Check`] a bundle meets its requirements by itself or not at all where this is absent.
    pub surroundings: Option<&'a Surroundings>,
    /// What upgrades must not break, under [`DependencyMode::Check`].
    pub dependents: &'a [Dependent],
    /// How far an upgrade may go.
    pub upgrade_scope: Option<UpgradeScope>,
    /// Bundles that an entry of a considered channel skips are not installed anew.
    pub exclude_skipped: bool,
    /// What bundles may demand of the cluster; absent where nobody looks (gate `ClusterConstraints`).
    pub cluster: Option<&'a ClusterFacts>,
    /// Catalogs that cannot answer are left out where that is safe (gate `BestEffortResolution`,
    /// docs/design/additions.md#best-effort-resolution).
    pub best_effort: bool,
}

/// An installed extension that needs something of the one that is resolved.
#[derive(Debug, Clone)]
pub struct Dependent {
    /// The extension's name.
    pub extension: String,
    /// Its installed bundle.
    pub bundle: String,
    /// Its requirements that hold now. One that neither the candidate nor the surroundings meet would break.
    pub requirements: Vec<Requirement>,
}

/// What is done about declared dependencies (docs/design/additions.md#dependency-modes).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DependencyMode {
    /// The chosen bundle is refused if it declares any.
    #[default]
    Reject,
    /// They are judged and reported.
    Report,
    /// Bundles whose dependencies are not met are passed over.
    Check,
}

/// How far an upgrade may go. Downgrades and the installed version are not held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeScope {
    /// Within the installed major and minor version.
    Patch,
    /// Within the installed major version.
    Minor,
    /// Anywhere.
    Major,
}

/// A text that is none of the values that exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown value {}, allowed are {}", quote(value), allowed.join(", "))]
pub struct UnknownValue {
    /// The text.
    pub value: String,
    /// The values that exist.
    pub allowed: &'static [&'static str],
}

impl Rules<'_> {
    /// Whether requirements of this property type count.
    pub(crate) fn counts(&self, property_type: &str) -> bool {
        !self.ignored_requirements.iter().any(|ignored| ignored == property_type)
    }
}

impl DependencyMode {
    const NAMES: &'static [&'static str] = &["Reject", "Report", "Check"];
}

impl FromStr for DependencyMode {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, UnknownValue> {
        match text {
            "Reject" => Ok(Self::Reject),
            "Report" => Ok(Self::Report),
            "Check" => Ok(Self::Check),
            other => Err(UnknownValue { value: other.to_owned(), allowed: Self::NAMES }),
        }
    }
}

impl UpgradeScope {
    const NAMES: &'static [&'static str] = &["patch", "minor", "major"];

    /// Whether an upgrade between these versions stays within the scope.
    pub fn admits(self, from: &Version, to: &Version) -> bool {
        to <= from
            || match self {
                Self::Patch => (to.major(), to.minor()) == (from.major(), from.minor()),
                Self::Minor => to.major() == from.major(),
                Self::Major => true,
            }
    }
}

impl fmt::Display for UpgradeScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Patch => "patch",
            Self::Minor => "minor",
            Self::Major => "major",
        })
    }
}

impl FromStr for UpgradeScope {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, UnknownValue> {
        match text {
            "patch" => Ok(Self::Patch),
            "minor" => Ok(Self::Minor),
            "major" => Ok(Self::Major),
            other => Err(UnknownValue { value: other.to_owned(), allowed: Self::NAMES }),
        }
    }
}

#[cfg(test)]
mod tests {
    use olm_version::Version;

    use super::{DependencyMode, UpgradeScope};

    #[test]
    fn a_scope_ends_where_its_number_changes() {
        use UpgradeScope::{Major, Minor, Patch};
        for (from, to, within) in [
            ("1.2.3", "1.2.4", &[Patch, Minor, Major][..]),
            ("1.2.3", "1.3.0", &[Minor, Major]),
            ("1.2.3", "2.0.0-rc.1", &[Major]),
            ("1.2.3", "0.9.0", &[Patch, Minor, Major]),
            ("1.2.3", "1.2.3", &[Patch, Minor, Major]),
        ] {
            let version = |text| Version::parse(text).unwrap();
            for scope in [Patch, Minor, Major] {
                let admitted = scope.admits(&version(from), &version(to));
                assert_eq!(admitted, within.contains(&scope), "{scope} from {from} to {to}");
            }
        }
    }

    #[test]
    fn values_are_read_letter_by_letter() {
        assert_eq!("Check".parse(), Ok(DependencyMode::Check));
        assert_eq!("minor".parse(), Ok(UpgradeScope::Minor));
        let text = |fault: super::UnknownValue| fault.to_string();
        assert_eq!(
            "Minor".parse::<UpgradeScope>().map_err(text),
            Err(r#"unknown value "Minor", allowed are patch, minor, major"#.to_owned())
        );
        assert_eq!(
            "check".parse::<DependencyMode>().map_err(text),
            Err(r#"unknown value "check", allowed are Reject, Report, Check"#.to_owned())
        );
    }
}
