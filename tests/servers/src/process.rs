//! Processes of the servers.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use olm_control_plane::PATIENCE;

/// Poll interval for a process.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Number of log lines in an error and after a failed test.
const LOG_LINES: usize = 60;

/// Paths of the server binaries.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Path of catalogd.
    pub catalogd: PathBuf,
    /// Path of operator-controller.
    pub operator_controller: PathBuf,
}

impl Programs {
    /// Binaries of a build: `operator_controller`, and catalogd in the same folder. The environment variable
    /// `OLM_PROGRAMS` names a different folder with both.
    ///
    /// # Errors
    /// The folder contains no catalogd.
    pub fn beside(operator_controller: impl Into<PathBuf>) -> Result<Self> {
        let operator_controller = match std::env::var_os("OLM_PROGRAMS") {
            Some(folder) => Path::new(&folder).join("operator-controller"),
            None => operator_controller.into(),
        };
        let catalogd = operator_controller.with_file_name("catalogd");
        ensure!(
            catalogd.exists(),
            "{} is missing: build it with `cargo build -p catalogd`",
            catalogd.display()
        );
        Ok(Self { catalogd, operator_controller })
    }
}

/// Running server. Killed on drop.
pub struct Server {
    name: &'static str,
    child: Child,
    log: PathBuf,
    probe_port: u16,
}

impl Server {
    /// Starts the process with its output appended to `log`, without waiting.
    pub(crate) fn spawn(
        name: &'static str,
        program: &Path,
        arguments: &[String],
        environment: &[(&str, String)],
        log: PathBuf,
        probe_port: u16,
    ) -> Result<Self> {
        let output = File::options().create(true).append(true).open(&log)?;
        let child = Command::new(program)
            .args(arguments)
            .arg(format!("--health-probe-bind-address=127.0.0.1:{probe_port}"))
            .envs(environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        Ok(Self { name, child, log, probe_port })
    }

    /// Waits until the readiness probe succeeds.
    ///
    /// # Errors
    /// The process exited, or is not ready in time.
    pub async fn ready(&mut self) -> Result<()> {
        let url = format!("http://127.0.0.1:{}/readyz", self.probe_port);
        let client = reqwest::Client::builder().no_proxy().build()?;
        let deadline = Instant::now() + PATIENCE;
        while !client.get(&url).send().await.is_ok_and(|answer| answer.status() == 200) {
            self.check()?;
            ensure!(Instant::now() < deadline, "{} is not ready:\n{}", self.name, self.end_of_log());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Log of all processes of this program in this fixture.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Fails if the process has exited.
    ///
    /// # Errors
    /// Contains the exit status and the end of the log.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} exited with {status}:\n{}", self.name, self.end_of_log()),
        }
    }

    /// Waits until the process exits by itself or is killed.
    ///
    /// # Errors
    /// The process does not exit in time.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(Instant::now() < deadline, "{} does not exit:\n{}", self.name, self.end_of_log());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Sends SIGTERM and waits for the exit.
    ///
    /// # Errors
    /// The process does not exit in time, or with a failure.
    pub async fn stop(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let status = self.ended().await?;
        ensure!(status.success(), "{} exited with {status}:\n{}", self.name, self.end_of_log());
        Ok(())
    }

    /// Sends SIGKILL. No effect if the process has exited.
    pub fn kill(&mut self) {
        // Both fail only if the process has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn end_of_log(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let from = lines.len().saturating_sub(LOG_LINES);
        lines.get(from..).unwrap_or_default().join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("the end of {}:\n{}", self.log.display(), self.end_of_log());
        }
    }
}
