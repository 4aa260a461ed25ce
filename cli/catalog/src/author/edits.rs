//! Pending changes to the files of a catalog directory: checked as a whole, then written.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use olm_cli_core::error::CliError;
use olm_cli_core::output::counted;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::DirectoryFolder;
use olm_fbc::{CatalogFinding, Folder, LoadLimits, validate_folder};
use olm_resolve::Indexing;

use super::catalog_dir::{CatalogDir, NewFile, at, failed};
use super::catalog_text::CatalogText;
use crate::package::{CatalogPackage, missing};
use crate::validate::finding_line;

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
        olm_fbc::load::<CliError>(&self.folder()?, &LoadLimits::default(), &mut |meta| {
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

    /// Fails with the errors of `validate` that the edited catalog has and the catalog had not, which are printed.
    ///
    /// # Errors
    /// [`CliError::Findings`].
    pub(super) fn check(&self, session: &Session) -> Result<(), CliError> {
        let errors = self.added_errors(session)?;
        if errors.is_empty() {
            return Ok(());
        }
        errors.iter().for_each(|finding| say(&finding_line(finding)));
        let what = counted(errors.len(), "error");
        say(&format!("{}: {what} after the change, no file was changed", self.catalog.root().display()));
        Err(CliError::Findings)
    }

    /// Errors of `validate` that the edited catalog has and the catalog had not. Others are mentioned.
    ///
    /// # Errors
    /// The folder cannot be opened.
    pub(super) fn added_errors(&self, session: &Session) -> Result<Vec<CatalogFinding>, CliError> {
        let root = self.catalog.root();
        let step = session.progress.step(format!("checking {}", root.display()));
        let after = validate_folder(&self.folder()?, &LoadLimits::default(), false);
        session.check()?;
        if after.is_valid() {
            return Ok(Vec::new());
        }
        let folder = DirectoryFolder::open(root).map_err(|failure| at(root, failure))?;
        let before = validate_folder(&folder, &LoadLimits::default(), false);
        session.check()?;
        drop(step);
        let added: Vec<CatalogFinding> = after.errors_since(&before).into_iter().cloned().collect();
        if added.is_empty() {
            let what = counted(after.errors().count(), "error");
            say(&format!(
                "warning: {}: the catalog had {what} before the change, too; `validate` lists them",
                root.display()
            ));
        }
        Ok(added)
    }

    /// Writes the files. One without content is deleted. No file changes before the content of all is on disk: after
    /// that, only a failing rename leaves some of them as they were.
    ///
    /// # Errors
    /// A text does not parse to the expected objects, or a file cannot be written.
    pub(super) fn write(&self) -> Result<(), CliError> {
        let (mut new, mut deleted) = (Vec::new(), Vec::new());
        for (file, text) in &self.texts {
            let (path, content) = (self.catalog.path(file), text.text());
            text.verify(&path.display().to_string())?;
            if content.trim().is_empty() && path.exists() {
                deleted.push(path);
            } else {
                new.push(NewFile::write(&path, &content)?);
            }
        }
        new.into_iter().try_for_each(NewFile::publish)?;
        for path in deleted {
            fs::remove_file(&path).map_err(|error| failed("delete", &path, &error))?;
        }
        for (file, _) in self.texts.iter().filter(|(_, text)| text.lost_comments()) {
            say(&format!(
                "warning: {}: an object was rewritten, and the comments in it are lost",
                file.display()
            ));
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn file_that_cannot_be_written_leaves_all_others_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let text = "schema: olm.package\nname: p\n";
        fs::write(folder.path().join("a.yaml"), text).unwrap();
        let catalog = CatalogDir::open(folder.path(), &Session::start()).unwrap();
        let mut edits = Edits::new(&catalog);
        for file in ["a.yaml", "a.yaml/below-a-file.yaml"] {
            let object = json!({ "schema": "vendor.x", "package": "p" });
            edits.text(Path::new(file)).unwrap().append(object).unwrap();
        }
        let error = edits.write().unwrap_err().to_string();
        assert!(error.contains("a.yaml/below-a-file.yaml: "), "{error}");
        assert_eq!(fs::read_to_string(folder.path().join("a.yaml")).unwrap(), text);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file remains");
    }
}
