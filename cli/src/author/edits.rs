//! Pending changes to the files of a catalog directory: checked as a whole, written all or none.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use olm_fbc::{Folder, Limits};
use olm_resolve::Indexing;

use super::catalog_dir::{CatalogDir, at, failed, write_whole};
use super::catalog_text::CatalogText;
use crate::catalog::package::{CatalogPackage, missing};
use crate::error::CliError;
use crate::progress::say;
use crate::session::Session;
use crate::source::DirectoryFolder;
use crate::validate::{finding_line, summary};

/// Edited files of a catalog.
pub(super) struct Edits<'a> {
    catalog: &'a CatalogDir,
    texts: BTreeMap<PathBuf, CatalogText>,
}

impl<'a> Edits<'a> {
    pub(super) fn new(catalog: &'a CatalogDir) -> Self {
        Self { catalog, texts: BTreeMap::new() }
    }

    /// Text of a file, which is read at the first call. A file that does not exist is created.
    ///
    /// # Errors
    /// The file cannot be read, or cannot be edited.
    pub(super) fn text(&mut self, file: &Path) -> Result<&mut CatalogText, CliError> {
        match self.texts.entry(file.to_owned()) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let path = self.catalog.path(file);
                let text = if path.exists() { self.catalog.read(file)? } else { String::new() };
                Ok(place.insert(CatalogText::parse(&text, &path.display().to_string())?))
            }
        }
    }

    /// Edited files, relative to the catalog directory.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.texts.keys().cloned().collect()
    }

    /// Package with the pending changes.
    ///
    /// # Errors
    /// The catalog does not have the package, or an object of it is invalid.
    pub(super) fn package(&self, name: &str, session: &Session) -> Result<CatalogPackage, CliError> {
        let root = self.catalog.root().display().to_string();
        let (mut lines, mut others) = (Vec::new(), BTreeSet::new());
        olm_fbc::load::<CliError>(&self.folder()?, &Limits::default(), &mut |meta| {
            session.check()?;
            if meta.owner() == name {
                lines.push(meta.blob);
            } else if meta.schema == olm_fbc::SCHEMA_PACKAGE {
                others.insert(meta.name);
            }
            Ok(())
        })?;
        if lines.is_empty() {
            return Err(CliError::no_candidate(missing(&root, name, &others)));
        }
        CatalogPackage::new(&root, name, &lines, Indexing::default())
    }

    /// Fails with the findings of `validate` on the edited catalog, which are printed.
    ///
    /// # Errors
    /// [`CliError::Findings`].
    pub(super) fn check(&self, session: &Session) -> Result<(), CliError> {
        let root = self.catalog.root();
        let report = {
            let _step = session.progress.step(format!("checking {}", root.display()));
            olm_fbc::validate_folder(&self.folder()?, &Limits::default(), false)
        };
        session.check()?;
        if report.is_valid() {
            return Ok(());
        }
        report.findings.iter().for_each(|finding| say(&finding_line(finding)));
        say(&format!("{}: {} after the change, no file was changed", root.display(), summary(&report)));
        Err(CliError::Findings)
    }

    /// Writes the files. One without content is deleted.
    ///
    /// # Errors
    /// A text does not parse to the expected objects, or a file cannot be written.
    pub(super) fn write(&self) -> Result<(), CliError> {
        for (file, text) in &self.texts {
            text.verify(&self.catalog.path(file).display().to_string())?;
        }
        self.texts.iter().try_for_each(|(file, text)| {
            let (path, text) = (self.catalog.path(file), text.text());
            if text.trim().is_empty() && path.exists() {
                return fs::remove_file(&path).map_err(|error| failed("delete", &path, &error));
            }
            write_whole(&path, &text)
        })
    }

    fn folder(&self) -> Result<EditedFolder, CliError> {
        let root = self.catalog.root();
        let folder = DirectoryFolder::open(root).map_err(|failure| at(root, failure))?;
        let texts = self.texts.iter().map(|(file, text)| (file.clone(), text.text())).collect();
        Ok(EditedFolder { folder, texts })
    }
}

/// Folder on disk, with other text in some files.
struct EditedFolder {
    folder: DirectoryFolder,
    texts: BTreeMap<PathBuf, String>,
}

impl Folder for EditedFolder {
    fn entries(&self, directory: &Path) -> io::Result<Vec<olm_fbc::Entry>> {
        let mut entries = self.folder.entries(directory)?;
        for file in self.texts.keys().filter(|file| file.parent() == Some(directory)) {
            let Some(name) = file.file_name() else { continue };
            if !entries.iter().any(|entry| entry.name == name) {
                entries.push(olm_fbc::Entry { name: name.to_owned(), kind: olm_fbc::EntryKind::File });
            }
        }
        Ok(entries)
    }

    fn open(&self, file: &Path) -> io::Result<Box<dyn Read + '_>> {
        match self.texts.get(file) {
            Some(text) => Ok(Box::new(Cursor::new(text.as_bytes()))),
            None => self.folder.open(file),
        }
    }
}
