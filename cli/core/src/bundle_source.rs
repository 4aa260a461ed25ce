//! Files of a bundle, read from a local directory or pulled from a registry.
//!
//! This module does not interpret the files.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use olm_oci::{BUNDLE_FOLDERS, CATALOG_LABEL, ImageLabels, ImageLimits, PullError, Puller, Reference};
use olm_version::quote;

use crate::error::{CliError, Code};
use crate::session::Session;
use crate::source::{ImageArgs, local_directory};

/// Largest bundle directory, all files together. A cluster pulls no larger image.
const MAX_BUNDLE: u64 = ImageLimits::BUNDLE.kept_bytes;

/// Uninterpreted bundle content.
#[derive(Debug)]
pub struct BundleFiles {
    /// Content by slash-separated path from the bundle's root. A directory below `manifests` or `metadata` may be
    /// present as a key with a final slash and no content.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Reference as the user gave it.
    pub origin: String,
    /// Digest of the image; `None` for a directory.
    pub digest: Option<String>,
}

/// Reads the bundle that a user names by `reference`: an existing directory, else an image.
///
/// # Errors
/// The reference is neither, cannot be read or pulled, or is a catalog. The message names it.
pub async fn read(reference: &str, images: &ImageArgs, session: &Session) -> Result<BundleFiles, CliError> {
    let instead = "the directory that it was built from, or the image in a registry";
    if let Some(path) = local_directory(reference, instead)? {
        let files = read_bundle_dir(&path)?;
        return Ok(BundleFiles { files, origin: reference.to_owned(), digest: None });
    }
    let image: Reference = reference.parse().map_err(|error: olm_oci::ReferenceError| {
        CliError::usage(format!(
            "{} is neither an existing directory nor an image reference such as registry.example.com/team/operator-bundle:v1: \
             {error}",
            quote(reference)
        ))
    })?;
    pulled(&image, reference, images, session).await
}

/// Pulls the bundle image that a catalog or the cluster names. Such text is never the path of a local directory.
///
/// # Errors
/// The text is not an image reference, or errors of [`pull`].
pub async fn read_image(text: &str, images: &ImageArgs, session: &Session) -> Result<BundleFiles, CliError> {
    let invalid =
        |error: olm_oci::ReferenceError| CliError::usage(format!("invalid image {}: {error}", quote(text)));
    pulled(&text.parse().map_err(invalid)?, text, images, session).await
}

async fn pulled(
    image: &Reference,
    origin: &str,
    images: &ImageArgs,
    session: &Session,
) -> Result<BundleFiles, CliError> {
    let (files, digest) = pull(image, images, session).await?;
    Ok(BundleFiles { files, origin: origin.to_owned(), digest: Some(digest) })
}

/// Reports whether `path` is a bundle directory rather than a catalog directory.
pub fn is_bundle_dir(path: &Path) -> bool {
    BUNDLE_FOLDERS.iter().all(|folder| path.join(folder).is_dir())
}

/// Reads the bundle files in `root`, keyed by slash-separated path from `root`.
///
/// # Errors
/// `root` is not a bundle directory, or an entry in it cannot be read.
pub fn read_bundle_dir(root: &Path) -> Result<BTreeMap<String, Vec<u8>>, CliError> {
    if !is_bundle_dir(root) {
        // Without permission to read `root`, both folders look absent. Report that error instead.
        fs::read_dir(root).map_err(|error| unreadable(root, &error))?;
        let expected = "expected a bundle directory, which has the directories manifests and metadata";
        return Err(CliError::at(root.display(), expected));
    }
    let inside = fs::canonicalize(root).map_err(|error| unreadable(root, &error))?;
    let mut files = BTreeMap::new();
    let mut left = MAX_BUNDLE;
    for folder in BUNDLE_FOLDERS {
        let path = root.join(folder);
        check_link(&path, &inside)?;
        for entry in fs::read_dir(&path).map_err(|error| unreadable(&path, &error))? {
            let path = entry.map_err(|error| unreadable(&path, &error))?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                return Err(CliError::at(path.display(), "the name is not UTF-8"));
            };
            if files.len() as u64 == ImageLimits::BUNDLE.files {
                let why = format!("the bundle has more than {} files", ImageLimits::BUNDLE.files);
                return Err(CliError::at(root.display(), why));
            }
            check_link(&path, &inside)?;
            let metadata = fs::metadata(&path).map_err(|error| unreadable(&path, &error))?;
            if metadata.is_dir() {
                // Entry for the directory itself, which the bundle rules judge.
                files.insert(format!("{folder}/{name}/"), Vec::new());
                continue;
            }
            // Checked before opening, because opening a pipe would block.
            if !metadata.is_file() {
                return Err(CliError::operational(format!("{} is not a regular file", path.display())));
            }
            let mut content = Vec::new();
            let file = fs::File::open(&path).map_err(|error| unreadable(&path, &error))?;
            file.take(left + 1).read_to_end(&mut content).map_err(|error| unreadable(&path, &error))?;
            let size = content.len() as u64;
            if size > left {
                let why = format!("the bundle is larger than {MAX_BUNDLE} bytes");
                return Err(CliError::at(root.display(), why));
            }
            left -= size;
            files.insert(format!("{folder}/{name}"), content);
        }
    }
    Ok(files)
}

/// YAML files beside the folders of a bundle directory, by name. No tool reads them. Large files are omitted.
pub fn loose_files(root: &Path) -> BTreeMap<String, Vec<u8>> {
    const MAX_LOOSE: u64 = 1 << 20;
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let is_yaml = path.extension().is_some_and(|end| end == "yaml" || end == "yml");
        let is_small =
            entry.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_LOOSE);
        if is_yaml
            && is_small
            && let (Some(name), Ok(content)) = (name.to_str(), fs::read(&path))
        {
            files.insert(name.to_owned(), content);
        }
    }
    files
}

