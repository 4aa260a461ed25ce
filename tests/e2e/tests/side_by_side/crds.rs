//! Upgrades that change a CRD: CRD upgrade safety and its settings.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use olm_api::ClusterObjectSet;
use olm_e2e::replace_in;
use olm_e2e::{Scenario, describe};
use serde_json::json;

type Files = BTreeMap<String, Vec<u8>>;

const CRD: &str = "manifests/greetings.crd.yaml";
/// Field of the CRD schema. The tests insert another field before it.
const NAME: &str = "                name:\n                  type: string\n";

fn with_salutation(files: &mut Files) {
    let both = format!("                salutation:\n                  type: string\n{NAME}");
    replace_in(files, CRD, NAME, &both);
}

fn salutation_required(files: &mut Files) {
    with_salutation(files);
    replace_in(files, CRD, "required: [name]", "required: [name, salutation]");
}

fn mood_required(files: &mut Files) {
    salutation_required(files);
    let both = format!("                mood:\n                  type: string\n{NAME}");
    replace_in(files, CRD, NAME, &both);
    replace_in(files, CRD, "required: [name, salutation]", "required: [name, salutation, mood]");
}

/// Renames the only version, which is the storage version of the custom resources.
fn without_v1(files: &mut Files) {
    replace_in(files, CRD, "- name: v1\n", "- name: v2\n");
    replace_in(files, sample_operator::content::CSV, "version: v1\n", "version: v2\n");
}

/// Installs version 1.0.0 with the field `salutation`. 1.1.0 and later have CRDs changed by `later`, and each may
/// replace any other version.
async fn installed(test: &str, later: &[fn(&mut Files)]) -> Result<Scenario> {
    let mut scenario = Scenario::new(test, &[]).await?;
    scenario.push_bundle("1.0.0", with_salutation).await?;
    let mut entries = vec![scenario.entry("1.0.0", json!({}))];
    for (minor, change) in (1..).zip(later) {
        let version = format!("1.{minor}.0");
        scenario.push_bundle(&version, change).await?;
        entries.push(scenario.entry(&version, json!({"skipRange": format!("<{version}")})));
    }
    scenario.serve(&[("stable", entries)]).await?;
    scenario.install(json!({"version": "1.0.0"})).await?;
    scenario.wait_installed("1.0.0").await?;
    Ok(scenario)
}

/// Expected condition that blocks an upgrade to the version.
fn held(scenario: &Scenario, version: &str, lines: &str) -> String {
    let bundle = scenario.sample.bundle_name(version);
    format!(
        "True/Retrying: error for resolved bundle \"{bundle}\" with version \"{version}\": validating upgrade for CRD \
         \"greetings.{}\": {lines}",
        scenario.sample.group
    )
}

async fn has_salutation(scenario: &Scenario) -> Result<bool> {
    let name = format!("greetings.{}", scenario.sample.group);
    let crd = scenario.cluster.all::<CustomResourceDefinition>().get(&name).await?;
    Ok(serde_json::to_string(&crd.spec)?.contains("salutation"))
}

const REMOVED: &str = "existingFieldRemoval: removed field : v1.^.spec.salutation\n\
                       v1: ^.spec.salutation: type: type changed : \"string\" -> \"\"";
const GONE: &str = "storedVersionRemoval: stored versions removed : [v1]";

// docs/design/apply.md#crd-upgrade-safety
#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because controllers/extension/src/controller/install_tests.rs::upgrade_that_breaks_custom_resources_creates_no_revision proves it"]
async fn removed_crd_field_blocks_an_upgrade_unless_safety_is_disabled() -> Result<()> {
    let scenario = installed("strict", &[|_| ()]).await?;
    scenario.edit(json!({"version": "1.1.0"})).await?;
    let text = held(&scenario, "1.1.0", REMOVED);
    let found = scenario.wait_condition("Progressing", &text).await?;
    ensure!(describe(&found, "Progressing") == text, "{}", describe(&found, "Progressing"));
    ensure!(describe(&found, "Installed").starts_with("True/Succeeded"));
    let second = format!("{}-2", scenario.name);
    let sets = scenario.cluster.all::<ClusterObjectSet>();
    ensure!(sets.get_opt(&second).await?.is_none(), "a second revision exists");
    ensure!(has_salutation(&scenario).await?);
    let off = json!({"spec": {"install": {"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}}}});
    scenario.cluster.merge(&scenario.extensions(), &scenario.name, off).await?;
    scenario.wait_installed("1.1.0").await?;
    ensure!(!has_salutation(&scenario).await?);
    scenario.finish().await
}

// Cases additions-a46, additions-a47
#[tokio::test(flavor = "multi_thread")]
async fn live_crd_check_validates_existing_custom_resources() -> Result<()> {
    let scenario = installed("live", &[salutation_required, mood_required, without_v1]).await?;
    let namespace = scenario.name.as_str();
    scenario.annotate(json!({"crd-check": "Live"})).await?;
    scenario.greet("v1", namespace, "polite", json!({"name": "world", "salutation": "Good day"})).await?;
    scenario.edit(json!({"version": "1.1.0"})).await?;
    scenario.wait_installed("1.1.0").await?;
    let note = scenario.wait_event("CRDCheckFailed").await?;
    ensure!(note.contains("v1: ^.spec: required: new required fields: [salutation]"), "{note}");

    scenario.edit(json!({"version": "1.2.0"})).await?;
    let text = held(&scenario, "1.2.0", &format!("1 existing object does not fit: {namespace}/polite ("));
    let found = scenario.wait_condition("Progressing", &text).await?;
    let shown = describe(&found, "Progressing");
    ensure!(shown.contains("mood") && !shown.contains("salutation"), "{shown}");
    scenario.wait_condition("Installed", "True/Succeeded").await?;

    scenario.edit(json!({"version": "1.3.0"})).await?;
    scenario.wait_condition("Progressing", &held(&scenario, "1.3.0", GONE)).await?;
    scenario.finish().await
}

// docs/design/additions.md#crd-checks; case additions-a47
#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because controllers/extension/src/preflight/tests.rs::removal_of_stored_version_is_refused_in_each_mode proves it"]
async fn warn_crd_check_blocks_only_the_removal_of_a_stored_version() -> Result<()> {
    let scenario = installed("warn", &[|_| (), without_v1]).await?;
    scenario.annotate(json!({"crd-check": "Warn"})).await?;
    scenario.edit(json!({"version": "1.1.0"})).await?;
    scenario.wait_installed("1.1.0").await?;
    let note = scenario.wait_event("CRDCheckFailed").await?;
    ensure!(note.contains(REMOVED), "{note}");
    ensure!(!has_salutation(&scenario).await?);

    scenario.edit(json!({"version": "1.2.0"})).await?;
    scenario.wait_condition("Progressing", &held(&scenario, "1.2.0", GONE)).await?;
    scenario.finish().await
}
