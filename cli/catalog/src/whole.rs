//! Whole catalog: every package of one source.

use std::collections::{BTreeMap, BTreeSet};

use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, one_catalog};
use olm_fbc::{Meta, Origin, SCHEMA_BUNDLE};
use olm_resolve::Indexing;

use super::package::{CatalogPackage, missing};

/// Packages of a catalog, by name.
pub(super) type Packages = BTreeMap<String, CatalogPackage>;

/// Packages, and where their objects are.
#[derive(Debug, Default)]
pub(super) struct WholeCatalog {
    pub(super) packages: Packages,
    /// Position of each object, by schema, package and name. Of several, the last, which is the valid one.
    pub(super) origins: BTreeMap<(String, String, String), Origin>,
    /// Names of the packages that were not asked for.
    others: BTreeSet<String>,
}

impl WholeCatalog {
    /// Reads all packages of the catalog `source`, or those that `only` names if it is not empty.
    ///
    /// # Errors
    /// The source is more than one catalog, cannot be read, or has an object that does not match its schema.
    pub(super) async fn read(
        source: &str,
        only: &[String],
        access: &Access,
        session: &Session,
    ) -> Result<Self, CliError> {
        one_catalog(source)?;
        let mut lines: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
        let mut catalog = Self::default();
        let mut keep = |_: &str, meta: Meta| {
            let owner = meta.owner().to_owned();
            if owner.is_empty() {
                // Custom schemas may belong to no package.
            } else if only.is_empty() || only.contains(&owner) {
                catalog.origins.insert((meta.schema, owner.clone(), meta.name), meta.origin);
                lines.entry(owner).or_default().push(meta.blob);
            } else {
                catalog.others.insert(owner);
            }
            Ok(())
        };
        access.read(source, session, &mut keep).await?;
        let indexing = Indexing { properties: true, ..Indexing::default() };
        for (name, lines) in lines {
            session.check()?;
            let package = CatalogPackage::new(source, &name, &lines, indexing)?;
            catalog.packages.insert(name, package);
        }
        Ok(catalog)
    }

    /// Position of a bundle.
    pub(super) fn bundle_origin(&self, package: &str, bundle: &str) -> Option<&Origin> {
        self.origins.get(&(SCHEMA_BUNDLE.to_owned(), package.to_owned(), bundle.to_owned()))
    }

    /// Fails if one of `packages` is in none of the `catalogs`, which are given with their sources.
    ///
    /// # Errors
    /// The first such package, with the names that the first catalog has.
    pub(super) fn require(catalogs: &[(&str, &Self)], packages: &[String]) -> Result<(), CliError> {
        let absent =
            |name: &&String| !catalogs.iter().any(|(_, catalog)| catalog.packages.contains_key(*name));
        match (packages.iter().find(absent), catalogs) {
            (Some(name), [(source, catalog), ..]) => {
                Err(CliError::no_candidate(missing(source, name, &catalog.others)))
            }
            _ => Ok(()),
        }
    }
}
