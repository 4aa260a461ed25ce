//! Automatic rollback. `hack/e2e` changes the schema to permit a deadline of one minute.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::ListParams;
use olm_api::ClusterObjectSet;
use olm_e2e::{Scenario, Tool, eventually, replace_in};
use sample_operator::content::CSV;
use serde_json::json;

/// UID of the ready pod of the operator.
async fn ready_pod(scenario: &Scenario) -> Result<String> {
    let pods = scenario.cluster.within::<Pod>(&scenario.name);
    let ready = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.clone().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    eventually("one ready pod", olm_e2e::PATIENCE, async || {
        let all = pods.list(&ListParams::default()).await?.items;
        let mut ready = all.iter().filter(|pod| ready(pod));
        let (first, more) = (ready.next().context("no ready pod")?, ready.next());
        ensure!(more.is_none(), "several ready pods");
        first.uid().context("the pod has no UID")
    })
    .await
}

// docs/design/approvals.md#automatic-rollback
#[tokio::test(flavor = "multi_thread")]
async fn upgrade_that_never_becomes_ready_is_rolled_back_until_a_retry_is_requested() -> Result<()> {
    let mut scenario = Scenario::new("rolled-back", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.annotate(json!({"on-failure": "Rollback"})).await?;
    let deadline = json!({"spec": {"progressDeadlineMinutes": 1}});
    scenario.cluster.merge(&scenario.extensions(), &scenario.name, deadline).await?;
    scenario.wait_installed("1.0.0").await?;
    let before = ready_pod(&scenario).await?;
    let never = "[/sample-operator, never]";
    scenario.push_bundle("1.1.0", |files| replace_in(files, CSV, "[/sample-operator, ready]", never)).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]).await?;

    let [old, new] = ["1.0.0", "1.1.0"].map(|version| scenario.sample.bundle_name(version));
    let name = &scenario.name;
    let message = |failed: u32, restored: u32| {
        format!(
            "False/ProgressDeadlineExceeded: Revision {name}-{failed} of bundle {new} version 1.1.0 has exceeded its \
             progress deadline and was rolled back: revision {name}-{restored} restores bundle {old} version 1.0.0"
        )
    };
    scenario.wait_condition("Progressing", &message(2, 3)).await?;
    scenario.wait_revision(3, "Succeeded", "True/Succeeded").await?;
    scenario.wait_condition("UpgradeAvailable", &format!("True/RolledBack: bundle {new} ")).await?;
    scenario.wait_revision(2, "Progressing", "False/Archived").await?;
    let note = scenario.wait_event("RolledBack").await?;
    ensure!(note.starts_with(&format!("revision {name}-3 restores ")), "{note}");
    ensure!(scenario.condition_now("Available").await?.starts_with("True/ProbesSucceeded"));
    // The pod of the old version was never replaced.
    ensure!(ready_pod(&scenario).await? == before);
    let tool = Tool::new(&scenario.cluster)?;
    let status = tool.run(&["status", name])?;
    ensure!(status.contains("was rolled back") && status.contains(&old), "{status}");
    let ca = tool.path("ca");
    let plan = tool.json(&["plan", name, "--ca-dir", ca.to_str().context("the path is not UTF-8")?])?;
    ensure!(plan["state"] == "RolledBack", "{plan}");

    scenario.annotate(json!({"retry-requested-at": "now"})).await?;
    scenario.wait_revision(4, "Progressing", "True/RollingOut").await?;
    scenario.wait_condition("Progressing", &message(4, 5)).await?;
    scenario.wait_revision(5, "Succeeded", "True/Succeeded").await?;
    ensure!(scenario.cluster.all::<ClusterObjectSet>().get_opt(&format!("{name}-6")).await?.is_none());

    // A corrected bundle needs no request.
    scenario.push_bundle("1.1.1", |_| {}).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.1"]))]).await?;
    scenario.wait_installed("1.1.1").await?;
    let deployments = scenario.cluster.within::<Deployment>(&scenario.name);
    let found = deployments.list(&ListParams::default()).await?.items;
    ensure!(found.iter().all(|one| one.annotations()["olm.operatorframework.io/bundle-version"] == "1.1.1"));
    scenario.finish().await
}
