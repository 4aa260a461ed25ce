//! The mutating admission webhook that sets the name label of catalogs (docs/design/catalogd.md#name-label-webhook).

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::FutureExt;
use http::StatusCode;
use http_body_util::BodyExt;
use olm_api::labels;
use olm_runtime::metrics::{ConstLabels, DECIMAL_BUCKETS, Metrics};
use olm_runtime::samples::Labels;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

const PATH: &str = "/mutate-olm-operatorframework-io-v1-clustercatalog";
const BODY_LIMIT: usize = 7 << 20;
/// Requests that are answered concurrently. Further ones wait.
const CONCURRENCY: usize = 32;
/// Memory of all received and waiting requests, in KiB.
const MEMORY_KIB: usize = 64 << 10;
/// Timeout of receiving a request. The API server sends it at once and waits 10 s for the answer.
const READ_DEADLINE: Duration = Duration::from_secs(3);

/// The router with the webhook's only route.
pub fn router(metrics: &Metrics) -> Router {
    let requests = WebhookMetrics::new(metrics);
    let permits = Permits {
        answers: Arc::new(Semaphore::new(CONCURRENCY)),
        room: Arc::new(Semaphore::new(MEMORY_KIB)),
    };
    Router::new().route(PATH, post(review).with_state(permits)).layer(from_fn_with_state(requests, counted))
}

/// Permits. Requests are read in parallel, and answered up to `CONCURRENCY` at once, so that a slow client delays
/// no other.
#[derive(Clone)]
struct Permits {
    answers: Arc<Semaphore>,
    room: Arc<Semaphore>,
}

/// Label of all series.
const LABEL: ConstLabels<1> = [("webhook", PATH)];

fn with_code(code: u16) -> Labels<2> {
    [("code", code.to_string()), ("webhook", PATH.to_owned())]
}

/// The metrics `controller_runtime_webhook_*` (docs/design/operations.md#metric-names).
#[derive(Clone)]
struct WebhookMetrics {
    total: Family<Labels<2>, Counter>,
    in_flight: Family<ConstLabels<1>, Gauge>,
    latency: Family<ConstLabels<1>, Histogram, fn() -> Histogram>,
    panics: Counter,
}

impl WebhookMetrics {
    fn new(metrics: &Metrics) -> Self {
        let latency = Family::new_with_constructor((|| Histogram::new(DECIMAL_BUCKETS)) as fn() -> Histogram);
        let name = |suffix: &str| format!("controller_runtime_webhook_{suffix}");
        let new = Self {
            total: metrics.register(name("requests"), "Admission requests by status code", Family::default()),
            in_flight: metrics.register(
                name("requests_in_flight"),
                "Admission requests that run now",
                Family::default(),
            ),
            latency: metrics.register(
                name("latency_seconds"),
                "Duration of admission requests in seconds",
                latency,
            ),
            panics: metrics.register(name("panics"), "Admission requests that panicked", Counter::default()),
        };
        for code in [200, 500] {
            drop(new.total.get_or_create(&with_code(code)));
        }
        drop(new.in_flight.get_or_create(&LABEL));
        new
    }
}

/// Counts a request as in flight until dropped. The client may disconnect before.
struct InFlight(Gauge);

impl InFlight {
    fn begin(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Answers and counts a request. A panic fails only this request.
async fn counted(State(requests): State<WebhookMetrics>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let _flight = InFlight::begin(&requests.in_flight.get_or_create(&LABEL));
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!("admission request panicked: this is a defect");
        requests.panics.inc();
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    });
    requests.latency.get_or_create(&LABEL).observe(started.elapsed().as_secs_f64());
    let code = answer.status().as_u16();
    requests.total.get_or_create(&with_code(code)).inc();
    answer
}

async fn review(State(permits): State<Permits>, body: Body) -> Response {
    let read = tokio::time::timeout(READ_DEADLINE, read(body, &permits.room)).await;
    let late = || Err((StatusCode::BAD_REQUEST, "the request was not complete in time\n".to_owned()));
    let (body, _room) = match read.unwrap_or_else(|_| late()) {
        Ok(read) => read,
        Err(refused) => return refused.into_response(),
    };
    // The semaphore is never closed.
    let _permit = permits.answers.acquire().await;
    match serde_json::from_slice::<AdmissionReview>(&body) {
        Ok(review) => axum::Json(answer(&review)).into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, format!("not an AdmissionReview: {error}\n")).into_response(),
    }
}

