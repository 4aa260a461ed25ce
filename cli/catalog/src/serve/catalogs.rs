//! Served catalogs. A directory is read again when the sizes or modification times of its files have changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use olm_catalog_server::content::Store;
use olm_catalog_server::http::graphql;
use olm_catalog_server::http::route::name_problems;
use olm_cli_core::error::CliError;
use olm_cli_core::progress::say;
use olm_cli_core::session::Session;
use olm_cli_core::source::{DirectoryFolder, ImageArgs, Source};
use olm_fbc::{EntryKind, Folder, LoadLimits};
use olm_pack::digest_of;
use olm_version::quote;
use tokio::sync::Mutex;

/// Files of a directory with modification time and size.
type Stamp = Vec<(PathBuf, Option<SystemTime>, u64)>;

/// Catalogs and their content.
pub(super) struct Catalogs {
    store: Arc<Store>,
    /// Source of each catalog as given, in the order of the command line.
    sources: Vec<(String, String)>,
    directories: BTreeMap<String, Watched>,
}

/// Directory, with its state at the last attempt to read it.
struct Watched {
    root: PathBuf,
    stamp: Arc<Mutex<Stamp>>,
}

impl Catalogs {
    /// Reads all sources. The content is stored in the existing folder `cache`.
    ///
    /// # Errors
    /// A source cannot be read, or two have the same name.
    pub(super) async fn open(
        sources: &[String],
        cache: &Path,
        images: &ImageArgs,
        session: &Session,
    ) -> Result<Self, CliError> {
        let store = Store::open(&cache.join("content")).map_err(CliError::operational)?;
        let store = Arc::new(store.observed_by(graphql::observer));
        let mut catalogs = Self { store, sources: Vec::new(), directories: BTreeMap::new() };
        for text in sources {
            let (given, source) = named(text);
            let parsed = Source::parse(source)?;
            let name = match given {
                Some(name) => name.to_owned(),
                None => default_name(&parsed).unwrap_or_default(),
            };
            if let Some(problem) = name_problems(&name).first() {
                let why =
                    format!("specify NAME={source}: the name {} of the catalog {problem}", quote(&name));
                return Err(CliError::usage(why));
            }
            if catalogs.sources.iter().any(|(known, _)| *known == name) {
                return Err(CliError::usage(format!(
                    "two catalogs have the name {name}: specify NAME={source}"
                )));
            }
            catalogs.add(&name, parsed, images, session).await.map_err(|failure| match failure {
                CliError::Message(code, message) => CliError::Message(code, format!("{source}: {message}")),
                other => other,
            })?;
            catalogs.sources.push((name, source.to_owned()));
        }
        Ok(catalogs)
    }

    async fn add(
        &mut self,
        name: &str,
        source: Source,
        images: &ImageArgs,
        session: &Session,
    ) -> Result<(), CliError> {
        let _step = session.progress.step(format!("reading catalog {name}"));
        let store = Arc::clone(&self.store);
        match source {
            Source::Directory(root) => {
                let stamp = stamp(&root)?;
                load(&store, name, &root)?;
                let stamp = Arc::new(Mutex::new(stamp));
                self.directories.insert(name.to_owned(), Watched { root, stamp });
                Ok(())
            }
            Source::Image(reference) => {
                let content = images.pull(&reference, olm_oci::catalog_folder, session).await?;
                load(&store, name, content.path())
            }
            Source::Cluster(_) => Err(CliError::usage(
                "serve reads a directory or an image; catalogd serves the catalogs of a cluster",
            )),
        }
    }

    /// Store that the HTTP handlers read.
    pub(super) fn store(&self) -> Arc<Store> {
        Arc::clone(&self.store)
    }

    /// Name and source of each catalog.
    pub(super) fn sources(&self) -> impl Iterator<Item = (&str, &str)> {
        self.sources.iter().map(|(name, source)| (name.as_str(), source.as_str()))
    }

