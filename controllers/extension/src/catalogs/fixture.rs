//! A real catalogd on loopback with configurable faults, and the real controller, fed with events.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use catalogd::content::Store;
use catalogd::http::{CatalogServer, router};
use futures::{StreamExt, stream};
use kube::runtime::watcher::{self, Event};
use olm_api::ClusterCatalog;
use olm_control_plane::ports::free_port;
use olm_resolve::{CatalogError, Indexing, Offer};
use olm_runtime::metrics::Metrics;
use olm_serving::ca_pool::{CaPool, CaSources};
use olm_serving::https::HttpServer;
use olm_serving::tls_profile::{ProfileName, TlsProfile, TlsVersion};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{Catalogs, Hosts, controller};

/// Behavior of catalogd for a catalog.
#[derive(Clone, Debug, Default)]
pub(super) enum Behavior {
    /// Behavior of our catalogd with the feature gate `APIV1MetasHandler`.
    #[default]
    Normal,
    /// Behavior without that feature gate.
    NoMetas,
    /// Behavior of the reference: no digest header.
    NoDigest,
    /// Only this status code.
    Status(u16),
    /// Another digest in the header.
    OtherDigest,
    /// This body instead of content.
    Body(&'static str),
    /// Only the first half of the body.
    Half,
    /// Not before this is `true`.
    Late(watch::Receiver<bool>),
}

#[derive(Clone, Default)]
struct ServerState {
    behavior: Arc<Mutex<HashMap<String, Behavior>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

pub(crate) struct Catalogd {
    store: Arc<Store>,
    state: ServerState,
    server: HttpServer,
    pub(super) address: SocketAddr,
    _cache: tempfile::TempDir,
}

impl Catalogd {
    pub(crate) fn start() -> Self {
        let cache = tempfile::tempdir().unwrap();
        let store = Arc::new(Store::open(cache.path()).unwrap());
        let state = ServerState::default();
        // Reserved, because a stopped server starts again on the same port.
        let port = free_port().unwrap();
        let server = serve(&store, &state, (Ipv4Addr::LOCALHOST, port).into());
        Self { address: server.address, store, state, server, _cache: cache }
    }

    pub(super) async fn stop(self) -> impl FnOnce() -> Self {
        let Self { store, state, server, address, _cache } = self;
        server.drain(Duration::ZERO).await;
        move || Self { server: serve(&store, &state, address), store, state, address, _cache }
    }

    pub(super) fn set_behavior(&self, catalog: &str, behavior: Behavior) {
        self.state.behavior.lock().unwrap().insert(catalog.to_owned(), behavior);
    }

    /// Requests since the last call, as `catalog endpoint?query`.
    pub(super) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.state.requests.lock().unwrap())
    }

    /// Serves `packages`, each with one bundle of this version, and returns the ClusterCatalog.
    pub(super) fn publish(&self, name: &str, version: u32, packages: &[&str]) -> ClusterCatalog {
        let mut lines = vec![json!({"schema": "acme", "name": "loose"}).to_string()];
        for package in packages {
            let bundle = format!("{package}.v{version}");
            let identity = json!({"packageName": package, "version": format!("{version}.0.0")});
            lines.push(json!({"schema": "olm.package", "name": package, "defaultChannel": "s"}).to_string());
            lines.push(
                json!({"schema": "olm.bundle", "package": package, "name": bundle, "image": "r.example/b:1",
                "properties": [{"type": "olm.package", "value": identity}]})
                .to_string(),
            );
            lines.push(
                json!({"schema": "olm.channel", "package": package, "name": "s",
                "entries": [{"name": bundle}]})
                .to_string(),
            );
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("catalog.json"), lines.join("\n")).unwrap();
        self.publish_folder(name, version, folder.path())
    }

    pub(crate) fn publish_folder(&self, name: &str, version: u32, folder: &Path) -> ClusterCatalog {
        let digest = hex::encode(Sha256::digest(format!("{name} {version}")));
        let reference = format!("r.example/{name}@sha256:{digest}");
        self.store.replace(name, folder, reference.clone()).unwrap();
        self.catalog(name, &reference)
    }

