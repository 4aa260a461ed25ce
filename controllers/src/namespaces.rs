//! Namespaces of the cluster, for extensions that select some by label (docs/design/namespaces.md#selector). Exists only
//! with gate `MultiWatchNamespaces`. Only metadata is watched.

use std::pin::pin;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, Event, watcher as watch};
use kube::{Api, Client, ResourceExt};
use olm_request::{NamespaceSelector, SelectedNamespaces};
use olm_runtime::cluster::announce_listed;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::install_error::InstallError;

/// Time that a reconcile waits for the first list.
const FIRST_LIST: Duration = Duration::from_secs(10);
/// Time during which further changes are awaited before the extensions are requeued.
const COALESCED: Duration = Duration::from_secs(1);

type Metadata = PartialObjectMeta<Namespace>;

pub(crate) struct Namespaces {
    client: Client,
    store: Store<Metadata>,
    listed: CancellationToken,
    /// Taken by [`Self::follow`].
    writer: Mutex<Option<Writer<Metadata>>>,
}

impl Namespaces {
    pub(crate) fn new(client: Client) -> Self {
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
        let events = watch(Api::<Metadata>::all(self.client.clone()), watcher::Config::default())
            .default_backoff()
            .modify(|namespace| {
                namespace.metadata.managed_fields = None;
                namespace.metadata.annotations = None;
            })
            .reflect(writer);
        let mut events = pin!(announce_listed(events, self.listed.clone()));
        while let Some(event) = events.next().await {
            if !is_change(&event) {
                continue;
            }
            sleep(COALESCED).await;
            while let Some(Some(event)) = events.next().now_or_never() {
                is_change(&event);
            }
            on_change();
        }
    }
}

/// Reports whether the store has changed. Logs a failed watch, which is retried.
fn is_change(event: &watcher::Result<Event<Metadata>>) -> bool {
    match event {
        Ok(event) => matches!(event, Event::InitDone | Event::Apply(_) | Event::Delete(_)),
        Err(error) => {
            tracing::warn!(%error, "watch of namespaces failed");
            false
        }
    }
}
