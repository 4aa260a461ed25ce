//! Catalogs that change or are deleted while extensions use them.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DeleteParams;
use olm_api::annotations::EXT_IMAGE_TEMPLATE;
use olm_e2e::Scenario;
use serde_json::json;

// Cases apply-20, apply-22, apply-23, resolution-47, resolution-49
#[tokio::test(flavor = "multi_thread")]
async fn extension_survives_deletion_and_recreation_of_its_catalog() -> Result<()> {
    let mut scenario = Scenario::new("gone", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({"version": "1.x"})).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.cluster.delete(&scenario.catalogs(), &scenario.name).await?;
    scenario.cluster.wait_gone(&scenario.catalogs(), &scenario.name).await?;

    // The objects of the installed revision are still repaired.
    let settings = scenario.cluster.within::<ConfigMap>(&scenario.name);
    let name = format!("{}-settings", scenario.name);
    let before = settings.get(&name).await?;
    settings.delete(&name, &DeleteParams::default()).await?;
    let is_new =
        move |found: Option<&ConfigMap>| found.is_some_and(|found| found.metadata.uid != before.metadata.uid);
    scenario.cluster.wait(&settings, &name, "recreated", is_new).await?;
    scenario.wait_installed("1.0.0").await?;
    // Edits of the extension still take effect.
    let lenient = json!({"spec": {"install": {"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}}}});
    scenario.cluster.merge(&scenario.extensions(), &scenario.name, lenient).await?;
    scenario.wait_installed("1.0.0").await?;
    let unknown = "Unknown/DeprecationStatusUnknown: deprecation status unknown: catalog data unavailable";
    scenario.wait_condition("BundleDeprecated", unknown).await?;

    scenario.edit(json!({"version": "1.1.0"})).await?;
    let expected =
        "True/Retrying: error upgrading from currently installed version \"1.0.0\": no bundles found";
    scenario.wait_condition("Progressing", expected).await?;
    scenario.wait_condition("Installed", "True/Succeeded").await?;
    scenario.push_bundle("1.1.0", |_| ()).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]).await?;
    scenario.wait_installed("1.1.0").await?;
    scenario.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because catalogd/tests/changes.rs::only_relevant_changes_cause_polls_and_reconciles proves it"]
async fn new_catalog_content_under_the_same_tag_is_polled() -> Result<()> {
    let mut scenario = Scenario::new("replaced", &["1.0.0"]).await?;
    let digest =
        scenario.push_catalog(&scenario.catalog_text(&[("stable", scenario.chain(&["1.0.0"]))])).await?;
    scenario.apply_catalog(json!({"ref": scenario.catalog_tag(), "pollIntervalMinutes": 1})).await?;
    scenario.wait_served(&digest).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.push_bundle("1.1.0", |_| ()).await?;
    let digest = scenario
        .push_catalog(&scenario.catalog_text(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]))
        .await?;
    // catalogd polls every minute, so that no change of the ClusterCatalog is needed.
    scenario.wait_served(&digest).await?;
    scenario.wait_installed("1.1.0").await?;
    scenario.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because catalogd/tests/control_plane.rs::catalog_lifecycle_is_served_and_reported_in_status proves it"]
async fn invalid_catalog_is_reported_and_previous_content_served() -> Result<()> {
    let scenario = Scenario::new("notfbc", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    let broken = scenario.push_catalog("{\"schema\": \"olm.package\", \"name\": ").await?;
    scenario.apply_catalog(json!({"ref": broken})).await?;
    let is_named = |catalog: Option<&olm_api::ClusterCatalog>| {
        catalog.and_then(|catalog| catalog.status.as_ref()).is_some_and(|status| {
            let progressing = olm_api::conditions::find(&status.conditions, "Progressing");
            progressing.is_some_and(|c| c.reason == "Retrying" && c.message.contains("catalog.json"))
        })
    };
    let what = "the file in condition Progressing";
    let catalog = scenario.cluster.wait(&scenario.catalogs(), &scenario.name, what, is_named).await?;
    let status = catalog.status.unwrap_or_default();
    ensure!(
        olm_api::conditions::is_true(&status.conditions, "Serving"),
        "the previous content is not served"
    );
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.finish().await
}

// Cases additions-t02, additions-t05
#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because catalogd/tests/templates.rs::templated_catalog_follows_version_of_cluster proves it"]
async fn image_template_serves_tag_of_the_cluster_version() -> Result<()> {
    let mut scenario = Scenario::new("template", &["1.0.0"]).await?;
    let first =
        scenario.push_catalog(&scenario.catalog_text(&[("stable", scenario.chain(&["1.0.0"]))])).await?;
    scenario.push_bundle("1.1.0", |_| ()).await?;
    let text = scenario.catalog_text(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]);
    let version = scenario.cluster.client.apiserver_version().await?.git_version;
    let minor = version.split('.').take(2).collect::<Vec<_>>().join(".");
    let second = scenario.push_catalog_as(&minor, &text).await?;
    scenario.apply_catalog(json!({"ref": scenario.catalog_tag()})).await?;
    scenario.wait_served(&first).await?;

    let template = scenario.catalog_tag().replace(":latest", ":v{kube_major_version}.{kube_minor_version}");
    let annotate =
        |template: Option<&str>| json!({"metadata": {"annotations": {EXT_IMAGE_TEMPLATE: template}}});
    scenario.cluster.merge(&scenario.catalogs(), &scenario.name, annotate(Some(&template))).await?;
    scenario.wait_served(&second).await?;
    let catalog = scenario.catalogs().get(&scenario.name).await?;
    ensure!(catalog.is_true("ImageTemplateResolved"), "{:?}", catalog.status);
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.1.0").await?;

    scenario.cluster.merge(&scenario.catalogs(), &scenario.name, annotate(None)).await?;
    scenario.wait_served(&first).await?;
    let catalog = scenario.catalogs().get(&scenario.name).await?;
    ensure!(catalog.condition("ImageTemplateResolved").is_none(), "{:?}", catalog.status);
    scenario.finish().await
}
