//! A memory cgroup, version 1 or 2, for one process of a test.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

struct Files {
    limit: &'static str,
    peak: &'static str,
    events: &'static str,
}

const VERSION_1: Files =
    Files { limit: "memory.limit_in_bytes", peak: "memory.max_usage_in_bytes", events: "memory.oom_control" };
const VERSION_2: Files = Files { limit: "memory.max", peak: "memory.peak", events: "memory.events" };

/// A cgroup below the root of the hierarchy. Removed when dropped.
pub(crate) struct Cgroup {
    folder: PathBuf,
    files: &'static Files,
}

impl Cgroup {
    /// A cgroup with this memory limit in bytes.
    pub(crate) fn with_memory(bytes: u64) -> Self {
        let now = UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let mut problem = String::new();
        for (root, files) in [("/sys/fs/cgroup/memory", &VERSION_1), ("/sys/fs/cgroup", &VERSION_2)] {
            // Version 2 must enable the controllers of children.
            let _ = fs::write(Path::new(root).join("cgroup.subtree_control"), "+memory");
            let folder = Path::new(root).join(format!("catalogd-test-{now}"));
            let this = Self { folder, files };
            let made = fs::create_dir(&this.folder)
                .and_then(|()| fs::write(this.folder.join(files.limit), bytes.to_string()));
            match made {
                Ok(()) => return this,
                Err(error) => problem += &format!("; {}: {error}", this.folder.display()),
            }
        }
        panic!("this test needs root and the memory controller below /sys/fs/cgroup{problem}");
    }

    /// A command line that moves its shell into the cgroup and executes `program`.
    pub(crate) fn command(&self, program: &str) -> [String; 4] {
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", self.folder.display());
        ["sh".to_owned(), "-c".to_owned(), enter, program.to_owned()]
    }

    /// Peak memory of its processes in bytes, page cache included.
    pub(crate) fn peak(&self) -> String {
        fs::read_to_string(self.folder.join(self.files.peak)).unwrap_or_default().trim().to_owned()
    }

    /// Current anonymous memory in bytes.
    pub(crate) fn anonymous(&self) -> u64 {
        self.value("memory.stat", &["anon", "rss"])
    }

    /// Number of processes that the OOM killer ended.
    pub(crate) fn kills(&self) -> u64 {
        self.value(self.files.events, &["oom_kill"])
    }

    fn value(&self, file: &str, keys: &[&str]) -> u64 {
        let text = fs::read_to_string(self.folder.join(file)).unwrap();
        let wanted = |line: &str| {
            let (key, value) = line.split_once(' ')?;
            keys.contains(&key).then(|| value.parse().unwrap())
        };
        text.lines().find_map(wanted).unwrap_or_else(|| panic!("{file} has none of {keys:?}"))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The last process may not have exited yet.
        let until = Instant::now() + Duration::from_secs(5);
        while self.folder.exists() && fs::remove_dir(&self.folder).is_err() && Instant::now() < until {
            std::thread::yield_now();
        }
    }
}

/// The memory limit of the container in this manifest, in bytes.
pub(crate) fn limit_of(manifest: &str) -> u64 {
    let limits = manifest.lines().find_map(|line| line.trim().strip_prefix("limits: {memory: ")).unwrap();
    limits.strip_suffix("Mi}").unwrap().parse::<u64>().unwrap() << 20
}
