//! The metrics of a server under the names of the reference's dashboards (docs/design/operations.md#metric-names),
//! and their text format.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use olm_oci::LimitCounts;
use olm_oci::policy::PolicySource;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use crate::process::ProcessMetrics;
use crate::samples::{Labels, counters, gauges};
use crate::workers::{RunningAttempt, Workers};

/// Media type of [`Metrics::openmetrics`].
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Media type of [`Metrics::prometheus_text`].
pub const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

const RECONCILE_BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];
/// Bounds of work queues and webhooks in the reference: seconds, ten times apart.
pub const DECIMAL_BUCKETS: [f64; 12] =
    [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0];

/// Constant labels of a series.
pub type ConstLabels<const N: usize> = [(&'static str, &'static str); N];
type ByController<M> = Family<ConstLabels<1>, M>;
type Histograms<const N: usize> = Family<ConstLabels<N>, Histogram, fn() -> Histogram>;

fn of_controller(controller: &'static str) -> ConstLabels<1> {
    [("controller", controller)]
}

/// Labels of the `workqueue_*` series. Both have the same value.
fn of_queue(controller: &'static str) -> ConstLabels<2> {
    [("name", controller), ("controller", controller)]
}

/// All metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    /// Metrics of the process, and those registered since [`Metrics::start_anew`].
    registries: Mutex<Vec<Registry>>,
    reconciles: Family<ConstLabels<2>, Counter>,
    errors: ByController<Counter>,
    terminal_errors: ByController<Counter>,
    panics: ByController<Counter>,
    timeouts: ByController<Counter>,
    time: Histograms<1>,
    max_concurrent: ByController<Gauge>,
    leading: Family<ConstLabels<1>, Gauge>,
    api_requests: Family<Labels<3>, Counter>,
    queue_adds: Family<ConstLabels<2>, Counter>,
    queue_retries: Family<ConstLabels<2>, Counter>,
    queue_work: Histograms<2>,
    pool_errors: Family<ConstLabels<1>, Counter>,
    /// `true` if metrics that have a name in classic OLM are also exported under that name
    /// (docs/design/additions.md#metrics).
    pub classic_names: bool,
    /// The running reconciles.
    pub workers: Workers,
    /// End of the serving certificate's validity in seconds since the Unix epoch, 0 if there is none.
    pub certificate_expiry: Gauge,
    /// Reads of the serving certificate.
    pub certificate_reads: Counter<u64, AtomicU64>,
    /// Failed reads of the serving certificate.
    pub certificate_read_errors: Counter<u64, AtomicU64>,
}

/// Result of a reconcile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// Done until something changes.
    Success,
    /// Done, and requeued after a delay.
    RequeueAfter,
    /// Failed, retried with backoff.
    Error,
    /// Failed, retried only on a change.
    TerminalError,
    /// Panicked, retried with backoff.
    Panic,
}

/// Sources of the image metrics, read at each scrape.
#[derive(Debug)]
struct ImageMetrics {
    exceeded: LimitCounts,
    policy: PolicySource,
}

