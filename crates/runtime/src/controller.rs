//! The loop of a controller: watches trigger reconciles, each attempt runs in a task and a span of its own, and a
//! failed one is retried with backoff ([`Reconciles::run`]).

use std::convert::Infallible;
use std::fmt::Debug;
use std::future::ready;
use std::hash::Hash;
use std::sync::Arc;

use futures::StreamExt;
use kube::runtime::controller::{Action, Config, Controller};
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;
use uuid::Uuid;

use crate::cluster::stopped_unlisted;
use crate::reconcile::{ReconcileError, Reconciles};

impl Reconciles {
    /// Reconciles every object that `controller` triggers until `stop`, then waits for running attempts. `listed`
    /// is cancelled when the store of the controller is filled.
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
        controller
            .with_config(Config::default().concurrency(self.concurrency))
            .graceful_shutdown_on(stop.clone().cancelled_owned())
            .run(
                move |object: Arc<K>, _| {
                    let (reconciles, name) = (Arc::clone(&self), object.name_any());
                    let attempt = reconcile(object);
                    self.in_task(&name.clone(), async move { reconciles.run(&name, attempt).await })
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
