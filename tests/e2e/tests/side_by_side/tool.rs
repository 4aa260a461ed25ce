//! `olm` with a registry and a cluster: authoring a catalog, and reading the served one.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use olm_e2e::{Scenario, Tool};
use serde_json::{Value, json};

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("the path is not UTF-8")
}

#[tokio::test(flavor = "multi_thread")]
async fn authored_catalog_is_pushed_served_and_read_from_the_cluster() -> Result<()> {
    let mut scenario = Scenario::new("tool", &["1.0.0"]).await?;
    let older = scenario.sample.bundle_name("1.0.0");
    let replaces = |files: &mut std::collections::BTreeMap<String, Vec<u8>>| {
        for (path, content) in files.iter_mut().filter(|(path, _)| path.contains("clusterserviceversion")) {
            let csv = String::from_utf8_lossy(content)
                .replace("\nspec:\n", &format!("\nspec:\n  replaces: {older}\n"));
            assert!(csv.contains(&older), "{path}");
            *content = csv.into_bytes();
        }
    };
    scenario.push_bundle("1.1.0", replaces).await?;
    let tool = Tool::new(&scenario.cluster)?;
    let (catalog, ca) = (tool.path("catalog"), tool.path("ca"));
    let (catalog, ca, package) = (text(&catalog)?, text(&ca)?, scenario.name.as_str());

    tool.run(&["catalog", "init", package, "--default-channel", "stable", "--to", catalog])?;
    let bundles = [scenario.bundle_image("1.0.0"), scenario.bundle_image("1.1.0")];
    tool.run(
        &[&["catalog", "add", catalog], &bundles[..], &["--channel", "stable", "--ca-dir", ca]].concat(),
    )?;
    tool.run(&["validate", catalog])?;
    let target = format!("{}/e2e/{package}-catalog:latest", tool.registry);
    let pushed = tool.json(&["catalog", "push", catalog, &target, "--ca-dir", ca])?;
    let digest = pushed["digest"].as_str().context("no digest was printed")?;
    let served = format!("{}/e2e/{package}-catalog@{digest}", scenario.cluster.registry);
    scenario.apply_catalog(json!({"ref": scenario.catalog_tag()})).await?;
    scenario.wait_served(&served).await?;

    let source = format!("cluster/{package}");
    let catalogs = tool.run(&["catalog", "ls"])?;
    ensure!(catalogs.lines().any(|line| line.starts_with(package)), "{catalogs}");
    let packages = tool.json(&["catalog", "ls", &source])?;
    ensure!(packages["items"].as_array().is_some_and(|items| items.len() == 1), "{packages}");
    let here = tool.json(&["catalog", "bundles", catalog, package])?;
    let there = tool.json(&["catalog", "bundles", &source, package])?;
    let names = |list: &Value| -> Vec<Value> {
        list["items"].as_array().into_iter().flatten().map(|item| item["name"].clone()).collect()
    };
    ensure!(names(&here) == names(&there) && names(&here).len() == 2, "{here} differs from {there}");
    let graph = tool.run(&["catalog", "graph", &source, package, "--format", "mermaid"])?;
    ensure!(graph.contains("==>"), "{graph}");

    scenario.install(json!({})).await?;
    scenario.wait_installed("1.1.0").await?;
    scenario.finish().await
}
