//! One program of the control plane: found, started, watched, and stopped when dropped.

use crate::Error;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Lines of a log that an error shows.
const LOG_LINES: usize = 30;

/// The binary that holds all programs: `OLM_CLUSTER_BINARY`, or what `hack/cluster binary` prints.
pub(crate) fn binary() -> Result<PathBuf, Error> {
    if let Some(path) = std::env::var_os("OLM_CLUSTER_BINARY") {
        return Ok(path.into());
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/cluster");
    let output = Command::new(&script)
        .arg("binary")
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Error::Binary(format!("{}: {error}", script.display())))?;
    if !output.status.success() {
        return Err(Error::Binary(format!("{} binary: {}", script.display(), output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().into())
}

/// A running program whose output goes to a file.
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn start<A: AsRef<OsStr>>(
        binary: &Path,
        name: &'static str,
        directory: &Path,
        arguments: &[A],
    ) -> Result<Self, Error> {
        let log = directory.join(format!("{name}.log"));
        let failed = |error| Error::Io(format!("starting {name} of {}", binary.display()), error);
        let output = File::create(&log).map_err(failed)?;
        let child = Command::new(binary)
            .arg(name)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(output)
            .spawn()
            .map_err(failed)?;
        Ok(Self { name, child, log })
    }

    /// `kill -9`; nothing happens to one that has ended.
    pub(crate) fn kill(&mut self) {
        // Both fail only if the process is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// What `kill` calls it.
    pub(crate) fn id(&self) -> String {
        self.child.id().to_string()
    }

    /// Waits until it has ended, however it did.
    pub(crate) fn wait(&mut self) -> std::io::Result<()> {
        self.child.wait().map(drop)
    }

    /// An error if the program has ended.
    pub(crate) fn check_running(&mut self) -> Result<(), Error> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.not_ready(format!("ended with {status}"))),
            Err(error) => Err(self.not_ready(format!("cannot be watched: {error}"))),
        }
    }

    /// The error that says `what` about this program and shows the end of its log.
    pub(crate) fn not_ready(&self, what: String) -> Error {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let mut lines: Vec<&str> = log.lines().rev().take(LOG_LINES).collect();
        lines.reverse();
        Error::NotReady { name: self.name, what, log: lines.join("\n") }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
