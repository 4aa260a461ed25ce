//! Faults of the environment: servers killed at any moment, registry and API server unavailable for a while.
//!
//! These tests affect the whole cluster: the file's name sorts late, and each holds [`alone`].

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use olm_api::ClusterObjectSet;
use olm_e2e::servers::{self, Server};
use olm_e2e::{Cluster, Scenario, hack_cluster};
use serde_json::json;
use tokio::sync::{Mutex, MutexGuard};

static ALONE: Mutex<()> = Mutex::const_new(());

async fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().await
}

/// Kills the server's process with SIGKILL. Returns `false` if its node is not this machine.
async fn kill(cluster: &Cluster, component: &str) -> Result<bool> {
    let pods = cluster.pods_of(component).await?;
    for pod in &pods {
        if servers::signal(pod, "-KILL")? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Pseudorandom generator. The seed is printed, so that a failure can be repeated.
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

/// Number of installations in progress when a server is killed, each at a different point.
const AT_ONCE: usize = 4;

/// Package in a catalog that does not exist yet.
async fn prepared() -> Result<(Scenario, String)> {
    let scenario = Scenario::new("killed", &["1.0.0"]).await?;
    let text = scenario.catalog_text(&[("stable", scenario.chain(&["1.0.0"]))]);
    let digest = scenario.push_catalog(&text).await?;
    Ok((scenario, digest))
}

/// Checks that the extension is installed, with one revision.
async fn came_through(scenario: Scenario) -> Result<()> {
    scenario.wait_installed("1.0.0").await?;
    let sets = scenario.cluster.all::<ClusterObjectSet>();
    ensure!(sets.get_opt(&format!("{}-2", scenario.name)).await?.is_none(), "a second revision exists");
    let settings = scenario.cluster.within::<ConfigMap>(&scenario.name);
    let settings = settings.get(&format!("{}-settings", scenario.name)).await?;
    ensure!(settings.data.unwrap_or_default()["version"] == "1.0.0");
    scenario.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_at_any_moment_of_an_install_converges() -> Result<()> {
    let _alone = alone().await;
    let cluster = Cluster::connect().await?;
    let mut moments = Moments::new();
    for component in ["operator-controller", "catalogd", "operator-controller", "operator-controller"] {
        let scenarios = try_join_all((0..AT_ONCE).map(|_| prepared())).await?;
        // An installation needs content, so that only the kill of catalogd can precede it.
        let serve = async |(scenario, digest): &(Scenario, String)| {
            scenario.apply_catalog(json!({ "ref": digest })).await?;
            if component == "operator-controller" { scenario.wait_served(digest).await } else { Ok(()) }
        };
        try_join_all(scenarios.iter().map(serve)).await?;
        // The seed decides the start of each installation before the kill.
        let mut lead: Vec<u64> = (0..AT_ONCE).map(|_| moments.next(2500)).collect();
        lead.sort_unstable_by(|one, other| other.cmp(one));
        for (index, (scenario, _)) in scenarios.iter().enumerate() {
            scenario.install(json!({})).await?;
            let until_next = lead[index] - lead.get(index + 1).unwrap_or(&0);
            tokio::time::sleep(Duration::from_millis(until_next)).await;
        }
        if !kill(&cluster, component).await? {
            bail!("no process of {component} on this machine");
        }
        println!("{component} killed {lead:?} ms after the creation of the extensions");
        try_join_all(scenarios.into_iter().map(|(scenario, _)| came_through(scenario))).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_outage_is_reported_and_upgrade_resumes() -> Result<()> {
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
    // The objects of the installed revision are still repaired.
    let settings = scenario.cluster.within::<ConfigMap>(&scenario.name);
    let name = format!("{}-settings", scenario.name);
    scenario.cluster.merge(&settings, &name, json!({"data": {"version": "0.0.0"}})).await?;
    let set_back = |found: Option<&ConfigMap>| {
        found
            .and_then(|found| found.data.as_ref())
            .is_some_and(|data| data.get("version").is_some_and(|v| v == "1.0.0"))
    };
    let repaired = scenario.cluster.wait(&settings, &name, "repaired", set_back).await;
    hack_cluster("start", "registry")?;
    seen?;
    repaired?;
    scenario.wait_installed("1.1.0").await?;
    scenario.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn api_server_outage_delays_an_install() -> Result<()> {
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
    // Status may be from before the outage, and later tests need responsive servers.
    for server in [Server::Catalogd, Server::OperatorController] {
        servers::wait_rolled_out(&scenario.cluster, server).await?;
        servers::restart(&scenario.cluster, server).await?;
    }
    scenario.finish().await
}
