//! Loading a catalog folder: which files, in which order, and what a failure says
//! (docs/design/catalogd.md#directory-walk).

use std::{
    ffi::OsString,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use olm_version::excerpt;

use crate::{Meta, MetaReader, Origin, ignore::Ignore, meta::MetaError};

const IGNORE_FILE: &str = ".indexignore";
/// Size of all ignore files in bytes; a pattern takes a hundred times its text.
const IGNORE_BYTES: u64 = 256 << 10;

/// A catalog folder, wherever it lies. Paths are relative to its root.
pub trait Folder {
    /// What lies in a directory, in any order; the root is the empty path. Links are not followed.
    fn entries(&self, directory: &Path) -> io::Result<Vec<Entry>>;

    /// Opens a file, following links. What is not a regular file in the end, or lies outside of the folder, must be
    /// an error, and must not block; reading a directory may fail later.
    fn open(&self, file: &Path) -> io::Result<Box<dyn Read + '_>>;
}

/// What lies in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the directory.
    pub name: OsString,
    /// Whether it can hold further entries.
    pub kind: EntryKind,
}

/// Kind of an [`Entry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory, which is walked into.
    Directory,
    /// Everything else, links to directories included: read as a file unless ignored.
    File,
}

/// What loading may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Number of files and directories.
    pub entries: usize,
    /// For each document.
    pub document: olm_yaml::Limits,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 1_000_000, document: olm_yaml::Limits::default() }
    }
}

/// Why a catalog folder cannot be loaded. The texts begin with the file relative to the root of the folder, or name it
/// where the system's own text does.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file or directory cannot be opened or read.
    #[error("{action} {}: {}", shown(path), os_text(cause))]
    Read {
        /// `open` or `read`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// A file is not catalog content. The text names the line of the problem where it is known, else the first line
    /// of the document.
    #[error("{}:{}: document {}: {message}", shown(&origin.file), at.unwrap_or(origin.line), origin.document)]
    Content {
        /// Where the document begins that is wrong.
        origin: Origin,
        /// Line of the file where the problem was found, from 1.
        at: Option<usize>,
        /// What is wrong.
        message: String,
    },
    /// An ignore file is not readable as one.
    #[error("{}: {message}", shown(path))]
    Ignore {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: &'static str,
    },
    /// The folder is too large.
    #[error("folder holds more than {0} files and directories")]
    TooMany(usize),
}

/// A path in messages.
fn shown(path: &Path) -> String {
    excerpt(&path.to_string_lossy()).into_owned()
}

/// The system's text in the form that the tools print: no capital at the start, no number.
fn os_text(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_lowercase().chain(characters).collect())
}

/// Reads every file of the folder that is not ignored into `sink`, one meta at a time. Memory is bounded by the
/// largest single document, whatever the size of its file.
///
/// Directories are walked in the byte order of their entries, a directory at its own position; inside a file the order
/// is that of its documents. Empty YAML documents, which store nothing, are handed on as well (see [`Meta::blob`]).
///
/// # Errors
/// The first problem in that order, the sink's included; metas before it have been handed on by then.
pub fn load<E: From<LoadError>>(
    folder: &impl Folder,
    limits: &Limits,
    sink: &mut dyn FnMut(Meta) -> Result<(), E>,
) -> Result<(), E> {
    for path in content_files(folder, limits)? {
        load_file(folder, &path, limits, sink)?;
    }
    Ok(())
}

/// The files of the folder that are not ignored, in the order of the walk.
pub(crate) fn content_files(folder: &impl Folder, limits: &Limits) -> Result<Vec<PathBuf>, LoadError> {
    let mut files = files(folder, limits.entries)?;
    let ignore = ignore_rules(folder, &files)?;
    files.retain(|path| !path.ends_with(IGNORE_FILE) && !ignore.ignores(path));
    Ok(files)
}

/// Reads one file into `sink`, up to its first problem.
pub(crate) fn load_file<E: From<LoadError>>(
    folder: &impl Folder,
    path: &Path,
    limits: &Limits,
    sink: &mut dyn FnMut(Meta) -> Result<(), E>,
) -> Result<(), E> {
    let file = folder.open(path).map_err(|cause| read_error("open", path, cause))?;
    for meta in MetaReader::named(path, file, limits.document) {
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

/// All files in the order of the walk.
fn files(folder: &impl Folder, limit: usize) -> Result<Vec<PathBuf>, LoadError> {
    let mut files = Vec::new();
    let mut seen = 0;
    // What is still to be visited, the next at the end.
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
        open.extend(entries.into_iter().map(|entry| (path.join(entry.name), entry.kind)));
    }
    Ok(files)
}

/// The rules of all ignore files, those in ignored directories included.
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