    /// ClusterCatalog that is served.
    pub(super) fn catalog(&self, name: &str, reference: &str) -> ClusterCatalog {
        serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": name, "generation": 1},
            "spec": {"source": {"type": "Image", "image": {"ref": "r.example/c:1"}}},
            "status": {
                "conditions": [{"type": "Serving", "status": "True", "reason": "Available", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
                "resolvedSource": {"type": "Image", "image": {"ref": reference}},
                "urls": {"base": format!("http://{}/catalogs/{name}", self.address)},
            },
        }))
        .unwrap()
    }
}

fn serve(store: &Arc<Store>, state: &ServerState, address: SocketAddr) -> HttpServer {
    let server = CatalogServer {
        store: Arc::clone(store),
        is_expected: Box::new(|_| false),
        metas: true,
        graphql: None,
    };
    let router = router(server, &Metrics::new()).layer(from_fn_with_state(state.clone(), apply_behavior));
    HttpServer::start(address, None, router).unwrap()
}

async fn apply_behavior(State(state): State<ServerState>, request: Request, next: Next) -> Response {
    let target = request.uri().path_and_query().unwrap().to_string();
    let (name, endpoint) = target.strip_prefix("/catalogs/").unwrap().split_once("/api/v1/").unwrap();
    state.requests.lock().unwrap().push(format!("{name} {endpoint}"));
    let behavior = state.behavior.lock().unwrap().get(name).cloned().unwrap_or_default();
    let is_metas = endpoint.starts_with("metas");
    match behavior {
        Behavior::NoMetas if is_metas => (StatusCode::NOT_FOUND, "404 page not found\n").into_response(),
        Behavior::Normal | Behavior::NoMetas => next.run(request).await,
        Behavior::Status(code) => StatusCode::from_u16(code).unwrap().into_response(),
        Behavior::NoDigest => {
            let mut answer = next.run(request).await;
            answer.headers_mut().remove("olm-catalog-digest");
            answer
        }
        Behavior::OtherDigest => {
            let mut answer = next.run(request).await;
            answer.headers_mut().insert("olm-catalog-digest", "sha256:00".parse().unwrap());
            answer
        }
        Behavior::Body(text) => {
            let (head, _) = next.run(request).await.into_parts();
            let mut answer = text.into_response();
            answer.headers_mut().insert("olm-catalog-digest", head.headers["olm-catalog-digest"].clone());
            answer
        }
        Behavior::Half => {
            let (head, body) = next.run(request).await.into_parts();
            let whole = to_bytes(body, 1 << 24).await.unwrap();
            let half = stream::iter([Ok(whole.slice(..whole.len() / 2))]);
            // Yield, so that the first half is sent before the error.
            let cut = stream::once(async {
                tokio::task::yield_now().await;
                Err("cut")
            });
            Response::from_parts(head, Body::from_stream(half.chain(cut)))
        }
        Behavior::Late(mut released) => {
            released.wait_for(|is_released| *is_released).await.unwrap();
            next.run(request).await
        }
    }
}

/// Hosts of test servers, without TLS.
pub(crate) fn loopback() -> Hosts {
    Hosts::new("http://127.0.0.1", "")
}

/// Error of content that is not cached.
pub(super) const NOT_FOUND: &str = "cache for catalog \"main\" not found";

pub(super) fn cache() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Answer with this one bundle.
pub(super) fn bundle(name: &str) -> BundleNames {
    Ok(Some(vec![name.to_owned()]))
}

/// Bundle names of a package.
pub(super) type BundleNames = Result<Option<Vec<String>>, CatalogError>;

/// Requests that fetch one package.
pub(super) fn singles(catalog: &str, package: &str) -> [String; 2] {
    [
        format!("{catalog} metas?package={package}"),
        format!("{catalog} metas?schema=olm.package&name={package}"),
    ]
}

