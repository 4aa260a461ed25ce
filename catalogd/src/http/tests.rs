//! The router against real content, in process.

use std::io::{Read, Write};
use std::sync::Arc;

use ::http::{HeaderMap, Method, Request, StatusCode};
use axum::Router;
use axum::body::{Body, to_bytes};
use olm_service::metrics::Metrics;
use tower::ServiceExt;

use super::{CatalogServer, router};
use crate::content::Store;

const IMAGE: &str = "r.example/a/b@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const TAG: &str = "0123456789abcdef0123456789abcdef";

struct Fixture {
    router: Router,
    store: Arc<Store>,
    metrics: Metrics,
    _cache: tempfile::TempDir,
}

/// Serves catalog `cat` of spec 02 §K and the tiny catalog `tiny`; `lost` should be here but is not.
fn fixture(metas: bool) -> Fixture {
    let cache = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::open(cache.path()).unwrap());
    let mut catalog =
        "---\nschema: olm.package\nname: foo\n---\nschema: olm.channel\npackage: foo\nname: stable\n\
                       entries: [{name: foo.v1}]\n---\nname: noschema\npackage: foo\n"
            .to_owned();
    for number in 0..40 {
        catalog.push_str(&format!("---\nschema: olm.bundle\npackage: foo\nname: foo.v{number}\n"));
    }
    replace(&store, "cat", &catalog);
    replace(&store, "tiny", "schema: x\n");
    let metrics = Metrics::new();
    let server =
        CatalogServer { store: Arc::clone(&store), is_expected: Box::new(|name| name == "lost"), metas };
    Fixture { router: router(server, &metrics), store, metrics, _cache: cache }
}

fn replace(store: &Store, name: &str, yaml: &str) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("catalog.yaml"), yaml).unwrap();
    store.replace(name, folder.path(), IMAGE.to_owned()).unwrap();
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Fixture {
    async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let (parts, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        let body = to_bytes(body, 1 << 24).await.unwrap().to_vec();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.ask(Method::GET, path, headers).await
    }
}

const ALL: &str = "/catalogs/cat/api/v1/all";
const METAS: &str = "/catalogs/cat/api/v1/metas";

// spec 02 acceptance 46
#[tokio::test]
async fn all_serves_every_line() {
    let fixture = fixture(true);
    let answer = fixture.get(ALL, &[]).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("content-type"), Some("application/jsonl"));
    assert_eq!(answer.header("accept-ranges"), Some("bytes"));
    assert_eq!(answer.header("vary"), Some("Accept-Encoding"));
    assert_eq!(answer.header("etag"), Some(format!("\"{TAG}\"").as_str()));
    assert!(answer.header("last-modified").is_some_and(|date| date.ends_with(" GMT")));
    assert_eq!(answer.header("content-length"), Some(answer.body.len().to_string().as_str()));
    assert_eq!(answer.text().lines().count(), 43);
    assert!(answer.text().starts_with("{\"name\":\"foo\",\"schema\":\"olm.package\"}\n"));
    assert_eq!(fixture.get(&format!("{ALL}?foo=1"), &[]).await.body, answer.body);

    let head = fixture.ask(Method::HEAD, ALL, &[("accept-encoding", "gzip")]).await;
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
    assert_eq!(head.header("content-length"), answer.header("content-length"));
    assert_eq!(head.header("content-encoding"), None);
    // spec 02 acceptance 60
    assert!(
        fixture
            .metrics
            .prometheus_text()
            .contains("catalogd_http_request_duration_seconds_count{code=\"200\"} 3")
    );
}

fn decoded(encoding: &str, body: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match encoding {
        "gzip" => drop(flate2::read::MultiGzDecoder::new(body).read_to_end(&mut plain).unwrap()),
        "zstd" => plain.write_all(&zstd::decode_all(body).unwrap()).unwrap(),
        other => panic!("{other}"),
    }
    plain
}

