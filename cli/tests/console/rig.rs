//! The console as a process, and axe-core.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Path in the crate.
pub(crate) fn data(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Process that ends when the value is dropped.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Running console.
pub(crate) struct Console {
    _process: Process,
    /// Address that begins a session.
    pub(crate) login: String,
}

impl Console {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_olm"));
        command.args(["console", "--no-open"]).args(arguments).env_remove("KUBECONFIG");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut login = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut login).unwrap();
        Self { _process: Process(child), login: login.trim().to_owned() }
    }

    /// Address of a page.
    pub(crate) fn url(&self, path: &str) -> String {
        let (origin, _) = self.login.split_once("/login").unwrap();
        format!("{origin}{path}")
    }
}

/// Source of axe-core, which npm installs by the lock file into the folder of build results.
pub(crate) fn axe() -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("axe");
    let script = folder.join("node_modules/axe-core/axe.min.js");
    let lock = std::fs::read(data("tests/console/axe/package-lock.json")).unwrap();
    if !script.exists() || std::fs::read(folder.join("package-lock.json")).ok().as_ref() != Some(&lock) {
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["package.json", "package-lock.json"] {
            std::fs::copy(data("tests/console/axe").join(name), folder.join(name)).unwrap();
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&folder);
        let ran = npm.output().expect("npm is needed");
        assert!(ran.status.success(), "npm ci: {}", String::from_utf8_lossy(&ran.stderr));
    }
    std::fs::read_to_string(script).unwrap()
}
