//! A memory cgroup, version 1 or 2, for one process of a test.

use std::fs;
use std::path::{Path, PathBuf};

/// A cgroup below the root of the hierarchy, which is removed when dropped.
pub(crate) struct Cgroup {
    path: PathBuf,
    counter: &'static str,
}

impl Cgroup {
    /// A cgroup that may use so many bytes.
    pub(crate) fn with_memory(bytes: u64) -> Self {
        let rows = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
            ("/sys/fs/cgroup", "memory.max", "memory.events"),
        ];
        for (root, limit, counter) in rows {
            // Version 2 has a switch for the controllers of children.
            let _ = fs::write(Path::new(root).join("cgroup.subtree_control"), "+memory");
            let path = Path::new(root).join(format!("catalogd-test-{}", std::process::id()));
            if fs::create_dir(&path).is_err() {
                continue;
            }
            let this = Self { path, counter };
            if fs::write(this.path.join(limit), bytes.to_string()).is_ok() {
                return this;
            }
        }
        panic!(
            "no memory cgroup can be made below /sys/fs/cgroup: this test needs root and the memory controller"
        );
    }

    /// A command line that moves itself into the cgroup and becomes `program`.
    pub(crate) fn command(&self, program: &str) -> [String; 4] {
        let procs = self.path.join("cgroup.procs");
        let script = format!("echo $$ > {} && exec {program} \"$@\"", procs.display());
        ["sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()]
    }

    /// How many processes the kernel killed for want of memory.
    pub(crate) fn kills(&self) -> u64 {
        let text = fs::read_to_string(self.path.join(self.counter)).unwrap();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.expect("a kernel that counts kills").parse().unwrap()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Fails while a process is in it. An empty one that stays is harmless.
        let _ = fs::remove_dir(&self.path);
    }
}
