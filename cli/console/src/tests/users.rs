//! Attacks on a console in the cluster. A function answers as the API server (docs/design/console.md#in-the-cluster).

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::http::{Method, Request, Response, StatusCode, header};
use clap::Parser;
use kube::Client;
use kube::client::Body;
use olm_cli_core::session::Session;
use olm_cli_core::source::ClusterConnection;
use serde_json::{Value, json};

use super::{Answer, Line, Rig};
use crate::app::Console;
use crate::visitor::LIFETIME;

const HOST: &str = "olm.example.com";
const ORIGIN: &str = "https://olm.example.com";
const COOKIE: &str = "__Host-olm-console";
const INSTALL: &str = "/catalogs/hub/packages/lamp/install";
const CATALOGS: &str = "/apis/olm.operatorframework.io/v1/clustercatalogs";

/// Pages about the cluster and its extensions.
const CLUSTER_PAGES: [&str; 9] = [
    "/catalogs",
    "/catalogs/add?name=a&preview=yes",
    "/cluster",
    "/cluster/findings",
    "/find?q=lamp",
    "/rights",
    "/extensions/pipe/apis",
    "/extensions/pipe/approve",
    "/extensions/pipe/configure?generation=1",
];

/// Calls to the API server: value of `Authorization`, and path.
type Calls = Arc<Mutex<Vec<(String, String)>>>;

/// Console in the cluster.
struct Pod {
    rig: Rig,
    calls: Calls,
}

impl Pod {
    fn new(arguments: &[&str]) -> Self {
        let calls = Calls::default();
        let fixed = ["console", "--in-cluster", "--host", HOST];
        let args = Line::parse_from(fixed.iter().chain(arguments)).args;
        let base = Arc::new(api_server(Arc::clone(&calls)));
        let console = Arc::new(Console::in_cluster(&args, &base, &Session::start()).unwrap());
        Self { rig: Rig { console, cookie: String::new() }, calls }
    }

    /// Session cookie of a token that begins at `start`, without the attributes.
    fn session(&self, token: &str, start: SystemTime) -> String {
        format!("{COOKIE}={}", self.rig.console.keys.seal(token, start).unwrap())
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.rig.send(Method::GET, path, &[&[("host", HOST)], headers].concat(), "").await
    }

    /// Sends a form of the console.
    async fn post(&self, path: &str, headers: &[(&str, &str)], form: &str) -> Answer {
        let fixed =
            [("host", HOST), ("origin", ORIGIN), ("content-type", "application/x-www-form-urlencoded")];
        self.rig.send(Method::POST, path, &[&fixed, headers].concat(), form).await
    }

    /// CSRF token of a session, or of the user of a proxy.
    fn csrf(&self, credential: &str) -> String {
        self.rig.console.keys.csrf_token(credential)
    }

    /// Calls since the last time.
    fn calls(&self) -> Vec<(String, String)> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }
}

/// API server with the tokens of `admin`, of `lister`, who may list ClusterCatalogs only, and of an empty name.
fn api_server(calls: Calls) -> ClusterConnection {
    let service = tower::service_fn(move |request: Request<Body>| {
        let token = request.headers().get(header::AUTHORIZATION);
        let token = token.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
        let path = request.uri().path().to_owned();
        calls.lock().unwrap().push((token.clone(), path.clone()));
        let user =
            token.strip_prefix("Bearer token-of-").filter(|user| ["admin", "lister", ""].contains(user));
        let (code, body) = respond(user, &path);
        let response = Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
        async move { response }
    });
    ClusterConnection::of_test(Client::new(service, "default"))
}

fn respond(user: Option<&str>, path: &str) -> (u16, Value) {
    let failure = |code: u16, message: &str| {
        (
            code,
            json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": message, "message": message, "code": code}),
        )
    };
    let Some(user) = user else { return failure(401, "Unauthorized") };
    let is_admin = user == "admin";
    let catalog = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog", "metadata": {"name": "hub"},
        "spec": {"source": {"type": "Image", "image": {"ref": "registry.example/hub:v1"}}},
        "status": {"urls": {"base": "https://127.0.0.1:1/catalogs/hub"},
            "resolvedSource": {"type": "Image", "image": {"ref": format!("registry.example/hub@sha256:{}", "0".repeat(64))}},
            "conditions": [{"type": "Serving", "status": "True", "reason": "Available", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let single = format!("{CATALOGS}/hub");
    match path {
        "/apis/authentication.k8s.io/v1/selfsubjectreviews" => (
            201,
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
            "metadata": {}, "status": {"userInfo": {"username": user}}}),
        ),
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" => (
            201,
            json!({"apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview", "metadata": {}, "spec": {}, "status": {"allowed": is_admin}}),
        ),
        CATALOGS => (
            200,
            json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalogList",
            "metadata": {}, "items": [catalog]}),
        ),
        // Also for `lister`: the access review must protect the content by itself.
        path if path == single => (200, catalog),
        path => failure(403, &format!("{path} is forbidden: User {user:?} cannot do this")),
    }
}

