//! `/api/v1/graphql` (docs/design/catalogd.md#graphql-requests): requests, and the GraphQL schemas of queried
//! contents.
//!
//! All work is done on blocking threads and few queries run at once, so that no other route waits for a query. A
//! catalog without a valid GraphQL schema is still served by the other endpoints.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use olm_fbc::Meta;
use olm_graphql::{CatalogSchema, Discovery, Executor, Objects, Query, SchemaError, error_response};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::body::Unsent;
use super::response::CATALOG_DIGEST;
use crate::content::{Observer, Snapshot, read_range};
use crate::encoding::{Encoding, LEAST_COMPRESSED, negotiate};

const MAX_BODY: usize = 1 << 20;
const MAX_QUERY: usize = 100_000;
/// Timeout of receiving a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of waiting for a permit, and again of running the query.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Concurrent queries. Each may take a multiple of [`olm_graphql::MAX_RESPONSE`] in memory.
const CONCURRENCY: usize = 2;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Executor of queries on the held contents.
pub struct GraphQl {
    permits: Arc<Semaphore>,
    time: Duration,
}

impl Default for GraphQl {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(CONCURRENCY)), time: TIMEOUT }
    }
}

impl GraphQl {
    /// Answers `query` on the content of `catalog`.
    ///
    /// # Errors
    /// The content cannot be read.
    pub(super) async fn answer(
        &self,
        catalog: String,
        snapshot: Arc<Snapshot>,
        query: String,
        headers: &HeaderMap,
    ) -> io::Result<Response> {
        let accepted = headers.get_all(header::ACCEPT_ENCODING).iter();
        let encoding = negotiate(accepted.filter_map(|value| value.to_str().ok()));
        let digest = HeaderValue::from_str(snapshot.digest()).ok();
        let time = self.time;
        let permit = timeout(time, Arc::clone(&self.permits).acquire_owned()).await;
        let (body, encoding) = match permit {
            Ok(permit) => {
                let work = tokio::task::spawn_blocking(move || {
                    io::Result::Ok((compressed(run(&catalog, snapshot, &query, time)?, encoding)?, permit))
                });
                let ((text, encoding), _permit) = work.await.map_err(io::Error::other)??;
                match Unsent::wait(text.len() as u64, time).await {
                    Some(unsent) => (unsent.body(text.into()), encoding),
                    None => (Body::from(error_response("too many responses are unsent, try again")), None),
                }
            }
            Err(_) => (Body::from(error_response("context deadline exceeded")), None),
        };
        let mut response = (StatusCode::OK, [(header::CONTENT_TYPE, JSON)], body).into_response();
        let encoding = encoding.map(|encoding| HeaderValue::from_static(encoding.name()));
        for (name, value) in [(header::CONTENT_ENCODING, encoding), (CATALOG_DIGEST, digest)] {
            response.headers_mut().extend(value.map(|value| (name, value)));
        }
        Ok(response)
    }
}

/// The answer to `query`, which may run for `time`. Blocks.
fn run(catalog: &str, snapshot: Arc<Snapshot>, query: &str, time: Duration) -> io::Result<Vec<u8>> {
    let query = match Query::parse(query) {
        Ok(query) => query,
        Err(error) => return Ok(error.response()),
    };
    match &*executor(catalog, &snapshot)? {
        Ok(executor) => Ok(executor.run(query, SnapshotObjects(snapshot), Instant::now() + time)),
        Err(problem) => Ok(error_response(&failure_text(catalog, problem))),
    }
}

/// The executor of `snapshot`, built on first use. Blocks.
fn executor(catalog: &str, snapshot: &Snapshot) -> io::Result<Arc<Result<Executor, SchemaError>>> {
    let mut slot = snapshot.executor.lock();
    if let Some(built) = &*slot {
        return Ok(Arc::clone(built));
    }
    let known = snapshot.findings.as_ref().and_then(|findings| CatalogSchema::deserialize(findings).ok());
    let schema = match known {
        Some(schema) => Ok(schema),
        None => discover(snapshot)?,
    };
    let built = schema.and_then(|schema| Executor::new(&schema));
    if let Err(problem) = &built {
        tracing::warn!(catalog, error = failure_text(catalog, problem), "catalog is served without GraphQL");
    }
    Ok(Arc::clone(slot.insert(Arc::new(built))))
}

