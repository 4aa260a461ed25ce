//! Catalogs to choose from. They are read once, then queried as the controller queries its catalogs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt;
use olm_api::labels;
use olm_cli_catalog::package::{CatalogPackage, missing};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::{Access, Source};
use olm_fbc::{Meta, SCHEMA_PACKAGE};
use olm_request::{is_available, priority, served_image};
use olm_resolve::{Catalog, CatalogError, CatalogSelector, Indexing, Offer, PackageIndex};
use olm_solve::SourceCatalog;
use olm_version::quote;

/// Catalog and its content.
#[derive(Debug, Default)]
pub(super) struct ReadCatalog {
    /// Name of the ClusterCatalog, else the source as given.
    pub(super) name: String,
    pub(super) priority: i32,
    labels: BTreeMap<String, String>,
    /// `true` if `spec.availabilityMode` is Unavailable, which excludes the catalog.
    switched_off: bool,
    /// Error that the controller would get from the catalog.
    fault: Option<CatalogError>,
    /// Requested packages.
    packages: BTreeMap<String, CatalogPackage>,
    /// All packages that were read, for the resolver.
    indexes: BTreeMap<String, Arc<PackageIndex>>,
}

/// All catalogs, by name.
#[derive(Debug, Default)]
pub(super) struct Catalogs {
    list: Vec<ReadCatalog>,
    /// Names of all packages in all catalogs that were read.
    package_names: BTreeSet<String>,
}

/// Parameters for reading catalogs.
pub(super) struct Reading<'a> {
    pub(super) access: &'a Access,
    /// Catalog sources as given on the command line.
    pub(super) sources: &'a [String],
    /// Priorities by source or catalog name. They override those of ClusterCatalogs.
    pub(super) priorities: BTreeMap<String, i32>,
    /// Requested packages.
    pub(super) packages: BTreeSet<String>,
    /// `true` to read the other packages, too, for dependencies.
    pub(super) others: bool,
    /// ClusterCatalogs that match none of these are not read.
    pub(super) selectors: Vec<&'a CatalogSelector>,
    pub(super) indexing: Indexing,
}

impl Reading<'_> {
    /// # Errors
    /// A source cannot be read, a catalog is named twice, or a priority names no catalog.
    pub(super) async fn read(mut self, session: &Session) -> Result<Catalogs, CliError> {
        let mut catalogs = Catalogs::default();
        for source in self.sources {
            match Source::parse(source)? {
                Source::Directory(_) | Source::Image(_) => {
                    let mut metas = BTreeMap::new();
                    let mut keep = |_: &str, meta| self.keep(&mut metas, &mut catalogs.package_names, meta);
                    self.access.read(source, session, &mut keep).await?;
                    let own_name = (labels::METADATA_NAME.to_owned(), source.clone());
                    catalogs.add(ReadCatalog {
                        name: source.clone(),
                        priority: 0,
                        labels: BTreeMap::from([own_name]),
                        ..self.packages(source, metas)?
                    })?;
                }
                Source::Cluster(requested) => {
                    self.read_cluster(requested.as_deref(), &mut catalogs, session).await?
                }
            }
        }
        for catalog in &mut catalogs.list {
            catalog.priority = self.priorities.remove(&catalog.name).unwrap_or(catalog.priority);
        }
        if let Some((name, _)) = self.priorities.first_key_value() {
            return Err(CliError::usage(format!(
                "--priority: there is no catalog {}; catalogs: {}",
                quote(name),
                catalogs.names().join(", ")
            )));
        }
        catalogs.list.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(catalogs)
    }

    async fn read_cluster(
        &self,
        requested: Option<&str>,
        catalogs: &mut Catalogs,
        session: &Session,
    ) -> Result<(), CliError> {
        let cluster = self.access.cluster.connect().await?;
        let mut all = cluster.catalogs(session).await?;
        if let Some(requested) = requested {
            let names: Vec<_> = all.iter().map(ResourceExt::name_any).collect();
            all.retain(|catalog| catalog.name_any() == requested);
            if all.is_empty() {
                return Err(CliError::no_candidate(format!(
                    "there is no ClusterCatalog {}; catalogs: {}",
                    quote(requested),
                    names.join(", ")
                )));
            }
        }
        for object in all {
            let name = object.name_any();
            let fault = served_image(&object).err();
            let switched_off = !is_available(&object);
            let mut metas = BTreeMap::new();
            let selected = self.selectors.iter().any(|selector| selector.matches(object.labels()));
            if fault.is_none() && selected && !switched_off {
                let mut keep = |_: &str, meta| self.keep(&mut metas, &mut catalogs.package_names, meta);
                cluster.read(&name, session, &mut keep).await?;
            }
            catalogs.add(ReadCatalog {
                priority: priority(&object),
                labels: object.labels().clone(),
                switched_off,
                fault,
                ..self.packages(&name, metas)?
            })?;
        }
        Ok(())
    }

    fn keep(
        &self,
        metas: &mut BTreeMap<String, Vec<Vec<u8>>>,
        names: &mut BTreeSet<String>,
        meta: Meta,
    ) -> Result<(), CliError> {
        let owner = meta.owner();
        if meta.schema == SCHEMA_PACKAGE && !owner.is_empty() {
            names.insert(owner.to_owned());
        }
        if !owner.is_empty() && (self.others || self.packages.contains(owner)) {
            metas.entry(owner.to_owned()).or_default().push(meta.blob);
        }
        Ok(())
    }

    fn packages(
        &self,
        catalog: &str,
        metas: BTreeMap<String, Vec<Vec<u8>>>,
    ) -> Result<ReadCatalog, CliError> {
        let mut read = ReadCatalog { name: catalog.to_owned(), ..ReadCatalog::default() };
        for (name, lines) in metas {
            let package = CatalogPackage::new(catalog, &name, &lines, self.indexing)?;
            read.indexes.insert(name.clone(), Arc::clone(&package.index));
            if self.packages.contains(&name) {
                read.packages.insert(name, package);
            }
        }
        Ok(read)
    }
}

