//! Bundles of a catalog: their images, or folders.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use olm_bundle::BundleContent;
use olm_cli_core::bundle_source::{is_bundle_dir, read_bundle_dir, read_image};
use olm_cli_core::error::{CliError, Code};
use olm_cli_core::session::Session;
use olm_cli_core::source::ImageArgs;
use olm_resolve::Offer;

use crate::package::CatalogPackage;
use crate::validate::BUNDLE_LABEL;

/// Longest file with annotations that is read, in bytes.
const MAX_ANNOTATIONS: u64 = 1 << 20;
/// Deepest folder that is searched for bundles.
const MAX_DEPTH: usize = 8;

/// Source of the bundles.
pub(super) struct Bundles<'a> {
    images: &'a ImageArgs,
    /// Folders of the bundles by package, if they are not read from images.
    folders: Option<BTreeMap<String, Vec<PathBuf>>>,
    /// Package whose folders were read last, with the folder of each bundle.
    named: (String, Folders),
}

impl<'a> Bundles<'a> {
    /// Searches the folders. Without one, images are pulled.
    ///
    /// # Errors
    /// A folder cannot be read, or the command is interrupted.
    pub(super) fn open(
        folders: &[PathBuf],
        images: &'a ImageArgs,
        session: &Session,
    ) -> Result<Self, CliError> {
        let _step = session.progress.step("looking for bundles");
        let mut found = Vec::new();
        for folder in folders {
            collect(folder, 0, &mut found, session)?;
        }
        let mut by_package: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
        for folder in found {
            by_package.entry(package_of(&folder)).or_default().push(folder);
        }
        let folders = (!folders.is_empty()).then_some(by_package);
        Ok(Self { images, folders, named: Default::default() })
    }

    /// Content of a bundle. The inner error says why it cannot be read.
    ///
    /// # Errors
    /// The command is interrupted.
    pub(super) async fn read(
        &mut self,
        package: &CatalogPackage,
        bundle: &str,
        session: &Session,
    ) -> Result<Result<Arc<BundleContent>, String>, CliError> {
        let files = match &self.folders {
            Some(folders) => {
                if self.named.0 != package.name {
                    let folders = folders.get(&package.name).map_or(&[][..], Vec::as_slice);
                    self.named = (package.name.clone(), Folders::new(folders)?);
                }
                let Some(folder) = self.named.1.names.get(bundle) else {
                    return Ok(Err(self.named.1.missing(bundle)));
                };
                read_bundle_dir(folder)
            }
            None => {
                let image = package.offer(bundle).map_or("", Offer::image);
                read_image(image, self.images, session).await.map(|files| files.files)
            }
        };
        match files {
            Ok(files) => Ok(BundleContent::load(&files)
                .map(Arc::new)
                .map_err(|error| format!("{bundle} cannot be read: {error}"))),
            Err(CliError::Message(Code::Operational | Code::Usage, why)) => Ok(Err(why)),
            Err(error) => Err(error),
        }
    }
}

/// Folders of the bundles of a package.
#[derive(Default)]
struct Folders {
    /// By the name of the bundle.
    names: BTreeMap<String, PathBuf>,
    /// Faults of folders whose bundle is not known.
    faults: Vec<String>,
}

impl Folders {
    /// # Errors
    /// Two folders have the same bundle.
    fn new(folders: &[PathBuf]) -> Result<Self, CliError> {
        let mut found = Self::default();
        for folder in folders {
            let bundle = read_bundle_dir(folder).map_err(|error| error.to_string()).and_then(|files| {
                BundleContent::load(&files).map_err(|error| format!("{}: {error}", folder.display()))
            });
            match bundle {
                Err(fault) => found.faults.push(fault),
                Ok(bundle) => {
                    if let Some(other) = found.names.insert(bundle.name().to_owned(), folder.clone()) {
                        let (one, other) = (folder.display(), other.display());
                        return Err(CliError::usage(format!(
                            "bundle {} is in {other} and in {one}",
                            bundle.name()
                        )));
                    }
                }
            }
        }
        Ok(found)
    }

    fn missing(&self, bundle: &str) -> String {
        let fault =
            self.faults.first().map(|fault| format!("; a folder of its package cannot be read: {fault}"));
        format!("no folder of --bundles has bundle {bundle}{}", fault.unwrap_or_default())
    }
}

/// Bundle folders below a folder, sorted.
fn collect(folder: &Path, depth: usize, found: &mut Vec<PathBuf>, session: &Session) -> Result<(), CliError> {
    session.check()?;
    if is_bundle_dir(folder) {
        found.push(folder.to_owned());
        return Ok(());
    }
    if depth > MAX_DEPTH {
        return Ok(());
    }
    let failed = |error: std::io::Error| CliError::at(folder.display(), error);
    let entries: Result<Vec<_>, _> = fs::read_dir(folder).map_err(failed)?.collect();
    let mut paths: Vec<_> = entries.map_err(failed)?.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        // A link may lead out of the folder, or in circles.
        if path.symlink_metadata().map_err(failed)?.is_dir() {
            collect(&path, depth + 1, found, session)?;
        }
    }
    Ok(())
}

/// Package that the annotations of a bundle folder name. Empty if they cannot be read.
fn package_of(folder: &Path) -> String {
    let read = |name: &str| {
        let path = folder.join("metadata").join(name);
        // Neither a link, which may lead elsewhere, nor a pipe, which never ends.
        let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file());
        let mut text = Vec::new();
        let file = is_file.then(|| fs::File::open(&path).ok()).flatten()?;
        file.take(MAX_ANNOTATIONS).read_to_end(&mut text).ok()?;
        Some(text)
    };
    let text = ["annotations.yaml", "annotations.yml"].iter().find_map(|name| read(name)).unwrap_or_default();
    let annotations = olm_yaml::from_slice(&text).unwrap_or_default();
    annotations["annotations"][BUNDLE_LABEL].as_str().unwrap_or_default().to_owned()
}
