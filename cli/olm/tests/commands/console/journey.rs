//! Twelve tasks of a new user, one after the other, with the real servers. No pods run: the test writes the status of
//! Deployments.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;

use axum::Router;
use axum::extract::Request;
use axum::response::IntoResponse;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use olm_api::ClusterCatalog;
use olm_control_plane::eventually;
use olm_servers::{Bundle, Catalog, Programs, Published, Server, ServerFixture, Workloads};
use serde_json::{Value, json};

use super::browser::{Screen, key};
use super::keyboard::tab_to;
use super::rig::Visit;
use crate::changing::fixture::forward;
use crate::fixture::{olm_in, tests};

const NAME: &str = "tide";
const NAMESPACE: &str = "tide-system";
const WIDGETS: &str = "/extensions/tide/apis/widgets%2Etide%2Eservers%2Eexample";

/// Cluster with a catalog that offers version 1.0.0 in channel `stable`. Later bundles are pushed already.
struct Hub {
    servers: ServerFixture,
    _workloads: Workloads,
    bundles: Vec<Published>,
    /// Address of the API server, where the Service of catalogd leads to its process.
    address: SocketAddr,
    _servers: [Server; 2],
}

impl Hub {
    async fn start() -> Self {
        let olm = Path::new(env!("CARGO_BIN_EXE_olm"));
        let programs = Programs::beside(olm.with_file_name("operator-controller")).unwrap();
        let servers = ServerFixture::start(programs).await.unwrap();
        let workloads = Workloads::start(servers.client());
        let running = [servers.start_catalogd().await.unwrap(), servers.start_controller().await.unwrap()];
        let broken = Bundle::new(NAME, "1.1.0")
            .crd("Widget", &["size"])
            .deployment(NAME, "registry.example/tide:1.1.0-broken");
        let bundles = [Bundle::sample(NAME, "1.0.0"), broken];
        let bundles = bundles.iter().map(|bundle| servers.publish(bundle).unwrap()).collect();
        let address = forwarder(&servers).await;
        let hub = Self { servers, _workloads: workloads, bundles, address, _servers: running };
        hub.offer(1).await;
        hub
    }

    /// Serves the first bundles.
    async fn offer(&self, count: usize) {
        let entries = ["1.0.0", "1.1.0"].iter().zip([None, Some("tide.v1.0.0")]);
        let entries = entries.take(count).map(|(version, before)| match before {
            Some(before) => json!({"name": format!("tide.v{version}"), "replaces": before}),
            None => json!({"name": format!("tide.v{version}")}),
        });
        let start = Catalog::default().package(NAME).channel(NAME, "stable", entries.collect());
        let catalog =
            self.bundles.iter().take(count).fold(start, |catalog, bundle| catalog.meta(described(bundle)));
        self.servers.serve("hub", &catalog).await.unwrap();
    }

    /// Console, as this user if there is one.
    fn console(&self, user: Option<&str>) -> Command {
        let demo = format!("demo={}", tests("commands/console/data/catalog").display());
        let arguments = ["console", "--no-open", "--catalog", &demo, "--catalog", "cluster", "--ca-dir"];
        let mut command = olm_in(&tests(""), &arguments);
        let file = self.servers.file(user.unwrap_or("administrator"));
        let user = user.map_or_else(|| json!({}), |user| json!({"as": user}));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "main",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(&file, config.to_string()).unwrap();
        command.arg(self.servers.file("registry")).env("KUBECONFIG", file);
        command
    }

    fn widgets(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("tide.servers.example", "v1", "Widget");
        Api::namespaced_with(self.servers.client(), NAMESPACE, &ApiResource::from_gvk(&kind))
    }

    async fn catalog_of_extension(&self) -> Value {
        let live = self.servers.extensions().get(NAME).await.unwrap();
        serde_json::to_value(live).unwrap()["spec"]["source"]["catalog"].take()
    }

