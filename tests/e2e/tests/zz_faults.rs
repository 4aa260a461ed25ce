//! What goes wrong around us: servers killed at any moment, the registry and the API server away for a while, rollouts
//! that never end.
//!
//! These tests disturb everything on the cluster: the file's name sorts last, and each holds [`alone`].

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use olm_api::ClusterObjectSet;
use olm_api::conditions::is_true;
use olm_e2e::{Cluster, PATIENCE, Scenario, extension};
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};

static ALONE: Mutex<()> = Mutex::const_new(());

async fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().await
}

/// Stops or starts a part of the cluster; `false` where the cluster is not ours to disturb.
fn hack_cluster(verb: &str, part: &str) -> Result<bool> {
    if std::env::var("OLM_USE_CLUSTER").is_ok_and(|value| value == "1") {
        println!("skipped: {part} of somebody's cluster is not stopped");
        return Ok(false);
    }
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../hack/cluster");
    let status = std::process::Command::new(&script).args([verb, part]).status().context("hack/cluster")?;
    ensure!(status.success(), "hack/cluster {verb} {part}: {status}");
    Ok(true)
}

/// Processes of the pod: those with its UID in their environment.
fn processes_of(pod: &Pod) -> Result<Vec<u32>> {
    let marker = format!("POD_UID={}", pod.uid().unwrap_or_default());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end while we look.
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes()) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Kills the server's process with SIGKILL; `false` where its node is not this machine.
async fn kill(cluster: &Cluster, component: &str) -> Result<bool> {
    for pod in cluster.pods_of(component).await? {
        if let Some(pid) = processes_of(&pod)?.first() {
            let status = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status()?;
            return Ok(status.success());
        }
    }
    Ok(false)
}

/// A small generator: the seed is printed, so that a failure can be repeated.
struct Moments(u64);

