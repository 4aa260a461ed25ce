//! Certificates of cert-manager, for the servers and for the webhooks of a bundle: `CERT_MGR_MANIFEST=FILE hack/e2e`
//! installs it and `install-cert-manager.yaml`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use olm_e2e::servers::{SYSTEM, Server, ready_pods};
use olm_e2e::webhooks::{Webhooks, crd_bundle};
use olm_e2e::{Cluster, Forward, PATIENCE, Scenario, eventually};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sample_operator::content::{CSV, Sample};
use serde_json::json;

/// Time limit until a renewed certificate is served: the kubelet may take up to 90 s to update the files of a pod.
const RENEWAL: Duration = Duration::from_secs(180);
/// Interval between calls during a renewal.
const ROUND: Duration = Duration::from_millis(200);
/// Period in which OLM and cert-manager must not write the same object.
const QUIET: Duration = Duration::from_secs(20);

/// API of the objects of cert-manager with this kind.
fn issued(cluster: &Cluster, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", kind));
    Api::namespaced_with(cluster.client.clone(), namespace, &resource)
}

/// Requests a new certificate, as `cmctl renew` does, and waits until the Secret has it.
async fn renew(cluster: &Cluster, namespace: &str, name: &str, secret: &str) -> Result<()> {
    let before = data(cluster, namespace, secret, "tls.crt").await?;
    let condition = json!({"type": "Issuing", "status": "True", "reason": "ManuallyTriggered",
        "message": "Certificate re-issuance manually triggered"});
    let patch =
        serde_json::from_value(json!([{"op": "add", "path": "/status/conditions/-", "value": condition}]))?;
    let certificates = issued(cluster, namespace, "Certificate");
    certificates.patch_status(name, &PatchParams::default(), &Patch::<()>::Json(patch)).await?;
    is_replaced(cluster, namespace, secret, &before).await
}

/// Waits until the Secret has another certificate than `before`.
async fn is_replaced(cluster: &Cluster, namespace: &str, secret: &str, before: &[u8]) -> Result<()> {
    eventually(&format!("cert-manager fills {secret}"), PATIENCE, async || {
        ensure!(
            data(cluster, namespace, secret, "tls.crt").await? != before,
            "the certificate is the old one"
        );
        Ok(())
    })
    .await
}

/// Value of a key of a Secret.
async fn data(cluster: &Cluster, namespace: &str, secret: &str, key: &str) -> Result<Vec<u8>> {
    let found = cluster.within::<Secret>(namespace).get(secret).await?.data.unwrap_or_default();
    found.get(key).map(|bytes| bytes.0.clone()).with_context(|| format!("{secret} has no {key}"))
}