    /// A pod of the Deployment that crashes, as its node reports it.
    async fn crash(&self) {
        let api: Api<Deployment> = Api::namespaced(self.servers.client(), NAMESPACE);
        let deployment = api.get(NAME).await.unwrap();
        let template = deployment.spec.unwrap().template;
        let pods: Api<Pod> = Api::namespaced(self.servers.client(), NAMESPACE);
        let pod = json!({"metadata": {"name": "tide-1", "labels": template.metadata.unwrap().labels},
            "spec": template.spec.unwrap()});
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}});
        let status = json!({"status": {"phase": "Running", "containerStatuses": [{"name": "operator", "image": "i", "imageID": "i",
            "ready": false, "restartCount": 7, "state": waiting,
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}});
        pods.patch_status("tide-1", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
}

/// Forwards requests to the API server, and those for content of catalogs to catalogd.
async fn forwarder(servers: &ServerFixture) -> SocketAddr {
    let ca = std::fs::read(servers.file("tls.crt")).unwrap();
    let ca = reqwest::Certificate::from_pem(&ca).unwrap();
    let catalogd = reqwest::Client::builder().no_proxy().tls_certs_only([ca]).build().unwrap();
    let client = servers.client();
    let app = Router::new().fallback(move |request: Request| {
        let (client, catalogd) = (client.clone(), catalogd.clone());
        async move {
            let Some((_, path)) = request.uri().path().split_once("/proxy/catalogs/hub/") else {
                return forward(&client, request).await;
            };
            let catalog = Api::<ClusterCatalog>::all(client.clone()).get("hub").await.unwrap();
            let base = catalog.status.unwrap().urls.unwrap().base;
            let answer = catalogd.get(format!("{base}/{path}")).send().await.unwrap();
            answer.bytes().await.unwrap().into_response()
        }
    });
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Bundle with the properties that catalogs have: its APIs, and texts of its ClusterServiceVersion.
fn described(bundle: &Published) -> Value {
    let widget = json!({"apiVersion": "tide.servers.example/v1", "kind": "Widget", "metadata": {"name": "small"},
        "spec": {"size": "s"}});
    let api = json!({"name": "widgets.tide.servers.example", "version": "v1", "kind": "Widget",
        "displayName": "Widget", "description": "Measures the tide"});
    let csv = json!({"displayName": "Tide Operator", "description": "Measures the tide.",
        "annotations": {"alm-examples": json!([widget]).to_string()},
        "crdDescriptions": {"owned": [api]}, "installModes": [{"type": "AllNamespaces", "supported": true}]});
    let package = json!({"packageName": NAME, "version": bundle.version});
    let gvk = json!({"group": "tide.servers.example", "version": "v1", "kind": "Widget"});
    json!({"schema": "olm.bundle", "package": NAME, "name": bundle.name, "image": bundle.image, "properties": [
        {"type": "olm.package", "value": package}, {"type": "olm.gvk", "value": gvk},
        {"type": "olm.csv.metadata", "value": csv}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn new_user_completes_twelve_tasks() {
    let hub = Hub::start().await;
    let Some(visit) = Visit::begin(hub.console(None)).await else { return };
    package_is_found_by_its_api(&visit).await;
    channel_is_followed(&hub, &visit).await;
    upgrade_is_approved_by_keyboard(&hub, &visit).await;
    cause_of_failure_is_first(&hub, &visit).await;
    extension_is_rolled_back(&hub, &visit).await;
    range_is_changed_at_200_percent(&hub, &visit).await;
    instance_is_created_on_a_phone(&hub, &visit).await;
    user_with_few_rights_sees_what_is_missing(&hub).await;
    data_is_kept(&hub, &visit).await;
    visit.finish(&[]).await;
}

async fn package_is_found_by_its_api(visit: &Visit) {
    let browser = &visit.browser;
    browser.click("#q").await;
    browser.keys("widget").await;
    browser.until("document.querySelectorAll('.package').length === 1").await;
    browser.click(".package a").await;
    visit.until_at("/catalogs/hub/packages/tide").await;
}

async fn channel_is_followed(hub: &Hub, visit: &Visit) {
    let browser = &visit.browser;
    browser.click(".actions a.button").await;
    browser.until("document.querySelector('form.install')").await;
    assert_eq!(browser.value("document.querySelector('#follow-channel').checked").await, true);
    browser.click("form.install button").await;
    browser.until("document.querySelector('[data-apply]')").await;
    let upgrades = browser.texts("#upgrades").await;
    assert_eq!(upgrades, ["The extension follows channel stable: OLM upgrades it to each new version."]);
    browser.click("[data-apply]").await;
    visit.until_at("/extensions/tide").await;
    browser.until("document.querySelector('.status .badge').textContent === '✓ Healthy'").await;
    assert_eq!(hub.catalog_of_extension().await["channels"], json!(["stable"]));
    assert_eq!(hub.catalog_of_extension().await["version"], json!(null));
    let namespaces: Api<Namespace> = Api::all(hub.servers.client());
    let made_for = namespaces.get(NAMESPACE).await.unwrap().metadata.annotations.unwrap();
    assert_eq!(made_for["ext.olm.operatorframework.io/suggested-for"], NAME);
}

async fn upgrade_is_approved_by_keyboard(hub: &Hub, visit: &Visit) {
    let browser = &visit.browser;
    let approval =
        json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/approval": "ManualUpgrades"}}});
    hub.servers.edit(NAME, approval).await.unwrap();
    hub.offer(2).await;
    let waits = |extension: &olm_api::ClusterExtension| {
        let found = extension.condition("UpgradeAvailable");
        found.is_some_and(|condition| condition.reason == "ApprovalRequired")
    };
    hub.servers.until(NAME, "an upgrade waits", waits).await.unwrap();
    visit.open("/extensions").await;
    tab_to(visit, ".held a").await;
    browser.keys(key::ENTER).await;
    visit.until_at("/extensions/tide/approve").await;
    assert!(browser.texts("#plan").await[0].contains("tide.v1.1.0"));
    tab_to(visit, "[data-apply]").await;
    browser.keys(key::ENTER).await;
    visit.until_at("/extensions/tide").await;
}

async fn cause_of_failure_is_first(hub: &Hub, visit: &Visit) {
    let browser = &visit.browser;
    browser.until("document.querySelector('#revision-2 .probe')").await;
    hub.crash().await;
    browser.until("document.querySelector('.cause .sentence')?.textContent.includes('its pods crash')").await;
    let cause = browser.texts(".cause").await.remove(0);
    assert!(cause.contains("tide-1") && cause.contains("What to do."), "{cause}");
    let top = "document.querySelector('.cause').getBoundingClientRect().top";
    assert!(browser.value(top).await.as_f64().unwrap() < 500.0);
    assert_whole_words(visit).await;
}

async fn extension_is_rolled_back(hub: &Hub, visit: &Visit) {
    let browser = &visit.browser;
    browser.click(".actions a[href$='/rollback']").await;
    browser.until("document.querySelector('[data-apply]')").await;
    assert!(browser.texts("#plan").await[0].contains("tide.v1.0.0"));
    let page = browser.texts("main").await.remove(0);
    assert!(page.contains("the rollback waits until its plan is approved"), "{page}");
    browser.click("[data-apply]").await;
    visit.until_at("/extensions/tide").await;
    browser.until("document.querySelector('.held a')").await;
    browser.click(".held a").await;
    visit.until_at("/extensions/tide/approve").await;
    browser.click("[data-apply]").await;
    visit.until_at("/extensions/tide").await;
    hub.servers.until_installed(NAME, "1.0.0").await.unwrap();
    browser.until("document.querySelector('.status .badge').textContent === '✓ Healthy'").await;
    assert_eq!(hub.catalog_of_extension().await["version"], "1.0.0");
}

/// A window of 1200 by 720 pixels at a zoom of 200 %.
async fn range_is_changed_at_200_percent(hub: &Hub, visit: &Visit) {
    let browser = &visit.browser;
    browser.screen(Screen::Zoomed).await;
    browser.click(".tabs a[href$='/configuration']").await;
    visit.until_at("/extensions/tide/configuration").await;
    browser.run("document.querySelector('#range').value = ''", json!([])).await;
    browser.click("#range").await;
    browser.keys("1.0.x").await;
    browser.click("form.install button").await;
    browser.until("document.querySelector('[data-apply]')").await;
    assert!(browser.texts("#plan").await[0].starts_with("Version range: 1.0.0 → 1.0.x"));
    assert_whole_words(visit).await;
    browser.click("[data-apply]").await;
    visit.until_at("/extensions/tide").await;
    assert_whole_words(visit).await;
    assert_eq!(hub.catalog_of_extension().await["version"], "1.0.x");
}

async fn instance_is_created_on_a_phone(hub: &Hub, visit: &Visit) {
    let browser = &visit.browser;
    browser.screen(Screen::Narrow).await;
    browser.click(".tabs a[href$='/apis']").await;
    visit.until_at("/extensions/tide/apis").await;
    browser.click(".api .button").await;
    visit.until_at(&format!("{WIDGETS}/create")).await;
    let text = browser.value("document.querySelector('#text').value").await;
    assert!(text.as_str().unwrap().contains("size: s"), "the example of the catalog: {text}");
    browser.click("form:has(#text) button").await;
    browser.until("document.querySelector('[data-apply]')").await;
    assert_whole_words(visit).await;
    browser.click("[data-apply]").await;
    visit.until_at(WIDGETS).await;
    assert!(browser.texts("tbody tr").await[0].starts_with("small"));
    assert!(hub.widgets().get_opt("small").await.unwrap().is_some());
    browser.screen(Screen::Wide).await;
}

async fn user_with_few_rights_sees_what_is_missing(hub: &Hub) {
    let client = hub.servers.client();
    let rules =
        json!([{"apiGroups": ["olm.operatorframework.io"], "resources": ["*"], "verbs": ["get", "list"]}]);
    let role = json!({"metadata": {"name": "viewer"}, "rules": rules});
    let roles: Api<ClusterRole> = Api::all(client.clone());
    roles.create(&PostParams::default(), &serde_json::from_value(role).unwrap()).await.unwrap();
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "viewer"});
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "viewer"});
    let binding = json!({"metadata": {"name": "viewer"}, "roleRef": reference, "subjects": [subject]});
    let bindings: Api<ClusterRoleBinding> = Api::all(client);
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    let Some(visit) = Visit::begin(hub.console(Some("viewer"))).await else { return };
    let browser = &visit.browser;
    visit.open("/extensions").await;
    browser.click("#extensions tbody a").await;
    visit.until_at("/extensions/tide").await;
    browser.click(".actions a[href$='/uninstall']").await;
    visit.until_at("/extensions/tide/uninstall").await;
    let page = browser.texts("main").await.remove(0);
    assert!(page.contains("forbidden"), "{page}");
    assert!(!page.contains("delete 0 objects"), "unknown is not 0: {page}");
    visit.open("/rights").await;
    assert!(browser.texts("#tasks tbody tr").await.iter().any(|row| row.starts_with("Uninstall✕ may not")));
    visit.finish(&[]).await;
}

async fn data_is_kept(hub: &Hub, visit: &Visit) {
    let browser = &visit.browser;
    visit.open("/extensions/tide").await;
    browser.click(".actions a[href$='/uninstall']").await;
    visit.until_at("/extensions/tide/uninstall").await;
    browser.click("[name=keep_crds]").await;
    browser.click("form.choice button").await;
    visit.until_at("/extensions/tide/uninstall?keep_crds=yes").await;
    browser.click("[data-apply]").await;
    browser.until("document.querySelector('h1').textContent !== 'Uninstall tide'").await;
    let address = "/extensions/tide/uninstalled?keep_crds=yes";
    eventually("the extension is gone", async || {
        visit.open(address).await;
        (browser.texts("h1").await == ["tide is not installed"]).then_some(())
    })
    .await;
    assert!(hub.servers.extensions().get_opt(NAME).await.unwrap().is_none());
    assert!(hub.widgets().get_opt("small").await.unwrap().is_some());
}

/// Asserts that the page does not scroll sideways, and that no word of a badge, button or heading is on two lines.
async fn assert_whole_words(visit: &Visit) {
    let wide = "document.documentElement.scrollWidth - window.innerWidth";
    assert!(visit.browser.value(wide).await.as_i64() <= Some(0), "the page scrolls sideways");
    let script = "const broken = [];
        for (const one of document.querySelectorAll('.badge, .button, button, h1, h2, th')) {
            for (const node of one.childNodes) {
                if (node.nodeType !== Node.TEXT_NODE) continue;
                for (const word of node.data.matchAll(/[A-Za-z]+/g)) {
                    const range = document.createRange();
                    range.setStart(node, word.index);
                    range.setEnd(node, word.index + word[0].length);
                    if (new Set([...range.getClientRects()].map(box => box.top)).size > 1) broken.push(word[0]);
                }
            }
        }
        return broken;";
    assert_eq!(visit.browser.run(script, json!([])).await, json!([]));
}
