//! Two replicas of each server: one leads, and the other takes over when it dies, hangs, stops or is evicted.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join;
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, EvictParams, GetParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::runtime::wait::{await_condition, conditions::is_deleted};
use kube::{Api, Client, Config, ResourceExt as _};
use olm_e2e::servers::{
    Before, SYSTEM, Server, leader, lease, ready_pods, signal, wait_other_leader, wait_rolled_out,
};
use olm_e2e::{Cluster, PATIENCE, Scenario, eventually};
use olm_require::Need;
use serde_json::{Value, json};

use crate::alone;

pub(crate) const SERVERS: [Server; 2] = [Server::Catalogd, Server::OperatorController];

/// Maximum time without a leader after its loss.
pub(crate) const FAILOVER: Duration = Duration::from_secs(35);
/// Maximum time without a leader after SIGTERM: two retry periods of the other candidate.
const HANDOVER: Duration = Duration::from_secs(9);

/// Runs `check` with two replicas of both servers.
pub(crate) async fn with_two_of_each(
    cluster: &Cluster,
    check: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let scale = |server| Before::change(cluster, server, json!({"replicas": 2}));
    let (catalogd, operator_controller) =
        try_join(scale(Server::Catalogd), scale(Server::OperatorController)).await?;
    let checked = check().await;
    let put_back = try_join(catalogd.restore(cluster), operator_controller.restore(cluster)).await;
    checked?;
    put_back.map(drop)
}

/// Runs `check` for both servers in parallel.
async fn for_both(check: impl AsyncFn(Server) -> Result<()>) -> Result<()> {
    let [catalogd, operator_controller] = SERVERS;
    try_join(check(catalogd), check(operator_controller)).await.map(drop)
}

/// Returns the leading and the following pod, both ready.
pub(crate) async fn pair(cluster: &Cluster, server: Server) -> Result<(Pod, Pod)> {
    eventually("one leader and one follower", PATIENCE, async || {
        let pods = ready_pods(cluster, server).await?;
        let leader = leader(cluster, server).await?;
        let (leads, follows): (Vec<Pod>, Vec<Pod>) =
            pods.into_iter().partition(|pod| pod.name_any() == leader);
        let [leads, follows] =
            [leads, follows].map(|mut pods| if pods.len() == 1 { pods.pop() } else { None });
        Ok((leads.context("no leader")?, follows.context("no follower")?))
    })
    .await
}

/// Checks that an extension is installed and drift repaired, so that the servers work.
async fn still_works(scenario: &Scenario) -> Result<()> {
    let settings: Api<ConfigMap> = scenario.cluster.within(&scenario.name);
    let name = format!("{}-settings", scenario.name);
    let before = settings.get(&name).await?;
    settings.delete(&name, &DeleteParams::default()).await?;
    let is_new =
        move |found: Option<&ConfigMap>| found.is_some_and(|found| found.metadata.uid != before.metadata.uid);
    scenario.cluster.wait(&settings, &name, "recreated", is_new).await?;
    Ok(())
}

/// Checks that catalogd serves the catalog's content.
async fn is_served(scenario: &Scenario) -> Result<()> {
    let service = format!("/api/v1/namespaces/{SYSTEM}/services/https:catalogd-service:https/proxy");
    let content = format!("{service}/catalogs/{}/api/v1", scenario.name);
    let request = kube::core::Request::new(content).get("all", &GetParams::default())?;
    let content = scenario.cluster.client.request_text(request).await?;
    ensure!(content.contains(&scenario.name), "{content}");
    Ok(())
}

