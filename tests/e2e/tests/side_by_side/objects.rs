//! Objects changed, owned or deleted by third parties.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, PostParams};
use olm_api::{ClusterExtension, ClusterObjectSet};
use olm_e2e::{Scenario, condition, extension, revision_says};
use serde_json::json;

// Cases apply-15, apply-16, apply-17, apply-18, apply-19
#[tokio::test(flavor = "multi_thread")]
async fn drift_is_repaired_and_uninstall_deletes_every_object() -> Result<()> {
    let scenario = Scenario::installed("drift").await?;
    let settings = scenario.cluster.within::<ConfigMap>(&scenario.name);
    let name = format!("{}-settings", scenario.name);
    let before = settings.get(&name).await?;
    settings.delete(&name, &DeleteParams::default()).await?;
    let is_new =
        move |found: Option<&ConfigMap>| found.is_some_and(|found| found.metadata.uid != before.metadata.uid);
    scenario.cluster.wait(&settings, &name, "recreated", is_new).await?;

    let edit = json!({"data": {"version": "0.0.0", "mine": "kept"}, "metadata": {"labels": {"mine": "kept",
        "olm.operatorframework.io/owner-name": null}}});
    scenario.cluster.merge(&settings, &name, edit).await?;
    let is_repaired = |found: Option<&ConfigMap>| {
        let Some(found) = found else { return false };
        let (data, labels) =
            (found.data.clone().unwrap_or_default(), found.metadata.labels.clone().unwrap_or_default());
        data.get("version").is_some_and(|version| version == "1.0.0")
            && data.get("mine").is_some_and(|mine| mine == "kept")
            && labels.get("mine").is_some_and(|mine| mine == "kept")
            && labels.contains_key("olm.operatorframework.io/owner-name")
    };
    scenario.cluster.wait(&settings, &name, "repaired, additions retained", is_repaired).await?;

    let deployments = scenario.cluster.within::<Deployment>(&scenario.name);
    let scale = json!({"spec": {"template": {"spec": {"containers": [{"name": "operator", "image": "r.invalid/x:1"}]}}}});
    deployments
        .patch(&scenario.name, &kube::api::PatchParams::default(), &kube::api::Patch::Strategic(scale))
        .await?;
    let image = scenario.cluster.operator_image.clone();
    let is_set_back = move |found: Option<&Deployment>| {
        let containers =
            found.and_then(|found| found.spec.as_ref()?.template.spec.as_ref().map(|pod| &pod.containers));
        containers.is_some_and(|all| all.first().and_then(|first| first.image.as_ref()) == Some(&image))
    };
    scenario.cluster.wait(&deployments, &scenario.name, "image restored", is_set_back).await?;
    scenario.wait_installed("1.0.0").await?;
    uninstall_deletes_every_object(&scenario).await?;
    scenario.finish().await
}

// Case apply-58
async fn uninstall_deletes_every_object(scenario: &Scenario) -> Result<()> {
    let (cluster, name) = (&scenario.cluster, scenario.name.as_str());
    cluster.delete(&scenario.extensions(), name).await?;
    cluster.wait_gone(&scenario.extensions(), name).await?;
    cluster.wait_gone(&cluster.all::<ClusterObjectSet>(), &format!("{name}-1")).await?;
    cluster.wait_gone(&cluster.within::<Deployment>(name), name).await?;
    cluster.wait_gone(&cluster.within::<ConfigMap>(name), &format!("{name}-settings")).await?;
    let crd = format!("greetings.{}", scenario.sample.group);
    cluster.wait_gone(&cluster.all::<CustomResourceDefinition>(), &crd).await?;
    let ours = ListParams::default().labels(&format!("olm.operatorframework.io/owner-name={name}"));
    let secrets = cluster.within::<Secret>("olmv1-system").list(&ours).await?;
    for secret in secrets {
        cluster
            .wait_gone(&cluster.within::<Secret>("olmv1-system"), &secret.metadata.name.unwrap_or_default())
            .await?;
    }
    for role in cluster.all::<ClusterRole>().list(&ours).await? {
        cluster.wait_gone(&cluster.all::<ClusterRole>(), &role.metadata.name.unwrap_or_default()).await?;
    }
    for binding in cluster.all::<ClusterRoleBinding>().list(&ours).await? {
        cluster
            .wait_gone(&cluster.all::<ClusterRoleBinding>(), &binding.metadata.name.unwrap_or_default())
            .await?;
    }
    Ok(())
}

