//! operator-controller with the rights of `hardened.yaml`: missing rights are reported, and administrators can add
//! them.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, ResourceExt as _};
use olm_e2e::{Cluster, PATIENCE, Scenario, Tool, eventually};
use sample_operator::content::Sample;
use serde_json::json;

use crate::alone;

/// Applies the RBAC objects of a file of `manifests/`.
async fn apply_rights(cluster: &Cluster, file: &str) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests").join(file);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let all: Vec<DynamicObject> = serde_saphyr::from_multiple(&text)?;
    // The installation was applied by kubectl.
    let apply = PatchParams::apply("kubectl").force();
    for object in all {
        let types = object.types.clone().context("the object has no kind")?;
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

/// Installs an extension whose operator has rights that operator-controller lacks until an administrator adds them.
async fn install_beyond(scenario: &Scenario) -> Result<()> {
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    eventually("the missing right is reported", PATIENCE, async || {
        let progressing = scenario.condition_now("Progressing").await?;
        ensure!(progressing.starts_with("True/"), "{progressing}");
        let needs = "operator-controller requires the following permissions to manage the extension";
        ensure!(progressing.contains(needs), "{progressing}");
        Ok(())
    })
    .await?;
    give_what_is_required(scenario, "1.0.0").await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.cluster.delete(&scenario.extensions(), &scenario.name).await?;
    scenario.cluster.wait_gone(&scenario.extensions(), &scenario.name).await?;
    scenario.cluster.delete(&scenario.cluster.all::<ClusterRole>(), &role(scenario, "1.0.0")).await
}

/// Name of the roles of a version. An upgrade needs those of both versions.
fn role(scenario: &Scenario, version: &str) -> String {
    format!("{}-{version}", scenario.name)
}

/// Grants operator-controller the rights that `olm rbac required` prints, as in `docs/tasks/rights.md`.
async fn give_what_is_required(scenario: &Scenario, version: &str) -> Result<()> {
    let (cluster, package) = (&scenario.cluster, scenario.name.as_str());
    let name = role(scenario, version);
    let name = name.as_str();
    let (tool, catalog) = (Tool::new(&scenario.cluster)?, format!("cluster/{package}"));
    let ca = tool.path("ca").display().to_string();
    let arguments = ["rbac", "required", package, "-n", package, "--catalog", &catalog, "--version", version];
    let more = ["--operator-controller", "--role-name", name, "--ca-dir", &ca];
    let printed = tool.run(&[&arguments[..], &more].concat())?;
    let apply = PatchParams::apply("kubectl").force();
    for object in serde_saphyr::from_multiple::<DynamicObject>(&printed)? {
        let kind = object.types.as_ref().map_or("", |types| types.kind.as_str());
        let (name, patch) = (object.name_any(), Patch::Apply(&object));
        match kind {
            "ClusterRole" => cluster.all::<ClusterRole>().patch(&name, &apply, &patch).await.map(drop)?,
            "Role" => cluster.within::<Role>(package).patch(&name, &apply, &patch).await.map(drop)?,
            "RoleBinding" => {
                cluster.within::<RoleBinding>(package).patch(&name, &apply, &patch).await.map(drop)?
            }
            kind => anyhow::bail!("unexpected kind {kind}"),
        }
    }
    Ok(())
}

/// Installs, upgrades and uninstalls an operator with webhooks, one of which converts its custom resources.
async fn lives_with_what_is_required(scenario: &Scenario) -> Result<()> {
    let cluster = &scenario.cluster;
    give_what_is_required(scenario, "1.0.0").await?;
    scenario.install(json!({"version": "1.0.0"})).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.greet("v2", &scenario.name, "left", json!({"who": "all"})).await?;
    give_what_is_required(scenario, "1.1.0").await?;
    scenario.edit(json!({"version": "1.1.0"})).await?;
    scenario.wait_installed("1.1.0").await?;
    cluster.delete(&scenario.extensions(), &scenario.name).await?;
    cluster.wait_gone(&scenario.extensions(), &scenario.name).await?;
    let crd = format!("greetings.{}", scenario.sample.group);
    cluster.wait_gone(&cluster.all::<CustomResourceDefinition>(), &crd).await?;
    let webhook = format!("validate.{crd}");
    cluster.wait_gone(&cluster.all::<ValidatingWebhookConfiguration>(), &webhook).await?;
    for version in ["1.0.0", "1.1.0"] {
        cluster.delete(&cluster.all::<ClusterRole>(), &role(scenario, version)).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn required_rights_suffice_for_an_operator_with_webhooks() -> Result<()> {
    let _alone = alone().await;
    let versions = ["1.0.0", "1.1.0"];
    let scenario = Scenario::of("required", Sample::webhooks, &versions).await?;
    scenario.serve(&[("stable", scenario.chain(&versions))]).await?;
    apply_rights(&scenario.cluster, "hardened.yaml").await?;
    let lived = lives_with_what_is_required(&scenario).await;
    apply_rights(&scenario.cluster, "install.yaml").await?;
    lived?;
    scenario.finish().await
}

// docs/design/operations.md#hardened-rights; case operations-a53
#[tokio::test(flavor = "multi_thread")]
async fn hardened_rights_suffice_with_those_added_by_an_administrator() -> Result<()> {
    let _alone = alone().await;
    let scenario = Scenario::new("rights", &["1.0.0"]).await?;
    apply_rights(&scenario.cluster, "hardened.yaml").await?;
    let done = install_beyond(&scenario).await;
    apply_rights(&scenario.cluster, "install.yaml").await?;
    done?;
    scenario.finish().await
}
