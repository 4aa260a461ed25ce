//! The event loop of the ClusterCatalog controller.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::ResourceExt;
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::store::Writer;
use kube::runtime::{Config, WatchStreamExt, reflector, watcher};
use olm_api::ClusterCatalog;
use olm_runtime::cluster::{announce_listed, stopped_unlisted};
use olm_runtime::listing;
use olm_runtime::reconcile::{ErrorClass, RESYNC, ReconcileError};
use olm_runtime::watches::watch;
use tokio::time::Instant;
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;

use super::controller::{CONCURRENCY, Controller, Reconciled, Settled};

impl Controller {
    /// Time left until the catalog needs a reconcile, `None` if it changed since it settled.
    fn time_left(&self, catalog: &ClusterCatalog) -> Option<Duration> {
        let settled = self.settled.lock();
        let known = settled.get(&catalog.name_any())?;
        let is_same = catalog.metadata.resource_version.as_ref() == Some(&known.resource_version)
            && known.cause == self.cause(catalog);
        let left = known.due.saturating_duration_since(Instant::now());
        (is_same && !left.is_zero()).then_some(left)
    }

    async fn on_event(self: Arc<Self>, catalog: Arc<ClusterCatalog>) -> Result<Action, Infallible> {
        let name = catalog.name_any();
        if let Some(left) = self.time_left(&catalog) {
            return Ok(Action::requeue(left));
        }
        // Read before the attempt: a change during it must cause another reconcile.
        let cause = self.cause(&catalog);
        if let Some(wait) = self.reconciles.waiting(&name, Some(cause)) {
            return Ok(wait);
        }
        let attempt = async {
            let result = self.reconcile(&catalog).await;
            if is_tried(&result) {
                self.tried.lock().insert(name.clone());
            }
            let Reconciled { resource_version, requeue_after } = result?;
            let mut settled = self.settled.lock();
            match resource_version {
                Some(resource_version) => {
                    let due = Instant::now() + requeue_after.unwrap_or(RESYNC);
                    settled.insert(name.clone(), Settled { resource_version, cause, due });
                }
                None => drop(settled.remove(&name)),
            }
            Ok(requeue_after.map_or_else(Action::await_change, Action::requeue))
        };
        self.reconciles.run(&name, attempt).await
    }

    /// Cleans up after a list of all catalogs, at the start or after the watch was interrupted: no event reports
    /// catalogs deleted meanwhile.
    fn on_listed(self: &Arc<Self>) {
        for name in self.store.names() {
            if self.catalogs.get(&reflector::ObjectRef::new(&name)).is_none() {
                let controller = Arc::clone(self);
                tokio::spawn(async move { controller.on_deleted(name).await });
            }
        }
    }

    /// Removes the content of a deleted catalog, with or without our finalizer.
    async fn on_deleted(&self, name: String) {
        if self.catalogs.get(&reflector::ObjectRef::new(&name)).is_none() {
            self.unpacks.end(&name).await;
        }
        let (store, catalogs) = (Arc::clone(&self.store), self.catalogs.clone());
        let gone = name.clone();
        let removed = tokio::task::spawn_blocking(move || {
            // A catalog recreated under the same name has content of its own.
            let is_gone = catalogs.get(&reflector::ObjectRef::new(&gone)).is_none();
            if is_gone { store.remove(&gone).map(|()| true) } else { Ok(false) }
        });
        match removed.await {
            Ok(Ok(true)) => self.forget(&name),
            Ok(Ok(false)) => {}
            Ok(Err(error)) => {
                tracing::error!(catalog = name, %error, "failed to remove content of a deleted catalog")
            }
            Err(error) => tracing::error!(catalog = name, %error, "content removal task failed"),
        }
    }
}

/// Reconciles until `stop`, then waits for running reconciles. `listed` is cancelled when all catalogs that existed
/// at the start are known.
pub async fn run(
    controller: Arc<Controller>,
    writer: Writer<ClusterCatalog>,
    listed: CancellationToken,
    stop: CancellationToken,
) {
    let reader = writer.as_reader();
    // Deletions included: a catalog without our finalizer can disappear at once.
    let events = reflector(writer, watch(controller.api.clone(), listing::config()));
    let on_listed = Arc::clone(&controller);
    let events = announce_listed(events, listed.clone()).inspect_ok(move |event| {
        if let watcher::Event::InitDone = event {
            // A restored cluster can have other objects with the same resourceVersions.
            on_listed.settled.lock().clear();
            on_listed.on_listed();
            // The watch was interrupted, perhaps by an upgrade of the cluster.
            on_listed.recheck.notify_one();
        }
    });
    let events = events.touched_objects();
    let changes = WatchStream::from_changes(controller.epoch.subscribe()).map(drop);
    tokio::spawn(Arc::clone(&controller).poll_version(stop.clone()));
    let handler = Arc::clone(&controller);
    kube::runtime::Controller::for_stream(events, reader)
        .with_config(Config::default().concurrency(CONCURRENCY))
        .reconcile_all_on(changes)
        .reconcile_on(controller.unpacks.wakes())
        .reconcile_on(controller.on_version_change())
        .graceful_shutdown_on(stop.clone().cancelled_owned())
        .run(
            move |catalog: Arc<ClusterCatalog>, _| {
                let (handler, name) = (Arc::clone(&handler), catalog.name_any());
                let attempt = Arc::clone(&handler).on_event(catalog);
                handler.reconciles.in_task(&name, attempt)
            },
            |_, _, _| Action::requeue(Duration::from_secs(1)),
            Arc::new(()),
        )
        .take_until(stopped_unlisted(stop, listed))
        .for_each(|result| {
            let controller = Arc::clone(&controller);
            async move {
                match result {
                    Ok(_) => {}
                    Err(controller::Error::ObjectNotFound(gone)) => {
                        // In a task of its own: removing gigabytes would delay other events.
                        tokio::spawn(async move { controller.on_deleted(gone.name).await });
                    }
                    Err(error) => tracing::warn!(%error, "watch of ClusterCatalogs failed"),
                }
            }
        })
        .await;
}

/// Reports whether the attempt had a result. After a conflict, another one follows that has not asked the registry yet.
fn is_tried(result: &Result<Reconciled, ReconcileError>) -> bool {
    match result {
        Ok(reconciled) => reconciled.resource_version.is_some(),
        Err(failure) => !matches!(failure.class, ErrorClass::Pending(_) | ErrorClass::Conflict),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // docs/design/catalogd.md#suspect-images
    #[test]
    fn conflict_or_pending_result_is_not_counted_as_unpack_attempt() {
        let failed = |class| Err(ReconcileError { class, ..ReconcileError::retry("x") });
        let ended = |resource_version: Option<&str>| {
            Ok(Reconciled { resource_version: resource_version.map(str::to_owned), requeue_after: None })
        };
        let rows = [
            (ended(Some("7")), true),
            (ended(None), false),
            (failed(ErrorClass::Retry), true),
            (failed(ErrorClass::Terminal), true),
            (failed(ErrorClass::Conflict), false),
            (failed(ErrorClass::Pending(Duration::ZERO)), false),
        ];
        for (result, expected) in rows {
            assert_eq!(is_tried(&result), expected, "{result:?}");
        }
    }
}
