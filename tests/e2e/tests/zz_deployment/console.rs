//! `manifests/console.yaml` in a pod: users have their own rights, and the certificate is that of a Secret.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Api;
use kube::api::PostParams;
use olm_e2e::servers::SYSTEM;
use olm_e2e::{Cluster, Forward, PATIENCE, Scenario, eventually};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::process::Command;

use crate::alone;

const NAME: &str = "olm-console";
const HOST: &str = "olm-console.olmv1-system.svc";
const CERTIFICATE: &str = "olm-console-cert";

async fn kubectl(verb: &[&str]) -> Result<()> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../manifests/console.yaml");
    let status = Command::new("kubectl").args(verb).args(["-f", file]).status().await?;
    ensure!(status.success(), "kubectl {verb:?}: {status}");
    Ok(())
}

/// Creates the Secret of the serving certificate. Returns a configuration that trusts only that certificate.
async fn create_certificate(cluster: &Cluster) -> Result<ClientConfig> {
    let pair = rcgen::generate_simple_self_signed([HOST.to_owned()])?;
    let secret = json!({
        "metadata": {"name": CERTIFICATE}, "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": pair.cert.pem(), "tls.key": pair.signing_key.serialize_pem()},
    });
    let secrets: Api<Secret> = cluster.within(SYSTEM);
    secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    let mut trusted = RootCertStore::empty();
    trusted.add(CertificateDer::from(pair.cert.der().to_vec()))?;
    Ok(ClientConfig::builder().with_root_certificates(trusted).with_no_client_auth())
}

/// Token of a new ServiceAccount in the namespace of the scenario.
async fn token(scenario: &Scenario, name: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = scenario.cluster.within(&scenario.name);
    let account = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
    accounts.create(&PostParams::default(), &account).await?;
    let request =
        accounts.create_token_request(name, &PostParams::default(), &TokenRequest::default()).await?;
    request.status.and_then(|status| status.token).context("no token")
}

/// Lets the ServiceAccount read catalogs.
async fn let_read(scenario: &Scenario, account: &str) -> Result<()> {
    let roles: Api<ClusterRole> = scenario.cluster.all();
    let role = json!({
        "metadata": {"name": scenario.name},
        "rules": [{"apiGroups": ["olm.operatorframework.io"], "resources": ["clustercatalogs"],
            "verbs": ["get", "list"]}],
    });
    roles.create(&PostParams::default(), &serde_json::from_value(role)?).await?;
    let bindings: Api<ClusterRoleBinding> = scenario.cluster.all();
    let binding = json!({
        "metadata": {"name": scenario.name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": scenario.name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": scenario.name}],
    });
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    Ok(())
}

async fn check(scenario: &Scenario, trusted: ClientConfig) -> Result<()> {
    let deployments: Api<Deployment> = scenario.cluster.within(SYSTEM);
    let is_available = |deployment: Option<&Deployment>| {
        let status = deployment.and_then(|deployment| deployment.status.as_ref());
        status.is_some_and(|status| status.available_replicas == Some(1))
    };
    scenario.cluster.wait(&deployments, NAME, "available", is_available).await?;
    let (reader, stranger) = (token(scenario, "reader").await?, token(scenario, "stranger").await?);
    let_read(scenario, "reader").await?;
    let forward = Forward::to_service(SYSTEM, NAME, 443).await?;
    let page = format!("/catalogs/{0}/packages/{0}", scenario.name);
    let get = async |token: &str| {
        let credentials = match token {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        };
        let request = format!("GET {page} HTTP/1.0\r\nHost: {HOST}\r\n{credentials}\r\n");
        forward.ask(HOST, trusted.clone(), &request).await
    };
    let expect = async |token: &str, status: &str, name: &str| {
        eventually(name, PATIENCE, async || {
            let answer = get(token).await?;
            let line = answer.lines().next().unwrap_or_default();
            ensure!(line.contains(status), "{answer}");
            Ok(answer)
        })
        .await
    };
    let shown = expect(&reader, " 200 ", "the reader sees the package").await?;
    ensure!(shown.contains("1.0.0"), "{shown}");
    expect("", " 401 ", "a request without token gets the form").await?;
    expect("nonsense", " 401 ", "a request with a wrong token gets the form").await?;
    let refused = expect(&stranger, " 403 ", "a user without rights sees no package").await?;
    ensure!(!refused.contains("1.0.0"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn console_in_a_pod_shows_each_user_what_their_rights_permit() -> Result<()> {
    let _alone = alone().await;
    let scenario = Scenario::new("console", &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    let trusted = create_certificate(&scenario.cluster).await?;
    kubectl(&["apply", "--server-side"]).await?;
    let checked = check(&scenario, trusted).await;
    kubectl(&["delete", "--wait=false"]).await?;
    scenario.cluster.delete(&scenario.cluster.within::<Secret>(SYSTEM), CERTIFICATE).await?;
    scenario.cluster.delete(&scenario.cluster.all::<ClusterRoleBinding>(), &scenario.name).await?;
    scenario.cluster.delete(&scenario.cluster.all::<ClusterRole>(), &scenario.name).await?;
    checked?;
    scenario.finish().await
}
