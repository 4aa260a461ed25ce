//! Rollouts and removals that never complete. `hack/e2e` changes the schema to permit a deadline of one minute.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use kube::api::{Patch, PatchParams, PostParams};
use olm_api::conditions::{find, is_true};
use olm_e2e::{Scenario, extension, replace_in};
use sample_operator::CLEANUP;
use sample_operator::content::CSV;
use serde_json::json;

use crate::uninstall::{greet, uninstall};

type Files = BTreeMap<String, Vec<u8>>;

async fn expect_exceeded_deadline(test: &str, change: fn(&mut Files)) -> Result<()> {
    let mut scenario = Scenario::new(test, &[]).await?;
    scenario.push_bundle("1.0.0", change).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    let selector = json!({"selector": {"matchLabels": {"e2e": scenario.name}}});
    let mut object = extension(&scenario.name, &scenario.name, &scenario.name, selector);
    if let Some(spec) = object.spec.as_mut() {
        spec.progress_deadline_minutes = Some(1);
    }
    scenario.extensions().create(&PostParams::default(), &object).await?;
    let late = "False/ProgressDeadlineExceeded: Revision has not rolled out for 1 minute(s). Last status: Revision 1.0.0 \
                is rolling out.";
    let found = scenario.wait_condition("Progressing", late).await?;
    let set = scenario.wait_revision(1, "Progressing", "False/ProgressDeadlineExceeded").await?;
    ensure!(!is_true(&set.status.unwrap_or_default().conditions, "Succeeded"));
    let created = found.metadata.creation_timestamp.context("no creation time")?.0;
    let status = found.status.unwrap_or_default();
    let said = find(&status.conditions, "Progressing").context("no condition")?;
    let after = said.last_transition_time.0.duration_since(created).as_secs();
    ensure!((60..=120).contains(&after), "reported after {after} s");
    scenario.finish().await
}

// Cases apply-31, api-25
#[tokio::test(flavor = "multi_thread")]
async fn unready_operator_and_missing_image_exceed_the_progress_deadline() -> Result<()> {
    let never =
        |files: &mut Files| replace_in(files, CSV, "[/sample-operator, ready]", "[/sample-operator, never]");
    let missing = |files: &mut Files| replace_in(files, CSV, "image: ", "image: registry.invalid/");
    tokio::try_join!(
        expect_exceeded_deadline("unready", never),
        expect_exceeded_deadline("missing-image", missing)
    )?;
    Ok(())
}

// The idle operator runs, but removes no finalizers before the deadline.
#[tokio::test(flavor = "multi_thread")]
async fn remaining_custom_resources_are_listed_and_block_a_reinstallation() -> Result<()> {
    let scenario = Scenario::new("left", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    greet(&scenario, "v1", "held", json!({"name": "world"})).await?;
    let (code, said) = uninstall(&scenario)?;
    ensure!(code == Some(1) && said.contains(CLEANUP) && said.contains("kubectl patch "), "{code:?}: {said}");
    scenario.install(json!({})).await?;
    let waits = "True/Retrying: waiting for the deletion of CustomResourceDefinition ";
    scenario.wait_condition("Progressing", waits).await?;
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    scenario.greetings("v1", &scenario.name).patch("held", &PatchParams::default(), &none).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.finish().await
}
