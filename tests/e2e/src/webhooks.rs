//! Webhooks of an installed [`Sample::webhooks`](sample_operator::content::Sample::webhooks).

use std::cell::Cell;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt as _};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sample_operator::webhooks::{NOBODY, SALUTATION};
use serde_json::json;

use crate::Scenario;

/// Objects of the installed package, by their generated names.
pub struct Webhooks<'a> {
    /// Scenario that installed the package.
    pub scenario: &'a Scenario,
    /// Name of the Service that the webhooks call.
    pub service: String,
    /// API of the validating webhook.
    pub validating: Api<ValidatingWebhookConfiguration>,
    /// API of the mutating webhook.
    pub mutating: Api<MutatingWebhookConfiguration>,
    /// API of the converted CRD.
    pub crds: Api<CustomResourceDefinition>,
    /// API of the Secrets next to the Service.
    pub secrets: Api<Secret>,
    /// Number of rounds of calls so far.
    rounds: Cell<u32>,
}

impl<'a> Webhooks<'a> {
    /// Objects of the scenario's package.
    pub fn of(scenario: &'a Scenario) -> Self {
        let cluster = &scenario.cluster;
        Self {
            scenario,
            service: format!("{}-service", scenario.name),
            validating: cluster.all(),
            mutating: cluster.all(),
            crds: cluster.all(),
            secrets: cluster.within(&scenario.name),
            rounds: Cell::new(0),
        }
    }

    /// Name of the configuration of a webhook, `validate` or `default`.
    pub fn named(&self, webhook: &str) -> String {
        format!("{webhook}.{}", self.crd())
    }

    /// Name of the CRD.
    pub fn crd(&self) -> String {
        format!("greetings.{}", self.scenario.sample.group)
    }

    /// Name of the Secret of the certificate.
    pub fn secret(&self) -> String {
        format!("{}-cert", self.service)
    }

    /// Host name in calls of the API server.
    pub fn host(&self) -> String {
        format!("{}.{}.svc", self.service, self.scenario.name)
    }

    /// CA certificates that API servers trust. All three objects must contain the same.
    pub async fn trusted(&self) -> Result<Vec<CertificateDer<'static>>> {
        let validating = validating_bundle(&self.validating.get(&self.named("validate")).await?);
        let mutating = self.mutating.get(&self.named("default")).await?;
        let mutating =
            mutating.webhooks.unwrap_or_default().pop().and_then(|one| one.client_config.ca_bundle);
        let crd = crd_bundle(&self.crds.get(&self.crd()).await?);
        ensure!(mutating.map(|bundle| bundle.0) == validating, "the mutating webhook has a different CA");
        ensure!(crd == validating, "the CRD has a different CA");
        let bundle = validating.context("no caBundle")?;
        Ok(CertificateDer::pem_slice_iter(&bundle).collect::<Result<_, _>>()?)
    }

    /// UID and container restarts of the only pod.
    pub async fn pod(&self) -> Result<(Option<String>, i32)> {
        let ours = ListParams::default().labels(&format!("app={}", self.scenario.name));
        let pods = self.scenario.cluster.within::<Pod>(&self.scenario.name).list(&ours).await?.items;
        let [pod] = pods.as_slice() else { bail!("{} pods", pods.len()) };
        let statuses = pod.status.clone().unwrap_or_default().container_statuses.unwrap_or_default();
        Ok((pod.uid(), statuses.iter().map(|status| status.restart_count).sum()))
    }

    /// Number of rounds of calls so far.
    pub fn rounds(&self) -> u32 {
        self.rounds.get()
    }

    /// Calls each webhook once, in a separate TLS handshake and without a second attempt.
    pub async fn call_all(&self) -> Result<()> {
        let (scenario, namespace) = (self.scenario, self.scenario.name.as_str());
        let name = format!("round-{}", self.rounds.replace(self.rounds.get() + 1));
        let name = name.as_str();
        let made = scenario.greet_once("v1", namespace, name, json!({"name": "world"})).await?;
        ensure!(made.data["spec"] == json!({"name": "world", "salutation": SALUTATION}), "{:?}", made.data);
        let newer = scenario.greetings("v2", namespace).get(name).await?;
        ensure!(newer.data["spec"] == json!({"who": "world", "salutation": SALUTATION}), "{:?}", newer.data);
        self.check_denial(&format!("{name}-nobody")).await?;
        scenario.greetings("v1", namespace).delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Checks that the validating webhook denies a greeting, and its message.
    async fn check_denial(&self, name: &str) -> Result<()> {
        let namespace = &self.scenario.name;
        let said = match self.scenario.greet_once("v2", namespace, name, json!({"who": " "})).await {
            Err(kube::Error::Api(status)) => status.message,
            other => bail!("greeting without a name: {other:?}"),
        };
        let denied = format!("admission webhook \"{}\" denied the request: {NOBODY}", self.named("validate"));
        ensure!(said == denied, "{said}");
        Ok(())
    }
}

/// CA bundle of the webhook.
pub fn validating_bundle(webhook: &ValidatingWebhookConfiguration) -> Option<Vec<u8>> {
    let bundle = webhook.webhooks.as_ref()?.first()?.client_config.ca_bundle.as_ref()?;
    Some(bundle.0.clone())
}

/// CA bundle of the conversion webhook.
pub fn crd_bundle(crd: &CustomResourceDefinition) -> Option<Vec<u8>> {
    let webhook = crd.spec.conversion.as_ref()?.webhook.as_ref()?;
    Some(webhook.client_config.as_ref()?.ca_bundle.as_ref()?.0.clone())
}
