//! Namespaces that an extension selects by label.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::Role;
use kube::Api;
use kube::api::ListParams;
use olm_api::ClusterObjectSet;
use olm_e2e::{PATIENCE, Scenario, eventually};
use sample_operator::content::Sample;
use serde_json::json;

use crate::bundles::{permitted_in, works_in};

/// Time limit until a changed list is a revision, which is at most one every 2 minutes.
const NEXT_LIST: Duration = Duration::from_secs(180);

/// Sets or removes the label that the extension selects.
async fn label(scenario: &Scenario, namespace: &str, value: Option<&str>) -> Result<()> {
    let namespaces = scenario.cluster.all::<Namespace>();
    let patch = json!({"metadata": {"labels": {"watched-by": value}}});
    scenario.cluster.merge(&namespaces, namespace, patch).await.map(drop)
}

/// Waits until the status lists these namespaces.
async fn reported(scenario: &Scenario, namespaces: &[&str]) -> Result<()> {
    let what = format!("target namespaces {namespaces:?}");
    let is_so = |extension: Option<&olm_api::ClusterExtension>| {
        extension
            .and_then(|extension| extension.status.as_ref())
            .is_some_and(|status| status.target_namespaces == namespaces)
    };
    scenario.cluster.wait(&scenario.extensions(), &scenario.name, &what, is_so).await.map(drop)
}

// docs/design/namespaces.md: one changed list, because the next one is due 2 minutes later
#[tokio::test(flavor = "multi_thread")]
async fn operator_watches_namespaces_by_label() -> Result<()> {
    let mut scenario = Scenario::of("labeled", Sample::scoped, &["1.0.0"]).await?;
    let name = scenario.name.clone();
    let name = name.as_str();
    let [first, second] = ["a", "b"].map(|ending| format!("{name}-{ending}"));
    for namespace in [&first, &second] {
        scenario.cluster.create_namespace(namespace).await?;
    }
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    reported(&scenario, &[""]).await?;

    scenario.configure(json!({"watchNamespaceSelector": {"matchLabels": {"watched-by": name}}})).await?;
    let bundle = scenario.sample.bundle_name("1.0.0");
    let text = format!(
        "True/Retrying: error for resolved bundle \"{bundle}\" with version \"1.0.0\": no namespace matches \
         watchNamespaceSelector watched-by={name}"
    );
    scenario.wait_condition("Progressing", &text).await?;
    label(&scenario, &first, Some(name)).await?;
    scenario.wait_installed("1.0.0").await?;
    works_in(&scenario, &first).await?;
    permitted_in(&scenario, &[&first]).await?;
    reported(&scenario, &[&first]).await?;

    // An upgrade that waits delays no changed list.
    scenario.annotate(json!({"approval": "ManualUpgrades"})).await?;
    scenario.push_bundle("1.1.0", |_| {}).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]).await?;
    scenario.wait_condition("UpgradeAvailable", "True/ApprovalRequired").await?;
    label(&scenario, &second, Some(name)).await?;
    label(&scenario, &first, None).await?;
    let sets = scenario.cluster.all::<ClusterObjectSet>();
    let exists = async || Ok(sets.get(&format!("{name}-3")).await?);
    eventually("revision 3", NEXT_LIST, exists).await?;
    scenario.wait_revision(3, "Progressing", "True/Succeeded").await?;
    works_in(&scenario, &second).await?;
    permitted_in(&scenario, &[&second]).await?;
    reported(&scenario, &[&second]).await?;
    scenario.wait_condition("UpgradeAvailable", "True/ApprovalRequired").await?;

    let namespaces = scenario.cluster.all::<Namespace>();
    recreated_namespace_gets_its_role(&scenario, &namespaces, &second).await?;
    scenario.wait_installed("1.0.0").await?;
    for namespace in [&first, &second] {
        scenario.cluster.delete(&namespaces, namespace).await?;
    }
    scenario.finish().await
}

async fn recreated_namespace_gets_its_role(
    scenario: &Scenario,
    namespaces: &Api<Namespace>,
    namespace: &str,
) -> Result<()> {
    let name = scenario.name.as_str();
    scenario.cluster.delete(namespaces, namespace).await?;
    scenario.cluster.wait_gone(namespaces, namespace).await?;
    scenario.cluster.create_namespace(namespace).await?;
    label(scenario, namespace, Some(name)).await?;
    let ours = ListParams::default().labels(&format!("olm.operatorframework.io/owner-name={name}"));
    eventually("the Role in the new namespace", PATIENCE, async || {
        let roles = scenario.cluster.within::<Role>(namespace).list(&ours).await?.items;
        ensure!(roles.len() == 1, "{} Roles", roles.len());
        Ok(())
    })
    .await
}
