//! Revisions: history, their Secrets, and what stops an extension before it gets one.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, PostParams};
use olm_api::ClusterObjectSet;
use olm_api::conditions::find;
use olm_e2e::{Scenario, condition, describe, extension};
use serde_json::{Value, json};

/// Holds once a condition of the revision, as `Status/Reason: message`, begins so.
fn says(type_: &'static str, begins: &'static str) -> impl Fn(Option<&ClusterObjectSet>) -> bool {
    move |set| {
        let conditions = set.and_then(|set| set.status.as_ref()).map(|status| status.conditions.as_slice());
        find(conditions.unwrap_or_default(), type_)
            .is_some_and(|c| format!("{}/{}: {}", c.status, c.reason, c.message).starts_with(begins))
    }
}

// spec 05 acceptance 14
#[tokio::test(flavor = "multi_thread")]
async fn five_archived_revisions_are_kept() -> Result<()> {
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

// spec 05 acceptance 67
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_secret_is_made_again() -> Result<()> {
    let scenario = Scenario::new("secret", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    let secrets = scenario.cluster.within::<Secret>("olmv1-system");
    let ours =
        ListParams::default().labels(&format!("olm.operatorframework.io/revision-name={}-1", scenario.name));
    let found = secrets.list(&ours).await?.items;
    let before = found.first().context("the revision has a Secret")?.clone();
    ensure!(
        before.immutable == Some(true)
            && before.type_.as_deref() == Some("olm.operatorframework.io/object-data")
    );
    let name = before.metadata.name.clone().unwrap_or_default();
    secrets.delete(&name, &DeleteParams::default()).await?;
    let data = before.data.clone();
    let is_back = move |secret: Option<&Secret>| {
        secret.is_some_and(|secret| secret.metadata.uid != before.metadata.uid && secret.data == data)
    };
    scenario.cluster.wait(&secrets, &name, "made again with the same content", is_back).await?;
    let sets = scenario.cluster.all::<ClusterObjectSet>();
    let revision = format!("{}-1", scenario.name);
    scenario.cluster.wait(&sets, &revision, "succeeded", says("Progressing", "True/Succeeded")).await?;
    scenario.wait_installed("1.0.0").await?;
    ensure!(sets.get_opt(&format!("{}-2", scenario.name)).await?.is_none(), "there is a second revision");
    scenario.finish().await
}

// spec 05 acceptance 40
#[tokio::test(flavor = "multi_thread")]
async fn replaced_content_blocks_a_revision() -> Result<()> {
    let scenario = Scenario::new("blocked", &[]).await?;
    let secrets = scenario.cluster.within::<Secret>(&scenario.name);
    let put = async |value: &str| -> Result<()> {
        scenario.cluster.delete(&secrets, "content").await?;
        scenario.cluster.wait_gone(&secrets, "content").await?;
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": value},
            "metadata": {"name": "direct", "namespace": scenario.name}});
        let secret = json!({"metadata": {"name": "content"}, "immutable": true,
            "stringData": {"object": object.to_string()}});
        secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
        Ok(())
    };
    put("first").await?;
    let set: ClusterObjectSet = serde_json::from_value(json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "metadata": {"name": scenario.name},
        "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent", "phases": [
            {"name": "resources", "objects": [{"ref": {"name": "content", "namespace": scenario.name, "key": "object"}}]},
        ]},
    }))?;
    let sets = scenario.cluster.all::<ClusterObjectSet>();
    sets.create(&PostParams::default(), &set).await?;
    let done = says("Progressing", "True/Succeeded: Revision  has rolled out.");
    scenario.cluster.wait(&sets, &scenario.name, "rolled out", done).await?;
    // The Secrets of a hand-made revision are not watched: whoever changes them says so.
    let touch = async |value: &str| {
        let patch = json!({"metadata": {"annotations": {"touched": value}}});
        scenario.cluster.merge(&sets, &scenario.name, patch).await
    };
    put("second").await?;
    touch("1").await?;
    let changed =
        says("Progressing", "False/Blocked: resolved content of 1 phase(s) has changed: phase \"resources\"");
    scenario.cluster.wait(&sets, &scenario.name, "blocked", changed).await?;
    let applied = scenario.cluster.within::<ConfigMap>(&scenario.name).get("direct").await?;
    ensure!(applied.data.unwrap_or_default()["a"] == "first");
    put("first").await?;
    let done = says("Progressing", "True/Succeeded: Revision  has rolled out.");
    scenario.cluster.wait(&sets, &scenario.name, "rolled out again", done).await?;
    scenario.cluster.delete(&sets, &scenario.name).await?;
    scenario.cluster.wait_gone(&sets, &scenario.name).await?;
    scenario.finish().await
}

// spec 05 acceptance 57
#[tokio::test(flavor = "multi_thread")]
async fn configuration_that_does_not_fit() -> Result<()> {
    let scenario = Scenario::new("config", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    let config = json!({"spec": {"config": {"configType": "Inline", "inline": {"nonsense": true}}}});
    scenario.cluster.merge(&scenario.extensions(), &scenario.name, config).await?;
    let refused = format!(
        "False/InvalidConfiguration: error for resolved bundle \"{}\" with version \"1.0.0\": invalid ClusterExtension \
         configuration: ",
        scenario.sample.bundle_name("1.0.0")
    );
    let found = scenario.wait_condition("Progressing", &refused).await?;
    ensure!(describe(&found, "Installed").starts_with("True/Succeeded"));
    let back = json!({"spec": {"config": null}});
    scenario.cluster.merge(&scenario.extensions(), &scenario.name, back).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.finish().await
}

// spec 05 acceptance 56
#[tokio::test(flavor = "multi_thread")]
async fn an_image_reference_that_is_none() -> Result<()> {
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

// spec 01 acceptance 5, spec 05 acceptance 55
#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_is_warned_of_and_ignored() -> Result<()> {
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
    scenario.finish().await
}

// spec 01 acceptance 57
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_too_long() -> Result<()> {
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
