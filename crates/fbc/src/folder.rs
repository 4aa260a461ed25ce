//! Loader of a catalog folder: files, their order, and error texts (docs/design/catalogd.md#directory-walk).

use std::{
    ffi::{OsStr, OsString},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use olm_version::excerpt;

use crate::{Meta, MetaReader, Origin, ignore::Ignore, meta::MetaError};

const IGNORE_FILE: &str = ".indexignore";
/// Largest total size of all ignore files, in bytes. A parsed pattern takes a hundred times the memory of its text.
const IGNORE_BYTES: u64 = 256 << 10;

/// Read access to a catalog folder. Paths are relative to its root.
///
/// ```
/// use std::io::{self, Read};
/// use std::path::Path;
///
/// use olm_fbc::{Entry, EntryKind, Folder, LoadLimits, LoadError, load};
///
/// struct OneFile;
///
/// impl Folder for OneFile {
///     fn entries(&self, _: &Path) -> io::Result<Vec<Entry>> {
///         Ok(vec![Entry { name: "catalog.yaml".into(), kind: EntryKind::File }])
///     }
///
///     fn open(&self, _: &Path) -> io::Result<Box<dyn Read + '_>> {
///         Ok(Box::new(&b"schema: olm.package\nname: demo\n"[..]))
///     }
/// }
///
/// let mut names = Vec::new();
/// load::<LoadError>(&OneFile, &LoadLimits::default(), &mut |meta| Ok(names.push(meta.name)))?;
/// assert_eq!(names, ["demo"]);
/// # Ok::<(), LoadError>(())
/// ```
pub trait Folder {
    /// Entries of a directory, in any order. The root is the empty path. Links are not followed.
    fn entries(&self, directory: &Path) -> io::Result<Vec<Entry>>;

    /// Opens a file, following links. If the target is not a regular file or is outside of the folder, the result
    /// must be an error, without blocking. Reading a directory may fail later.
    fn open(&self, file: &Path) -> io::Result<Box<dyn Read + '_>>;
}

/// Entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name within the directory.
    pub name: OsString,
    /// Directory or file.
    pub kind: EntryKind,
}

/// Path of an entry of `directory`. Its separator is a slash on Windows, too, since these paths are those of images and
/// messages.
pub fn below(directory: &Path, name: &OsStr) -> PathBuf {
    let mut path = directory.as_os_str().to_owned();
    if !path.is_empty() {
        path.push("/");
    }
    path.push(name);
    path.into()
}

/// Kind of an [`Entry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory, which is walked.
    Directory,
    /// Everything else, including links to directories. Read as a file unless ignored.
    File,
}

/// Limits of loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadLimits {
    /// Number of files and directories.
    pub entries: usize,
    /// Limits of each document.
    pub document: olm_yaml::Limits,
}

impl Default for LoadLimits {
    fn default() -> Self {
        Self { entries: 1_000_000, document: olm_yaml::Limits::default() }
    }
}

/// Failure to load a catalog folder. The texts begin with the file relative to the root of the folder, or name it
/// in the text of the system.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file or directory cannot be opened or read.
    #[error("{action} {}: {}", shown(path), os_text(cause))]
    Read {
        /// `open` or `read`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// A file is not catalog content. The text names the line of the fault if known, otherwise the first line of
    /// the document.
    #[error("{}:{}: document {}: {message}", shown(&origin.file), at.unwrap_or(origin.line), origin.document)]
    Content {
        /// Start of the faulty document.
        origin: Origin,
        /// Line of the fault in the file, from 1.
        at: Option<usize>,
        /// The fault.
        message: String,
    },
    /// An ignore file is invalid.
    #[error("{}: {message}", shown(path))]
    Ignore {
        /// The file.
        path: PathBuf,
        /// The fault.
        message: &'static str,
    },
    /// The folder has too many entries.
    #[error("folder holds more than {0} files and directories")]
    TooMany(usize),
}

/// Path as shown in messages.
fn shown(path: &Path) -> String {
    excerpt(&path.to_string_lossy()).into_owned()
}

/// Text of a system error in Go's format: starts in lower case, without error number.
fn os_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}

