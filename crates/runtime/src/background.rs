//! Background work that outlives the reconcile that started it: one task for each key.
//!
//! A reconcile waits a moment for the outcome. If the task ends later, it requeues the object, whose next reconcile
//! takes the outcome. A task is cancelled when its object needs other work or none. A successor starts after the task
//! has ended.

use std::collections::HashMap;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures::{FutureExt, Stream, stream};
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// Maximum wait of a reconcile for a task, from the start of the task.
const PATIENCE: Duration = Duration::from_millis(1200);
/// Maximum number of reconciles that wait. More slots than that remain free in a controller.
const WAITING: usize = 16;

/// The task is still running. Holds its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending(pub Instant);

/// Tasks by key. `W` describes the work of a task, `T` is its outcome.
pub struct Background<W, T> {
    tasks: Tasks<W, T>,
    waiting: Semaphore,
    stop: CancellationToken,
    ended: mpsc::UnboundedSender<String>,
    /// Receiver of `ended`, until a controller takes it.
    wakes: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
}

type Tasks<W, T> = Arc<Mutex<HashMap<String, Task<W, T>>>>;

struct Task<W, T> {
    want: W,
    since: Instant,
    cancel: CancellationToken,
    ended: CancellationToken,
    /// The outcome or the panic of an ended task that was not cancelled.
    outcome: Option<thread::Result<T>>,
    /// `true` if a reconcile waits for the end, so that no wake-up is needed.
    is_awaited: bool,
    /// Requested since the last [`Background::release_unrequested`].
    is_asked: bool,
}

impl<W: Clone + PartialEq + Send + 'static, T: Send + 'static> Background<W, T> {
    /// A manager without tasks. Cancelling `stop` cancels all tasks.
    pub fn new(stop: &CancellationToken) -> Self {
        let (ended, wakes) = mpsc::unbounded_channel();
        let (waiting, wakes) = (Semaphore::new(WAITING), Mutex::new(Some(wakes)));
        Self { tasks: Arc::default(), waiting, stop: stop.clone(), ended, wakes }
    }

    /// Objects whose task ended while no reconcile waited for it. Only the first call returns events.
    pub fn wakes<K: Resource<DynamicType: Default + Eq + Hash>>(
        &self,
    ) -> impl Stream<Item = ObjectRef<K>> + Send + use<K, W, T> {
        stream::unfold(self.wakes.lock().take(), async |wakes| {
            let mut wakes = wakes?;
            let key = wakes.recv().await?;
            Some((ObjectRef::new(&key), Some(wakes)))
        })
    }

