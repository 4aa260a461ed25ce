//! Content of one catalog: summaries in memory, objects in an unlinked temporary file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};

use olm_cli_catalog::classic_chain::heads;
use olm_cli_catalog::package::{CatalogPackage, missing};
use olm_cli_core::error::CliError;
use olm_fbc::{Meta, SCHEMA_BUNDLE, SCHEMA_PACKAGE};
use olm_resolve::Indexing;

use super::summary::Summary;

/// Content of a catalog.
pub(crate) struct Content {
    catalog: String,
    /// Packages by name.
    pub(crate) packages: Vec<Summary>,
    stored: BTreeMap<String, StoredPackage>,
    file: File,
}

/// Positions of the objects of a package.
#[derive(Default)]
struct StoredPackage {
    package: Option<Position>,
    others: Vec<Position>,
    bundles: BTreeMap<String, Position>,
}

/// Position of an object in the file.
#[derive(Clone, Copy)]
struct Position {
    offset: u64,
    length: usize,
}

impl Content {
    /// All objects of a package, indexed for the resolver.
    ///
    /// # Errors
    /// The catalog does not have the package, or an object does not match its schema.
    pub(crate) fn package(&self, name: &str) -> Result<CatalogPackage, CliError> {
        let stored = self.stored.get(name).ok_or_else(|| {
            let others = self.stored.keys().cloned().collect();
            CliError::no_candidate(missing(&self.catalog, name, &others))
        })?;
        let positions = stored.positions().chain(stored.bundles.values());
        let lines = positions.map(|position| read(&self.file, *position)).collect::<Result<Vec<_>, _>>()?;
        CatalogPackage::new(&self.catalog, name, &lines, Indexing::default())
    }

    /// The `olm.package` object of a package, as JSON.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn package_object(&self, name: &str) -> Result<Option<Vec<u8>>, CliError> {
        let position = self.stored.get(name).and_then(|stored| stored.package);
        position.map(|position| read(&self.file, position)).transpose()
    }
}

impl StoredPackage {
    /// Objects other than bundles.
    fn positions(&self) -> impl Iterator<Item = &Position> {
        self.package.iter().chain(&self.others)
    }
}

/// Writer of a [`Content`].
pub(super) struct Collector {
    catalog: String,
    file: BufWriter<File>,
    length: u64,
    stored: BTreeMap<String, StoredPackage>,
}

impl Collector {
    /// # Errors
    /// A temporary file cannot be created.
    pub(super) fn new(catalog: &str) -> Result<Self, CliError> {
        let file = tempfile::tempfile()
            .map_err(|error| CliError::operational(format!("cannot create a temporary file: {error}")))?;
        let file = BufWriter::with_capacity(1 << 18, file);
        Ok(Self { catalog: catalog.to_owned(), file, length: 0, stored: BTreeMap::new() })
    }

    /// Stores an object.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn add(&mut self, meta: Meta) -> Result<(), CliError> {
        if meta.owner().is_empty() {
            return Ok(());
        }
        let position = Position { offset: self.length, length: meta.blob.len() };
        self.file.write_all(&meta.blob).map_err(file_failure)?;
        self.length += meta.blob.len() as u64;
        let stored = self.stored.entry(meta.owner().to_owned()).or_default();
        match meta.schema.as_str() {
            // Of several objects with the same name, the last one wins.
            SCHEMA_PACKAGE => stored.package = Some(position),
            SCHEMA_BUNDLE => {
                stored.bundles.insert(meta.name, position);
            }
            _ => stored.others.push(position),
        }
        Ok(())
    }

    /// Ends the content, and summarizes its packages.
    ///
    /// # Errors
    /// The file fails.
    pub(super) fn finish(self) -> Result<Content, CliError> {
        let file = self.file.into_inner().map_err(|error| file_failure(error.into_error()))?;
        let mut packages = Vec::with_capacity(self.stored.len());
        for (name, stored) in &self.stored {
            packages.push(summary(&self.catalog, name, stored, &file)?);
        }
        Ok(Content { catalog: self.catalog, packages, stored: self.stored, file })
    }
}

/// Reads only the heads of channels, which the summary needs.
fn summary(catalog: &str, name: &str, stored: &StoredPackage, file: &File) -> Result<Summary, CliError> {
    let lines = stored.positions().map(|position| read(file, *position));
    let mut lines = lines.collect::<Result<Vec<_>, _>>()?;
    let outline = match CatalogPackage::new(catalog, name, &lines, Indexing::default()) {
        Ok(outline) => outline,
        Err(error) => return Ok(Summary::broken(catalog, name, error.to_string())),
    };
    let mut names: Vec<_> = outline.content.channels.iter().flat_map(heads).collect();
    names.sort_unstable();
    names.dedup();
    for position in names.iter().filter_map(|name| stored.bundles.get(*name)) {
        lines.push(read(file, *position)?);
    }
    let object = stored.package.map(|position| read(file, position)).transpose()?;
    Ok(match CatalogPackage::new(catalog, name, &lines, Indexing::default()) {
        Ok(package) => Summary::new(&package, object.as_deref(), stored.bundles.len()),
        Err(error) => Summary::broken(catalog, name, error.to_string()),
    })
}

fn read(file: &File, position: Position) -> Result<Vec<u8>, CliError> {
    let mut line = vec![0; position.length];
    olm_os::read_exact_at(file, &mut line, position.offset).map_err(file_failure)?;
    Ok(line)
}

fn file_failure(error: std::io::Error) -> CliError {
    CliError::operational(format!("temporary file with the content of a catalog: {error}"))
}
