//! A leader election candidate written in Go.

use std::io;
use std::process::Command;

use crate::process::Process;
use crate::{ControlPlane, Error};

/// kube-scheduler that competes for a Lease through client-go, to test compatibility. Killed on drop.
pub struct GoCandidate {
    process: Process,
}

impl ControlPlane {
    /// Starts a candidate for this Lease with a duration of 3 s, a renew deadline of 2 s and a retry period of 200
    /// ms.
    pub fn go_candidate(&self, namespace: &str, lease: &str) -> Result<GoCandidate, Error> {
        let arguments = [
            format!("--kubeconfig={}", self.kubeconfig.display()),
            "--secure-port=0".to_owned(),
            "--leader-elect=true".to_owned(),
            "--leader-elect-resource-lock=leases".to_owned(),
            format!("--leader-elect-resource-namespace={namespace}"),
            format!("--leader-elect-resource-name={lease}"),
            "--leader-elect-lease-duration=3s".to_owned(),
            "--leader-elect-renew-deadline=2s".to_owned(),
            "--leader-elect-retry-period=200ms".to_owned(),
        ];
        let process =
            Process::start(&self.programs, "kube-scheduler", self.directory.path(), &arguments, None)?;
        Ok(GoCandidate { process })
    }
}

impl GoCandidate {
    /// Returns an error if the process has exited.
    pub fn check_running(&mut self) -> Result<(), Error> {
        self.process.check_running()
    }

    /// Sends SIGTERM, on which the process releases the Lease, and waits for its exit.
    pub fn stop(mut self) -> Result<(), Error> {
        let failed = |error| Error::Io("stopping kube-scheduler".to_owned(), error);
        let sent = Command::new("kill").args(["-TERM", &self.process.id()]).status().map_err(failed)?;
        if !sent.success() {
            return Err(failed(io::Error::other("it has exited")));
        }
        self.process.wait().map_err(failed)
    }
}
