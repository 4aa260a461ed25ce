//! The process of operator-controller.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use olm_control_plane::ports::free_ports;

use crate::setup::{NAMESPACE, Setup};

/// Running operator-controller. Killed on drop.
pub(crate) struct Controller {
    child: Child,
    cache: PathBuf,
}

impl Controller {
    /// Starts the process, which trusts the setup's certificate and registry.
    pub(crate) fn spawn(setup: &Setup, binary: &Path, log: bool) -> Result<Self> {
        let [probe_port] = free_ports()?;
        let file = |name: &str| setup.file(name).display().to_string();
        let output =
            if log { Stdio::inherit() } else { File::create(file("operator-controller.log"))?.into() };
        let cache = setup.file("operator-controller");
        let child = Command::new(binary)
            .arg(format!("--kubeconfig={}", setup.kubeconfig().display()))
            .arg(format!("--system-namespace={NAMESPACE}"))
            .arg(format!("--cache-path={}", cache.display()))
            .arg(format!("--catalogd-cas-dir={}", file("catalogd-ca")))
            .arg(format!("--pull-cas-dir={}", file("registry")))
            .arg("--registry-deny-cidrs=")
            .arg(format!("--health-probe-bind-address=127.0.0.1:{probe_port}"))
            .stdin(Stdio::null())
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {}", binary.display()))?;
        Ok(Self { child, cache })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM and waits. Returns the seconds until the exit.
    pub(crate) fn stop(mut self) -> Result<f64> {
        let started = Instant::now();
        let sent = Command::new("kill").args(["-TERM", &self.pid().to_string()]).status()?;
        ensure!(sent.success(), "operator-controller has exited");
        self.child.wait()?;
        Ok(started.elapsed().as_secs_f64())
    }

    /// Cache folder of catalog content, with one folder per catalog.
    pub(crate) fn catalogs(&self) -> PathBuf {
        self.cache.join("catalogs")
    }

    /// Fails if the process has exited.
    pub(crate) fn check(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(ended.is_none(), "operator-controller exited with {ended:?}; --log shows why");
        Ok(())
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // Both fail only if the process has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
