//! ExtensionPlans: approval by object, and garbage collection.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use olm_api::extension_plan::PlanPhase;
use olm_api::{ExtensionPlan, labels};
use olm_e2e::{PATIENCE, Scenario, Tool, eventually};
use serde_json::json;

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

// docs/design/approvals.md#plan-objects
#[tokio::test(flavor = "multi_thread")]
async fn approved_plan_object_is_installed_and_deleted_with_its_extension() -> Result<()> {
    let mut scenario = Scenario::new("plans", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.annotate(json!({"approval": "ManualUpgrades"})).await?;
    scenario.push_bundle("1.1.0", |_| {}).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]).await?;
    let waiting = plan(&scenario, "1.1.0", PlanPhase::Pending).await?;
    scenario.wait_condition("UpgradeAvailable", "True/ApprovalRequired").await?;

    // Neither catalogs nor bundles are read.
    let tool = Tool::new(&scenario.cluster)?;
    let refused = tool.run(&["approve", &scenario.name, "--version", "1.2.0"]);
    ensure!(refused.is_err_and(|error| error.to_string().contains("installs version 1.1.0")));
    let said = tool.run(&["approve", &scenario.name, "--version", "1.1.0", "--wait"])?;
    ensure!(said.contains(&format!("/{} changed", waiting.name_any())), "{said}");
    scenario.wait_installed("1.1.0").await?;
    plan(&scenario, "1.1.0", PlanPhase::Applied).await?;

    scenario.cluster.delete(&scenario.extensions(), &scenario.name).await?;
    scenario.cluster.wait_gone(&scenario.cluster.all::<ExtensionPlan>(), &waiting.name_any()).await?;
    scenario.finish().await
}
