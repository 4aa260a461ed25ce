//! Resource usage of a process and its directory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

/// Poll interval.
const LOOK: Duration = Duration::from_millis(5);

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
    stop: Arc<AtomicBool>,
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
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, directory) = (Arc::clone(&stop), directory.to_owned());
        let looks = AtomicU64::new(0);
        let thread = std::thread::spawn(move || {
            let mut peaks = Peaks::default();
            while !stopped.load(Ordering::Relaxed) {
                peaks.anonymous = peaks.anonymous.max(memory(pid, "RssAnon").unwrap_or_default());
                // Walking a directory of many files is expensive.
                if looks.fetch_add(1, Ordering::Relaxed).is_multiple_of(20) {
                    peaks.disk = peaks.disk.max(disk(&directory));
                }
                std::thread::sleep(LOOK);
            }
            peaks
        });
        Self { stop, thread }
    }

    /// Stops polling and returns the maxima.
    pub(crate) fn finish(self) -> Peaks {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}
