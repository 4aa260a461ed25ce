//! Tests of the `/graphql` route with real content, in process.

use std::io::Read;

use ::http::{Method, Request};
use axum::Router;
use olm_runtime::metrics::Metrics;
use proptest::prelude::*;
use serde_json::json;
use tower::ServiceExt;

use super::super::{CatalogServer, router};
use super::*;
use crate::content::Store;

const IMAGE: &str = "r.example/a/b@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const GRAPHQL: &str = "/catalogs/cat/api/v1/graphql";

struct Fixture {
    router: Router,
    store: Arc<Store>,
    cache: tempfile::TempDir,
}

/// Objects of catalog `cat`.
fn cat() -> String {
    let mut yaml = "schema: olm.package\nname: foo\n---\nschema: olm.channel\npackage: foo\nname: stable\n\
                    entries: [{name: foo.v1, skips: [foo.v0]}]\n---\nname: noschema\npackage: foo\n"
        .to_owned();
    for number in 0..40 {
        yaml.push_str(&format!("---\nschema: olm.bundle\npackage: foo\nname: foo.v{number}\n"));
    }
    yaml
}

/// Serves [`cat`]. `lost` is expected but has no content.
fn fixture(is_observed: bool) -> Fixture {
    let cache = tempfile::tempdir().unwrap();
    let store = Store::open(cache.path()).unwrap();
    let store = Arc::new(if is_observed { store.observed_by(observer) } else { store });
    replace(&store, "cat", &cat());
    Fixture { router: serve(&store, Some(GraphQl::default())), store, cache }
}

fn serve(store: &Arc<Store>, graphql: Option<GraphQl>) -> Router {
    let is_expected = Box::new(|name: &str| name == "lost");
    let server = CatalogServer { store: Arc::clone(store), is_expected, metas: true, graphql };
    router(server, &Metrics::new())
}

fn replace(store: &Store, name: &str, yaml: &str) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("catalog.yaml"), yaml).unwrap();
    store.replace(name, folder.path(), IMAGE.to_owned()).unwrap();
}

struct TestResponse {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl TestResponse {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn text(&self) -> (u16, &str) {
        (self.status, str::from_utf8(&self.body).unwrap())
    }
}

async fn send(router: &Router, request: Request<Body>) -> TestResponse {
    let (parts, body) = router.clone().oneshot(request).await.unwrap().into_parts();
    let body = to_bytes(body, 1 << 27).await.unwrap().to_vec();
    TestResponse { status: parts.status.as_u16(), headers: parts.headers, body }
}

impl Fixture {
    async fn post(&self, path: &str, body: impl Into<Body>) -> TestResponse {
        send(&self.router, Request::post(path).body(body.into()).unwrap()).await
    }

    async fn ask(&self, catalog: &str, query: &str) -> Value {
        let path = format!("/catalogs/{catalog}/api/v1/graphql");
        let answer = self.post(&path, json!({"query": query}).to_string()).await;
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, Some("application/json")),
            "{query}"
        );
        serde_json::from_slice(&answer.body).unwrap()
    }
}

fn failed(message: &str) -> Value {
    json!({"data": null, "errors": [{"message": message, "locations": []}]})
}

