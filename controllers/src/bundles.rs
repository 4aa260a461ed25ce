//! Files of bundle images: pulled once for each extension and digest, then kept on disk, so that an unchanged bundle
//! costs the registry nothing, not even after a restart (spec 05 §§3.5, 18.5).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use olm_oci::{BUNDLE_FOLDERS, CanonicalRef, Class, PullError, Puller, Reference};
use tokio::task::block_in_place;

use crate::failure::Failure;

/// Files of a bundle by their path in the image.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// The bundles of all extensions.
pub(crate) struct Bundles {
    puller: Puller,
    directory: PathBuf,
}

impl Bundles {
    /// Bundles kept below `directory`.
    pub(crate) fn open(directory: PathBuf, puller: Puller) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        Ok(Self { puller, directory })
    }

    /// The files of a bundle image for an extension.
    pub(crate) async fn files(&self, extension: &str, image: &str) -> Result<Files, Failure> {
        let reference: Reference = image.parse().map_err(|error| failure(PullError::from(error)))?;
        let pinned = self.puller.resolve(&reference).await.map_err(failure)?;
        let place = self.place(extension, &pinned);
        if let Some(files) = block_in_place(|| read(&place)) {
            return Ok(files);
        }
        let files = self.puller.pull_files(&pinned, &BUNDLE_FOLDERS).await.map_err(failure)?;
        let written = block_in_place(|| write(&place, &files));
        if let Err(error) = written {
            // Only the next restart pays for it.
            tracing::warn!(extension, %error, "bundle is not kept on disk");
        }
        Ok(files)
    }

    /// Forgets what was kept for the extension.
    pub(crate) fn remove(&self, extension: &str) -> io::Result<()> {
        match fs::remove_dir_all(self.directory.join(extension)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn place(&self, extension: &str, image: &CanonicalRef) -> PathBuf {
        // Algorithm and hex digits: nothing in it could lead elsewhere.
        let digest = image.digest().as_str().replace(':', "-");
        self.directory.join(extension).join(format!("{digest}.json"))
    }
}

fn read(place: &Path) -> Option<Files> {
    let stored: BTreeMap<String, String> = serde_json::from_slice(&fs::read(place).ok()?).ok()?;
    stored.into_iter().map(|(path, text)| Some((path, BASE64_STANDARD.decode(text).ok()?))).collect()
}

/// Writes the files of the one bundle that is kept; an older one goes.
fn write(place: &Path, files: &Files) -> io::Result<()> {
    let folder = place.parent().ok_or(io::ErrorKind::InvalidInput)?;
    fs::create_dir_all(folder)?;
    let stored: BTreeMap<&String, String> =
        files.iter().map(|(path, bytes)| (path, BASE64_STANDARD.encode(bytes))).collect();
    let staging = place.with_extension("new");
    fs::write(&staging, serde_json::to_vec(&stored)?)?;
    fs::rename(&staging, place)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path != place {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// Without the mark by which other programs tell terminal errors (spec 01 §7.1 rule 7).
fn failure(error: PullError) -> Failure {
    match error.class() {
        Class::Terminal => Failure::blocked(error.unmarked()),
        Class::Retry => Failure::retry(error.unmarked()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_read_back_and_the_old_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let files = Files::from([("manifests/a.yaml".to_owned(), vec![0, 255, 10])]);
        let (old, new) = (directory.path().join("x/sha256-1.json"), directory.path().join("x/sha256-2.json"));
        write(&old, &Files::new()).unwrap();
        write(&new, &files).unwrap();
        assert_eq!(read(&new), Some(files));
        assert_eq!(read(&old), None);
        fs::write(&new, "{").unwrap();
        assert_eq!(read(&new), None);
    }
}
