//! Revisions: history, their Secrets, and errors that prevent a revision.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, PostParams};
use olm_api::ClusterObjectSet;
use olm_e2e::{Scenario, condition, extension};
use serde_json::{Value, json};

// Case apply-14
#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because controllers/extension/src/controller/install_tests.rs::revisions_are_numbered_and_old_ones_deleted proves it"]
async fn last_five_archived_revisions_are_retained() -> Result<()> {
    let scenario = Scenario::new("history", &["1.0.0", "1.1.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]).await?;
    scenario.install(json!({"version": "1.0.0", "upgradeConstraintPolicy": "SelfCertified"})).await?;
    scenario.wait_installed("1.0.0").await?;
    for round in 0..7 {
        let version = ["1.1.0", "1.0.0"][round % 2];
        scenario.edit(json!({ "version": version })).await?;
        scenario.wait_installed(version).await?;
    }
    let ours =
        ListParams::default().labels(&format!("olm.operatorframework.io/owner-name={}", scenario.name));
    let sets = scenario.cluster.all::<ClusterObjectSet>();
    scenario.cluster.wait_gone(&sets, &format!("{}-2", scenario.name)).await?;
    let mut numbers: Vec<i64> =
        sets.list(&ours).await?.items.iter().filter_map(|set| Some(set.spec.as_ref()?.revision)).collect();
    numbers.sort_unstable();
    ensure!(numbers == [3, 4, 5, 6, 7, 8], "revisions {numbers:?}");
    scenario.finish().await
}

// docs/design/apply.md#revision-metadata, docs/design/apply.md#packing-into-secrets; case apply-67
#[tokio::test(flavor = "multi_thread")]
async fn revision_has_metadata_and_immutable_secrets_that_are_recreated() -> Result<()> {
    let mut scenario = Scenario::new("carried", &[]).await?;
    let properties = b"properties:\n- value: some\n  type: e2e.property\n".to_vec();
    scenario
        .push_bundle("1.0.0", |files| {
            files.insert("metadata/properties.yaml".to_owned(), properties);
        })
        .await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    let name = format!("{}-1", scenario.name);
    let set = scenario.cluster.all::<ClusterObjectSet>().get(&name).await?;
    let text = set.annotations().get("olm.properties").map(String::as_str);
    ensure!(text == Some(r#"[{"type":"e2e.property","value":"some"}]"#), "{text:?}");
    let label = |key: &str| set.labels().get(&format!("olm.operatorframework.io/{key}")).cloned();
    ensure!(label("owner-kind").as_deref() == Some("ClusterExtension"), "{:?}", set.labels());
    ensure!(label("owner-name").as_ref() == Some(&scenario.name), "{:?}", set.labels());
    let digests = set.status.iter().flat_map(|status| &status.observed_phases).map(|phase| &phase.digest);
    ensure!(digests.clone().count() > 0 && digests.clone().all(|digest| !digest.is_empty()));

    let spec = serde_json::to_value(&set.spec)?;
    let phases = spec["phases"].as_array().cloned().unwrap_or_default();
    let objects: Vec<&Value> =
        phases.iter().flat_map(|phase| phase["objects"].as_array()).flatten().collect();
    ensure!(
        !objects.is_empty() && objects.iter().all(|object| object.get("object").is_none()),
        "{objects:?}"
    );
    let secrets = scenario.cluster.within::<Secret>("olmv1-system");
    for object in objects {
        ensure!(object["ref"]["namespace"] == "olmv1-system", "{object}");
        let secret = secrets.get(object["ref"]["name"].as_str().unwrap_or_default()).await?;
        ensure!(secret.immutable == Some(true));
        ensure!(secret.type_.as_deref() == Some("olm.operatorframework.io/object-data"));
        let label = |key: &str| secret.labels().get(&format!("olm.operatorframework.io/{key}")).cloned();
        ensure!(label("revision-name").as_ref() == Some(&name), "{:?}", secret.labels());
        ensure!(label("owner-name").as_ref() == Some(&scenario.name), "{:?}", secret.labels());
        let owner = secret.owner_references().first().context("the Secret has no owner")?;
        ensure!(owner.controller == Some(true) && set.uid().as_ref() == Some(&owner.uid), "{owner:?}");
    }
    deleted_secret_is_recreated(&scenario).await?;
    scenario.finish().await
}

/// Deletes a Secret of the revision, which is recreated with the same content.
async fn deleted_secret_is_recreated(scenario: &Scenario) -> Result<()> {
    let secrets = scenario.cluster.within::<Secret>("olmv1-system");
    let ours =
        ListParams::default().labels(&format!("olm.operatorframework.io/revision-name={}-1", scenario.name));
    let found = secrets.list(&ours).await?.items;
    let before = found.first().context("the revision has no Secret")?.clone();
    let name = before.name_any();
    secrets.delete(&name, &DeleteParams::default()).await?;
    let is_back = move |secret: Option<&Secret>| {
        secret.is_some_and(|secret| secret.metadata.uid != before.metadata.uid && secret.data == before.data)
    };
    scenario.cluster.wait(&secrets, &name, "recreated with the same content", is_back).await?;
    scenario.wait_revision(1, "Progressing", "True/Succeeded").await?;
    scenario.wait_installed("1.0.0").await?;
    let sets = scenario.cluster.all::<ClusterObjectSet>();
    ensure!(sets.get_opt(&format!("{}-2", scenario.name)).await?.is_none(), "a second revision exists");
    Ok(())
}

// Case apply-56
#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because controllers/extension/src/controller/reconcile_tests.rs::failed_installs_are_reported_and_recover proves it"]
async fn invalid_image_reference_blocks_the_extension() -> Result<()> {
    let scenario = Scenario::new("imageref", &[]).await?;
    let channels: [(&str, Vec<Value>); 1] = [("stable", scenario.chain(&["1.0.0"]))];
    let text = scenario.sample.catalog(&channels, &[("1.0.0", "NOT a reference".to_owned())]);
    let digest = scenario.push_catalog(&text).await?;
    scenario.apply_catalog(json!({"ref": digest})).await?;
    scenario.wait_served(&digest).await?;
    scenario.install(json!({})).await?;
    let blocked = format!(
        "False/Blocked: error for resolved bundle \"{}\" with version \"1.0.0\": error parsing image reference \"NOT a \
         reference\": ",
        scenario.sample.bundle_name("1.0.0")
    );
    scenario.wait_condition("Progressing", &blocked).await?;
    scenario.finish().await
}

// Cases api-5, apply-55, operations-a31
#[tokio::test(flavor = "multi_thread")]
async fn service_account_in_spec_is_ignored_with_a_warning() -> Result<()> {
    let scenario = Scenario::new("account", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    let selector = json!({"selector": {"matchLabels": {"e2e": scenario.name}}});
    let object = extension(&scenario.name, &scenario.name, &scenario.name, selector);
    let mut object = serde_json::to_value(&object)?;
    object["spec"]["serviceAccount"] = json!({"name": "nobody"});
    let mut kubectl = Command::new("kubectl")
        .args(["create", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("kubectl")?;
    kubectl.stdin.take().context("kubectl's input")?.write_all(object.to_string().as_bytes())?;
    let output = kubectl.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let warning = "Warning: Validation failed for ValidatingAdmissionPolicy \
        'clusterextension-serviceaccount-deprecated' with binding 'clusterextension-serviceaccount-deprecated': \
        spec.serviceAccount is deprecated, ignored, and will be removed in a future release. The \
        operator-controller's cluster-admin service account is used for all cluster interactions.";
    ensure!(output.status.success() && said.contains(warning), "{said}");
    scenario.wait_installed("1.0.0").await?;
    let output = Command::new("kubectl")
        .args(["patch", "clusterextension", &scenario.name, "--type", "merge", "-p"])
        .arg(r#"{"spec": {"serviceAccount": null}}"#)
        .output()
        .context("kubectl")?;
    ensure!(
        output.status.success() && output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    scenario.wait_installed("1.0.0").await?;
    scenario.finish().await
}

// Case api-57
#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because controllers/extension/src/controller/reconcile_tests.rs::failed_installs_are_reported_and_recover proves it"]
async fn extension_name_above_the_length_limit_is_blocked() -> Result<()> {
    let scenario = Scenario::new("name", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    let long = format!("{}-{}", scenario.name, "x".repeat(60));
    let selector = json!({"selector": {"matchLabels": {"e2e": scenario.name}}});
    scenario
        .extensions()
        .create(&PostParams::default(), &extension(&long, &scenario.name, &scenario.name, selector))
        .await?;
    let blocked = format!(
        "False/Blocked: error for resolved bundle \"{}\" with version \"1.0.0\": metadata.name is too long: ",
        scenario.sample.bundle_name("1.0.0")
    );
    scenario
        .cluster
        .wait(&scenario.extensions(), &long, "blocked", condition("Progressing", blocked))
        .await?;
    scenario.cluster.delete(&scenario.extensions(), &long).await?;
    scenario.cluster.wait_gone(&scenario.extensions(), &long).await?;
    scenario.finish().await
}
