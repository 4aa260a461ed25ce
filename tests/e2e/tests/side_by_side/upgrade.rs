//! Upgrades and downgrades.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use olm_api::ClusterObjectSet;
use olm_api::cluster_object_set::LifecycleState;
use olm_e2e::{Scenario, replace_in};
use sample_operator::content::CSV;
use serde_json::json;

const SETTINGS: &str = "manifests/settings.configmap.yaml";

// Cases apply-10, apply-11
#[tokio::test(flavor = "multi_thread")]
async fn upgrade_follows_the_edges_and_deletes_dropped_objects() -> Result<()> {
    let mut scenario = Scenario::new("upgrade", &["1.1.0", "2.0.0"]).await?;
    let extra = format!("{}-extra", scenario.name);
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": extra}, "data": {"a": "b"}});
    scenario
        .push_bundle("1.0.0", |files| {
            files.insert("manifests/extra.yaml".to_owned(), object.to_string().into_bytes());
        })
        .await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0", "2.0.0"]))]).await?;
    scenario.install(json!({"version": "1.0.0"})).await?;
    scenario.wait_installed("1.0.0").await?;
    let maps = scenario.cluster.within::<ConfigMap>(&scenario.name);
    maps.get(&extra).await?;
    scenario.edit(json!({"version": ">=1.0.0"})).await?;
    scenario.wait_installed("2.0.0").await?;
    let sets = scenario.cluster.all::<ClusterObjectSet>();
    let revision = |number: i32| format!("{}-{number}", scenario.name);
    for (number, state) in [(1, "Archived"), (2, "Archived"), (3, "Active")] {
        let archived = move |set: Option<&ClusterObjectSet>| {
            set.and_then(|set| set.spec.as_ref()).is_some_and(|spec| spec.lifecycle_state.as_str() == state)
        };
        scenario.cluster.wait(&sets, &revision(number), state, archived).await?;
    }
    let old = sets.get(&revision(1)).await?;
    let shown = old.status.map(|status| status.conditions).unwrap_or_default();
    ensure!(shown.iter().any(|c| c.type_ == "Succeeded" && c.status == "True"), "{shown:?}");
    scenario.wait_revision(1, "Progressing", "False/Archived").await?;
    scenario.wait_revision(3, "Available", "True/ProbesSucceeded").await?;
    scenario.cluster.wait_gone(&maps, &extra).await?;
    let newest = revision(3);
    let is_handed_over = move |found: Option<&ConfigMap>| {
        let owners = found.and_then(|found| found.metadata.owner_references.as_deref()).unwrap_or_default();
        owners.len() == 1 && owners[0].name == newest
    };
    let name = format!("{}-settings", scenario.name);
    let settings =
        scenario.cluster.wait(&maps, &name, "owned only by the newest revision", is_handed_over).await?;
    ensure!(settings.data.unwrap_or_default()["version"] == "2.0.0");
    downgrade_requires_self_certified(&scenario).await?;
    scenario.finish().await
}

async fn downgrade_requires_self_certified(scenario: &Scenario) -> Result<()> {
    scenario.edit(json!({"version": "1.1.0"})).await?;
    let refused = format!(
        "True/Retrying: error upgrading from currently installed version \"2.0.0\": no bundles found for package \
         \"{}\" matching version \"1.1.0\"",
        scenario.name
    );
    scenario.wait_condition("Progressing", &refused).await?;
    scenario.wait_condition("Installed", "True/Succeeded").await?;
    scenario.edit(json!({"upgradeConstraintPolicy": "SelfCertified"})).await?;
    scenario.wait_installed("1.1.0").await.map(drop)
}

