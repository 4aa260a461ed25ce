//! Frame of every reconcile: the log lines that tests rely on, metrics, per-object backoff, and isolation of panics
//! (docs/design/catalogd.md#reconcile-order, docs/design/operations.md#logs).
//!
//! A status write triggers its own controller. [`Reconciles::waiting`] distinguishes such an event from a change,
//! so that a failing object keeps its backoff.

use std::collections::HashMap;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kube::runtime::controller::Action;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::cluster::describe;
use crate::metrics::{Metrics, ReconcileResult};
use crate::traces::failed;

/// Maximum time between two reconciles of an object.
pub const RESYNC: Duration = Duration::from_secs(36_000);

/// Follow-up of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// Retried with backoff.
    Retry,
    /// 409: retried with backoff, not reported as an error.
    Conflict,
    /// Retried only on a change of the object.
    Terminal,
    /// The outcome is pending and triggers the next attempt, which starts after this time at the latest. The
    /// attempt neither counts as a failure nor resets the backoff.
    Pending(Duration),
}

/// An attempt that failed, or has no outcome yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReconcileError {
    /// The cause, for the log.
    pub message: String,
    /// The follow-up.
    pub class: ErrorClass,
    /// Latest time of the next attempt, if there is more to report about the failure then.
    pub by: Option<Instant>,
}

impl ReconcileError {
    /// A failure that is terminal or retried.
    pub fn new(cause: impl std::fmt::Display, terminal: bool) -> Self {
        let class = if terminal { ErrorClass::Terminal } else { ErrorClass::Retry };
        Self { message: cause.to_string(), class, by: None }
    }

    /// A failure that is retried.
    pub fn retry(cause: impl std::fmt::Display) -> Self {
        Self::new(cause, false)
    }

    /// A failure that is retried only on a change of the object.
    pub fn terminal(cause: impl std::fmt::Display) -> Self {
        Self::new(cause, true)
    }

    /// An attempt whose outcome is pending, see [`ErrorClass::Pending`].
    pub fn pending(after: Duration) -> Self {
        Self { class: ErrorClass::Pending(after), ..Self::retry("pending") }
    }

    /// A failed write. `what` describes it, such as `error updating status`.
    pub fn write(what: &str, error: &kube::Error) -> Self {
        let is_conflict = matches!(error, kube::Error::Api(status) if status.is_conflict());
        let class = if is_conflict { ErrorClass::Conflict } else { ErrorClass::Retry };
        Self { class, ..Self::retry(format!("{what}: {}", describe(error))) }
    }

    /// The same failure, retried no later than `by`. A time in the past has no effect.
    #[must_use]
    pub fn no_later_than(self, by: Option<Instant>) -> Self {
        Self { by, ..self }
    }
}

/// Backoff, metrics and logging for the reconciles of one controller.
#[derive(Debug)]
pub struct Reconciles {
    pub(crate) controller: &'static str,
    kind: &'static str,
    pub(crate) concurrency: u16,
    metrics: Arc<Metrics>,
    longest_delay: Duration,
    /// Caches on which the attempts depend: `true` while synced.
    caches: Vec<watch::Receiver<bool>>,
    /// Objects whose last attempt failed, or that were passed to [`Self::waiting`].
    failing: Mutex<HashMap<String, Failure>>,
}

/// State of an object since its last success.
#[derive(Debug, Default)]
struct Failure {
    backoff: Backoff,
    /// Generation of the last attempt, for objects passed to [`Reconciles::waiting`].
    attempted: Option<i64>,
    /// Generation that failed, and the time of the retry.
    due: Option<(Option<i64>, Instant)>,
    /// The last cause that was logged.
    logged: Option<String>,
}

impl Reconciles {
    /// The frame of the reconciles of `controller` over objects of `kind`, at most `limit` at once.
    pub fn new(controller: &'static str, kind: &'static str, limit: u16, metrics: Arc<Metrics>) -> Self {
        metrics.start_controller(controller, limit);
        let (longest_delay, caches, failing) = (Duration::MAX, Vec::new(), Mutex::default());
        Self { controller, kind, concurrency: limit, metrics, longest_delay, caches, failing }
    }

    /// Limits the backoff, for objects whose failure can end without an event.
    #[must_use]
    pub fn with_longest_delay(self, longest_delay: Duration) -> Self {
        Self { longest_delay, ..self }
    }

    /// Makes attempts only while this cache is synced: its watch has listed since its last failure.
    #[must_use]
    pub fn with_cache(mut self, synced: watch::Receiver<bool>) -> Self {
        self.caches.push(synced);
        self
    }

    /// Waits until all caches are synced.
    pub(crate) async fn until_synced(&self) {
        for cache in &self.caches {
            // Fails when the cache has ended, with the process.
            let _ = cache.clone().wait_for(|synced| *synced).await;
        }
    }

