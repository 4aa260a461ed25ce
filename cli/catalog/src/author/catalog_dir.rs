//! Catalog directory under edit: location of each object, and atomic file writes.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use olm_cli_core::error::CliError;
use olm_cli_core::names::is_label;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::DirectoryFolder;
use tempfile::NamedTempFile;

/// Index of a catalog directory, without the content of the objects.
#[derive(Debug)]
pub(super) struct CatalogDir {
    root: PathBuf,
    objects: Vec<Located>,
}

/// Object and its file, relative to the root.
#[derive(Debug)]
struct Located {
    schema: String,
    package: String,
    name: String,
    file: PathBuf,
}

impl CatalogDir {
    /// Loads the catalog in `root` as catalogd would.
    ///
    /// # Errors
    /// `root` is not a directory, or one of its files is not catalog content.
    pub(super) fn open(root: &Path, session: &Session) -> Result<Self, CliError> {
        let step = session.progress.step(format!("reading {}", root.display()));
        let folder = DirectoryFolder::open(root).map_err(|failure| at(root, failure))?;
        let mut objects = Vec::new();
        let read =
            olm_fbc::load_authored::<CliError>(&folder, &olm_fbc::LoadLimits::default(), &mut |meta| {
                session.check()?;
                for warning in olm_fbc::repeated_key_warnings(&meta) {
                    say(&format!("warning: {}: {warning}", root.display()));
                }
                let (package, file) = (meta.owner().to_owned(), meta.origin.file.to_path_buf());
                objects.push(Located { schema: meta.schema, package, name: meta.name, file });
                Ok(())
            });
        drop(step);
        read.map_err(|failure| at(root, failure))?;
        Ok(Self { root: folder.root().to_owned(), objects })
    }

    /// File with an object of a package. The `olm.package` object has the name of the package.
    pub(super) fn file(&self, schema: &str, package: &str, name: &str) -> Option<&Path> {
        let is_match =
            |object: &&Located| object.schema == schema && object.package == package && object.name == name;
        self.objects.iter().find(is_match).map(|object| object.file.as_path())
    }

    /// File with the first object of this schema that belongs to a package.
    pub(super) fn file_of(&self, schema: &str, package: &str) -> Option<&Path> {
        let is_match = |object: &&Located| object.schema == schema && object.package == package;
        self.objects.iter().find(is_match).map(|object| object.file.as_path())
    }

    /// Files with those objects of a package for which `is_match`, a function of schema and name, is true.
    pub(super) fn files_of(&self, package: &str, is_match: impl Fn(&str, &str) -> bool) -> BTreeSet<&Path> {
        let own = self.objects.iter().filter(|object| object.package == package);
        let found = own.filter(|object| is_match(&object.schema, &object.name));
        found.map(|object| object.file.as_path()).collect()
    }

    /// Text of a catalog file.
    ///
    /// # Errors
    /// The file cannot be read or is not UTF-8.
    pub(super) fn read(&self, file: &Path) -> Result<String, CliError> {
        let path = self.root.join(file);
        fs::read_to_string(&path).map_err(|error| failed("read", &path, &error))
    }

    /// Canonical path of the directory.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Local path of a catalog file.
    pub(super) fn path(&self, file: &Path) -> PathBuf {
        self.root.join(file)
    }
}

/// Checks the name of a package that the user gave.
///
/// # Errors
/// It is not a DNS label.
pub fn require_package_name(name: &str) -> Result<(), CliError> {
    if is_label(name) {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "package name {}: expected at most 63 lower-case letters, digits and `-`, with a letter or digit at both ends",
        olm_version::quote(name)
    )))
}

/// Replaces or creates `path` atomically: a reader sees the whole old or the whole new text. Follows a symbolic link,
/// and keeps the permissions of an existing file.
///
/// # Errors
/// The file cannot be written. It is unchanged then.
pub fn write_whole(path: &Path, text: &str) -> Result<(), CliError> {
    NewFile::write(path, text)?.publish()
}

