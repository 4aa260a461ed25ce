//! Two extensions with the same CRD: two packages, and one package twice.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use olm_api::ClusterExtension;
use olm_e2e::{Scenario, Tool, condition, describe, extension};
use serde_json::json;

const COLLIDES: &str = "True/Retrying: revision object collisions in phase ";

/// Checks that `olm` ends with exit code 3 and an error that contains each of `texts`.
fn ensure_refused(scenario: &Scenario, arguments: &[&str], texts: &[&str]) -> Result<()> {
    let tool = Tool::new(&scenario.cluster)?;
    let ca = tool.path("ca");
    let ca = ["--ca-dir", ca.to_str().context("the path is not UTF-8")?];
    let error = tool.run(&[arguments, &ca].concat()).err().context("olm succeeded")?.to_string();
    for text in [&["exit status: 3"], texts].concat() {
        ensure!(error.contains(text), "not printed: {text:?}: {error}");
    }
    Ok(())
}

/// Checks that the condition names the CRD and the revision that owns it.
fn ensure_owner_is_named(second: &ClusterExtension, owner: &Scenario) -> Result<()> {
    let text = describe(second, "Progressing");
    let crd = format!("greetings.{}", owner.sample.group);
    let named = |line: &str| line.starts_with("Object CustomResourceDefinition.") && line.ends_with(&crd);
    ensure!(text.lines().any(named), "{text}");
    let reference =
        format!("Conflicting Owner: &OwnerReference{{Kind:ClusterObjectSet,Name:{}-1,", owner.name);
    ensure!(text.contains(&reference), "{text}");
    let state = describe(second, "Installed");
    ensure!(state == "False/Failed: No bundle installed", "{state}");
    Ok(())
}

// docs/design/apply.md#collision-protection
#[tokio::test(flavor = "multi_thread")]
async fn second_package_with_the_crd_waits_until_the_owner_is_uninstalled() -> Result<()> {
    let first = Scenario::installed("crd-owner").await?;
    let mut second = Scenario::new("crd-second", &[]).await?;
    second.sample.group.clone_from(&first.sample.group);
    second.push_bundle("1.0.0", |_| ()).await?;
    second.serve(&[("stable", second.chain(&["1.0.0"]))]).await?;
    let name = second.name.as_str();
    let owner = format!(
        "CustomResourceDefinition greetings.{} belongs to ClusterExtension {:?} (revision {}-1)",
        first.sample.group, first.name, first.name
    );
    ensure_refused(&second, &["install", name, "-n", name, "--catalog", name], &[&owner])?;
    ensure!(second.extensions().get_opt(name).await?.is_none(), "olm created the extension");

    second.install(json!({})).await?;
    let waiting = second.wait_condition("Progressing", COLLIDES).await?;
    ensure_owner_is_named(&waiting, &first)?;
    ensure_refused(&second, &["diff", "--extension", name], &[&owner])?;
    first.wait_installed("1.0.0").await?;
    first.finish().await?;
    second.wait_installed("1.0.0").await?;
    second.finish().await
}

// Cases apply-24, additions-e08
#[tokio::test(flavor = "multi_thread")]
async fn package_in_a_second_namespace_collides_and_leaves_the_first_untouched() -> Result<()> {
    let scenario = Scenario::installed("crd-twice").await?;
    let (cluster, package) = (&scenario.cluster, scenario.name.as_str());
    let second = format!("{package}-b");
    let crd = format!("greetings.{}", scenario.sample.group);
    ensure_refused(
        &scenario,
        &["install", package, "--name", &second, "-n", &second, "--create-namespace"],
        &[
            &format!("already installed by ClusterExtension {package:?}"),
            &format!("CustomResourceDefinition {crd}\n"),
        ],
    )?;
    let namespaces = cluster.all::<Namespace>();
    ensure!(namespaces.get_opt(&second).await?.is_none(), "olm created the namespace");

    cluster.create_namespace(&second).await?;
    let selector = json!({"selector": {"matchLabels": {"e2e": package}}});
    let object = extension(&second, &second, package, selector);
    scenario.extensions().create(&PostParams::default(), &object).await?;
    let collides = condition("Progressing", COLLIDES);
    let waiting = cluster.wait(&scenario.extensions(), &second, "collides", collides).await?;
    ensure_owner_is_named(&waiting, &scenario)?;
    cluster.delete(&scenario.extensions(), &second).await?;
    cluster.wait_gone(&scenario.extensions(), &second).await?;
    cluster.delete(&namespaces, &second).await?;
    let live = cluster.all::<CustomResourceDefinition>().get(&crd).await?;
    ensure!(live.metadata.deletion_timestamp.is_none(), "the CRD is being deleted");
    scenario.wait_installed("1.0.0").await?;
    scenario.finish().await
}
