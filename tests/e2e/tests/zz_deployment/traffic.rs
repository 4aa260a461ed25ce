//! The servers with their NetworkPolicies enforced.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use olm_e2e::servers::{SYSTEM, Server, ready_pods};
use olm_e2e::traffic::{Enforced, connects};
use olm_e2e::{Cluster, Scenario};
use serde_json::{Value, json};

use crate::alone;

const ADDITION: &str = "network-of-this-cluster";

/// Applies the NetworkPolicies of a file of `manifests/`.
async fn apply_policies(cluster: &Cluster, file: &str) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests").join(file);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let all: Vec<Value> = serde_saphyr::from_multiple(&text)?;
    for policy in all.iter().filter(|object| object["kind"] == "NetworkPolicy") {
        apply(cluster, policy).await?;
    }
    Ok(())
}

async fn apply(cluster: &Cluster, policy: &Value) -> Result<()> {
    let api: Api<NetworkPolicy> = cluster.within(SYSTEM);
    let name = policy["metadata"]["name"].as_str().context("the policy has no name")?;
    // The installation was applied by kubectl.
    api.patch(name, &PatchParams::apply("kubectl").force(), &Patch::Apply(policy)).await?;
    Ok(())
}

/// Rules missing in `hardened.yaml`: this cluster's DNS runs on the node, and its registry has its own port.
fn addition(cluster: &Cluster) -> Result<Value> {
    let port = cluster.registry.rsplit_once(':').context("the registry has no port")?.1;
    let port: u16 = port.parse()?;
    Ok(json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": ADDITION, "namespace": SYSTEM},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"ports": [
            {"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}, {"protocol": "TCP", "port": port}]}]},
    }))
}

/// Pods whose connections are tested.
struct Pods {
    visitor: Pod,
    catalogd: Pod,
    operator_controller: Pod,
}

impl Pods {
    async fn find(scenario: &Scenario) -> Result<Self> {
        let cluster = &scenario.cluster;
        let visitors: Api<Pod> = cluster.within(&scenario.name);
        let of = async |server| ready_pods(cluster, server).await?.pop().context("no ready pod");
        Ok(Self {
            visitor: visitors.list(&ListParams::default()).await?.items.pop().context("no operator")?,
            catalogd: of(Server::Catalogd).await?,
            operator_controller: of(Server::OperatorController).await?,
        })
    }
}

/// Checks which connections are possible.
fn check(from: &Pod, to: &Pod, ports: &[(u16, bool)]) -> Result<()> {
    let address = to.status.as_ref().and_then(|status| status.pod_ip.as_deref()).context("no address")?;
    for (port, expected) in ports {
        let comes_about = connects(from, address, *port)?;
        ensure!(comes_about == *expected, "to {:?}, port {port}: {comes_about}", to.metadata.name);
    }
    Ok(())
}

/// Checks that the servers work: a catalog is pulled and served, and a bundle pulled and installed.
async fn installs(test: &str) -> Result<()> {
    let scenario = Scenario::new(test, &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.finish().await
}

async fn behind_policies(scenario: &Scenario) -> Result<()> {
    let (cluster, pods) = (&scenario.cluster, Pods::find(scenario).await?);
    let (visitor, catalogd, operator_controller) = (&pods.visitor, &pods.catalogd, &pods.operator_controller);
    // Without enforcement the probes are reachable.
    check(visitor, catalogd, &[(8081, true)])?;
    check(visitor, operator_controller, &[(8081, true)])?;

    let enforced = Enforced::start(cluster).await?;
    check(visitor, catalogd, &[(7443, true), (8443, true), (9443, true), (8081, false)])?;
    check(visitor, operator_controller, &[(8443, true), (8081, false)])?;
    installs("traffic-default").await?;
    drop(enforced);

    apply_policies(cluster, "hardened.yaml").await?;
    apply(cluster, &addition(cluster)?).await?;
    let enforced = Enforced::start(cluster).await?;
    check(visitor, catalogd, &[(7443, false), (8443, false), (9443, true), (8081, false)])?;
    check(visitor, operator_controller, &[(8443, false), (8081, false)])?;
    check(operator_controller, catalogd, &[(8443, true), (7443, false), (8081, false)])?;
    check(catalogd, operator_controller, &[(8443, false), (8081, false)])?;
    installs("traffic-hardened").await?;
    drop(enforced);

    let namespaces: Api<Namespace> = cluster.all();
    let label = json!({"metadata": {"labels": {"ext.olm.operatorframework.io/scrape-metrics": "true"}}});
    cluster.merge(&namespaces, &scenario.name, label).await?;
    let _enforced = Enforced::start(cluster).await?;
    check(visitor, catalogd, &[(7443, true), (8443, false)])?;
    check(visitor, operator_controller, &[(8443, true)])
}

#[tokio::test(flavor = "multi_thread")]
async fn network_policies_permit_only_the_required_traffic() -> Result<()> {
    let _alone = alone().await;
    let scenario = Scenario::new("traffic", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    let checked = behind_policies(&scenario).await;
    let policies: Api<NetworkPolicy> = scenario.cluster.within(SYSTEM);
    scenario.cluster.delete(&policies, ADDITION).await?;
    apply_policies(&scenario.cluster, "install.yaml").await?;
    checked?;
    scenario.finish().await
}
