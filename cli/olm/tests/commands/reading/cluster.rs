//! Catalogs of a cluster. A small HTTP server replaces the API server, because a control plane without pods cannot
//! proxy to a Service. The end-to-end tests use a real one.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::fixture::{Ran, command, olm};

/// Response of catalogd for the catalog of a name.
type Content = fn(&str) -> Response;

/// HTTP server that replaces the API server of a cluster.
pub(crate) struct Cluster {
    kubeconfig: PathBuf,
    _folder: TempDir,
}

impl Cluster {
    /// Starts a cluster with these ClusterCatalogs. `content` returns catalogd's response for the catalog of a name.
    pub(crate) async fn start(
        catalogs: Vec<Value>,
        content: impl Fn(&str) -> Response + Clone + Send + Sync + 'static,
    ) -> Self {
        Self::with_extensions(catalogs, Vec::new(), Vec::new(), Vec::new(), content).await
    }

    /// Starts a cluster that also has ClusterExtensions, ClusterObjectSets and CustomResourceDefinitions of
    /// extensions.
    pub(crate) async fn with_extensions(
        catalogs: Vec<Value>,
        extensions: Vec<Value>,
        sets: Vec<Value>,
        crds: Vec<Value>,
        content: impl Fn(&str) -> Response + Clone + Send + Sync + 'static,
    ) -> Self {
        let list = |kind: &str, items: &[Value]| {
            let list = json!({
                "apiVersion": "olm.operatorframework.io/v1", "kind": format!("{kind}List"),
                "metadata": { "resourceVersion": "1" }, "items": items,
            });
            get(move || std::future::ready(axum::Json(list)))
        };
        let discovery = |path: &str, items: Value| {
            let body = json!({ "apiVersion": "apidiscovery.k8s.io/v2", "kind": "APIGroupDiscoveryList", "items": items });
            (path.to_owned(), get(move || std::future::ready(axum::Json(body))))
        };
        let resource = |kind: &str| {
            json!({ "resource": kind.to_lowercase(), "scope": "Namespaced", "verbs": ["get"],
            "responseKind": { "group": "", "version": "", "kind": kind } })
        };
        let crds = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinitionList",
            "metadata": { "resourceVersion": "1" }, "items": crds,
        });
        let core = json!([{ "metadata": { "name": "" }, "versions": [{ "version": "v1", "resources": [resource("Pod")] }] }]);
        let groups = json!([{ "metadata": { "name": "store.example.com" },
            "versions": [{ "version": "v1", "resources": [resource("Bucket")] }] }]);
        let (core, groups) = (discovery("/api", core), discovery("/apis", groups));
        let version = json!({ "major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "" });
        let proxy = "/api/v1/namespaces/olmv1-system/services/https:catalogd-service:443/proxy/catalogs/{name}/api/v1/all";
        let olm = "/apis/olm.operatorframework.io/v1";
        let mut app = Router::new()
            .route(&format!("{olm}/clustercatalogs"), list("ClusterCatalog", &catalogs))
            .route(&format!("{olm}/clusterextensions"), list("ClusterExtension", &extensions))
            .route(&format!("{olm}/clusterobjectsets"), list("ClusterObjectSet", &sets))
            .route(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                get(move || std::future::ready(axum::Json(crds))),
            )
            .route(&core.0, core.1)
            .route(&groups.0, groups.1)
            .route("/version", get(move || std::future::ready(axum::Json(version))))
            .route(proxy, get(move |Path(name): Path<String>| async move { content(&name) }));
        app = app.fallback(|| std::future::ready(status(StatusCode::NOT_FOUND, "not found")));
        for extension in extensions {
            let path = format!("{olm}/clusterextensions/{}", extension["metadata"]["name"].as_str().unwrap());
            app = app.route(&path, get(move || std::future::ready(axum::Json(extension))));
        }
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self::at(address)
    }

    /// Kubeconfig for the API server at this address.
    fn at(address: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("config");
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "main",
            "clusters": [{ "name": "c", "cluster": { "server": format!("http://{address}") } }],
            "users": [{ "name": "u", "user": {} }],
            "contexts": [{ "name": "main", "context": { "cluster": "c", "user": "u" } }],
        });
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        Self { kubeconfig, _folder: folder }
    }

    /// Runs `olm` with the kubeconfig of this cluster.
    pub(crate) async fn olm(&self, args: &[&str]) -> Ran {
        let mut command = command(args);
        command.env("KUBECONFIG", &self.kubeconfig);
        tokio::task::spawn_blocking(move || Ran::from(command.output().unwrap())).await.unwrap()
    }
}

pub(crate) fn catalog(name: &str, serving: bool) -> Value {
    let message = if serving { "Serving desired content" } else { "no content yet" };
    json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
        "metadata": { "name": name },
        "spec": { "priority": 5, "source": { "type": "Image", "image": { "ref": format!("r.example/{name}:v1") } } },
        "status": {
            "conditions": [{
                "type": "Serving", "status": if serving { "True" } else { "False" }, "reason": "Available",
                "message": message, "lastTransitionTime": "2026-01-02T03:04:05Z",
            }],
            "resolvedSource": { "type": "Image", "image": { "ref": format!("r.example/{name}@sha256:{}", "a".repeat(64)) } },
            "lastUnpacked": "2026-01-02T03:04:05Z",
        },
    })
}

/// Content of the catalog in `tests/data/catalog`, as JSON lines of catalogd.
fn lines(_: &str) -> Response {
    let rendered = olm(&["catalog", "render", "catalog"]).stdout;
    let mut lines = String::new();
    for object in serde_json::Deserializer::from_str(&rendered).into_iter::<Value>() {
        lines += &format!("{}\n", object.unwrap());
    }
    lines.into_response()
}

