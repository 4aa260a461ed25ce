//! Multiple nodes: replicas run on different nodes, and survive the draining and the loss of a node.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt as _;
use olm_e2e::servers::{Server, leader, ready_pods, wait_other_leader, wait_rolled_out};
use olm_e2e::{Cluster, Scenario, hack_cluster};
use olm_require::Need;
use serde_json::json;

use crate::alone;
use crate::replicas::{FAILOVER, SERVERS, is_served_at_times, pair, with_two_of_each};

/// Number of installations in progress when a node is drained or lost.
const AT_ONCE: usize = 4;

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

#[tokio::test(flavor = "multi_thread")]
async fn replicas_on_two_nodes_survive_a_drained_and_a_lost_node() -> Result<()> {
    let _alone = alone().await;
    let cluster = Cluster::connect().await?;
    let nodes = cluster.all::<Node>().list(&kube::api::ListParams::default()).await?.items;
    let (control_plane, workers): (Vec<Node>, Vec<Node>) =
        nodes.into_iter().partition(|node| node.labels().contains_key(CONTROL_PLANE));
    if workers.len() < 2 || std::env::var("OLM_USE_CLUSTER").is_ok_and(|value| value == "1") {
        let reason = "the test requires two worker nodes: OLM_KIND_NODES=3 hack/kind run hack/e2e";
        olm_require::report(Need::Cluster, reason);
        return Ok(());
    }
    // The node of the API server cannot be stopped.
    for node in &control_plane {
        kubectl(&["cordon", &node.name_any()])?;
    }
    let closed: Vec<String> = control_plane.iter().map(Node::name_any).collect();
    let checked = with_two_of_each(&cluster, async || {
        spread_replicas(&cluster, &closed).await?;
        replicas_are_apart(&cluster).await?;
        outlive_a_drained_node(&cluster).await?;
        replicas_are_apart(&cluster).await?;
        outlive_a_lost_node(&cluster).await
    })
    .await;
    for node in &control_plane {
        kubectl(&["uncordon", &node.name_any()])?;
    }
    checked
}

async fn replicas_are_apart(cluster: &Cluster) -> Result<()> {
    for server in SERVERS {
        let (leads, follows) = pair(cluster, server).await?;
        ensure!(node_of(&leads)? != node_of(&follows)?, "{}: both replicas are on one node", server.name());
    }
    Ok(())
}

fn node_of(pod: &Pod) -> Result<String> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).context("the pod has no node")
}

/// Node of the leader of operator-controller.
async fn node_of_leader(cluster: &Cluster) -> Result<String> {
    node_of(&pair(cluster, Server::OperatorController).await?.0)
}

fn kubectl(arguments: &[&str]) -> Result<()> {
    let done = Command::new("kubectl").args(arguments).output().context("kubectl")?;
    ensure!(done.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

async fn outlive_a_drained_node(cluster: &Cluster) -> Result<()> {
    let node = node_of_leader(cluster).await?;
    let installs = begin_installs("drained").await?;
    let since = Instant::now();
    let drain =
        ["drain", &node, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=180s"];
    let drained = tokio::task::block_in_place(|| kubectl(&drain));
    println!("{node} drained in {:?}", since.elapsed());
    let ended = end_installs(installs).await;
    kubectl(&["uncordon", &node])?;
    drained.and(ended)?;
    spread_replicas(cluster, &[]).await
}

/// Deletes replicas on closed nodes, and one where both are on one node, so that new ones are scheduled elsewhere.
async fn spread_replicas(cluster: &Cluster, closed: &[String]) -> Result<()> {
    for server in SERVERS {
        wait_rolled_out(cluster, server).await?;
        for pod in ready_pods(cluster, server).await? {
            let node = node_of(&pod)?;
            let replicas = ready_pods(cluster, server).await?;
            let on_node =
                replicas.iter().filter(|replica| node_of(replica).is_ok_and(|of| of == node)).count();
            if closed.contains(&node) || on_node > 1 {
                kubectl(&["delete", "pod", "--namespace", olm_e2e::servers::SYSTEM, &pod.name_any()])?;
                wait_rolled_out(cluster, server).await?;
            }
        }
    }
    Ok(())
}

async fn outlive_a_lost_node(cluster: &Cluster) -> Result<()> {
    let node = node_of_leader(cluster).await?;
    // Operator pods on a lost node would be recreated only after minutes.
    kubectl(&["cordon", &node])?;
    let mut led_there = Vec::new();
    for server in SERVERS {
        let (leads, _) = pair(cluster, server).await?;
        if node_of(&leads)? == node {
            led_there.push((server, leader(cluster, server).await?));
        }
    }
    let mut installs = begin_installs("lost").await?;
    hack_cluster("stop", &node)?;
    let since = Instant::now();
    let lost = async {
        for (server, leader) in &led_there {
            wait_other_leader(cluster, *server, leader).await?;
            let took = since.elapsed();
            println!("{}: new leader {took:?} after the loss of its node", server.name());
            ensure!(took < FAILOVER, "{}: no leader for {took:?}", server.name());
        }
        is_served_at_times(&installs[0]).await?;
        println!("content served {:?} after the loss", since.elapsed());
        installs.extend(begin_installs("later").await?);
        end_installs(installs).await?;
        println!("all extensions installed {:?} after the loss", since.elapsed());
        Ok(())
    }
    .await;
    hack_cluster("start", &node)?;
    kubectl(&["uncordon", &node])?;
    for server in SERVERS {
        wait_rolled_out(cluster, server).await?;
    }
    lost
}

async fn begin_installs(test: &str) -> Result<Vec<Scenario>> {
    try_join_all((0..AT_ONCE).map(|_| async {
        let scenario = Scenario::new(test, &["1.0.0"]).await?;
        scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
        scenario.install(json!({})).await?;
        Ok(scenario)
    }))
    .await
}

async fn end_installs(installs: Vec<Scenario>) -> Result<()> {
    try_join_all(installs.into_iter().map(|scenario| async {
        scenario.wait_installed("1.0.0").await?;
        scenario.finish().await
    }))
    .await?;
    Ok(())
}
