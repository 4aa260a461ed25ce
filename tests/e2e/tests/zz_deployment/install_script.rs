//! `manifests/install.sh` on a cluster with the servers, and a second installation.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use olm_e2e::servers::{Before, SYSTEM, Server, leader, ready_pods, wait_other_leader};
use olm_e2e::{Cluster, PATIENCE, Scenario, eventually};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::alone;

const SERVERS: [Server; 2] = [Server::Catalogd, Server::OperatorController];

fn manifests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests")
}

/// Runs a command with this input. Returns its output, or its standard error if it failed.
async fn call(command: &mut Command, input: &str) -> Result<std::result::Result<String, String>> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut running = command.spawn().with_context(|| format!("{command:?}"))?;
    running.stdin.take().context("no input")?.write_all(input.as_bytes()).await?;
    let ended = tokio::time::timeout(2 * PATIENCE, running.wait_with_output()).await;
    let output = ended.with_context(|| format!("{command:?} timed out"))??;
    let (printed, said) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    Ok(if output.status.success() { Ok(printed) } else { Err(said) })
}

/// Runs the script. Returns its output, or its standard error if it failed.
async fn install(environment: &[(&str, &str)]) -> Result<std::result::Result<String, String>> {
    let mut command = Command::new("bash");
    command.arg(manifests().join("install.sh")).envs(environment.iter().copied());
    call(&mut command, "").await
}

/// Generation and pods of each Deployment.
async fn running(cluster: &Cluster) -> Result<Vec<(Option<i64>, Vec<String>)>> {
    let deployments: Api<Deployment> = cluster.within(SYSTEM);
    let mut found = Vec::new();
    for server in SERVERS {
        let generation = deployments.get(&server.deployment()).await?.metadata.generation;
        let pods = ready_pods(cluster, server).await?;
        found.push((generation, pods.iter().map(|pod| pod.name_any()).collect()));
    }
    Ok(found)
}

/// Runs the script twice on the installation of `hack/e2e`. The first run reverts its changes, the second one changes
/// nothing.
async fn twice(scenario: &Scenario) -> Result<()> {
    let without = [("INSTALL_DEFAULT_CATALOGS", "false")];
    let mut seen = Vec::new();
    for _ in 0..2 {
        let printed = install(&without).await?.map_err(anyhow::Error::msg)?;
        for server in SERVERS {
            let done = format!("deployment \"{}\" successfully rolled out", server.deployment());
            ensure!(printed.contains(&done), "{printed}");
        }
        seen.push(
            eventually("only new pods exist", PATIENCE, async || {
                let now = running(&scenario.cluster).await?;
                ensure!(now.iter().all(|(_, pods)| pods.len() == 1), "{now:?}");
                Ok(now)
            })
            .await?,
        );
    }
    ensure!(seen[0] == seen[1], "the second run changed something: {seen:?}");
    scenario.edit(json!({"version": "1.1.0"})).await?;
    scenario.wait_installed("1.1.0").await?;

    // Default catalogs of the script, here a catalog of the test.
    let (file, name) = (tempfile::NamedTempFile::new()?, format!("{}-default", scenario.name));
    let catalog = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
        "metadata": {"name": name},
        "spec": {"source": {"type": "Image", "image": {"ref": scenario.catalog_tag()}}}});
    std::fs::write(file.path(), catalog.to_string())?;
    let path = file.path().to_str().context("the path is not UTF-8")?;
    let with = [("DEFAULT_CATALOG", path), ("CATALOG_WAIT_TIMEOUT", "120s")];
    let installed = install(&with).await?;
    scenario.cluster.delete(&scenario.catalogs(), &name).await?;
    scenario.cluster.wait_gone(&scenario.catalogs(), &name).await?;
    let printed = installed.map_err(anyhow::Error::msg)?;
    let served = format!("clustercatalog.olm.operatorframework.io/{name} condition met");
    ensure!(printed.contains(&served), "{printed}");
    Ok(())
}

