//! Input of the solver.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use olm_resolve::{Gvk, PackageIndex, Provider, Requirement, UpgradePolicy, UpgradeScope};

/// Complete input of the solver. The order of the lists does not matter.
#[derive(Debug, Clone)]
pub struct SolverInput<'a> {
    /// Packages that must be installed, each at the best possible bundle. Constraints for an installed package
    /// request its best upgrade and replace the extension's own constraints.
    pub requested: Vec<PackageConstraints>,
    /// Installed extensions. They stay installed, and change only where the plan requires it.
    pub installed: Vec<InstalledExtension>,
    /// Available catalogs with all their content.
    pub catalogs: &'a [SourceCatalog],
    /// Kinds that the cluster serves, including those of installed extensions.
    pub served: BTreeSet<Gvk>,
    /// Time at which the search ends with an error.
    pub deadline: Instant,
}

/// Acceptable bundles of a package, as in `spec.source.catalog` of an extension.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PackageConstraints {
    /// Name of the package.
    pub package: String,
    /// Allowed channels. Empty means all.
    pub channels: Vec<String>,
    /// Version constraint. Absent or empty admits every version.
    pub version: Option<String>,
    /// Policy for allowed upgrades.
    pub policy: UpgradePolicy,
    /// Names of the catalogs that the selector admits. `None` means all.
    pub catalogs: Option<BTreeSet<String>>,
    /// Property types whose requirements are ignored for bundles of this package.
    pub ignored_requirements: Vec<String>,
    /// Largest version step of an upgrade, if the package is installed (docs/design/additions.md#upgrade-scope).
    pub upgrade_scope: Option<UpgradeScope>,
    /// `true` to exclude bundles that an entry of their channel skips (docs/design/additions.md#skipped-versions).
    pub exclude_skipped: bool,
}

/// Installed extension.
#[derive(Debug, Clone)]
pub struct InstalledExtension {
    /// Name of the ClusterExtension.
    pub extension: String,
    /// Constraints from its specification, which limit the bundles that it can change to.
    pub constraints: PackageConstraints,
    /// Name of the installed bundle.
    pub bundle: String,
    /// Version of the installed bundle.
    pub version: String,
    /// Release of the installed bundle, if recorded apart from the version.
    pub release: Option<String>,
    /// Kinds and properties that the installed bundle provides.
    pub provider: Provider,
    /// Requirements of the installed bundle, without those that the extension ignores.
    pub requirements: Vec<Requirement>,
}

/// Catalog with all of its packages, which must have been indexed with their properties.
#[derive(Debug, Clone)]
pub struct SourceCatalog {
    /// Name of the ClusterCatalog.
    pub name: String,
    /// `spec.priority`. Higher is preferred.
    pub priority: i32,
    /// Packages by name.
    pub packages: BTreeMap<String, Arc<PackageIndex>>,
}
