//! Upgradeable status of the cluster, with CRDs that replace the APIs of OpenShift. One test, because all tests share
//! the platform.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::conditions::is_crd_established;
use olm_api::{ClusterUpgradeStatus, conditions};
use olm_e2e::{Cluster, Scenario, Tool};
use serde_json::{Value, json};

/// CRDs of `config.openshift.io` with the fields that OLM reads and writes.
const CRDS: &str = include_str!("../../data/openshift-crds.yaml");

fn config_api(cluster: &Cluster, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("config.openshift.io", "v1", kind);
    Api::all_with(cluster.client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
}

fn crds() -> Result<Vec<CustomResourceDefinition>> {
    let all: Vec<CustomResourceDefinition> = serde_saphyr::from_multiple(CRDS)?;
    Ok(all.into_iter().filter(|crd| crd.spec.group == "config.openshift.io").collect())
}

/// Deletes the CRDs of OpenShift, which an earlier run may have left.
async fn no_openshift(cluster: &Cluster) -> Result<()> {
    let all: Api<CustomResourceDefinition> = cluster.all();
    for crd in crds()? {
        let name = crd.metadata.name.context("the CRD has no name")?;
        cluster.delete(&all, &name).await?;
        cluster.wait_gone(&all, &name).await?;
    }
    Ok(())
}

/// Condition Upgradeable of the ClusterOperator as `Status/Reason: message`.
fn upgradeable(operator: &DynamicObject) -> String {
    let all = operator.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    all.iter().find(|condition| condition["type"] == "Upgradeable").map_or_else(String::new, |condition| {
        format!(
            "{}/{}: {}",
            text(&condition["status"]),
            text(&condition["reason"]),
            text(&condition["message"])
        )
    })
}

/// Type of the platform, and `Status/Reason` of the ClusterUpgradeStatus.
fn verdict(status: &ClusterUpgradeStatus) -> Option<String> {
    let status = status.status.as_ref()?;
    let condition = conditions::find(&status.conditions, "Upgradeable")?;
    let platform = status.platform.as_ref()?;
    Some(format!("{} {}/{}", platform.type_, condition.status, condition.reason))
}

async fn wait_verdict(cluster: &Cluster, expect: &'static str) -> Result<ClusterUpgradeStatus> {
    let says = move |found: Option<&ClusterUpgradeStatus>| found.and_then(verdict).as_deref() == Some(expect);
    cluster.wait(&cluster.all(), "cluster", expect, says).await
}

async fn wait_operator(cluster: &Cluster, expect: &str) -> Result<DynamicObject> {
    let operators = config_api(cluster, "ClusterOperator", "clusteroperators");
    let expected = expect.to_owned();
    let says = move |found: Option<&DynamicObject>| found.is_some_and(|found| upgradeable(found) == expected);
    cluster.wait(&operators, "olm", expect, says).await
}

/// Acknowledges the installed bundle 1.0.0 with the command line tool, then upgrades to 1.0.1, which blocks as well.
// docs/design/operations.md#acknowledgements; cases operations-a46, operations-e38
async fn acknowledged_bundle_unblocks_until_it_changes(scenario: &mut Scenario, blocks: &str) -> Result<()> {
    let name = scenario.name.clone();
    let tool = Tool::new(&scenario.cluster)?;
    let shown = tool.json(&["cluster-check", "--acknowledge", &name, "--comment", "e2e"])?;
    ensure!(shown["upgradeable"] == "True" && shown["blockingExtensions"] == 0, "{shown}");
    wait_operator(&scenario.cluster, "True/AsExpected: All is well").await?;
    let status = wait_verdict(&scenario.cluster, "OpenShift True/AsExpected").await?;
    let rows = status.status.map(|status| status.extensions).unwrap_or_default();
    let row = rows.iter().find(|row| row.name == name).context("the extension has no row")?;
    ensure!(row.result.as_str() == "Acknowledged", "{row:?}");

    scenario.push_bundle("1.0.1", |files| limit(files, "4.17")).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.0.1"]))]).await?;
    scenario.wait_installed("1.0.1").await?;
    let (before, after) = (scenario.sample.bundle_name("1.0.0"), scenario.sample.bundle_name("1.0.1"));
    wait_operator(&scenario.cluster, &blocks.replace(&before, &after)).await?;
    wait_verdict(&scenario.cluster, "OpenShift False/IncompatibleOperatorsInstalled").await?;
    Ok(())
}

/// Declares the highest supported OpenShift version in the files of a bundle.
fn limit(files: &mut BTreeMap<String, Vec<u8>>, version: &str) {
    let text = format!("properties:\n  - type: olm.maxOpenShiftVersion\n    value: \"{version}\"\n");
    files.insert("metadata/properties.yaml".to_owned(), text.into_bytes());
}

// docs/design/additions.md#ignored-constraints; cases operations-a34, operations-a35, operations-a41, operations-a42,
// operations-a43, operations-a45, seeds-s2-7
#[tokio::test(flavor = "multi_thread")]
async fn openshift_minor_update_is_blocked_until_the_extension_is_upgraded() -> Result<()> {
    let mut scenario = Scenario::new("blocker", &[]).await?;
    no_openshift(&scenario.cluster).await?;
    scenario.push_bundle("1.0.0", |files| limit(files, "4.17")).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    // On Kubernetes other than OpenShift the value is shown and blocks nothing.
    let says = |found: Option<&ClusterUpgradeStatus>| {
        found.and_then(|found| found.status.as_ref()).is_some_and(|status| {
            status.extensions.iter().any(|one| one.value == "4.17" && one.result.as_str() == "NotApplicable")
        })
    };
    scenario.cluster.wait(&scenario.cluster.all(), "cluster", "value in the status", says).await?;
    wait_verdict(&scenario.cluster, "Kubernetes True/AsExpected").await?;

    for crd in crds()? {
        let name = crd.metadata.name.clone().context("the CRD has no name")?;
        let all: Api<CustomResourceDefinition> = scenario.cluster.all();
        all.patch(&name, &PatchParams::apply("olm-e2e").force(), &Patch::Apply(&crd)).await?;
        scenario.cluster.wait(&all, &name, "established", is_crd_established()).await?;
    }
    let versions = config_api(&scenario.cluster, "ClusterVersion", "clusterversions");
    let version = json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion",
        "metadata": {"name": "version"}, "spec": {"clusterID": "e2e"}});
    versions.create(&PostParams::default(), &serde_json::from_value(version)?).await?;
    let history = json!({"status": {"desired": {"version": "4.17.3"}, "history": [{"state": "Completed",
        "version": "4.17.3", "startedTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T01:00:00Z"}]}});
    versions.patch_status("version", &PatchParams::default(), &Patch::Merge(&history)).await?;

    let blocks = format!(
        "False/InstalledOLMOperators_IncompatibleOperatorsInstalled: InstalledOLMOperatorsUpgradeable: Found \
         ClusterExtensions that require upgrades prior to upgrading cluster to version 4.18: bundle \"{}\" for \
         ClusterExtension \"{}\".",
        scenario.sample.bundle_name("1.0.0"),
        scenario.name
    );
    wait_operator(&scenario.cluster, &blocks).await?;
    let status = wait_verdict(&scenario.cluster, "OpenShift False/IncompatibleOperatorsInstalled").await?;
    let blocking = status.status.and_then(|status| status.blocking_extensions);
    ensure!(blocking == Some(1), "blocking extensions: {blocking:?}");

    acknowledged_bundle_unblocks_until_it_changes(&mut scenario, &blocks).await?;
    scenario.push_bundle("1.1.0", |files| limit(files, "4.18")).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.0.1", "1.1.0"]))]).await?;
    scenario.wait_installed("1.1.0").await?;
    wait_operator(&scenario.cluster, "True/AsExpected: All is well").await?;
    wait_verdict(&scenario.cluster, "OpenShift True/AsExpected").await?;

    let operators = config_api(&scenario.cluster, "ClusterOperator", "clusteroperators");
    scenario.cluster.delete(&operators, "olm").await?;
    wait_operator(&scenario.cluster, "True/AsExpected: All is well").await?;

    let cluster = Cluster::connect().await?;
    scenario.finish().await?;
    no_openshift(&cluster).await?;
    wait_verdict(&cluster, "Kubernetes True/AsExpected").await?;
    Ok(())
}
