//! A leader that loses its Lease ends its controllers, and starts them anew when it leads again, in the same process
//! (docs/design/operations.md#lease).

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::PostParams;
use olm_api::{ClusterExtension, crds::crds};
use olm_control_plane::{ControlPlane, eventually, ports};
use serde_json::json;
use tempfile::TempDir;

const SYSTEM: &str = "olmv1-system";
const LOST: &str = "leader election lost";

/// A control plane with the CRDs and the system namespace.
async fn control_plane() -> ControlPlane {
    let plane = ControlPlane::start().await.unwrap();
    plane.apply_crds(&crds()).await.unwrap();
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": SYSTEM}})).unwrap();
    Api::all(plane.client()).create(&PostParams::default(), &namespace).await.unwrap();
    plane
}

/// A running operator-controller. Killed on drop.
struct Replica {
    child: Child,
    folder: TempDir,
    metrics_port: u16,
    probe_port: u16,
}

impl Replica {
    fn start(plane: &ControlPlane, pod: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let serving = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        std::fs::write(&certificate, serving.cert.pem()).unwrap();
        std::fs::write(&key, serving.signing_key.serialize_pem()).unwrap();
        let (metrics_port, probe_port) = (ports::free_port().unwrap(), ports::free_port().unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_operator-controller"))
            .arg(format!("--kubeconfig={}", plane.kubeconfig().display()))
            .arg(format!("--cache-path={}", folder.path().join("cache").display()))
            .arg(format!("--system-namespace={SYSTEM}"))
            .arg(format!("--health-probe-bind-address=127.0.0.1:{probe_port}"))
            .arg(format!("--metrics-bind-address=127.0.0.1:{metrics_port}"))
            .arg(format!("--tls-cert={}", certificate.display()))
            .arg(format!("--tls-key={}", key.display()))
            .args(["--leader-elect", "--leader-elect-lease-duration=6s"])
            .args(["--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=200ms"])
            .env("TMPDIR", folder.path())
            .env("POD_NAME", pod)
            .env("POD_UID", format!("uid-{pod}"))
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        Self { child, folder, metrics_port, probe_port }
    }

    fn log(&self) -> String {
        let path: PathBuf = self.folder.path().join("log");
        std::fs::read_to_string(path).unwrap()
    }

    async fn until_logged(&self, text: &str) {
        eventually(text, async || self.log().contains(text).then_some(())).await;
    }

    fn signal(&self, name: &str) {
        assert!(Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap().success());
    }

    async fn until_ready(&self) {
        let url = format!("http://127.0.0.1:{}/readyz", self.probe_port);
        eventually("ready", async || (reqwest::get(&url).await.ok()?.status() == 200).then_some(())).await;
    }

    /// The samples of the metrics, without comments.
    async fn samples(&self) -> Vec<String> {
        let client = reqwest::Client::builder().danger_accept_invalid_certs(true).build().unwrap();
        let url = format!("https://127.0.0.1:{}/metrics", self.metrics_port);
        let answer = client.get(url).bearer_auth("control-plane-test").send().await.unwrap();
        let text = answer.error_for_status().unwrap().text().await.unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }

    async fn is_leading(&self) -> bool {
        let leading = "leader_election_master_status{name=\"9c4404e7.operatorframework.io\"} 1";
        self.samples().await.iter().any(|line| line == leading)
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        drop((self.child.kill(), self.child.wait()));
    }
}

async fn until_holder(plane: &ControlPlane, pod: &str) {
    let leases: Api<Lease> = Api::namespaced(plane.client(), SYSTEM);
    eventually("the pod holds the Lease", async || {
        let holder = leases.get("9c4404e7.operatorframework.io").await.ok()?.spec?.holder_identity?;
        holder.starts_with(&format!("{pod}_")).then_some(())
    })
    .await;
}

/// Creates an extension whose package no catalog has, and waits until the leader reports that.
async fn is_reconciled(plane: &ControlPlane, name: &str) {
    let extensions: Api<ClusterExtension> = Api::all(plane.client());
    let extension = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {
        "namespace": "default", "serviceAccount": {"name": "default"},
        "source": {"sourceType": "Catalog", "catalog": {"packageName": name}}}}))
    .unwrap();
    extensions.create(&PostParams::default(), &extension).await.unwrap();
    eventually("the extension has conditions", async || {
        let status = extensions.get(name).await.ok()?.status?;
        (!status.conditions.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn controllers_end_in_an_outage_longer_than_the_lease_and_start_anew() {
    let plane = control_plane().await;
    let mut replica = Replica::start(&plane, "first");
    is_reconciled(&plane, "one").await;
    replica.until_ready().await;
    plane.kill_apiserver();
    replica.until_logged(LOST).await;
    replica.until_logged("stopped leading").await;
    // The readiness of a follower.
    replica.until_ready().await;
    plane.start_apiserver().await.unwrap();
    is_reconciled(&plane, "two").await;
    replica.until_ready().await;
    assert!(replica.is_leading().await);
    // Metrics of the ended controllers are gone: no series is exported twice.
    let samples = replica.samples().await;
    let mut series: Vec<&str> = samples.iter().filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
    series.sort_unstable();
    let twice: Vec<_> = series.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert!(replica.child.try_wait().unwrap().is_none(), "{}", replica.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_leader_ends_its_controllers_when_another_one_leads() {
    let plane = control_plane().await;
    let mut first = Replica::start(&plane, "first");
    is_reconciled(&plane, "one").await;
    let second = Replica::start(&plane, "second");
    first.signal("-STOP");
    until_holder(&plane, "second").await;
    is_reconciled(&plane, "two").await;
    first.signal("-CONT");
    first.until_logged("stopped leading").await;
    assert!(!first.is_leading().await && second.is_leading().await);
    is_reconciled(&plane, "three").await;
    let log = first.log();
    assert!(log.contains(LOST) && !log.contains("\"three\""), "{log}");
    assert!(first.child.try_wait().unwrap().is_none(), "{log}");
    drop(second);
    until_holder(&plane, "first").await;
    is_reconciled(&plane, "four").await;
}
