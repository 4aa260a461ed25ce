//! Bundles with webhooks and built-in certificates, without any other certificate provider in the cluster.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{ListParams, Patch, PatchParams};
use olm_api::ClusterObjectSet;
use olm_e2e::webhooks::{Webhooks, crd_bundle, validating_bundle};
use olm_e2e::{Forward, PATIENCE, Scenario, eventually};
use sample_operator::content::Sample;
use serde_json::{Value, json};

/// Interval between rounds of calls during a renewal.
const ROUND: Duration = Duration::from_millis(50);
/// Time limit of a renewal. It waits until every API server knows the new CA, and then for the kubelet, which may
/// take up to 90 s by default.
const RENEWAL: Duration = Duration::from_secs(180);

// Cases bundles-60, additions-a44
#[tokio::test(flavor = "multi_thread")]
async fn webhooks_respond_before_during_and_after_a_renewal() -> Result<()> {
    let scenario = Scenario::of("webhooks", Sample::webhooks, &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    let installed = Webhooks::of(&scenario);
    first_call(&installed).await?;
    no_certificate_in_the_revision(&scenario).await?;
    removed_authorities_come_back(&installed).await?;
    repair_keeps_authorities(&installed).await?;
    renewed_without_a_failed_call(&installed).await?;

    // The uninstallation must delete this greeting through its CRD.
    scenario.greet("v2", &scenario.name, "left", json!({"who": "all"})).await?;
    uninstalled(&installed).await?;
    scenario.finish().await
}

/// Two errors are acceptable at first: a node may not forward the Service's connections to the ready pod yet, and an
/// API server may not have seen the CA in the objects yet.
async fn first_call(installed: &Webhooks<'_>) -> Result<()> {
    let is_early =
        |text: &str| text.contains("connection refused") || text.contains("signed by unknown authority");
    eventually("the webhooks are reachable", PATIENCE, async || match installed.call_all().await {
        Err(error) if is_early(&format!("{error:#}")) => Err(error),
        outcome => Ok(outcome),
    })
    .await?
}

/// The revision is applied repeatedly, so that it must not contain values that change with each renewal.
async fn no_certificate_in_the_revision(scenario: &Scenario) -> Result<()> {
    let set = scenario.cluster.all::<ClusterObjectSet>().get(&format!("{}-1", scenario.name)).await?;
    let ours =
        ListParams::default().labels(&format!("olm.operatorframework.io/revision-name={}-1", scenario.name));
    let secrets = scenario.cluster.within::<Secret>("olmv1-system").list(&ours).await?.items;
    let mut texts = vec![serde_json::to_string(&set)?];
    for secret in &secrets {
        let content = secret.data.iter().flatten().map(|(_, value)| String::from_utf8_lossy(&value.0));
        texts.extend(content.map(std::borrow::Cow::into_owned));
    }
    ensure!(texts.iter().any(|text| text.contains("ValidatingWebhookConfiguration")), "no content was found");
    for text in texts {
        ensure!(!text.contains("caBundle") && !text.contains("BEGIN CERTIFICATE"), "{text}");
    }
    Ok(())
}

/// A user removes the CA from a webhook and from the CRD.
async fn removed_authorities_come_back(installed: &Webhooks<'_>) -> Result<()> {
    let before = installed.trusted().await?;
    let remove = |path: &str| -> Result<Patch<()>> {
        Ok(Patch::Json(serde_json::from_value(json!([{"op": "remove", "path": path}]))?))
    };
    let none = PatchParams::default();
    let patched = installed
        .validating
        .patch(&installed.named("validate"), &none, &remove("/webhooks/0/clientConfig/caBundle")?)
        .await?;
    ensure!(validating_bundle(&patched).is_none());
    let patched = installed
        .crds
        .patch(&installed.crd(), &none, &remove("/spec/conversion/webhook/clientConfig/caBundle")?)
        .await?;
    ensure!(crd_bundle(&patched).is_none());
    eventually("the CA is restored", PATIENCE, async || {
        let now = installed.trusted().await?;
        ensure!(now == before, "the CA differs");
        installed.call_all().await
    })
    .await
}

/// OLM repairs a changed webhook, and retains the CA in it.
async fn repair_keeps_authorities(installed: &Webhooks<'_>) -> Result<()> {
    let before = installed.trusted().await?;
    let name = installed.named("validate");
    let edit: Value = json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
    let edit: Patch<()> = Patch::Json(serde_json::from_value(edit)?);
    let edited = installed.validating.patch(&name, &PatchParams::default(), &edit).await?;
    let version = edited.resource_version();
    let set_back = move |found: Option<&ValidatingWebhookConfiguration>| {
        let webhooks = found.and_then(|found| found.webhooks.as_deref()).unwrap_or_default();
        found.is_some_and(|found| found.resource_version() != version)
            && webhooks.first().is_some_and(|one| one.failure_policy.as_deref() == Some("Fail"))
    };
    let repaired = installed
        .scenario
        .cluster
        .wait(&installed.validating, &name, "failurePolicy restored", set_back)
        .await?;
    ensure!(validating_bundle(&repaired).is_some(), "the repair removed caBundle");
    ensure!(installed.trusted().await? == before, "the repair changed the CA");
    Ok(())
}

/// CA and certificate are renewed on demand during continuous calls of the webhooks. Every call succeeds with its own
/// handshake, and the running pod loads the new certificate.
async fn renewed_without_a_failed_call(installed: &Webhooks<'_>) -> Result<()> {
    let scenario = installed.scenario;
    let host = installed.host();
    let forward = Forward::to_service(&scenario.name, &installed.service, 443).await?;
    let old_roots = installed.trusted().await?;
    let old = forward.certificate(&host, &old_roots).await?;
    let pod = installed.pod().await?;
    let before = installed.rounds();
    let calls = async {
        let mut again = tokio::time::interval(ROUND);
        loop {
            again.tick().await;
            if let Err(error) = installed.call_all().await {
                break error.context("calling webhooks during the renewal");
            }
        }
    };
    let renewal = async {
        scenario.annotate(json!({"renew-webhook-certificates-at": "e2e"})).await?;
        eventually("a new certificate is served", RENEWAL, async || {
            let shown = forward.certificate(&host, &installed.trusted().await?).await?;
            ensure!(shown != old, "the server uses the old certificate");
            Ok(shown)
        })
        .await
    };
    let new = tokio::select! {
        failed = calls => return Err(failed),
        renewed = renewal => renewed?,
    };
    let rounds = installed.rounds() - before;
    println!("{rounds} rounds of calls during the renewal");
    ensure!(rounds > 10, "only {rounds} rounds of calls");
    let roots = installed.trusted().await?;
    ensure!(old_roots.iter().all(|root| roots.contains(root)), "the old CA is no longer trusted");
    let (kept, added): (Vec<_>, Vec<_>) = roots.into_iter().partition(|root| old_roots.contains(root));
    ensure!(forward.certificate(&host, &kept).await.is_err(), "the old CA issued the new certificate");
    ensure!(forward.certificate(&host, &added).await? == new, "a different certificate is served");
    ensure!(installed.pod().await? == pod, "the pod was replaced or restarted");
    installed.call_all().await
}

/// Names of the Secrets of the certificate and of its CA.
fn secret_names(installed: &Webhooks<'_>) -> [String; 2] {
    [installed.secret(), format!("{}-ca", installed.service)]
}

async fn uninstalled(installed: &Webhooks<'_>) -> Result<()> {
    let cluster = &installed.scenario.cluster;
    for name in secret_names(installed) {
        installed.secrets.get(&name).await.with_context(|| name)?;
    }
    cluster.delete(&installed.scenario.extensions(), &installed.scenario.name).await?;
    cluster.wait_gone(&installed.scenario.extensions(), &installed.scenario.name).await?;
    cluster.wait_gone(&installed.crds, &installed.crd()).await?;
    cluster.wait_gone(&installed.validating, &installed.named("validate")).await?;
    cluster.wait_gone(&installed.mutating, &installed.named("default")).await?;
    for name in secret_names(installed) {
        cluster.wait_gone(&installed.secrets, &name).await?;
    }
    Ok(())
}