/// Rejects a symbolic link whose target is outside of the bundle directory. A foreign bundle could otherwise disclose
/// local files.
fn check_link(path: &Path, inside: &Path) -> Result<(), CliError> {
    if !path.is_symlink() {
        return Ok(());
    }
    let target = fs::canonicalize(path).map_err(|error| unreadable(path, &error))?;
    if target.starts_with(inside) {
        return Ok(());
    }
    Err(CliError::operational(format!(
        "{} is a link that points outside of the bundle directory",
        path.display()
    )))
}

fn unreadable(path: &Path, error: &std::io::Error) -> CliError {
    CliError::operational(format!("cannot read {}: {error}", path.display()))
}

/// Pulls the files of the bundle image `reference`, and returns them with its digest.
///
/// # Errors
/// The registry fails, or the image contains no bundle. The message names the image.
pub async fn pull(
    reference: &Reference,
    images: &ImageArgs,
    session: &Session,
) -> Result<(BTreeMap<String, Vec<u8>>, String), CliError> {
    pull_folders(reference, &BUNDLE_FOLDERS, images, session).await
}

/// Does the same as [`pull`] for these folders of the image.
///
/// # Errors
/// Errors of [`pull`].
pub async fn pull_folders(
    reference: &Reference,
    folders: &[&str],
    images: &ImageArgs,
    session: &Session,
) -> Result<(BTreeMap<String, Vec<u8>>, String), CliError> {
    let puller = Puller::new(images.config(reference, ImageLimits::BUNDLE)?);
    let step = session.progress.step(format!("resolving {reference}"));
    let pull = async {
        let image = puller.resolve(reference).await?;
        step.update(format!("pulling {reference}"));
        let (files, _) = puller.pull_files(&image, folders).await?;
        Ok::<_, PullError>((image, files))
    };
    let pulled = session.unless_interrupted(pull).await;
    let (image, files) = pulled.map_err(|failure| of_image(reference, failure))?;
    if !files.is_empty() {
        return Ok((files, image.digest().to_string()));
    }
    let mut is_catalog = false;
    let inspect = |labels: &ImageLabels| {
        is_catalog = labels.contains_key(CATALOG_LABEL);
        Err("not a bundle".to_owned())
    };
    // Pulls no files: the callback only inspects the labels.
    let _ = session.unless_interrupted(puller.pull_folder(&image, inspect, Path::new(""))).await;
    let found = if is_catalog {
        "the image is a catalog, not a bundle; use `catalog render` or `catalog ls`"
    } else {
        "the image is not a bundle: it has neither a manifests nor a metadata directory"
    };
    Err(of_image(reference, CliError::operational(found)))
}

/// Prefixes the failure with the image name, unless its message already contains it.
pub fn of_image(reference: &Reference, failure: CliError) -> CliError {
    match failure {
        CliError::Message(code, message)
            if code != Code::Interrupted && !message.contains(&reference.to_string()) =>
        {
            CliError::Message(code, format!("image {reference}: {message}"))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Reads a bundle directory after applying `change` to it.
    fn read_after(change: impl FnOnce(&Path)) -> Result<Vec<String>, String> {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("bundle");
        for (path, content) in
            [("bundle/manifests/csv.yaml", "csv"), ("bundle/metadata/annotations.yaml", "a"), ("secret", "s")]
        {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        change(&root);
        let files = read_bundle_dir(&root).map(|files| files.into_keys().collect());
        files.map_err(|failure| match failure {
            CliError::Message(_, text) => text.replace(root.to_str().unwrap(), "."),
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn symlink_out_of_bundle_directory_is_rejected() {
        let manifests = |root: &Path| root.join("manifests");
        let inside = read_after(|root| symlink("csv.yaml", manifests(root).join("l.yaml")).unwrap());
        let files = ["manifests/csv.yaml", "manifests/l.yaml", "metadata/annotations.yaml"];
        assert_eq!(inside.unwrap(), files);
        for target in ["../../secret", "/etc/passwd", "/etc", "../.."] {
            let error = read_after(|root| symlink(target, manifests(root).join("l.yaml")).unwrap());
            let expected = "./manifests/l.yaml is a link that points outside of the bundle directory";
            assert_eq!(error.unwrap_err(), expected, "{target}");
        }
        let error = read_after(|root| symlink("l.yaml", manifests(root).join("l.yaml")).unwrap());
        assert!(error.unwrap_err().starts_with("cannot read ./manifests/l.yaml: "));
        let error = read_after(|root| {
            fs::rename(manifests(root), root.with_file_name("elsewhere")).unwrap();
            symlink("../elsewhere", manifests(root)).unwrap();
        });
        assert_eq!(error.unwrap_err(), "./manifests is a link that points outside of the bundle directory");
    }

    #[test]
    fn bundle_directory_over_image_limits_is_rejected() {
        let many = read_after(|root| {
            for number in 0..ImageLimits::BUNDLE.files {
                fs::write(root.join(format!("manifests/{number}.yaml")), "").unwrap();
            }
        });
        assert_eq!(many.unwrap_err(), ".: the bundle has more than 20000 files");
        let large = read_after(|root| {
            let file = fs::File::create(root.join("manifests/large.yaml")).unwrap();
            file.set_len(MAX_BUNDLE + 1).unwrap();
        });
        assert_eq!(large.unwrap_err(), format!(".: the bundle is larger than {MAX_BUNDLE} bytes"));
    }
}
