//! Condition Available of extensions and revisions.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use olm_e2e::Scenario;
use serde_json::json;

/// Makes the operator's readiness probe pass (`recover`) or fail (`falter`).
fn operator(scenario: &Scenario, verb: &str) -> Result<()> {
    let deployment = format!("deployment/{}", scenario.name);
    let output = Command::new("kubectl")
        .args(["--namespace", &scenario.name, "exec", &deployment, "--", "/sample-operator", verb])
        .output()
        .context("kubectl")?;
    ensure!(output.status.success(), "{verb}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

// docs/design/apply.md#mirrored-conditions, docs/design/apply.md#revision-conditions; case api-24
#[tokio::test(flavor = "multi_thread")]
async fn available_condition_follows_the_operator() -> Result<()> {
    let scenario = Scenario::new("faltering", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    operator(&scenario, "falter")?;
    let not_ready = format!("False/ProbeFailure: Object Deployment.apps/v1 {0}/{0}: ", scenario.name);
    scenario.wait_revision(1, "Available", &not_ready).await?;
    scenario.wait_condition("Available", &not_ready).await?;
    scenario.wait_condition("Installed", "True/Succeeded").await?;
    operator(&scenario, "recover")?;
    scenario.wait_revision(1, "Available", "True/ProbesSucceeded").await?;
    scenario.wait_condition("Available", "True/ProbesSucceeded").await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.finish().await
}