// Case apply-26
#[tokio::test(flavor = "multi_thread")]
async fn foreign_objects_are_reported_and_not_changed_until_they_are_deleted() -> Result<()> {
    let scenario = Scenario::new("foreign", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    let settings = scenario.cluster.within::<ConfigMap>(&scenario.name);
    let name = format!("{}-settings", scenario.name);
    let foreign = serde_json::from_value(json!({"metadata": {"name": name}, "data": {"version": "mine"}}))?;
    settings.create(&PostParams::default(), &foreign).await?;
    // This one is in a later phase.
    let deployments = scenario.cluster.within::<Deployment>(&scenario.name);
    let foreign = json!({"metadata": {"name": scenario.name}, "spec": {"replicas": 0,
        "selector": {"matchLabels": {"app": "foreign"}}, "template": {"metadata": {"labels": {"app": "foreign"}},
            "spec": {"containers": [{"name": "foreign", "image": scenario.cluster.operator_image}]}}}});
    deployments.create(&PostParams::default(), &serde_json::from_value(foreign)?).await?;
    scenario.install(json!({})).await?;
    let extension =
        scenario.wait_condition("Progressing", "True/Retrying: revision object collisions in phase ").await?;
    let shown = olm_e2e::describe(&extension, "Progressing");
    let named = format!("Object ConfigMap.v1 {}/{name}", scenario.name);
    ensure!(shown.contains(&named) && shown.contains("Conflicting Owner: nil"), "{shown}");
    scenario.wait_condition("Installed", "False/Failed: No bundle installed").await?;
    let still = settings.get(&name).await?;
    ensure!(still.data.unwrap_or_default()["version"] == "mine");
    settings.delete(&name, &DeleteParams::default()).await?;
    let named = format!("Object Deployment.apps/v1 {0}/{0}", scenario.name);
    let collides = |found: Option<&ClusterExtension>| {
        found.is_some_and(|found| olm_e2e::describe(found, "Progressing").contains(&named))
    };
    scenario.cluster.wait(&scenario.extensions(), &scenario.name, &named, collides).await?;
    scenario.wait_condition("Installed", "False/Failed: No bundle installed").await?;
    deployments.delete(&scenario.name, &DeleteParams::default()).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.finish().await
}

// docs/design/apply.md#drift
#[tokio::test(flavor = "multi_thread")]
async fn manual_rollout_restart_is_retained() -> Result<()> {
    let scenario = Scenario::installed("restart").await?;
    let name = scenario.name.as_str();
    let output = Command::new("kubectl")
        .args(["--namespace", name, "rollout", "restart", &format!("deployment/{name}")])
        .output()
        .context("kubectl")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let deployments = scenario.cluster.within::<Deployment>(name);
    let is_restarted = |found: Option<&Deployment>| {
        let Some(found) = found else { return false };
        let status = found.status.clone().unwrap_or_default();
        let pods = [status.replicas, status.updated_replicas, status.ready_replicas];
        status.observed_generation == found.metadata.generation && pods == [Some(1); 3]
    };
    scenario.cluster.wait(&deployments, name, "restarted", is_restarted).await?;
    // Triggers a reconcile of both controllers, and a repair of the same object.
    scenario.cluster.merge(&deployments, name, json!({"spec": {"replicas": 2}})).await?;
    let safety = json!({"spec": {"install": {"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}}}});
    scenario.cluster.merge(&scenario.extensions(), name, safety).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.cluster.wait(&deployments, name, "one replica again", is_restarted).await?;
    let template = deployments.get(name).await?.spec.unwrap_or_default().template;
    let annotations = template.metadata.and_then(|metadata| metadata.annotations).unwrap_or_default();
    ensure!(annotations.contains_key("kubectl.kubernetes.io/restartedAt"), "{annotations:?}");
    let sets = scenario.cluster.within::<ReplicaSet>(name).list(&ListParams::default()).await?.items;
    ensure!(sets.len() == 2, "{} ReplicaSets", sets.len());
    scenario.finish().await
}

// Cases apply-24, apply-25
#[tokio::test(flavor = "multi_thread")]
async fn second_extension_with_the_same_objects_collides() -> Result<()> {
    let scenario = Scenario::installed("shared").await?;
    let second = format!("{}-second", scenario.name);
    let selector = json!({"selector": {"matchLabels": {"e2e": scenario.name}}});
    let object = extension(&second, &scenario.name, &scenario.name, selector);
    scenario.extensions().create(&PostParams::default(), &object).await?;
    let collides = condition("Progressing", "True/Retrying: revision object collisions in phase ");
    scenario.cluster.wait(&scenario.extensions(), &second, "collides", collides).await?;
    // A second revision of the extension collides, too.
    let config =
        json!({"configType": "Inline", "inline": {"deploymentConfig": {"nodeSelector": {"e2e": "nowhere"}}}});
    scenario.cluster.merge(&scenario.extensions(), &second, json!({"spec": {"config": config}})).await?;
    let collides = condition("Progressing", "True/Retrying: revision object collisions in phase ");
    let made = revision_says("Progressing", "True/Retrying: revision object collisions in phase ");
    let sets = scenario.cluster.all::<ClusterObjectSet>();
    scenario.cluster.wait(&sets, &format!("{second}-2"), "collides", made).await?;
    scenario.cluster.wait(&scenario.extensions(), &second, "still collides", collides).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.cluster.delete(&scenario.extensions(), &second).await?;
    scenario.cluster.wait_gone(&scenario.extensions(), &second).await?;
    for number in 1..=2 {
        scenario.cluster.wait_gone(&sets, &format!("{second}-{number}")).await?;
    }
    scenario.wait_installed("1.0.0").await?;
    scenario.finish().await
}

// Case apply-59
#[tokio::test(flavor = "multi_thread")]
async fn orphaned_objects_are_adopted_by_a_recreated_extension() -> Result<()> {
    let scenario = Scenario::installed("orphan").await?;
    let cluster = &scenario.cluster;
    let deployments = cluster.within::<Deployment>(&scenario.name);
    let before = deployments.get(&scenario.name).await?;
    let orphan =
        DeleteParams { propagation_policy: Some(kube::api::PropagationPolicy::Orphan), ..Default::default() };
    scenario.extensions().delete(&scenario.name, &orphan).await?;
    cluster.wait_gone(&scenario.extensions(), &scenario.name).await?;
    let sets = cluster.all::<ClusterObjectSet>();
    let left = sets.get(&format!("{}-1", scenario.name)).await?;
    ensure!(left.metadata.deletion_timestamp.is_none(), "the revision is being deleted");
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    let after = deployments.get(&scenario.name).await?;
    ensure!(
        after.metadata.uid == before.metadata.uid && after.metadata.generation == before.metadata.generation
    );
    ensure!(sets.get_opt(&format!("{}-2", scenario.name)).await?.is_none(), "a second revision exists");
    scenario.finish().await
}

// Case apply-30
#[tokio::test(flavor = "multi_thread")]
async fn extension_is_installed_once_its_namespace_exists() -> Result<()> {
    let scenario = Scenario::new("late", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    let namespace = format!("{}-later", scenario.name);
    let selector = json!({"selector": {"matchLabels": {"e2e": scenario.name}}});
    let object = extension(&scenario.name, &namespace, &scenario.name, selector);
    scenario.extensions().create(&PostParams::default(), &object).await?;
    let extension = scenario.wait_condition("Progressing", "True/Retrying: ").await?;
    let shown = olm_e2e::describe(&extension, "Progressing");
    ensure!(shown.contains(&format!("namespaces \"{namespace}\" not found")), "{shown}");
    scenario.cluster.create_namespace(&namespace).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario
        .cluster
        .delete(&scenario.cluster.all::<k8s_openapi::api::core::v1::Namespace>(), &namespace)
        .await?;
    scenario.finish().await
}