// Case catalogd-55: with a schema discovered while storing, and with one discovered by reading
#[tokio::test]
async fn queries_return_pages_and_limit_depth() {
    for is_observed in [true, false] {
        let fixture = fixture(is_observed);
        assert_eq!(fixture.store.get("cat").unwrap().findings.is_some(), is_observed);
        let summary = fixture.post(GRAPHQL, r#"{"query":"{ summary { totalSchemas } }"}"#).await;
        assert_eq!(summary.text(), (200, "{\"data\":{\"summary\":{\"totalSchemas\":3}}}\n"));
        assert_eq!(
            fixture.ask("cat", "{ olmbundles(limit: 2, offset: 1) { name } }").await,
            json!({"data": {"olmbundles": [{"name": "foo.v1"}, {"name": "foo.v2"}]}})
        );
        let all = fixture.ask("cat", "{ olmbundles(limit: 1000) { name } }").await;
        assert_eq!(all["data"]["olmbundles"].as_array().unwrap().len(), 40);
        let deep = "{a".repeat(11) + &"}".repeat(11);
        assert_eq!(fixture.ask("cat", &deep).await, failed("query exceeds maximum depth of 10"));
        assert_eq!(
            fixture.ask("cat", "{ olmchannels { entries { name skips } } }").await["data"],
            json!({"olmchannels": [{"entries": [{"name": "foo.v1", "skips": ["foo.v0"]}]}]})
        );
    }
    let mut many = String::new();
    (0..150).for_each(|number| many.push_str(&format!("---\nschema: x\nname: n{number}\n")));
    let fixture = fixture(true);
    replace(&fixture.store, "many", &many);
    let page = fixture.ask("many", "{ xs(limit: 1000) { name } }").await;
    assert_eq!(page["data"]["xs"].as_array().unwrap().len(), 100);
}

// docs/design/catalogd.md#order-of-checks, docs/design/catalogd.md#graphql-requests: the table of statuses
#[tokio::test]
async fn invalid_requests_return_reference_errors() {
    let fixture = fixture(true);
    let long = format!(r#"{{"query":"{}"}}"#, "a".repeat(MAX_QUERY + 1));
    let large = format!(r#"{{"query":"{}"}}"#, "a".repeat(MAX_BODY));
    let none = "/catalogs/none/api/v1/graphql";
    let query = r#"{"query":"{ summary { totalSchemas } }"}"#;
    let rows = [
        (GRAPHQL, "{", 400, "Invalid request body\n"),
        (GRAPHQL, large.as_str(), 400, "Invalid request body\n"),
        (GRAPHQL, r#"{"query":""}"#, 400, "Query cannot be empty\n"),
        (GRAPHQL, long.as_str(), 400, "Query too large\n"),
        (none, "{", 400, "Invalid request body\n"),
        (none, query, 404, "404 Not Found\n"),
        ("/catalogs/lost/api/v1/graphql", query, 503, "503 Service Unavailable\n"),
        ("/catalogs/cat/api/v1/graphql/", query, 404, "404 page not found\n"),
    ];
    for (path, body, status, text) in rows {
        let answer = fixture.post(path, body.to_owned()).await;
        assert_eq!(answer.text(), (status, text), "{path}");
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    }
    let name = fixture.post("/catalogs/Bad_Name/api/v1/graphql", "{").await;
    assert!(name.text().1.starts_with("invalid catalog name: "), "{:?}", name.text());
    for method in [Method::GET, Method::HEAD, Method::PUT, Method::OPTIONS] {
        let request = Request::builder().method(&method).uri(GRAPHQL).body(Body::from(query)).unwrap();
        let answer = send(&fixture.router, request).await;
        let text = if method == Method::HEAD { "" } else { "Method Not Allowed\n" };
        assert_eq!(answer.text(), (405, text), "{method}");
        assert_eq!(answer.header("allow"), None);
    }
    let off = serve(&fixture.store, None);
    let answer = send(&off, Request::post(GRAPHQL).body(Body::from(query)).unwrap()).await;
    assert_eq!(answer.text(), (404, "404 page not found\n"));

    assert_eq!(
        fixture.ask("cat", "{ a ) }").await,
        json!({"data": null, "errors": [{
            "message": "query parse error: Syntax Error GraphQL (1:5) Unexpected )",
            "locations": [{"line": 1, "column": 5}],
        }]})
    );
    let errors = fixture.ask("cat", "mutation { a }").await["errors"].clone();
    assert_eq!(errors[0]["message"], "Schema is not configured for mutations");
}

#[tokio::test]
async fn answers_are_compressed_and_name_the_digest() {
    let fixture = fixture(true);
    let query = |query: &str| Body::from(json!({"query": query}).to_string());
    let ask = |text: &str, accept: &str| {
        let request =
            Request::post(GRAPHQL).header("accept-encoding", accept).header("content-type", "text/odd");
        send(&fixture.router, request.body(query(text)).unwrap())
    };
    let short = ask("{ summary { totalSchemas } }", "gzip").await;
    assert_eq!(short.header("content-encoding"), None);
    assert_eq!(short.header("vary"), Some("Accept-Encoding"));
    assert_eq!(short.header("olm-catalog-digest"), IMAGE.rsplit_once('@').map(|(_, digest)| digest));
    let long = "{ olmbundles { name package schema } }";
    let plain = ask(long, "br").await;
    assert_eq!(plain.header("content-encoding"), None);
    let gzip = ask(long, "gzip").await;
    assert_eq!(
        (gzip.header("content-encoding"), gzip.header("content-type")),
        (Some("gzip"), Some("application/json"))
    );
    let mut text = Vec::new();
    flate2::read::GzDecoder::new(gzip.body.as_slice()).read_to_end(&mut text).unwrap();
    assert_eq!(text, plain.body);
}

// docs/design/catalogd.md#graphql-schema-failures
#[tokio::test]
async fn type_name_collision_fails_graphql_of_one_catalog_only() {
    let fixture = fixture(true);
    replace(&fixture.store, "twice", "schema: olm.bundle\n---\nschema: olm-bundle\n");
    let message = "failed to pre-build GraphQL schema for catalog \"twice\": error building GraphQL schema: type name \
                   collision: schemas \"olm-bundle\" and \"olm.bundle\" both sanitize to GraphQL type \"OlmBundle\"";
    for _ in 0..2 {
        assert_eq!(fixture.ask("twice", "{ summary { totalSchemas } }").await, failed(message));
    }
    let all =
        send(&fixture.router, Request::get("/catalogs/twice/api/v1/all").body(Body::empty()).unwrap()).await;
    assert_eq!(all.text().1.lines().count(), 2);
    let fine = json!({"data": {"summary": {"totalSchemas": 3}}});
    assert_eq!(fixture.ask("cat", "{ summary { totalSchemas } }").await, fine);
}

#[tokio::test]
async fn replaced_content_gets_new_schema() {
    let fixture = fixture(true);
    let query = "{ summary { schemas { name } } }";
    let names = |names: &[&str]| {
        let schemas: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        json!({"data": {"summary": {"schemas": schemas}}})
    };
    assert_eq!(fixture.ask("cat", query).await, names(&["olm.bundle", "olm.channel", "olm.package"]));
    replace(&fixture.store, "cat", "schema: new\n");
    assert_eq!(fixture.ask("cat", query).await, names(&["new"]));
    assert_eq!(
        fixture.ask("cat", "{ news { schema } }").await,
        json!({"data": {"news": [{"schema": "new"}]}})
    );

    // A new process reads the schema from the findings, or discovers it from the content if there are none.
    let store = Arc::new(Store::open(fixture.cache.path()).unwrap());
    assert!(store.get("cat").unwrap().findings.is_some());
    let router = serve(&store, Some(GraphQl::default()));
    let again = Fixture { router, store, cache: fixture.cache };
    assert_eq!(again.ask("cat", query).await, names(&["new"]));
}

/// Schemas of removed contents are dropped.
#[tokio::test]
async fn schemas_are_dropped_with_their_content() {
    let fixture = fixture(true);
    for number in 0..20 {
        replace(&fixture.store, "cat", &format!("schema: s{number}\n"));
        let snapshot = fixture.store.get("cat").unwrap();
        let first = executor("cat", &snapshot).unwrap();
        assert!(Arc::ptr_eq(&first, &executor("cat", &snapshot).unwrap()));
        let held = Arc::downgrade(&first);
        drop((first, snapshot));
        assert!(held.upgrade().is_some());
        replace(&fixture.store, "cat", "schema: x\n");
        assert!(held.upgrade().is_none());
    }
}

#[tokio::test]
async fn timeout_returns_context_deadline_exceeded() {
    let fixture = fixture(true);
    // Timeout while waiting for a permit, and timeout of the query itself.
    for permits in [0, 1] {
        let graphql = GraphQl { permits: Arc::new(Semaphore::new(permits)), time: Duration::ZERO };
        let router = serve(&fixture.store, Some(graphql));
        let body = Body::from(r#"{"query":"{ summary { totalSchemas } }"}"#);
        let answer = send(&router, Request::post(GRAPHQL).body(body).unwrap()).await;
        let answer: Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(answer, failed("context deadline exceeded"));
    }
}

// docs/design/catalogd.md#graphql-requests
#[tokio::test]
async fn request_body_is_parsed_as_in_the_reference() {
    let rows = [
        (r#"{"query":"{a}"}"#, Ok("{a}")),
        (r#"{"variables":{"a":[1]},"QueRy":"{a}","operationName":null} trailing"#, Ok("{a}")),
        (r#"{"query":"{a}","query":"{b}","query":null}"#, Ok("{b}")),
        (r#"{"query":null}"#, Err("Query cannot be empty")),
        ("{}", Err("Query cannot be empty")),
        ("null", Err("Query cannot be empty")),
        (r#"{"query":1}"#, Err("Invalid request body")),
        ("[]", Err("Invalid request body")),
        ("{a}", Err("Invalid request body")),
        (r#"{"query":"{a}""#, Err("Invalid request body")),
        ("", Err("Invalid request body")),
    ];
    for (body, expect) in rows {
        assert_eq!(read_query(body.into()).await, expect.map(str::to_owned), "{body}");
    }
    let longest = format!(r#"{{"query":"{}"}}"#, "a".repeat(MAX_QUERY));
    assert!(read_query(longest.into()).await.is_ok());
    assert_eq!(read_query("[".repeat(MAX_BODY).into()).await, Err("Invalid request body"));
    let nested = format!(r#"{{"x":{},"query":"a"}}"#, "[".repeat(100_000) + &"]".repeat(100_000));
    assert_eq!(read_query(nested.into()).await.as_deref(), Ok("a"));
}

proptest! {
    #[test]
    fn body_parser_accepts_any_bytes_without_panic(body in proptest::collection::vec(any::<u8>(), 0..64)) {
        let mut json = serde_json::Deserializer::from_slice(&body);
        let _ = Option::<RequestBody>::deserialize(&mut json);
    }
}
