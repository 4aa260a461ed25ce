//! Process of the control plane: lookup of its binary, start, supervision, and stop on drop.

use crate::Error;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Number of log lines in an error.
const LOG_LINES: usize = 30;

/// Binary that contains all programs: `OLM_CLUSTER_BINARY`, or the output of `hack/cluster binary`.
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

/// Running program with its output in a file.
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program in the process group of `group`, or as the first of a new group.
    pub(crate) fn start<A: AsRef<OsStr>>(
        binary: &Path,
        name: &'static str,
        directory: &Path,
        arguments: &[A],
        group: Option<&Self>,
    ) -> Result<Self, Error> {
        let log = directory.join(format!("{name}.log"));
        let failed = |error| Error::Io(format!("starting {name} of {}", binary.display()), error);
        let output = File::create(&log).map_err(failed)?;
        let child = Command::new(binary)
            .arg(name)
            .args(arguments)
            // Collects garbage less often: the processes are short-lived, and processors are scarce.
            .env("GOGC", "400")
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(output)
            .process_group(group.map_or(0, |first| first.child.id().cast_signed()))
            .spawn()
            .map_err(failed)?;
        Ok(Self { name, child, log })
    }

    /// Kills the process with SIGKILL. No effect if it has exited.
    pub(crate) fn kill(&mut self) {
        // Both fail only if the process has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Process ID.
    pub(crate) fn id(&self) -> String {
        self.child.id().to_string()
    }

    /// Waits for the exit, with any status.
    pub(crate) fn wait(&mut self) -> std::io::Result<()> {
        self.child.wait().map(drop)
    }

    /// Returns an error if the program has exited.
    pub(crate) fn check_running(&mut self) -> Result<(), Error> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.not_ready(format!("exited with {status}"))),
            Err(error) => Err(self.not_ready(format!("has no readable status: {error}"))),
        }
    }

    /// Builds the error with `what` and the end of the log.
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

/// Shell that kills a process group and removes its directory as soon as the test process has ended in any way. Its
/// standard input is closed then.
pub(crate) struct Watchdog(Child);

impl Watchdog {
    /// Watches over the process group of which `first` is the first process.
    pub(crate) fn start(first: &Process, directory: &Path) -> Result<Self, Error> {
        let script = r#"read -r _; kill -s KILL -- "-$0"; rm -rf -- "$1""#;
        let child = Command::new("sh")
            .args(["-c", script])
            .arg(first.id())
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        Ok(Self(child.map_err(|error| Error::Io("starting sh".to_owned(), error))?))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Both fail only if the shell has exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
