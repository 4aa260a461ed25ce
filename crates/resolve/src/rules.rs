//! Rules beyond the reference, set by annotations of an extension or by feature gates
//! (docs/design/additions.md#annotations, docs/design/additions.md#dependency-modes,
//! docs/design/additions.md#best-effort-resolution, docs/design/additions.md#upgrade-scope,
//! docs/design/additions.md#unsatisfied-candidates, docs/design/additions.md#skipped-versions).

use std::fmt;
use std::str::FromStr;

use olm_version::{Version, quote};

use crate::cluster::ClusterFacts;
use crate::constraint::{AvailableProviders, Requirement};
use crate::group::GroupStep;
use crate::package::Offer;

/// Rules beyond the reference. The default is the reference's behavior.
///
/// No rule ever rejects a bundle of the installed version: rules restrict changes, not the installed bundle.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules<'a> {
    /// Handling of declared dependencies.
    pub dependencies: DependencyMode,
    /// Property types whose requirements are ignored (annotation `ext/ignore-dependencies`).
    pub ignored_requirements: &'a [String],
    /// Installed bundles and served APIs besides this extension. If absent under [`DependencyMode::Report`] and
    /// [`DependencyMode::Check`], only the bundle itself can meet its requirements.
    pub providers: Option<&'a AvailableProviders>,
    /// Extensions that upgrades must not break, under [`DependencyMode::Check`].
    pub dependents: &'a [Dependent],
    /// Step of the upgrade group, under [`DependencyMode::Check`].
    pub group: Option<&'a GroupStep>,
    /// Largest version step of an upgrade.
    pub upgrade_scope: Option<UpgradeScope>,
    /// `true` if bundles that an entry of a considered channel skips, by name or by `skipRange`, are not newly
    /// installed.
    pub exclude_skipped: bool,
    /// Facts for cluster demands of bundles. `None` if these are ignored (feature gate `ClusterConstraints`).
    pub cluster: Option<&'a ClusterFacts>,
    /// `true` if unavailable catalogs are skipped where that is safe (feature gate `BestEffortResolution`,
    /// docs/design/additions.md#best-effort-resolution).
    pub best_effort: bool,
}

/// Installed extension with requirements on the one to resolve.
#[derive(Debug, Clone)]
pub struct Dependent {
    /// Name of the extension.
    pub extension: String,
    /// Name of its installed bundle.
    pub bundle: String,
    /// Its requirements that are met now. One that neither the candidate nor these providers meet would break.
    pub requirements: Vec<Requirement>,
}

/// Handling of declared dependencies (docs/design/additions.md#dependency-modes).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DependencyMode {
    /// A chosen bundle with declared dependencies is rejected.
    #[default]
    Reject,
    /// Dependencies are evaluated and reported.
    Report,
    /// Bundles with unmet dependencies are held back.
    Check,
}

/// Largest version step of an upgrade. Downgrades and the installed version are always allowed.
///
/// ```
/// use olm_resolve::UpgradeScope;
/// use olm_version::Version;
///
/// let (from, to) = (Version::parse("1.2.0")?, Version::parse("1.3.0")?);
/// assert!(UpgradeScope::Minor.admits(&from, &to) && !UpgradeScope::Patch.admits(&from, &to));
/// # Ok::<(), olm_version::VersionError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeScope {
    /// Within the installed major and minor version.
    Patch,
    /// Within the installed major version.
    Minor,
    /// Any version.
    Major,
}

/// Unknown value of an enumeration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown value {}, allowed: {}", quote(value), allowed.join(", "))]
pub struct UnknownValue {
    /// The unknown text.
    pub value: String,
    /// Allowed values.
    pub allowed: Vec<&'static str>,
}

/// Value of an enumeration by its name.
///
/// # Errors
/// No value has this name.
pub fn named<T: Copy>(text: &str, values: &[(&'static str, T)]) -> Result<T, UnknownValue> {
    let found = values.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    let allowed = || values.iter().map(|(name, _)| *name).collect();
    found.ok_or_else(|| UnknownValue { value: text.to_owned(), allowed: allowed() })
}

impl<'a> Rules<'a> {
    /// Providers that can meet requirements of this bundle: those after the step of the group if it is part of it.
    pub(crate) fn providers_for(&self, offer: &Offer) -> Option<&'a AvailableProviders> {
        match self.group {
            Some(GroupStep::Together { bundle, providers, .. }) if bundle == offer.name() => Some(providers),
            _ => self.providers,
        }
    }

    /// Dependents that this bundle must not break: those outside of the group's step if it is part of it.
    pub(crate) fn dependents_for(&self, offer: &Offer) -> &'a [Dependent] {
        match self.group {
            Some(GroupStep::Together { bundle, dependents, .. }) if bundle == offer.name() => dependents,
            _ => self.dependents,
        }
    }

    /// `true` unless requirements of this property type are ignored.
    pub(crate) fn counts(&self, property_type: &str) -> bool {
        !self.ignored_requirements.iter().any(|ignored| ignored == property_type)
    }
}

impl FromStr for DependencyMode {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, UnknownValue> {
        named(text, &[("Reject", Self::Reject), ("Report", Self::Report), ("Check", Self::Check)])
    }
}

impl UpgradeScope {
    /// `true` if an upgrade between these versions is within the scope.
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
        named(text, &[("patch", Self::Patch), ("minor", Self::Minor), ("major", Self::Major)])
    }
}

#[cfg(test)]
mod tests {
    use olm_version::Version;

    use super::{DependencyMode, UpgradeScope};

    #[test]
    fn scope_admits_changes_below_its_number() {
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
    fn values_are_case_sensitive() {
        assert_eq!("Check".parse(), Ok(DependencyMode::Check));
        assert_eq!("minor".parse(), Ok(UpgradeScope::Minor));
        let text = |fault: super::UnknownValue| fault.to_string();
        assert_eq!(
            "Minor".parse::<UpgradeScope>().map_err(text),
            Err(r#"unknown value "Minor", allowed: patch, minor, major"#.to_owned())
        );
        assert_eq!(
            "check".parse::<DependencyMode>().map_err(text),
            Err(r#"unknown value "check", allowed: Reject, Report, Check"#.to_owned())
        );
    }
}
