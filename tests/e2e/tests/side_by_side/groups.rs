//! Upgrade groups, and the upgrade of all extensions.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use kube::api::PostParams;
use olm_e2e::{Scenario, Tool, condition, extension, is_installed};
use olm_image::Image;
use sample_operator::content::Sample;
use serde_json::{Value, json};

use super::resolution::with_properties;

fn requires(package: &str) -> Value {
    json!({"type": "olm.package.required", "value": {"packageName": package, "versionRange": ">=1.1.0"}})
}

/// Serves a catalog in which version 1.1.0 of each package requires version 1.1.0 of the other.
async fn serve_deadlocked_pair(
    scenario: &Scenario,
    peer: &Sample,
    versions: [&'static str; 2],
) -> Result<()> {
    let mut pushed = Vec::new();
    for version in versions {
        let image = Image::bundle(&peer.bundle(version))?;
        let repository = format!("e2e/{}", peer.package);
        pushed.push((version, scenario.cluster.push(&repository, &format!("v{version}"), &image).await?));
    }
    let entries = vec![
        json!({"name": peer.bundle_name("1.0.0")}),
        json!({"name": peer.bundle_name("1.1.0"), "replaces": peer.bundle_name("1.0.0")}),
    ];
    let own = scenario.catalog_text(&[("stable", scenario.chain(&versions))]);
    let text = format!("{own}{}", peer.catalog(&[("stable", entries)], &pushed));
    let requirements = BTreeMap::from([
        (scenario.sample.bundle_name("1.1.0"), vec![requires(&peer.package)]),
        (peer.bundle_name("1.1.0"), vec![requires(&scenario.sample.package)]),
    ]);
    let digest = scenario.push_catalog(&with_properties(&text, &requirements)?).await?;
    scenario.apply_catalog(json!({"ref": digest})).await.map(drop)
}

/// Patches both extensions.
async fn merge_both(scenario: &Scenario, peer: &Sample, patch: &Value) -> Result<()> {
    for name in [&scenario.name, &peer.package] {
        scenario.cluster.merge(&scenario.extensions(), name, patch.clone()).await?;
    }
    Ok(())
}

// docs/design/additions.md#upgrade-groups, docs/design/cli.md#changing-commands; cases additions-a71, additions-a73
#[tokio::test(flavor = "multi_thread")]
async fn deadlocked_pair_moves_together_with_upgrade_group() -> Result<()> {
    let versions = ["1.0.0", "1.1.0"];
    let scenario = Scenario::new("pair", &versions).await?;
    let cluster = &scenario.cluster;
    let peer = Sample::idle(&format!("{}-peer", scenario.name), &cluster.operator_image);
    serve_deadlocked_pair(&scenario, &peer, versions).await?;

    scenario.install(json!({"version": "1.0.0"})).await?;
    let selector = json!({"matchLabels": {"e2e": scenario.name}});
    let other = extension(
        &peer.package,
        &scenario.name,
        &peer.package,
        json!({"version": "1.0.0", "selector": selector}),
    );
    scenario.extensions().create(&PostParams::default(), &other).await?;
    scenario.wait_installed("1.0.0").await?;
    cluster.wait(&scenario.extensions(), &peer.package, "1.0.0 installed", is_installed("1.0.0")).await?;

    // Each is held by the requirement on the other.
    let check = json!({"ext.olm.operatorframework.io/dependency-mode": "Check"});
    let open =
        json!({"metadata": {"annotations": check}, "spec": {"source": {"catalog": {"version": "1.x"}}}});
    merge_both(&scenario, &peer, &open).await?;
    let held = || condition("UpgradeAvailable", "True/DependencyConflict: bundle ");
    for name in [&scenario.name, &peer.package] {
        cluster.wait(&scenario.extensions(), name, "held", held()).await?;
    }
    let tool = Tool::new(&scenario.cluster)?;
    let ca = tool.path("ca");
    let ca = ca.to_str().context("the path is not UTF-8")?;
    // Other tests have extensions without a candidate, so the command may fail. Its error then has the whole plan.
    let passed_over = format!("{}: passed over ", scenario.name);
    match tool.run(&["upgrade", "--all", "--dry-run=client", "-o", "name", "--ca-dir", ca]) {
        Ok(names) => ensure!(!names.contains(&format!("/{}\n", scenario.name)), "{names}"),
        Err(error) => ensure!(error.to_string().contains(&passed_over), "{error}"),
    }

    let group =
        json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/upgrade-group": scenario.name}}});
    merge_both(&scenario, &peer, &group).await?;
    scenario.wait_installed("1.1.0").await?;
    cluster.wait(&scenario.extensions(), &peer.package, "1.1.0 installed", is_installed("1.1.0")).await?;
    scenario.wait_condition("UpgradeAvailable", "False/UpToDate").await?;
    scenario.wait_condition("DependenciesSatisfied", "True/AllSatisfied").await?;
    // Each protects what it requires, so the deletion of one would wait for the other.
    let report =
        json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/dependency-mode": "Report"}}});
    merge_both(&scenario, &peer, &report).await?;
    cluster.delete(&scenario.extensions(), &peer.package).await?;
    cluster.wait_gone(&scenario.extensions(), &peer.package).await?;
    scenario.finish().await
}
