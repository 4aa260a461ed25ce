//! A controller that runs during a test.

use std::sync::Arc;

use olm_runtime::metrics::Metrics;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A running controller, stopped by [`RunningController::stop`].
pub struct RunningController {
    stop: CancellationToken,
    task: JoinHandle<()>,
    /// Its metrics.
    pub metrics: Arc<Metrics>,
}

impl RunningController {
    /// Starts `work` with metrics and the token that stops it.
    pub fn start<W: Future<Output = ()> + Send + 'static>(
        work: impl FnOnce(Arc<Metrics>, CancellationToken) -> W,
    ) -> Self {
        let (metrics, stop) = (Arc::new(Metrics::new()), CancellationToken::new());
        let task = tokio::spawn(work(Arc::clone(&metrics), stop.clone()));
        Self { stop, task, metrics }
    }

    /// Stops it.
    ///
    /// # Panics
    /// It has panicked.
    pub async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}
