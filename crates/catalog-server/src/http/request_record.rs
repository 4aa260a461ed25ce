//! Duration, log record and span of every request (docs/design/catalogd.md#server-limits).

use std::time::Instant;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::{HeaderValue, Method, StatusCode, Uri, Version, header};
use http_body_util::BodyExt;
use olm_runtime::metrics::Metrics;
use olm_runtime::traces::TRACES;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use tracing::Span;
use tracing::field::Empty;

const BUCKETS: [f64; 19] =
    [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.6, 2.0, 2.4, 2.8, 3.2, 3.6, 4.0, 10.0];

type CodeLabel = [(&'static str, u16); 1];

/// The histogram `catalogd_http_request_duration_seconds`.
#[derive(Clone, Debug)]
pub struct RequestDurations(Family<CodeLabel, Histogram, fn() -> Histogram>);

impl RequestDurations {
    /// Registers the histogram.
    pub fn new(metrics: &Metrics) -> Self {
        let durations = Family::new_with_constructor((|| Histogram::new(BUCKETS)) as fn() -> Histogram);
        let help = "Histogram of request duration in seconds";
        Self(metrics.register("catalogd_http_request_duration_seconds", help, durations))
    }

    /// Starts the record of a request.
    pub fn begin(&self, request: &Request) -> RequestRecord {
        RequestRecord {
            durations: self.clone(),
            started: Instant::now(),
            host: request.headers().get(header::HOST).cloned(),
            method: request.method().clone(),
            uri: request.uri().clone(),
            protocol: request.version(),
            status: None,
            size: 0,
            span: tracing::info_span!(target: TRACES, parent: None, "request", otel.kind = "server",
                http.request.method = %request.method(), url.path = request.uri().path(),
                http.response.status_code = Empty, http.response.body.size = Empty, otel.status_code = Empty),
        }
    }
}

/// A request whose response is not complete. When dropped, it logs and counts a request that has a
/// response.
#[derive(Debug)]
pub struct RequestRecord {
    durations: RequestDurations,
    started: Instant,
    host: Option<HeaderValue>,
    method: Method,
    uri: Uri,
    protocol: Version,
    /// Status of the response, once there is one.
    status: Option<StatusCode>,
    /// Number of bytes sent.
    size: u64,
    /// Exported when the record is dropped.
    span: Span,
}

impl RequestRecord {
    /// Attaches the record to `response`. It ends when the body was sent, or the client has disconnected.
    pub fn follow(mut self, response: Response) -> Response {
        self.status = Some(response.status());
        let uri = self.uri.clone();
        response.map(|body| {
            let body = body.inspect_frame(move |frame| {
                // The closure owns the whole record, not only its size.
                let record = &mut self;
                record.size += frame.data_ref().map_or(0, |data| data.len() as u64);
            });
            Body::new(body.inspect_err(move |error| tracing::error!(%uri, %error, "failed to read content")))
        })
    }
}

impl Drop for RequestRecord {
    fn drop(&mut self) {
        let Some(status) = self.status else { return };
        let (code, size) = (status.as_u16(), self.size);
        self.durations.0.get_or_create(&[("code", code)]).observe(self.started.elapsed().as_secs_f64());
        let host = self.host.as_ref().and_then(|host| host.to_str().ok()).unwrap_or_default();
        let (username, method, uri, protocol) = ("-", &self.method, &self.uri, &self.protocol);
        macro_rules! record {
            ($level:ident) => {
                tracing::$level!(host, username, %method, %uri, ?protocol, status = code, size, "handled request")
            };
        }
        self.span.record("http.response.status_code", code).record("http.response.body.size", size);
        if code >= 500 {
            self.span.record("otel.status_code", "error");
        }
        match code {
            500.. => record!(error),
            400.. => record!(debug),
            _ => record!(info),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Body as _;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    // docs/design/catalogd.md#server-limits
    #[tokio::test]
    async fn request_record_logs_status_and_bytes_sent() {
        let sink = Sink::default();
        let writer = sink.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_max_level(tracing::Level::DEBUG)
            .with_target(false)
            .with_ansi(false)
            .without_time()
            .finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let metrics = Metrics::new();
        let durations = RequestDurations::new(&metrics);
        for (status, level) in [(200, "INFO"), (404, "DEBUG"), (503, "ERROR")] {
            let request =
                Request::get("/catalogs/a?x=1").header("host", "h.example:8443").body(Body::empty()).unwrap();
            let response = Response::builder().status(status).body(Body::from("seven b")).unwrap();
            let response = durations.begin(&request).follow(response);
            assert_eq!(response.body().size_hint().exact(), Some(7));
            axum::body::to_bytes(response.into_body(), 100).await.unwrap();
            let text = String::from_utf8(std::mem::take(&mut *sink.0.lock().unwrap())).unwrap();
            let expect = format!(
                "{level:>5} handled request host=\"h.example:8443\" username=\"-\" method=GET \
                 uri=/catalogs/a?x=1 protocol=HTTP/1.1 status={status} size=7\n"
            );
            assert_eq!(text, expect);
            let count = format!("catalogd_http_request_duration_seconds_count{{code=\"{status}\"}} 1");
            assert!(metrics.prometheus_text().contains(&count));
        }
    }
}
