//! The command line tool in tests.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::Scenario;

/// The tool with the cluster's registry in reach of this machine.
pub struct Tool {
    binary: PathBuf,
    folder: tempfile::TempDir,
    /// The registry, as this machine connects to it.
    pub registry: String,
}

impl Tool {
    /// The tool of `OLM_TOOL` with the registry of `OLM_REGISTRY_ADDRESS`.
    pub fn new(scenario: &Scenario) -> Result<Self> {
        let variable =
            |name: &str| std::env::var(name).with_context(|| format!("{name} is not set; run hack/e2e"));
        let folder = tempfile::tempdir()?;
        let registry = variable("OLM_REGISTRY_ADDRESS")?;
        std::fs::create_dir(folder.path().join("ca"))?;
        std::fs::copy(variable("OLM_REGISTRY_CA")?, folder.path().join("ca/ca.crt"))?;
        let registries =
            format!("[[registry]]\nprefix = \"{}\"\nlocation = \"{registry}\"\n", scenario.cluster.registry);
        std::fs::write(folder.path().join("registries.conf"), registries)?;
        Ok(Self { binary: variable("OLM_TOOL")?.into(), folder, registry })
    }

    /// A file in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What it prints.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(&self.binary)
            .args(arguments)
            .env("CONTAINERS_REGISTRIES_CONF", self.path("registries.conf"))
            .output()?;
        if !output.status.success() {
            bail!("olm {arguments:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// What it prints as JSON.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        Ok(serde_json::from_str(&self.run(&[arguments, &["-o", "json"]].concat())?)?)
    }
}
