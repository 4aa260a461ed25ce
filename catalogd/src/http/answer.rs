//! From a request to a response.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use olm_fbc::Selector;
use olm_service::metrics::Metrics;

use super::body::{Piece, body, kept_body};
use super::encoding::{Encoding, LEAST_COMPRESSED, negotiate};
use super::precondition::{Verdict, evaluate, format_date, range_counts};
use super::range::{Wanted, content_range, wanted};
use super::request_metrics::RequestMetrics;
use super::route::{Endpoint, Route, name_problems, route, selector};
use crate::content::answers::LONGEST;
use crate::content::{Snapshot, Store};

const JSON_LINES: HeaderValue = HeaderValue::from_static("application/jsonl");
/// Seconds after which content that should be here may be.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

/// What the server answers from.
pub struct CatalogServer {
    /// The content.
    pub store: Arc<Store>,
    /// Whether a catalog without content here is one that says it is served.
    pub is_expected: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// Whether `/metas` exists (gate `APIV1MetasHandler`).
    pub metas: bool,
}

/// All routes of the server.
pub fn router(server: CatalogServer, metrics: &Metrics) -> Router {
    let state = (Arc::new(server), RequestMetrics::new(metrics));
    Router::new().fallback(serve).with_state(state)
}

async fn serve(
    State((server, metrics)): State<(Arc<CatalogServer>, RequestMetrics)>,
    request: Request,
) -> Response {
    let started = Instant::now();
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let mut response = server.answer(&method, uri.path(), uri.query().unwrap_or_default(), request.headers());
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if method == Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    metrics.observe(&method, &uri, response.status(), started.elapsed());
    response
}

