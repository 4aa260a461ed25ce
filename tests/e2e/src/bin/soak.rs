//! Soak test for `hack/soak`: random changes of many extensions while servers and registry fail.
//!
//! Every minute the leader of one server is killed with its pod, and the registry is stopped repeatedly. At the end
//! every extension must have its last requested version, and memory must not have grown.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::wait::Condition as _;
use olm_api::ClusterObjectSet;
use olm_e2e::servers::{self, Server};
use olm_e2e::{Cluster, Scenario, eventually, hack_cluster};
use serde_json::json;

const VERSIONS: [&str; 3] = ["1.0.0", "1.1.0", "2.0.0"];
const SERVERS: [Server; 2] = [Server::OperatorController, Server::Catalogd];
/// Number of extensions created or deleted concurrently.
const AT_ONCE: usize = 8;
/// Interval of the changes of extensions.
const CHANGE: Duration = Duration::from_secs(2);
const MINUTE: Duration = Duration::from_secs(60);
/// The registry is stopped once per this number of minutes, for [`AWAY`].
const AWAY_EVERY: u64 = 5;
const AWAY: Duration = Duration::from_secs(20);
/// Limit of the growth of memory.
const GROWTH: f64 = 1.1;

/// Usage: `soak MINUTES EXTENSIONS SEED`
#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>());
    let mut next =
        |name: &str| arguments.next().context(format!("{name} is missing"))?.context(name.to_owned());
    let (minutes, count, seed) = (next("MINUTES")?, next("EXTENSIONS")?, next("SEED")?);
    let mut soak = Soak::start(count, seed.max(1)).await?;
    for minute in 0..minutes {
        soak.minute(minute).await?;
    }
    soak.finish().await
}

struct Soak {
    cluster: Cluster,
    extensions: Vec<Scenario>,
    /// Last requested version of each element of `extensions`.
    versions: Vec<&'static str>,
    random: u64,
    changes: u64,
    /// Largest anonymous memory of each server's processes per minute, in MB.
    memory: BTreeMap<&'static str, Vec<f64>>,
}

impl Soak {
    async fn start(count: u64, seed: u64) -> Result<Self> {
        let began = Instant::now();
        let made: Vec<Scenario> =
            stream::iter((0..count).map(|_| prepared())).buffer_unordered(AT_ONCE).try_collect().await?;
        println!("{count} extensions installed in {} s; OLM_SEED={seed}", began.elapsed().as_secs());
        Ok(Self {
            cluster: Cluster::connect().await?,
            versions: vec![VERSIONS[0]; made.len()],
            extensions: made,
            random: seed,
            changes: 0,
            memory: BTreeMap::new(),
        })
    }

    /// Runs one minute of changes and failures.
    async fn minute(&mut self, minute: u64) -> Result<()> {
        let end = Instant::now() + MINUTE;
        let server = SERVERS[usize::from(!minute.is_multiple_of(2))];
        let killed = self.kill_leader(server).await?;
        let mut away = minute.is_multiple_of(AWAY_EVERY).then(|| Instant::now() + AWAY);
        if away.is_some() {
            hack_cluster("stop", "registry")?;
        }
        while Instant::now() < end {
            self.change().await?;
            if away.is_some_and(|until| Instant::now() > until) {
                hack_cluster("start", "registry")?;
                away = None;
            }
            self.look_at_memory(minute).await?;
            tokio::time::sleep(CHANGE).await;
        }
        let behind = self.behind().await?;
        let memory: Vec<String> = self
            .memory
            .iter()
            .map(|(name, largest)| format!("{name} {:.1} MB", largest.last().copied().unwrap_or_default()))
            .collect();
        println!(
            "minute {minute}: killed {killed}; {} changes so far, {behind} extensions under way; {}",
            self.changes,
            memory.join(", ")
        );
        Ok(())
    }