    /// Time left until the retry of the object `name`, if this `generation` failed. `None` if an attempt is due.
    /// The caller then makes it with [`Self::run`].
    pub fn waiting(&self, name: &str, generation: Option<i64>) -> Option<Action> {
        let mut failing = self.failing.lock();
        let state = failing.entry(name.to_owned()).or_default();
        let due = state.due.filter(|(failed, _)| *failed == generation).map(|(_, due)| due);
        let left = due.and_then(time_left);
        if left.is_none() {
            state.attempted = generation;
        }
        left.map(Action::requeue)
    }

    /// Resets the backoff of all failing objects, because an input that all depend on changed.
    pub fn forget_failures(&self) {
        self.failing.lock().retain(|_, state| {
            *state = Failure { logged: state.logged.take(), ..Failure::default() };
            state.logged.is_some()
        });
    }

    /// Runs one attempt on the object `name`. A failure is logged and retried with backoff, a terminal one waits
    /// for a change. The controller never receives an error.
    ///
    /// # Errors
    /// None.
    pub async fn run(
        &self,
        name: &str,
        attempt: impl Future<Output = Result<Action, ReconcileError>>,
    ) -> Result<Action, Infallible> {
        tracing::info!(controller = self.controller, kind = self.kind, name, "reconcile starting");
        let running = self.metrics.reconcile_started(self.controller);
        let started = Instant::now();
        let outcome = AssertUnwindSafe(attempt).catch_unwind().await;
        let (action, result) = match outcome {
            Ok(Ok(action)) => {
                self.failing.lock().remove(name);
                if action == Action::await_change() {
                    (Action::requeue(RESYNC), ReconcileResult::Success)
                } else {
                    (action, ReconcileResult::RequeueAfter)
                }
            }
            Ok(Err(failure)) => {
                self.log(name, &failure);
                match failure.class {
                    ErrorClass::Terminal => {
                        (self.retry(name, failure.by, Some(RESYNC)), ReconcileResult::TerminalError)
                    }
                    ErrorClass::Retry => (self.retry(name, failure.by, None), ReconcileResult::Error),
                    ErrorClass::Conflict => {
                        (self.retry(name, failure.by, None), ReconcileResult::RequeueAfter)
                    }
                    ErrorClass::Pending(after) => {
                        if let Some(state) = self.failing.lock().get_mut(name) {
                            state.due = None;
                        }
                        (Action::requeue(after), ReconcileResult::RequeueAfter)
                    }
                }
            }
            Err(_) => {
                tracing::error!(controller = self.controller, name, "reconcile panicked: this is a defect");
                failed(&"panic");
                (self.retry(name, None, None), ReconcileResult::Panic)
            }
        };
        self.metrics.reconcile_ended(self.controller, running, result, started.elapsed());
        tracing::info!(controller = self.controller, kind = self.kind, name, "reconcile ending");
        Ok(action)
    }

    /// Logs an error, once per cause. Each trace has it.
    fn log(&self, name: &str, ReconcileError { message, class, .. }: &ReconcileError) {
        let controller = self.controller;
        let outcome = match class {
            ErrorClass::Conflict => {
                return tracing::info!(controller, name, cause = message, "requeued after conflict");
            }
            ErrorClass::Pending(_) => return,
            ErrorClass::Terminal => "reconcile failed permanently",
            ErrorClass::Retry => "reconcile failed",
        };
        failed(message);
        let logged = self.failing.lock().entry(name.to_owned()).or_default().logged.replace(message.clone());
        if logged.as_ref() != Some(message) {
            tracing::error!(controller, name, error = message, "{outcome}");
        }
    }

    fn retry(&self, name: &str, by: Option<Instant>, after: Option<Duration>) -> Action {
        let mut failing = self.failing.lock();
        let state = failing.entry(name.to_owned()).or_default();
        let delay = after.unwrap_or_else(|| state.backoff.next_delay().min(self.longest_delay));
        let delay = by.and_then(time_left).map_or(delay, |left| delay.min(left));
        state.due = Some((state.attempted, Instant::now() + delay));
        Action::requeue(delay)
    }
}

