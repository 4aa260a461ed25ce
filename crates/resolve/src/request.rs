//! What is wanted, and what is installed (docs/design/resolution.md#resolver-inputs).

use olm_version::{Constraint, VersionRelease, VersionReleaseError, quote};

use crate::error::ResolveError;
use crate::rules::Rules;

/// What is wanted: `spec.source.catalog` without its selector, what is installed, and the rules that apply.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The package's name.
    pub package: &'a str,
    /// Channels to choose from; empty means all.
    pub channels: &'a [String],
    /// The version constraint as written; absent or empty admits every version.
    pub version: Option<&'a str>,
    /// Which upgrades are allowed.
    pub policy: UpgradePolicy,
    /// The installed bundle, if there is one.
    pub installed: Option<Installed<'a>>,
    /// What applies beyond the reference; nothing by default.
    pub rules: Rules<'a>,
}

/// Which bundles may follow the installed one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UpgradePolicy {
    /// Its successors according to the catalog, and the installed version itself.
    #[default]
    CatalogProvided,
    /// Any.
    SelfCertified,
}

/// The installed bundle as its metadata was recorded.
#[derive(Debug, Clone, Copy)]
pub struct Installed<'a> {
    /// The bundle's name, which `replaces` and `skips` refer to.
    pub name: &'a str,
    /// The bundle's version.
    pub version: &'a str,
    /// The bundle's release, where one was recorded apart from the version.
    pub release: Option<&'a str>,
}

/// The installed bundle as the start of an upgrade.
#[derive(Debug, Clone)]
pub struct Origin<'a> {
    /// The bundle's name.
    pub name: &'a str,
    /// The bundle's version and release.
    pub version: VersionRelease,
}

/// The sentence about what was looked for, up to the catalogs (docs/design/resolution.md#resolution-errors).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted(String);

impl Wanted {
    pub(crate) fn new(request: &Request<'_>, finding: &str) -> Self {
        let mut text = String::new();
        if let Some(installed) = request.installed {
            text = format!("error upgrading from currently installed version {}: ", quote(installed.version));
        }
        text += &format!("{finding} for package {}", quote(request.package));
        if let Some(version) = request.range() {
            text += &format!(" matching version {}", quote(version));
        }
        if !request.channels.is_empty() {
            text += &format!(" in channels [{}]", request.channels.join(" "));
        }
        Self(text)
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'a> Request<'a> {
    /// The version constraint, if there is any.
    pub(crate) fn range(&self) -> Option<&'a str> {
        self.version.filter(|text| !text.is_empty())
    }

    pub(crate) fn constraint(&self) -> Result<Option<Constraint>, ResolveError> {
        let parse = |range: &str| {
            Constraint::parse(range).map_err(|fault| ResolveError::Version { range: range.to_owned(), fault })
        };
        self.range().map(parse).transpose()
    }
}

impl<'a> Installed<'a> {
    /// The bundle as the start of an upgrade.
    ///
    /// # Errors
    /// Its version or release cannot be read.
    pub fn origin(&self) -> Result<Origin<'a>, VersionReleaseError> {
        Ok(Origin { name: self.name, version: VersionRelease::parse(self.version, self.release)? })
    }
}
