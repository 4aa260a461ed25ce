//! Images that are being unpacked, by digest, so that the next process knows what ended this one.
//!
//! A file `<cache>/attempts/<digest>` exists while catalogs unpack the image. It has one byte for each process since the last
//! that came to an end with it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use super::store::discard;

/// Wait after the second attempt that ended the process. Each further one doubles it.
const FIRST_WAIT: Duration = Duration::from_secs(60);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// An attempt that ended the process is forgotten after this time.
const REMEMBERED: Duration = Duration::from_secs(24 * 3600);

/// An image that was being unpacked when an earlier process ended.
#[derive(Clone, Copy, Debug)]
pub struct Suspect {
    /// How many times in a row.
    pub crashes: u64,
    last: SystemTime,
}

impl Suspect {
    /// Whether the wait since the last attempt is over.
    pub fn is_due(&self, now: SystemTime) -> bool {
        let wait = match self.crashes {
            0 | 1 => Duration::ZERO,
            crashes => FIRST_WAIT.saturating_mul(1 << (crashes - 2).min(8)).min(LONGEST_WAIT),
        };
        // A clock that was set back must not hold an image up.
        now.duration_since(self.last).map_or(true, |passed| passed >= wait)
    }
}

/// The attempts of this process and the suspects of those before.
#[derive(Clone, Debug)]
pub(super) struct Attempts {
    directory: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    suspects: BTreeMap<String, Suspect>,
    /// How many catalogs unpack the image.
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
                // What stays is forgotten all the same.
                let _ = fs::remove_file(entry.path());
                continue;
            }
            let crashes = metadata.len().max(1);
            tracing::warn!(digest, crashes, "the process before ended while this image was unpacked");
            state.suspects.insert(digest, Suspect { crashes, last });
        }
        Ok(Self { directory, state: Arc::new(Mutex::new(state)) })
    }

    pub(super) fn suspect(&self, digest: &str) -> Option<Suspect> {
        self.state.lock().suspects.get(digest).copied()
    }

    /// An attempt that ends when dropped. A full disk does not keep it from beginning.
    pub(super) fn begin(&self, digest: &str) -> Attempt {
        let mut state = self.state.lock();
        let running = state.running.entry(digest.to_owned()).or_default();
        *running += 1;
        if *running == 1 {
            let noted = File::options().create(true).append(true).open(self.directory.join(digest));
            if let Err(error) = noted.and_then(|mut file| file.write_all(b".")) {
                tracing::warn!(digest, %error, "attempt to unpack an image not noted");
            }
        }
        Attempt { attempts: self.clone(), digest: digest.to_owned() }
    }

    /// The image of this digest does no harm.
    pub(super) fn clear(&self, digest: &str) {
        let mut state = self.state.lock();
        state.suspects.remove(digest);
        if !state.running.contains_key(digest) {
            self.write_crashes(digest, 0);
        }
    }

    /// Ends an attempt, whatever came of it: that proves nothing about a suspect, which may not have been read at all.
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
            tracing::warn!(digest, %error, "end of an attempt to unpack an image not noted");
        }
    }
}

/// The unpacking of one image.
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

/// A directory that is removed with all its read-only content when dropped, which also ends the attempt.
#[derive(Debug)]
pub struct UnpackDirectory {
    path: PathBuf,
    attempt: Attempt,
}

impl UnpackDirectory {
    pub(super) fn new(path: PathBuf, attempt: Attempt) -> Self {
        Self { path, attempt }
    }

    /// Where to unpack to: does not exist yet, its parent does.
    pub fn destination(&self) -> PathBuf {
        self.path.join("image")
    }

    /// The image was read to its end, or refused for what it holds: it does no harm.
    pub fn survived(&self) {
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
    fn attempt_without_end_makes_a_suspect_until_one_ends() {
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
        // A registry that does not answer proves nothing.
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
    fn attempts_of_several_catalogs_count_once_and_until_the_last_ends() {
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
    fn wait_of_a_suspect_doubles_up_to_an_hour() {
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
