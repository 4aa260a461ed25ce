//! Export of OpenTelemetry traces, if the environment has an endpoint (docs/design/operations.md#traces).

use std::env;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use olm_runtime::component::{Component, VERSION};
use olm_runtime::message::with_causes;
use olm_runtime::traces::TRACES;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::SdkTracerProvider;
use parking_lot::Mutex;
use reqwest::redirect::Policy;
use tokio::runtime::{Builder, Runtime};
use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::{Layer, Registry};

use crate::certificate::read_limited;

/// Maximum duration of the export at the end of the process.
const FLUSH_DEADLINE: Duration = Duration::from_secs(3);
/// Deadline of an export if no variable sets one.
const EXPORT_DEADLINE: Duration = Duration::from_secs(10);
/// Minimum interval between log records of failed exports.
const REPORT_INTERVAL: Duration = Duration::from_secs(600);

/// Error of the configuration.
type Error = Box<dyn std::error::Error + Send + Sync>;

static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// Layer that exports the spans of this process. `None` without an endpoint.
///
/// # Errors
/// A variable is invalid, or the file with certificates.
pub(crate) fn layer(component: Component) -> Result<Option<Box<dyn Layer<Registry> + Send + Sync>>, Error> {
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|set| set.eq_ignore_ascii_case(value));
    if setting("ENDPOINT").is_none() || is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none")
    {
        return Ok(None);
    }
    let exporter = SpanExporter::builder().with_http().with_http_client(ExportClient::new()?).build()?;
    let resource = resource(component);
    let provider = SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer(component.name()))
        .with_context_activation(false)
        .with_location(false)
        .with_target(false)
        .with_threads(false)
        .with_tracked_inactivity(false);
    // Fails in the second server of a test process.
    drop(PROVIDER.set(provider));
    let exported =
        Targets::new().with_targets([(TRACES, Level::INFO), ("olm_runtime::controller", Level::INFO)]);
    Ok(Some(layer.with_filter(exported).boxed()))
}

/// Exports the remaining spans.
pub(crate) fn flush() {
    if let Some(provider) = PROVIDER.get()
        && let Err(error) = provider.shutdown_with_timeout(FLUSH_DEADLINE)
    {
        tracing::warn!(%error, "last traces not exported");
    }
}

/// Value of the variable of traces, else of that of all signals.
fn setting(name: &str) -> Option<String> {
    ["OTEL_EXPORTER_OTLP_TRACES", "OTEL_EXPORTER_OTLP"]
        .iter()
        .find_map(|prefix| env::var(format!("{prefix}_{name}")).ok().filter(|value| !value.is_empty()))
}

/// Attributes of this process. Those of the environment take precedence.
fn resource(component: Component) -> Resource {
    let variable = |key, name| {
        env::var(name).ok().filter(|value| !value.is_empty()).map(|value| KeyValue::new(key, value))
    };
    let own = [KeyValue::new("service.name", component.name()), KeyValue::new("service.version", VERSION)];
    let pod = [variable("k8s.pod.name", "POD_NAME"), variable("k8s.namespace.name", "POD_NAMESPACE")];
    Resource::builder_empty()
        .with_attributes(own.into_iter().chain(pod.into_iter().flatten()))
        .with_detectors(&[Box::new(TelemetryResourceDetector), Box::new(EnvResourceDetector::new())])
        .with_attributes(variable("service.name", "OTEL_SERVICE_NAME"))
        .build()
}

/// HTTP client of the exporter's thread, where no async runtime runs.
#[derive(Debug)]
struct ExportClient {
    client: reqwest::Client,
    runtime: Runtime,
    reported: Mutex<Option<Instant>>,
}

impl ExportClient {
    fn new() -> Result<Self, Error> {
        // Fails if a provider is installed already.
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        let deadline = setting("TIMEOUT").and_then(|millis| millis.parse().ok());
        let mut client = reqwest::Client::builder()
            .timeout(deadline.map_or(EXPORT_DEADLINE, Duration::from_millis))
            // Between exports nothing would notice that a connection was closed.
            .pool_max_idle_per_host(0)
            .redirect(Policy::none());
        if let Some(file) = setting("CERTIFICATE") {
            let pem = read_limited(file.as_ref())?;
            client = client.tls_certs_merge(reqwest::Certificate::from_pem_bundle(&pem)?);
        }
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { client: client.build()?, runtime, reported: Mutex::default() })
    }

    /// Logs a failure, unless another was logged lately.
    fn report(&self, error: &str) {
        let mut reported = self.reported.lock();
        if reported.is_none_or(|last| last.elapsed() >= REPORT_INTERVAL) {
            *reported = Some(Instant::now());
            tracing::warn!(error, "traces not exported");
        }
    }
}

#[async_trait]
impl HttpClient for ExportClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.runtime.block_on(self.client.send_bytes(request));
        match &sent {
            Ok(answer) if answer.status().is_success() => {}
            Ok(answer) => self.report(&format!("HTTP status {}", answer.status())),
            Err(error) => self.report(&with_causes(error.as_ref())),
        }
        sent
    }
}
