//! Running reconciles: their number, `workqueue_*` metrics of started work, and stuck workers
//! (docs/design/operations.md#metric-names, docs/design/operations.md#probes). Waiting objects are not measured.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tokio::time::Instant;

use crate::samples::{Labels, gauges};

/// Start times of the running reconciles, by controller.
#[derive(Clone, Debug, Default)]
pub struct Workers(Arc<Mutex<BTreeMap<&'static str, Vec<Instant>>>>);

impl Workers {
    /// Creates the series of a controller before its first attempt.
    pub(crate) fn create_series(&self, controller: &'static str) {
        self.0.lock().entry(controller).or_default();
    }

    /// Records the start of an attempt. It ends when the returned value is dropped.
    pub fn begin(&self, controller: &'static str) -> RunningAttempt {
        let started = Instant::now();
        self.0.lock().entry(controller).or_default().push(started);
        RunningAttempt { workers: self.clone(), controller, started }
    }

    /// Run time of the oldest running attempt.
    pub fn longest(&self) -> Duration {
        self.0.lock().values().flatten().min().map(Instant::elapsed).unwrap_or_default()
    }
}

/// A running attempt, until dropped.
#[derive(Debug)]
pub struct RunningAttempt {
    workers: Workers,
    controller: &'static str,
    started: Instant,
}

impl Drop for RunningAttempt {
    fn drop(&mut self) {
        if let Some(running) = self.workers.0.lock().get_mut(self.controller)
            && let Some(position) = running.iter().position(|started| *started == self.started)
        {
            running.swap_remove(position);
        }
    }
}

impl Collector for Workers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let seconds = |started: &Vec<Instant>| started.iter().map(|at| at.elapsed().as_secs_f64()).collect();
        let seconds: Vec<(&str, Vec<f64>)> =
            self.0.lock().iter().map(|(controller, started)| (*controller, seconds(started))).collect();
        let active = seconds
            .iter()
            .map(|(controller, all)| ([("controller", (*controller).to_owned())], all.len() as f64));
        gauges(&mut encoder, "controller_runtime_active_workers", "Reconciles that run now", active)?;
        let labels = |controller: &str| -> Labels<2> {
            [("controller", controller.to_owned()), ("name", controller.to_owned())]
        };
        let unfinished = seconds.iter().map(|(controller, all)| (labels(controller), all.iter().sum()));
        let longest = seconds
            .iter()
            .map(|(controller, all)| (labels(controller), all.iter().copied().fold(0.0, f64::max)));
        let help = "Total run time of the running reconciles in seconds";
        gauges(&mut encoder, "workqueue_unfinished_work_seconds", help, unfinished)?;
        let help = "Run time of the oldest running reconcile in seconds";
        gauges(&mut encoder, "workqueue_longest_running_processor_seconds", help, longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn longest_returns_run_time_of_oldest_attempt() {
        let workers = Workers::default();
        assert_eq!(workers.longest(), Duration::ZERO);
        let first = workers.begin("a");
        tokio::time::advance(Duration::from_secs(3)).await;
        let second = workers.begin("b");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(workers.longest(), Duration::from_secs(5));
        drop(first);
        assert_eq!(workers.longest(), Duration::from_secs(2));
        drop(second);
        assert_eq!(workers.longest(), Duration::ZERO);
    }
}
