//! `olm console --in-cluster` as a process, with a real API server and catalogd: users have their own rights, and the
//! process has none, although its environment names an administrator's kubeconfig.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::panic)]

extern crate olm_tokio as tokio;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use futures::future::join_all;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use olm_fbc::MetaReader;
use olm_servers::{Bundle, Catalog, NAMESPACE, Programs, Server, ServerFixture, eventually};
use olm_serving::issue::{new_ca, new_leaf};
use olm_yaml::Limits;
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};

const OLM: &str = env!("CARGO_BIN_EXE_olm");
const HOST: &str = "olm.example.com";
const PACKAGE: &str = "/catalogs/hub/packages/lamp";

struct Fixture {
    servers: ServerFixture,
    _catalogd: Server,
    console: Console,
}

/// Process of a console.
struct Console {
    child: Child,
    address: String,
    /// Lines after that with the address.
    log: Arc<Mutex<Vec<String>>>,
}

struct Answer {
    status: StatusCode,
    cookie: Option<String>,
    text: String,
}

impl Drop for Console {
    fn drop(&mut self) {
        // Fails only if the process has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Console {
    /// Console in a pod whose API server listens on this port.
    fn start(port: &str, ca: &str, arguments: &[&str], environment: &[(&str, &Path)]) -> Self {
        let mut command = Command::new(OLM);
        command.args(["console", "--in-cluster", "--listen=127.0.0.1:0", "--cluster-ca", ca]).args(arguments);
        command.env("KUBERNETES_SERVICE_HOST", "127.0.0.1").env("KUBERNETES_SERVICE_PORT", port);
        // As in the image.
        command.env("MALLOC_ARENA_MAX", "1").envs(environment.iter().copied());
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address =
            lines.find_map(|line| line.unwrap().split_once("listens on ").map(|(_, rest)| rest.to_owned()));
        let log = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&log);
        // The pipe must not fill.
        std::thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| kept.lock().unwrap().push(line))
        });
        Self { child, address: address.unwrap(), log }
    }
}

impl Fixture {
    async fn start() -> Self {
        let programs = Programs::beside(Path::new(OLM).with_file_name("operator-controller")).unwrap();
        let servers = ServerFixture::start(programs).await.unwrap();
        let catalogd = servers.start_catalogd().await.unwrap();
        let bundle = servers.publish(&Bundle::sample("lamp", "1.0.0")).unwrap();
        servers.serve("hub", &Catalog::default().chain(&[bundle])).await.unwrap();
        let console = console(&servers);
        let fixture = Self { servers, _catalogd: catalogd, console };
        fixture.permit("viewer", &["get", "list"]).await;
        fixture.permit("lister", &["list"]).await;
        fixture
    }

    /// Gives the ServiceAccount `name` these permissions on catalogs and extensions.
    async fn permit(&self, name: &str, verbs: &[&str]) {
        let rule = json!({"apiGroups": ["olm.operatorframework.io"],
            "resources": ["clustercatalogs", "clusterextensions"], "verbs": verbs});
        let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
        let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE});
        let binding = json!({"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]});
        self.apply("ClusterRole", json!({"metadata": {"name": name}, "rules": [rule]})).await;
        self.apply("ClusterRoleBinding", binding).await;
    }

    async fn apply(&self, kind: &str, object: Value) {
        let kind = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind);
        let api: Api<DynamicObject> = Api::all_with(self.servers.client(), &ApiResource::from_gvk(&kind));
        let mut object = object;
        object["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
        object["kind"] = json!(kind.kind);
        let params = PatchParams::apply("test").force();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        api.patch(&name, &params, &Patch::Apply(object)).await.unwrap();
    }

    /// Token of a new ServiceAccount.
    async fn token(&self, name: &str) -> String {
        let api: Api<ServiceAccount> = Api::namespaced(self.servers.client(), NAMESPACE);
        let account = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
        api.create(&PostParams::default(), &account).await.unwrap();
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": []}});
        let answer: TokenRequest =
            api.create_subresource("token", name, &PostParams::default(), &request).await.unwrap();
        answer.status.unwrap().token.unwrap()
    }

    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let client = Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let request =
            client.build().unwrap().request(method, format!("http://{}{path}", self.console.address));
        let mut request = request.body(body.to_owned());
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", HOST);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.unwrap();
        let cookie = answer.headers().get("set-cookie").map(|value| value.to_str().unwrap().to_owned());
        Answer { status: answer.status(), cookie, text: answer.text().await.unwrap() }
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.send(Method::GET, path, headers, "").await
    }

    async fn post(&self, path: &str, cookie: &str, form: &str) -> Answer {
        let headers = [
            ("origin", "https://olm.example.com"),
            ("cookie", cookie),
            ("content-type", "application/x-www-form-urlencoded"),
        ];
        self.send(Method::POST, path, &headers, form).await
    }

    /// Checks that the log and the files of the console contain none of these tokens.
    fn assert_kept_no(&self, tokens: &[&str]) {
        let mut kept = self.console.log.lock().unwrap().join("\n").into_bytes();
        for entry in std::fs::read_dir(self.servers.file("console")).unwrap() {
            kept.extend(std::fs::read(entry.unwrap().path()).unwrap());
        }
        let kept = String::from_utf8_lossy(&kept);
        assert!(tokens.iter().all(|token| !kept.contains(token)), "{kept}");
    }

    /// Cookie of a new session.
    async fn sign_in(&self, token: &str) -> String {
        let answer = self.post("/login", "", &format!("token={token}")).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
        let cookie = answer.cookie.unwrap();
        assert!(
            cookie.starts_with("__Host-") && cookie.ends_with("HttpOnly; SameSite=Strict; Secure"),
            "{cookie}"
        );
        assert!(!cookie.contains(token));
        cookie.split(';').next().unwrap().to_owned()
    }
}

