//! Requests to the real routes, without a cluster and without a browser.

mod hostile;
mod users;

use std::path::Path;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode, header};
use clap::Parser;
use olm_cli_core::session::Session;
use tower::ServiceExt;

use super::ConsoleArgs;
use super::app::{App, Console, router};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: ConsoleArgs,
}

/// Console with the catalogs of these directories, and a session.
pub(super) struct Rig {
    pub(super) console: App,
    cookie: String,
}

/// Response that was read.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Rig {
    pub(super) async fn new(arguments: &[&str]) -> Self {
        let line = Line::parse_from(["console"].iter().chain(arguments));
        let console = Arc::new(Console::new(&line.args, &Session::start()).await.unwrap());
        console.hosts.listen_at(8000);
        let mut rig = Self { console, cookie: String::new() };
        let login = rig.console.keys.login_path();
        let cookie = rig.get(&login).await.headers[header::SET_COOKIE].to_str().unwrap().to_owned();
        rig.cookie = cookie.split(';').next().unwrap().to_owned();
        rig
    }

    /// Console with a catalog `hostile` that consists of this YAML.
    pub(super) async fn with_catalog(folder: &Path, yaml: &str) -> Self {
        std::fs::write(folder.join("catalog.yaml"), yaml).unwrap();
        Self::new(&["--catalog", &format!("hostile={}", folder.display())]).await
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[("host", "127.0.0.1:8000"), ("cookie", &self.cookie)], "").await
    }

    /// Sends a form of the console, without its token.
    pub(super) async fn post(&self, path: &str, form: &str) -> Answer {
        let headers = [
            ("host", "127.0.0.1:8000"),
            ("origin", "http://127.0.0.1:8000"),
            ("cookie", &self.cookie),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        self.send(Method::POST, path, &headers, form).await
    }

    /// Sends a form of the console with its token.
    pub(super) async fn submit(&self, path: &str, form: &str) -> Answer {
        let session = self.cookie.split_once('=').unwrap().1;
        let token = self.console.keys.csrf_token(session);
        self.post(path, &format!("{form}&csrf={token}")).await
    }

    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = router(&self.console).oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = to_bytes(body, 8 << 20).await.unwrap();
        Answer {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }
}

fn data(name: &str) -> String {
    format!("{}/../olm/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[tokio::test(flavor = "multi_thread")]
async fn list_shows_packages_and_each_filter_has_an_address() {
    let rig = Rig::new(&["--catalog", &data("catalog")]).await;
    let all = rig.get("/").await;
    assert_eq!(all.status, StatusCode::OK, "{}", all.text);
    assert!(all.text.contains("/catalogs/catalog/packages/lamp"), "{}", all.text);
    let none = rig.get("/?q=nowhere&fragment=1").await.text;
    assert!(none.contains("No package matches") && !none.contains("<html"), "{none}");
    assert!(rig.get("/?q=lamp").await.text.contains("value=\"lamp\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn page_above_limit_of_concurrent_work_is_busy() {
    let rig = Rig::new(&["--catalog", &data("catalog")]).await;
    let install = "/catalogs/catalog/packages/lamp/install";
    assert_eq!(rig.get(install).await.status, StatusCode::OK);
    // As at the end of the wait.
    rig.console.visits.close();
    let busy = rig.get(install).await;
    assert_eq!(busy.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(busy.text.contains("too many pages at the same time"), "{}", busy.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn extensions_without_cluster_have_no_entry_and_say_why() {
    let rig = Rig::new(&["--catalog", &data("catalog")]).await;
    assert!(!rig.get("/").await.text.contains("/extensions"));
    for path in ["/extensions", "/extensions/pipe", "/extensions/pipe/why", "/extensions?fragment=1&seen=1.1"]
    {
        let answer = rig.get(path).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{path}");
        assert!(
            answer.text.contains("start it with --catalog cluster to show extensions"),
            "{}",
            answer.text
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_response_has_security_headers() {
    let rig = Rig::new(&["--catalog", &data("catalog")]).await;
    for path in ["/", "/nowhere", "/assets/0/console.js", "/login"] {
        let answer = rig.get(path).await;
        let header = |name: &str| answer.headers[name].to_str().unwrap().to_owned();
        assert!(
            header("content-security-policy").starts_with("default-src 'none'; script-src 'self'"),
            "{path}"
        );
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("referrer-policy"), "same-origin", "{path}");
        assert_eq!(header("cross-origin-opener-policy"), "same-origin", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn port_must_be_free_on_both_loopback_addresses() {
    // A host without IPv6 has only one.
    let Ok(taken) = std::net::TcpListener::bind("[::1]:0") else { return };
    let port = taken.local_addr().unwrap().port();
    let args = || Line::parse_from(["console", "--catalog", &data("catalog")]).args;
    let console = Arc::new(Console::new(&args(), &Session::start()).await.unwrap());
    let error = super::listen(&console, port).await.unwrap_err().to_string();
    assert!(error.starts_with("cannot start the server: listen on "), "{error}");
    let servers = super::listen(&console, 0).await.unwrap();
    let addresses: Vec<_> = servers.iter().map(|server| server.address).collect();
    assert_eq!(addresses.len(), 2, "{addresses:?}");
    assert!(addresses[0].is_ipv4() && addresses[1].is_ipv6(), "{addresses:?}");
    assert!(addresses[0].port() == addresses[1].port() && addresses[0].port() != port, "{addresses:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn console_login_url_is_valid_once() {
    let rig = Rig::new(&["--catalog", &data("catalog")]).await;
    let login = rig.console.keys.login_path();
    let host = [("host", "localhost:8000")];
    assert_eq!(rig.send(Method::GET, &login, &host, "").await.status, StatusCode::OK);
    let second = rig.send(Method::GET, &login, &host, "").await;
    assert_eq!(second.status, StatusCode::UNAUTHORIZED);
    assert!(second.text.contains("printed last"), "{}", second.text);
    let next = rig.console.keys.login_path();
    assert_eq!(rig.send(Method::GET, &next, &host, "").await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn request_without_session_or_with_wrong_secret_is_refused() {
    let rig = Rig::new(&["--catalog", &data("catalog")]).await;
    let host = ("host", "localhost:8000");
    for (path, headers) in [
        ("/", vec![host]),
        ("/", vec![host, ("cookie", "olm-console=x")]),
        ("/login", vec![host]),
        ("/login?secret=x", vec![host]),
        ("/catalogs/catalog/packages/lamp/icon", vec![host]),
        ("/nowhere", vec![host]),
    ] {
        let answer = rig.send(Method::GET, path, &headers, "").await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path} {headers:?}");
        assert!(!answer.text.contains("lamp"), "{}", answer.text);
    }
    let rebound =
        rig.send(Method::GET, "/", &[("host", "evil.example:8000"), ("cookie", &rig.cookie)], "").await;
    assert_eq!(rebound.status, StatusCode::FORBIDDEN);
}