/// The body, and permits for its size. `Content-Length` is ignored: only received bytes take permits.
async fn read(
    mut body: Body,
    room: &Arc<Semaphore>,
) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), (StatusCode, String)> {
    let refused = |why: String| (StatusCode::BAD_REQUEST, why);
    let (mut whole, mut held) = (Vec::new(), None::<OwnedSemaphorePermit>);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| refused(format!("reading the request: {error}\n")))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > BODY_LIMIT {
            return Err(refused("reading the request: length limit exceeded\n".to_owned()));
        }
        whole.extend_from_slice(&data);
        let taken = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let size = u32::try_from(whole.len().div_ceil(1024) - taken).unwrap_or(u32::MAX);
        let more = Arc::clone(room).try_acquire_many_owned(size);
        let more = more.map_err(|_| (StatusCode::SERVICE_UNAVAILABLE, "too many requests\n".to_owned()))?;
        match &mut held {
            Some(held) => held.merge(more),
            None => held = Some(more),
        }
    }
    Ok((whole, held))
}

/// The fields of an AdmissionReview that are read. Others are skipped, because a [`Value`] of them would need about a
/// hundred times the memory of the text.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AdmissionReview {
    request: AdmissionRequest,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AdmissionRequest {
    uid: Option<String>,
    operation: String,
    object: Option<Object>,
}

#[derive(Debug, Deserialize)]
struct Object {
    metadata: Option<Metadata>,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: Option<String>,
    labels: Option<ObjectLabels>,
}

#[derive(Debug, Deserialize)]
struct ObjectLabels {
    #[serde(rename = "olm.operatorframework.io/metadata.name")]
    metadata_name: Option<String>,
}

