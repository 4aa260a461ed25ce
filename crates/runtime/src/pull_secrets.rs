//! Registry credentials from pull Secrets, merged in memory for image pulls.
//!
//! In order of increasing precedence for the same registry: the Secret of `--global-pull-secret`, then those that
//! the server's own ServiceAccount references. A Secret, or an entry of one, that is invalid affects only itself.
//! Credentials are never logged and never written to disk.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures::future::ready;
use futures::stream::{self, BoxStream, StreamExt, select_all};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ObjectReference, Secret, ServiceAccount};
use kube::api::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use olm_oci::{CredentialSource, Credentials};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::cluster::within_deadline;
use crate::events::Events;
use crate::{listing, watches};

const TOKEN_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
const DOCKER_CONFIG_JSON: &str = ".dockerconfigjson";
const DOCKER_CONFIG: &str = ".dockercfg";
/// Poll interval of the Secrets. Needed because a watch that RBAC denies reports no changes.
const POLL: Duration = Duration::from_secs(30);
/// Time to wait for further changes, which often come in groups.
const SETTLE: Duration = Duration::from_millis(200);
/// Reason of the Event about a Secret that is not used.
const INVALID: &str = "InvalidPullSecret";

/// The API server rejected a call or did not answer. The credentials stay unchanged.
#[derive(Debug, thiserror::Error)]
#[error("{object}: {source}")]
pub struct PullSecretsError {
    /// Kind, namespace and name.
    object: String,
    source: kube::Error,
}

/// Namespace and name of an object.
pub type NamespacedName = (String, String);

/// Namespace and name of the ServiceAccount of this process. `None` outside of a pod.
///
/// # Errors
/// The token does not name a service account.
pub fn own_account() -> Result<Option<NamespacedName>, String> {
    match std::fs::read_to_string(TOKEN_FILE) {
        Ok(token) => account_of(&token).map(Some),
        Err(_) => {
            tracing::warn!("no service account token found, ignoring pull secrets of the service account");
            Ok(None)
        }
    }
}

/// Publisher of the merged credentials.
pub struct PullSecrets {
    client: Client,
    events: Events,
    account: Option<NamespacedName>,
    /// The Secrets of the last sync, including those that do not exist.
    considered: Vec<NamespacedName>,
    global: Option<NamespacedName>,
    published: watch::Sender<Credentials>,
}

impl PullSecrets {
    /// A publisher that has read nothing yet. `account` is the server's own, as named in its token. `global` is the
    /// value of `--global-pull-secret`, empty for none.
    pub fn new(client: Client, account: Option<NamespacedName>, global: &str, events: Events) -> Self {
        let global = global.split_once('/').map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        Self { client, events, account, considered: Vec::new(), global, published: watch::Sender::default() }
    }

    /// The credentials for [`olm_oci::Config`], as of the last sync.
    pub fn source(&self) -> CredentialSource {
        CredentialSource::Memory(self.published.subscribe())
    }

    /// Reads all Secrets and publishes the credentials. Returns `true` if they changed.
    ///
    /// # Errors
    /// An object cannot be read, except if it is missing or a Secret is forbidden.
    pub async fn sync(&mut self) -> Result<bool, PullSecretsError> {
        let (mut secrets, mut faults) = (Vec::new(), Vec::new());
        self.considered = self.names().await?;
        for (namespace, name) in self.considered.clone() {
            let api: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
            let read = within_deadline(api.get_opt(&name)).await;
            match read {
                // A forbidden Secret is treated as missing (case operations-e20).
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    faults.push(format!("Secret {namespace}/{name} is not used: this server cannot read it"));
                }
                Err(source) => {
                    return Err(PullSecretsError { object: format!("Secret {namespace}/{name}"), source });
                }
                Ok(Some(secret)) => secrets.push(secret),
                Ok(None) => tracing::debug!(namespace, name, "pull secret does not exist"),
            }
        }
        let credentials = merge(&secrets, &mut faults);
        self.report(&faults);
        let registries = credentials.count();
        let is_new = self.published.send_if_modified(|held| {
            let is_new = *held != credentials;
            *held = credentials;
            is_new
        });
        if is_new {
            tracing::info!(registries, "registry credentials changed");
        }
        Ok(is_new)
    }

    /// Syncs whenever one of the objects changes, and at the poll interval, until `stop`. Calls `changed` after
    /// each change of the credentials.
    pub async fn follow(mut self, changed: impl Fn() + Send, stop: CancellationToken) {
        let mut watched = self.considered.clone();
        let mut events = self.watch();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(()) = events.next() => {
                    let more = async { while events.next().await.is_some() {} };
                    // Ends with the timeout only.
                    let _ = tokio::time::timeout(SETTLE, more).await;
                }
                () = tokio::time::sleep(POLL) => {}
            }
            match self.sync().await {
                Ok(true) => changed(),
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "failed to update registry credentials"),
            }
            if watched != self.considered {
                watched.clone_from(&self.considered);
                events = self.watch();
            }
        }
    }

    /// Events when the account, or a Secret of the last sync, changes, and when it exists at the start.
    fn watch(&self) -> BoxStream<'static, ()> {
        let accounts = self.account.iter().map(|of| changes::<ServiceAccount>(&self.client, of));
        let secrets = self.considered.iter().map(|of| changes::<Secret>(&self.client, of));
        // The pending stream keeps the result from ending if there are no objects.
        select_all(accounts.chain(secrets).chain([stream::pending().boxed()])).boxed()
    }

    /// Reports Secrets that are not used with an Event about the ServiceAccount of this process, which references them.
    fn report(&self, faults: &[String]) {
        for fault in faults {
            tracing::warn!(fault, "pull Secret is not used");
        }
        let Some((namespace, name)) = &self.account else { return };
        let about: ObjectReference = ObjectRef::<ServiceAccount>::new(name).within(namespace).into();
        if faults.is_empty() {
            self.events.resolved(&about, INVALID);
            return;
        }
        self.events.warning(about, INVALID, faults.join("; "));
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
            .map_err(|source| PullSecretsError { object: object(), source })?;
        let references = account.and_then(|account| account.image_pull_secrets).unwrap_or_default();
        names.extend(references.into_iter().map(|reference| (namespace.clone(), reference.name)));
        Ok(names)
    }
}

