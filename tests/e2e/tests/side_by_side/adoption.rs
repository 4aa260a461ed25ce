//! Adoption of objects that classic OLM left (docs/design/migration.md#adoption).

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::ResourceExt as _;
use kube::api::{ListParams, PostParams};
use olm_api::annotations;
use olm_e2e::{Scenario, Tool, extension};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Creates the object with kubectl as the field manager of classic OLM.
fn create(object: &Value) -> Result<()> {
    let mut kubectl = Command::new("kubectl")
        .args(["create", "--field-manager=olm", "-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("kubectl")?;
    kubectl.stdin.take().context("kubectl's input")?.write_all(object.to_string().as_bytes())?;
    let output = kubectl.wait_with_output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Creates ServiceAccount and Deployment of version 1.0.0 with the additions of classic OLM. Returns the digest of both
/// for the annotation.
async fn create_classic(scenario: &Scenario) -> Result<String> {
    let (name, tool) = (scenario.name.as_str(), Tool::new(&scenario.cluster)?);
    let ca = tool.path("ca");
    let ca = ca.to_str().context("the path is not UTF-8")?;
    let rendered = tool.json(&["render", scenario.bundle_image("1.0.0"), "-n", name, "--ca-dir", ca])?;
    let rendered = rendered.as_array().context("no list of objects")?;
    for kind in ["ServiceAccount", "Deployment"] {
        let mut object =
            rendered.iter().find(|object| object["kind"] == kind).with_context(|| kind.to_owned())?.clone();
        object["metadata"]["labels"] = json!({"olm.managed": "true", "olm.owner": format!("{name}.v1.0.0")});
        if kind == "Deployment" {
            let template = &mut object["spec"]["template"];
            template["metadata"]["annotations"]["olm.operatorGroup"] = json!(name);
            let environment = template["spec"]["containers"][0]["env"].as_array_mut().context("no env")?;
            environment.push(json!({"name": "OPERATOR_CONDITION_NAME", "value": format!("{name}.v1.0.0")}));
        }
        create(&object)?;
    }
    let deployments = scenario.cluster.within::<Deployment>(name);
    let is_ready = |found: Option<&Deployment>| {
        found.and_then(|found| found.status.as_ref()?.ready_replicas).is_some_and(|ready| ready == 1)
    };
    let deployment = scenario.cluster.wait(&deployments, name, "ready", is_ready).await?;
    let account = scenario.cluster.within::<ServiceAccount>(name).get(name).await?;
    let uid = |uid: Option<String>| uid.context("no UID");
    let lines = format!(
        "/ServiceAccount {name}/{name} {}\napps/Deployment {name}/{name} {}\n",
        uid(account.uid())?,
        uid(deployment.uid())?
    );
    let digest: String = Sha256::digest(lines).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("sha256:{digest}"))
}

/// UID and restarts of each pod.
async fn pods(scenario: &Scenario) -> Result<Vec<(Option<String>, i32)>> {
    let pods = scenario.cluster.within::<Pod>(&scenario.name).list(&ListParams::default()).await?.items;
    let restarts = |pod: &Pod| {
        let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
        statuses.map(|status| status.restart_count).sum()
    };
    Ok(pods.iter().map(|pod| (pod.uid(), restarts(pod))).collect())
}

/// Names of the environment of the operator.
fn environment(deployment: &Deployment) -> Vec<String> {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let variables =
        pod.iter().flat_map(|pod| &pod.containers).flat_map(|container| container.env.iter().flatten());
    variables.map(|variable| variable.name.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "only with --full, because controllers/extension/src/controller/adopting_tests.rs::listed_objects_are_adopted_upgraded_and_deleted_with_extension proves it"]
async fn classic_deployment_is_adopted_without_restart() -> Result<()> {
    let scenario = Scenario::new("adopted", &["1.0.0", "1.1.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    let (cluster, name) = (&scenario.cluster, scenario.name.as_str());
    let digest = create_classic(&scenario).await?;
    let before = pods(&scenario).await?;
    ensure!(before.len() == 1, "{before:?}");

    let selector = json!({"selector": {"matchLabels": {"e2e": name}}, "channels": ["stable"]});
    let mut object = extension(name, name, name, selector);
    let empty = format!("sha256:{}", "0".repeat(64));
    object.annotations_mut().insert(annotations::EXT_ADOPT.to_owned(), empty);
    scenario.extensions().create(&PostParams::default(), &object).await?;
    let blocked = scenario.wait_condition("Progressing", "False/Blocked: ").await?;
    let shown = olm_e2e::describe(&blocked, "Progressing");
    let found =
        format!("found ServiceAccount {name}/{name}, Deployment {name}/{name}; run `olm migrate plan` again");
    ensure!(shown.contains(&found), "{shown}");

    scenario.annotate(json!({"adopt": digest})).await?;
    scenario.wait_installed("1.0.0").await?;
    ensure!(pods(&scenario).await? == before, "pods were restarted");
    let deployments = cluster.within::<Deployment>(name);
    let adopted = deployments.get(name).await?;
    let owner = adopted.owner_references().iter().find(|owner| owner.controller == Some(true));
    ensure!(owner.map(|owner| owner.name.as_str()) == Some(&format!("{name}-1")), "{owner:?}");
    ensure!(environment(&adopted).contains(&"OPERATOR_CONDITION_NAME".to_owned()));
    let note = scenario.wait_event("Adopting").await?;
    let expected = format!("revision {name}-1 adopts ServiceAccount {name}/{name}, Deployment {name}/{name}");
    ensure!(note == expected, "{note}");

    scenario.annotate(json!({"adopt": null})).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]).await?;
    scenario.wait_installed("1.1.0").await?;
    let upgraded = deployments.get(name).await?;
    ensure!(upgraded.uid() == adopted.uid(), "the Deployment was replaced");
    ensure!(!environment(&upgraded).contains(&"OPERATOR_CONDITION_NAME".to_owned()));

    cluster.delete(&scenario.extensions(), name).await?;
    cluster.wait_gone(&deployments, name).await?;
    scenario.finish().await
}
