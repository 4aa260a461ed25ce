//! The metrics of a server under the names that dashboards of the reference know (spec 06 §4.3), and
//! their text form.

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use crate::process::ProcessMetrics;

/// Media type of [`Metrics::openmetrics`].
pub const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Media type of [`Metrics::prometheus_text`].
pub const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

const RECONCILE_BUCKETS: [f64; 36] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0,
];

/// Label of the per-controller series.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ControllerLabel {
    /// Controller name, such as `catalogd-clustercatalog-controller`.
    pub controller: &'static str,
}

/// Labels of `controller_runtime_reconcile_total`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    controller: &'static str,
    result: &'static str,
}

/// Label of `leader_election_master_status`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LeaseLabel {
    name: String,
}

/// Labels of `rest_client_requests_total`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    code: String,
    method: String,
    host: String,
}

type ByController<M> = Family<ControllerLabel, M>;

/// All metrics of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    reconciles: Family<ResultLabels, Counter>,
    errors: ByController<Counter>,
    terminal_errors: ByController<Counter>,
    panics: ByController<Counter>,
    timeouts: ByController<Counter>,
    time: Family<ControllerLabel, Histogram, fn() -> Histogram>,
    active_workers: ByController<Gauge>,
    max_concurrent: ByController<Gauge>,
    leading: Family<LeaseLabel, Gauge>,
    api_requests: Family<RequestLabels, Counter>,
    /// Reads of the serving certificate.
    pub certificate_reads: Counter<u64, AtomicU64>,
    /// Reads of the serving certificate that gave no usable pair.
    pub certificate_read_errors: Counter<u64, AtomicU64>,
}

