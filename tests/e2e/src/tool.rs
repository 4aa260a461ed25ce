//! `olm` in tests.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::Cluster;

/// `olm` with access to the cluster's registry from this machine.
pub struct Tool {
    binary: PathBuf,
    folder: tempfile::TempDir,
    /// Address of the registry for this machine.
    pub registry: String,
}

impl Tool {
    /// Uses the binary `OLM_TOOL` and the registry `OLM_REGISTRY_ADDRESS`.
    pub fn new(cluster: &Cluster) -> Result<Self> {
        let variable =
            |name: &str| std::env::var(name).with_context(|| format!("{name} is not set; run hack/e2e"));
        let folder = tempfile::tempdir()?;
        let registry = variable("OLM_REGISTRY_ADDRESS")?;
        std::fs::create_dir(folder.path().join("ca"))?;
        std::fs::copy(variable("OLM_REGISTRY_CA")?, folder.path().join("ca/ca.crt"))?;
        let registries =
            format!("[[registry]]\nprefix = \"{}\"\nlocation = \"{registry}\"\n", cluster.registry);
        std::fs::write(folder.path().join("registries.conf"), registries)?;
        Ok(Self { binary: variable("OLM_TOOL")?.into(), folder, registry })
    }

    /// Path of a file in the working directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs `olm`. Returns its output.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output()?;
        if !output.status.success() {
            bail!("olm {arguments:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Starts `olm` without waiting. Its output is piped.
    pub fn start(&self, arguments: &[&str]) -> Result<Child> {
        let mut command = self.command(arguments);
        Ok(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(arguments).env("CONTAINERS_REGISTRIES_CONF", self.path("registries.conf"));
        command
    }

    /// Runs `olm` with `-o json`. Returns the parsed output.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(&self.run(&[arguments, &["-o", "json"]].concat())?)?)
    }
}
