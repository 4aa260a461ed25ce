//! Cost of the same objects without operator-controller.

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use olm_bundle::{BundleContent, RenderOptions, render};
use serde_json::{Value, json};
use tokio::process::Command;

use super::content::{VERSIONS, bundle};
use super::fleet::{Fleet, INSTALL_NAMESPACE};

/// Seconds of kubectl and the cluster for these extensions.
pub(super) struct Limit {
    /// Time from `kubectl apply --server-side` of the objects of the first version until all Deployments are
    /// Available.
    pub(super) install: f64,
    /// Time from the same command with the objects of the second version until all Deployments are rolled out,
    /// including the deletion of the objects that only the first version has.
    pub(super) upgrade: f64,
}

/// Measures the objects of these extensions, and deletes them.
pub(super) async fn measure(
    fleet: &Fleet,
    kubeconfig: &Path,
    which: Range<usize>,
    operand: &str,
) -> Result<Limit> {
    let namespace = format!("--namespace={INSTALL_NAMESPACE}");
    let all = |version| -> Result<Vec<Value>> {
        let all: Vec<_> =
            which.clone().map(|number| objects(number, version, operand)).collect::<Result<_>>()?;
        Ok(all.concat())
    };
    let [old, new] = VERSIONS.map(all);
    let (old, new) = (old?, new?);
    let identity = |object: &Value| [object["kind"].clone(), object["metadata"]["name"].clone()];
    let kept: HashSet<_> = new.iter().map(identity).collect();
    let stale: Vec<_> = old.iter().filter(|object| !kept.contains(&identity(object))).collect();
    let write = |name: &str, items: Value| -> Result<String> {
        let file = fleet.setup.file(name);
        std::fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string())?;
        Ok(file.display().to_string())
    };
    let stale = &write("limit-stale.json", json!(stale))?;
    let (first, second) = (&write("limit-1.json", json!(old))?, &write("limit-2.json", json!(new))?);
    let wait = ["wait", "deployment", "--all", "--for=condition=Available", "--timeout=300s", &namespace];
    let rolled_out = ["rollout", "status", "deployment", "--timeout=300s", &namespace];
    let install = timed(kubeconfig, &[&["apply", "--server-side", "-f", first], &wait]).await?;
    let prune = ["delete", "-f", stale, "--wait=false"];
    let upgrade =
        timed(kubeconfig, &[&["apply", "--server-side", "-f", second], &rolled_out, &prune]).await?;
    kubectl(kubeconfig, &["delete", "-f", first, "-f", second, "--ignore-not-found", "--wait=false"]).await?;
    kubectl(kubeconfig, &["wait", "-f", first, "-f", second, "--for=delete", "--timeout=300s"]).await?;
    kubectl(kubeconfig, &["wait", "pod", "--all", "--for=delete", "--timeout=300s", &namespace]).await?;
    Ok(Limit { install, upgrade })
}

/// Runs these commands sequentially. Returns the seconds.
async fn timed(kubeconfig: &Path, commands: &[&[&str]]) -> Result<f64> {
    let started = Instant::now();
    for arguments in commands {
        kubectl(kubeconfig, arguments).await?;
    }
    Ok(started.elapsed().as_secs_f64())
}

fn objects(number: usize, version: &str, operand: &str) -> Result<Vec<Value>> {
    let options = RenderOptions { install_namespace: INSTALL_NAMESPACE, ..RenderOptions::default() };
    Ok(render(&BundleContent::load(&bundle(number, version, Some(operand)))?, &options)?)
}

async fn kubectl(kubeconfig: &Path, arguments: &[&str]) -> Result<()> {
    let status = Command::new("kubectl")
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .await
        .context("kubectl")?;
    ensure!(status.success(), "kubectl {} failed", arguments.join(" "));
    Ok(())
}
