//! Files of a policy: `policy.json`, the keys that it names, and `registries.d`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{Context, SHA256};

use super::PolicySource;
use super::attachments::Attachments;
use super::document::{KeySource, Policy};

/// Largest file, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Most files read from all folders `registries.d` together.
const MAX_FILES: usize = 1000;

/// Content of a file, or the error of reading it.
type Content = Result<Vec<u8>, String>;

/// Snapshot of all files.
pub(super) struct Files {
    /// Path and content of the policy. `None` if no file exists.
    policy: Option<(PathBuf, Content)>,
    parsed: Result<Option<Policy>, String>,
    keys: BTreeMap<PathBuf, Content>,
    /// Files of `registries.d`, by path.
    registries: Result<Vec<(PathBuf, Content)>, String>,
}

impl Files {
    pub(super) fn read(source: &PolicySource) -> Self {
        let policy = source.candidates().find(|path| exists(path)).map(|path| {
            let content = read(&path);
            (path, content)
        });
        let parsed = policy.as_ref().map(|(path, content)| parse(path, content)).transpose();
        let mut keys = BTreeMap::new();
        if let Ok(Some(policy)) = &parsed {
            for key in policy.keys() {
                if let KeySource::Path(path) = key {
                    keys.entry(path.clone()).or_insert_with(|| read(path));
                }
            }
        }
        Self { policy, parsed, keys, registries: read_registries(&source.folders) }
    }

    /// Parsed policy, if any.
    ///
    /// # Errors
    /// The file cannot be read or is malformed. The text names the file.
    pub(super) fn policy(&self) -> Result<Option<&Policy>, String> {
        self.parsed.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    /// Content of a key file that the policy names.
    pub(super) fn key(&self, path: &Path) -> Result<&[u8], String> {
        match self.keys.get(path) {
            Some(Ok(content)) => Ok(content),
            Some(Err(error)) => Err(error.clone()),
            None => Err("not read".to_owned()),
        }
    }

    /// Merged content of `registries.d`.
    ///
    /// # Errors
    /// One of its files cannot be read or is malformed. The text names it.
    pub(super) fn attachments(&self) -> Result<Attachments, String> {
        let mut attachments = Attachments::default();
        for (path, content) in self.registries.as_ref().map_err(Clone::clone)? {
            let name = path.display().to_string();
            let text = content.as_ref().map_err(|error| format!("reading {name}: {error}"))?;
            attachments.add(&name, text)?;
        }
        Ok(attachments)
    }

    /// Digest of all names and contents.
    pub(super) fn fingerprint(&self) -> String {
        let mut hasher = Context::new(&SHA256);
        let mut add = |path: &Path, content: &Content| {
            for part in
                [path.as_os_str().as_encoded_bytes(), content.as_deref().unwrap_or_else(|e| e.as_bytes())]
            {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
        };
        self.policy.iter().for_each(|(path, content)| add(path, content));
        self.keys.iter().for_each(|(path, content)| add(path, content));
        match &self.registries {
            Ok(files) => files.iter().for_each(|(path, content)| add(path, content)),
            Err(error) => add(Path::new(""), &Err(error.clone())),
        }
        hex::encode(hasher.finish())
    }
}

fn parse(path: &Path, content: &Content) -> Result<Policy, String> {
    let invalid = |error: String| format!("invalid policy in {:?}: {error}", path.display().to_string());
    let text = content.as_ref().map_err(|error| invalid(error.clone()))?;
    Policy::parse(text).map_err(|error| invalid(error.to_string()))
}

/// `true` if the path exists, even if this process may not read it: then reading fails, and nothing is pulled.
/// Without permission, a path below the home folder of the environment does not exist, since that home may belong
/// to another user.
pub(super) fn exists(path: &Path) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    !fs::metadata(path).is_err_and(|error| match error.kind() {
        NotFound | NotADirectory => true,
        PermissionDenied => is_in_own_home(path),
        _ => false,
    })
}

fn is_in_own_home(path: &Path) -> bool {
    let home = |name: &str| olm_os::variable(name).filter(|value| !value.is_empty());
    ["HOME", "XDG_CONFIG_HOME"].into_iter().filter_map(home).any(|home| path.starts_with(home))
}

/// Content of a regular file.
fn read(path: &Path) -> Content {
    let text = |error: io::Error| error.to_string();
    if !fs::metadata(path).map_err(text)?.is_file() {
        return Err("not a regular file".to_owned());
    }
    let mut content = Vec::new();
    File::open(path).map_err(text)?.take(MAX_FILE + 1).read_to_end(&mut content).map_err(text)?;
    if content.len() as u64 > MAX_FILE {
        return Err(format!("larger than {MAX_FILE} bytes"));
    }
    Ok(content)
}

/// The `*.yaml` files of every `registries.d`, sorted by name. Of equal names the one in the first folder wins.
fn read_registries(folders: &[PathBuf]) -> Result<Vec<(PathBuf, Content)>, String> {
    let mut files = BTreeMap::new();
    for folder in folders {
        let folder = folder.join("registries.d");
        if !exists(&folder) {
            continue;
        }
        let reading = |error: io::Error| format!("reading {}: {error}", folder.display());
        for entry in fs::read_dir(&folder).map_err(reading)? {
            let name = entry.map_err(reading)?.file_name();
            if Path::new(&name).extension().is_some_and(|extension| extension == "yaml") {
                files.entry(name).or_insert_with_key(|name| folder.join(name));
            }
            if files.len() > MAX_FILES {
                return Err(format!("reading {}: more than {MAX_FILES} files", folder.display()));
            }
        }
    }
    Ok(files.into_values().map(|path| (path.clone(), read(&path))).collect())
}