/// Discovers the schema by reading all content, which was stored without an observer.
fn discover(snapshot: &Snapshot) -> io::Result<Result<CatalogSchema, SchemaError>> {
    let mut discovery = Discovery::default();
    for (schema, range) in snapshot.index.blobs() {
        let json = read(snapshot, range)?;
        let observed = str::from_utf8(&json).map_or(Ok(()), |json| discovery.observe(schema, json));
        if let Err(problem) = observed {
            return Ok(Err(problem));
        }
    }
    Ok(Ok(discovery.finish()))
}

fn failure_text(catalog: &str, problem: &SchemaError) -> String {
    format!(
        "failed to pre-build GraphQL schema for catalog {catalog:?}: error building GraphQL schema: {problem}"
    )
}

fn compressed(text: Vec<u8>, encoding: Option<Encoding>) -> io::Result<(Vec<u8>, Option<Encoding>)> {
    match encoding.filter(|_| text.len() as u64 >= LEAST_COMPRESSED) {
        Some(encoding) => {
            let mut encoder = encoding.encoder(Vec::new())?;
            io::Write::write_all(&mut encoder, &text)?;
            Ok((encoder.finish()?, Some(encoding)))
        }
        None => Ok((text, None)),
    }
}

/// The objects of one content.
struct SnapshotObjects(Arc<Snapshot>);

impl Objects for SnapshotObjects {
    fn ranges(&self, schema: &str, offset: usize, limit: usize) -> Vec<Range<u64>> {
        self.0.index.page(schema, offset, limit)
    }

    fn read(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        read(&self.0, range).inspect_err(|error| tracing::error!(%error, "failed to read content"))
    }
}

fn read(snapshot: &Snapshot, range: Range<u64>) -> io::Result<Vec<u8>> {
    let length = usize::try_from(range.end.saturating_sub(range.start)).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    read_range(&snapshot.data.file, range, &mut bytes)?;
    Ok(bytes)
}

/// An observer that discovers the schema of `catalog` while it is stored, for [`Snapshot::findings`].
pub fn observer(catalog: &str) -> Box<dyn Observer> {
    Box::new(SchemaObserver { catalog: catalog.to_owned(), discovery: Ok(Discovery::default()) })
}

struct SchemaObserver {
    catalog: String,
    discovery: Result<Discovery, SchemaError>,
}

impl Observer for SchemaObserver {
    fn observe(&mut self, meta: &Meta) {
        if let (Ok(discovery), Ok(json)) = (&mut self.discovery, str::from_utf8(&meta.blob))
            && let Err(problem) = discovery.observe(&meta.schema, json)
        {
            self.discovery = Err(problem);
        }
    }

    /// Discards a schema that has no executor. The next query finds the same problem.
    fn finish(self: Box<Self>) -> Option<Value> {
        let schema = self.discovery.map(Discovery::finish);
        match schema.and_then(|schema| Executor::new(&schema).map(|_| schema)) {
            Ok(schema) => serde_json::to_value(schema).ok(),
            Err(problem) => {
                let error = failure_text(&self.catalog, &problem);
                tracing::warn!(catalog = self.catalog, error, "catalog is served without GraphQL");
                None
            }
        }
    }
}

/// The query in a request body.
///
/// # Errors
/// The text of the answer with status 400.
pub(super) async fn read_query(body: Body) -> Result<String, &'static str> {
    const INVALID: &str = "Invalid request body";
    let body =
        timeout(BODY_TIMEOUT, to_bytes(body, MAX_BODY)).await.map_err(|_| INVALID)?.map_err(|_| INVALID)?;
    // Only the first JSON value is parsed. Trailing data is ignored, as in the reference.
    let mut json = serde_json::Deserializer::from_slice(&body);
    let query = Option::<RequestBody>::deserialize(&mut json).map_err(|_| INVALID)?.unwrap_or_default().query;
    match query.len() {
        0 => Err("Query cannot be empty"),
        length if length > MAX_QUERY => Err("Query too large"),
        _ => Ok(query),
    }
}

/// `{"query":"…"}`. The member name is case-insensitive, the last one is used, others are ignored.
#[derive(Default)]
struct RequestBody {
    query: String,
}

impl<'de> Deserialize<'de> for RequestBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RequestBodyVisitor)
    }
}

struct RequestBodyVisitor;

impl<'de> Visitor<'de> for RequestBodyVisitor {
    type Value = RequestBody;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<RequestBody, A::Error> {
        let mut body = RequestBody::default();
        while let Some(name) = members.next_key::<String>()? {
            if !name.eq_ignore_ascii_case("query") {
                members.next_value::<IgnoredAny>()?;
            } else if let Some(query) = members.next_value()? {
                body.query = query;
            }
        }
        Ok(body)
    }
}

#[cfg(test)]
#[path = "graphql_tests.rs"]
mod tests;
