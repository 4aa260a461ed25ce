//! Process of a server, and its resource usage.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Poll interval of the resource usage, and of an exit.
const LOOK: Duration = Duration::from_millis(5);
const EXIT_POLL: Duration = Duration::from_millis(1);
/// Time limit of every measurement.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Running server. Killed on drop.
pub(crate) struct Server {
    name: &'static str,
    child: Child,
}

impl Server {
    /// Starts the program. Its log goes to the file `log`, or to standard error if that is `None`.
    pub(crate) fn spawn(
        name: &'static str,
        binary: &Path,
        log: Option<&Path>,
        arguments: &[String],
    ) -> Result<Self> {
        let stderr = match log {
            Some(file) => File::create(file)?.into(),
            None => Stdio::inherit(),
        };
        let child = Command::new(binary)
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(stderr)
            .spawn()
            .with_context(|| format!("start {}", binary.display()))?;
        Ok(Self { name, child })
    }

    /// Starts the program and waits for the first line that it prints.
    pub(crate) fn spawn_printing(
        name: &'static str,
        binary: &Path,
        arguments: &[String],
    ) -> Result<(Self, String)> {
        let mut child = Command::new(binary)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", binary.display()))?;
        let output = child.stdout.take().context("no standard output")?;
        let server = Self { name, child };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        Ok((server, line.trim_end().to_owned()))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the process has exited.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(ended) => bail!("{} exited with {ended}; --log shows why", self.name),
        }
    }

    /// Sends SIGTERM and waits. Returns the seconds until the exit.
    pub(crate) async fn stop(mut self) -> Result<f64> {
        let started = Instant::now();
        let sent = Command::new("kill").args(["-TERM", &self.pid().to_string()]).status()?;
        ensure!(sent.success(), "{} has exited", self.name);
        while self.child.try_wait()?.is_none() {
            ensure!(started.elapsed() < PATIENCE, "{} does not exit", self.name);
            tokio::time::sleep(EXIT_POLL).await;
        }
        Ok(started.elapsed().as_secs_f64())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the process has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Field of `/proc/PID/status` in MB (10^6 bytes).
pub(crate) fn memory(pid: u32, field: &str) -> Result<f64> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).context(path.clone())?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.map(|kilobytes| kilobytes * 1024.0 / 1e6).with_context(|| format!("{path} has no {field}"))
}

/// CPU time of the process in seconds.
pub(crate) fn processor_time(pid: u32) -> Result<f64> {
    /// Unit of the times in `/proc/PID/stat`. The same on every machine.
    const TICKS_PER_SECOND: f64 = 100.0;
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&path).context(path.clone())?;
    // The second field is the program's name in parentheses. utime and stime are the 14th and 15th.
    let fields = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>())
        .unwrap_or_default();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
    let used = ticks(11).zip(ticks(12)).with_context(|| format!("{path} has no times"))?;
    Ok((used.0 + used.1) / TICKS_PER_SECOND)
}

/// Disk usage of the files below `directory` in MB. Files deleted during the walk are ignored.
pub(crate) fn disk(directory: &Path) -> f64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0.0;
    };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk(&entry.path()),
        Ok(metadata) => metadata.blocks() as f64 * 512.0 / 1e6,
        Err(_) => 0.0,
    };
    entries.flatten().map(size).sum()
}

/// Polls a process and keeps the maxima.
pub(crate) struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<Peaks>,
}

/// Maxima in MB.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peaks {
    /// Anonymous memory.
    pub(crate) anonymous: f64,
    /// Disk usage of the directory.
    pub(crate) disk: f64,
}

impl Watch {
    /// Starts polling the process `pid` and `directory`.
    pub(crate) fn start(pid: u32, directory: &Path) -> Self {
        let (stop, stopped) = std::sync::mpsc::channel();
        let directory = directory.to_owned();
        let thread = std::thread::spawn(move || {
            let (mut peaks, mut looks) = (Peaks::default(), 0_u64);
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                peaks.anonymous = peaks.anonymous.max(memory(pid, "RssAnon").unwrap_or_default());
                // Walking a directory of many files is expensive.
                if looks.is_multiple_of(20) {
                    peaks.disk = peaks.disk.max(disk(&directory));
                }
                looks += 1;
            }
            peaks
        });
        Self { stop, thread }
    }

    /// Stops polling and returns the maxima.
    pub(crate) fn finish(self) -> Peaks {
        drop(self.stop);
        self.thread.join().unwrap_or_default()
    }
}
