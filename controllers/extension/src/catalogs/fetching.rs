//! Fetches the packages that extensions request from catalogd (docs/design/resolution.md#demand-driven-fetch). One
//! attempt at a time per catalog. The caller retries with backoff.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use olm_api::ClusterCatalog;
use olm_request::served_image;

use super::fetch::{CatalogEndpoint, FetchError, SinglePackage};
use super::generation::Generation;
use super::{Catalogs, remove};

/// Maximum number of concurrent fetches per catalog.
const FETCHES: usize = 4;

impl Catalogs {
    /// Fetches the packages that are requested and missing, and announces the outcome to requests that timed out.
    pub(super) async fn fetch_requested(&self, catalog: &ClusterCatalog) -> Result<(), FetchError> {
        let name = catalog.metadata.name.as_deref().unwrap_or_default();
        // A catalog that is served later triggers another reconcile.
        let Ok(reference) = served_image(catalog) else { return Ok(()) };
        let Some(generation) = self.generation(name, reference) else { return Ok(()) };
        let is_fetch = generation.lacks_anything();
        let result = if is_fetch { self.attempt(catalog, name, &generation).await } else { Ok(()) };
        if is_fetch && !generation.ended.is_cancelled() {
            self.fetches.count(name, result.is_ok());
        }
        let mut is_awaited = generation.take_unannounced();
        if let Err(error) = &result
            && !error.is_of_content
        {
            is_awaited |= generation.record_failure(None, error.failure(name));
            self.notify_waiting();
        }
        let is_full = result.as_ref().is_err_and(|error| error.is_of_disk);
        // Older generations are unused, and must not fill the disk.
        if !generation.ended.is_cancelled() && (generation.is_in_use() || is_full) {
            let folder = generation.folder.clone();
            let tidied = tokio::task::spawn_blocking(move || remove_siblings(&folder)).await;
            if let Err(error) = tidied {
                tracing::error!(%error, catalog = name, "error removing old cache");
            }
        }
        if is_awaited {
            self.requeue_extensions();
        }
        result
    }

    async fn attempt(
        &self,
        catalog: &ClusterCatalog,
        name: &str,
        generation: &Arc<Generation>,
    ) -> Result<(), FetchError> {
        let urls = catalog.status.as_ref().and_then(|status| status.urls.as_ref());
        let base = urls.map(|urls| urls.base.clone()).ok_or_else(|| {
            FetchError::unreported(format!("error: catalog {name:?} has a nil status.urls value"))
        })?;
        let stop = generation.ended.child_token();
        let _stop_at_the_end = stop.clone().drop_guard();
        let (client, hosts) = (self.pool.client(), self.hosts.clone());
        let source = CatalogEndpoint { client, catalog: name.to_owned(), base, hosts, stop };
        tokio::select! {
            result = self.fetch_packages(&source, name, generation) => result,
            () = generation.ended.cancelled() => Ok(()),
        }
    }

    /// Fetches each missing package once, including those requested meanwhile. Fetches the whole catalog instead if
    /// catalogd serves no single packages.
    async fn fetch_packages(
        &self,
        source: &CatalogEndpoint,
        name: &str,
        generation: &Arc<Generation>,
    ) -> Result<(), FetchError> {
        let mut attempted = BTreeSet::new();
        let mut under_way = FuturesUnordered::new();
        let mut result = Ok(());
        loop {
            // The first answer shows whether catalogd serves single packages.
            let width = match generation.has_singles() {
                Some(false) => return self.fetch_whole(source, name, generation).await,
                Some(true) => FETCHES,
                None => 1,
            };
            for package in generation.missing() {
                if under_way.len() >= width {
                    break;
                }
                if attempted.insert(package.clone()) {
                    under_way.push(async move {
                        let outcome = source.fetch_package(generation, &package).await;
                        (package, outcome)
                    });
                }
            }
            let ended = tokio::select! {
                biased;
                ended = under_way.next() => ended,
                () = generation.requested.notified() => continue,
            };
            match ended {
                None => return result,
                Some((package, Ok(SinglePackage::Cached))) => {
                    self.announce_arrival(generation.record_package(&package));
                    tracing::debug!(catalog = name, package, "cached package");
                }
                Some((_, Ok(SinglePackage::NotOffered(why)))) => {
                    tracing::info!(
                        catalog = name,
                        why,
                        "catalogd does not serve single packages, fetching the whole catalog"
                    );
                    return self.fetch_whole(source, name, generation).await;
                }
                Some((package, Err(error))) if error.is_of_content => {
                    self.announce_arrival(generation.record_failure(Some(&package), error.failure(name)));
                    // An error that is worth a retry takes precedence.
                    if result.is_ok() || !error.is_final {
                        result = Err(error);
                    }
                }
                Some((_, Err(error))) => return Err(error),
            }
        }
    }

    async fn fetch_whole(
        &self,
        source: &CatalogEndpoint,
        name: &str,
        generation: &Generation,
    ) -> Result<(), FetchError> {
        // The failed content is the whole catalog.
        let content = source.fetch_whole(generation).await.map_err(FetchError::of_everything)?;
        self.announce_arrival(generation.record_whole(content));
        tracing::info!(catalog = name, reference = generation.reference, "cached catalog content");
        Ok(())
    }

    /// Notifies waiting requests, and announces the content if requests timed out before.
    fn announce_arrival(&self, is_awaited: bool) {
        self.notify_waiting();
        if is_awaited {
            self.requeue_extensions();
        }
    }
}

/// Removes the other generations of a catalog. Blocks.
fn remove_siblings(folder: &Path) {
    let entries = folder.parent().and_then(|parent| std::fs::read_dir(parent).ok());
    for entry in entries.into_iter().flatten().flatten() {
        if entry.path() != folder {
            remove(&entry.path());
        }
    }
}
