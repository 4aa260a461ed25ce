//! Secrets of the servers: their certificates and the registries that they have credentials for. Only public parts
//! and the names of fields are kept.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use olm_api::labels;
use olm_cli_core::output::qualified;
use olm_cli_core::source::ClusterConnection;
use olm_runtime::cluster::{describe, within_deadline};
use serde_json::Value;

use super::diagnose::{SERVERS, arguments};
use super::observed::{Certificate, Observed, list, text};
use super::redact::{REDACTED, Redactor};

/// Highest number of Secrets with webhook certificates.
const MOST: u32 = 500;
/// Fields with certificates, which are public.
const PUBLIC: [&str; 2] = ["tls.crt", "ca.crt"];

/// Reads the Secrets of the servers, and returns a redactor that knows their values.
pub(super) async fn read(cluster: &ClusterConnection, observed: &mut Observed) -> Redactor {
    let mut redactor = Redactor::default();
    let mut of_certificates: BTreeSet<String> = SERVERS.map(|server| server.serving_secret()).into();
    of_certificates.insert(olm_serving::builtin::CA_SECRET.to_owned());
    of_certificates.extend(mounted(observed));
    for name in of_certificates {
        let namespace = observed.namespace.clone();
        // Which of them exist depends on the install file.
        if let Ok(Some(secret)) = get(cluster, &namespace, &name, observed).await {
            observed.certificates.extend(certificate(&secret));
            keep(&secret, observed, &mut redactor);
        }
    }
    for (namespace, name) in pull_secrets(observed) {
        let registries = match get(cluster, &namespace, &name, observed).await {
            Ok(Some(secret)) => {
                keep(&secret, observed, &mut redactor);
                registries(&secret, &mut redactor)
            }
            Ok(None) => Err("it does not exist".to_owned()),
            // Already reported as unreadable.
            Err(()) => continue,
        };
        let name = qualified(&namespace, &name);
        observed.pull_secrets.push(super::observed::PullSecret { name, registries });
    }
    webhook_certificates(cluster, observed, &mut redactor).await;
    redactor
}

async fn get(
    cluster: &ClusterConnection,
    namespace: &str,
    name: &str,
    observed: &mut Observed,
) -> Result<Option<Secret>, ()> {
    let api: Api<Secret> = Api::namespaced(cluster.client().clone(), namespace);
    within_deadline(api.get_opt(name)).await.map_err(|error| {
        observed.unreadable.push(format!("Secret {namespace}/{name}: {}", describe(&error)));
    })
}

async fn webhook_certificates(cluster: &ClusterConnection, observed: &mut Observed, redactor: &mut Redactor) {
    let api: Api<Secret> = Api::all(cluster.client().clone());
    let selection = ListParams::default().labels(labels::EXT_WEBHOOK_CERTIFICATE).limit(MOST);
    match within_deadline(api.list(&selection)).await {
        Ok(found) => {
            for secret in found {
                observed.certificates.extend(certificate(&secret));
                keep(&secret, observed, redactor);
            }
        }
        Err(error) => {
            observed.unreadable.push(format!("Secrets with webhook certificates: {}", describe(&error)));
        }
    }
}

