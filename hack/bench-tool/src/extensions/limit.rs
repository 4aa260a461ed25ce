//! What the same objects take without an operator-controller.

use std::ops::Range;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use olm_bundle::{Bundle, Certificates, RenderOptions, render};
use serde_json::{Value, json};
use tokio::process::Command;

use super::content::{VERSIONS, bundle};
use super::fleet::{Fleet, INSTALL_NAMESPACE};

/// Seconds from `kubectl apply --server-side` of the objects of these extensions to all Deployments Available. Nothing
/// of them is left.
pub(super) async fn measure(
    fleet: &Fleet,
    kubeconfig: &Path,
    which: Range<usize>,
    operand: &str,
) -> Result<f64> {
    let file = fleet.file("limit.json");
    let objects: Vec<Value> = which
        .map(|number| objects(number, operand))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    std::fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())?;
    let file = file.display().to_string();
    let started = Instant::now();
    kubectl(kubeconfig, &["apply", "--server-side", "-f", &file]).await?;
    let namespace = format!("--namespace={INSTALL_NAMESPACE}");
    let wait = ["wait", "deployment", "--all", "--for=condition=Available", "--timeout=300s", &namespace];
    kubectl(kubeconfig, &wait).await?;
    let took = started.elapsed().as_secs_f64();
    kubectl(kubeconfig, &["delete", "-f", &file, "--wait", "--timeout=300s"]).await?;
    kubectl(kubeconfig, &["wait", "pod", "--all", "--for=delete", "--timeout=300s", &namespace]).await?;
    Ok(took)
}

fn objects(number: usize, operand: &str) -> Result<Vec<Value>> {
    let options = RenderOptions {
        install_namespace: INSTALL_NAMESPACE,
        config: None,
        certificates: Certificates::None,
        single_own_namespace: false,
        deployment_config: false,
        multi_watch_namespaces: false,
    };
    Ok(render(&Bundle::load(&bundle(number, VERSIONS[0], Some(operand)))?, &options)?)
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