    fn below(&mut self, limit: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random % limit as u64).unwrap_or_default()
    }

    /// Changes the version of a random extension, up or down.
    async fn change(&mut self) -> Result<()> {
        let (place, version) = (self.below(self.extensions.len()), VERSIONS[self.below(VERSIONS.len())]);
        self.extensions[place].edit(json!({ "version": version })).await?;
        self.versions[place] = version;
        self.changes += 1;
        Ok(())
    }

    /// Kills the server's leader and deletes its pod, so that a new one is created. Returns its name.
    async fn kill_leader(&self, server: Server) -> Result<String> {
        let leader = servers::leader(&self.cluster, server).await?;
        let pods = self.cluster.within::<Pod>(servers::SYSTEM);
        if let Some(pod) = pods.get_opt(&leader).await? {
            servers::signal(&pod, "-KILL")?;
            let at_once = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
            pods.delete(&leader, &at_once).await?;
        }
        Ok(leader)
    }

    async fn look_at_memory(&mut self, minute: u64) -> Result<()> {
        for server in SERVERS {
            let largest = self.memory.entry(server.name()).or_default();
            largest.resize(usize::try_from(minute)? + 1, 0.0);
            for pod in self.cluster.pods_of(server.name()).await? {
                for process in servers::processes_of(&pod)? {
                    if let (Some(largest), Some(now)) = (largest.last_mut(), memory(process)) {
                        *largest = largest.max(now);
                    }
                }
            }
        }
        Ok(())
    }

    /// Number of extensions without their last requested version.
    async fn behind(&self) -> Result<usize> {
        let mut behind = 0;
        for (scenario, versions) in self.extensions.iter().zip(&self.versions) {
            let extension = scenario.extensions().get(&scenario.name).await?;
            behind += usize::from(!olm_e2e::is_installed(versions).matches_object(Some(&extension)));
        }
        Ok(behind)
    }

    async fn finish(self) -> Result<()> {
        for (scenario, versions) in self.extensions.iter().zip(&self.versions) {
            scenario.wait_installed(versions).await?;
            let settings = scenario.cluster.within::<ConfigMap>(&scenario.name);
            let settings =
                settings.get(&format!("{}-settings", scenario.name)).await?.data.unwrap_or_default();
            let name = &scenario.name;
            ensure!(
                settings["version"] == *versions,
                "{name} has {} instead of {versions}",
                settings["version"]
            );
            eventually(&format!("one revision of {name} is active"), MINUTE, async || {
                let owned = ListParams::default().labels(&format!("{}={name}", olm_api::labels::OWNER_NAME));
                let sets = self.cluster.all::<ClusterObjectSet>().list(&owned).await?.items;
                let active = sets.iter().filter(|set| is_active(set)).map(ResourceExt::name_any);
                let active: Vec<String> = active.collect();
                ensure!(active.len() == 1, "active: {active:?}");
                Ok(())
            })
            .await?;
        }
        println!("every extension has what was last asked of it, after {} changes", self.changes);
        for (server, largest) in &self.memory {
            flat(server, largest)?;
        }
        stream::iter(self.extensions.into_iter().map(Scenario::finish))
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }
}

/// Installs the first version of an extension that permits downgrades.
async fn prepared() -> Result<Scenario> {
    let scenario = Scenario::new("soak", &VERSIONS).await?;
    scenario.serve(&[("stable", scenario.chain(&VERSIONS))]).await?;
    let first = json!({"version": VERSIONS[0], "upgradeConstraintPolicy": "SelfCertified"});
    scenario.install(first).await?;
    scenario.wait_installed(VERSIONS[0]).await?;
    Ok(scenario)
}

fn is_active(set: &ClusterObjectSet) -> bool {
    let archived = olm_api::cluster_object_set::LifecycleState::Archived;
    set.spec.as_ref().is_some_and(|spec| spec.lifecycle_state != archived)
}

/// Compares the last quarter of the run with the second one. The first is warm-up.
fn flat(server: &str, largest: &[f64]) -> Result<()> {
    let quarter = largest.len() / 4;
    if quarter == 0 {
        return Ok(());
    }
    let peak = |part: &[f64]| part.iter().copied().fold(0.0, f64::max);
    let (early, late) = (peak(&largest[quarter..2 * quarter]), peak(&largest[largest.len() - quarter..]));
    println!("{server}: at most {early:.1} MB in the second quarter, {late:.1} MB in the last");
    ensure!(late <= early * GROWTH, "{server} grows");
    Ok(())
}

/// Anonymous memory of a process in MB. `None` if it has exited.
fn memory(process: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kilobytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024.0 / 1e6)
}
