//! What is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use olm_resolve::{Gvk, PackageIndex, Provider, Requirement, UpgradePolicy, UpgradeScope};

/// Everything a plan depends on. The order of the lists does not matter.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// What must be installed afterwards, each at the best possible bundle. A wish for a package that is installed asks for
    /// its best upgrade and takes the place of the extension's own wish.
    pub wanted: Vec<Wish>,
    /// What is installed. It stays installed, and moves only where the plan needs that.
    pub installed: Vec<InstalledExtension>,
    /// The catalogs to choose from, with everything they offer.
    pub catalogs: &'a [SourceCatalog],
    /// The kinds that the cluster serves, those of installed extensions included.
    pub served: BTreeSet<Gvk>,
    /// When to give up.
    pub deadline: Instant,
}

/// Which bundles of a package are acceptable: `spec.source.catalog` of an extension.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// The package's name.
    pub package: String,
    /// Channels to choose from; empty means all.
    pub channels: Vec<String>,
    /// The version constraint; absent or empty admits every version.
    pub version: Option<String>,
    /// Which upgrades are allowed.
    pub policy: UpgradePolicy,
    /// Names of the catalogs that the selector admits; `None` means all.
    pub catalogs: Option<BTreeSet<String>>,
    /// Property types whose requirements do not count for bundles of this package.
    pub ignored_requirements: Vec<String>,
    /// How far an upgrade of the package may go, if it is installed (docs/design/additions.md#upgrade-scope).
    pub upgrade_scope: Option<UpgradeScope>,
    /// Leave out bundles that an entry of their channel skips (docs/design/additions.md#skipped-versions).
    pub exclude_skipped: bool,
}

/// An extension that is installed.
#[derive(Debug, Clone)]
pub struct InstalledExtension {
    /// Name of the ClusterExtension.
    pub extension: String,
    /// What its specification asks for; where it may be moved to.
    pub wish: Wish,
    /// The installed bundle's name.
    pub bundle: String,
    /// The installed bundle's version.
    pub version: String,
    /// The installed bundle's release, where one was recorded apart from the version.
    pub release: Option<String>,
    /// What the installed bundle provides.
    pub provider: Provider,
    /// What it requires; leave out what its extension is told to ignore.
    pub requirements: Vec<Requirement>,
}

/// One catalog with all of its packages, which must have been indexed with their properties.
#[derive(Debug, Clone)]
pub struct SourceCatalog {
    /// Name of the ClusterCatalog.
    pub name: String,
    /// `spec.priority`; higher is preferred.
    pub priority: i32,
    /// The packages by name.
    pub packages: BTreeMap<String, Arc<PackageIndex>>,
}