fn status(code: StatusCode, message: &str) -> Response {
    let body = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code.as_u16(), "message": message,
        "reason": if code == StatusCode::NOT_FOUND { "NotFound" } else { "Whatever" },
    });
    (code, axum::Json(body)).into_response()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn catalog_ls_without_source_lists_cluster_catalogs() {
    let cluster = Cluster::start(vec![catalog("b", false), catalog("a", true)], lines).await;
    let ran = cluster.olm(&["catalog", "ls"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert_eq!(
        ran.stdout,
        "NAME   IMAGE            DIGEST                SERVING   LAST UNPACKED          PRIORITY\n\
         a      r.example/a:v1   sha256:aaaaaaaaaaaa   True      2026-01-02T03:04:05Z   5\n\
         b      r.example/b:v1   sha256:aaaaaaaaaaaa   False     2026-01-02T03:04:05Z   5\n"
    );
    let ran = cluster.olm(&["catalog", "ls", "-o", "json", "--context", "main"]).await;
    let list: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(list["kind"], "ClusterCatalogSummaryList");
    assert_eq!(list["items"][0]["digest"], format!("sha256:{}", "a".repeat(64)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn served_catalog_prints_the_same_as_its_directory() {
    let cluster = Cluster::start(vec![catalog("one", true)], lines).await;
    for args in [
        &["catalog", "ls", "SOURCE"][..],
        &["catalog", "bundles", "SOURCE", "pipe"],
        &["catalog", "render", "SOURCE"],
    ] {
        let with = |source: &'static str| -> Vec<&str> {
            args.iter().map(|arg| if *arg == "SOURCE" { source } else { *arg }).collect()
        };
        let expected = olm(&with("catalog")).stdout;
        for source in ["cluster", "cluster/one"] {
            let ran = cluster.olm(&with(source)).await;
            assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{args:?}");
            assert_eq!(ran.stdout, expected, "{args:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_catalogs_add_a_catalog_column_or_require_a_choice() {
    let cluster =
        Cluster::start(vec![catalog("one", true), catalog("two", true), catalog("off", false)], lines).await;
    let ran = cluster.olm(&["catalog", "channels", "cluster", "lamp"]).await;
    assert_eq!(
        ran.stdout,
        "NAME               HEAD          VERSION   BUNDLES   DEPRECATED   CATALOG\n\
         stable (default)   lamp.v1.0.0   1.0.0     1         -            one\n\
         stable (default)   lamp.v1.0.0   1.0.0     1         -            two\n"
    );
    let ran = cluster.olm(&["catalog", "graph", "cluster", "pipe"]).await;
    assert_eq!(ran.code, 2);
    assert_eq!(
        ran.stderr,
        "error: package \"pipe\" is in several catalogs, each with its own edges: one, two; choose one, such as \
         cluster/one\n"
    );
    let ran = cluster.olm(&["catalog", "ls", "cluster/off"]).await;
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (1, "error: ClusterCatalog \"off\" is not served: Serving=False: no content yet\n")
    );
    let ran = cluster.olm(&["catalog", "ls", "cluster/none"]).await;
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (4, "error: there is no ClusterCatalog \"none\"; catalogs: off, one, two\n")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_names_the_missing_right_or_service() {
    let cases: [(Content, &str); 4] = [
        (
            |_| {
                status(
                    StatusCode::FORBIDDEN,
                    "services \"https:catalogd-service:443\" is forbidden: User \"ann\" cannot get",
                )
            },
            "error: cannot read catalog \"one\" from catalogd: services \"https:catalogd-service:443\" is forbidden: User \
             \"ann\" cannot get\nyou need the permission to get services/proxy of https:catalogd-service:443 in namespace \
             olmv1-system:\n  kubectl -n olmv1-system create role catalog-reader --verb=get --resource=services/proxy \
             --resource-name=https:catalogd-service:443\n",
        ),
        (
            |_| status(StatusCode::NOT_FOUND, "services \"https:catalogd-service:443\" not found"),
            "error: cannot read catalog \"one\" from catalogd: services \"https:catalogd-service:443\" not found\n\
             catalogd's service is not in namespace olmv1-system; use --catalogd-namespace for another one\n",
        ),
        (
            |_| (StatusCode::NOT_FOUND, "404 Not Found\n").into_response(),
            "error: cannot read catalog \"one\" from catalogd: 404 Not Found\n\
             catalogd has no content of this catalog yet\n",
        ),
        (
            |_| "{\"schema\":\"olm.package\",\"name\":\"a\"}\n{\"schema\":".into_response(),
            "error: catalog \"one\": ",
        ),
    ];
    for (content, expected) in cases {
        let cluster = Cluster::start(vec![catalog("one", true)], content).await;
        let ran = cluster.olm(&["catalog", "ls", "cluster/one"]).await;
        assert_eq!(ran.code, 1);
        assert!(ran.stderr.starts_with(expected), "{}", ran.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_api_server_is_named() {
    let cluster = Cluster::start(Vec::new(), lines).await;
    let closed = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let config = std::fs::read_to_string(&cluster.kubeconfig).unwrap();
    let (before, after) = config.split_once("127.0.0.1:").unwrap();
    let after = after.trim_start_matches(|character: char| character.is_ascii_digit());
    std::fs::write(&cluster.kubeconfig, format!("{before}{closed}{after}")).unwrap();
    let ran = cluster.olm(&["catalog", "ls"]).await;
    assert_eq!(ran.code, 1);
    let advice =
        "\nthe API server of the kubeconfig's context is at 127.0.0.1; use --context for another one\n";
    assert!(ran.stderr.ends_with(advice), "{}", ran.stderr);
}
