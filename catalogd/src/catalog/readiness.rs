//! When a replica is ready (docs/design/architecture.md#every-replica-serves-content): once it holds what was being served when it started, or
//! after 20 s. Never because of leadership, so that a rollout cannot wait for itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::reflector;
use olm_api::ClusterCatalog;
use olm_service::probes::Readiness;
use tokio_util::sync::CancellationToken;

use super::decide::served_reference;
use crate::content::Store;

/// Name of the check.
pub const CHECK: &str = "catalog-content";
const PATIENCE: Duration = Duration::from_secs(20);
const INTERVAL: Duration = Duration::from_millis(200);

/// Makes [`CHECK`] hold once caught up after `listed`; returns then.
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
        tracing::warn!("ready although not all served catalogs are loaded yet");
    }
    readiness.ready(CHECK);
}

/// Image by digest of every catalog that is served.
fn served(catalogs: &reflector::Store<ClusterCatalog>) -> BTreeMap<String, String> {
    let state = catalogs.state();
    let one =
        |catalog: &Arc<ClusterCatalog>| Some((catalog.name_any(), served_reference(catalog)?.to_owned()));
    state.iter().filter_map(one).collect()
}

/// How many catalogs of the start are still served as then, but not from here.
fn missing(store: &Store, at_start: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> usize {
    let is_missing = |(name, canonical): &(&String, &String)| {
        now.get(*name) == Some(*canonical)
            && store.get(name).is_none_or(|held| held.canonical() != *canonical)
    };
    at_start.iter().filter(is_missing).count()
}