// spec 02 acceptance 47
#[tokio::test]
async fn compression() {
    let fixture = fixture(true);
    let plain = fixture.get(ALL, &[]).await;
    for path in [ALL, METAS, "/catalogs/cat/api/v1/metas?schema=olm.bundle"] {
        let plain = fixture.get(path, &[]).await;
        // The second answer may come from the stored copy.
        for (accept, encoding) in [("gzip", "gzip"), ("gzip", "gzip"), ("gzip, zstd", "zstd")] {
            let answer = fixture.get(path, &[("accept-encoding", accept)]).await;
            assert_eq!(answer.header("content-encoding"), Some(encoding), "{path}");
            assert_eq!(answer.header("accept-ranges"), None);
            assert_eq!(answer.header("etag"), Some(format!("\"{TAG}-{encoding}\"").as_str()));
            assert_eq!(decoded(encoding, &answer.body), plain.body, "{path} {accept}");
        }
    }
    let snapshot = fixture.store.get("cat").unwrap();
    for encoding in [super::Encoding::Gzip, super::Encoding::Zstd] {
        snapshot.compress(encoding);
        assert!(snapshot.compressed(encoding).is_some());
        let name = encoding.name();
        let answer = fixture.get(ALL, &[("accept-encoding", name)]).await;
        assert_eq!(answer.header("content-length"), Some(answer.body.len().to_string().as_str()));
        assert_eq!(decoded(name, &answer.body), plain.body);
    }
    let identities = [(ALL, "br"), (ALL, "*"), ("/catalogs/tiny/api/v1/all", "gzip"), ("/none", "gzip")];
    for (path, accept) in identities {
        let answer = fixture.get(path, &[("accept-encoding", accept)]).await;
        assert_eq!(answer.header("content-encoding"), None, "{path} {accept}");
    }
}

// spec 02 acceptance 48
#[tokio::test]
async fn conditions() {
    let fixture = fixture(true);
    let modified = fixture.get(ALL, &[]).await.header("last-modified").unwrap().to_owned();
    let tag = format!("\"{TAG}-gzip\"");
    let rows: [(&[(&str, &str)], StatusCode); 6] = [
        (&[("if-modified-since", &modified)], StatusCode::NOT_MODIFIED),
        (&[("if-none-match", &tag)], StatusCode::NOT_MODIFIED),
        (&[("if-modified-since", "Thu, 01 Jan 1970 00:00:00 GMT")], StatusCode::OK),
        (&[("if-modified-since", "soon")], StatusCode::OK),
        (&[("if-match", "\"x\"")], StatusCode::PRECONDITION_FAILED),
        (&[("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT")], StatusCode::PRECONDITION_FAILED),
    ];
    for path in [ALL, METAS] {
        for (headers, status) in rows {
            let answer = fixture.get(path, headers).await;
            assert_eq!(answer.status, status, "{path} {headers:?}");
            if status != StatusCode::OK {
                assert_eq!(answer.body.len(), 0);
                assert_eq!(answer.header("content-type"), None);
                assert_eq!(answer.header("last-modified"), Some(modified.as_str()));
            }
        }
    }
}

// spec 02 acceptance 49
#[tokio::test]
async fn ranges() {
    let fixture = fixture(true);
    let whole = fixture.get(ALL, &[]).await.body;
    let size = whole.len();
    let part = fixture.get(ALL, &[("range", "bytes=0-9"), ("accept-encoding", "gzip")]).await;
    assert_eq!((part.status, part.body.as_slice()), (StatusCode::PARTIAL_CONTENT, &whole[..10]));
    assert_eq!(part.header("content-range"), Some(format!("bytes 0-9/{size}").as_str()));
    assert_eq!(part.header("content-encoding"), None);

    let several = fixture.get(ALL, &[("range", "bytes=0-1,-3")]).await;
    let kind = several.header("content-type").unwrap();
    let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap();
    let expect = format!(
        "--{boundary}\r\nContent-Range: bytes 0-1/{size}\r\nContent-Type: application/jsonl\r\n\r\n{}\r\n\
         --{boundary}\r\nContent-Range: bytes {}-{}/{size}\r\nContent-Type: application/jsonl\r\n\r\n{}\r\n\
         --{boundary}--\r\n",
        std::str::from_utf8(&whole[..2]).unwrap(),
        size - 3,
        size - 1,
        std::str::from_utf8(&whole[size - 3..]).unwrap(),
    );
    assert_eq!(several.text(), expect);
    assert_eq!(several.header("content-length"), Some(expect.len().to_string().as_str()));

    let beyond = fixture.get(ALL, &[("range", "bytes=99999999-")]).await;
    assert_eq!(beyond.status, StatusCode::RANGE_NOT_SATISFIABLE);
    assert_eq!(beyond.text(), "invalid range: failed to overlap\n");
    assert_eq!(beyond.header("content-range"), Some(format!("bytes */{size}").as_str()));
    let stale = fixture.get(ALL, &[("range", "bytes=0-9"), ("if-range", "\"x\"")]).await;
    assert_eq!((stale.status, stale.body.len()), (StatusCode::OK, size));
    assert_eq!(fixture.get(METAS, &[("range", "bytes=0-9")]).await.status, StatusCode::OK);
}

