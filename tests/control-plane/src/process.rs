//! Process of the control plane: lookup of its binary, start, supervision, and stop on drop.

use crate::Error;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use olm_require::Need;

/// Number of log lines in an error.
const LOG_LINES: usize = 30;

/// Programs of a control plane: files of the folder `KUBEBUILDER_ASSETS`, or one binary with all of them.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    assets: Option<PathBuf>,
    binary: Option<PathBuf>,
}

impl Programs {
    /// Programs of `KUBEBUILDER_ASSETS`. The binary is `OLM_CLUSTER_BINARY`, or without both of them the one that
    /// `hack/cluster binary` builds.
    pub(crate) fn of_environment() -> Self {
        let path = |name| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        let (assets, binary) = (path("KUBEBUILDER_ASSETS"), path("OLM_CLUSTER_BINARY"));
        let is_built = assets.is_none() && binary.is_none();
        Self { assets, binary: if is_built { built() } else { binary } }
    }

    /// Command that runs a program. Without it, ends the test if it can be skipped.
    pub(crate) fn command(&self, name: &'static str) -> Result<Command, Error> {
        let asset = self.assets.as_ref().map(|folder| folder.join(name)).filter(|path| path.is_file());
        match (asset, &self.binary) {
            (Some(asset), _) => Ok(Command::new(asset)),
            (None, Some(binary)) => {
                let mut command = Command::new(binary);
                command.arg(name);
                Ok(command)
            }
            (None, None) => {
                let needs_assets = matches!(name, "etcd" | "kube-apiserver" | "kubectl");
                let need = if needs_assets { Need::ControlPlane } else { Need::Controllers };
                let error = Error::Program { name, advice: advice(needs_assets) };
                olm_require::skip(need, &error.to_string());
                Err(error)
            }
        }
    }
}

fn advice(needs_assets: bool) -> &'static str {
    match needs_assets {
        true => {
            "set KUBEBUILDER_ASSETS to a folder with etcd, kube-apiserver and kubectl, or run `hack/cluster binary`, \
             which needs Go"
        }
        false => {
            "it is not in KUBEBUILDER_ASSETS; set OLM_CLUSTER_BINARY to the path that `hack/cluster binary` prints, \
             which needs Go"
        }
    }
}

/// Output of `hack/cluster binary`. `None` if it fails.
fn built() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/cluster");
        let output = Command::new(&script).arg("binary").stderr(Stdio::inherit()).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().into())
    };
    BUILT.get_or_init(build).clone()
}

/// Running program with its output in a file.
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    /// Process group.
    group: i32,
    log: PathBuf,
}

impl Process {
    /// Starts a program in the process group of `group`, which has a running process, or as the first of a new group.
    pub(crate) fn start<A: AsRef<OsStr>>(
        programs: &Programs,
        name: &'static str,
        directory: &Path,
        arguments: &[A],
        group: Option<&Self>,
    ) -> Result<Self, Error> {
        let log = directory.join(format!("{name}.log"));
        let mut command = programs.command(name)?;
        let program = command.get_program().display().to_string();
        let failed = |error| Error::Io(format!("starting {name} of {program}"), error);
        let output = File::create(&log).map_err(failed)?;
        let child = command
            .args(arguments)
            // Collects garbage less often: the processes are short-lived, and processors are scarce.
            .env("GOGC", "400")
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(failed)?)
            .stderr(output)
            .process_group(group.map_or(0, |member| member.group))
            .spawn()
            .map_err(failed)?;
        let group = group.map_or_else(|| child.id().cast_signed(), |member| member.group);
        Ok(Self { name, child, group, log })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_asset_or_part_of_binary() {
        let folder = tempfile::tempdir().unwrap();
        let etcd = folder.path().join("etcd");
        fs::write(&etcd, "").unwrap();
        let found = |assets: bool, binary: bool, name| {
            let assets = assets.then(|| folder.path().to_owned());
            let programs = Programs { assets, binary: binary.then(|| PathBuf::from("/all")) };
            let command = programs.command(name).map_err(|error| error.to_string())?;
            let arguments: Vec<&OsStr> = command.get_args().collect();
            Ok::<_, String>([&[command.get_program()], &arguments[..]].concat().join(OsStr::new(" ")))
        };
        for (assets, binary, name, expected) in [
            (true, true, "etcd", etcd.to_str().unwrap()),
            (true, false, "etcd", etcd.to_str().unwrap()),
            (true, true, "kube-scheduler", "/all kube-scheduler"),
            (false, true, "etcd", "/all etcd"),
        ] {
            assert_eq!(found(assets, binary, name).unwrap(), expected, "{name}");
        }
        for (assets, name, expected) in [
            (true, "kubectl", "no kubectl: set KUBEBUILDER_ASSETS to a folder with etcd, "),
            (false, "kube-apiserver", "no kube-apiserver: set KUBEBUILDER_ASSETS to a folder with etcd, "),
            (
                true,
                "kube-controller-manager",
                "no kube-controller-manager: it is not in KUBEBUILDER_ASSETS; set ",
            ),
        ] {
            let error = found(assets, false, name).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