// docs/design/operations.md#install-script; case operations-a27
#[tokio::test(flavor = "multi_thread")]
async fn install_script_is_idempotent() -> Result<()> {
    let _alone = alone().await;
    let scenario = Scenario::new("script", &["1.0.0", "1.1.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]).await?;
    scenario.install(json!({"version": "1.0.0"})).await?;
    scenario.wait_installed("1.0.0").await?;
    let cluster = &scenario.cluster;
    // The script reverts the changes of hack/e2e.
    let catalogd = Before::change(cluster, Server::Catalogd, json!({})).await?;
    let operator_controller = Before::change(cluster, Server::OperatorController, json!({})).await?;
    let checked = operator_controller.during(cluster, async || twice(&scenario).await).await;
    catalogd.restore(cluster).await?;
    checked?;
    scenario.finish().await
}

/// Objects of a second installation: those in its namespace, and the RBAC objects of its accounts.
fn second(namespace: &str) -> Result<(String, Vec<String>)> {
    let text = std::fs::read_to_string(manifests().join("install.yaml"))?.replace(SYSTEM, namespace);
    let all: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    let (mut items, mut bindings) = (Vec::new(), Vec::new());
    for mut object in all {
        if object["kind"] == "ClusterRoleBinding" {
            let name = format!("{namespace}-{}", object["metadata"]["name"].as_str().unwrap_or_default());
            object["metadata"]["name"] = json!(name);
            bindings.push(name);
        } else if object["metadata"].get("namespace").is_none() && object["kind"] != "Namespace" {
            continue;
        }
        items.push(object);
    }
    Ok((json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string(), bindings))
}

/// Checks that the second installation is ready, reports why it does not lead, and changes nothing. The first one
/// continues to lead.
async fn stands_by(cluster: &Cluster, namespace: &str) -> Result<()> {
    // The Lease of a server may still be changing its holder after an earlier test.
    let led = async |server| wait_other_leader(cluster, server, "").await;
    let before = [led(SERVERS[0]).await?, led(SERVERS[1]).await?];
    let deployments: Api<Deployment> = cluster.within(namespace);
    let events: Api<Event> = cluster.within(namespace);
    for server in SERVERS {
        let name = server.deployment();
        let available = |found: Option<&Deployment>| {
            found.and_then(|found| found.status.as_ref()?.available_replicas) == Some(1)
        };
        cluster.wait(&deployments, &name, "available", available).await?;
        let about = format!("regarding.name={name},reason=MultipleInstallations");
        let note = eventually(&format!("Event about {name}"), PATIENCE, async || {
            let found = events.list(&ListParams::default().fields(&about)).await?.items.pop();
            found.and_then(|event| event.note).context("no such Event")
        })
        .await?;
        ensure!(note.contains(&format!("{SYSTEM}/{name}")), "{note}");
    }
    let leases: Api<Lease> = cluster.within(namespace);
    for lease in leases.list(&ListParams::default()).await? {
        ensure!(lease.spec.and_then(|spec| spec.holder_identity).is_none(), "{namespace} leads");
    }
    let after = [leader(cluster, SERVERS[0]).await?, leader(cluster, SERVERS[1]).await?];
    ensure!(before == after, "{before:?} led, now {after:?}");
    match install(&[("INSTALL_DEFAULT_CATALOGS", "false")]).await? {
        Err(said) if said.starts_with("Error: OLM is installed in another namespace: ") => Ok(()),
        other => bail!("the script did not fail: {other:?}"),
    }
}

// docs/design/operations.md#multiple-installations; case operations-a30
#[tokio::test(flavor = "multi_thread")]
async fn second_installation_has_no_effect() -> Result<()> {
    let _alone = alone().await;
    let scenario = Scenario::new("second", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    let cluster = &scenario.cluster;
    let namespace = format!("{}-olm", scenario.name);
    let (objects, bindings) = second(&namespace)?;
    let mut kubectl = Command::new("kubectl");
    let applied = call(kubectl.args(["apply", "--server-side", "-f", "-"]), &objects).await?;
    let checked = match applied {
        Ok(_) => stands_by(cluster, &namespace).await,
        Err(said) => Err(anyhow::Error::msg(said)),
    };
    for binding in bindings {
        cluster.delete(&cluster.all::<ClusterRoleBinding>(), &binding).await?;
    }
    cluster.delete(&cluster.all::<Namespace>(), &namespace).await?;
    cluster.wait_gone(&cluster.all::<Namespace>(), &namespace).await?;
    checked?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.finish().await
}