/// All files below a folder, sorted. A folder that was just removed has none.
pub(super) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries =
        fs::read_dir(folder).map_err(|error| assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"));
    for entry in entries.into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Cache with its controller, after a list of `catalogs`.
pub(super) struct CacheFixture {
    pub(super) catalogs: Arc<Catalogs>,
    events: mpsc::UnboundedSender<watcher::Result<Event<ClusterCatalog>>>,
    stop: CancellationToken,
    work: tokio::task::JoinHandle<()>,
}

impl CacheFixture {
    pub(super) fn start(cache: &Path, listed: &[&ClusterCatalog]) -> Self {
        let profile = TlsProfile::new(ProfileName::Modern, TlsVersion::Tls12, &[], &[]).unwrap();
        let sources = CaSources { system: Vec::new, directory: None, bundle: None };
        let pool = Arc::new(CaPool::load(sources, profile, None).unwrap());
        let catalogs = Arc::new(Catalogs::open(cache.to_owned(), pool, loopback()).unwrap());
        let (events, receiver) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let received = stream::unfold(receiver, async |mut receiver| {
            let event = receiver.recv().await?;
            Some((event, receiver))
        });
        let (_, work) = controller::run(
            received,
            Arc::clone(&catalogs),
            Arc::new(Metrics::new()),
            CancellationToken::new(),
            stop.clone(),
        );
        let side = Self { catalogs, events, stop, work: tokio::spawn(work) };
        side.list(listed);
        side
    }

    /// Sends a new list, as after a broken watch.
    pub(super) fn list(&self, catalogs: &[&ClusterCatalog]) {
        let all = catalogs.iter().map(|catalog| Event::InitApply((*catalog).clone()));
        for event in [Event::Init].into_iter().chain(all).chain([Event::InitDone]) {
            self.events.send(Ok(event)).unwrap();
        }
    }

    pub(super) fn apply(&self, catalog: &ClusterCatalog) {
        self.events.send(Ok(Event::Apply(catalog.clone()))).unwrap();
    }

    pub(super) fn delete(&self, catalog: &ClusterCatalog) {
        self.events.send(Ok(Event::Delete(catalog.clone()))).unwrap();
    }

    /// Sends a failure of the watch.
    pub(super) fn fail(&self, failure: watcher::Error) {
        self.events.send(Err(failure)).unwrap();
    }

    /// Stops the controller, as the end of the process does.
    pub(super) async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(TIMEOUT, self.work).await.unwrap().unwrap();
    }

    /// Requests the package once.
    pub(super) async fn ask(&self, catalog: &ClusterCatalog, package: &str) -> BundleNames {
        let found = self.catalogs.package(catalog, package, Indexing::default()).await?;
        Ok(found.map(|index| index.offers().map(Offer::name).map(str::to_owned).collect()))
    }

    /// Requests the package until its content is cached, which takes a while on a busy machine.
    pub(super) async fn package(&self, catalog: &ClusterCatalog, package: &str) -> BundleNames {
        let mut answer = self.ask(catalog, package).await;
        let is_here = async || {
            let is_here = !matches!(answer, Err(CatalogError::NotCached(_)));
            if !is_here {
                answer = self.ask(catalog, package).await;
            }
            is_here
        };
        until(package, is_here).await;
        answer
    }

    /// Waits until the package has this one bundle.
    pub(super) async fn expect(&self, catalog: &ClusterCatalog, package: &str, bundle: &str) {
        let expected = self::bundle(bundle);
        until(bundle, async || self.ask(catalog, package).await == expected).await;
    }

    /// Waits until a request for the package fails with this text.
    pub(super) async fn expect_error(&self, catalog: &ClusterCatalog, package: &str, text: &str) {
        let mut last = String::new();
        let is_so = async || {
            last = match self.ask(catalog, package).await {
                Ok(found) => format!("{found:?}"),
                Err(error) => error.to_string(),
            };
            last.contains(text)
        };
        let waited = tokio::time::timeout(TIMEOUT, poll(is_so)).await;
        assert!(waited.is_ok(), "{text:?} is not in {last:?}");
    }

    /// Number of announcements.
    pub(super) fn announced(&self) -> u64 {
        *self.catalogs.changes().borrow()
    }

    /// Waits until all earlier events are processed.
    pub(super) async fn settled(&self, catalogd: &Catalogd) {
        let marker = catalogd.catalog("marker", "r.example/marker@sha256:1");
        self.apply(&marker);
        until("the marker", async || self.catalogs.known.lock().contains_key("marker")).await;
        self.delete(&marker);
        until("the removal of the marker", async || !self.catalogs.known.lock().contains_key("marker")).await;
    }
}

/// Shorter than the deadlines that no test must wait for.
const TIMEOUT: Duration = Duration::from_secs(25);

pub(super) async fn until(what: &str, condition: impl AsyncFnMut() -> bool) {
    assert!(tokio::time::timeout(TIMEOUT, poll(condition)).await.is_ok(), "{what} did not come");
}

async fn poll(mut condition: impl AsyncFnMut() -> bool) {
    while !condition().await {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