/// How one reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// Done until something changes.
    Success,
    /// Done, and due again after a time.
    RequeueAfter,
    /// Failed; retried with backoff.
    Error,
    /// Failed; only a change helps.
    TerminalError,
    /// Broke off by a defect; retried with backoff.
    Panic,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All metrics at zero.
    pub fn new() -> Self {
        let time: Family<ControllerLabel, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(RECONCILE_BUCKETS));
        let metrics = Self {
            registry: Mutex::new(Registry::default()),
            reconciles: Family::default(),
            errors: Family::default(),
            terminal_errors: Family::default(),
            panics: Family::default(),
            timeouts: Family::default(),
            time,
            active_workers: Family::default(),
            max_concurrent: Family::default(),
            leading: Family::default(),
            api_requests: Family::default(),
            certificate_reads: Counter::default(),
            certificate_read_errors: Counter::default(),
        };
        let m = &metrics;
        let name = |suffix: &str| format!("controller_runtime_{suffix}");
        m.register(name("reconcile"), "Reconciles by controller and result", m.reconciles.clone());
        m.register(name("reconcile_errors"), "Failed reconciles", m.errors.clone());
        m.register(
            name("terminal_reconcile_errors"),
            "Reconciles that only a change can help",
            m.terminal_errors.clone(),
        );
        m.register(name("reconcile_panics"), "Reconciles broken off by a defect", m.panics.clone());
        m.register(name("reconcile_timeouts"), "Reconciles that took too long", m.timeouts.clone());
        m.register(name("reconcile_time_seconds"), "Duration of reconciles in seconds", m.time.clone());
        m.register(name("active_workers"), "Reconciles that run now", m.active_workers.clone());
        m.register(name("max_concurrent_reconciles"), "Most reconciles at once", m.max_concurrent.clone());
        m.register("leader_election_master_status", "1 while this process leads", m.leading.clone());
        m.register("rest_client_requests", "Requests to the API server", m.api_requests.clone());
        m.register(
            "certwatcher_read_certificate",
            "Reads of the serving certificate",
            m.certificate_reads.clone(),
        );
        m.register(
            "certwatcher_read_certificate_errors",
            "Reads of the serving certificate that failed",
            m.certificate_read_errors.clone(),
        );
        m.registry().register_collector(Box::new(ProcessMetrics));
        metrics
    }

    fn registry(&self) -> std::sync::MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a metric of a server's own; counters get `_total` appended to their name.
    pub fn register(&self, name: impl Into<String>, help: &str, metric: impl Metric) {
        self.registry().register(name, help, metric);
    }

    /// Makes the series of a controller exist before its first reconcile.
    pub fn start_controller(&self, controller: &'static str, concurrency: u16) {
        let label = ControllerLabel { controller };
        for result in ["success", "error", "requeue", "requeue_after"] {
            drop(self.reconciles.get_or_create(&ResultLabels { controller, result }));
        }
        for family in [&self.errors, &self.terminal_errors, &self.panics, &self.timeouts] {
            drop(family.get_or_create(&label));
        }
        drop(self.time.get_or_create(&label));
        drop(self.active_workers.get_or_create(&label));
        self.max_concurrent.get_or_create(&label).set(i64::from(concurrency));
    }

    /// A reconcile begins.
    pub fn reconcile_started(&self, controller: &'static str) {
        self.active_workers.get_or_create(&ControllerLabel { controller }).inc();
    }

    /// A reconcile ended.
    pub fn reconcile_ended(&self, controller: &'static str, result: ReconcileResult, took: Duration) {
        let label = ControllerLabel { controller };
        self.active_workers.get_or_create(&label).dec();
        self.time.get_or_create(&label).observe(took.as_secs_f64());
        let name = match result {
            ReconcileResult::Success => "success",
            ReconcileResult::RequeueAfter => "requeue_after",
            ReconcileResult::Error | ReconcileResult::TerminalError | ReconcileResult::Panic => "error",
        };
        self.reconciles.get_or_create(&ResultLabels { controller, result: name }).inc();
        if name == "error" {
            self.errors.get_or_create(&label).inc();
        }
        match result {
            ReconcileResult::TerminalError => drop(self.terminal_errors.get_or_create(&label).inc()),
            ReconcileResult::Panic => drop(self.panics.get_or_create(&label).inc()),
            _ => {}
        }
    }

    /// Whether this process holds the lease.
    pub fn set_leading(&self, lease: &str, leading: bool) {
        self.leading.get_or_create(&LeaseLabel { name: lease.to_owned() }).set(i64::from(leading));
    }

    /// The API server answered a request, or the request failed (`<error>`).
    pub(crate) fn api_request(&self, code: String, method: String, host: &str) {
        let host = host.to_owned();
        self.api_requests.get_or_create(&RequestLabels { code, method, host }).inc();
    }

    /// Exposition in OpenMetrics 1.0.
    pub fn openmetrics(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = text::encode(&mut out, &self.registry());
        out
    }

    /// Exposition in the Prometheus text format 0.0.4.
    pub fn prometheus_text(&self) -> String {
        classic_text(&self.openmetrics())
    }
}

/// Rewrites OpenMetrics as Prometheus text: a counter is declared under the name of its samples, and there
/// is neither unit nor end mark.
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
    fn both_formats() {
        let metrics = Metrics::new();
        metrics.start_controller("c", 4);
        metrics.reconcile_started("c");
        metrics.reconcile_ended("c", ReconcileResult::TerminalError, Duration::from_millis(20));
        metrics.set_leading("lock", true);
        let text = metrics.prometheus_text();
        for line in [
            "# TYPE controller_runtime_reconcile_total counter",
            "controller_runtime_reconcile_total{controller=\"c\",result=\"error\"} 1",
            "controller_runtime_reconcile_total{controller=\"c\",result=\"success\"} 0",
            "controller_runtime_terminal_reconcile_errors_total{controller=\"c\"} 1",
            "controller_runtime_max_concurrent_reconciles{controller=\"c\"} 4",
            "controller_runtime_active_workers{controller=\"c\"} 0",
            "controller_runtime_reconcile_time_seconds_bucket{le=\"0.025\",controller=\"c\"} 1",
            "leader_election_master_status{name=\"lock\"} 1",
            "# TYPE process_cpu_seconds_total counter",
        ] {
            assert!(text.lines().any(|got| got == line), "no {line} in\n{text}");
        }
        assert!(text.lines().any(|line| line.starts_with("process_resident_memory_bytes ")));
        assert!(!text.contains("# EOF"));
        assert!(metrics.openmetrics().ends_with("# EOF\n"));
    }
}
