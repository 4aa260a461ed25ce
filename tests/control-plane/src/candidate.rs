//! A candidate for a Lease that is written in Go.

use std::io;
use std::process::Command;

use crate::process::Process;
use crate::{ControlPlane, Error};

/// A kube-scheduler that seeks a Lease by client-go, whose ways ours have to be a match for. Killed when dropped.
pub struct GoCandidate {
    process: Process,
}

impl ControlPlane {
    /// Starts a candidate for this Lease: valid for 3 s, given up after 2 s without a renewal, tried for each 200 ms.
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
        let process = Process::start(&self.binary, "kube-scheduler", self.directory.path(), &arguments)?;
        Ok(GoCandidate { process })
    }
}

impl GoCandidate {
    /// An error if it has ended.
    pub fn check_running(&mut self) -> Result<(), Error> {
        self.process.check_running()
    }

    /// Asks it to end (SIGTERM), on which it gives up the Lease, and waits until it has.
    pub fn stop(mut self) -> Result<(), Error> {
        let failed = |error| Error::Io("stopping kube-scheduler".to_owned(), error);
        let told = Command::new("kill").args(["-TERM", &self.process.id()]).status().map_err(failed)?;
        if !told.success() {
            return Err(failed(io::Error::other("it has ended already")));
        }
        self.process.wait().map_err(failed)
    }
}
