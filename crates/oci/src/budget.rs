//! Retries and time that the requests of one operation may use, and permits that they hold meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// A transfer without any data for this long gives up its permit.
const SILENCE: Duration = Duration::from_secs(2);

/// Retries of failed requests: those that reached no server, 429 and 5xx.
#[derive(Debug, Clone)]
pub struct Retry {
    /// Total number of attempts.
    pub attempts: u32,
    /// Delay before the second attempt. Each further delay doubles, and up to half of it is removed at random. A
    /// `Retry-After` header takes precedence.
    pub first_delay: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 5, first_delay: Duration::from_millis(250) }
    }
}

/// Retries, deadline and progress of requests.
#[derive(Clone)]
pub(crate) struct RequestBudget {
    pub(crate) retry: Retry,
    /// No delay starts that would end after this time.
    pub(crate) deadline: Instant,
    /// Number of blob chunks received so far.
    received: Arc<AtomicU64>,
}

impl RequestBudget {
    pub(crate) fn new(retry: Retry, deadline: Instant) -> Self {
        Self { retry, deadline, received: Arc::default() }
    }

    /// Runs `work` with one of the `permits`. The permit is released early if no data arrives for [`SILENCE`], so
    /// that hanging requests do not block others.
    pub(crate) async fn with_permit<T>(
        &self,
        permits: &Semaphore,
        mut work: impl Future<Output = T> + Unpin,
    ) -> T {
        let permit = permits.acquire().await;
        loop {
            let before = self.received();
            match timeout(SILENCE, &mut work).await {
                Ok(done) => return done,
                Err(_) if self.received() > before => {}
                Err(_) => break,
            }
        }
        drop(permit);
        work.await
    }

    /// Records progress of a transfer.
    pub(crate) fn count_chunk(&self) {
        self.received.fetch_add(1, Ordering::Relaxed);
    }

    fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}