/// New content of a file, on disk beside it.
pub(super) struct NewFile {
    path: PathBuf,
    target: PathBuf,
    content: NamedTempFile,
}

impl NewFile {
    /// Writes the content for `path`, which is unchanged until [`NewFile::publish`].
    ///
    /// # Errors
    /// The content cannot be written.
    pub(super) fn write(path: &Path, text: &str) -> Result<Self, CliError> {
        let wrong = |error: std::io::Error| failed("write", path, &error);
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let parent = target.parent().unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(parent).map_err(wrong)?;
        let mut content = tempfile::Builder::new().prefix(".olm-").tempfile_in(parent).map_err(wrong)?;
        content.write_all(text.as_bytes()).map_err(wrong)?;
        match fs::metadata(&target) {
            Ok(known) => content.as_file().set_permissions(known.permissions()),
            Err(_) => olm_os::set_mode(content.path(), 0o644),
        }
        .map_err(wrong)?;
        content.as_file().sync_all().map_err(wrong)?;
        Ok(Self { path: path.to_owned(), target, content })
    }

    /// Replaces or creates the file.
    ///
    /// # Errors
    /// The file cannot be replaced.
    pub(super) fn publish(self) -> Result<(), CliError> {
        let Self { path, target, content } = self;
        content.persist(target).map(drop).map_err(|error| failed("write", &path, &error.error))
    }
}

/// Fails if `directory` exists and is not an empty directory.
///
/// # Errors
/// It has content, or cannot be read.
pub(crate) fn check_empty(directory: &Path) -> Result<(), CliError> {
    match fs::read_dir(directory).map(|mut listing| listing.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(CliError::at(directory.display(), "the directory is not empty; nothing was changed"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("read", directory, &error)),
    }
}

/// Writes `files` to a new or empty directory. They are written to a temporary one first, so that a failed or interrupted
/// run leaves none of them, and can be repeated.
///
/// # Errors
/// A file cannot be written, or a signal arrived.
pub(crate) fn write_directory(
    directory: &Path,
    files: impl IntoIterator<Item = Result<(PathBuf, String), CliError>>,
    session: &Session,
) -> Result<(), CliError> {
    let wrong = |error: std::io::Error| failed("write", directory, &error);
    // An existing directory may be a mount point, which cannot be replaced.
    let exists = directory.exists();
    let parent =
        directory.parent().filter(|parent| *parent != Path::new("")).unwrap_or_else(|| Path::new("."));
    let parent = if exists { directory } else { parent };
    fs::create_dir_all(parent).map_err(wrong)?;
    let temporary = tempfile::Builder::new().prefix(".olm-").tempdir_in(parent).map_err(wrong)?;
    olm_os::set_mode(temporary.path(), 0o755).map_err(wrong)?;
    for file in files {
        session.check()?;
        let (path, text) = file?;
        write_whole(&temporary.path().join(path), &text)?;
    }
    if !exists {
        return fs::rename(temporary.path(), directory).map_err(wrong);
    }
    for entry in fs::read_dir(temporary.path()).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        fs::rename(entry.path(), directory.join(entry.file_name())).map_err(wrong)?;
    }
    Ok(())
}

/// Failure of `action` on a file.
pub fn failed(action: &str, path: &Path, error: &std::io::Error) -> CliError {
    CliError::operational(format!("cannot {action} {}: {error}", path.display()))
}

/// Prefixes the failure with the directory.
pub(super) fn at(root: &Path, failure: CliError) -> CliError {
    match failure {
        CliError::Message(code, message) => CliError::Message(code, format!("{}: {message}", root.display())),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn failed_write_keeps_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.yaml");
        write_whole(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        write_whole(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let error = write_whole(&path.join("below-a-file"), "x").unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot write {}/below-a-file: ", path.display())), "{error}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file remains");
    }
}