async fn installed() -> Result<Scenario> {
    let scenario = Scenario::new("replicas", &["1.0.0", "1.1.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]).await?;
    scenario.install(json!({"version": "1.0.0"})).await?;
    scenario.wait_installed("1.0.0").await?;
    Ok(scenario)
}

// docs/design/operations.md#replicas, docs/design/operations.md#shutdown; cases operations-a16, operations-a17,
// operations-a18, operations-a20, operations-a21, operations-a57
#[tokio::test(flavor = "multi_thread")]
async fn replicas_take_over_and_are_evicted_one_at_a_time() -> Result<()> {
    let _alone = alone().await;
    let scenario = installed().await?;
    let cluster = &scenario.cluster;
    let checks = async || {
        for_both(async |server| {
            if !leads_again_when_killed(cluster, server).await? {
                let reason = format!("processes of {} are not on this machine", server.name());
                olm_require::report(Need::Cluster, &reason);
                return Ok(());
            }
            is_followed_when_it_hangs(&scenario, server).await
        })
        .await?;
        still_works(&scenario).await?;
        for_both(async |server| hands_over(cluster, server).await).await?;
        still_works(&scenario).await?;
        is_served(&scenario).await?;
        for_both(async |server| are_evicted_one_at_a_time(cluster, server).await).await?;
        still_works(&scenario).await?;
        scenario.edit(json!({"version": "1.1.0"})).await?;
        scenario.wait_installed("1.1.0").await?;
        Ok(())
    };
    with_two_of_each(cluster, checks).await?;
    scenario.finish().await
}

/// Kills the leader. The restarted container or the other pod must lead. Returns `false` if the process could not be
/// killed.
async fn leads_again_when_killed(cluster: &Cluster, server: Server) -> Result<bool> {
    let (leads, _ready_too) = pair(cluster, server).await?;
    let held = lease(cluster, server).await?;
    let identity = format!("{}_{}", leads.name_any(), leads.uid().unwrap_or_default());
    ensure!(held.holder_identity == Some(identity) && held.lease_duration_seconds == Some(30), "{held:?}");
    let since = Instant::now();
    if !signal(&leads, "-KILL")? {
        return Ok(false);
    }
    eventually("the Lease is renewed", FAILOVER, async || {
        let now = lease(cluster, server).await?;
        ensure!(now.renew_time > held.renew_time && now.holder_identity.is_some(), "{now:?}");
        Ok(())
    })
    .await?;
    println!("{}: new leader {:?} after kill -9", server.name(), since.elapsed());
    wait_rolled_out(cluster, server).await?;
    Ok(true)
}

/// Stops the leader with SIGSTOP for longer than its Lease is valid. After SIGCONT it must not lead again.
async fn is_followed_when_it_hangs(scenario: &Scenario, server: Server) -> Result<()> {
    let cluster = &scenario.cluster;
    let (leads, follows) = pair(cluster, server).await?;
    ensure!(signal(&leads, "-STOP")?);
    let since = Instant::now();
    let successor = wait_other_leader(cluster, server, &leads.name_any()).await;
    let took = since.elapsed();
    let served = match server {
        Server::Catalogd => is_served_at_times(scenario).await,
        Server::OperatorController => Ok(()),
    };
    ensure!(signal(&leads, "-CONT")?);
    ensure!(successor? == follows.name_any());
    ensure!(took < FAILOVER, "{}: no leader for {took:?}", server.name());
    println!("{}: new leader {took:?} after the leader hung", server.name());
    served?;
    wait_rolled_out(cluster, server).await?;
    ensure!(leader(cluster, server).await? == follows.name_any(), "the former leader leads again");
    Ok(())
}

/// Waits for a response of the other pod. Every second connection goes to the hanging pod.
pub(crate) async fn is_served_at_times(scenario: &Scenario) -> Result<()> {
    eventually("the follower serves content", PATIENCE, async || {
        tokio::time::timeout(Duration::from_secs(3), is_served(scenario)).await?
    })
    .await
}

async fn hands_over(cluster: &Cluster, server: Server) -> Result<()> {
    let (leads, _) = pair(cluster, server).await?;
    let name = leads.name_any();
    let leases: Api<Lease> = cluster.within(SYSTEM);
    let one = WatchParams::default().fields(&format!("metadata.name={}", server.lease())).timeout(120);
    let version = leases.get(server.lease()).await?.resource_version().unwrap_or_default();
    let changes = leases.watch(&one, &version).await?;
    pin_mut!(changes);
    let pods: Api<Pod> = cluster.within(SYSTEM);
    let (watched, its_name) = (pods.clone(), name.clone());
    let ended = tokio::spawn(async move {
        let pod = await_condition(watched, &its_name, |pod: Option<&Pod>| exit_code(pod).is_some()).await;
        pod.ok().and_then(|pod| exit_code(pod.as_ref()))
    });
    pods.delete(&name, &DeleteParams::default()).await?;
    let (mut released, mut since) = (None, Instant::now());
    let took = loop {
        let WatchEvent::Modified(lease) = changes.next().await.context("the watch ended")?? else { continue };
        let spec = lease.spec.unwrap_or_default();
        match spec.holder_identity.as_deref().unwrap_or_default() {
            "" => {
                released = spec.lease_duration_seconds;
                since = Instant::now();
            }
            holder if holder.starts_with(&format!("{name}_")) => {}
            _ => break since.elapsed(),
        }
    };
    ensure!(released == Some(1), "{}: released as {released:?}", server.name());
    ensure!(took < HANDOVER, "{}: no leader for {took:?}", server.name());
    println!("{}: new leader {took:?} after SIGTERM", server.name());
    let code = ended.await?;
    ensure!(code == Some(0), "{}: exited with {code:?}", server.name());
    wait_rolled_out(cluster, server).await
}

fn exit_code(pod: Option<&Pod>) -> Option<i32> {
    let container = pod?.status.as_ref()?.container_statuses.as_ref()?.first()?;
    Some(container.state.as_ref()?.terminated.as_ref()?.exit_code)
}

// A pod that misses SIGTERM would lead until it is killed, and its Lease would have to expire.
#[tokio::test(flavor = "multi_thread")]
async fn sigterm_stops_a_starting_server() -> Result<()> {
    let _alone = alone().await;
    let cluster = &Cluster::connect().await?;
    for_both(async |server| {
        let before = Before::change(cluster, server, template(0)).await?;
        before.during(cluster, async || stop_as_they_start(cluster, server).await).await
    })
    .await
}

fn template(round: usize) -> Value {
    json!({"template": {"metadata": {"annotations": {"test/round": round.to_string()}}}})
}

async fn stop_as_they_start(cluster: &Cluster, server: Server) -> Result<()> {
    let deployments: Api<Deployment> = cluster.within(SYSTEM);
    for round in 1..=6 {
        let patch = Patch::Strategic(json!({"spec": template(round)}));
        deployments.patch(&server.deployment(), &PatchParams::default(), &patch).await?;
        eventually("the new pod starts", PATIENCE, async || {
            let is_of_round = |pod: &Pod| pod.annotations().get("test/round") == Some(&round.to_string());
            let pod = cluster.pods_of(server.name()).await?.into_iter().find(is_of_round);
            let status = pod.context("no pod")?.status.unwrap_or_default();
            ensure!(status.container_statuses.is_some(), "no container status yet");
            Ok(())
        })
        .await?;
    }
    let pods: Api<Pod> = cluster.within(SYSTEM);
    for pod in cluster.pods_of(server.name()).await? {
        // Time of the kill.
        let Some(Time(end)) = pod.metadata.deletion_timestamp else { continue };
        let left = end.duration_since(k8s_openapi::jiff::Timestamp::now()).try_into().unwrap_or_default();
        let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
        let gone = await_condition(pods.clone(), &name, is_deleted(&uid));
        let in_time = tokio::time::timeout(left, gone).await;
        in_time.with_context(|| format!("{name} had to be killed"))??;
    }
    Ok(())
}

// The eviction of a single replica is permitted, because its node could not be drained otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn only_replica_can_be_evicted() -> Result<()> {
    let _alone = alone().await;
    let cluster = &Cluster::connect().await?;
    for_both(async |server| {
        let only = ready_pods(cluster, server).await?.pop().context("no pod")?;
        is_evicted(&only).await?;
        wait_rolled_out(cluster, server).await
    })
    .await
}

/// Evicts both replicas in turn, while the PodDisruptionBudget rejects the eviction of both at once
/// (docs/design/operations.md#ports-and-network-policies).
async fn are_evicted_one_at_a_time(cluster: &Cluster, server: Server) -> Result<()> {
    let (leads, follows) = pair(cluster, server).await?;
    is_evicted(&leads).await?;
    ensure!(!evict(&follows).await?, "{}: both replicas can be evicted at once", server.name());
    wait_rolled_out(cluster, server).await?;
    is_evicted(&follows).await?;
    wait_rolled_out(cluster, server).await
}

async fn is_evicted(pod: &Pod) -> Result<()> {
    eventually("the eviction is permitted", PATIENCE, async || {
        ensure!(evict(pod).await?, "rejected");
        Ok(())
    })
    .await
}

/// Requests an eviction. Returns `false` if it is rejected.
async fn evict(pod: &Pod) -> Result<bool> {
    // The client would retry a rejected eviction until it is permitted.
    let mut config = Config::infer().await?;
    config.default_retry = false;
    let pods: Api<Pod> = Api::namespaced(Client::try_from(config)?, SYSTEM);
    match pods.evict(&pod.name_any(), &EvictParams::default()).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 429 => Ok(false),
        Err(error) => Err(error.into()),
    }
}
