//! Bundles with webhooks and built-in certificates, without any other certificate provider in the cluster.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use olm_api::ClusterObjectSet;
use olm_e2e::{Forward, PATIENCE, Scenario, eventually};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sample_operator::content::Sample;
use sample_operator::webhooks::{NOBODY, SALUTATION};
use serde_json::{Value, json};

/// Interval between rounds of calls during a renewal.
const ROUND: Duration = Duration::from_millis(50);
/// Time limit of a renewal. It waits until every API server knows the new CA, and then for the kubelet, which may
/// take up to 90 s by default.
const RENEWAL: Duration = Duration::from_secs(180);

/// Objects of the installed package, by their generated names.
struct Installed<'a> {
    scenario: &'a Scenario,
    service: String,
    validating: Api<ValidatingWebhookConfiguration>,
    mutating: Api<MutatingWebhookConfiguration>,
    definitions: Api<CustomResourceDefinition>,
    secrets: Api<Secret>,
    /// Number of rounds of calls so far.
    rounds: Cell<u32>,
}

impl<'a> Installed<'a> {
    fn of(scenario: &'a Scenario) -> Self {
        let cluster = &scenario.cluster;
        Self {
            scenario,
            service: format!("{}-service", scenario.name),
            validating: cluster.all(),
            mutating: cluster.all(),
            definitions: cluster.all(),
            secrets: cluster.within(&scenario.name),
            rounds: Cell::new(0),
        }
    }

    fn named(&self, webhook: &str) -> String {
        format!("{webhook}.{}", self.definition())
    }

    fn definition(&self) -> String {
        format!("greetings.{}", self.scenario.sample.group)
    }

    /// Names of the Secrets of the certificate and of its CA.
    fn secret_names(&self) -> [String; 2] {
        [format!("{}-cert", self.service), format!("{}-ca", self.service)]
    }

    /// CA certificates that API servers trust. All three objects must contain the same.
    async fn trusted(&self) -> Result<Vec<CertificateDer<'static>>> {
        let validating = validating_bundle(&self.validating.get(&self.named("validate")).await?);
        let mutating = self.mutating.get(&self.named("default")).await?;
        let mutating =
            mutating.webhooks.unwrap_or_default().pop().and_then(|one| one.client_config.ca_bundle);
        let definition = definition_bundle(&self.definitions.get(&self.definition()).await?);
        ensure!(mutating.map(|bundle| bundle.0) == validating, "the mutating webhook has a different CA");
        ensure!(definition == validating, "the CRD has a different CA");
        let bundle = validating.context("no caBundle")?;
        Ok(CertificateDer::pem_slice_iter(&bundle).collect::<Result<_, _>>()?)
    }

    /// UID and container restarts of the only pod.
    async fn pod(&self) -> Result<(Option<String>, i32)> {
        let ours = ListParams::default().labels(&format!("app={}", self.scenario.name));
        let pods = self.scenario.cluster.within::<Pod>(&self.scenario.name).list(&ours).await?.items;
        let [pod] = pods.as_slice() else { bail!("{} pods", pods.len()) };
        let statuses = pod.status.clone().unwrap_or_default().container_statuses.unwrap_or_default();
        Ok((pod.uid(), statuses.iter().map(|status| status.restart_count).sum()))
    }

    /// Calls each webhook once, in a separate TLS handshake.
    async fn call_all(&self) -> Result<()> {
        let (scenario, namespace) = (self.scenario, self.scenario.name.as_str());
        let name = format!("round-{}", self.rounds.replace(self.rounds.get() + 1));
        let name = name.as_str();
        let made = scenario.greet("v1", namespace, name, json!({"name": "world"})).await?;
        ensure!(made.data["spec"] == json!({"name": "world", "salutation": SALUTATION}), "{:?}", made.data);
        let newer = scenario.greetings("v2", namespace).get(name).await?;
        ensure!(newer.data["spec"] == json!({"who": "world", "salutation": SALUTATION}), "{:?}", newer.data);
        self.is_refused(&format!("{name}-nobody")).await?;
        scenario.greetings("v1", namespace).delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Checks the denial message of the validating webhook.
    async fn is_refused(&self, name: &str) -> Result<()> {
        let said = match self.scenario.greet("v2", &self.scenario.name, name, json!({"who": " "})).await {
            Err(kube::Error::Api(status)) => status.message,
            other => bail!("greeting without a name: {other:?}"),
        };
        let denied = format!("admission webhook \"{}\" denied the request: {NOBODY}", self.named("validate"));
        ensure!(said == denied, "{said}");
        Ok(())
    }
}

fn validating_bundle(webhook: &ValidatingWebhookConfiguration) -> Option<Vec<u8>> {
    let bundle = webhook.webhooks.as_ref()?.first()?.client_config.ca_bundle.as_ref()?;
    Some(bundle.0.clone())
}

fn definition_bundle(definition: &CustomResourceDefinition) -> Option<Vec<u8>> {
    let webhook = definition.spec.conversion.as_ref()?.webhook.as_ref()?;
    Some(webhook.client_config.as_ref()?.ca_bundle.as_ref()?.0.clone())
}

// Cases bundles-60, additions-a44
#[tokio::test(flavor = "multi_thread")]
async fn webhooks_respond_before_during_and_after_a_renewal() -> Result<()> {
    let scenario = Scenario::of("webhooks", Sample::webhooks, &["1.0.0"]).await?;
    scenario.serve(&[("stable", scenario.chain(&["1.0.0"]))]).await?;
    scenario.install(json!({})).await?;
    scenario.wait_installed("1.0.0").await?;
    let installed = Installed::of(&scenario);
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
async fn first_call(installed: &Installed<'_>) -> Result<()> {
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
async fn removed_authorities_come_back(installed: &Installed<'_>) -> Result<()> {
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
        .definitions
        .patch(&installed.definition(), &none, &remove("/spec/conversion/webhook/clientConfig/caBundle")?)
        .await?;
    ensure!(definition_bundle(&patched).is_none());
    eventually("the CA is restored", PATIENCE, async || {
        let now = installed.trusted().await?;
        ensure!(now == before, "the CA differs");
        installed.call_all().await
    })
    .await
}

/// OLM repairs a changed webhook, and retains the CA in it.
async fn repair_keeps_authorities(installed: &Installed<'_>) -> Result<()> {
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
async fn renewed_without_a_failed_call(installed: &Installed<'_>) -> Result<()> {
    let scenario = installed.scenario;
    let host = format!("{}.{}.svc", installed.service, scenario.name);
    let forward = Forward::to_service(&scenario.name, &installed.service, 443).await?;
    let old_roots = installed.trusted().await?;
    let old = forward.certificate(&host, &old_roots).await?;
    let pod = installed.pod().await?;
    let before = installed.rounds.get();
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
    let rounds = installed.rounds.get() - before;
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

async fn uninstalled(installed: &Installed<'_>) -> Result<()> {
    let cluster = &installed.scenario.cluster;
    for name in installed.secret_names() {
        installed.secrets.get(&name).await.with_context(|| name)?;
    }
    cluster.delete(&installed.scenario.extensions(), &installed.scenario.name).await?;
    cluster.wait_gone(&installed.scenario.extensions(), &installed.scenario.name).await?;
    cluster.wait_gone(&installed.definitions, &installed.definition()).await?;
    cluster.wait_gone(&installed.validating, &installed.named("validate")).await?;
    cluster.wait_gone(&installed.mutating, &installed.named("default")).await?;
    for name in installed.secret_names() {
        cluster.wait_gone(&installed.secrets, &name).await?;
    }
    Ok(())
}
