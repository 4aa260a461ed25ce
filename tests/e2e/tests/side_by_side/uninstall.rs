//! Uninstallation of operators whose custom resources have finalizers.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams};
use olm_e2e::{PATIENCE, Scenario, eventually, replace_in};
use sample_operator::CLEANUP;
use sample_operator::content::Sample;
use serde_json::{Value, json};

/// Time limit of an uninstallation that waits for finalizers.
const LIMIT: Duration = Duration::from_secs(30);
const CRD: &str = "manifests/greetings.crd.yaml";

/// Creates a greeting with the operator's finalizer. Retries until the webhooks respond.
pub(crate) async fn greet(scenario: &Scenario, version: &str, name: &str, spec: Value) -> Result<()> {
    eventually("the greeting is accepted", PATIENCE, async || {
        scenario.greet(version, &scenario.name, name, spec.clone()).await.map(drop).or_else(|error| {
            match error {
                kube::Error::Api(status) if status.is_already_exists() => Ok(()),
                error => Err(error.into()),
            }
        })
    })
    .await?;
    let finalizer = Patch::Merge(json!({"metadata": {"finalizers": [CLEANUP]}}));
    scenario.greetings(version, &scenario.name).patch(name, &PatchParams::default(), &finalizer).await?;
    Ok(())
}

fn crd(scenario: &Scenario) -> String {
    format!("greetings.{}", scenario.sample.group)
}

/// Uninstalls with `olm`. Returns its exit code and output.
pub(crate) fn uninstall(scenario: &Scenario) -> Result<(Option<i32>, String)> {
    let tool = std::env::var("OLM_TOOL").context("OLM_TOOL is not set; run hack/e2e")?;
    let ran = Command::new(tool).args(["uninstall", &scenario.name, "--yes", "--wait"]).output()?;
    Ok((ran.status.code(), String::from_utf8(ran.stderr)?))
}

/// Uninstalls within the limit, and checks that nothing remains.
async fn ends_clean(scenario: &Scenario) -> Result<()> {
    let begin = Instant::now();
    let (code, said) = uninstall(scenario)?;
    ensure!(code == Some(0), "{code:?}: {said}");
    ensure!(begin.elapsed() < LIMIT, "uninstall took {:?}", begin.elapsed());
    let crds = scenario.cluster.all::<CustomResourceDefinition>();
    ensure!(crds.get_opt(&crd(scenario)).await?.is_none(), "the CRD still exists");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_with_finalizers_are_deleted_on_uninstall() -> Result<()> {
    let scenario = Scenario::of("cleanup", Sample::scoped, &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    for round in ["first", "again"] {
        scenario.install(json!({})).await?;
        scenario.wait_installed("1.0.0").await?;
        greet(&scenario, "v1", round, json!({"name": "world"})).await?;
        ends_clean(&scenario).await?;
    }
    scenario.finish().await
}

// The webhook must convert until the last greeting is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_of_two_stored_versions_are_deleted_on_uninstall() -> Result<()> {
    let mut scenario = Scenario::of("stored", Sample::webhooks, &["2.0.0"]).await?;
    scenario
        .push_bundle("1.0.0", |files| {
            replace_in(files, CRD, "storage: false", "storage: later");
            replace_in(files, CRD, "storage: true", "storage: false");
            replace_in(files, CRD, "storage: later", "storage: true");
        })
        .await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "2.0.0"]))]).await?;
    scenario.install(json!({"version": "1.0.0"})).await?;
    scenario.wait_installed("1.0.0").await?;
    greet(&scenario, "v1", "old", json!({"name": "world"})).await?;
    scenario.edit(json!({"version": "2.0.0"})).await?;
    scenario.wait_installed("2.0.0").await?;
    greet(&scenario, "v2", "new", json!({"who": "world"})).await?;
    let crds = scenario.cluster.all::<CustomResourceDefinition>();
    let stored = crds.get(&crd(&scenario)).await?.status.and_then(|status| status.stored_versions);
    ensure!(stored.as_deref().is_some_and(|stored| stored == ["v1", "v2"]), "{stored:?}");
    ends_clean(&scenario).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("2.0.0").await?;
    scenario.finish().await
}

// Some GitOps tools use foreground deletion.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because controllers/revision/tests/api_server/main.rs::retained_crds_survive_foreground_deletion_and_olm_uninstall proves it"]
async fn retained_crds_survive_a_foreground_deletion() -> Result<()> {
    let scenario = Scenario::new("foreground", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.annotate(json!({"uninstall-policy": "KeepCRDs"})).await?;
    let (api, name) = (scenario.cluster.all::<CustomResourceDefinition>(), crd(&scenario));
    let owned_twice = |found: Option<&CustomResourceDefinition>| {
        found.is_some_and(|found| found.metadata.owner_references.as_ref().map_or(0, Vec::len) == 2)
    };
    scenario.cluster.wait(&api, &name, "a second owner", owned_twice).await?;
    scenario.greet("v1", &scenario.name, "kept", json!({"name": "world"})).await?;
    scenario.extensions().delete(&scenario.name, &DeleteParams::foreground()).await?;
    scenario.cluster.wait_gone(&scenario.extensions(), &scenario.name).await?;
    scenario.greetings("v1", &scenario.name).get("kept").await?;
    let kept = api.get(&name).await?;
    ensure!(
        kept.metadata.deletion_timestamp.is_none() && kept.metadata.owner_references.is_none(),
        "{kept:?}"
    );
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.greetings("v1", &scenario.name).get("kept").await?;
    scenario.annotate(json!({"uninstall-policy": null})).await?;
    scenario.finish().await
}
