//! Records of images that are being unpacked, by digest, so that the next process knows which image ended this one.
//!
//! A file `<cache>/attempts/<digest>` exists while catalogs unpack the image. Its length is the number of
//! consecutive processes, this one included, that ran an attempt which did not end.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::disk::discard;

/// Wait after the second attempt that ended the process. Each further one doubles it.
const FIRST_WAIT: Duration = Duration::from_secs(60);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Age at which an attempt that ended the process is ignored.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// An image that was being unpacked when an earlier process ended.
#[derive(Clone, Copy, Debug)]
pub struct Suspect {
    /// Number of consecutive crashes.
    pub crashes: u64,
    last: SystemTime,
}

impl Suspect {
    /// `true` if the wait since the last attempt is over.
    pub fn is_due(&self, now: SystemTime) -> bool {
        let wait = match self.crashes {
            0 | 1 => Duration::ZERO,
            crashes => FIRST_WAIT.saturating_mul(1 << (crashes - 2).min(8)).min(LONGEST_WAIT),
        };
        // A clock that was set back must not delay an image.
        now.duration_since(self.last).map_or(true, |passed| passed >= wait)
    }
}

/// The attempts of this process and the suspects of earlier ones.
#[derive(Clone, Debug)]
pub(super) struct Attempts {
    directory: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    suspects: BTreeMap<String, Suspect>,
    /// Number of catalogs that unpack each image.
    running: BTreeMap<String, usize>,
}

impl Attempts {
    pub(super) fn open(directory: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&directory)?;
        let mut state = State::default();
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            let (digest, last) = (entry.file_name().to_string_lossy().into_owned(), metadata.modified()?);
            if last.elapsed().is_ok_and(|age| age > REMEMBERED) {
                // Ignored even if it cannot be removed.
                let _ = fs::remove_file(entry.path());
                continue;
            }
            let crashes = metadata.len().max(1);
            tracing::warn!(digest, crashes, "previous process ended while unpacking image");
            state.suspects.insert(digest, Suspect { crashes, last });
        }
        Ok(Self { directory, state: Arc::new(Mutex::new(state)) })
    }

    pub(super) fn suspect(&self, digest: &str) -> Option<Suspect> {
        self.state.lock().suspects.get(digest).copied()
    }

    /// Starts an attempt, which ends when dropped. A full disk does not prevent it.
    pub(super) fn begin(&self, digest: &str) -> Attempt {
        let mut state = self.state.lock();
        let running = state.running.entry(digest.to_owned()).or_default();
        *running += 1;
        if *running == 1 {
            let noted = File::options().create(true).append(true).open(self.directory.join(digest));
            if let Err(error) = noted.and_then(|mut file| file.write_all(b".")) {
                tracing::warn!(digest, %error, "failed to record start of unpacking");
            }
        }
        Attempt { attempts: self.clone(), digest: digest.to_owned() }
    }

    /// Clears the suspicion against an image.
    pub(super) fn clear(&self, digest: &str) {
        let mut state = self.state.lock();
        state.suspects.remove(digest);
        if !state.running.contains_key(digest) {
            self.write_crashes(digest, 0);
        }
    }

    /// Ends an attempt. Its outcome proves nothing about a suspect, which may not have been read at all.
    fn end(&self, digest: &str) {
        let mut state = self.state.lock();
        let Some(running) = state.running.get_mut(digest) else { return };
        *running -= 1;
        if *running == 0 {
            state.running.remove(digest);
            self.write_crashes(digest, state.suspects.get(digest).map_or(0, |suspect| suspect.crashes));
        }
    }

    fn write_crashes(&self, digest: &str, crashes: u64) {
        let file = self.directory.join(digest);
        let written = match crashes {
            0 => fs::remove_file(file),
            crashes => File::options().write(true).open(file).and_then(|file| file.set_len(crashes)),
        };
        if let Err(error) = written
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(digest, %error, "failed to record end of unpacking");
        }
    }
}

#[derive(Debug)]
pub(super) struct Attempt {
    attempts: Attempts,
    digest: String,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.attempts.end(&self.digest);
    }
}

/// A directory that is removed with its read-only content when dropped, which also ends the attempt.
#[derive(Debug)]
pub struct UnpackDirectory {
    path: PathBuf,
    attempt: Attempt,
}

impl UnpackDirectory {
    pub(super) fn new(path: PathBuf, attempt: Attempt) -> Self {
        Self { path, attempt }
    }

    /// Path to unpack to. It does not exist yet, its parent does.
    pub fn destination(&self) -> PathBuf {
        self.path.join("image")
    }

    /// Clears the suspicion: the image was read to its end, or refused for its content.
    pub fn clear_suspicion(&self) {
        self.attempt.attempts.clear(&self.attempt.digest);
    }
}

impl Drop for UnpackDirectory {
    fn drop(&mut self) {
        discard(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_attempt_makes_image_suspect_until_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Attempts::open(folder.path().join("attempts")).unwrap();
        let crash = || std::mem::forget(open().begin("sha256:1"));
        drop(open().begin("sha256:1"));
        assert!(open().suspect("sha256:1").is_none());
        for crashes in 1..4 {
            crash();
            assert_eq!(open().suspect("sha256:1").map(|suspect| suspect.crashes), Some(crashes));
        }
        assert!(open().suspect("sha256:2").is_none());
        let attempts = open();
        // A pull that fails proves nothing.
        drop(attempts.begin("sha256:1"));
        let crashes = |attempts: &Attempts| attempts.suspect("sha256:1").map(|suspect| suspect.crashes);
        assert_eq!((crashes(&attempts), crashes(&open())), (Some(3), Some(3)));
        attempts.clear("sha256:1");
        assert_eq!((crashes(&attempts), crashes(&open())), (None, None));

        crash();
        let file = File::options().append(true).open(folder.path().join("attempts/sha256:1")).unwrap();
        file.set_modified(SystemTime::now() - REMEMBERED - FIRST_WAIT).unwrap();
        assert!(open().suspect("sha256:1").is_none());
    }

    #[test]
    fn attempts_of_several_catalogs_count_once_until_last_ends() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Attempts::open(folder.path().join("attempts")).unwrap();
        let attempts = open();
        let (one, other) = (attempts.begin("sha256:1"), attempts.begin("sha256:1"));
        attempts.clear("sha256:1");
        drop(one);
        assert_eq!(open().suspect("sha256:1").map(|suspect| suspect.crashes), Some(1));
        drop(other);
        assert!(open().suspect("sha256:1").is_none());
    }

    #[test]
    fn suspect_wait_doubles_up_to_one_hour() {
        let last = SystemTime::now();
        for (crashes, wait) in [(1, 0), (2, 60), (3, 120), (8, 3600), (u64::MAX, 3600)] {
            let (suspect, wait) = (Suspect { crashes, last }, Duration::from_secs(wait));
            assert!(suspect.is_due(last + wait), "{crashes}");
            let too_early = last + wait.saturating_sub(Duration::from_secs(1));
            assert_eq!(suspect.is_due(too_early), wait.is_zero(), "{crashes}");
            assert!(suspect.is_due(last - Duration::from_secs(1)), "{crashes}");
        }
    }
}
