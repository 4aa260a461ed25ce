//! Duration and record of every request (spec 02 §D9).

use std::time::Duration;

use http::{Method, StatusCode, Uri};
use olm_service::metrics::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

const BUCKETS: [f64; 18] =
    [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.6, 2.0, 2.4, 2.8, 3.2, 3.6, 4.0];
const LAST_BUCKET: f64 = 10.0;
/// Slower requests are logged at default verbosity.
const SLOW: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: u16,
}

/// `catalogd_http_request_duration_seconds`.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    durations: Family<CodeLabel, Histogram, fn() -> Histogram>,
}

impl RequestMetrics {
    /// Registers the histogram.
    pub fn new(metrics: &Metrics) -> Self {
        let histogram: fn() -> Histogram = || Histogram::new(BUCKETS.into_iter().chain([LAST_BUCKET]));
        let durations = Family::new_with_constructor(histogram);
        metrics.register(
            "catalogd_http_request_duration_seconds",
            "Histogram of request duration in seconds",
            durations.clone(),
        );
        Self { durations }
    }

    /// Notes one request.
    pub fn observe(&self, method: &Method, uri: &Uri, status: StatusCode, took: Duration) {
        let code = status.as_u16();
        self.durations.get_or_create(&CodeLabel { code }).observe(took.as_secs_f64());
        let duration = format!("{took:?}");
        if status.is_server_error() || took > SLOW {
            tracing::warn!(%method, %uri, code, duration, "handled request");
        } else {
            tracing::debug!(%method, %uri, code, duration, "handled request");
        }
    }
}
