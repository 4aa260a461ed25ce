//! Registry credentials from pull Secrets, merged into one file that image pulls read (spec 06 §6.1).
//!
//! Considered, later ones winning for the same registry: the Secret of `--global-pull-secret`, then those
//! that the server's own ServiceAccount names. A Secret that cannot be read as credentials affects only
//! itself. Credentials are never logged.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::Api;
use kube::{Client, ResourceExt};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::cluster::within_deadline;
use crate::component::Component;

const TOKEN_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const DOCKER_CONFIG_JSON: &str = ".dockerconfigjson";
const DOCKER_CONFIG: &str = ".dockercfg";
/// Wait between two looks at the Secrets.
const POLL: Duration = Duration::from_secs(30);

/// Why the file could not be brought up to date; it stays as it was.
#[derive(Debug, thiserror::Error)]
pub enum PullSecretsError {
    /// The API server refused or did not answer.
    #[error("{object}: {source}")]
    Read {
        /// Kind, namespace and name.
        object: String,
        /// The cause.
        source: kube::Error,
    },
    /// The file could not be written or removed.
    #[error("credentials file {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

/// Namespace and name of an object.
type NamespacedName = (String, String);

/// Keeps the credentials file; removes it when dropped.
pub struct PullSecrets {
    client: Client,
    account: Option<NamespacedName>,
    global: Option<NamespacedName>,
    path: PathBuf,
    written: Option<Vec<u8>>,
}

impl PullSecrets {
    /// `global` is the value of `--global-pull-secret`, empty for none. Nothing is read or written yet.
    pub fn new(client: Client, component: Component, global: &str) -> Self {
        let account = std::fs::read_to_string(TOKEN_FILE).ok().and_then(|token| account_of(&token));
        if account.is_none() {
            tracing::warn!("no service account token: pull secrets of the service account are not used");
        }
        let stem = match component {
            Component::Catalogd => "catalogd-global-pull-secret",
            Component::OperatorController => "operator-controller-global-pull-secrets",
        };
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let path = std::env::temp_dir().join(format!("{stem}-{}.json", &unique[..8]));
        let global = global.split_once('/').map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        Self { client, account, global, path, written: None }
    }

    /// The file; it exists while there are credentials.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads all Secrets and writes the file if its content changes; returns whether it did.
    ///
    /// # Errors
    /// An object cannot be read for another reason than that it is missing, or the disk fails.
    pub async fn sync(&mut self) -> Result<bool, PullSecretsError> {
        let mut secrets = Vec::new();
        for (namespace, name) in self.names().await? {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
            let read = within_deadline(api.get_opt(&name)).await;
            let object = || format!("Secret {namespace}/{name}");
            match read.map_err(|source| PullSecretsError::Read { object: object(), source })? {
                Some(secret) => secrets.push(secret),
                None => tracing::debug!(namespace, name, "pull secret does not exist"),
            }
        }
        let credentials = merge(&secrets);
        let wanted =
            (!credentials.is_empty()).then(|| json!({ "auths": credentials }).to_string().into_bytes());
        if wanted == self.written {
            return Ok(false);
        }
        self.write(wanted.as_deref())
            .map_err(|source| PullSecretsError::File { path: self.path.clone(), source })?;
        tracing::info!(registries = credentials.len(), "registry credentials changed");
        self.written = wanted;
        Ok(true)
    }

    /// Looks again and again until `stop`, and calls `changed` after each change.
    pub async fn follow(mut self, changed: impl Fn() + Send, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(POLL)).await.is_some() {
            match self.sync().await {
                Ok(true) => changed(),
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "registry credentials not updated"),
            }
        }
    }

    async fn names(&self) -> Result<Vec<NamespacedName>, PullSecretsError> {
        let mut names: Vec<NamespacedName> = self.global.clone().into_iter().collect();
        let Some((namespace, name)) = &self.account else {
            return Ok(names);
        };
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        let object = || format!("ServiceAccount {namespace}/{name}");
        let account = within_deadline(api.get_opt(name))
            .await
            .map_err(|source| PullSecretsError::Read { object: object(), source })?;
        let references = account.and_then(|account| account.image_pull_secrets).unwrap_or_default();
        names.extend(references.into_iter().map(|reference| (namespace.clone(), reference.name)));
        Ok(names)
    }

    /// Replaces the file in one step, readable by us alone; removes it where there is nothing to write.
    fn write(&self, content: Option<&[u8]>) -> std::io::Result<()> {
        let Some(content) = content else {
            return std::fs::remove_file(&self.path);
        };
        let directory = self.path.parent().unwrap_or_else(|| Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(directory)?;
        file.write_all(content)?;
        file.persist(&self.path).map_err(|error| error.error)?;
        Ok(())
    }
}

