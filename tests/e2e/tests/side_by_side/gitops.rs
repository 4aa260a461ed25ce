//! Conditions Ready, Reconciling and Stalled, as kubectl reads them.

use std::process::Command;

use anyhow::{Result, ensure};
use olm_api::conditions::is_true;
use olm_e2e::{Scenario, describe};
use serde_json::json;

/// Waits for a condition with kubectl, which ignores conditions of an older generation.
fn wait(condition: &str, objects: &[&str], limit: &str) -> Result<()> {
    let (condition, limit) = (format!("--for=condition={condition}"), format!("--timeout={limit}"));
    let output = Command::new("kubectl").args(["wait", &condition, &limit]).args(objects).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kubectl wait {condition} {objects:?}: {text}");
    Ok(())
}

// docs/design/additions.md#status-summary; case apply-57
#[tokio::test(flavor = "multi_thread")]
async fn kubectl_waits_for_ready_and_stalled_by_an_invalid_configuration() -> Result<()> {
    let scenario = Scenario::new("gitops", &["1.0.0"]).await?;
    let digest =
        scenario.push_catalog(&scenario.catalog_text(&[("stable", scenario.chain(&["1.0.0"]))])).await?;
    scenario.apply_catalog(json!({"ref": digest})).await?;
    scenario.install(json!({})).await?;
    let [catalog, extension, revision] = ["clustercatalog/", "clusterextension/", "clusterobjectset/"]
        .map(|kind| format!("{kind}{}", scenario.name));
    wait("Ready", &[&catalog, &extension, &format!("{revision}-1")], "5m")?;
    let found = scenario.extensions().get(&scenario.name).await?;
    let (generation, status) = (found.metadata.generation, found.status.unwrap_or_default());
    ensure!(status.observed_generation == generation, "{status:?}");
    ensure!(
        is_true(&status.conditions, "Installed") && is_true(&status.conditions, "Available"),
        "{status:?}"
    );
    let copied = status.active_revisions.iter().flat_map(|revision| &revision.conditions);
    ensure!(copied.into_iter().all(|condition| condition.type_ != "Ready"));

    scenario.configure(json!({"unknown": true})).await?;
    wait("Stalled", &[&extension], "1m")?;
    scenario.wait_condition("Ready", "False/InvalidConfiguration: ").await?;
    let refused = format!(
        "False/InvalidConfiguration: error for resolved bundle \"{}\" with version \"1.0.0\": invalid ClusterExtension \
         configuration: ",
        scenario.sample.bundle_name("1.0.0")
    );
    let found = scenario.wait_condition("Progressing", &refused).await?;
    ensure!(describe(&found, "Installed").starts_with("True/Succeeded"));
    scenario.annotate(json!({"paused": "true"})).await?;
    scenario.cluster.merge(&scenario.extensions(), &scenario.name, json!({"spec": {"config": null}})).await?;
    scenario.wait_condition("Stalled", "True/Paused: ").await?;
    scenario.annotate(json!({"paused": null})).await?;
    wait("Ready", &[&extension], "2m")?;
    ensure!(scenario.condition_now("Stalled").await? == "-");
    scenario.wait_installed("1.0.0").await?;
    scenario.finish().await
}
