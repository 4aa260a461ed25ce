//! Authorization of `/metrics` of both servers, on every pod.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Api;
use kube::ResourceExt as _;
use kube::api::PostParams;
use olm_e2e::servers::{SYSTEM, Server, ready_pods};
use olm_e2e::{Cluster, Forward, Scenario, eventually};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;

/// TLS configuration that trusts the built-in CA of the servers.
async fn trusting(cluster: &Cluster) -> Result<ClientConfig> {
    let secrets: Api<Secret> = cluster.within(SYSTEM);
    let authority = secrets.get("olmv1-ca").await?.data.context("the Secret is empty")?;
    let pem = authority.get("ca.crt").context("no ca.crt")?;
    let mut trusted = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem.0) {
        trusted.add(certificate?)?;
    }
    Ok(ClientConfig::builder().with_root_certificates(Arc::new(trusted)).with_no_client_auth())
}

/// Status line, head and body of the response to `GET /metrics` of a pod.
async fn scrape(cluster: &Cluster, server: Server, pod: &str, token: Option<&str>) -> Result<String> {
    let forward = Forward::to(SYSTEM, &format!("pod/{pod}"), server.metrics_port()).await?;
    let name = format!("{}-service.{SYSTEM}.svc", server.name());
    let bearer = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {name}\r\n{bearer}\r\n");
    forward.ask(&name, trusting(cluster).await?, &request).await
}

// Cases operations-a4, operations-a5, operations-a6
#[tokio::test(flavor = "multi_thread")]
async fn metrics_require_an_authorized_token() -> Result<()> {
    let scenario = Scenario::new("metrics", &[]).await?;
    // Each server caches a denied authorization for 30 s.
    let of = |server| metrics_of(&scenario, server);
    tokio::try_join!(of(Server::Catalogd), of(Server::OperatorController))?;
    scenario.finish().await
}

/// Checks the responses to no token, to a token without rights, and to one with the rights of the metrics reader. Each
/// server gets an account of its own, because the reader of one server may read the metrics of the other.
async fn metrics_of(scenario: &Scenario, server: Server) -> Result<()> {
    let cluster = &scenario.cluster;
    let accounts: Api<ServiceAccount> = cluster.within(&scenario.name);
    let name = server.name();
    let account = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}}))?;
    let token = accounts.create_token_request(name, &PostParams::default(), &request).await?;
    let token = token.status.and_then(|status| status.token).context("no token")?;
    for pod in ready_pods(cluster, server).await? {
        let pod = pod.name_any();
        let nobody = scrape(cluster, server, &pod, None).await?;
        ensure!(nobody.contains(" 401 ") && nobody.ends_with("Unauthorized\n"), "{nobody}");
        let stranger = scrape(cluster, server, &pod, Some(&token)).await?;
        let denied =
            format!("Authorization denied for user system:serviceaccount:{}:{name}\n", scenario.name);
        ensure!(stranger.contains(" 403 ") && stranger.ends_with(&denied), "{stranger}");
    }
    let binding = json!({
        "metadata": {"name": format!("{}-{name}", scenario.name)},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": format!("{name}-metrics-reader")},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": scenario.name}],
    });
    let bindings: Api<ClusterRoleBinding> = cluster.all();
    let binding = bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    for pod in ready_pods(cluster, server).await? {
        let what = format!("metrics of {}", pod.name_any());
        let answer = eventually(&what, olm_e2e::PATIENCE, async || {
            let answer = scrape(cluster, server, &pod.name_any(), Some(&token)).await?;
            ensure!(answer.contains(" 200 "), "{answer}");
            Ok(answer)
        })
        .await?;
        for family in
            ["leader_election_master_status", "process_start_time_seconds", "rest_client_requests_total"]
        {
            ensure!(answer.contains(&format!("\n{family}")), "no {family} of {name}:\n{answer}");
        }
    }
    cluster.delete(&bindings, &binding.name_any()).await?;
    Ok(())
}