    /// Reads a directory again if it has changed. A failure is printed once, and the earlier content stays.
    pub(super) async fn refresh(&self, name: &str) {
        let Some(Watched { root, stamp: known }) = self.directories.get(name) else { return };
        let mut known = Arc::clone(known).lock_owned().await;
        let (store, root, catalog) = (Arc::clone(&self.store), root.clone(), name.to_owned());
        let work = tokio::task::spawn_blocking(move || {
            let current = stamp(&root).unwrap_or_default();
            if current == *known {
                return None;
            }
            *known = current;
            Some(load(&store, &catalog, &root))
        });
        match work.await {
            Ok(None) => {}
            Ok(Some(Ok(()))) => say(&format!("catalog {name} was read again")),
            Ok(Some(Err(error))) => say(&format!("catalog {name}: {error}; the earlier content is served")),
            Err(error) => say(&format!("catalog {name}: {error}")),
        }
    }
}

/// Name, if it is given, and source.
pub fn named(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        Some((name, source)) if !Path::new(text).exists() => (Some(name), source),
        _ => (None, text),
    }
}

/// Last part of the path of a directory or repository, in lower case.
pub fn default_name(source: &Source) -> Option<String> {
    let name = match source {
        Source::Directory(path) => path.canonicalize().ok()?.file_name()?.to_string_lossy().into_owned(),
        Source::Image(reference) => reference.path().rsplit('/').next()?.to_owned(),
        Source::Cluster(_) => "cluster".to_owned(),
    };
    Some(name.to_lowercase().replace('_', "-"))
}

/// Loads a directory into the store, as catalogd loads the folder of an image. The digest is that of its objects.
fn load(store: &Store, name: &str, root: &Path) -> Result<(), CliError> {
    let folder = DirectoryFolder::open(root)?;
    let mut digests = String::new();
    olm_fbc::load::<CliError>(&folder, &LoadLimits::default(), &mut |meta| {
        digests += &digest_of(&meta.blob);
        Ok(())
    })?;
    let canonical = format!("localhost/{name}@{}", digest_of(digests.as_bytes()));
    store.replace_from(name, &folder, canonical).map_err(CliError::operational)?;
    Ok(())
}

fn stamp(root: &Path) -> Result<Stamp, CliError> {
    let folder = DirectoryFolder::open(root)?;
    let (mut stamp, mut open) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(directory) = open.pop() {
        let mut entries = folder.entries(&directory).map_err(CliError::operational)?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in entries {
            let path = directory.join(&entry.name);
            if entry.kind == EntryKind::Directory {
                open.push(path);
            } else {
                let metadata = std::fs::metadata(root.join(&path)).ok();
                let modified = metadata.as_ref().and_then(|metadata| metadata.modified().ok());
                stamp.push((path, modified, metadata.map_or(0, |metadata| metadata.len())));
            }
        }
        if stamp.len() + open.len() > LoadLimits::default().entries {
            return Err(CliError::operational("the directory has too many files"));
        }
    }
    Ok(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_given_or_the_last_part_of_the_source() {
        for (text, expected) in [
            ("src", (None, "src")),
            ("a=src", (Some("a"), "src")),
            ("a=r.example/cat:v1", (Some("a"), "r.example/cat:v1")),
        ] {
            assert_eq!(named(text), expected, "{text}");
        }
        let image = Source::Image("r.example/team/My_Cat:v1".to_lowercase().parse().unwrap());
        assert_eq!(default_name(&image).as_deref(), Some("my-cat"));
        assert_eq!(default_name(&Source::Directory("src/.".into())).as_deref(), Some("src"));
    }

    #[test]
    fn stamp_differs_after_a_change_below_the_directory() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a/b.yaml");
        std::fs::create_dir(folder.path().join("a")).unwrap();
        std::fs::write(&file, "x").unwrap();
        let before = stamp(folder.path()).unwrap();
        assert_eq!(stamp(folder.path()).unwrap(), before);
        std::fs::write(&file, "xy").unwrap();
        assert_ne!(stamp(folder.path()).unwrap(), before);
    }
}
