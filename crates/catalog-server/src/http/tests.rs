//! Tests of the router with real content, in process.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::sync::Arc;

use ::http::{HeaderMap, Method, Request, StatusCode};
use axum::Router;
use axum::body::{Body, to_bytes};
use olm_runtime::metrics::Metrics;
use tower::ServiceExt;

use super::{CatalogServer, router};
use crate::content::Store;

const IMAGE: &str = "r.example/a/b@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const TAG: &str = "0123456789abcdef0123456789abcdef.1";

struct Fixture {
    router: Router,
    store: Arc<Store>,
    metrics: Metrics,
    _cache: tempfile::TempDir,
}

/// Serves the catalogs `cat` and `tiny` (smaller than the compression threshold). `lost` is expected but has no
/// content.
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
    let server = CatalogServer {
        store: Arc::clone(&store),
        is_expected: Box::new(|name| name == "lost"),
        metas,
        graphql: None,
    };
    Fixture { router: router(server, &metrics), store, metrics, _cache: cache }
}

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn replace(store: &Store, name: &str, yaml: &str) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("catalog.yaml"), yaml).unwrap();
    store.replace(name, folder.path(), IMAGE.to_owned()).unwrap();
}

struct TestResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl TestResponse {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Fixture {
    async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> TestResponse {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let (parts, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        let body = to_bytes(body, 1 << 24).await.unwrap().to_vec();
        TestResponse { status: parts.status, headers: parts.headers, body }
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> TestResponse {
        self.ask(Method::GET, path, headers).await
    }
}

const ALL: &str = "/catalogs/cat/api/v1/all";
const METAS: &str = "/catalogs/cat/api/v1/metas";

// Case catalogd-46
#[tokio::test]
async fn all_returns_every_object_with_headers() {
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
    // Case catalogd-60
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

// Case catalogd-47
#[tokio::test]
async fn accept_encoding_compresses_all_and_metas() {
    let fixture = fixture(true);
    let mut begun = BTreeSet::new();
    for path in [ALL, METAS, "/catalogs/cat/api/v1/metas?schema=olm.bundle"] {
        let plain = fixture.get(path, &[]).await;
        // The second answer may come from the cached copy.
        for (accept, encoding) in [("gzip", "gzip"), ("gzip", "gzip"), ("gzip, zstd", "zstd")] {
            let answer = fixture.get(path, &[("accept-encoding", accept)]).await;
            assert_eq!(answer.header("content-encoding"), Some(encoding), "{path}");
            assert_eq!(answer.header("accept-ranges"), None);
            assert_eq!(answer.header("etag"), Some(format!("\"{TAG}-{encoding}\"").as_str()));
            assert_eq!(decoded(encoding, &answer.body), plain.body, "{path} {accept}");
            // The copy of all content is sent while it is written, so the first answer has no length.
            let (length, expected) = (answer.header("content-length"), answer.body.len().to_string());
            let is_first = path == ALL && begun.insert(encoding);
            assert!(length == Some(&expected) || is_first && length.is_none(), "{path} {accept} {length:?}");
        }
    }
    let identities = [(ALL, "br"), (ALL, "*"), ("/catalogs/tiny/api/v1/all", "gzip"), ("/none", "gzip")];
    for (path, accept) in identities {
        let answer = fixture.get(path, &[("accept-encoding", accept)]).await;
        assert_eq!(answer.header("content-encoding"), None, "{path} {accept}");
    }
}

// docs/design/catalogd.md#conditional-requests; case catalogd-48
#[tokio::test]
async fn conditional_requests_return_304_or_412() {
    let fixture = fixture(true);
    let modified = fixture.get(ALL, &[]).await.header("last-modified").unwrap().to_owned();
    let tag = format!("\"{TAG}-gzip\"");
    let old = "Thu, 01 Jan 1970 00:00:00 GMT";
    let rows: [(&[(&str, &str)], StatusCode); 9] = [
        (&[("if-modified-since", &modified)], StatusCode::NOT_MODIFIED),
        (&[("if-none-match", &tag)], StatusCode::NOT_MODIFIED),
        (&[("if-none-match", "*")], StatusCode::NOT_MODIFIED),
        (&[("if-none-match", "\"x\""), ("if-modified-since", &modified)], StatusCode::OK),
        (&[("if-modified-since", old)], StatusCode::OK),
        (&[("if-modified-since", "soon")], StatusCode::OK),
        (&[("if-match", &tag)], StatusCode::OK),
        (&[("if-match", "\"x\"")], StatusCode::PRECONDITION_FAILED),
        (&[("if-unmodified-since", old)], StatusCode::PRECONDITION_FAILED),
    ];
    for path in [ALL, METAS, "/catalogs/cat/api/v1/metas?schema=olm.package"] {
        for (headers, status) in rows {
            for method in [Method::GET, Method::HEAD] {
                let answer = fixture.ask(method, path, headers).await;
                assert_eq!(answer.status, status, "{path} {headers:?}");
                assert_eq!(answer.header("last-modified"), Some(modified.as_str()));
                assert_eq!(answer.header("etag"), Some(format!("\"{TAG}\"").as_str()));
                assert_eq!(answer.header("olm-catalog-digest"), Some(DIGEST));
                if status != StatusCode::OK {
                    assert_eq!((answer.body.len(), answer.header("content-type")), (0, None));
                }
            }
        }
    }
    // The tag of the representation that the client has.
    let unchanged = fixture.get(ALL, &[("if-none-match", &tag), ("accept-encoding", "gzip")]).await;
    assert_eq!((unchanged.status.as_u16(), unchanged.header("etag")), (304, Some(tag.as_str())));
    assert_eq!(unchanged.header("content-encoding"), None);
}

// Case catalogd-49
#[tokio::test]
async fn range_requests_return_parts() {
    let fixture = fixture(true);
    let whole = fixture.get(ALL, &[]).await.body;
    let size = whole.len();
    let part = fixture.get(ALL, &[("range", "bytes=0-9"), ("accept-encoding", "gzip")]).await;
    assert_eq!((part.status, part.body.as_slice()), (StatusCode::PARTIAL_CONTENT, &whole[..10]));
    assert_eq!(part.header("content-range"), Some(format!("bytes 0-9/{size}").as_str()));
    assert_eq!(part.header("content-encoding"), None);
    assert_eq!(part.header("olm-catalog-digest"), Some(DIGEST));
    let head = fixture.ask(Method::HEAD, ALL, &[("range", "bytes=0-9")]).await;
    assert_eq!((head.status, head.body.len()), (StatusCode::PARTIAL_CONTENT, 0));
    assert_eq!(head.header("content-length"), Some("10"));

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
    assert_eq!(beyond.header("olm-catalog-digest"), Some(DIGEST));
    let (plain, gzip) = (format!("\"{TAG}\""), format!("\"{TAG}-gzip\""));
    for (condition, status) in [(plain.as_str(), 206), ("\"x\"", 200), (gzip.as_str(), 200)] {
        let answer = fixture.get(ALL, &[("range", "bytes=0-9"), ("if-range", condition)]).await;
        assert_eq!(answer.status.as_u16(), status, "{condition}");
        assert_eq!(answer.body.len(), if status == 206 { 10 } else { size });
    }
    assert_eq!(fixture.get(METAS, &[("range", "bytes=0-9")]).await.status, StatusCode::OK);
}

// Cases catalogd-50, catalogd-51, catalogd-52
#[tokio::test]
async fn invalid_requests_return_reference_errors() {
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
        assert_eq!((answer.header("etag"), answer.header("olm-catalog-digest")), (None, None));
        assert_eq!(answer.header("vary"), Some("Accept-Encoding"));
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

// Case catalogd-52
#[tokio::test]
async fn metas_filters_and_is_cached() {
    let off = fixture(false);
    let answer = off.get(METAS, &[]).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (404, "404 page not found\n"));

    let fixture = fixture(true);
    let head =
        fixture.ask(Method::HEAD, &format!("{METAS}?package=foo"), &[("accept-encoding", "gzip")]).await;
    assert_eq!((head.status, head.body.len(), head.header("content-encoding")), (StatusCode::OK, 0, None));
    let rows = [
        ("schema=olm.package", 1),
        ("package=foo", 41),
        ("package=foo&name=stable", 1),
        ("schema=none", 0),
        ("schema=olm.bundle&schema=olm.package", 40),
    ];
    for (query, lines) in rows {
        let answer = fixture.get(&format!("{METAS}?{query}"), &[]).await;
        // The second answer comes from the cache.
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

// docs/design/catalogd.md#no-semantic-checks-on-the-server, docs/design/catalogd.md#metas
#[tokio::test]
async fn empty_and_duplicate_content_is_served() {
    let fixture = fixture(true);
    replace(&fixture.store, "empty", "");
    for path in ["/catalogs/empty/api/v1/all", "/catalogs/empty/api/v1/metas"] {
        let empty = fixture.get(path, &[("accept-encoding", "gzip")]).await;
        assert_eq!((empty.status, empty.body.len()), (StatusCode::OK, 0));
        assert_eq!(empty.header("content-length"), Some("0"));
        assert_eq!(empty.header("content-encoding"), None);
    }
    let yaml = "{schema: a, name: twice}\n---\n{schema: a, name: twice}\n---\nvalues: 1\n---\n\
                {schema: olm.package, name: p, package: q}\n";
    replace(&fixture.store, "odd", yaml);
    for (query, lines) in [("schema=a&name=twice", 2), ("package=q", 1), ("", 4)] {
        let answer = fixture.get(&format!("/catalogs/odd/api/v1/metas?{query}"), &[]).await;
        assert_eq!(answer.text().lines().count(), lines, "{query}");
    }
}

#[tokio::test]
async fn compressed_copy_is_sent_while_being_written() {
    let fixture = fixture(true);
    // Slow to compress.
    let numbers: Vec<_> =
        (0..400_000u64).map(|n| n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_string()).collect();
    replace(&fixture.store, "long", &format!("schema: a\ntext: {}\n", numbers.join(" ")));
    let (path, gzip) = ("/catalogs/long/api/v1/all", [("accept-encoding", "gzip")]);
    let plain = fixture.get(path, &[]).await;
    let (first, second) = tokio::join!(fixture.get(path, &gzip), fixture.get(path, &gzip));
    for answer in [first, second] {
        assert_eq!(
            (answer.header("content-encoding"), answer.header("content-length")),
            (Some("gzip"), None)
        );
        assert_eq!(decoded("gzip", &answer.body), plain.body);
    }
    let later = fixture.get(path, &gzip).await;
    assert_eq!(later.header("content-length"), Some(later.body.len().to_string().as_str()));
}

// docs/design/catalogd.md#compression: answers above 4 MiB are compressed while they are sent, at most two at a
// time.
#[tokio::test]
async fn long_metas_answers_are_compressed_for_two_clients_at_a_time() {
    let fixture = fixture(true);
    let text = "catalog content ".repeat(400_000);
    replace(&fixture.store, "long", &format!("schema: a\ntext: {text}\n---\nschema: b\n"));
    let path = "/catalogs/long/api/v1/metas?schema=a";
    let plain = fixture.get(path, &[]).await;
    assert!(plain.body.len() > 6_000_000);
    let gzip = [("accept-encoding", "gzip")];
    let answer = fixture.get(path, &gzip).await;
    assert_eq!((answer.header("content-encoding"), answer.header("content-length")), (Some("gzip"), None));
    assert_eq!(decoded("gzip", &answer.body), plain.body);
    let request = || Request::get(path).header("accept-encoding", "gzip").body(Body::empty()).unwrap();
    let mut unread = Vec::new();
    for _ in 0..2 {
        unread.push(fixture.router.clone().oneshot(request()).await.unwrap());
    }
    let third = fixture.get(path, &gzip).await;
    assert_eq!((third.header("content-encoding"), third.body == plain.body), (None, true));
    drop(unread);
    assert_eq!(fixture.get(path, &gzip).await.header("content-encoding"), Some("gzip"));
}

// docs/design/catalogd.md#storing-content; case catalogd-53
#[tokio::test]
async fn readers_do_not_wait_for_writer_of_another_catalog() {
    let fixture = fixture(true);
    let folder = tempfile::tempdir().unwrap();
    let document = "---\nschema: olm.bundle\nname: x\nlist: [one, two, three, four, five, six, seven]\n";
    std::fs::write(folder.path().join("catalog.yaml"), document.repeat(20_000)).unwrap();
    let store = Arc::clone(&fixture.store);
    let written =
        std::thread::spawn(move || store.replace("other", folder.path(), IMAGE.to_owned()).map(drop));
    let mut answered = 0;
    while !written.is_finished() {
        assert_eq!(fixture.get(METAS, &[]).await.status, StatusCode::OK);
        answered += 1;
    }
    written.join().unwrap().unwrap();
    assert!(answered > 10, "{answered}");
}

// Case catalogd-54
#[tokio::test]
async fn slow_reader_gets_complete_old_content() {
    let fixture = fixture(true);
    let request = Request::get(ALL).body(Body::empty()).unwrap();
    let response = fixture.router.clone().oneshot(request).await.unwrap();
    let expect = fixture.get(ALL, &[]).await.body;
    replace(&fixture.store, "cat", "schema: new\n");
    assert_eq!(to_bytes(response.into_body(), 1 << 24).await.unwrap(), expect);
    assert_eq!(fixture.get(ALL, &[]).await.text(), "{\"schema\":\"new\"}\n");
}
