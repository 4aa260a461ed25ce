//! Watches ClusterCatalogs for the content that they serve and for other inputs of a resolution
//! (docs/design/resolution.md#demand-driven-fetch).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::ResourceExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use olm_api::ClusterCatalog;
use olm_controller_core::metrics::register_fetches;
use olm_request::served_image;
use olm_runtime::cluster::announce_listed;
use olm_runtime::metrics::Metrics;
use olm_runtime::reconcile::{ReconcileError, Reconciles};
use olm_runtime::watches::is_interruption;
use tokio_util::sync::CancellationToken;

use super::{Catalogs, resolved_reference};

const NAME: &str = "controller-operator-clustercatalog-controller";
/// More than the number of catalogs, so that a slow catalogd does not delay another catalog.
const CONCURRENCY: u16 = 512;
/// Limit of the retry backoff: time within which a recovered catalogd is used.
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// Follows the watch `events` until `stop`. Returns the store immediately, and the controller as a future. `listed` is
/// canceled once all catalogs are in the store.
pub fn run(
    events: impl Stream<Item = watcher::Result<Event<ClusterCatalog>>> + Send + 'static,
    catalogs: Arc<Catalogs>,
    metrics: Arc<Metrics>,
    listed: CancellationToken,
    stop: CancellationToken,
) -> (Store<ClusterCatalog>, impl Future<Output = ()>) {
    let (store, writer) = reflector::store();
    let follower =
        CatalogFollower { catalogs: Arc::clone(&catalogs), store: store.clone(), seen: HashMap::new() };
    let events = Box::pin(announce_listed(events.reflect(writer), listed.clone()));
    let stream = stream::unfold((events, follower), async |(mut events, mut follower)| {
        let event = events.next().await?;
        follower.handle(&event).await;
        Some((event, (events, follower)))
    });
    let requests = catalogs.fetch_request_receiver.lock().take();
    let requests = stream::unfold(requests, async |requests| {
        let mut requests = requests?;
        let name = requests.recv().await?;
        Some((ObjectRef::new(&name), Some(requests)))
    });
    metrics.register_collector(catalogs.fetches.clone());
    register_fetches(&metrics, &catalogs.fetches);
    let controller = Controller::for_stream(stream.applied_objects(), store.clone()).reconcile_on(requests);
    let reconciles =
        Reconciles::new(NAME, "ClusterCatalog", CONCURRENCY, metrics).with_longest_delay(LONGEST_DELAY);
    let end = stop.clone();
    let work = Arc::new(reconciles).drive(controller, listed, stop, move |catalog: Arc<ClusterCatalog>| {
        let (catalogs, end) = (Arc::clone(&catalogs), end.clone());
        async move {
            // The next process fetches missing content.
            let supplied =
                end.run_until_cancelled(catalogs.fetch_requested(&catalog)).await.unwrap_or(Ok(()));
            supplied.map(|()| Action::await_change()).map_err(|error| {
                let message = format!("error populating cache for catalog {:?}: {error}", catalog.name_any());
                if error.is_final {
                    ReconcileError::terminal(message)
                } else {
                    ReconcileError::retry(message)
                }
            })
        }
    });
    (store, work)
}

/// Inputs of a resolution from a ClusterCatalog, besides its content.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ResolutionInputs {
    /// `metadata.generation`: changes with priority, availability mode and the rest of the spec.
    generation: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    /// `true` if the catalog serves content.
    is_served: bool,
}

/// Derives from watch events which of them affect resolutions.
struct CatalogFollower {
    catalogs: Arc<Catalogs>,
    /// All catalogs, after the event that is handled.
    store: Store<ClusterCatalog>,
    seen: HashMap<String, (ResolutionInputs, Option<String>)>,
}

impl CatalogFollower {
    async fn handle(&mut self, event: &watcher::Result<Event<ClusterCatalog>>) {
        match event {
            Ok(Event::Init) => {}
            Ok(Event::InitApply(catalog)) => drop(self.update(catalog).await),
            Ok(Event::InitDone) => {
                let listed: Vec<String> =
                    self.store.state().iter().map(|catalog| catalog.name_any()).collect();
                self.catalogs.retain(&listed);
                self.seen.retain(|name, _| listed.contains(name));
                // The listed catalogs are in the store only now.
                self.catalogs.synced.send_replace(true);
                self.catalogs.requeue_extensions();
            }
            Ok(Event::Apply(catalog)) => {
                if self.update(catalog).await {
                    self.catalogs.requeue_extensions();
                }
            }
            Ok(Event::Delete(catalog)) => {
                self.seen.remove(&catalog.name_any());
                self.catalogs.drop_catalog(&catalog.name_any());
                self.catalogs.requeue_extensions();
            }
            Err(error) => {
                if is_interruption(error) {
                    self.catalogs.synced.send_replace(false);
                }
                tracing::warn!(%error, "watch of ClusterCatalogs failed");
            }
        }
    }

    /// Reports whether a resolution may have another outcome now. A change of content alone that must be fetched is
    /// announced at the end of the fetch instead.
    async fn update(&mut self, catalog: &ClusterCatalog) -> bool {
        let inputs = ResolutionInputs {
            generation: catalog.metadata.generation,
            labels: catalog.metadata.labels.clone(),
            is_served: served_image(catalog).is_ok(),
        };
        let reference = resolved_reference(catalog).map(str::to_owned);
        let is_to_fetch = self.catalogs.switch_to(catalog).await && inputs.is_served;
        let now = (inputs, reference);
        let before = self.seen.insert(catalog.name_any(), now.clone());
        match before {
            Some(before) if before.0 == now.0 => before.1 != now.1 && !is_to_fetch,
            _ => true,
        }
    }
}
