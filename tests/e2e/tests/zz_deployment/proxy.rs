//! operator-controller behind a proxy.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use olm_e2e::servers::{Before, SYSTEM, Server};
use olm_e2e::{Cluster, Forward, PATIENCE, Scenario, eventually};
use olm_require::Need;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::alone;

/// Maximum size of a request head.
const HEAD: usize = 8192;

/// Address of the API server inside the cluster, which must be in NO_PROXY.
async fn api_server(cluster: &Cluster) -> Result<String> {
    let services: Api<Service> = cluster.within("default");
    let found = services.get("kubernetes").await?.spec.and_then(|spec| spec.cluster_ip);
    found.context("the Service kubernetes has no address")
}

/// Proxy on this machine that records the requested addresses.
struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    /// Address to which it connects, regardless of the request. Without it the proxy responds 502.
    target: Arc<Mutex<Option<SocketAddr>>>,
}

impl Proxy {
    async fn start(host: &str) -> Result<Self> {
        let listener = TcpListener::bind((host, 0)).await?;
        let proxy = Self { address: listener.local_addr()?, asked: Arc::default(), target: Arc::default() };
        let (asked, target) = (Arc::clone(&proxy.asked), Arc::clone(&proxy.target));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // Errors of the client are irrelevant for the test.
                tokio::spawn(answer(client, Arc::clone(&asked), Arc::clone(&target)));
            }
        });
        Ok(proxy)
    }

    fn connects_to(&self, target: SocketAddr) {
        *self.target.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn answer(
    mut client: TcpStream,
    asked: Arc<Mutex<Vec<String>>>,
    target: Arc<Mutex<Option<SocketAddr>>>,
) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD {
        head.push(client.read_u8().await?);
    }
    let line = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
    asked.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    let target = *target.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(target) = target else {
        client
            .write_all(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .await?;
        return Ok(());
    };
    let mut server = TcpStream::connect(target).await?;
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// Waits until the extension reports a retry with this cause.
async fn wait_reported(scenario: &Scenario, cause: &str) -> Result<()> {
    eventually(cause, PATIENCE, async || {
        let progressing = scenario.condition_now("Progressing").await?;
        ensure!(progressing.starts_with("True/Retrying") && progressing.contains(cause), "{progressing}");
        Ok(())
    })
    .await
}

// docs/design/operations.md#proxies; case operations-a13
#[tokio::test(flavor = "multi_thread")]
async fn unreachable_proxy_is_reported() -> Result<()> {
    let _alone = alone().await;
    let scenario = Scenario::new("deadproxy", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    let around = api_server(&scenario.cluster).await?;
    let environment = [("HTTPS_PROXY", "http://127.0.0.1:39999"), ("NO_PROXY", around.as_str())];
    let before =
        Before::with_environment(&scenario.cluster, Server::OperatorController, &environment).await?;
    let reported = async || {
        scenario.install(json!({})).await?;
        wait_reported(&scenario, "proxyconnect").await
    };
    before.during(&scenario.cluster, reported).await?;
    scenario.wait_installed("1.0.0").await?;
    scenario.finish().await
}

// Case operations-a14
#[tokio::test(flavor = "multi_thread")]
async fn working_proxy_receives_only_catalog_requests() -> Result<()> {
    let _alone = alone().await;
    let Ok(host) = std::env::var("OLM_HOST_ADDRESS") else {
        let reason = "OLM_HOST_ADDRESS, this machine's address for pods, is not set";
        olm_require::report(Need::Cluster, reason);
        return Ok(());
    };
    let proxy = Proxy::start(&host).await?;
    let scenario = Scenario::new("proxy", &["1.0.0"]).await?;
    let cluster = &scenario.cluster;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    let registry = cluster.registry.split(':').next().unwrap_or_default();
    let around = format!("{},{registry}", api_server(cluster).await?);
    let address = format!("http://{}", proxy.address);
    let environment = [("HTTPS_PROXY", address.as_str()), ("NO_PROXY", around.as_str())];
    let before = Before::with_environment(cluster, Server::OperatorController, &environment).await?;
    let reported_and_installed = async || {
        scenario.install(json!({})).await?;
        wait_reported(&scenario, &format!("proxy {}: ", proxy.address)).await?;
        let catalogd = Forward::to_service(SYSTEM, "catalogd-service", 443).await?;
        proxy.connects_to(catalogd.address());
        scenario.wait_installed("1.0.0").await?;
        Ok(())
    };
    before.during(cluster, reported_and_installed).await?;
    let asked = proxy.asked();
    let expected = "CONNECT catalogd-service.olmv1-system.svc:443 ";
    ensure!(asked.iter().any(|line| line.starts_with(expected)), "{asked:?}");
    ensure!(
        asked.iter().all(|line| line.contains("catalogd")),
        "the proxy received requests to NO_PROXY: {asked:?}"
    );
    scenario.finish().await
}