/// Console with the environment of a pod, and an administrator's kubeconfig that it must not use.
fn console(servers: &ServerFixture) -> Console {
    let kubeconfig = std::fs::read_to_string(servers.plane.kubeconfig()).unwrap();
    let kubeconfig: Value = serde_json::from_str(&kubeconfig).unwrap();
    let cluster = &kubeconfig["clusters"][0]["cluster"];
    let (_, port) = cluster["server"].as_str().unwrap().rsplit_once(':').unwrap();
    let cas = format!("--catalogd-cas-dir={}", servers.file("catalogd-ca").display());
    let folder = servers.file("console");
    std::fs::create_dir(&folder).unwrap();
    Console::start(
        port,
        cluster["certificate-authority"].as_str().unwrap(),
        &["--insecure-http", "--host", HOST, &cas],
        &[("KUBECONFIG", servers.plane.kubeconfig()), ("TMPDIR", &folder)],
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn console_request_uses_only_permissions_of_its_user() {
    let fixture = Fixture::start().await;
    let (viewer, nobody) = (fixture.token("viewer").await, fixture.token("nobody").await);
    // Without a token, or with an invalid one.
    for headers in [vec![], vec![("authorization", "Bearer x")], vec![("authorization", "Basic eDp4")]] {
        let answer = fixture.get(PACKAGE, &headers).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{headers:?}");
        assert!(answer.text.contains("name=\"token\"") && !answer.text.contains("lamp"), "{}", answer.text);
    }
    assert_eq!(fixture.post("/login", "", "token=x").await.status, StatusCode::UNAUTHORIZED);
    // By the header of a proxy. The content is shared, and the rights are not.
    let [viewer_header, nobody_header] = [&viewer, &nobody].map(|token| format!("Bearer {token}"));
    let answer = fixture.get(PACKAGE, &[("authorization", &viewer_header)]).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert!(answer.text.contains("system:serviceaccount:olmv1-system:viewer"), "{}", answer.text);
    for path in ["/", PACKAGE, "/catalogs/hub/packages/lamp/graph", "/catalogs/hub/packages/lamp/install"] {
        let answer = fixture.get(path, &[("authorization", &nobody_header)]).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}: {}", answer.text);
        assert!(answer.text.contains("system:serviceaccount:olmv1-system:nobody"), "{}", answer.text);
    }
    // The list of catalogs does not include their content, which another user has already loaded.
    let lister = format!("Bearer {}", fixture.token("lister").await);
    let answer = fixture.get("/", &[("authorization", &lister)]).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert!(answer.text.contains("lister&quot; cannot get it"), "{}", answer.text);
    assert!(!answer.text.contains("lamp"), "{}", answer.text);
    assert_eq!(fixture.get(PACKAGE, &[("authorization", &lister)]).await.status, StatusCode::FORBIDDEN);
    // A preview with a dry run needs permissions that the viewer lacks.
    let preview = "/catalogs/hub/packages/lamp/install?namespace=olmv1-system&preview=yes";
    let answer = fixture.get(preview, &[("authorization", &viewer_header)]).await;
    assert!(answer.text.contains("forbidden"), "{}", answer.text);
    assert!(!answer.text.contains("data-apply"), "{}", answer.text);
    fixture.assert_kept_no(&[&viewer, &nobody]);
}

#[tokio::test(flavor = "multi_thread")]
async fn console_sessions_are_isolated_and_end_on_logout() {
    let fixture = Fixture::start().await;
    let tokens = (fixture.token("viewer").await, fixture.token("nobody").await);
    let (viewer, nobody) = (fixture.sign_in(&tokens.0).await, fixture.sign_in(&tokens.1).await);
    let page = fixture.get("/", &[("cookie", &viewer)]).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    assert!(page.text.contains("/catalogs/hub/packages/lamp"), "{}", page.text);
    assert_eq!(fixture.get("/", &[("cookie", &nobody)]).await.status, StatusCode::FORBIDDEN);
    // Another name, and a request of another site.
    for host in ["evil.example", "127.0.0.1"] {
        let answer = fixture.get("/", &[("cookie", &viewer), ("host", host)]).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{host}");
    }
    assert_eq!(fixture.get("/healthz", &[("host", "10.0.0.1:8443")]).await.status, StatusCode::OK);
    let foreign = [("cookie", viewer.as_str()), ("origin", "https://evil.example")];
    for path in ["/login", "/logout"] {
        let answer = fixture.send(Method::POST, path, &foreign, "token=x").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}");
    }
    // The CSRF token of another session, and of this one.
    let csrf = |text: &str| {
        let (_, rest) = text.split_once("name=\"csrf\" value=\"").unwrap();
        rest.split_once('"').unwrap().0.to_owned()
    };
    let other = fixture.get("/nowhere", &[("cookie", &nobody)]).await;
    assert_eq!(other.status, StatusCode::NOT_FOUND);
    for form in [String::new(), format!("csrf={}", csrf(&other.text))] {
        assert_eq!(fixture.post("/logout", &viewer, &form).await.status, StatusCode::FORBIDDEN);
    }
    let ended = fixture.post("/logout", &viewer, &format!("csrf={}", csrf(&page.text))).await;
    assert_eq!(ended.status, StatusCode::SEE_OTHER, "{}", ended.text);
    assert!(ended.cookie.unwrap().starts_with("__Host-olm-console=; Max-Age=0"));
    fixture.assert_kept_no(&[&tokens.0, &tokens.1]);
}