/// Reads every file of the folder that is not ignored into `sink`, one meta at a time. Memory is bounded by the
/// largest single document, not by the size of its file.
///
/// Directories are walked in the byte order of their entries, a subdirectory at its own position. Within a file the
/// order is that of its documents. Empty YAML documents, which store nothing, are passed on as well (see
/// [`Meta::blob`]).
///
/// # Errors
/// The first error in that order, including those of `sink`. Earlier metas have already been passed on.
pub fn load<E: From<LoadError>>(
    folder: &impl Folder,
    limits: &LoadLimits,
    sink: &mut dyn FnMut(Meta) -> Result<(), E>,
) -> Result<(), E> {
    for path in content_files(folder, limits)? {
        load_file(folder, &path, limits, false, sink)?;
    }
    Ok(())
}

/// [`load`] for the author of the catalog: also looks for repeated keys ([`Meta::repeated_keys`]).
///
/// # Errors
/// Those of [`load`].
pub fn load_authored<E: From<LoadError>>(
    folder: &impl Folder,
    limits: &LoadLimits,
    sink: &mut dyn FnMut(Meta) -> Result<(), E>,
) -> Result<(), E> {
    for path in content_files(folder, limits)? {
        load_file(folder, &path, limits, true, sink)?;
    }
    Ok(())
}

/// Files of the folder that are not ignored, in walk order.
pub(crate) fn content_files(folder: &impl Folder, limits: &LoadLimits) -> Result<Vec<PathBuf>, LoadError> {
    let mut files = files(folder, limits.entries)?;
    let ignore = ignore_rules(folder, &files)?;
    files.retain(|path| !path.ends_with(IGNORE_FILE) && !ignore.ignores(path));
    Ok(files)
}

/// Reads one file into `sink`, up to its first error. `authored` is `true` to look for repeated keys.
pub(crate) fn load_file<E: From<LoadError>>(
    folder: &impl Folder,
    path: &Path,
    limits: &LoadLimits,
    authored: bool,
    sink: &mut dyn FnMut(Meta) -> Result<(), E>,
) -> Result<(), E> {
    let file = folder.open(path).map_err(|cause| read_error("open", path, cause))?;
    let reader = MetaReader::named(path, file, limits.document);
    let reader = if authored { reader.with_repeated_keys() } else { reader };
    for meta in reader {
        sink(meta.map_err(|error| content_error(path, error))?)?;
    }
    Ok(())
}

fn read_error(action: &'static str, path: &Path, cause: io::Error) -> LoadError {
    LoadError::Read { action, path: path.to_owned(), cause }
}

fn content_error(path: &Path, error: MetaError) -> LoadError {
    match error {
        MetaError::Read(cause) => read_error("read", path, cause),
        MetaError::Document { position, at, message } => {
            LoadError::Content { origin: Origin::new(Arc::from(path), position), at, message }
        }
    }
}

/// All files in walk order.
fn files(folder: &impl Folder, limit: usize) -> Result<Vec<PathBuf>, LoadError> {
    let mut files = Vec::new();
    let mut seen = 0;
    // Stack of paths to visit, the next one last.
    let mut open = vec![(PathBuf::new(), EntryKind::Directory)];
    while let Some((path, kind)) = open.pop() {
        if kind == EntryKind::File {
            files.push(path);
            continue;
        }
        let mut entries = folder.entries(&path).map_err(|cause| read_error("open", &path, cause))?;
        seen += entries.len();
        if seen > limit {
            return Err(LoadError::TooMany(limit));
        }
        entries.sort_unstable_by(|a, b| b.name.as_encoded_bytes().cmp(a.name.as_encoded_bytes()));
        open.extend(entries.into_iter().map(|entry| (below(&path, &entry.name), entry.kind)));
    }
    Ok(files)
}

/// Rules of all ignore files, including those in ignored directories.
fn ignore_rules(folder: &impl Folder, files: &[PathBuf]) -> Result<Ignore, LoadError> {
    let mut ignore = Ignore::default();
    let mut left = IGNORE_BYTES;
    for path in files.iter().filter(|path| path.ends_with(IGNORE_FILE)) {
        let file = folder.open(path).map_err(|cause| read_error("open", path, cause))?;
        let mut text = Vec::new();
        file.take(left + 1).read_to_end(&mut text).map_err(|cause| read_error("read", path, cause))?;
        let refused = |message| LoadError::Ignore { path: path.clone(), message };
        let rest = left.checked_sub(text.len() as u64);
        left = rest.ok_or_else(|| refused("ignore files are larger than 262144 bytes"))?;
        let domain = path.parent().unwrap_or_else(|| Path::new(""));
        ignore.add(domain, &text).map_err(refused)?;
    }
    Ok(ignore)
}