/// An item for each change of one object, and one if it exists at the start.
pub fn changes<K>(client: &Client, (namespace, name): &NamespacedName) -> BoxStream<'static, ()>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Send + 'static,
    K: DeserializeOwned + std::fmt::Debug,
{
    let api: Api<PartialObjectMeta<K>> = Api::namespaced(client.clone(), namespace);
    let one = listing::config().fields(&format!("metadata.name={name}"));
    let events = watches::watch(api, one);
    let is_change =
        |event: &watcher::Event<_>| !matches!(event, watcher::Event::Init | watcher::Event::InitDone);
    // A failed watch is retried. Polling finds changes meanwhile.
    events.filter_map(move |event| ready(event.ok().filter(is_change).map(drop))).boxed()
}

/// The merged credentials of all Secrets. Appends entries that cannot be used to `faults`.
fn merge(secrets: &[Secret], faults: &mut Vec<String>) -> Credentials {
    let mut merged = Credentials::default();
    for secret in secrets {
        let name = format!("{}/{}", secret.namespace().unwrap_or_default(), secret.name_any());
        let entries = credentials(secret).unwrap_or_else(|why| {
            faults.push(format!("Secret {name} is not used: {why}"));
            Map::new()
        });
        for (registry, entry) in entries {
            if merged.insert(registry.clone(), entry).is_err() {
                let why = "its auth is not the base64 form of user:password";
                faults.push(format!("entry {registry} of Secret {name} is not used: {why}"));
            }
        }
    }
    merged
}

fn credentials(secret: &Secret) -> Result<Map<String, Value>, &'static str> {
    let value = |key| secret.data.as_ref().and_then(|data| data.get(key));
    let parse = |bytes: &[u8]| match serde_json::from_slice(bytes) {
        Ok(Value::Object(members)) => Ok(members),
        // The error of the parser could quote credentials.
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

/// Namespace and name of the account that a token was issued for, from its `sub` claim. The signature is not
/// verified, because the token is our own.
fn account_of(token: &str) -> Result<NamespacedName, String> {
    let claims = || {
        let claims = BASE64_URL_SAFE_NO_PAD.decode(token.trim().split('.').nth(1)?).ok()?;
        serde_json::from_slice::<Value>(&claims).ok()
    };
    let claims = claims().ok_or_else(|| format!("{TOKEN_FILE} is not the token of a service account"))?;
    let subject = claims["sub"].as_str().unwrap_or_default();
    match subject.split(':').collect::<Vec<_>>()[..] {
        [_, _, namespace, name] if !namespace.is_empty() && !name.is_empty() => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err(format!("badly formatted subject: {subject}")),
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

    #[test]
    fn later_secrets_take_precedence_and_invalid_ones_are_reported() {
        let secrets = [
            secret(DOCKER_CONFIG_JSON, r#"{"auths":{"a":{"auth":"dTox"},"b":{"identitytoken":"t"}}}"#),
            secret(DOCKER_CONFIG, r#"{"a":{"auth":"dToy"},"b":{"auth":"plain"},"c":{"auth":"dTI="}}"#),
            secret(DOCKER_CONFIG_JSON, "not json"),
            secret(DOCKER_CONFIG_JSON, r#"{"auths":[]}"#),
            secret(DOCKER_CONFIG_JSON, "{}"),
            secret("other", "{}"),
        ];
        let mut faults = Vec::new();
        let merged = merge(&secrets, &mut faults);
        let login = |host| merged.lookup(host, "x").unwrap().unwrap();
        assert_eq!((merged.count(), login("a").password.as_str()), (2, "2"));
        assert_eq!(login("b").identity_token.as_deref(), Some("t"));
        let expect = [
            "entry b of Secret / is not used: its auth is not the base64 form of user:password",
            "entry c of Secret / is not used: its auth is not the base64 form of user:password",
            "Secret / is not used: its value is not a JSON object",
            "Secret / is not used: its member auths is not an object",
            "Secret / is not used: expected secret.Data key not found",
        ];
        assert_eq!(faults, expect);
    }

    #[test]
    fn service_account_is_read_from_token_subject() {
        let token = |claims: &str| format!("h.{}.s\n", BASE64_URL_SAFE_NO_PAD.encode(claims));
        let rows = [
            (token(r#"{"sub":"system:serviceaccount:ns:me"}"#), Ok(("ns".to_owned(), "me".to_owned()))),
            (
                token(r#"{"sub":"system:serviceaccount:ns:"}"#),
                Err("badly formatted subject: system:serviceaccount:ns:".to_owned()),
            ),
            (token(r#"{"sub":"somebody"}"#), Err("badly formatted subject: somebody".to_owned())),
            (token("{}"), Err("badly formatted subject: ".to_owned())),
            ("x".to_owned(), Err(format!("{TOKEN_FILE} is not the token of a service account"))),
        ];
        for (token, expect) in rows {
            assert_eq!(account_of(&token), expect, "{token}");
        }
    }
}
