//! A controller that runs during a test.

use std::sync::Arc;

use kube::Client;
use olm_runtime::metrics::Metrics;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::revision::{self, Pace};
use crate::revision_cache::RevisionCache;

/// A running controller, stopped by [`RunningController::stop`].
pub(crate) struct RunningController {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl RunningController {
    /// Starts `work` with metrics and the token that stops it.
    pub(crate) fn start<W: Future<Output = ()> + Send + 'static>(
        work: impl FnOnce(Arc<Metrics>, CancellationToken) -> W,
    ) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(work(Arc::new(Metrics::new()), stop.clone()));
        Self { stop, task }
    }

    /// Starts the revision controller.
    pub(crate) fn revisions(client: Client, system_namespace: &str) -> Self {
        let (cache, namespace) = (RevisionCache::new(), system_namespace.to_owned());
        Self::start(|metrics, stop| async move {
            let following = cache.follow(client.clone(), stop.clone());
            let pace = Pace::default();
            let running = revision::run(pace, false, client, cache.clone(), namespace, metrics, stop);
            tokio::join!(following, running);
        })
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}