impl CatalogServer {
    /// Checks in the order of spec 02 §D4: route, method, name, parameters, existence, conditions.
    fn answer(&self, method: &Method, path: &str, query: &str, headers: &HeaderMap) -> Response {
        let (endpoint, name) = match route(path) {
            Route::Catalog(endpoint, name) if endpoint == Endpoint::All || self.metas => (endpoint, name),
            Route::Redirect(to) => return redirect(to, query),
            _ => return error(StatusCode::NOT_FOUND, "404 page not found"),
        };
        if method != Method::GET && method != Method::HEAD {
            return error(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
        }
        let problems = name_problems(&name);
        if !problems.is_empty() {
            let text = format!("invalid catalog name: {}", problems.join("; "));
            return error(StatusCode::BAD_REQUEST, &text);
        }
        let selector = match endpoint {
            Endpoint::All => Selector::default(),
            Endpoint::Metas => match selector(query) {
                Some(selector) => selector,
                None => return error(StatusCode::BAD_REQUEST, "400 Bad Request"),
            },
        };
        let Some(snapshot) = self.store.get(&name) else {
            return self.without_content(&name);
        };
        content(endpoint, &snapshot, &selector, method, headers).unwrap_or_else(|cause| {
            tracing::error!(catalog = name, error = %cause, "content could not be read");
            error(StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error")
        })
    }

    fn without_content(&self, name: &str) -> Response {
        if !(self.is_expected)(name) {
            return error(StatusCode::NOT_FOUND, "404 Not Found");
        }
        let mut response = error(StatusCode::SERVICE_UNAVAILABLE, "503 Service Unavailable");
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        response
    }
}

fn content(
    endpoint: Endpoint,
    snapshot: &Arc<Snapshot>,
    selector: &Selector,
    method: &Method,
    headers: &HeaderMap,
) -> io::Result<Response> {
    let (tag, modified) = (snapshot.tag(), snapshot.modified());
    let answer = Answer::new(StatusCode::OK)
        .with(header::LAST_MODIFIED, &format_date(modified))
        .with(header::ETAG, &format!("\"{tag}\""));
    match evaluate(headers, tag, modified) {
        Verdict::Proceed => {}
        Verdict::NotModified => return Ok(answer.status(StatusCode::NOT_MODIFIED).empty()),
        Verdict::Failed => return Ok(answer.status(StatusCode::PRECONDITION_FAILED).empty()),
    }
    if endpoint == Endpoint::All && range_counts(headers, tag, modified) {
        let size = snapshot.length();
        match wanted(headers.get(header::RANGE).and_then(|value| value.to_str().ok()), size) {
            Wanted::Whole => {}
            Wanted::Parts(parts) => return partial(answer, snapshot, &parts),
            Wanted::Unsatisfiable(text) => {
                let mut response = error(StatusCode::RANGE_NOT_SATISFIABLE, text);
                let of = HeaderValue::from_str(&format!("bytes */{size}")).map_err(io::Error::other)?;
                response.headers_mut().insert(header::CONTENT_RANGE, of);
                return Ok(response);
            }
        }
    }
    let accepted = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let encoding = negotiate(accepted).filter(|_| method != Method::HEAD);
    if let (None, Some(known)) = (encoding, snapshot.answers().get(selector)) {
        let length = known.len().to_string();
        return answer.json_lines().with(header::CONTENT_LENGTH, &length).body(Body::from(known));
    }
    let ranges = snapshot.index().ranges(selector);
    let length: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    if let Some(encoding) = encoding.filter(|_| length >= LEAST_COMPRESSED) {
        return compressed(answer, snapshot, ranges, encoding);
    }
    let answer = answer.json_lines().with(header::CONTENT_LENGTH, &length.to_string());
    let file = Arc::clone(snapshot.file());
    match endpoint {
        Endpoint::All => answer.with(header::ACCEPT_RANGES, "bytes").body(body(file, pieces(ranges), None)?),
        Endpoint::Metas if length <= LONGEST && !selector.selects_all() => {
            let (snapshot, selector) = (Arc::clone(snapshot), selector.clone());
            answer.body(kept_body(file, pieces(ranges), move |whole| {
                snapshot.answers().insert(&selector, whole)
            }))
        }
        Endpoint::Metas => answer.body(body(file, pieces(ranges), None)?),
    }
}

/// The whole content is sent from a copy that was compressed once; until that exists, and for parts of the
/// content, it is compressed on the way.
fn compressed(
    answer: Answer,
    snapshot: &Arc<Snapshot>,
    ranges: Vec<Range<u64>>,
    encoding: Encoding,
) -> io::Result<Response> {
    let answer = answer
        .json_lines()
        .with(header::CONTENT_ENCODING, encoding.name())
        .with(header::ETAG, &format!("\"{}-{}\"", snapshot.tag(), encoding.name()));
    let is_whole = ranges.len() == 1 && ranges[0] == (0..snapshot.length());
    if is_whole {
        if let Some(copy) = snapshot.compressed(encoding) {
            let length = copy.metadata()?.len();
            let answer = answer.with(header::CONTENT_LENGTH, &length.to_string());
            return answer.body(body(copy, vec![Piece::File(0..length)], None)?);
        }
        if snapshot.claim_compression(encoding) {
            let snapshot = Arc::clone(snapshot);
            tokio::task::spawn_blocking(move || snapshot.compress(encoding));
        }
    }
    answer.body(body(Arc::clone(snapshot.file()), pieces(ranges), Some(encoding))?)
}

fn pieces(ranges: Vec<Range<u64>>) -> Vec<Piece> {
    ranges.into_iter().map(Piece::File).collect()
}

/// 206 with one part, or with several as `multipart/byteranges`.
fn partial(answer: Answer, snapshot: &Arc<Snapshot>, parts: &[Range<u64>]) -> io::Result<Response> {
    let size = snapshot.length();
    let answer = answer.status(StatusCode::PARTIAL_CONTENT).with(header::ACCEPT_RANGES, "bytes");
    if let [part] = parts {
        return answer
            .json_lines()
            .with(header::CONTENT_RANGE, &content_range(part, size))
            .with(header::CONTENT_LENGTH, &(part.end - part.start).to_string())
            .body(body(Arc::clone(snapshot.file()), vec![Piece::File(part.clone())], None)?);
    }
    // Content is JSON lines, where a line of dashes cannot stand.
    let boundary = format!("----{}", snapshot.tag());
    let mut pieces = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let start = if number == 0 { "" } else { "\r\n" };
        let head = format!(
            "{start}--{boundary}\r\nContent-Range: {}\r\nContent-Type: application/jsonl\r\n\r\n",
            content_range(part, size)
        );
        pieces.push(Piece::Text(Bytes::from(head)));
        pieces.push(Piece::File(part.clone()));
    }
    pieces.push(Piece::Text(Bytes::from(format!("\r\n--{boundary}--\r\n"))));
    let length: u64 = pieces
        .iter()
        .map(|piece| match piece {
            Piece::Text(text) => text.len() as u64,
            Piece::File(range) => range.end - range.start,
        })
        .sum();
    answer
        .with(header::CONTENT_TYPE, &format!("multipart/byteranges; boundary={boundary}"))
        .with(header::CONTENT_LENGTH, &length.to_string())
        .body(body(Arc::clone(snapshot.file()), pieces, None)?)
}

/// A response in the making.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
}

impl Answer {
    fn new(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new() }
    }

    fn status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// Sets a header; our values are numbers, dates and tokens, which are always legal.
    fn with(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    fn json_lines(mut self) -> Self {
        self.headers.insert(header::CONTENT_TYPE, JSON_LINES);
        self
    }

    fn body(self, body: Body) -> io::Result<Response> {
        Ok((self.status, self.headers, body).into_response())
    }

    fn empty(self) -> Response {
        (self.status, self.headers).into_response()
    }
}

fn error(status: StatusCode, text: &str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8")),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::CONTENT_LENGTH, HeaderValue::from(text.len() + 1)),
    ];
    (status, headers, format!("{text}\n")).into_response()
}

fn redirect(mut to: String, query: &str) -> Response {
    if !query.is_empty() {
        to = format!("{to}?{query}");
    }
    let location = HeaderValue::from_str(&to).unwrap_or(HeaderValue::from_static("/"));
    let body = "<a href=\"/\">Temporary Redirect</a>.\n";
    let headers = [
        (header::LOCATION, location),
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
    ];
    (StatusCode::TEMPORARY_REDIRECT, headers, body).into_response()
}