impl Collector for ImageMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let series = self.exceeded.all().into_iter().map(|(key, count)| ([("key", key.to_owned())], count));
        let help = "Images refused for their size, by the limit that they exceed";
        counters(&mut encoder, "image_limit_exceeded", help, series)?;
        let missing = [([], f64::from(!self.policy.exists()))];
        let help = "1 while there is no signature policy for images";
        gauges(&mut encoder, "image_signature_policy_missing", help, missing)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A registry with all metrics at zero.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let r = &mut registry;
        let time: Histograms<1> = Family::new_with_constructor(|| Histogram::new(RECONCILE_BUCKETS));
        let queue_work: Histograms<2> = Family::new_with_constructor(|| Histogram::new(DECIMAL_BUCKETS));
        let name = |suffix: &str| format!("controller_runtime_{suffix}");
        let metrics = Self {
            reconciles: add(r, name("reconcile"), "Reconciles by controller and result"),
            errors: add(r, name("reconcile_errors"), "Failed reconciles"),
            terminal_errors: add(
                r,
                name("terminal_reconcile_errors"),
                "Failed reconciles that are not retried before a change",
            ),
            panics: add(r, name("reconcile_panics"), "Reconciles that panicked"),
            timeouts: add(r, name("reconcile_timeouts"), "Reconciles that took too long"),
            time: add_as(r, name("reconcile_time_seconds"), "Duration of reconciles in seconds", time),
            max_concurrent: add(
                r,
                name("max_concurrent_reconciles"),
                "Maximum number of concurrent reconciles",
            ),
            leading: add(r, "leader_election_master_status", "1 while this process leads"),
            api_requests: add(r, "rest_client_requests", "Requests to the API server"),
            certificate_reads: add(r, "certwatcher_read_certificate", "Reads of the serving certificate"),
            certificate_read_errors: add(
                r,
                "certwatcher_read_certificate_errors",
                "Reads of the serving certificate that failed",
            ),
            certificate_expiry: add(
                r,
                "certwatcher_certificate_expiry_timestamp_seconds",
                "End of the serving certificate's validity since the Unix epoch in seconds",
            ),
            pool_errors: add(r, "certpool_reload_errors", "CA pools that could not be rebuilt"),
            queue_adds: add(r, "workqueue_adds", "Items added to the queue"),
            queue_retries: add(r, "workqueue_retries", "Items retried after a failure"),
            queue_work: add_as(
                r,
                "workqueue_work_duration_seconds",
                "Duration of reconciles in seconds",
                queue_work,
            ),
            workers: Workers::default(),
            classic_names: false,
            registries: Mutex::new(vec![registry]),
        };
        metrics.register_collector(metrics.workers.clone());
        metrics.register_collector(ProcessMetrics);
        metrics
    }

    /// Drops what was registered since the last call: the controllers that registered it have ended.
    pub fn start_anew(&self) {
        let mut registries = self.registries.lock();
        registries.truncate(1);
        registries.push(Registry::default());
    }

    /// Registers a metric and returns it. `_total` is appended to the names of counters.
    pub fn register<M: Metric + Clone>(&self, name: impl Into<String>, help: &str, metric: M) -> M {
        if let Some(last) = self.registries.lock().last_mut() {
            last.register(name, help, metric.clone());
        }
        metric
    }

    /// Registers metrics that are computed at each scrape.
    pub fn register_collector(&self, collector: impl Collector) {
        if let Some(last) = self.registries.lock().last_mut() {
            last.register_collector(Box::new(collector));
        }
    }

    /// Exports the number of refused images by the limit that they exceed (docs/design/operations.md#image-limits),
    /// and whether a signature policy exists.
    pub fn register_images(&self, exceeded: LimitCounts, policy: PolicySource) {
        self.register_collector(ImageMetrics { exceeded, policy });
    }

    /// Creates the series of a CA pool.
    pub fn create_pool_series(&self, pool: &'static str) {
        drop(self.pool_errors.get_or_create(&[("pool", pool)]));
    }

    /// Counts a failed rebuild of a CA pool.
    pub fn pool_failed(&self, pool: &'static str) {
        self.pool_errors.get_or_create(&[("pool", pool)]).inc();
    }

    /// Creates the series of a controller before its first reconcile.
    pub fn start_controller(&self, controller: &'static str, concurrency: u16) {
        let label = of_controller(controller);
        for result in ["success", "error", "requeue", "requeue_after"] {
            drop(self.reconciles.get_or_create(&[("controller", controller), ("result", result)]));
        }
        for family in [&self.errors, &self.terminal_errors, &self.panics, &self.timeouts] {
            drop(family.get_or_create(&label));
        }
        drop(self.time.get_or_create(&label));
        self.max_concurrent.get_or_create(&label).set(i64::from(concurrency));
        let queue = of_queue(controller);
        drop((self.queue_adds.get_or_create(&queue), self.queue_retries.get_or_create(&queue)));
        drop(self.queue_work.get_or_create(&queue));
        self.workers.create_series(controller);
    }

    /// Records the start of a reconcile. Pass the result to [`Self::reconcile_ended`]. If it is dropped instead,
    /// the reconcile was aborted.
    pub fn reconcile_started(&self, controller: &'static str) -> RunningAttempt {
        self.queue_adds.get_or_create(&of_queue(controller)).inc();
        self.workers.begin(controller)
    }

    /// Records the end of a reconcile.
    pub fn reconcile_ended(
        &self,
        controller: &'static str,
        running: RunningAttempt,
        result: ReconcileResult,
        took: Duration,
    ) {
        drop(running);
        let (label, queue) = (of_controller(controller), of_queue(controller));
        self.queue_work.get_or_create(&queue).observe(took.as_secs_f64());
        self.time.get_or_create(&label).observe(took.as_secs_f64());
        let name = match result {
            ReconcileResult::Success => "success",
            ReconcileResult::RequeueAfter => "requeue_after",
            ReconcileResult::Error | ReconcileResult::TerminalError | ReconcileResult::Panic => "error",
        };
        self.reconciles.get_or_create(&[("controller", controller), ("result", name)]).inc();
        if name == "error" {
            self.errors.get_or_create(&label).inc();
        }
        if matches!(result, ReconcileResult::Error | ReconcileResult::Panic) {
            self.queue_retries.get_or_create(&queue).inc();
        }
        match result {
            ReconcileResult::TerminalError => drop(self.terminal_errors.get_or_create(&label).inc()),
            ReconcileResult::Panic => drop(self.panics.get_or_create(&label).inc()),
            _ => {}
        }
    }

    /// Sets whether this process holds the Lease.
    pub fn set_leading(&self, lease: &'static str, leading: bool) {
        self.leading.get_or_create(&[("name", lease)]).set(i64::from(leading));
    }

    /// Counts a request to the API server by status code, or `<error>` if it failed.
    pub(crate) fn api_request(&self, code: String, method: String, host: &str) {
        let labels = [("code", code), ("method", method), ("host", host.to_owned())];
        self.api_requests.get_or_create(&labels).inc();
    }

    /// Exposition in OpenMetrics 1.0.
    pub fn openmetrics(&self) -> String {
        let mut out = String::new();
        for registry in self.registries.lock().iter() {
            // Writing to a String cannot fail.
            let _ = text::encode_registry(&mut out, registry);
        }
        let _ = text::encode_eof(&mut out);
        out.lines().map(|line| bound_last(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
    }

    /// Exposition in the Prometheus text format 0.0.4.
    pub fn prometheus_text(&self) -> String {
        classic_text(&self.openmetrics())
    }
}

fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: impl Into<String>, help: &str) -> M {
    add_as(registry, name, help, M::default())
}

