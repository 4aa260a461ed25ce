//! Gate `OperatorConditionCompat`: an operator holds its own upgrade.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use olm_api::OperatorCondition;
use olm_api::operator_condition::CRD_NAME;
use olm_e2e::servers::{Before, Server};
use olm_e2e::{Scenario, Tool};
use serde_json::{Value, json};

use crate::alone;

/// Returns whether the operator may do this with the OperatorCondition of a version.
async fn may(scenario: &Scenario, verb: &str, version: &str) -> Result<bool> {
    let name = &scenario.name;
    let review = json!({"metadata": {}, "spec": {
        "user": format!("system:serviceaccount:{name}:{name}"),
        "resourceAttributes": {"group": "operators.coreos.com", "resource": "operatorconditions", "verb": verb,
            "namespace": name, "name": scenario.sample.bundle_name(version)},
    }});
    let api: Api<SubjectAccessReview> = scenario.cluster.all();
    let answer = api.create(&PostParams::default(), &serde_json::from_value(review)?).await?;
    Ok(answer.status.context("the review has no status")?.allowed)
}

/// Reports Upgradeable in the OperatorCondition of a version, as the operator does.
async fn report(scenario: &Scenario, version: &str, status: &str, message: &str) -> Result<()> {
    let api = scenario.cluster.within::<OperatorCondition>(&scenario.name);
    let condition = json!({"type": "Upgradeable", "status": status, "reason": "Migration", "message": message,
        "lastTransitionTime": "2026-11-24T10:00:00Z"});
    let patch = json!({"spec": {"conditions": [condition]}});
    scenario.cluster.merge(&api, &scenario.sample.bundle_name(version), patch).await?;
    Ok(())
}

async fn hold_and_release(scenario: &mut Scenario) -> Result<()> {
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    let bundle = scenario.sample.bundle_name("1.0.0");
    let deployments = scenario.cluster.within::<Deployment>(&scenario.name);
    let all = serde_json::to_value(deployments.list(&Default::default()).await?.items)?;
    let variables = all.pointer("/0/spec/template/spec/containers/0/env").and_then(Value::as_array);
    let variable = json!({"name": "OPERATOR_CONDITION_NAME", "value": bundle});
    ensure!(variables.is_some_and(|variables| variables.contains(&variable)), "{all}");
    for verb in ["get", "update", "patch"] {
        ensure!(may(scenario, verb, "1.0.0").await?, "the operator may not {verb} its OperatorCondition");
    }
    ensure!(!may(scenario, "delete", "1.0.0").await? && !may(scenario, "get", "1.1.0").await?);

    report(scenario, "1.0.0", "False", "moving data").await?;
    let conditions = scenario.cluster.within::<OperatorCondition>(&scenario.name);
    let is_mirrored = |found: Option<&OperatorCondition>| {
        let condition = found.and_then(|found| found.condition("Upgradeable"));
        condition.is_some_and(|condition| condition.status == "False")
    };
    scenario.cluster.wait(&conditions, &bundle, "mirrored", is_mirrored).await?;
    scenario.push_bundle("1.1.0", |_| {}).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]).await?;
    let next = scenario.sample.bundle_name("1.1.0");
    let held = format!("True/OperatorNotUpgradeable: bundle {next} version 1.1.0");
    let extension = scenario.wait_condition("UpgradeAvailable", &held).await?;
    let message = &extension.condition("UpgradeAvailable").context("no condition")?.message;
    ensure!(message.contains("the operator is not upgradeable: moving data"), "{message}");
    scenario.wait_installed("1.0.0").await?;
    let tool = Tool::new(&scenario.cluster)?;
    let status = tool.run(&["status"])?;
    ensure!(status.contains("OperatorNotUpgradeable"), "{status}");
    let ca = tool.path("ca");
    let plan = tool.json(&["plan", &scenario.name, "--ca-dir", ca.to_str().context("not UTF-8")?])?;
    ensure!(plan["state"] == "OperatorNotUpgradeable", "{plan}");
    ensure!(message.contains(plan["digest"].as_str().unwrap_or("no digest")), "{plan}: {message}");

    report(scenario, "1.0.0", "True", "done").await?;
    scenario.wait_installed("1.1.0").await?;
    scenario.cluster.wait_gone(&conditions, &bundle).await?;
    ensure!(may(scenario, "get", "1.1.0").await?, "the new operator may not read its OperatorCondition");
    scenario.cluster.delete(&scenario.extensions(), &scenario.name).await?;
    scenario.cluster.wait_gone(&scenario.extensions(), &scenario.name).await?;
    scenario.cluster.wait_gone(&conditions, &next).await
}

// docs/design/approvals.md#operator-conditions
#[tokio::test(flavor = "multi_thread")]
async fn operator_that_is_not_upgradeable_holds_its_upgrade() -> Result<()> {
    let _alone = alone().await;
    let mut scenario = Scenario::new("operator-condition", &["1.0.0"]).await?;
    let cluster = scenario.cluster.clone();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/operator-conditions.yaml");
    let crd: CustomResourceDefinition = serde_saphyr::from_str(&std::fs::read_to_string(path)?)?;
    let crds: Api<CustomResourceDefinition> = cluster.all();
    let apply = PatchParams::apply("kubectl").force();
    crds.patch(CRD_NAME, &apply, &Patch::Apply(&crd)).await?;
    let gate = ["--feature-gates=OperatorConditionCompat=true"];
    let before = Before::with_args(&cluster, Server::OperatorController, &gate).await?;
    before.during(&cluster, async || hold_and_release(&mut scenario).await).await?;
    // Uninstalling an extension does not delete the CRD.
    cluster.delete(&crds, CRD_NAME).await?;
    scenario.finish().await
}
