//! Approvals and upgrade windows.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use olm_api::extension_plan::PlanPhase;
use olm_api::{ExtensionPlan, labels};
use olm_e2e::{PATIENCE, Scenario, Tool, eventually};
use serde_json::json;

/// Scenario with version 1.0.0 installed and these annotations, whose catalog then gets 1.1.0.
async fn with_newer_version(test: &str, annotations: serde_json::Value) -> Result<Scenario> {
    let mut scenario = Scenario::new(test, &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.annotate(annotations).await?;
    scenario.push_bundle("1.1.0", |_| {}).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]).await?;
    Ok(scenario)
}

/// Waits for the ExtensionPlan of this version in this phase.
async fn plan(scenario: &Scenario, version: &str, phase: PlanPhase) -> Result<ExtensionPlan> {
    let api: Api<ExtensionPlan> = scenario.cluster.all();
    let owned = ListParams::default().labels(&format!("{}={}", labels::OWNER_NAME, scenario.name));
    let what = format!("ExtensionPlan of {version} {phase}");
    eventually(&what, PATIENCE, async || {
        let all = api.list(&owned).await?.items;
        let is_so = |plan: &ExtensionPlan| plan.spec.plan.bundle.version == version && plan.phase() == phase;
        all.into_iter().find(is_so).context("not found")
    })
    .await
}

async fn drift_is_repaired(scenario: &Scenario) -> Result<()> {
    let settings = scenario.cluster.within::<ConfigMap>(&scenario.name);
    let name = format!("{}-settings", scenario.name);
    scenario.cluster.merge(&settings, &name, json!({"data": {"version": "drift"}})).await?;
    let repaired = |found: Option<&ConfigMap>| {
        found.and_then(|found| found.data.as_ref()).is_some_and(|data| data["version"] == "1.0.0")
    };
    scenario.cluster.wait(&settings, &name, "repaired", repaired).await?;
    scenario.wait_installed("1.0.0").await.map(drop)
}

// docs/design/approvals.md#approval, docs/design/approvals.md#plan-objects
#[tokio::test(flavor = "multi_thread")]
async fn upgrade_waits_until_its_plan_object_is_approved() -> Result<()> {
    let scenario = with_newer_version("approve", json!({"approval": "ManualUpgrades"})).await?;
    let waiting = plan(&scenario, "1.1.0", PlanPhase::Pending).await?;
    let available =
        format!("True/ApprovalRequired: bundle {} version 1.1.0", scenario.sample.bundle_name("1.1.0"));
    scenario.wait_condition("UpgradeAvailable", &available).await?;
    drift_is_repaired(&scenario).await?;

    let tool = Tool::new(&scenario.cluster)?;
    let ca = tool.path("ca");
    let ca = ca.to_str().context("the path is not UTF-8")?;
    let shown = tool.run(&["plan", &scenario.name, "--ca-dir", ca]);
    let Err(error) = shown else { anyhow::bail!("the plan requires no approval") };
    ensure!(error.to_string().contains("exit status: 6"), "{error}");
    let status = tool.run(&["status"])?;
    ensure!(status.contains("ApprovalRequired"), "{status}");
    // Neither catalogs nor bundles are read.
    let refused = tool.run(&["approve", &scenario.name, "--version", "1.2.0"]);
    ensure!(refused.is_err_and(|error| error.to_string().contains("installs version 1.1.0")));
    let said = tool.run(&["approve", &scenario.name, "--version", "1.1.0", "--wait"])?;
    ensure!(said.contains(&format!("/{} changed", waiting.name_any())), "{said}");
    scenario.wait_installed("1.1.0").await?;
    scenario.wait_condition("UpgradeAvailable", "False/UpToDate").await?;
    plan(&scenario, "1.1.0", PlanPhase::Applied).await?;

    scenario.cluster.delete(&scenario.extensions(), &scenario.name).await?;
    scenario.cluster.wait_gone(&scenario.cluster.all::<ExtensionPlan>(), &waiting.name_any()).await?;
    scenario.finish().await
}

// docs/design/approvals.md#upgrade-windows
#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because controllers/extension/src/controller/approval_tests.rs::closed_window_holds_an_upgrade_and_an_open_one_does_not proves it"]
async fn closed_window_holds_an_upgrade_until_a_window_opens() -> Result<()> {
    let scenario = with_newer_version("window", json!({"upgrade-window": "0 0 29 2 * 1m"})).await?;
    scenario.wait_condition("UpgradeAvailable", "True/OutsideWindow: bundle ").await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.annotate(json!({"upgrade-window": "0 0 29 2 * 1m; * * * * * 5m Europe/Berlin"})).await?;
    scenario.wait_installed("1.1.0").await?;
    scenario.finish().await
}
