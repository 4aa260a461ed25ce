//! Objects that operator-controller maintains for catalogd, whose service account may not write Secrets, Roles or
//! webhook configurations: its serving certificate, the CA in its webhook configuration, and the Role for its pull
//! secrets.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use olm_api::names::EXTENSION_CONTROLLER_MANAGER;
use olm_runtime::Component;
use olm_runtime::cluster::within_deadline;
use olm_runtime::pull_secrets::changes;
use olm_serving::Service;
use olm_serving::builtin::{BuiltinCertificates, CA_SECRET};
use serde_json::json;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const CONFIGURATION: &str = "catalogd-mutating-webhook-configuration";
/// Name of the Role that the install files bind to catalogd's service account.
const ROLE: &str = "catalogd-pull-secrets";
/// Interval after which the objects are compared again, in case they were changed.
const INTERVAL: Duration = Duration::from_secs(60);

/// Writer of the objects for catalogd.
pub(crate) struct CatalogdObjects {
    client: Client,
    /// Namespace of catalogd.
    namespace: String,
    /// `--global-pull-secret`.
    global: String,
    /// The built-in CA (PEM). Empty until it is known, or if it is not used.
    bundle: watch::Receiver<Vec<u8>>,
}

impl CatalogdObjects {
    /// Creates the writer for catalogd's namespace.
    pub(crate) fn new(service: &Service, namespace: &str) -> Self {
        let bundle = service.builtin.as_ref();
        let bundle = bundle.map_or_else(|| watch::channel(Vec::new()).1, |issuer| issuer.ca_bundle());
        let global = service.flags.global_pull_secret.clone();
        Self { client: service.client.clone(), namespace: namespace.to_owned(), global, bundle }
    }

    /// Maintains Role and webhook configuration until `stop`. Must run only in the leader.
    pub(crate) async fn lead(mut self, stop: CancellationToken) {
        let account = (self.namespace.clone(), Component::Catalogd.deployment_name());
        let mut accounts = changes::<ServiceAccount>(&self.client, &account);
        loop {
            if let Err(error) = self.write_role(&account.1).await {
                tracing::error!(%error, role = ROLE, "failed to write Role");
            }
            if let Err(error) = self.write_trust().await {
                tracing::error!(%error, configuration = CONFIGURATION, "failed to write CA of the webhook");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                Ok(()) = self.bundle.changed() => {}
                Some(()) = accounts.next() => {}
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }

    async fn write_role(&self, account: &str) -> Result<(), kube::Error> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let Some(account) = within_deadline(accounts.get_opt(account)).await? else { return Ok(()) };
        let rules = rules(&self.namespace, &account, &self.global);
        let roles: Api<Role> = Api::namespaced(self.client.clone(), &self.namespace);
        let stored = within_deadline(roles.get_opt(ROLE)).await?;
        if stored.and_then(|role| role.rules).unwrap_or_default() == rules {
            return Ok(());
        }
        let labels = json!({"app.kubernetes.io/part-of": "olm", "app.kubernetes.io/name": "catalogd"});
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": ROLE, "labels": labels}, "rules": rules});
        let params = PatchParams::apply(EXTENSION_CONTROLLER_MANAGER).force();
        within_deadline(roles.patch(ROLE, &params, &Patch::Apply(role))).await?;
        tracing::info!(role = ROLE, "wrote names of pull secrets");
        Ok(())
    }

    async fn write_trust(&mut self) -> Result<(), kube::Error> {
        let bundle = ByteString(self.bundle.borrow_and_update().clone());
        if bundle.0.is_empty() {
            return Ok(());
        }
        let api: Api<MutatingWebhookConfiguration> = Api::all(self.client.clone());
        let stored = within_deadline(api.get_opt(CONFIGURATION)).await?;
        let webhooks = stored.and_then(|configuration| configuration.webhooks).unwrap_or_default();
        let outdated: Vec<_> = webhooks
            .iter()
            .filter(|webhook| webhook.client_config.ca_bundle.as_ref() != Some(&bundle))
            .map(|webhook| json!({"name": webhook.name, "clientConfig": {"caBundle": bundle}}))
            .collect();
        if outdated.is_empty() {
            return Ok(());
        }
        let patch = Patch::Strategic(json!({ "webhooks": outdated }));
        within_deadline(api.patch(CONFIGURATION, &PatchParams::default(), &patch)).await?;
        tracing::info!(configuration = CONFIGURATION, "wrote CA of the webhook");
        Ok(())
    }
}

/// Starts issuing catalogd's serving certificate, with `--cert-management=builtin`. For every replica, because catalogd
/// is not ready without it.
pub(crate) fn issue_certificate(service: &Service, namespace: &str) {
    if service.builtin.is_some() {
        let client = service.client.clone();
        let issuer = BuiltinCertificates::new(client, &service.namespace, Component::Catalogd, namespace);
        tokio::spawn(issuer.keep(service.shutdown.clone()));
    }
}

/// Returns the rules for the pull secrets of catalogd's service account, and for the global one if it is in the same
/// namespace. Returns no rule without pull secrets: a rule without names would cover all Secrets.
fn rules(namespace: &str, account: &ServiceAccount, global: &str) -> Vec<PolicyRule> {
    let named = account.image_pull_secrets.iter().flatten().map(|reference| reference.name.as_str());
    let global = global.split_once('/').filter(|(of, _)| *of == namespace).map(|(_, name)| name);
    // Excluded even if listed as pull secrets: they hold keys that catalogd must not read.
    let own = Component::OperatorController.serving_secret();
    let is_ours = |name: &&str| [CA_SECRET, &own].contains(name);
    let names = named.chain(global).filter(|name| !name.is_empty() && !is_ours(name));
    let names: BTreeSet<&str> = names.collect();
    if names.is_empty() {
        return Vec::new();
    }
    let texts = |all: &[&str]| all.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    vec![PolicyRule {
        api_groups: Some(texts(&[""])),
        resources: Some(texts(&["secrets"])),
        resource_names: Some(texts(&names.into_iter().collect::<Vec<_>>())),
        verbs: texts(&["get", "list", "watch"]),
        ..PolicyRule::default()
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_each_pull_secret_and_are_absent_without() {
        let rows: [(&[&str], &str, &[&str]); 7] = [
            (&[], "", &[]),
            (&[""], "", &[]),
            (&[], "elsewhere/pull", &[]),
            (&[], "system/pull", &["pull"]),
            (&["b", "a", "b"], "elsewhere/pull", &["a", "b"]),
            (&["b"], "system/a", &["a", "b"]),
            (&["b", CA_SECRET], "system/operator-controller-service-cert", &["b"]),
        ];
        for (references, global, expected) in rows {
            let references: Vec<_> = references.iter().map(|name| json!({"name": name})).collect();
            let account = serde_json::from_value(json!({"imagePullSecrets": references})).unwrap();
            let rule = json!({"apiGroups": [""], "resources": ["secrets"], "resourceNames": expected,
                "verbs": ["get", "list", "watch"]});
            let expected = if expected.is_empty() { json!([]) } else { json!([rule]) };
            assert_eq!(json!(rules("system", &account, global)), expected);
        }
    }
}
