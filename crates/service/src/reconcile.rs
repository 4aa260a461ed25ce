//! One frame around every reconcile: the log lines that tests rely on, metrics, per-object backoff, and a
//! defect in one object kept from the others (spec 02 §C4, spec 06 F3).
//!
//! A status write wakes its own controller. [`Reconciles::waiting`] tells such a wake-up from a change, so
//! that a failing object keeps its backoff.

use std::collections::HashMap;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use kube::runtime::controller::Action;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::metrics::{Metrics, ReconcileResult};

/// Every object is looked at again at least this often.
pub const RESYNC: Duration = Duration::from_secs(36_000);

/// An attempt that broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The cause, for the log.
    pub message: String,
    /// Whether only a change of the object can help.
    pub terminal: bool,
    /// When the next attempt is made at the latest: then there is something to say about the failure.
    pub by: Option<Instant>,
}

impl Failure {
    /// An attempt that may work next time.
    pub fn retry(cause: impl std::fmt::Display) -> Self {
        Self { message: cause.to_string(), terminal: false, by: None }
    }

    /// An attempt that cannot work before the object changes.
    pub fn terminal(cause: impl std::fmt::Display) -> Self {
        Self { message: cause.to_string(), terminal: true, by: None }
    }

    /// The same failure, retried no later than `by`. A time that has passed sets no limit.
    #[must_use]
    pub fn no_later_than(self, by: Option<Instant>) -> Self {
        Self { by, ..self }
    }
}

/// The reconciles of one controller.
#[derive(Debug)]
pub struct Reconciles {
    controller: &'static str,
    kind: &'static str,
    concurrency: u16,
    metrics: Arc<Metrics>,
    longest_delay: Duration,
    failing: Mutex<Failing>,
}

/// The objects whose last attempt failed.
#[derive(Debug, Default)]
struct Failing {
    backoff: Backoff<String>,
    /// Generation of the last attempt, for objects that [`Reconciles::waiting`] was asked about.
    attempted: HashMap<String, Option<i64>>,
    /// Generation that failed, and when it is tried again.
    due: HashMap<String, (Option<i64>, Instant)>,
}

impl Reconciles {
    /// Frames the reconciles of `controller` over objects of `kind`, at most `concurrency` at once.
    pub fn new(
        controller: &'static str,
        kind: &'static str,
        concurrency: u16,
        metrics: Arc<Metrics>,
    ) -> Self {
        metrics.start_controller(controller, concurrency);
        Self {
            controller,
            kind,
            concurrency,
            metrics,
            longest_delay: Duration::MAX,
            failing: Mutex::default(),
        }
    }

