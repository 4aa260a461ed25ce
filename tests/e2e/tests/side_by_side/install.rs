//! Choice of the bundle, and conditions of an extension without one.

use anyhow::{Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use olm_e2e::{Scenario, replace_in};
use serde_json::json;

async fn two_channels(test: &str) -> Result<Scenario> {
    let scenario = Scenario::new(test, &["1.0.0", "1.1.0", "2.0.0"]).await?;
    let channels = [
        ("stable", scenario.chain(&["1.0.0", "1.1.0"])),
        ("fast", scenario.chain(&["1.0.0", "1.1.0", "2.0.0"])),
    ];
    scenario.serve(&channels).await?;
    Ok(scenario)
}

// Cases apply-4, apply-5
#[tokio::test(flavor = "multi_thread")]
async fn newest_version_in_range_is_installed_with_all_conditions() -> Result<()> {
    let scenario = two_channels("range").await?;
    scenario.install(json!({"version": "1.x"})).await?;
    let extension = scenario.wait_installed("1.1.0").await?;
    let image = scenario.bundle_image("1.1.0");
    for (type_, expect) in [
        ("Installed", format!("True/Succeeded: Installed bundle {image} successfully")),
        ("Progressing", "True/Succeeded: Revision 1.1.0 has rolled out.".to_owned()),
        ("Available", "True/ProbesSucceeded: Objects are available and pass all probes.".to_owned()),
        ("Deprecated", "False/NotDeprecated: not deprecated".to_owned()),
        ("PackageDeprecated", "False/NotDeprecated: package not deprecated".to_owned()),
        ("ChannelDeprecated", "False/NotDeprecated: channel not deprecated".to_owned()),
        ("BundleDeprecated", "False/NotDeprecated: bundle not deprecated".to_owned()),
    ] {
        let shown = olm_e2e::describe(&extension, type_);
        ensure!(shown == expect, "{type_}: {shown}");
    }
    let deployments = scenario.cluster.within::<Deployment>(&scenario.name);
    let deployment = deployments.get(&scenario.name).await?;
    let ready = deployment.status.and_then(|status| status.ready_replicas);
    ensure!(ready == Some(1), "ready replicas: {ready:?}");
    let entries = deployment.metadata.managed_fields.unwrap_or_default();
    let ours: Vec<_> = entries
        .iter()
        .filter(|entry| entry.manager.as_deref() == Some("olm.operatorframework.io"))
        .map(|entry| entry.operation.as_deref().unwrap_or_default())
        .collect();
    ensure!(ours == ["Apply"], "operations of our field manager: {ours:?}");
    scenario.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_bundles_of_the_named_channel_and_version_are_installed() -> Result<()> {
    let scenario = two_channels("none").await?;
    let name = &scenario.name;
    scenario.install(json!({"version": "9.9.9"})).await?;
    let missing =
        format!("True/Retrying: no bundles found for package \"{name}\" matching version \"9.9.9\"");
    scenario.wait_condition("Progressing", &missing).await?;
    scenario.wait_condition("Installed", "False/Failed: No bundle installed").await?;
    scenario.edit(json!({"version": "1.0.0-01"})).await?;
    let range = "True/Retrying: desired version range \"1.0.0-01\" is invalid: ";
    scenario.wait_condition("Progressing", range).await?;
    scenario.edit(json!({"version": null, "channels": ["nope"]})).await?;
    let channel = format!("True/Retrying: no bundles found for package \"{name}\" in channels [nope]");
    scenario.wait_condition("Progressing", &channel).await?;
    scenario.edit(json!({"channels": ["stable"]})).await?;
    scenario.wait_installed("1.1.0").await?;
    scenario.edit(json!({"channels": null})).await?;
    scenario.wait_installed("2.0.0").await?;
    scenario.finish().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because controllers/extension/src/controller/reconcile_tests.rs::catalogs_resolve_by_priority_and_report_deprecation proves it"]
async fn missing_package_is_reported() -> Result<()> {
    let scenario = Scenario::new("missing", &["1.0.0"]).await?;
    let other = sample_operator::content::Sample::idle("other", &scenario.cluster.operator_image);
    let digest = scenario
        .push_catalog(&other.catalog(&[("stable", vec![json!({"name": "other.v1.0.0"})])], &[]))
        .await?;
    scenario.apply_catalog(json!({"ref": digest})).await?;
    scenario.wait_served(&digest).await?;
    scenario.install(json!({})).await?;
    let missing = format!("True/Retrying: no bundles found for package \"{}\"", scenario.name);
    scenario.wait_condition("Progressing", &missing).await?;
    scenario.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_bundle_reports_the_file() -> Result<()> {
    let mut scenario = Scenario::new("broken", &[]).await?;
    scenario
        .push_bundle("1.0.0", |files| {
            files.insert("manifests/operator.clusterserviceversion.yaml".into(), b"kind: [unclosed".to_vec());
        })
        .await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    let begins = format!(
        "True/Retrying: error for resolved bundle \"{}\" with version \"1.0.0\": ",
        scenario.sample.bundle_name("1.0.0")
    );
    let extension = scenario.wait_condition("Progressing", &begins).await?;
    let shown = olm_e2e::describe(&extension, "Progressing");
    ensure!(shown.contains("operator.clusterserviceversion.yaml"), "the file is not named: {shown}");
    scenario.finish().await
}

/// 250 fields of 4 kB each, the size of the largest known CRDs.
#[tokio::test(flavor = "multi_thread")]
async fn crd_of_a_megabyte_is_installed() -> Result<()> {
    const FIELD: &str = "                name:\n                  type: string\n";
    let mut scenario = Scenario::new("large", &[]).await?;
    let more: String = (0..250)
        .map(|n| {
            let words = format!("This is what field number {n} is good for. ").repeat(90);
            format!("                field{n:03}:\n                  type: string\n                  description: {words}\n")
        })
        .collect();
    let change =
        |files: &mut _| replace_in(files, "manifests/greetings.crd.yaml", FIELD, &format!("{FIELD}{more}"));
    scenario.push_bundle("1.0.0", change).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    let crds = scenario.cluster.all::<CustomResourceDefinition>();
    let crd = crds.get(&format!("greetings.{}", scenario.sample.group)).await?;
    let size = serde_json::to_string(&crd.spec)?.len();
    ensure!(size > 900_000, "the CRD has {size} bytes");
    scenario.finish().await
}

/// Case operations-a26. `hack/e2e` configures operator-controller to mirror `mirror.olm.test:5000`, which does not
/// exist.
#[tokio::test(flavor = "multi_thread")]
async fn bundle_is_pulled_from_a_mirror() -> Result<()> {
    let scenario = Scenario::new("mirror", &["1.0.0"]).await?;
    let there = scenario.bundle_image("1.0.0").replace(&scenario.cluster.registry, "mirror.olm.test:5000");
    let text =
        scenario.sample.catalog(&[("stable", scenario.chain(&["1.0.0"]))], &[("1.0.0", there.clone())]);
    let digest = scenario.push_catalog(&text).await?;
    scenario.apply_catalog(json!({"ref": digest})).await?;
    scenario.wait_served(&digest).await?;
    scenario.install(json!({})).await?;
    let extension = scenario.wait_installed("1.0.0").await?;
    let shown = olm_e2e::describe(&extension, "Installed");
    ensure!(shown == format!("True/Succeeded: Installed bundle {there} successfully"), "{shown}");
    scenario.finish().await
}
