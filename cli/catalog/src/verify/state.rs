//! State file of an interrupted run: the images that passed, so that the next run skips them
//! (docs/design/cli.md#resumed-verification).
//!
//! A line of the file is the digest of everything that the check of one image depends on. The file is appended to after
//! each image, so that a killed process loses nothing.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use olm_cli_core::error::CliError;

/// First line of the file.
const HEADER: &str = "olm catalog verify: images that passed\n";
/// Largest state file, far above that of the largest catalogs.
const MAX_FILE: u64 = 64 << 20;

/// Images that passed in earlier runs, and the file for those of this run.
pub(super) struct State {
    path: PathBuf,
    file: File,
    passed: BTreeSet<String>,
}

impl State {
    /// Opens or creates the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read or written, or is not a state file.
    pub(super) fn open(path: &Path) -> Result<Self, CliError> {
        let failed = |error: std::io::Error| {
            CliError::operational(format!("cannot use the state file {}: {error}", path.display()))
        };
        let mut text = String::new();
        match File::open(path) {
            Ok(file) => {
                file.take(MAX_FILE).read_to_string(&mut text).map_err(failed)?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let Some(passed) = passed(&text) else {
            return Err(CliError::operational(format!(
                "{} is not a state file of `catalog verify`; specify another one with --state",
                path.display()
            )));
        };
        if !text.starts_with(HEADER) {
            std::fs::write(path, HEADER).map_err(failed)?;
        }
        let mut file = OpenOptions::new().append(true).open(path).map_err(failed)?;
        if text.starts_with(HEADER) && !text.ends_with('\n') {
            file.write_all(b"\n").map_err(failed)?;
        }
        Ok(Self { path: path.to_owned(), file, passed })
    }

    /// Reports whether the image with this key passed in an earlier run.
    pub(super) fn has_passed(&self, key: &str) -> bool {
        self.passed.contains(key)
    }

    /// Records that the image with this key has passed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn record(&mut self, key: &str) -> Result<(), CliError> {
        let written = self.file.write_all(format!("{key}\n").as_bytes());
        written.map_err(|error| {
            CliError::operational(format!("cannot write the state file {}: {error}", self.path.display()))
        })
    }

    /// Deletes the file, after all images have passed.
    ///
    /// # Errors
    /// The file cannot be deleted.
    pub(super) fn delete(self) -> Result<(), CliError> {
        std::fs::remove_file(&self.path).map_err(|error| {
            CliError::operational(format!("cannot delete the state file {}: {error}", self.path.display()))
        })
    }
}

/// Keys in the text of a state file. `None` if it is another file.
fn passed(text: &str) -> Option<BTreeSet<String>> {
    let lines = match text.strip_prefix(HEADER) {
        Some(lines) => lines,
        // Also a header that was not written to its end.
        None if HEADER.starts_with(text) => "",
        None => return None,
    };
    Some(lines.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_images_are_found_by_the_next_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let mut state = State::open(&path).unwrap();
        assert!(!state.has_passed("sha256:a"));
        state.record("sha256:a").unwrap();
        // A process that was killed within a line.
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + "sha256:b").unwrap();
        let mut state = State::open(&path).unwrap();
        state.record("sha256:c").unwrap();
        let state = State::open(&path).unwrap();
        assert!(["sha256:a", "sha256:c"].iter().all(|key| state.has_passed(key)));
        state.delete().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn catalog_verify_refuses_file_that_is_no_state_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes");
        std::fs::write(&path, "my notes\n").unwrap();
        let error = State::open(&path).err().map(|error| error.to_string()).unwrap();
        assert!(error.contains("is not a state file of `catalog verify`"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "my notes\n");
        assert_eq!(passed(&HEADER[..5]), Some(BTreeSet::new()));
    }
}