// Cases apply-12, apply-13
#[tokio::test(flavor = "multi_thread")]
async fn stuck_rollout_can_be_replaced_by_another_version() -> Result<()> {
    let mut scenario = Scenario::new("stuck", &["1.0.0", "1.2.0"]).await?;
    scenario
        .push_bundle("1.1.0", |files| {
            for file in files.values_mut() {
                let text = String::from_utf8_lossy(file)
                    .replace("[/sample-operator, ready]", "[/sample-operator, never]");
                *file = text.into_bytes();
            }
        })
        .await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0", "1.2.0"]))]).await?;
    scenario.install(json!({"version": "1.0.0"})).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.edit(json!({"version": "1.1.0"})).await?;
    let name = scenario.name.clone();
    let is_stuck = move |extension: Option<&olm_api::ClusterExtension>| {
        extension.and_then(|extension| extension.status.as_ref()).is_some_and(|status| {
            let revisions: Vec<&str> =
                status.active_revisions.iter().map(|revision| revision.name.as_str()).collect();
            let failing = status.active_revisions.last().is_some_and(|revision| {
                revision.conditions.iter().any(|c| c.type_ == "Available" && c.reason == "ProbeFailure")
            });
            revisions == [format!("{name}-1"), format!("{name}-2")] && failing
        })
    };
    scenario.cluster.wait(&scenario.extensions(), &scenario.name, "two revisions", is_stuck).await?;
    scenario.wait_condition("Installed", "True/Succeeded").await?;
    scenario.edit(json!({"version": "1.2.0", "upgradeConstraintPolicy": "SelfCertified"})).await?;
    scenario.wait_installed("1.2.0").await?;
    let sets = scenario.cluster.all::<ClusterObjectSet>();
    for number in [1, 2] {
        let archived = |set: Option<&ClusterObjectSet>| {
            set.and_then(|set| set.spec.as_ref())
                .is_some_and(|spec| spec.lifecycle_state == LifecycleState::Archived)
        };
        scenario.cluster.wait(&sets, &format!("{}-{number}", scenario.name), "archived", archived).await?;
    }
    scenario.finish().await
}

/// Changes settings that concern no object.
async fn settings_patch_the_revision(scenario: &Scenario) -> Result<()> {
    let patch = json!({"spec": {"progressDeadlineMinutes": 20}});
    scenario.cluster.merge(&scenario.extensions(), &scenario.name, patch).await?;
    let sets = scenario.cluster.all::<ClusterObjectSet>();
    let patched = |set: Option<&ClusterObjectSet>| {
        set.and_then(|set| set.spec.as_ref()).is_some_and(|spec| spec.progress_deadline_minutes == Some(20))
    };
    let first = format!("{}-1", scenario.name);
    scenario.cluster.wait(&sets, &first, "deadline of 20 minutes", patched).await?;
    let patch = json!({"spec": {"install": {"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}}}});
    scenario.cluster.merge(&scenario.extensions(), &scenario.name, patch).await?;
    scenario.wait_installed("1.0.0").await?;
    ensure!(sets.get_opt(&format!("{}-2", scenario.name)).await?.is_none(), "a second revision exists");
    Ok(())
}

// Cases apply-7, apply-8, apply-9
#[tokio::test(flavor = "multi_thread")]
async fn only_another_version_creates_a_revision_and_the_same_objects_no_restart() -> Result<()> {
    let mut scenario = Scenario::new("same", &["1.0.0"]).await?;
    let as_before = |files: &mut BTreeMap<String, Vec<u8>>| {
        for (path, before) in [(CSV, "value: \"1.0.0\""), (SETTINGS, "version: 1.0.0")] {
            replace_in(files, path, &before.replace("1.0.0", "1.1.0"), before);
        }
    };
    scenario.push_bundle("1.1.0", as_before).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]).await?;
    scenario.install(json!({"version": "1.0.0"})).await?;
    scenario.wait_installed("1.0.0").await?;
    settings_patch_the_revision(&scenario).await?;
    let deployments = scenario.cluster.within::<Deployment>(&scenario.name);
    let before = deployments.get(&scenario.name).await?;
    scenario.edit(json!({"version": "1.1.0"})).await?;
    scenario.wait_installed("1.1.0").await?;
    scenario.wait_revision(2, "Progressing", "True/Succeeded").await?;
    let after = deployments.get(&scenario.name).await?;
    ensure!(after.spec == before.spec, "the operator was restarted");
    scenario.finish().await
}
