//! Content of a bundle image, from a directory, an image layout or a registry.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use olm_cli_catalog::author::build::Built;
use olm_cli_core::bundle_source::{BundleFiles, pull_folders, read_bundle_dir};
use olm_cli_core::error::CliError;
use olm_cli_core::session::Session;
use olm_cli_core::source::{DirectoryFolder, ImageArgs};
use olm_fbc::{EntryKind, Folder};
use olm_oci::{BUNDLE_FOLDERS, ImageLimits, Reference, unpack_layers};
use olm_pack::{Image, is_image, read_layout, read_whole_layout};
use olm_version::quote;

use super::{edit, validate};

/// Optional folder of a bundle with the configuration of its tests. OLM ignores it.
const TESTS: &str = "tests";
/// Folders of a bundle image.
const FOLDERS: [&str; 3] = [BUNDLE_FOLDERS[0], BUNDLE_FOLDERS[1], TESTS];

/// Checks the bundle in `root` as `olm bundle validate` does, without the objects of `skipped_kinds`.
///
/// # Errors
/// The bundle has errors, which are printed, or cannot be read, or has no object of a kind.
pub(super) fn checked(
    root: &Path,
    skipped_kinds: &[String],
    session: &Session,
) -> Result<BundleFiles, CliError> {
    let _step = session.progress.step(format!("checking {}", root.display()));
    let mut files = read_bundle_dir(root)?;
    let tests = tests(root, &files).map_err(|error| CliError::at(root.join(TESTS).display(), error))?;
    files.extend(tests);
    edit::skip_kinds(&mut files, skipped_kinds)?;
    let mut source = BundleFiles { files, origin: root.display().to_string(), digest: None };
    validate::require_valid(&source, session)?;
    // Keys of directories are for the rules.
    source.files.retain(|path, _| !path.ends_with('/'));
    Ok(source)
}

/// Image of a bundle.
///
/// # Errors
/// Its annotations cannot be read.
pub(super) fn built(source: &BundleFiles) -> Result<Built, CliError> {
    Ok(Built { image: Image::bundle(&source.files)?, files: source.files.keys().cloned().collect() })
}

/// Files below the folder of tests, at any depth. `known` are the other files, which count for the limits.
fn tests(root: &Path, known: &BTreeMap<String, Vec<u8>>) -> Result<BTreeMap<String, Vec<u8>>, CliError> {
    let folder = DirectoryFolder::open(root)?;
    let mut found = BTreeMap::new();
    // A link could lead out of the bundle, and is not part of it.
    if !folder.root().join(TESTS).symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
        return Ok(found);
    }
    let limits = ImageLimits::BUNDLE;
    let mut left = limits.kept_bytes.saturating_sub(known.values().map(|content| content.len() as u64).sum());
    let mut pending = vec![PathBuf::from(TESTS)];
    while let Some(directory) = pending.pop() {
        for entry in folder.entries(&directory).map_err(CliError::operational)? {
            let path = olm_fbc::below(&directory, &entry.name);
            let Some(name) = path.to_str() else {
                return Err(CliError::at(path.display(), "the name is not UTF-8"));
            };
            if path.components().count() as u64 > limits.path_depth {
                return Err(CliError::at(name, format!("deeper than {} folders", limits.path_depth)));
            }
            if entry.kind == EntryKind::Directory {
                pending.push(path);
                continue;
            }
            if (known.len() + found.len()) as u64 >= limits.files {
                return Err(CliError::operational(format!("more than {} files", limits.files)));
            }
            let mut content = Vec::new();
            let read = folder.open(&path).and_then(|file| file.take(left + 1).read_to_end(&mut content));
            read.map_err(|error| CliError::at(name, error))?;
            left = left.checked_sub(content.len() as u64).ok_or_else(|| {
                CliError::operational(format!("the bundle is larger than {} bytes", limits.kept_bytes))
            })?;
            found.insert(name.to_owned(), content);
        }
    }
    Ok(found)
}

/// Image and files of the bundle in an image layout or archive, for a push.
///
/// # Errors
/// The layout is damaged, or its image is one of several platforms, or not a bundle.
pub(super) async fn of_layout(layout: &Path) -> Result<(Image, BundleFiles), CliError> {
    let image = read_whole_layout(layout)?;
    let files = files_of(&image, layout).await?;
    Ok((image, files))
}

/// Files of the bundle in an image.
async fn files_of(image: &Image, layout: &Path) -> Result<BundleFiles, CliError> {
    let layers = image.layers.iter().map(|layer| layer.blob.clone()).collect();
    let files = unpack_layers(layers, &FOLDERS, ImageLimits::BUNDLE).await;
    let files = files.map_err(|error| CliError::at(layout.display(), error.unmarked()))?;
    let origin = layout.display().to_string();
    require_bundle(&files, &origin)?;
    Ok(BundleFiles { files, origin, digest: Some(image.digest()) })
}

/// Files of the bundle that `source` names: an image layout, else an image in a registry.
///
/// # Errors
/// The source is neither, or not a bundle.
pub(super) async fn of_image(
    source: &str,
    images: &ImageArgs,
    session: &Session,
) -> Result<BundleFiles, CliError> {
    if is_image(Path::new(source)) {
        return files_of(&read_layout(Path::new(source))?, Path::new(source)).await;
    }
    let reference: Reference = source.parse().map_err(|error: olm_oci::ReferenceError| {
        CliError::usage(format!(
            "{} is neither an OCI image layout nor an image reference such as \
             registry.example.com/team/operator-bundle:v1: {error}",
            quote(source)
        ))
    })?;
    let (files, digest) = pull_folders(&reference, &FOLDERS, images, session).await?;
    require_bundle(&files, source)?;
    Ok(BundleFiles { files, origin: source.to_owned(), digest: Some(digest) })
}

fn require_bundle(files: &BTreeMap<String, Vec<u8>>, origin: &str) -> Result<(), CliError> {
    let has = |folder: &str| files.keys().any(|path| path.split('/').next() == Some(folder));
    match BUNDLE_FOLDERS.into_iter().find(|folder| !has(folder)) {
        Some(folder) => {
            Err(CliError::at(origin, format!("the image is not a bundle: it has no directory {folder}")))
        }
        None => Ok(()),
    }
}