// docs/design/console.md#memory
#[tokio::test(flavor = "multi_thread")]
async fn memory_with_real_catalog_stays_below_40_mb() {
    let Some(data) = olm_require::field_data() else { return };
    let fixture = Fixture::start().await;
    let (mut catalog, mut packages) = (Catalog::default(), Vec::new());
    for folder in std::fs::read_dir(data.join("catalogs/community-v4.20")).unwrap() {
        for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            for meta in MetaReader::new(std::fs::File::open(file.unwrap().path()).unwrap(), Limits::default())
            {
                let meta = meta.unwrap();
                if meta.schema == "olm.package" {
                    packages.push(meta.name.clone());
                }
                catalog = catalog.meta(serde_json::from_slice(&meta.blob).unwrap());
            }
        }
    }
    fixture.servers.serve("real", &catalog).await.unwrap();
    let header = format!("Bearer {}", fixture.token("viewer").await);
    let paths = packages.iter().map(|name| format!("/catalogs/real/packages/{name}"));
    let paths: Vec<String> = paths.flat_map(|page| [format!("{page}/graph"), page]).collect();
    let headers = [("authorization", header.as_str())];
    // All pages at once, which are more than users open.
    let answers = join_all(paths.iter().map(|path| fixture.get(path, &headers))).await;
    assert!(answers.len() > 70 && answers.iter().all(|answer| answer.status == StatusCode::OK));
    let status = std::fs::read_to_string(format!("/proc/{}/status", fixture.console.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let megabytes = line.trim().trim_end_matches(" kB").parse::<u32>().unwrap() / 1000;
    println!("{megabytes} MB");
    assert!(megabytes < 40, "{megabytes} MB");
}

#[tokio::test]
async fn certificate_files_replace_that_in_memory_without_restart() {
    // Fails if a provider is already installed, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let now = k8s_openapi::jiff::Timestamp::now();
    let ca = new_ca("test", now).unwrap();
    std::fs::write(file("ca.crt"), &ca.certificate).unwrap();
    let [cert, key] = ["cert=", "key="].map(|flag| format!("--tls-{flag}{}", file(flag).display()));
    let ca_file = file("ca.crt").display().to_string();
    let console = Console::start("1", &ca_file, &["--host", "localhost", &cert, &key], &[]);
    let (_, port) = console.address.rsplit_once(':').unwrap();
    let health = async |client: &Client| client.get(format!("https://localhost:{port}/healthz")).send().await;
    let builder = || Client::builder().no_proxy().pool_max_idle_per_host(0);
    let trusting = builder().danger_accept_invalid_certs(true).build().unwrap();
    let roots = [reqwest::Certificate::from_pem(&ca.certificate).unwrap()];
    let verifying = builder().tls_certs_only(roots).build().unwrap();
    assert_eq!(health(&trusting).await.unwrap().status(), StatusCode::OK);
    assert!(health(&verifying).await.is_err());
    let pair = new_leaf(&ca, "test", &["localhost".to_owned()], now).unwrap();
    std::fs::write(file("key="), &pair.key).unwrap();
    std::fs::write(file("cert="), &pair.certificate).unwrap();
    let answer = eventually("the certificate of the files", async || health(&verifying).await.ok()).await;
    assert_eq!(answer.status(), StatusCode::OK);
}
