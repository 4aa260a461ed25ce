//! Namespaces of the cluster, for extensions that select some by label (docs/design/namespaces.md#selector). Exists only
//! with gate `MultiWatchNamespaces`. Only metadata is watched.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use olm_controller_core::install_error::InstallError;
use olm_request::{NamespaceSelector, SelectedNamespaces};
use olm_runtime::cluster::announce_listed;
use olm_runtime::listing;
use olm_runtime::watches::watch;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// Time that a reconcile waits for the first list.
const FIRST_LIST: Duration = Duration::from_secs(10);
/// Time during which further changes are awaited before the extensions are requeued.
const COALESCED: Duration = Duration::from_secs(1);

type Metadata = PartialObjectMeta<Namespace>;

/// Namespaces of the cluster.
pub struct Namespaces {
    client: Client,
    store: Store<Metadata>,
    listed: CancellationToken,
    /// Taken by [`Self::follow`].
    writer: Mutex<Option<Writer<Metadata>>>,
}

impl Namespaces {
    /// Creates an empty store, until [`Self::follow`] runs.
    pub fn new(client: Client) -> Self {
        let (store, writer) = reflector::store();
        Self { client, store, listed: CancellationToken::new(), writer: Mutex::new(Some(writer)) }
    }

    /// Namespaces as this selector sees them. Waits for the first list.
    ///
    /// # Errors
    /// The namespaces have not been listed.
    pub(crate) async fn select(
        &self,
        selector: &NamespaceSelector,
    ) -> Result<SelectedNamespaces, InstallError> {
        if timeout(FIRST_LIST, self.listed.cancelled()).await.is_err() {
            return Err(InstallError::retry("namespaces have not been listed yet"));
        }
        let mut found = SelectedNamespaces::default();
        for namespace in self.store.state() {
            let is_deleting = namespace.metadata.deletion_timestamp.is_some();
            found.add(selector, &namespace.name_any(), namespace.labels(), is_deleting);
        }
        Ok(found)
    }

    /// Follows the namespaces until dropped. Calls `on_change` after changes.
    pub(crate) async fn follow(&self, on_change: impl Fn()) {
        let Some(writer) = self.writer.lock().take() else { return };
        let events = watch(Api::<Metadata>::all(self.client.clone()), listing::config())
            .modify(|namespace| {
                namespace.metadata.managed_fields = None;
                namespace.metadata.annotations = None;
            })
            .reflect(writer);
        let mut events = pin!(announce_listed(events, self.listed.clone()));
        let mut seen = Seen::default();
        while let Some(event) = events.next().await {
            if !seen.is_change(&event) {
                continue;
            }
            let end = Instant::now() + COALESCED;
            while let Ok(Some(event)) = timeout_at(end, events.next()).await {
                seen.is_change(&event);
            }
            on_change();
        }
    }
}

/// Hash of what a selector sees of each namespace: other changes, such as annotations, requeue nothing.
#[derive(Default)]
struct Seen(HashMap<String, u64>);

impl Seen {
    /// Reports whether a selector may see a change. Logs a failed watch, which is retried.
    fn is_change(&mut self, event: &watcher::Result<Event<Metadata>>) -> bool {
        match event {
            Ok(Event::InitDone) => true,
            Ok(Event::Apply(namespace)) => {
                let mut hasher = DefaultHasher::new();
                (namespace.labels(), namespace.metadata.deletion_timestamp.is_some()).hash(&mut hasher);
                let hash = hasher.finish();
                self.0.insert(namespace.name_any(), hash) != Some(hash)
            }
            Ok(Event::Delete(namespace)) => {
                self.0.remove(&namespace.name_any());
                true
            }
            Ok(Event::Init | Event::InitApply(_)) => false,
            Err(error) => {
                tracing::warn!(%error, "watch of namespaces failed");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_labels_and_deletion_are_changes() {
        let mut seen = Seen::default();
        let mut is_change = |event: fn(Metadata) -> Event<Metadata>, metadata: Value| {
            let namespace = json!({"metadata": metadata});
            seen.is_change(&Ok(event(serde_json::from_value(namespace).unwrap())))
        };
        let plain = json!({"name": "a", "labels": {"team": "x"}, "resourceVersion": "1"});
        let newer = json!({"name": "a", "labels": {"team": "x"}, "resourceVersion": "2"});
        let other = json!({"name": "a", "labels": {"team": "y"}});
        let deleting =
            json!({"name": "a", "labels": {"team": "y"}, "deletionTimestamp": "2026-01-01T00:00:00Z"});
        for (event, metadata, expected) in [
            (Event::InitApply as fn(Metadata) -> Event<Metadata>, &plain, false),
            (Event::Apply, &plain, true),
            (Event::Apply, &newer, false),
            (Event::Apply, &other, true),
            (Event::Apply, &deleting, true),
            (Event::Delete, &deleting, true),
            (Event::Apply, &other, true),
        ] {
            assert_eq!(is_change(event, metadata.clone()), expected, "{metadata}");
        }
        assert!(seen.is_change(&Ok(Event::InitDone)));
    }
}