#[tokio::test]
async fn request_without_valid_token_gets_login_page_and_no_call_has_other_credentials() {
    let pod = Pod::new(&[]);
    let unknown = pod.session("token-of-unknown", SystemTime::now());
    for headers in [
        vec![],
        vec![("authorization", "Bearer wrong")],
        vec![("authorization", "Bearer ")],
        vec![("authorization", "Bearer token-of-admin token-of-admin")],
        vec![("authorization", "Bearer token-of-")],
        vec![("authorization", "Basic token-of-admin")],
        vec![("cookie", "__Host-olm-console=token-of-admin")],
        vec![("cookie", "olm-console=x; __Host-olm-console=")],
        vec![("cookie", unknown.as_str())],
        // Headers of proxies are ignored.
        vec![("x-forwarded-user", "admin"), ("impersonate-user", "admin"), ("x-remote-user", "admin")],
    ] {
        for path in
            ["/", "/?fragment=1&q=x", INSTALL, "/extensions", "/nowhere"].into_iter().chain(CLUSTER_PAGES)
        {
            let answer = pod.get(path, &headers).await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{path} {headers:?}");
            assert!(
                answer.text.contains("name=\"token\"") && !answer.text.contains("hub"),
                "{}",
                answer.text
            );
        }
        assert_eq!(pod.post(INSTALL, &headers, "").await.status, StatusCode::UNAUTHORIZED, "{headers:?}");
        let known = ["Bearer wrong", "Bearer token-of-unknown", "Bearer token-of-"];
        for (token, path) in pod.calls() {
            assert_eq!(path, "/apis/authentication.k8s.io/v1/selfsubjectreviews");
            assert!(known.contains(&token.as_str()), "{token}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn user_without_get_of_catalog_sees_no_content() {
    let pod = Pod::new(&[]);
    let lister = [("authorization", "Bearer token-of-lister")];
    let list = pod.get("/", &lister).await;
    assert_eq!(list.status, StatusCode::OK, "{}", list.text);
    let denied = "is forbidden: User &quot;lister&quot; cannot get it";
    assert!(list.text.contains(denied), "{}", list.text);
    for path in ["", "/icon", "/graph", "/install", "/install?namespace=a&preview=yes"] {
        let answer = pod.get(&format!("/catalogs/hub/packages/lamp{path}"), &lister).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}: {}", answer.text);
        assert!(answer.text.contains(denied), "{path}: {}", answer.text);
    }
    for path in CLUSTER_PAGES {
        assert!(!pod.get(path, &lister).await.text.contains("token-of"), "{path}");
    }
    assert!(pod.calls().iter().all(|(token, _)| token == "Bearer token-of-lister"));
    // With the permission, the console reads the content, which this test does not serve.
    let admin = pod.get("/catalogs/hub/packages/lamp", &[("authorization", "Bearer token-of-admin")]).await;
    assert_eq!(admin.status, StatusCode::BAD_GATEWAY, "{}", admin.text);
}

#[tokio::test]
async fn session_cookie_has_strict_attributes_and_hides_the_token() {
    let pod = Pod::new(&[]);
    let answer = pod.post("/login", &[], "token=token-of-admin").await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
    let cookie = answer.headers[header::SET_COOKIE].to_str().unwrap();
    let (pair, attributes) = cookie.split_once("; ").unwrap();
    assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Strict; Secure");
    assert!(pair.starts_with("__Host-olm-console=") && !pair.contains("token-of-admin"), "{pair}");
    let page = pod.get("/nowhere", &[("cookie", pair)]).await;
    assert_eq!(page.status, StatusCode::NOT_FOUND);
    assert!(
        page.text.contains("<span>admin</span>") && !page.text.contains("token-of-admin"),
        "{}",
        page.text
    );
    // A token that the cookie cannot hold, and a form of another site, which would sign in as another user.
    let long = format!("token={}", "x".repeat(4000));
    let answer = pod.post("/login", &[], &long).await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    assert!(answer.text.contains("authenticating proxy"), "{}", answer.text);
    let huge = format!("token={}", "x".repeat(20_000));
    assert_eq!(pod.post("/login", &[], &huge).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    let foreign = [("host", HOST), ("origin", "https://evil.example")];
    let answer = pod.rig.send(Method::POST, "/login", &foreign, "token=token-of-admin").await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn session_of_other_console_or_after_its_end_is_refused() {
    let (pod, other) = (Pod::new(&[]), Pod::new(&[]));
    let now = SystemTime::now();
    let minute = Duration::from_secs(60);
    let changed = pod.session("token-of-admin", now).replace(&format!("{COOKIE}="), &format!("{COOKIE}=A"));
    for (cookie, expected) in [
        (pod.session("token-of-admin", now), StatusCode::NOT_FOUND),
        (pod.session("token-of-admin", now + minute - LIFETIME), StatusCode::NOT_FOUND),
        (pod.session("token-of-admin", now - minute - LIFETIME), StatusCode::UNAUTHORIZED),
        (other.session("token-of-admin", now), StatusCode::UNAUTHORIZED),
        (changed, StatusCode::UNAUTHORIZED),
    ] {
        assert_eq!(pod.get("/nowhere", &[("cookie", &cookie)]).await.status, expected, "{cookie}");
    }
    assert!(other.calls().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn change_needs_csrf_token_of_the_same_user() {
    let pod = Pod::new(&[]);
    let now = SystemTime::now();
    let (admin, lister) = (pod.session("token-of-admin", now), pod.session("token-of-lister", now));
    let value = |cookie: &str| cookie.split_once('=').unwrap().1.to_owned();
    let proxy = ("authorization", "Bearer token-of-admin");
    for (credential, csrf, accepted) in [
        (("cookie", admin.as_str()), String::new(), false),
        (("cookie", &admin), pod.csrf(&value(&lister)), false),
        (("cookie", &admin), pod.csrf("admin"), false),
        (("cookie", &admin), pod.csrf(&value(&admin)), true),
        (proxy, String::new(), false),
        (proxy, pod.csrf("lister"), false),
        (proxy, pod.csrf("admin"), true),
    ] {
        let form = format!("csrf={csrf}");
        for path in [INSTALL, "/logout"] {
            let answer = pod.post(path, &[credential], &form).await;
            let is_refused = answer.text.contains("the form is from an earlier session");
            assert_eq!(is_refused, !accepted, "{path} {credential:?} {csrf}: {}", answer.text);
            assert_eq!(answer.status == StatusCode::FORBIDDEN, !accepted, "{path}: {}", answer.status);
        }
    }
    let ended =
        pod.post("/logout", &[("cookie", &admin)], &format!("csrf={}", pod.csrf(&value(&admin)))).await;
    let cookie = ended.headers[header::SET_COOKIE].to_str().unwrap();
    assert!(cookie.starts_with("__Host-olm-console=; Max-Age=0; "), "{cookie}");
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_console_has_no_route_that_changes_the_cluster() {
    for (path, read_only) in [
        (INSTALL, StatusCode::METHOD_NOT_ALLOWED),
        ("/extensions/pipe/approve", StatusCode::METHOD_NOT_ALLOWED),
        ("/extensions/pipe/configure", StatusCode::METHOD_NOT_ALLOWED),
        ("/catalogs/add", StatusCode::METHOD_NOT_ALLOWED),
        ("/catalogs/hub/refresh", StatusCode::NOT_FOUND),
        ("/extensions/pipe/apis/pipes.example.com/create", StatusCode::NOT_FOUND),
    ] {
        for arguments in [&["--read-only"][..], &[]] {
            let pod = Pod::new(arguments);
            let form = format!("csrf={}", pod.csrf("admin"));
            let answer = pod.post(path, &[("authorization", "Bearer token-of-admin")], &form).await;
            let is_absent = answer.status == read_only;
            assert_eq!(is_absent, !arguments.is_empty(), "{path}: {} {}", answer.status, answer.text);
            let writes = pod.calls().iter().filter(|(_, path)| !path.contains("reviews")).count();
            assert!(writes == 0 || !is_absent, "{path}");
        }
    }
}
