//! The files of images, stored by digest while any extension needs them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use olm_oci::policy::Verification;
use parking_lot::Mutex;

use super::{Files, checksummed_file};

/// Extension of the file with the verifications of an image, one for each name.
const VERIFIED: &str = "verified";

pub(super) struct Images {
    directory: PathBuf,
    /// Needed digests by extension.
    needs: Mutex<HashMap<String, BTreeSet<String>>>,
}

impl Images {
    /// Opens the images in `directory`, which must exist.
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, needs: Mutex::default() }
    }

    /// Returns the files of the image, if they are stored and intact.
    pub(super) fn read(&self, digest: &str) -> Option<Files> {
        let stored: BTreeMap<String, String> =
            serde_json::from_slice(&checksummed_file::read(&self.path(digest), digest)?).ok()?;
        stored.into_iter().map(|(path, text)| Some((path, BASE64_STANDARD.decode(text).ok()?))).collect()
    }

    pub(super) fn write(&self, digest: &str, files: &Files) -> io::Result<()> {
        let stored: BTreeMap<&String, String> =
            files.iter().map(|(path, bytes)| (path, BASE64_STANDARD.encode(bytes))).collect();
        checksummed_file::write(&self.path(digest), digest, &serde_json::to_vec(&stored)?)
    }

    /// Returns `true` if this verification is stored for the image.
    pub(super) fn is_verified(&self, digest: &str, verification: &Verification) -> bool {
        self.verifications(digest).contains(verification)
    }

    /// Stores the verification of the image and drops those of other policies.
    pub(super) fn set_verified(&self, digest: &str, verification: &Verification) -> io::Result<()> {
        let mut all = self.verifications(digest);
        all.retain(|other| other.is_of_same_policy(verification) && other != verification);
        all.push(verification.clone());
        let path = self.path(digest).with_extension(VERIFIED);
        checksummed_file::write(&path, digest, &serde_json::to_vec(&all)?)
    }

    fn verifications(&self, digest: &str) -> Vec<Verification> {
        let stored = checksummed_file::read(&self.path(digest).with_extension(VERIFIED), digest);
        stored.and_then(|stored| serde_json::from_slice(&stored).ok()).unwrap_or_default()
    }

    /// Replaces the digests that the extension needs.
    pub(super) fn need(&self, extension: &str, digests: BTreeSet<String>) {
        self.needs.lock().insert(extension.to_owned(), digests);
    }

    /// Adds a digest to those that the extension needs.
    pub(super) fn need_also(&self, extension: &str, digest: &str) {
        self.needs.lock().entry(extension.to_owned()).or_default().insert(digest.to_owned());
    }

    /// Clears the digests that the extension needs.
    pub(super) fn need_nothing(&self, extension: &str) {
        self.needs.lock().remove(extension);
    }

    /// Removes files that none of these extensions needs. Does nothing while the needs of one of them are unknown:
    /// after a restart its first reconcile reports them.
    pub(super) fn sweep<'a>(&self, mut extensions: impl Iterator<Item = &'a str>) -> io::Result<()> {
        // Listed before the lock: a file that is needed from now on is either not in the list, or was needed before.
        let found: Vec<PathBuf> =
            fs::read_dir(&self.directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        let needs = self.needs.lock();
        if !extensions.all(|extension| needs.contains_key(extension)) {
            return Ok(());
        }
        let needed: BTreeSet<PathBuf> = needs.values().flatten().map(|digest| self.path(digest)).collect();
        drop(needs);
        // Names of verifications and temporary files begin with the digest, which contains no dot.
        let is_needed = |path: &Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            needed.contains(&path.with_file_name(name.split('.').next().unwrap_or_default()))
        };
        found.iter().filter(|path| !is_needed(path)).try_for_each(fs::remove_file)
    }

    fn path(&self, digest: &str) -> PathBuf {
        self.directory.join(digest.replace(':', "-"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_removes_images_that_no_extension_needs() {
        let directory = tempfile::tempdir().unwrap();
        let names = || {
            let entries = fs::read_dir(directory.path()).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<BTreeSet<_>>()
        };
        let set = |all: &[&str]| all.iter().map(|&one| one.to_owned()).collect::<BTreeSet<_>>();
        let images = Images::new(directory.path().to_owned());
        let files = Files::from([("manifests/a.yaml".to_owned(), b"\xff".to_vec())]);
        for digest in ["sha256:1", "sha256:2", "sha256:3"] {
            images.write(digest, &files).unwrap();
        }
        fs::write(directory.path().join("sha256-1.7.tmp"), "half").unwrap();
        fs::write(directory.path().join("sha256-3.7.tmp"), "half").unwrap();
        assert_eq!(images.read("sha256:2"), Some(files));

        images.need("a", set(&["sha256:1"]));
        images.need_also("a", "sha256:2");
        let all = names();
        images.sweep(["a", "b"].into_iter()).unwrap();
        assert_eq!(names(), all, "the needs of b are not known yet");
        images.need("b", set(&["sha256:2"]));
        images.sweep(["a", "b"].into_iter()).unwrap();
        assert_eq!(names(), set(&["sha256-1", "sha256-1.7.tmp", "sha256-2"]));
        images.need("a", set(&[]));
        images.sweep(["a", "b"].into_iter()).unwrap();
        assert_eq!(names(), set(&["sha256-2"]));
        images.need_nothing("b");
        images.sweep(["a"].into_iter()).unwrap();
        assert_eq!(names(), set(&[]));
    }
}
