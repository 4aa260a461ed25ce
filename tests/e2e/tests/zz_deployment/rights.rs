//! operator-controller with the rights of `hardened.yaml`: what it may not do is told, and an administrator may add to it.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, ResourceExt as _};
use olm_e2e::{Cluster, PATIENCE, Scenario, eventually};
use serde_json::json;

use crate::alone;

/// Applies what a file of `manifests/` says about rights.
async fn apply_rights(cluster: &Cluster, file: &str) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests").join(file);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let all: Vec<DynamicObject> = serde_saphyr::from_multiple(&text)?;
    // As kubectl, which has applied the installation.
    let apply = PatchParams::apply("kubectl").force();
    for object in all {
        let types = object.types.clone().context("an object without a kind")?;
        if types.api_version != "rbac.authorization.k8s.io/v1" {
            continue;
        }
        let kind = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", &types.kind);
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(cluster.client.clone(), &namespace, &resource),
            None => Api::all_with(cluster.client.clone(), &resource),
        };
        api.patch(&object.name_any(), &apply, &Patch::Apply(&object)).await?;
    }
    Ok(())
}

/// An extension whose operator gets rights that operator-controller has not, until an administrator adds them.
async fn install_beyond(scenario: &Scenario) -> Result<()> {
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    eventually("the right that is missing is told", PATIENCE, async || {
        let progressing = scenario.condition_now("Progressing").await?;
        ensure!(progressing.starts_with("True/"), "{progressing}");
        ensure!(
            progressing.contains("attempting to grant RBAC permissions not currently held"),
            "{progressing}"
        );
        Ok(())
    })
    .await?;
    let role = json!({
        "metadata": {"name": scenario.name,
            "labels": {"ext.olm.operatorframework.io/aggregate-to-operator-controller": "true"}},
        "rules": [{"apiGroups": [scenario.sample.group], "resources": ["greetings", "greetings/status"],
            "verbs": ["get", "list", "watch", "update", "patch"]}],
    });
    let roles: Api<ClusterRole> = scenario.cluster.all();
    roles.create(&PostParams::default(), &serde_json::from_value(role)?).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.cluster.delete(&scenario.extensions(), &scenario.name).await?;
    scenario.cluster.wait_gone(&scenario.extensions(), &scenario.name).await?;
    scenario.cluster.delete(&roles, &scenario.name).await
}

// spec 06 A53, §1.6
#[tokio::test(flavor = "multi_thread")]
async fn that_are_few_are_enough_for_what_an_administrator_admits() -> Result<()> {
    let _alone = alone().await;
    let scenario = Scenario::new("rights", &["1.0.0"]).await?;
    apply_rights(&scenario.cluster, "hardened.yaml").await?;
    let done = install_beyond(&scenario).await;
    apply_rights(&scenario.cluster, "install.yaml").await?;
    done?;
    scenario.finish().await
}