    /// Outcome of the task for `key` that works on `want`. Starts `work` if there is none. `work` must end soon
    /// after its token is cancelled. A panic of the task is resumed here.
    ///
    /// # Errors
    /// The task has not ended within the time that a reconcile may wait. Its end requeues the object.
    pub async fn outcome<F: Future<Output = T> + Send + 'static>(
        &self,
        key: &str,
        want: W,
        work: impl Fn(CancellationToken) -> F,
    ) -> Result<T, Pending> {
        let slot = self.waiting.try_acquire();
        loop {
            let (ended, deadline) = {
                let mut tasks = self.tasks.lock();
                if tasks.get(key).is_some_and(|task| task.outcome.is_some())
                    && let Some(Task { outcome: Some(outcome), want: done, .. }) = tasks.remove(key)
                    && done == want
                {
                    drop(tasks);
                    return Ok(outcome.unwrap_or_else(|panic| resume_unwind(panic)));
                }
                let start = || self.start(key, want.clone(), &work);
                let task = tasks.entry(key.to_owned()).or_insert_with(start);
                task.is_asked = true;
                if task.want != want && !task.cancel.is_cancelled() {
                    task.cancel.cancel();
                    task.since = Instant::now();
                }
                let deadline = task.since + PATIENCE;
                task.is_awaited = slot.is_ok() && !self.stop.is_cancelled() && Instant::now() < deadline;
                if !task.is_awaited {
                    return Err(Pending(task.since));
                }
                (task.ended.clone(), deadline)
            };
            // After a timeout the next iteration returns `Pending`.
            let _ = timeout_at(deadline, ended.cancelled()).await;
        }
    }

    fn start<F: Future<Output = T> + Send + 'static>(
        &self,
        key: &str,
        want: W,
        work: impl FnOnce(CancellationToken) -> F,
    ) -> Task<W, T> {
        let (cancel, ended) = (self.stop.child_token(), CancellationToken::new());
        let work = AssertUnwindSafe(work(cancel.clone()).boxed()).catch_unwind();
        let (tasks, wake) = (Arc::clone(&self.tasks), self.ended.clone());
        let (key, end) = (key.to_owned(), ended.clone());
        tokio::spawn(async move {
            let outcome = work.await;
            let mut tasks = tasks.lock();
            let task = tasks.get_mut(&key);
            let is_awaited = task.as_ref().is_some_and(|task| task.is_awaited);
            match task {
                Some(task) if !task.cancel.is_cancelled() => task.outcome = Some(outcome),
                _ => drop(tasks.remove(&key)),
            }
            if !is_awaited {
                // Fails if no controller receives.
                let _ = wake.send(key);
            }
            end.cancel();
        });
        let since = Instant::now();
        Task { want, since, cancel, ended, outcome: None, is_awaited: false, is_asked: true }
    }

    /// Cancels the task for `key`, or drops its outcome.
    pub fn release(&self, key: &str) {
        let mut tasks = self.tasks.lock();
        match tasks.get(key) {
            Some(task) if task.outcome.is_none() => task.cancel.cancel(),
            _ => drop(tasks.remove(key)),
        }
    }

    /// [`release`](Self::release)s the task for `key` unless it was requested since the last call.
    pub fn release_unrequested(&self, key: &str) {
        if !self.tasks.lock().get_mut(key).is_none_or(|task| std::mem::take(&mut task.is_asked)) {
            self.release(key);
        }
    }

    /// [`release`](Self::release)s the task for `key` and waits for its end.
    pub async fn end(&self, key: &str) {
        self.release(key);
        let ended = self.tasks.lock().get(key).map(|task| task.ended.clone());
        if let Some(ended) = ended {
            ended.cancelled().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::StreamExt;
    use futures::future::join_all;
    use k8s_openapi::api::core::v1::Namespace;
    use tokio::sync::Notify;

    use super::*;

    type Numbers = Background<&'static str, u32>;

    fn numbers() -> Numbers {
        Background::new(&CancellationToken::new())
    }

    /// Work that ends only when cancelled, with outcome 0.
    async fn hanging(stop: CancellationToken) -> u32 {
        stop.cancelled().await;
        0
    }

    async fn requeued(numbers: &mut (impl Stream<Item = ObjectRef<Namespace>> + Unpin)) -> String {
        numbers.next().await.unwrap().name
    }

    #[tokio::test(start_paused = true)]
    async fn quick_task_is_awaited_and_requeues_nothing() {
        let numbers = numbers();
        assert_eq!(numbers.outcome("a", "x", |_| ready(1)).await, Ok(1));
        assert_eq!(numbers.outcome("a", "x", |_| ready(2)).await, Ok(2));
        let mut wakes = Box::pin(numbers.wakes::<Namespace>());
        assert!(futures::poll!(wakes.next()).is_pending());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_task_runs_once_and_requeues_its_object() {
        let (numbers, started, end) = (numbers(), AtomicUsize::new(0), Arc::new(Notify::new()));
        let mut wakes = Box::pin(numbers.wakes::<Namespace>());
        let work = |_| {
            started.fetch_add(1, Ordering::Relaxed);
            let end = Arc::clone(&end);
            async move {
                end.notified().await;
                7
            }
        };
        let since = Instant::now();
        assert_eq!(numbers.outcome("a", "x", work).await, Err(Pending(since)));
        assert_eq!(since.elapsed(), PATIENCE);
        // The deadline has passed: returns without waiting.
        assert_eq!(numbers.outcome("a", "x", work).await, Err(Pending(since)));
        assert_eq!(since.elapsed(), PATIENCE);
        end.notify_one();
        assert_eq!(requeued(&mut wakes).await, "a");
        assert_eq!(numbers.outcome("a", "x", work).await, Ok(7));
        assert_eq!(started.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn superseded_task_is_cancelled_before_its_successor_starts() {
        let numbers = numbers();
        assert!(numbers.outcome("a", "x", hanging).await.is_err());
        assert_eq!(numbers.outcome("a", "y", |_| ready(2)).await, Ok(2));
        // A task that ends slowly delays its successor.
        let (end, started) = (Arc::new(Notify::new()), AtomicUsize::new(0));
        let slow = |_| {
            let end = Arc::clone(&end);
            async move {
                end.notified().await;
                1
            }
        };
        let next = |_| {
            started.fetch_add(1, Ordering::Relaxed);
            ready(2)
        };
        let mut wakes = Box::pin(numbers.wakes::<Namespace>());
        assert!(numbers.outcome("a", "x", slow).await.is_err());
        assert!(numbers.outcome("a", "y", next).await.is_err());
        assert_eq!(started.load(Ordering::Relaxed), 0);
        end.notify_one();
        assert_eq!(requeued(&mut wakes).await, "a");
        assert_eq!(numbers.outcome("a", "y", next).await, Ok(2));
    }

    #[tokio::test(start_paused = true)]
    async fn unrequested_task_is_released() {
        let numbers = numbers();
        for _ in 0..2 {
            assert!(numbers.outcome("a", "x", hanging).await.is_err());
            numbers.release_unrequested("a");
        }
        assert!(!numbers.tasks.lock()["a"].cancel.is_cancelled());
        numbers.release_unrequested("a");
        numbers.end("a").await;
        assert!(numbers.tasks.lock().is_empty());
        numbers.end("a").await;
    }

    #[tokio::test(start_paused = true)]
    async fn task_panic_is_resumed_in_reconcile() {
        let numbers = numbers();
        let attempt = numbers.outcome("a", "x", |_| async { panic!("defect") });
        assert!(AssertUnwindSafe(attempt).catch_unwind().await.is_err());
        assert_eq!(numbers.outcome("a", "x", |_| ready(1)).await, Ok(1));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_reconciles_are_limited() {
        let numbers = numbers();
        let began = Instant::now();
        let names: Vec<String> = (0..WAITING + 9).map(|number| number.to_string()).collect();
        let attempts = names.iter().map(|name| async {
            assert!(numbers.outcome(name, "x", |_| pending()).await.is_err());
            began.elapsed().is_zero()
        });
        let at_once = join_all(attempts).await.into_iter().filter(|at_once| *at_once).count();
        assert_eq!(at_once, 9);
    }

    #[tokio::test(start_paused = true)]
    async fn stop_cancels_tasks_and_waits() {
        let stop = CancellationToken::new();
        let numbers: Numbers = Background::new(&stop);
        let began = Instant::now();
        let (attempt, ()) = tokio::join!(numbers.outcome("a", "x", hanging), async { stop.cancel() });
        assert!(attempt.is_err());
        assert!(numbers.outcome("a", "x", hanging).await.is_err());
        assert!(began.elapsed().is_zero());
    }
}
