//! Content of etcd through its JSON gateway, to undo what a test has changed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::Error;

/// Deadline of [`Store::reset`] and of the objects that the API server creates after it is ready.
const DEADLINE: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Number of consecutive reads without a difference: the API server learns of changes by watching.
const CLEAN_READS: usize = 2;

/// Key that the API server creates last when it starts.
const LAST_CREATED: &str = "/registry/endpointslices/default/kubernetes";
/// Prefixes of keys that the API server renews.
const RENEWED: [&str; 3] =
    ["/registry/leases/kube-system/apiserver-", "/registry/masterleases/", "/registry/peerserverleases/"];
/// First key of objects, and the first one after them.
const OBJECTS: [&str; 2] = ["/registry/", "/registry0"];
/// Words in the keys of webhooks and admission policies. They affect requests for a while after their deletion.
const ADMISSION: [&str; 2] = ["webhookconfigurations/", "admissionpolic"];
/// Word in the keys of CRDs. The API server serves a changed one in its former version for a while.
const CRDS: &str = "/customresourcedefinitions/";

/// Values by key. The values are base64.
type Content = BTreeMap<String, String>;

/// Content of a new control plane.
pub(crate) struct Store {
    address: String,
    content: Content,
    groups: Vec<String>,
}

impl Store {
    /// Reads the content of a control plane that was just started, and got these CRDs. `address` is the URL of etcd.
    pub(crate) async fn read(address: String, api_server: &Client, crds: &[Value]) -> Result<Self, Error> {
        let etcd = etcd(&address)?;
        let deadline = Instant::now() + DEADLINE;
        let mut before = Content::new();
        loop {
            let (content, groups) = (content(&etcd).await?, groups(api_server).await?);
            let is_served = |crd: &Value| groups.iter().any(|group| crd["spec"]["group"] == *group);
            let is_settled = changes(&before, &content).is_empty() && content.contains_key(LAST_CREATED);
            if is_settled && crds.iter().all(is_served) {
                return Ok(Self { address, content, groups });
            }
            if Instant::now() > deadline {
                return Err(Error::Store(format!(
                    "still changes after {DEADLINE:?}, or has no {LAST_CREATED}"
                )));
            }
            before = content;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Undoes all changes.
    ///
    /// # Errors
    /// The control plane cannot be used again.
    pub(crate) async fn reset(&self, api_server: &Client) -> Result<(), Error> {
        let etcd = etcd(&self.address)?;
        let deadline = Instant::now() + DEADLINE;
        let mut clean_reads = 0;
        loop {
            let changes = changes(&self.content, &content(&etcd).await?);
            let is_of_initial_crd = |key: &str| key.contains(CRDS) && self.content.contains_key(key);
            let affects_requests =
                |key: &&String| ADMISSION.iter().any(|word| key.contains(word)) || is_of_initial_crd(key);
            if let Some(key) = changes.keys().find(affects_requests) {
                return Err(Error::Store(format!("has another {key}")));
            }
            if Instant::now() > deadline {
                let keys: Vec<&String> = changes.keys().collect();
                return Err(Error::Store(format!("still differs after {DEADLINE:?}: {keys:?}")));
            }
            let is_clean = changes.is_empty() && groups(api_server).await? == self.groups;
            clean_reads = if is_clean { clean_reads + 1 } else { 0 };
            if clean_reads == CLEAN_READS {
                return Ok(());
            }
            for (key, value) in changes {
                let key = BASE64_STANDARD.encode(key);
                match value {
                    Some(value) => post(&etcd, "put", &json!({"key": key, "value": value})).await?,
                    None => post(&etcd, "deleterange", &json!({ "key": key })).await?,
                };
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Values to write, or keys to delete, that turn `now` into `before`.
fn changes(before: &Content, now: &Content) -> BTreeMap<String, Option<String>> {
    let changed = before.iter().filter(|(key, value)| now.get(*key) != Some(value));
    let added = now.keys().filter(|key| !before.contains_key(*key));
    let changed = changed.map(|(key, value)| (key.clone(), Some(value.clone())));
    let mut changes: BTreeMap<_, _> = changed.chain(added.map(|key| (key.clone(), None))).collect();
    changes.retain(|key, _| !RENEWED.iter().any(|prefix| key.starts_with(prefix)));
    changes
}

fn etcd(address: &str) -> Result<Client, Error> {
    let address = address.parse().map_err(|error| Error::Store(format!("{address}: {error}")))?;
    Client::try_from(Config::new(address)).map_err(Error::Client)
}

async fn content(etcd: &Client) -> Result<Content, Error> {
    let [first, end] = OBJECTS.map(|key| BASE64_STANDARD.encode(key));
    let all = post(etcd, "range", &json!({"key": first, "range_end": end})).await?;
    let pair = |pair: &Value| {
        let key = BASE64_STANDARD.decode(pair["key"].as_str()?).ok()?;
        Some((String::from_utf8(key).ok()?, pair["value"].as_str()?.to_owned()))
    };
    let pairs = all["kvs"].as_array().and_then(|pairs| pairs.iter().map(pair).collect());
    pairs.ok_or_else(|| Error::Store("answered without keys".to_owned()))
}

async fn post(etcd: &Client, method: &str, body: &Value) -> Result<Value, Error> {
    let request = http::Request::post(format!("/v3/kv/{method}")).body(body.to_string().into_bytes());
    let request = request.map_err(|error| Error::Store(error.to_string()))?;
    etcd.request(request).await.map_err(|error| Error::Store(error.to_string()))
}

/// Names of the API groups that the API server serves.
async fn groups(api_server: &Client) -> Result<Vec<String>, Error> {
    let groups = api_server.list_api_groups().await.map_err(Error::Client)?;
    let mut names: Vec<String> = groups.groups.into_iter().map(|group| group.name).collect();
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_restore_delete_and_ignore_renewals() {
        let content = |pairs: &[(&str, &str)]| -> Content {
            pairs.iter().map(|(key, value)| (format!("/registry/{key}"), (*value).to_owned())).collect()
        };
        let before = content(&[("a", "1"), ("b", "1"), ("c", "1"), ("masterleases/x", "1")]);
        let now = content(&[("a", "1"), ("b", "2"), ("d", "1"), ("masterleases/x", "2")]);
        let expected = [("b", Some("1")), ("c", Some("1")), ("d", None)];
        let expected = expected.map(|(key, value)| (format!("/registry/{key}"), value.map(str::to_owned)));
        assert_eq!(changes(&before, &now), BTreeMap::from(expected));
    }
}