    pub(crate) fn controller(&self) -> &'static str {
        self.controller
    }

    pub(crate) fn concurrency(&self) -> u16 {
        self.concurrency
    }

    /// Lets no failed attempt wait longer than this, for objects whose trouble ends without an event.
    #[must_use]
    pub fn with_longest_delay(self, longest_delay: Duration) -> Self {
        Self { longest_delay, ..self }
    }

    /// How long the object `name` still has to wait because this very `generation` failed; `None` where an
    /// attempt is due, which [`Self::run`] is to make next.
    pub fn waiting(&self, name: &str, generation: Option<i64>) -> Option<Action> {
        let mut failing = self.failing();
        let left =
            failing.due.get(name).filter(|(failed, _)| *failed == generation).and_then(|(_, due)| {
                due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
            });
        if left.is_none() {
            failing.attempted.insert(name.to_owned(), generation);
        }
        left.map(Action::requeue)
    }

    /// Lets every failing object try again at once, because something that all depend on changed.
    pub fn forget_failures(&self) {
        *self.failing() = Failing::default();
    }

    /// Runs one attempt on the object `name`. A failure is logged and retried with backoff, a terminal one
    /// waits for a change; the controller itself never sees an error.
    ///
    /// # Errors
    /// None.
    pub async fn run(
        &self,
        name: &str,
        attempt: impl Future<Output = Result<Action, Failure>>,
    ) -> Result<Action, Infallible> {
        tracing::info!(controller = self.controller, kind = self.kind, name, "reconcile starting");
        let underway = self.metrics.reconcile_started(self.controller);
        let started = Instant::now();
        let outcome = AssertUnwindSafe(attempt).catch_unwind().await;
        let (action, result) = match outcome {
            Ok(Ok(action)) => {
                self.reset(name);
                if action == Action::await_change() {
                    (Action::requeue(RESYNC), ReconcileResult::Success)
                } else {
                    (action, ReconcileResult::RequeueAfter)
                }
            }
            Ok(Err(failure)) if failure.terminal => {
                tracing::error!(
                    controller = self.controller,
                    name,
                    error = failure.message,
                    "reconcile failed for good"
                );
                (self.retry(name, failure.by, Some(RESYNC)), ReconcileResult::TerminalError)
            }
            Ok(Err(failure)) => {
                tracing::error!(
                    controller = self.controller,
                    name,
                    error = failure.message,
                    "reconcile failed"
                );
                (self.retry(name, failure.by, None), ReconcileResult::Error)
            }
            Err(_) => {
                tracing::error!(controller = self.controller, name, "reconcile panicked: this is a defect");
                (self.retry(name, None, None), ReconcileResult::Panic)
            }
        };
        self.metrics.reconcile_ended(self.controller, underway, result, started.elapsed());
        tracing::info!(controller = self.controller, kind = self.kind, name, "reconcile ending");
        Ok(action)
    }

    fn retry(&self, name: &str, by: Option<Instant>, after: Option<Duration>) -> Action {
        let mut failing = self.failing();
        let delay = after.unwrap_or_else(|| failing.backoff.next(name.to_owned()).min(self.longest_delay));
        let left = by.and_then(|by| by.checked_duration_since(Instant::now())).filter(|left| !left.is_zero());
        let delay = left.map_or(delay, |left| delay.min(left));
        let generation = failing.attempted.get(name).copied().flatten();
        failing.due.insert(name.to_owned(), (generation, Instant::now() + delay));
        Action::requeue(delay)
    }

    fn reset(&self, name: &str) {
        let mut failing = self.failing();
        failing.backoff.reset(name);
        failing.due.remove(name);
        failing.attempted.remove(name);
    }

    fn failing(&self) -> MutexGuard<'_, Failing> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // spec 06 §10.3: a defect is counted, tried again with backoff, and breaks nothing else
    #[tokio::test]
    async fn outcomes() {
        let metrics = Arc::new(Metrics::new());
        let reconciles = Reconciles::new("c", "K", 1, Arc::clone(&metrics));
        let run = async |outcome: Result<Action, Failure>| {
            let Ok(action) = reconciles.run("a", async { outcome }).await;
            action
        };
        let millis = |n| Action::requeue(Duration::from_millis(n));
        assert_eq!(run(Err(Failure::retry("x"))).await, millis(5));
        assert_eq!(run(Err(Failure::retry("x"))).await, millis(10));
        assert_eq!(run(Ok(millis(7))).await, millis(7));
        assert_eq!(run(Err(Failure::retry("x"))).await, millis(5));
        assert_eq!(run(Err(Failure::terminal("x"))).await, Action::requeue(RESYNC));
        assert_eq!(run(Ok(Action::await_change())).await, Action::requeue(RESYNC));
        let Ok(action) = reconciles.run("a", async { panic!("defect") }).await;
        assert_eq!(action, millis(5));
        assert_eq!(run(Err(Failure::retry("x"))).await, millis(10));
        let panics = "controller_runtime_reconcile_panics_total{controller=\"c\"} 1";
        let text = metrics.prometheus_text();
        assert!(text.lines().any(|line| line == panics), "{text}");
    }

    #[tokio::test]
    async fn delays_have_a_limit_of_their_own() {
        let limit = Duration::from_secs(30);
        let reconciles = Reconciles::new("c", "K", 1, Arc::new(Metrics::new())).with_longest_delay(limit);
        let mut delays = Vec::new();
        for _ in 0..20 {
            let Ok(action) = reconciles.run("a", async { Err(Failure::retry("x")) }).await;
            delays.push(action);
        }
        assert_eq!(delays[12], Action::requeue(Duration::from_millis(20_480)));
        assert!(delays[13..].iter().all(|delay| *delay == Action::requeue(limit)));
        let Ok(action) = reconciles.run("a", async { Err(Failure::terminal("x")) }).await;
        assert_eq!(action, Action::requeue(RESYNC));
    }

    #[tokio::test(start_paused = true)]
    async fn failure_with_limit_is_retried_before_it() {
        let reconciles = Reconciles::new("c", "K", 1, Arc::new(Metrics::new()));
        let by = Instant::now() + Duration::from_millis(12);
        let fail = async || {
            let failure = Failure::retry("x").no_later_than(Some(by));
            let Ok(action) = reconciles.run("a", async { Err(failure) }).await;
            action
        };
        let millis = |n| Action::requeue(Duration::from_millis(n));
        assert_eq!((fail().await, fail().await, fail().await), (millis(5), millis(10), millis(12)));
        tokio::time::advance(Duration::from_millis(12)).await;
        assert_eq!(fail().await, millis(40));
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_generation_that_failed_waits() {
        let reconciles = Reconciles::new("c", "K", 1, Arc::new(Metrics::new()));
        let fail = async |failure| reconciles.run("a", async { Err(failure) }).await;
        assert_eq!(reconciles.waiting("a", Some(1)), None);
        let Ok(_) = fail(Failure::retry("x")).await;
        assert_eq!(reconciles.waiting("a", Some(1)), Some(Action::requeue(Duration::from_millis(5))));
        assert_eq!(reconciles.waiting("a", Some(2)), None);
        assert_eq!(reconciles.waiting("b", Some(1)), None);
        tokio::time::advance(Duration::from_millis(5)).await;
        assert_eq!(reconciles.waiting("a", Some(1)), None);
        let Ok(_) = fail(Failure::terminal("x")).await;
        assert_eq!(reconciles.waiting("a", Some(1)), Some(Action::requeue(RESYNC)));
        reconciles.forget_failures();
        assert_eq!(reconciles.waiting("a", Some(1)), None);
    }
}