/// Secrets in volumes of the servers.
fn mounted(observed: &Observed) -> Vec<String> {
    let deployments =
        SERVERS.into_iter().filter_map(|server| observed.own("Deployment", &server.deployment_name()));
    let volumes = deployments.flat_map(|deployment| list(deployment, "/spec/template/spec/volumes"));
    let sources = volumes.flat_map(|volume| {
        let projected = list(volume, "/projected/sources").iter().map(|one| text(one, "/secret/name"));
        projected.chain([text(volume, "/secret/secretName")])
    });
    sources.filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Pull Secrets of the servers: namespace and name.
fn pull_secrets(observed: &Observed) -> BTreeSet<(String, String)> {
    let mut names = BTreeSet::new();
    for server in SERVERS {
        let Some(deployment) = observed.own("Deployment", &server.deployment_name()) else { continue };
        let global = arguments(deployment).filter_map(|one| one.strip_prefix("--global-pull-secret="));
        let global = global.filter_map(|value| value.split_once('/'));
        names.extend(global.map(|(namespace, name)| (namespace.to_owned(), name.to_owned())));
        let account = text(deployment, "/spec/template/spec/serviceAccountName");
        if let Some(account) = observed.own("ServiceAccount", account) {
            let own = list(account, "/imagePullSecrets").iter().map(|one| text(one, "/name"));
            names.extend(own.map(|name| (observed.namespace.clone(), name.to_owned())));
        }
    }
    names
}

/// Certificate of a Secret that has one.
fn certificate(secret: &Secret) -> Option<Certificate> {
    let chain = secret.data.as_ref()?.get("tls.crt")?.0.clone();
    let owner = secret.labels().get(labels::OWNER_NAME).cloned().unwrap_or_default();
    let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
    Some(Certificate { namespace, secret: name, owner, chain })
}

/// Adds the Secret without its data, and remembers the data for the redaction of other texts.
fn keep(secret: &Secret, observed: &mut Observed, redactor: &mut Redactor) {
    let mut kept = secret.clone();
    for (field, value) in kept.data.iter_mut().flatten() {
        if !PUBLIC.contains(&field.as_str()) {
            redactor.learn(&value.0);
        }
        *value = ByteString(REDACTED.as_bytes().to_vec());
    }
    let Ok(mut object) = serde_json::to_value(kept) else { return };
    object["apiVersion"] = Value::from("v1");
    object["kind"] = Value::from("Secret");
    observed.add("Secret", object);
}

/// Registries of a pull Secret. Remembers its credentials.
fn registries(secret: &Secret, redactor: &mut Redactor) -> Result<Vec<String>, String> {
    let none = BTreeMap::new();
    let data = secret.data.as_ref().unwrap_or(&none);
    let (text, is_wrapped) = match (data.get(".dockerconfigjson"), data.get(".dockercfg")) {
        (Some(text), _) => (text, true),
        (None, Some(text)) => (text, false),
        (None, None) => return Err("it has neither .dockerconfigjson nor .dockercfg".to_owned()),
    };
    let parsed: Value = serde_json::from_slice(&text.0)
        .map_err(|error| format!("its credentials are not JSON: line {}", error.line()))?;
    let entries = if is_wrapped { &parsed["auths"] } else { &parsed };
    let Some(entries) = entries.as_object().filter(|entries| !entries.is_empty()) else {
        return Err("it has no credentials for any registry".to_owned());
    };
    let fields = entries.values().filter_map(Value::as_object).flatten();
    // User names may be common words.
    for (_, value) in fields.filter(|(name, _)| !["username", "email"].contains(&name.as_str())) {
        redactor.learn(value.as_str().unwrap_or_default().as_bytes());
    }
    Ok(entries.keys().cloned().collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secret(data: &[(&str, &str)]) -> Secret {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())));
        Secret { data: Some(data.collect()), ..Secret::default() }
    }

    #[test]
    fn pull_secret_yields_registries_and_its_credentials_are_redacted() {
        let mut redactor = Redactor::default();
        let config =
            json!({"auths": {"registry.example.com": {"username": "someone", "password": "hunter2"}}});
        let found = registries(&secret(&[(".dockerconfigjson", &config.to_string())]), &mut redactor);
        assert_eq!(found, Ok(vec!["registry.example.com".to_owned()]));
        assert_eq!(redactor.text("with hunter2"), "with REDACTED");
        for (data, why) in [
            (&[("a", "b")][..], "it has neither .dockerconfigjson nor .dockercfg"),
            (&[(".dockerconfigjson", "{")], "its credentials are not JSON: line 1"),
            (&[(".dockercfg", "{}")], "it has no credentials for any registry"),
        ] {
            assert_eq!(registries(&secret(data), &mut redactor), Err(why.to_owned()));
        }
    }

    #[test]
    fn kept_secret_has_only_field_names() {
        let (mut observed, mut redactor) = (Observed::default(), Redactor::default());
        keep(&secret(&[("tls.key", "hunter2hunter2"), ("tls.crt", "public")]), &mut observed, &mut redactor);
        let kept = observed.list("Secret")[0].to_string();
        assert!(
            kept.contains("tls.key") && !kept.contains("hunter2") && !kept.contains("aHVudGVyMm"),
            "{kept}"
        );
        assert_eq!(redactor.text("hunter2hunter2 public"), "REDACTED public");
    }
}