/// The AdmissionReview with its response.
fn answer(review: &AdmissionReview) -> Value {
    let request = &review.request;
    let mut response = json!({"uid": request.uid, "allowed": true});
    match patch(request) {
        Ok(None) => {}
        Ok(Some(patch)) => {
            response["patchType"] = "JSONPatch".into();
            response["patch"] = BASE64_STANDARD.encode(patch.to_string()).into();
        }
        Err(why) => {
            response["allowed"] = false.into();
            response["status"] = json!({"code": 400, "message": why});
        }
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

/// The JSON patch that sets the label, if it is missing or wrong.
fn patch(request: &AdmissionRequest) -> Result<Option<Value>, &'static str> {
    if request.operation == "DELETE" {
        return Ok(None);
    }
    let object = request.object.as_ref().ok_or("the request carries no object")?;
    let metadata = object.metadata.as_ref().ok_or("the object has no metadata")?;
    let Some(name) = metadata.name.as_deref().filter(|name| !name.is_empty()) else {
        // With `generateName` the name is set after admission.
        return Ok(None);
    };
    let pointer = format!("/metadata/labels/{}", labels::METADATA_NAME.replace('~', "~0").replace('/', "~1"));
    match &metadata.labels {
        Some(all) if all.metadata_name.as_deref() == Some(name) => Ok(None),
        Some(_) => Ok(Some(json!([{"op": "add", "path": pointer, "value": name}]))),
        None => Ok(Some(json!([
            {"op": "add", "path": "/metadata/labels", "value": {labels::METADATA_NAME: name}}
        ]))),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use olm_serving::https::HttpServer;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::TcpStream;

    use super::*;

    // Case catalogd-59
    #[test]
    fn review_sets_missing_or_wrong_name_label() {
        let key = labels::METADATA_NAME;
        let pointer = "/metadata/labels/olm.operatorframework.io~1metadata.name";
        let rows = [
            (
                json!({"operation": "CREATE", "object": {"metadata": {"name": "a"}}}),
                Ok(Some(json!([{"op": "add", "path": "/metadata/labels", "value": {key: "a"}}]))),
            ),
            (
                json!({"operation": "UPDATE", "object": {"metadata": {"name": "a", "labels": {"x": "y"}}}}),
                Ok(Some(json!([{"op": "add", "path": pointer, "value": "a"}]))),
            ),
            (
                json!({"operation": "UPDATE", "object": {"metadata": {"name": "a", "labels": {key: "b"}}}}),
                Ok(Some(json!([{"op": "add", "path": pointer, "value": "a"}]))),
            ),
            (
                json!({"operation": "UPDATE", "object": {"metadata": {"name": "a", "labels": {key: "a"}}}}),
                Ok(None),
            ),
            (json!({"operation": "CREATE", "object": {"metadata": {"generateName": "a-"}}}), Ok(None)),
            (json!({"operation": "DELETE"}), Ok(None)),
            (json!({"operation": "CREATE"}), Err("the request carries no object")),
            (json!({"operation": "CREATE", "object": {}}), Err("the object has no metadata")),
        ];
        for (request, expect) in rows {
            assert_eq!(patch(&serde_json::from_value(request.clone()).unwrap()), expect, "{request}");
        }
        let answer = |review: Value| answer(&serde_json::from_value(review).unwrap());
        let review =
            json!({"request": {"uid": "u", "operation": "CREATE", "object": {"metadata": {"name": "a"}}}});
        let response = &answer(review)["response"];
        assert_eq!((&response["uid"], &response["allowed"]), (&json!("u"), &json!(true)));
        let patch = BASE64_STANDARD.decode(response["patch"].as_str().unwrap()).unwrap();
        assert_eq!(patch, br#"[{"op":"add","path":"/metadata/labels","value":{"olm.operatorframework.io/metadata.name":"a"}}]"#);
        assert_eq!(answer(json!({}))["response"]["allowed"], json!(false));
    }

    /// The webhook on a loopback port.
    fn served(metrics: &Metrics) -> HttpServer {
        HttpServer::start((Ipv4Addr::LOCALHOST, 0).into(), None, router(metrics)).unwrap()
    }

    /// Starts a request with this `Content-Length`, without its body.
    async fn begun(server: &HttpServer, length: usize) -> TcpStream {
        let mut connection = TcpStream::connect(server.address).await.unwrap();
        let head = format!("POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n");
        connection.write_all(head.as_bytes()).await.unwrap();
        connection
    }

    /// The status line of the answer.
    async fn status_line(connection: TcpStream) -> String {
        BufReader::new(connection).lines().next_line().await.unwrap().unwrap()
    }

    // docs/design/operations.md#hardening: slow or many clients
    #[tokio::test]
    async fn slow_clients_do_not_delay_others_and_time_out() {
        const SLOW: usize = 3 * CONCURRENCY;
        let metrics = Metrics::new();
        let server = served(&metrics);
        let mut slow = Vec::new();
        for _ in 0..SLOW {
            slow.push(begun(&server, 2).await);
        }
        let full = format!("controller_runtime_webhook_requests_in_flight{{webhook=\"{PATH}\"}} {SLOW}");
        while !metrics.prometheus_text().lines().any(|line| line == full) {
            tokio::task::yield_now().await;
        }
        let mut next = begun(&server, 2).await;
        next.write_all(b"{}").await.unwrap();
        assert_eq!(status_line(next).await, "HTTP/1.1 200 OK");
        // The slow clients time out after `READ_DEADLINE`.
        let late = tokio::time::timeout(2 * READ_DEADLINE, status_line(slow.pop().unwrap())).await;
        assert_eq!(late.unwrap(), "HTTP/1.1 400 Bad Request");
    }

    #[tokio::test]
    async fn received_bytes_take_memory_permits() {
        let room = Arc::new(Semaphore::new(2));
        let body = |length: usize| Body::from(vec![b' '; length]);
        let (whole, held) = read(body(2048), &room).await.unwrap();
        assert_eq!((whole.len(), room.available_permits()), (2048, 0));
        assert_eq!(read(body(1), &room).await.unwrap_err().0, StatusCode::SERVICE_UNAVAILABLE);
        drop(held);
        let pieces = futures::stream::iter(vec![Ok::<_, std::convert::Infallible>(" "); 1500]);
        let (whole, _held) = read(Body::from_stream(pieces), &room).await.unwrap();
        assert_eq!((whole.len(), room.available_permits()), (1500, 0));
    }

    // docs/design/operations.md#hardening: bodies have a limit
    #[tokio::test]
    async fn body_above_limit_is_rejected() {
        let server = served(&Metrics::new());
        for (more, answer) in [(0, "HTTP/1.1 200 OK"), (1, "HTTP/1.1 400 Bad Request")] {
            let mut body = b"{}".to_vec();
            body.resize(BODY_LIMIT + more, b' ');
            let mut connection = begun(&server, body.len()).await;
            connection.write_all(&body).await.unwrap();
            assert_eq!(status_line(connection).await, answer);
        }
    }

    // docs/design/operations.md#metric-names
    #[tokio::test]
    async fn requests_are_counted_by_status() {
        let metrics = Metrics::new();
        let router = router(&metrics);
        for body in ["{}", "not JSON"] {
            let request = http::Request::post(PATH).body(Body::from(body)).unwrap();
            tower::ServiceExt::oneshot(router.clone(), request).await.unwrap();
        }
        let text = metrics.prometheus_text();
        for line in [
            format!("controller_runtime_webhook_requests_total{{code=\"200\",webhook=\"{PATH}\"}} 1"),
            format!("controller_runtime_webhook_requests_total{{code=\"400\",webhook=\"{PATH}\"}} 1"),
            format!("controller_runtime_webhook_requests_in_flight{{webhook=\"{PATH}\"}} 0"),
            format!("controller_runtime_webhook_latency_seconds_count{{webhook=\"{PATH}\"}} 2"),
            "controller_runtime_webhook_panics_total 0".to_owned(),
        ] {
            assert!(text.lines().any(|got| got == line), "no {line} in\n{text}");
        }
    }
}