fn add_as<M: Metric + Clone>(registry: &mut Registry, name: impl Into<String>, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// Moves the bound of a histogram bucket behind its other labels, where the Go client has it: scripts search for it
/// there. `None` for another line.
fn bound_last(line: &str) -> Option<String> {
    let (name, rest) = line.split_once("_bucket{le=\"").filter(|(name, _)| !name.contains('{'))?;
    let (bound, rest) = rest.split_once("\",")?;
    let (labels, value) = rest.rsplit_once("} ")?;
    Some(format!("{name}_bucket{{{labels},le=\"{bound}\"}} {value}"))
}

/// Converts OpenMetrics to the Prometheus text format: counters are declared under the name of their samples, and
/// there is neither unit nor end mark.
fn classic_text(openmetrics: &str) -> String {
    let is_counter = |name: &str| openmetrics.contains(&format!("# TYPE {name} counter\n"));
    let mut out = String::with_capacity(openmetrics.len());
    for line in openmetrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => continue,
            (Some("#"), Some(kind), Some(name), Some(rest)) if is_counter(name) => {
                out.push_str(&format!("# {kind} {name}_total {rest}"));
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_exported_in_both_formats() {
        let metrics = Metrics::new();
        metrics.start_controller("c", 4);
        let running = metrics.reconcile_started("c");
        metrics.reconcile_ended("c", running, ReconcileResult::TerminalError, Duration::from_millis(20));
        metrics.set_leading("lock", true);
        let exceeded = LimitCounts::default();
        exceeded.count("files");
        exceeded.count("files");
        metrics.register_images(exceeded, PolicySource::new(None, Vec::new(), false));
        let text = metrics.prometheus_text();
        for line in [
            "# TYPE controller_runtime_reconcile_total counter",
            "controller_runtime_reconcile_total{controller=\"c\",result=\"error\"} 1",
            "controller_runtime_reconcile_total{controller=\"c\",result=\"success\"} 0",
            "controller_runtime_terminal_reconcile_errors_total{controller=\"c\"} 1",
            "controller_runtime_max_concurrent_reconciles{controller=\"c\"} 4",
            "controller_runtime_active_workers{controller=\"c\"} 0",
            "controller_runtime_reconcile_time_seconds_bucket{controller=\"c\",le=\"0.025\"} 1",
            "controller_runtime_reconcile_time_seconds_bucket{controller=\"c\",le=\"+Inf\"} 1",
            "workqueue_work_duration_seconds_bucket{name=\"c\",controller=\"c\",le=\"0.1\"} 1",
            "workqueue_adds_total{name=\"c\",controller=\"c\"} 1",
            "workqueue_retries_total{name=\"c\",controller=\"c\"} 0",
            "workqueue_work_duration_seconds_count{name=\"c\",controller=\"c\"} 1",
            "workqueue_unfinished_work_seconds{controller=\"c\",name=\"c\"} 0",
            "workqueue_longest_running_processor_seconds{controller=\"c\",name=\"c\"} 0",
            "leader_election_master_status{name=\"lock\"} 1",
            "image_limit_exceeded_total{key=\"files\"} 2",
            "image_signature_policy_missing 1",
            "# TYPE process_cpu_seconds_total counter",
        ] {
            assert!(text.lines().any(|got| got == line), "no {line} in\n{text}");
        }
        assert!(text.lines().all(|line| !line.contains("{le=") || !line.contains(',')), "{text}");
        assert!(metrics.openmetrics().contains("_bucket{controller=\"c\",le=\"0.025\"} 1\n"));
        assert!(text.lines().any(|line| line.starts_with("process_resident_memory_bytes ")));
        assert!(!text.contains("# EOF"));
        assert!(metrics.openmetrics().ends_with("# EOF\n"));
    }

    #[test]
    fn metrics_of_ended_controllers_are_dropped() {
        let metrics = Metrics::new();
        for value in [7, 8] {
            metrics.start_anew();
            metrics.register("term", "h", Gauge::<i64>::default()).set(value);
            let text = metrics.openmetrics();
            let series: Vec<_> = text.lines().filter(|line| line.starts_with("term ")).collect();
            assert_eq!(series, [format!("term {value}")]);
            assert!(text.ends_with("# EOF\n") && text.contains("process_resident_memory_bytes"));
        }
    }
}
