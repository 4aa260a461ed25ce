//! Page of an extension during a rollout of the real servers. No pods run: the tests write the status of Deployments.

use std::path::Path;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, Patch, PatchParams, PostParams};
use olm_servers::{Bundle, Catalog, Programs, Server, ServerFixture, Workloads, extension};
use serde_json::json;

use super::browser::key;
use super::keyboard::tab_to;
use super::rig::Visit;
use crate::fixture::{olm_in, tests};

const NAME: &str = "tide-database";
const NAMESPACE: &str = "databases";

/// Cluster with version 1.0.0. The Deployment of version 2.0.0 never becomes available by itself.
struct Rollout {
    servers: ServerFixture,
    workloads: Workloads,
    _servers: [Server; 2],
}

impl Rollout {
    async fn start() -> Self {
        let olm = Path::new(env!("CARGO_BIN_EXE_olm"));
        let programs = Programs::beside(olm.with_file_name("operator-controller")).unwrap();
        let servers = ServerFixture::start(programs).await.unwrap();
        let workloads = Workloads::start(servers.client());
        let running = [servers.start_catalogd().await.unwrap(), servers.start_controller().await.unwrap()];
        let broken = Bundle::new(NAME, "2.0.0")
            .crd("Widget", &["size"])
            .config_map(&format!("{NAME}-settings"), &[("version", "2.0.0")])
            .deployment(NAME, "registry.example/tide-database:2.0.0-broken");
        let bundles = [Bundle::sample(NAME, "1.0.0"), broken];
        let bundles = bundles.map(|bundle| servers.publish(&bundle).unwrap());
        servers.serve("hub", &Catalog::default().chain(&bundles)).await.unwrap();
        servers.create_namespace(NAMESPACE).await.unwrap();
        let object = extension(NAME, NAMESPACE, NAME, Some("1.0.0"));
        let object = serde_json::from_value(object).unwrap();
        servers.extensions().create(&PostParams::default(), &object).await.unwrap();
        servers.until_installed(NAME, "1.0.0").await.unwrap();
        Self { servers, workloads, _servers: running }
    }

    async fn upgrade(&self) {
        let patch = json!({"spec": {"source": {"catalog": {"version": "2.0.0"}}}});
        self.servers.edit(NAME, patch).await.unwrap();
    }

    /// Makes the Deployment available, as its pods do.
    async fn repair(&self) {
        self.workloads.hold();
        let api: Api<Deployment> = Api::namespaced(self.servers.client(), NAMESPACE);
        let status = json!({"status": {"readyReplicas": 1, "availableReplicas": 1, "unavailableReplicas": 0,
            "conditions": [{"type": "Available", "status": "True", "reason": "Test", "message": ""}]}});
        api.patch_status(NAME, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tree_follows_rollout_without_reload() {
    let rollout = Rollout::start().await;
    let demo = format!("demo={}", tests("commands/console/data/catalog").display());
    let mut command =
        olm_in(&tests(""), &["console", "--no-open", "--catalog", &demo, "--catalog", "cluster"]);
    command.env("KUBECONFIG", rollout.servers.plane.kubeconfig());
    let Some(visit) = Visit::begin(command).await else { return };
    let browser = &visit.browser;
    visit.open(&format!("/extensions/{NAME}")).await;
    browser.until("document.querySelector('[data-follow-status]').textContent.startsWith('Following')").await;
    assert_eq!(browser.texts(".status .badge").await[0], "✓ Healthy");
    assert_eq!(browser.texts(".probe").await, [""; 0]);
    browser.run("window.same = true", json!([])).await;
    // The user closes the revision. It stays closed, and the focus on it.
    tab_to(&visit, "#revision-1 > summary").await;
    browser.keys(key::ENTER).await;
    browser.until("!document.querySelector('#revision-1').open").await;

    rollout.upgrade().await;
    let probe = "[...document.querySelectorAll('#revision-2 .probe')].some(one => one.textContent.includes('Available'))";
    browser.until(probe).await;
    browser.until("document.querySelectorAll('#events-table tbody tr').length > 0").await;
    let kept = "[window.same, document.querySelector('#revision-1').open,
        document.activeElement === document.querySelector('#revision-1 > summary')]";
    assert_eq!(browser.value(kept).await, json!([true, false, true]));
    browser.value("window.scrollTo(0, 0)").await;
    visit.picture("live").await;
    visit.assert_accessible("rollout").await;

    rollout.repair().await;
    browser.until("!document.querySelector('.probe') && !document.querySelector('#revision-1')").await;
    browser.until("document.querySelector('.status .badge').textContent === '✓ Healthy'").await;
    browser
        .until("[...document.querySelectorAll('aside dd')].some(one => one.textContent.startsWith('2.0.0'))")
        .await;
    assert_eq!(browser.value("window.same").await, true, "the page was loaded once");
    visit.open(&format!("/extensions/{NAME}/history")).await;
    browser.until("document.querySelectorAll('#history-table tbody tr').length === 2").await;
    visit.finish(&[]).await;
}
