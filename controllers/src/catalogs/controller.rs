//! Keeps the catalog content in step with the ClusterCatalogs (spec 03 §1.2).

use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};

use futures::StreamExt;
use kube::runtime::controller::Action;
use kube::runtime::reflector::Store;
use kube::runtime::watcher::Event;
use kube::runtime::{Controller, WatchStreamExt, controller, reflector, watcher};
use kube::{Api, Client};
use olm_api::ClusterCatalog;
use olm_api::conditions::{self, types};
use olm_service::cluster::announce_listed;
use olm_service::metrics::Metrics;
use olm_service::reconcile::{Failure, Reconciles};
use tokio_util::sync::CancellationToken;

use super::Catalogs;

const NAME: &str = "controller-operator-clustercatalog-controller";
const CONCURRENCY: u16 = 4;

/// What a resolution depends on besides content.
type Traits = (Option<i64>, Option<std::collections::BTreeMap<String, String>>, bool, Option<String>);

/// Follows the ClusterCatalogs until `stop`. Returns the store at once, and the work as a future; `listed` is cancelled
/// once all catalogs are in the store.
pub(crate) fn run(
    client: Client,
    catalogs: Arc<Catalogs>,
    metrics: Arc<Metrics>,
    listed: CancellationToken,
    stop: CancellationToken,
) -> (Store<ClusterCatalog>, impl Future<Output = ()>) {
    let (store, writer) = reflector::store();
    let followed = Arc::clone(&catalogs);
    let seen: Mutex<HashMap<String, Traits>> = Mutex::default();
    let listing: Mutex<Vec<String>> = Mutex::default();
    let events = watcher(Api::<ClusterCatalog>::all(client), watcher::Config::default())
        .default_backoff()
        .reflect(writer);
    let stream = announce_listed(events, listed)
        .inspect(move |event| match event {
            Ok(Event::Init) => listing.lock().unwrap_or_else(PoisonError::into_inner).clear(),
            Ok(Event::InitApply(catalog)) => {
                let name = catalog.metadata.name.clone().unwrap_or_default();
                listing.lock().unwrap_or_else(PoisonError::into_inner).push(name);
                notice(&followed, &seen, catalog);
            }
            Ok(Event::InitDone) => {
                followed.retain(&listing.lock().unwrap_or_else(PoisonError::into_inner));
                // What the list brought is in the store only now.
                followed.announce();
            }
            Ok(Event::Apply(catalog)) => notice(&followed, &seen, catalog),
            Ok(Event::Delete(catalog)) => {
                let name = catalog.metadata.name.clone().unwrap_or_default();
                seen.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
                followed.remove(&name);
            }
            Err(error) => tracing::warn!(%error, "watching ClusterCatalogs"),
        })
        .applied_objects();
    let reconciles = Arc::new(Reconciles::new(NAME, "ClusterCatalog", CONCURRENCY, metrics));
    let work = Controller::for_stream(stream, store.clone())
        .with_config(controller::Config::default().concurrency(CONCURRENCY))
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(
            move |catalog: Arc<ClusterCatalog>, catalogs: Arc<Catalogs>| {
                let reconciles = Arc::clone(&reconciles);
                async move {
                    let name = catalog.metadata.name.clone().unwrap_or_default();
                    let attempt = async {
                        let populated = catalogs.populate(&catalog).await;
                        populated.map(|()| Action::await_change()).map_err(|error| {
                            Failure::retry(format!("error populating cache for catalog {name:?}: {error}"))
                        })
                    };
                    reconciles.run(&name, attempt).await
                }
            },
            |_, error: &std::convert::Infallible, _| match *error {},
            catalogs,
        )
        .for_each(|_| ready(()));
    (store, work)
}

/// Announces a change of anything that a resolution looks at.
fn notice(catalogs: &Catalogs, seen: &Mutex<HashMap<String, Traits>>, catalog: &ClusterCatalog) {
    let status = catalog.status.as_ref();
    let traits = (
        catalog.metadata.generation,
        catalog.metadata.labels.clone(),
        status.is_some_and(|status| conditions::is_true(&status.conditions, types::SERVING)),
        status.and_then(|status| status.resolved_source.as_ref()).map(|source| source.image.ref_.clone()),
    );
    let name = catalog.metadata.name.clone().unwrap_or_default();
    let before = seen.lock().unwrap_or_else(PoisonError::into_inner).insert(name, traits.clone());
    if before != Some(traits) {
        catalogs.announce();
    }
}
