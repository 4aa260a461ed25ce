//! The loop of a controller: watches trigger reconciles, each attempt runs in a task and a span of its own, and a
//! failed one is retried with backoff ([`Reconciles::run`]).

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::ready;
use std::hash::Hash;
use std::sync::Arc;

use futures::StreamExt;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;
use uuid::Uuid;

use crate::cluster::stopped_unlisted;
use crate::reconcile::{ReconcileError, Reconciles};

impl Reconciles {
    /// Reconciles every object that `controller` triggers until `stop`, then waits for running attempts. Objects that
    /// exceed the concurrency wait in FIFO order. `listed` is cancelled when the store of the controller is filled.
    pub async fn drive<K, F>(
        self: Arc<Self>,
        controller: Controller<K>,
        listed: CancellationToken,
        stop: CancellationToken,
        reconcile: impl Fn(Arc<K>) -> F + Send + Sync + 'static,
    ) where
        K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
        K::DynamicType: Debug + Eq + Hash + Clone + Unpin + Default,
        F: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
    {
        let store = controller.store();
        // The limit of kube's `Config` takes waiting objects in the order of a hash table, so that some wait for as long
        // as others are triggered. An object that is triggered while it waits here gets another attempt.
        let permits = Arc::new(Semaphore::new(self.concurrency.into()));
        let (reconcile, stopped) = (Arc::new(reconcile), stop.clone());
        controller
            .graceful_shutdown_on(stop.clone().cancelled_owned())
            .run(
                move |object: Arc<K>, _| {
                    let (reconciles, reconcile) = (Arc::clone(&self), Arc::clone(&reconcile));
                    let (store, permits, stopped) = (store.clone(), Arc::clone(&permits), stopped.clone());
                    async move {
                        let permit = async {
                            let permit = permits.acquire().await;
                            reconciles.until_synced().await;
                            permit
                        };
                        let permit = stopped.run_until_cancelled(permit).await;
                        let permit = permit.filter(|_| !stopped.is_cancelled());
                        // The object may have changed or been deleted while it waited.
                        let (Some(Ok(_permit)), Some(object)) =
                            (permit, store.get(&ObjectRef::from(&*object)))
                        else {
                            return Ok(Action::await_change());
                        };
                        let (name, attempt) = (object.name_any(), reconcile(object));
                        let attempts = Arc::clone(&reconciles);
                        reconciles
                            .in_task(&name.clone(), async move { attempts.run(&name, attempt).await })
                            .await
                    }
                },
                |_, error: &Infallible, _| match *error {},
                Arc::new(()),
            )
            .take_until(stopped_unlisted(stop, listed))
            .for_each(|_| ready(()))
            .await;
    }

    /// Runs `attempt` on the object `name` in a task, so that it does not delay other objects, and in a span with
    /// controller, object and attempt ID.
    ///
    /// # Errors
    /// None.
    pub fn in_task<F>(
        &self,
        name: &str,
        attempt: F,
    ) -> impl Future<Output = Result<Action, Infallible>> + Send + use<F>
    where
        F: Future<Output = Result<Action, Infallible>> + Send + 'static,
    {
        let (controller, reconcile_id) = (self.controller, Uuid::new_v4());
        let span = tracing::info_span!("reconcile", controller, object = name, %reconcile_id);
        let task = AbortOnDropHandle::new(tokio::spawn(attempt.instrument(span)));
        // Fails only when the runtime shuts down.
        async move { task.await.unwrap_or_else(|_| Ok(Action::await_change())) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    use futures::stream;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::runtime::{reflector, watcher};
    use parking_lot::Mutex;
    use tokio::sync::watch;

    use super::*;
    use crate::metrics::Metrics;

    fn object(index: usize) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(format!("object-{index}"));
        object
    }

    // Every attempt requeues its object, so that more objects always wait than attempts can run.
    #[tokio::test(start_paused = true)]
    async fn waiting_objects_are_reconciled_in_fifo_order() {
        const OBJECTS: usize = 20;
        const ROUNDS: usize = 10;
        let (store, mut writer) = reflector::store();
        writer.apply_watcher_event(&watcher::Event::Init);
        for index in 0..OBJECTS {
            writer.apply_watcher_event(&watcher::Event::InitApply(object(index)));
        }
        writer.apply_watcher_event(&watcher::Event::InitDone);
        let triggers = stream::iter((0..OBJECTS).map(|index| Ok(object(index)))).chain(stream::pending());
        let controller = Controller::for_stream(triggers, store);
        let (listed, stop) = (CancellationToken::new(), CancellationToken::new());
        listed.cancel();
        let attempts: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        let (running, peak) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let attempt = {
            let (attempts, stop, peak) = (Arc::clone(&attempts), stop.clone(), Arc::clone(&peak));
            move |object: Arc<ConfigMap>| {
                let (attempts, stop) = (Arc::clone(&attempts), stop.clone());
                let (running, peak) = (Arc::clone(&running), Arc::clone(&peak));
                async move {
                    peak.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    running.fetch_sub(1, SeqCst);
                    let mut attempts = attempts.lock();
                    *attempts.entry(object.name_any()).or_default() += 1;
                    if attempts.values().sum::<usize>() == OBJECTS * ROUNDS {
                        stop.cancel();
                    }
                    Ok(Action::requeue(Duration::from_millis(1)))
                }
            }
        };
        let reconciles = Arc::new(Reconciles::new("c", "ConfigMap", 2, Arc::new(Metrics::new())));
        reconciles.drive(controller, listed, stop, attempt).await;
        let mut counts: Vec<usize> = attempts.lock().values().copied().collect();
        counts.sort_unstable();
        assert_eq!((counts.len(), counts.iter().sum::<usize>()), (OBJECTS, OBJECTS * ROUNDS), "{counts:?}");
        assert!(counts[0] + 1 >= ROUNDS, "attempts by object: {counts:?}");
        assert_eq!(peak.load(SeqCst), 2, "attempts at a time");
    }

    // docs/design/apply.md#restored-cluster
    #[tokio::test(start_paused = true)]
    async fn attempt_waits_until_the_cache_is_synced() {
        let (store, mut writer) = reflector::store();
        let names = |index: usize| object(index).name_any();
        for event in [watcher::Event::Init, watcher::Event::InitApply(object(1)), watcher::Event::InitDone] {
            writer.apply_watcher_event(&event);
        }
        let controller =
            Controller::for_stream(stream::iter([Ok(object(1))]).chain(stream::pending()), store);
        let (listed, stop) = (CancellationToken::new(), CancellationToken::new());
        listed.cancel();
        let synced = watch::Sender::new(false);
        let reconciles = Reconciles::new("c", "ConfigMap", 2, Arc::new(Metrics::new()));
        let reconciles = Arc::new(reconciles.with_cache(synced.subscribe()));
        let (attempts, ended) = (Arc::new(Mutex::new(Vec::new())), stop.clone());
        let reconciled = Arc::clone(&attempts);
        let driven =
            tokio::spawn(reconciles.drive(controller, listed, stop, move |object: Arc<ConfigMap>| {
                reconciled.lock().push(object.name_any());
                ended.cancel();
                async { Ok(Action::await_change()) }
            }));
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(*attempts.lock(), [""; 0]);
        synced.send_replace(true);
        driven.await.unwrap();
        assert_eq!(*attempts.lock(), [names(1)]);
    }
}
