//! `olm bundle unpack`: writes the files of a bundle image to a directory.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use olm_cli_catalog::author::failed;
use olm_cli_core::error::CliError;
use olm_cli_core::output::FormatArgs;
use olm_cli_core::session::Session;
use olm_cli_core::source::{DirectoryFolder, ImageArgs};
use olm_fbc::{EntryKind, Folder};
use olm_oci::ImageLimits;
use serde::Serialize;

use super::content;

/// First lines of the command's help.
pub(super) const ABOUT: &str = "Write the files of a bundle image to a directory

Writes the directories manifests, metadata and, if the image has one, tests. The directory must be new or empty, or have \
exactly these files already. Nothing else of the image is written.";

/// Arguments of `olm bundle unpack`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  {olm} bundle unpack quay.io/example/operator-bundle:v1.2.0 ./bundle
  {olm} bundle unpack ./bundle.oci ./bundle")]
pub struct UnpackArgs {
    /// An image reference, or an OCI image layout
    #[arg(value_name = "REF|LAYOUT")]
    source: String,
    /// Directory to write
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    #[command(flatten)]
    images: ImageArgs,
    #[command(flatten)]
    format: FormatArgs,
}

/// Result as JSON or YAML.
#[derive(Debug, Serialize)]
struct UnpackedBundle {
    directory: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    /// Written files, relative to the directory.
    files: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// The source is not a bundle image, or the directory has other files.
pub(super) async fn run(args: UnpackArgs, session: &mut Session) -> Result<(), CliError> {
    let source = content::of_image(&args.source, &args.images, session).await?;
    write(&source.files, &args.directory)?;
    let files = source.files.into_keys().collect();
    let unpacked = UnpackedBundle { directory: args.directory, digest: source.digest, files };
    session.output.result(args.format.output, "UnpackedBundle", &unpacked, |unpacked| {
        format!("{}\n", unpacked.directory.display())
    })
}

/// Writes the files to `directory` as a whole: after a failure it is as before.
fn write(files: &BTreeMap<String, Vec<u8>>, directory: &Path) -> Result<(), CliError> {
    let wrong = |error: io::Error| failed("write", directory, &error);
    let is_new = match fs::read_dir(directory).map(|mut listing| listing.next().is_some()) {
        Ok(true) => return require_same(files, directory),
        Ok(false) => false,
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(failed("read", directory, &error)),
    };
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or_else(|| Path::new("."));
    // An empty directory cannot be replaced if it is the working directory or a mount point.
    let place = if is_new { parent } else { directory };
    fs::create_dir_all(place).map_err(wrong)?;
    let temporary = tempfile::Builder::new().prefix(".olm-").tempdir_in(place).map_err(wrong)?;
    for (path, content) in files {
        let target = temporary.path().join(path);
        fs::create_dir_all(target.parent().unwrap_or(place)).map_err(wrong)?;
        fs::write(&target, content).map_err(wrong)?;
    }
    if !is_new {
        for entry in fs::read_dir(temporary.path()).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            fs::rename(entry.path(), directory.join(entry.file_name())).map_err(wrong)?;
        }
        return Ok(());
    }
    olm_os::set_mode(temporary.path(), 0o755).map_err(wrong)?;
    fs::rename(temporary.path(), directory).map_err(wrong)?;
    // The name of the temporary directory is free now.
    let _ = temporary.keep();
    Ok(())
}

/// Fails unless `directory` has exactly these files.
fn require_same(files: &BTreeMap<String, Vec<u8>>, directory: &Path) -> Result<(), CliError> {
    let difference = difference(files, directory).map_err(|error| failed("read", directory, &error))?;
    match difference {
        None => Ok(()),
        Some(path) => {
            let why = format!(
                "the directory is not empty, and {} differs from the bundle; nothing was written: choose a new directory",
                path.display()
            );
            Err(CliError::at(directory.display(), why))
        }
    }
}

/// A path that differs between the files and the directory.
fn difference(files: &BTreeMap<String, Vec<u8>>, directory: &Path) -> io::Result<Option<PathBuf>> {
    let folder = DirectoryFolder::open(directory).map_err(|error| io::Error::other(error.to_string()))?;
    let mut missing: BTreeMap<&str, &Vec<u8>> =
        files.iter().map(|(path, content)| (path.as_str(), content)).collect();
    let mut pending = vec![PathBuf::new()];
    while let Some(parent) = pending.pop() {
        for entry in folder.entries(&parent)? {
            let path = olm_fbc::below(&parent, &entry.name);
            let is_folder = entry.kind == EntryKind::Directory;
            let below = path.to_str().map(|path| format!("{path}/"));
            if is_folder && below.is_some_and(|below| files.keys().any(|file| file.starts_with(&below))) {
                pending.push(path);
                continue;
            }
            let Some(expected) = path.to_str().and_then(|path| missing.remove(path)) else {
                return Ok(Some(path));
            };
            let mut content = Vec::new();
            folder.open(&path)?.take(ImageLimits::BUNDLE.file_bytes + 1).read_to_end(&mut content)?;
            if content != *expected {
                return Ok(Some(path));
            }
        }
    }
    Ok(missing.into_keys().next().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn bundle_is_written_only_to_empty_or_equal_directory() {
        let root = tempfile::tempdir().unwrap();
        let files = BTreeMap::from([
            ("manifests/a.yaml".to_owned(), b"a".to_vec()),
            ("tests/deep/b.yaml".to_owned(), b"b".to_vec()),
        ]);
        let target = root.path().join("new/bundle");
        write(&files, &target).unwrap();
        write(&files, &target).unwrap();
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(target.parent().unwrap()).unwrap().count(), 1);
        type Change = fn(&Path);
        let cases: [(Change, &str); 4] = [
            (|root| fs::write(root.join("manifests/a.yaml"), "changed").unwrap(), "manifests/a.yaml"),
            (|root| fs::write(root.join("notes"), "mine").unwrap(), "notes"),
            (|root| fs::remove_file(root.join("tests/deep/b.yaml")).unwrap(), "tests/deep/b.yaml"),
            (|root| fs::create_dir(root.join("other")).unwrap(), "other"),
        ];
        for (index, (change, path)) in cases.into_iter().enumerate() {
            let target = root.path().join(index.to_string());
            fs::create_dir(&target).unwrap();
            write(&files, &target).unwrap();
            change(&target);
            let error = write(&files, &target).unwrap_err().to_string();
            assert!(error.contains(&format!("and {path} differs from the bundle")), "{error}");
        }
    }
}