impl Drop for PullSecrets {
    fn drop(&mut self) {
        if self.written.is_some() {
            // Nobody is left to read it; an absent file is what we want.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Credentials by registry.
fn merge(secrets: &[Secret]) -> Map<String, Value> {
    let mut merged = Map::new();
    for secret in secrets {
        let (namespace, name) = (secret.namespace().unwrap_or_default(), secret.name_any());
        match credentials(secret) {
            Ok(credentials) => merged.extend(credentials),
            Err(why) => tracing::warn!(namespace, name, why, "pull secret is not used"),
        }
    }
    merged
}

fn credentials(secret: &Secret) -> Result<Map<String, Value>, &'static str> {
    let value = |key| secret.data.as_ref().and_then(|data| data.get(key));
    let parse = |bytes: &[u8]| match serde_json::from_slice(bytes) {
        Ok(Value::Object(members)) => Ok(members),
        // The parser's own text could quote credentials.
        _ => Err("its value is not a JSON object"),
    };
    if let Some(text) = value(DOCKER_CONFIG_JSON) {
        return match parse(&text.0)?.remove("auths") {
            Some(Value::Object(credentials)) => Ok(credentials),
            None => Ok(Map::new()),
            Some(_) => Err("its member auths is not an object"),
        };
    }
    value(DOCKER_CONFIG).map_or(Err("expected secret.Data key not found"), |text| parse(&text.0))
}

/// Namespace and name of the account that a token was made for, as its `sub` claim says. The signature is
/// none of our business: the token is our own.
fn account_of(token: &str) -> Option<NamespacedName> {
    let claims = token.trim().split('.').nth(1)?;
    let claims: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    match claims["sub"].as_str()?.split(':').collect::<Vec<_>>()[..] {
        ["system", "serviceaccount", namespace, name] if !namespace.is_empty() && !name.is_empty() => {
            Some((namespace.to_owned(), name.to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    fn secret(key: &str, value: &str) -> Secret {
        let data = [(key.to_owned(), ByteString(value.as_bytes().to_vec()))].into();
        Secret { data: Some(data), ..Secret::default() }
    }

    // spec 02 acceptance 29
    #[test]
    fn later_secrets_win_and_broken_ones_are_left_out() {
        let secrets = [
            secret(DOCKER_CONFIG_JSON, r#"{"auths":{"a":{"auth":"1"},"b":{"identitytoken":"t"}}}"#),
            secret(DOCKER_CONFIG, r#"{"a":{"auth":"2"}}"#),
            secret(DOCKER_CONFIG_JSON, "not json"),
            secret(DOCKER_CONFIG_JSON, r#"{"auths":[]}"#),
            secret(DOCKER_CONFIG_JSON, "{}"),
            secret("other", "{}"),
        ];
        let expect = json!({"a": {"auth": "2"}, "b": {"identitytoken": "t"}});
        assert_eq!(Value::Object(merge(&secrets)), expect);
    }

    #[test]
    fn accounts() {
        let token = |claims: &str| format!("h.{}.s\n", BASE64_URL_SAFE_NO_PAD.encode(claims));
        let rows = [
            (token(r#"{"sub":"system:serviceaccount:ns:me"}"#), Some(("ns".to_owned(), "me".to_owned()))),
            (token(r#"{"sub":"system:serviceaccount:ns:"}"#), None),
            (token(r#"{"sub":"somebody"}"#), None),
            (token("{}"), None),
            ("x".to_owned(), None),
        ];
        for (token, expect) in rows {
            assert_eq!(account_of(&token), expect, "{token}");
        }
    }
}