/// Certificates in a key of a Secret.
async fn certificates(
    cluster: &Cluster,
    namespace: &str,
    secret: &str,
    key: &str,
) -> Result<Vec<CertificateDer<'static>>> {
    let text = data(cluster, namespace, secret, key).await?;
    Ok(CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_serve_renewed_certificates_without_restart() -> Result<()> {
    let cluster = Cluster::connect().await?;
    for server in [Server::Catalogd, Server::OperatorController] {
        let before = pods(&cluster, server).await?;
        let since = Instant::now();
        serves_new_certificate(&cluster, server).await?;
        println!("{} serves its new certificate after {} s", server.name(), since.elapsed().as_secs());
        ensure!(pods(&cluster, server).await? == before, "{} was restarted", server.name());
    }
    // The API server calls catalogd's webhook, and operator-controller reads content from catalogd.
    Scenario::installed("issued-leaf").await?.finish().await?;

    // Certificates of the old and of the new CA are in use at the same time.
    renew(&cluster, "cert-manager", "olmv1-ca", "olmv1-ca").await?;
    for server in [Server::OperatorController, Server::Catalogd] {
        serves_new_certificate(&cluster, server).await?;
        Scenario::installed("issued-ca").await?.finish().await?;
    }
    Ok(())
}

/// Renews the certificate of the server, and waits until the server uses it.
async fn serves_new_certificate(cluster: &Cluster, server: Server) -> Result<()> {
    let (certificate, secret) = match server {
        Server::Catalogd => ("catalogd-service-cert", "catalogd-service-cert-git-version"),
        Server::OperatorController => ("operator-controller-cert", "operator-controller-cert"),
    };
    let service = format!("{}-service", server.name());
    let host = format!("{service}.{SYSTEM}.svc");
    renew(cluster, SYSTEM, certificate, secret).await?;
    let new = certificates(cluster, SYSTEM, secret, "tls.crt").await?;
    let roots = certificates(cluster, "cert-manager", "olmv1-ca", "tls.crt").await?;
    let forward = Forward::to_service(SYSTEM, &service, server.metrics_port()).await?;
    eventually(&format!("{} serves the new certificate", server.name()), RENEWAL, async || {
        ensure!(
            new.first() == Some(&forward.certificate(&host, &roots).await?),
            "the old certificate is served"
        );
        Ok(())
    })
    .await
}

/// Names and container restarts of the server's pods.
async fn pods(cluster: &Cluster, server: Server) -> Result<Vec<(String, Vec<i32>)>> {
    let pods = ready_pods(cluster, server).await?;
    Ok(pods.iter().map(|pod| (pod.name_any(), restarts(pod))).collect())
}

fn restarts(pod: &Pod) -> Vec<i32> {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    statuses.map(|status| status.restart_count).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_of_bundles_respond_after_renewals() -> Result<()> {
    let scenario = Scenario::of("issued", Sample::webhooks, &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    let webhooks = Webhooks::of(&scenario);
    eventually("the webhooks are reachable", PATIENCE, async || webhooks.call_all().await).await?;
    objects_settle(&webhooks).await?;
    let pod = webhooks.pod().await?;

    let (cluster, secret) = (&scenario.cluster, webhooks.secret());
    called_during(&webhooks, "a renewal", async || renew(cluster, &scenario.name, &secret, &secret).await)
        .await?;
    called_during(&webhooks, "the loss of the Secret", async || {
        let old = data(cluster, &scenario.name, &secret, "tls.crt").await?;
        webhooks.secrets.delete(&secret, &DeleteParams::default()).await?;
        is_replaced(cluster, &scenario.name, &secret, &old).await
    })
    .await?;
    ensure!(webhooks.pod().await? == pod, "the pod was replaced or restarted");

    scenario.greet("v2", &scenario.name, "left", json!({"who": "all"})).await?;
    cluster.delete(&scenario.extensions(), &scenario.name).await?;
    cluster.wait_gone(&scenario.extensions(), &scenario.name).await?;
    cluster.wait_gone(&webhooks.crds, &webhooks.crd()).await?;
    for (kind, name) in [("Certificate", secret.clone()), ("Issuer", format!("{secret}-selfsigned-issuer"))] {
        eventually(&format!("{kind} {name} is deleted"), PATIENCE, async || {
            let found = issued(cluster, &scenario.name, kind).get_opt(&name).await?;
            ensure!(found.is_none(), "it exists");
            Ok(())
        })
        .await?;
    }
    scenario.finish().await
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_removes_conversion_webhook_with_injected_ca() -> Result<()> {
    let mut scenario = Scenario::of("unconverted", Sample::webhooks, &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    objects_settle(&Webhooks::of(&scenario)).await?;
    scenario.push_bundle("1.1.0", without_conversion).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0", "1.1.0"]))]).await?;
    scenario.wait_installed("1.1.0").await?;
    let webhooks = Webhooks::of(&scenario);
    let crd = webhooks.crds.get(&webhooks.crd()).await?;
    ensure!(crd_bundle(&crd).is_none(), "{:?}", crd.spec.conversion);
    scenario.greet("v2", &scenario.name, "left", json!({"who": "all"})).await?;
    scenario.finish().await
}

/// Removes the conversion webhook from the CSV, its last webhook.
fn without_conversion(files: &mut BTreeMap<String, Vec<u8>>) {
    let text = files.get(CSV).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default();
    let parts = text.split_once("    - type: ConversionWebhook\n").and_then(|(before, rest)| {
        rest.split_once("  install:\n").map(|(_, after)| format!("{before}  install:\n{after}"))
    });
    assert!(parts.is_some(), "{text}");
    files.insert(CSV.to_owned(), parts.unwrap_or_default().into_bytes());
}

/// Waits until the CA is that of the Secret, and checks that OLM and cert-manager do not revert each other's changes.
async fn objects_settle(webhooks: &Webhooks<'_>) -> Result<()> {
    let (scenario, secret) = (webhooks.scenario, webhooks.secret());
    let cluster = &scenario.cluster;
    let versions = async || -> Result<Vec<Option<String>>> {
        let certificate = issued(cluster, &scenario.name, "Certificate").get(&secret).await?;
        ensure!(certificate.metadata.generation == Some(1), "{certificate:?}");
        Ok(vec![
            certificate.resource_version(),
            webhooks.validating.get(&webhooks.named("validate")).await?.resource_version(),
            webhooks.mutating.get(&webhooks.named("default")).await?.resource_version(),
            webhooks.crds.get(&webhooks.crd()).await?.resource_version(),
            webhooks.secrets.get(&secret).await?.resource_version(),
        ])
    };
    eventually("the CA of the Secret is trusted", PATIENCE, async || {
        let authority = certificates(cluster, &scenario.name, &secret, "ca.crt").await?;
        ensure!(webhooks.trusted().await? == authority, "another CA is trusted");
        Ok(())
    })
    .await?;
    let before = versions().await?;
    tokio::time::sleep(QUIET).await;
    ensure!(versions().await? == before, "objects changed without a reason");
    Ok(())
}

/// Calls the webhooks, each time in a new handshake, from before `renewal` until the pod serves the new certificate.
/// Every call succeeds, because cert-manager adds the new CA to the old one in `caBundle`.
async fn called_during(
    webhooks: &Webhooks<'_>,
    what: &str,
    renewal: impl AsyncFnOnce() -> Result<()>,
) -> Result<()> {
    let host = webhooks.host();
    let forward = Forward::to_service(&webhooks.scenario.name, &webhooks.service, 443).await?;
    let old = forward.certificate(&host, &webhooks.trusted().await?).await?;
    let (before, since) = (webhooks.rounds(), Instant::now());
    let calls = async {
        let mut again = tokio::time::interval(ROUND);
        loop {
            again.tick().await;
            if let Err(error) = webhooks.call_all().await {
                break error.context(format!("calling webhooks during {what}"));
            }
        }
    };
    let served = async {
        renewal().await?;
        eventually("the new certificate is served", RENEWAL, async || {
            let shown = forward.certificate(&host, &webhooks.trusted().await?).await?;
            ensure!(shown != old, "the old certificate is served");
            Ok(())
        })
        .await
    };
    tokio::select! {
        failed = calls => return Err(failed),
        served = served => served?,
    }
    let rounds = webhooks.rounds() - before;
    println!("{what}: new certificate after {} s, {rounds} rounds of calls", since.elapsed().as_secs());
    webhooks.call_all().await
}
