//! Simulated wall clock of a process.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use olm_require::Need;
use tempfile::{NamedTempFile, TempDir};

/// Path of libfaketime. Without the library the loader only warns, and steps of the clock have no effect.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/// Wall clock of a process, which libfaketime reads from a file. Monotonic time is real.
pub struct WallClock(TempDir);

impl WallClock {
    /// Creates a clock with the real time.
    ///
    /// # Errors
    /// libfaketime is missing, and the test cannot be skipped, or a file cannot be written.
    pub fn new() -> Result<Self> {
        if !Path::new(FAKETIME).exists() {
            let reason = format!("there is no {FAKETIME}: install the Debian package faketime");
            olm_require::skip(Need::Tools, &reason);
            bail!("{reason}");
        }
        let clock = Self(TempDir::new()?);
        clock.set(0)?;
        Ok(clock)
    }

    /// Sets the offset from the real time in seconds.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn set(&self, seconds: i64) -> Result<()> {
        // Other threads may set it at the same time.
        let new = NamedTempFile::new_in(self.0.path())?;
        fs::write(&new, format!("{seconds:+}"))?;
        new.persist(self.file())?;
        Ok(())
    }

    /// Environment variables that make a process use this clock.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, String); 4] {
        [
            ("LD_PRELOAD", FAKETIME.to_owned()),
            ("FAKETIME_TIMESTAMP_FILE", self.file().display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("offset")
    }
}
