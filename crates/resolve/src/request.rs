//! Request: requested package and installed bundle (docs/design/resolution.md#resolver-inputs).

use olm_version::{VersionRelease, VersionReleaseError, quote};

use crate::rules::Rules;

/// Request of an extension: `spec.source.catalog` without its selector, the installed bundle, and the rules.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Name of the package.
    pub package: &'a str,
    /// Requested channels. Empty means all.
    pub channels: &'a [String],
    /// Version constraint as written. Absent or empty admits every version.
    pub version: Option<&'a str>,
    /// Policy for allowed upgrades.
    pub policy: UpgradePolicy,
    /// Installed bundle, if any.
    pub installed: Option<Installed<'a>>,
    /// Rules beyond the reference. None by default.
    pub rules: Rules<'a>,
}

/// Policy for successors of the installed bundle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UpgradePolicy {
    /// Successors according to the catalog, and the installed version itself.
    #[default]
    CatalogProvided,
    /// Any bundle.
    SelfCertified,
}

/// Installed bundle as recorded in its metadata.
#[derive(Debug, Clone, Copy)]
pub struct Installed<'a> {
    /// Name of the bundle, to which `replaces` and `skips` refer.
    pub name: &'a str,
    /// Version of the bundle.
    pub version: &'a str,
    /// Release of the bundle, if recorded apart from the version.
    pub release: Option<&'a str>,
}

/// Installed bundle as the origin of an upgrade.
#[derive(Debug, Clone)]
pub struct UpgradeOrigin<'a> {
    /// Name of the bundle.
    pub name: &'a str,
    /// Version and release of the bundle.
    pub version: VersionRelease,
}

impl<'a> Request<'a> {
    /// Version constraint, if any.
    pub(crate) fn range(&self) -> Option<&'a str> {
        self.version.filter(|text| !text.is_empty())
    }

    /// Sentence about the request, up to the catalogs (docs/design/resolution.md#resolution-errors).
    pub(crate) fn summary(&self, finding: &str) -> String {
        let mut text = String::new();
        if let Some(installed) = self.installed {
            text = format!("error upgrading from currently installed version {}: ", quote(installed.version));
        }
        text += &format!("{finding} for package {}", quote(self.package));
        if let Some(version) = self.range() {
            text += &format!(" matching version {}", quote(version));
        }
        if !self.channels.is_empty() {
            text += &format!(" in channels [{}]", self.channels.join(" "));
        }
        text
    }

    /// `true` if the installed bundle is kept although the resolution failed: no ClusterCatalog matches the
    /// selector, and the request names either no version or exactly the installed one, compared as text
    /// (docs/design/resolution.md#fallback). `catalog_exists` is `true` if any ClusterCatalog matches, whatever its
    /// state.
    ///
    /// ```
    /// use olm_resolve::{Installed, Request, Rules, UpgradePolicy};
    ///
    /// let request = Request {
    ///     package: "demo",
    ///     channels: &[],
    ///     version: None,
    ///     policy: UpgradePolicy::CatalogProvided,
    ///     installed: Some(Installed { name: "demo.v1.0.0", version: "1.0.0", release: None }),
    ///     rules: Rules::default(),
    /// };
    /// assert!(request.keeps_installed(false) && !request.keeps_installed(true));
    /// ```
    pub fn keeps_installed(&self, catalog_exists: bool) -> bool {
        let admits = |installed: Installed<'_>| self.range().is_none_or(|range| range == installed.version);
        !catalog_exists && self.installed.is_some_and(admits)
    }
}

impl<'a> Installed<'a> {
    /// Converts it to the origin of an upgrade.
    ///
    /// # Errors
    /// Its version or release is unreadable.
    pub fn origin(&self) -> Result<UpgradeOrigin<'a>, VersionReleaseError> {
        Ok(UpgradeOrigin { name: self.name, version: VersionRelease::parse(self.version, self.release)? })
    }
}
