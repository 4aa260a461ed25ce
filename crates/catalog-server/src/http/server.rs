//! The HTTP handler of the content server.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use olm_fbc::MetaSelector;
use olm_runtime::metrics::Metrics;

use super::delivery::deliver;
use super::graphql::{self, GraphQl};
use super::request_record::RequestDurations;
use super::response::error;
use super::route::{Endpoint, Route, name_problems, route, selector};
use crate::content::Store;

/// `Retry-After` in seconds for content that is expected here but not loaded yet.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

/// The state of the content server.
pub struct CatalogServer {
    /// The contents.
    pub store: Arc<Store>,
    /// `true` if the status of a catalog without content here says that it is served.
    pub is_expected: Box<dyn Fn(&str) -> bool + Send + Sync>,
    /// `true` if `/metas` is enabled (gate `APIV1MetasHandler`).
    pub metas: bool,
    /// The handler of `/graphql`, if enabled (gate `GraphQLCatalogQueries`).
    pub graphql: Option<GraphQl>,
}

/// All routes of the server.
pub fn router(server: CatalogServer, metrics: &Metrics) -> Router {
    let state = (Arc::new(server), RequestDurations::new(metrics));
    Router::new().fallback(serve).with_state(state)
}

async fn serve(
    State((server, durations)): State<(Arc<CatalogServer>, RequestDurations)>,
    request: Request,
) -> Response {
    let record = durations.begin(&request);
    let is_head = request.method() == Method::HEAD;
    let (head, body) = request.into_parts();
    let mut response = server.answer(head, body).await;
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if is_head {
        *response.body_mut() = Body::empty();
    }
    record.follow(response)
}

impl CatalogServer {
    /// Answers a request. Checks in the order of docs/design/catalogd.md#order-of-checks: route, method, name,
    /// parameters, existence, conditions.
    async fn answer(&self, head: Parts, body: Body) -> Response {
        let Parts { method, uri, headers, .. } = head;
        let query = uri.query().unwrap_or_default();
        let (endpoint, name) = match route(uri.path()) {
            Route::Catalog(endpoint, name) if self.has(endpoint) => (endpoint, name),
            Route::Redirect(to) => return redirect(to, query),
            _ => return error(StatusCode::NOT_FOUND, "404 page not found"),
        };
        let methods: &[Method] =
            if endpoint == Endpoint::GraphQl { &[Method::POST] } else { &[Method::GET, Method::HEAD] };
        if !methods.contains(&method) {
            return error(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
        }
        let problems = name_problems(&name);
        if !problems.is_empty() {
            let text = format!("invalid catalog name: {}", problems.join("; "));
            return error(StatusCode::BAD_REQUEST, &text);
        }
        let selector = match endpoint {
            Endpoint::All => MetaSelector::default(),
            Endpoint::Metas => match selector(query) {
                Some(selector) => selector,
                None => return error(StatusCode::BAD_REQUEST, "400 Bad Request"),
            },
            Endpoint::GraphQl => return self.answer_query(name, &headers, body).await,
        };
        let Some(snapshot) = self.store.get(&name) else {
            return self.without_content(&name);
        };
        let delivered = deliver(endpoint, &snapshot, &selector, &method, &headers).await;
        delivered.unwrap_or_else(|cause| unreadable(&name, &cause))
    }

    /// Answers a `/graphql` request after checking the request body and the existence of the catalog.
    async fn answer_query(&self, name: String, headers: &HeaderMap, body: Body) -> Response {
        let query = match graphql::read_query(body).await {
            Ok(query) => query,
            Err(text) => return error(StatusCode::BAD_REQUEST, text),
        };
        match (&self.graphql, self.store.get(&name)) {
            (Some(graphql), Some(snapshot)) => {
                let answered = graphql.answer(name.clone(), snapshot, query, headers).await;
                answered.unwrap_or_else(|cause| unreadable(&name, &cause))
            }
            _ => self.without_content(&name),
        }
    }

    fn has(&self, endpoint: Endpoint) -> bool {
        match endpoint {
            Endpoint::All => true,
            Endpoint::Metas => self.metas,
            Endpoint::GraphQl => self.graphql.is_some(),
        }
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

fn unreadable(catalog: &str, cause: &io::Error) -> Response {
    tracing::error!(catalog, error = %cause, "failed to read content");
    error(StatusCode::INTERNAL_SERVER_ERROR, "500 Internal Server Error")
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