impl Catalogs {
    fn add(&mut self, catalog: ReadCatalog) -> Result<(), CliError> {
        if self.list.iter().any(|known| known.name == catalog.name) {
            return Err(CliError::usage(format!("catalog {} is given more than once", quote(&catalog.name))));
        }
        self.list.push(catalog);
        Ok(())
    }

    /// Responses of the selected catalogs for `package`.
    pub(super) fn responses(&self, package: &str, selector: &CatalogSelector) -> Vec<Catalog> {
        let answer = |catalog: &ReadCatalog| Catalog {
            name: catalog.name.clone(),
            priority: catalog.priority,
            package: match &catalog.fault {
                Some(fault) => Err(fault.clone()),
                None => Ok(catalog.indexes.get(package).cloned()),
            },
        };
        self.selected(selector).map(answer).collect()
    }

    /// Package in each selected catalog that contains it, by descending priority.
    pub(super) fn packages(&self, package: &str, selector: &CatalogSelector) -> Vec<&CatalogPackage> {
        let mut catalogs: Vec<_> = self.selected(selector).collect();
        catalogs.sort_by_key(|catalog| Reverse(catalog.priority));
        catalogs.into_iter().filter_map(|catalog| catalog.packages.get(package)).collect()
    }

    /// Package in the catalog of this name.
    pub(super) fn package(&self, catalog: &str, package: &str) -> Option<&CatalogPackage> {
        let catalog = self.list.iter().find(|known| known.name == catalog)?;
        catalog.packages.get(package)
    }

    /// All bundles of a package in all catalogs, by descending priority of the catalog.
    pub(super) fn offers<'a>(&'a self, package: &str) -> impl Iterator<Item = &'a Offer> {
        let mut catalogs: Vec<_> = self.list.iter().collect();
        catalogs.sort_by_key(|catalog| Reverse(catalog.priority));
        let indexes: Vec<_> =
            catalogs.into_iter().filter_map(|catalog| catalog.indexes.get(package)).collect();
        indexes.into_iter().flat_map(|index| index.offers())
    }

    /// Package in every catalog that contains it, with the catalog's name.
    pub(super) fn indexes<'a>(
        &'a self,
        package: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a PackageIndex)> {
        let index =
            |catalog: &'a ReadCatalog| Some((catalog.name.as_str(), catalog.indexes.get(package)?.as_ref()));
        self.list.iter().filter_map(index)
    }

    /// Names of the catalogs that `selector` matches.
    pub(super) fn selected_names(&self, selector: &CatalogSelector) -> BTreeSet<String> {
        self.selected(selector).map(|catalog| catalog.name.clone()).collect()
    }

    /// Catalogs for a full solve. The second list contains the errors of the catalogs that are left out.
    pub(super) fn for_solving(&self) -> (Vec<SourceCatalog>, Vec<&CatalogError>) {
        let source = |catalog: &ReadCatalog| SourceCatalog {
            name: catalog.name.clone(),
            priority: catalog.priority,
            packages: catalog.indexes.clone(),
        };
        let asked = || self.list.iter().filter(|catalog| !catalog.switched_off);
        let sound = asked().filter(|catalog| catalog.fault.is_none());
        (sound.map(source).collect(), asked().filter_map(|catalog| catalog.fault.as_ref()).collect())
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.list.iter().map(|catalog| catalog.name.as_str()).collect()
    }

    /// Message that no catalog has the package, with similar names.
    pub(super) fn missing(&self, package: &str) -> String {
        missing(&self.names().join(", "), package, &self.package_names)
    }

    /// Reports whether `selector` matches any catalog, whatever its state.
    pub(super) fn exists(&self, selector: &CatalogSelector) -> bool {
        self.list.iter().any(|catalog| selector.matches(&catalog.labels))
    }

    fn selected(&self, selector: &CatalogSelector) -> impl Iterator<Item = &ReadCatalog> {
        self.list.iter().filter(|catalog| !catalog.switched_off && selector.matches(&catalog.labels))
    }
}