impl Moments {
    fn new() -> Self {
        let given = std::env::var("OLM_SEED").ok().and_then(|text| text.parse().ok());
        let clock = || std::time::UNIX_EPOCH.elapsed().map_or(1, |now| now.as_secs());
        let seed = given.unwrap_or_else(clock).max(1);
        println!("OLM_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_any_moment_of_an_install() -> Result<()> {
    let _alone = alone().await;
    let cluster = Cluster::connect().await?;
    let mut moments = Moments::new();
    for round in 0..12 {
        let component = ["operator-controller", "catalogd"][usize::from(round % 3 == 2)];
        let wait = Duration::from_millis(moments.next(2500));
        let scenario = Scenario::new("killed", &["1.0.0"]).await?;
        let digest =
            scenario.push_catalog(&scenario.catalog_text(&[("stable", scenario.chain(&["1.0.0"]))])).await?;
        scenario.apply_catalog(json!({"ref": digest})).await?;
        // An install needs content; only the kill of catalogd may come before there is any.
        if component == "operator-controller" {
            scenario.wait_served(&digest).await?;
        }
        scenario.install(json!({})).await?;
        // The moment of the kill is what the seed decides.
        tokio::time::sleep(wait).await;
        if !kill(&cluster, component).await? {
            bail!("no process of {component} on this machine");
        }
        println!("round {round}: {component} killed after {} ms", wait.as_millis());
        scenario.wait_installed("1.0.0").await?;
        let sets = cluster.all::<ClusterObjectSet>();
        ensure!(sets.get_opt(&format!("{}-2", scenario.name)).await?.is_none(), "there is a second revision");
        let settings =
            cluster.within::<ConfigMap>(&scenario.name).get(&format!("{}-settings", scenario.name)).await?;
        ensure!(settings.data.unwrap_or_default()["version"] == "1.0.0");
        scenario.finish().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_down_and_back() -> Result<()> {
    let _alone = alone().await;
    let scenario = Scenario::new("registry", &["1.0.0", "1.1.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]).await?;
    scenario.install(json!({"version": "1.0.0"})).await?;
    scenario.wait_installed("1.0.0").await?;
    if !hack_cluster("stop", "registry")? {
        return scenario.finish().await;
    }
    scenario.edit(json!({"version": "1.1.0"})).await?;
    let begins = format!(
        "True/Retrying: error for resolved bundle \"{}\" with version \"1.1.0\": ",
        scenario.sample.bundle_name("1.1.0")
    );
    let seen = scenario.wait_condition("Progressing", &begins).await;
    // What is installed is kept in shape meanwhile.
    let settings = scenario.cluster.within::<ConfigMap>(&scenario.name);
    let name = format!("{}-settings", scenario.name);
    scenario.cluster.merge(&settings, &name, json!({"data": {"version": "0.0.0"}})).await?;
    let set_back = |found: Option<&ConfigMap>| {
        found
            .and_then(|found| found.data.as_ref())
            .is_some_and(|data| data.get("version").is_some_and(|v| v == "1.0.0"))
    };
    let repaired = scenario.cluster.wait(&settings, &name, "set back", set_back).await;
    hack_cluster("start", "registry")?;
    seen?;
    repaired?;
    scenario.wait_installed("1.1.0").await?;
    scenario.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn api_server_down_and_back() -> Result<()> {
    let _alone = alone().await;
    let scenario = Scenario::new("apiserver", &["1.0.0", "1.1.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]).await?;
    scenario.install(json!({"version": "1.0.0"})).await?;
    if !hack_cluster("stop", "kube-apiserver")? {
        return scenario.finish().await;
    }
    hack_cluster("start", "kube-apiserver")?;
    scenario.wait_installed("1.0.0").await?;
    scenario.edit(json!({"version": "1.1.0"})).await?;
    scenario.wait_installed("1.1.0").await?;
    let deployments = scenario.cluster.within::<Deployment>("olmv1-system");
    for component in ["catalogd", "operator-controller"] {
        let is_ready = |found: Option<&Deployment>| {
            found
                .and_then(|found| found.status.as_ref())
                .is_some_and(|status| status.ready_replicas == Some(1))
        };
        let name = format!("{component}-controller-manager");
        tokio::time::timeout(PATIENCE, scenario.cluster.wait(&deployments, &name, "ready", is_ready))
            .await??;
    }
    scenario.finish().await
}

// spec 05 acceptance 31. It changes the CRDs, which ends everybody's watches.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_takes_too_long_is_said_to() -> Result<()> {
    let _alone = alone().await;
    let mut scenario = Scenario::new("deadline", &[]).await?;
    scenario
        .push_bundle("1.0.0", |files| {
            for file in files.values_mut() {
                let text = String::from_utf8_lossy(file)
                    .replace("[/sample-operator, ready]", "[/sample-operator, never]");
                *file = text.into_bytes();
            }
        })
        .await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    // The schema does not admit a minute; the test does not wait for ten.
    let crds: Api<CustomResourceDefinition> = scenario.cluster.all();
    let minimum = async |kind: &str, minutes: i32| -> Result<()> {
        let path = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/progressDeadlineMinutes/minimum";
        let patch: Patch<()> =
            Patch::Json(serde_json::from_value(json!([{"op": "replace", "path": path, "value": minutes}]))?);
        let name = format!("{kind}.olm.operatorframework.io");
        crds.patch(&name, &PatchParams::default(), &patch).await?;
        Ok(())
    };
    for kind in ["clusterextensions", "clusterobjectsets"] {
        minimum(kind, 1).await?;
    }
    let selector = json!({"selector": {"matchLabels": {"e2e": scenario.name}}});
    let mut object = extension(&scenario.name, &scenario.name, &scenario.name, selector);
    if let Some(spec) = object.spec.as_mut() {
        spec.progress_deadline_minutes = Some(1);
    }
    let created = async {
        let until = std::time::Instant::now() + PATIENCE;
        let mut again = tokio::time::interval(Duration::from_millis(200));
        loop {
            again.tick().await;
            match scenario.extensions().create(&PostParams::default(), &object).await {
                Ok(_) => break,
                // The API server needs a moment to take up the changed schema.
                Err(kube::Error::Api(status)) if status.code == 422 && std::time::Instant::now() < until => {}
                Err(error) => return Err(error.into()),
            }
        }
        let late = "False/ProgressDeadlineExceeded: Revision has not rolled out for 1 minute(s). Last status: Revision \
                    1.0.0 is rolling out.";
        scenario.wait_condition("Progressing", late).await
    };
    let seen = created.await;
    for kind in ["clusterextensions", "clusterobjectsets"] {
        minimum(kind, 10).await?;
    }
    seen?;
    let sets = scenario.cluster.all::<ClusterObjectSet>();
    let revision = format!("{}-1", scenario.name);
    let set = sets.get(&revision).await?;
    let conditions = set.status.unwrap_or_default().conditions;
    ensure!(!is_true(&conditions, "Succeeded"), "{conditions:?}");
    scenario.finish().await
}
