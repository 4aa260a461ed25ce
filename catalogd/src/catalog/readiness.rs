//! Readiness of a replica (docs/design/architecture.md#every-replica-serves-content): it holds what was being
//! served when it started, or 20 s have passed. Independent of leadership, so that a rollout cannot wait for
//! itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::reflector;
use olm_api::ClusterCatalog;
use olm_serving::probes::Readiness;
use tokio_util::sync::CancellationToken;

use super::reference::served_reference;
use crate::content::Store;

/// Name of the readiness check.
pub const CHECK: &str = "catalog-content";
const PATIENCE: Duration = Duration::from_secs(20);
const INTERVAL: Duration = Duration::from_millis(200);

/// Sets [`CHECK`] to ready when, after `listed`, the store holds what was served at the start, or after 20 s. Then
/// returns.
pub async fn watch_readiness(
    readiness: Readiness,
    store: Arc<Store>,
    catalogs: reflector::Store<ClusterCatalog>,
    listed: CancellationToken,
) {
    let caught_up = async {
        listed.cancelled().await;
        let at_start = served(&catalogs);
        while missing(&store, &at_start, &served(&catalogs)) > 0 {
            tokio::time::sleep(INTERVAL).await;
        }
    };
    if tokio::time::timeout(PATIENCE, caught_up).await.is_err() {
        tracing::warn!("became ready before all served catalogs were loaded");
    }
    readiness.ready(CHECK);
}

/// Digest reference of every served catalog, by name.
fn served(catalogs: &reflector::Store<ClusterCatalog>) -> BTreeMap<String, String> {
    let state = catalogs.state();
    let one =
        |catalog: &Arc<ClusterCatalog>| Some((catalog.name_any(), served_reference(catalog)?.to_owned()));
    state.iter().filter_map(one).collect()
}

/// Number of catalogs that are served as at the start, but not held here.
fn missing(store: &Store, at_start: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> usize {
    let is_missing = |(name, canonical): &(&String, &String)| {
        now.get(*name) == Some(*canonical) && store.get(name).is_none_or(|held| held.canonical != **canonical)
    };
    at_start.iter().filter(is_missing).count()
}