/// Time until `due`, `None` if it is over.
fn time_left(due: Instant) -> Option<Duration> {
    due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    // docs/design/operations.md#process: a panic is counted, retried with backoff, and does not affect other
    // objects
    #[tokio::test]
    async fn outcome_determines_requeue_delay() {
        let metrics = Arc::new(Metrics::new());
        let reconciles = Reconciles::new("c", "K", 1, Arc::clone(&metrics));
        let run = async |outcome: Result<Action, ReconcileError>| {
            let Ok(action) = reconciles.run("a", async { outcome }).await;
            action
        };
        let millis = |n| Action::requeue(Duration::from_millis(n));
        assert_eq!(run(Err(ReconcileError::retry("x"))).await, millis(5));
        assert_eq!(run(Err(ReconcileError::retry("x"))).await, millis(10));
        assert_eq!(run(Err(ReconcileError::pending(RESYNC))).await, Action::requeue(RESYNC));
        assert_eq!(run(Err(ReconcileError::retry("x"))).await, millis(20));
        assert_eq!(run(Ok(millis(7))).await, millis(7));
        assert_eq!(run(Err(ReconcileError::retry("x"))).await, millis(5));
        assert_eq!(run(Err(ReconcileError::terminal("x"))).await, Action::requeue(RESYNC));
        assert_eq!(run(Ok(Action::await_change())).await, Action::requeue(RESYNC));
        let Ok(action) = reconciles.run("a", async { panic!("defect") }).await;
        assert_eq!(action, millis(5));
        assert_eq!(run(Err(ReconcileError::retry("x"))).await, millis(10));
        let panics = "controller_runtime_reconcile_panics_total{controller=\"c\"} 1";
        let text = metrics.prometheus_text();
        assert!(text.lines().any(|line| line == panics), "{text}");
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn unchanged_failure_is_logged_once_and_conflict_is_not_an_error() {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter("info,olm_traces=off")
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        let _logging = tracing::subscriber::set_default(subscriber);
        let reconciles = Reconciles::new("c", "K", 1, Arc::new(Metrics::new()));
        let conflict = kube::core::Status::failure("x", "Conflict").with_code(409);
        let conflict = ReconcileError::write("error updating status", &kube::Error::Api(Box::new(conflict)));
        let outcomes = [
            (Err(ReconcileError::terminal("x")), true),
            (Err(ReconcileError::terminal("x")), false),
            (Err(conflict.clone()), false),
            (Err(ReconcileError::terminal("x")), false),
            (Err(ReconcileError::retry("y")), true),
            (Err(ReconcileError::retry("y")), false),
            (Ok(Action::await_change()), false),
            (Err(ReconcileError::retry("y")), true),
        ];
        for (step, (outcome, is_error)) in outcomes.into_iter().enumerate() {
            reconciles.forget_failures();
            lines.0.lock().clear();
            let is_conflict = outcome == Err(conflict.clone());
            let Ok(_) = reconciles.run("a", async { outcome }).await;
            let text = String::from_utf8(lines.0.lock().clone()).unwrap();
            assert_eq!(text.contains(" ERROR "), is_error, "{step}: {text}");
            assert_eq!(text.contains("requeued after conflict"), is_conflict, "{step}: {text}");
        }
    }

    #[tokio::test]
    async fn backoff_is_limited_by_longest_delay() {
        let limit = Duration::from_secs(30);
        let reconciles = Reconciles::new("c", "K", 1, Arc::new(Metrics::new())).with_longest_delay(limit);
        let mut delays = Vec::new();
        for _ in 0..20 {
            let Ok(action) = reconciles.run("a", async { Err(ReconcileError::retry("x")) }).await;
            delays.push(action);
        }
        assert_eq!(delays[12], Action::requeue(Duration::from_millis(20_480)));
        assert!(delays[13..].iter().all(|delay| *delay == Action::requeue(limit)));
        let Ok(action) = reconciles.run("a", async { Err(ReconcileError::terminal("x")) }).await;
        assert_eq!(action, Action::requeue(RESYNC));
    }

    #[tokio::test(start_paused = true)]
    async fn failure_with_deadline_is_retried_no_later() {
        let reconciles = Reconciles::new("c", "K", 1, Arc::new(Metrics::new()));
        let by = Instant::now() + Duration::from_millis(12);
        let fail = async || {
            let failure = ReconcileError::retry("x").no_later_than(Some(by));
            let Ok(action) = reconciles.run("a", async { Err(failure) }).await;
            action
        };
        let millis = |n| Action::requeue(Duration::from_millis(n));
        assert_eq!((fail().await, fail().await, fail().await), (millis(5), millis(10), millis(12)));
        tokio::time::advance(Duration::from_millis(12)).await;
        assert_eq!(fail().await, millis(40));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_applies_to_failed_generation_only() {
        let reconciles = Reconciles::new("c", "K", 1, Arc::new(Metrics::new()));
        let fail = async |failure| reconciles.run("a", async { Err(failure) }).await;
        assert_eq!(reconciles.waiting("a", Some(1)), None);
        let Ok(_) = fail(ReconcileError::retry("x")).await;
        assert_eq!(reconciles.waiting("a", Some(1)), Some(Action::requeue(Duration::from_millis(5))));
        assert_eq!(reconciles.waiting("a", Some(2)), None);
        assert_eq!(reconciles.waiting("b", Some(1)), None);
        tokio::time::advance(Duration::from_millis(5)).await;
        assert_eq!(reconciles.waiting("a", Some(1)), None);
        let Ok(_) = fail(ReconcileError::terminal("x")).await;
        assert_eq!(reconciles.waiting("a", Some(1)), Some(Action::requeue(RESYNC)));
        reconciles.forget_failures();
        assert_eq!(reconciles.waiting("a", Some(1)), None);
    }
}