// spec 02 acceptance 50, 51, 52
#[tokio::test]
async fn refusals() {
    let fixture = fixture(true);
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
        let answer = fixture.ask(method, ALL, &[]).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (405, "Method Not Allowed\n"));
        assert_eq!(answer.header("allow"), None);
    }
    let rows = [
        ("/catalogs/none/api/v1/all", 404, "404 Not Found\n"),
        ("/catalogs/lost/api/v1/all", 503, "503 Service Unavailable\n"),
        ("/", 404, "404 page not found\n"),
        ("/catalogs/cat", 404, "404 page not found\n"),
        ("/catalogs/cat/api/v1/all/", 404, "404 page not found\n"),
        ("/catalogs/cat/api/v1/graphql", 404, "404 page not found\n"),
        ("/catalogs/none/api/v1/metas?foo=1", 400, "400 Bad Request\n"),
    ];
    for (path, status, text) in rows {
        let answer = fixture.get(path, &[]).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (status, text), "{path}");
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("retry-after"), (status == 503).then_some("5"));
    }
    for name in ["Bad_Name", "a%2Fb"] {
        let answer = fixture.get(&format!("/catalogs/{name}/api/v1/all"), &[]).await;
        assert_eq!(answer.status.as_u16(), 400);
        assert!(answer.text().starts_with("invalid catalog name: a lowercase RFC 1123 subdomain"));
    }
    let head = fixture.ask(Method::HEAD, "/catalogs/none/api/v1/all", &[]).await;
    assert_eq!((head.status.as_u16(), head.body.len(), head.header("content-length")), (404, 0, Some("14")));
    let moved = fixture.get("//catalogs/cat/api/v1/metas?schema=x", &[]).await;
    assert_eq!(
        (moved.status.as_u16(), moved.header("location")),
        (307, Some("/catalogs/cat/api/v1/metas?schema=x"))
    );
}

// spec 02 acceptance 52
#[tokio::test]
async fn metas() {
    let off = fixture(false);
    let answer = off.get(METAS, &[]).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (404, "404 page not found\n"));

    let fixture = fixture(true);
    let rows = [
        ("schema=olm.package", 1),
        ("package=foo", 41),
        ("package=foo&name=stable", 1),
        ("schema=none", 0),
        ("schema=olm.bundle&schema=olm.package", 40),
    ];
    for (query, lines) in rows {
        let answer = fixture.get(&format!("{METAS}?{query}"), &[]).await;
        // The second answer comes from memory.
        let again = fixture.get(&format!("{METAS}?{query}"), &[]).await;
        assert_eq!(
            (again.status, &again.headers, &again.body),
            (answer.status, &answer.headers, &answer.body)
        );
        assert_eq!((answer.status, answer.text().lines().count()), (StatusCode::OK, lines), "{query}");
        assert_eq!(answer.header("accept-ranges"), None);
    }
    assert_eq!(fixture.get(METAS, &[]).await.body, fixture.get(ALL, &[]).await.body);
    let empty = fixture.get(&format!("{METAS}?schema="), &[]).await;
    assert_eq!(empty.body, fixture.get(ALL, &[]).await.body);
}

// spec 02 acceptance 54
#[tokio::test]
async fn a_slow_reader_gets_the_old_version_whole() {
    let fixture = fixture(true);
    let request = Request::get(ALL).body(Body::empty()).unwrap();
    let response = fixture.router.clone().oneshot(request).await.unwrap();
    let expect = fixture.get(ALL, &[]).await.body;
    replace(&fixture.store, "cat", "schema: new\n");
    assert_eq!(to_bytes(response.into_body(), 1 << 24).await.unwrap(), expect);
    assert_eq!(fixture.get(ALL, &[]).await.text(), "{\"schema\":\"new\"}\n");
}
