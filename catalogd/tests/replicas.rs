//! Two replicas and their serving certificates.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod fixture;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fixture::{Catalogd, Fixture, NAMESPACE, client_trusting, eventually, image};
use futures::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{WatchEvent, WatchParams};
use olm_api::ClusterCatalog;
use serde_json::{Value, json};

const CATALOGS: [&str; 3] = ["one", "two", "three"];

/// Readers of one replica, each in a loop.
struct ReadLoad {
    reads: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    readers: Vec<tokio::task::JoinHandle<Vec<String>>>,
}

impl ReadLoad {
    async fn on(fixture: &Fixture, replica: &Catalogd) -> Self {
        let (reads, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let client = fixture.client().await;
        let read = |catalog: &'static str| {
            let (reads, stop, client) = (Arc::clone(&reads), Arc::clone(&stop), client.clone());
            let url = replica.url(&format!("{catalog}/api/v1/all"));
            async move {
                let mut failures = Vec::new();
                while !stop.load(Ordering::Acquire) {
                    let read = async { client.get(&url).send().await?.error_for_status()?.text().await };
                    match read.await {
                        Ok(text) if text == format!("{{\"schema\":\"{catalog}\"}}\n") => {
                            reads.fetch_add(1, Ordering::AcqRel);
                        }
                        Ok(other) => failures.push(format!("{catalog}: {other:?}")),
                        // Reading stops when the replica is gone.
                        Err(error) => {
                            failures.push(format!("{catalog}: {error:?}"));
                            break;
                        }
                    }
                }
                failures
            }
        };
        let readers = CATALOGS.iter().map(|catalog| tokio::spawn(read(catalog))).collect();
        Self { reads, stop, readers }
    }

    /// Waits for `count` more successful reads.
    async fn more(&self, count: usize) {
        let target = self.reads.load(Ordering::Acquire) + count;
        eventually("reads continue", async || (self.reads.load(Ordering::Acquire) >= target).then_some(()))
            .await;
    }

    /// Stops the readers and returns their failures.
    async fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Release);
        let mut failures = Vec::new();
        for reader in self.readers {
            failures.extend(reader.await.unwrap());
        }
        failures
    }
}

async fn holder(fixture: &Fixture) -> String {
    let leases: Api<Lease> = Api::namespaced(fixture.plane.client(), NAMESPACE);
    let lease = leases.get("catalogd-operator-lock").await.unwrap();
    lease.spec.unwrap().holder_identity.unwrap_or_default()
}

/// The catalog without fields that every write changes.
fn without_times(catalog: &ClusterCatalog) -> Value {
    let mut value = serde_json::to_value(catalog).unwrap();
    value["status"]["lastUnpacked"] = Value::Null;
    value["metadata"]["resourceVersion"] = Value::Null;
    value["metadata"]["managedFields"] = Value::Null;
    value
}

// docs/design/architecture.md#every-replica-serves-content
#[tokio::test(flavor = "multi_thread")]
async fn killed_leader_is_replaced_without_read_failures() {
    let fixture = Fixture::start().await;
    // Both replicas are behind one Service.
    let flags = ["--external-address=catalogs.example"];
    let leader = Catalogd::start_with(&fixture, "first", &flags).await;
    for name in CATALOGS {
        let digest =
            fixture.registry.add_image(&format!("a/{name}"), "v1", &image(&format!("schema: {name}\n")));
        fixture.create(name, &format!("a/{name}:v1"), json!({})).await;
        fixture.until_served(name, &digest).await;
    }
    let follower = Catalogd::start_with(&fixture, "second", &flags).await;
    assert_eq!(holder(&fixture).await, "first_uid-first");
    let before = fixture.catalogs().list(&Default::default()).await.unwrap();
    let on_leader = ReadLoad::on(&fixture, &leader).await;
    let on_follower = ReadLoad::on(&fixture, &follower).await;
    on_leader.more(50).await;
    on_follower.more(50).await;
    let _ = fixture.registry.take_requests();

    leader.kill().await;
    let cut = on_leader.end().await;
    assert!(cut.len() <= CATALOGS.len(), "at most one failure per reader: {cut:?}");
    eventually("the follower leads", async || (holder(&fixture).await == "second_uid-second").then_some(()))
        .await;
    for catalog in &before {
        let unpacked = |catalog: &ClusterCatalog| catalog.status.clone().unwrap().last_unpacked;
        let name = catalog.metadata.name.as_deref().unwrap();
        fixture.until(name, |now| unpacked(now) != unpacked(catalog)).await;
    }
    on_follower.more(50).await;
    assert_eq!(on_follower.end().await, [""; 0]);
    assert_eq!(fixture.registry.take_requests(), [""; 0], "content is held already");

    // Reconciled after all writes of the new leader.
    let digest = fixture.registry.add_image("a/last", "v1", &image("schema: last\n"));
    fixture.create("last", "a/last:v1", json!({})).await;
    fixture.until_served("last", &digest).await;
    let writes = writes_since(&fixture, &before.metadata.resource_version.clone().unwrap()).await;
    for catalog in &before {
        let name = catalog.metadata.name.as_deref().unwrap();
        let writes = &writes[name];
        assert_eq!(writes.len(), 1, "{name} must be written once");
        assert_eq!(
            without_times(&writes[0]),
            without_times(catalog),
            "{name} may differ in lastUnpacked only"
        );
    }
    follower.stop().await;
}

/// The states of all catalogs since `resource_version`, until `last` is served.
async fn writes_since(fixture: &Fixture, resource_version: &str) -> BTreeMap<String, Vec<ClusterCatalog>> {
    let mut writes: BTreeMap<String, Vec<ClusterCatalog>> = BTreeMap::new();
    let api = fixture.catalogs();
    let mut events = api.watch(&WatchParams::default(), resource_version).await.unwrap().boxed();
    while let Some(event) = events.next().await {
        let (WatchEvent::Added(catalog) | WatchEvent::Modified(catalog)) = event.unwrap() else {
            continue;
        };
        let name = catalog.metadata.name.clone().unwrap();
        let is_end = name == "last" && fixture::reason(&catalog, "Serving") == "Available";
        writes.entry(name).or_default().push(catalog);
        if is_end {
            break;
        }
    }
    writes
}

/// Writes a new certificate and key, and returns the certificate.
fn write_pair(directory: &Path) -> String {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    for (name, text) in [("tls.crt", made.cert.pem()), ("tls.key", made.signing_key.serialize_pem())] {
        // Renamed, as a mounted Secret changes: never a partial file.
        std::fs::write(directory.join("new"), text).unwrap();
        std::fs::rename(directory.join("new"), directory.join(name)).unwrap();
    }
    made.cert.pem()
}

/// `true` if new connections to all three servers present this certificate.
async fn all_present(catalogd: &Catalogd, certificate: &str) -> bool {
    for port in [catalogd.content_port, catalogd.metrics_port, catalogd.webhook_port] {
        // A new client has no open connections.
        let client = client_trusting(certificate.as_bytes());
        if client.get(format!("https://localhost:{port}/")).send().await.is_err() {
            return false;
        }
    }
    true
}

// Cases catalogd-57, operations-a11, operations-a12
#[tokio::test(flavor = "multi_thread")]
async fn serving_certificate_is_reloaded_on_all_servers() {
    let fixture = Fixture::start().await;
    let directory = fixture.file("certificates");
    std::fs::create_dir(&directory).unwrap();
    let first = write_pair(&directory);
    let certificate = format!("--tls-cert={}", directory.join("tls.crt").display());
    let key = format!("--tls-key={}", directory.join("tls.key").display());
    let flags = ["--cert-management=external", &certificate, &key];
    let catalogd = Catalogd::start_with(&fixture, "pod", &flags).await;
    assert!(all_present(&catalogd, &first).await);

    let second = write_pair(&directory);
    eventually("new certificate is served", async || all_present(&catalogd, &second).await.then_some(()))
        .await;

    std::fs::write(directory.join("tls.key"), "no key").unwrap();
    let refused = async || fixture.log("pod").contains("failed to reload serving certificate").then_some(());
    eventually("broken pair is rejected", refused).await;
    assert!(all_present(&catalogd, &second).await);
    catalogd.stop().await;
}

// Cases catalogd-58, operations-a7, operations-a21
#[tokio::test(flavor = "multi_thread")]
async fn second_replica_serves_metrics_and_webhook_with_its_tls_profile() {
    let Some(openssl) = olm_require::program("openssl", "openssl") else { return };
    let fixture = Fixture::start().await;
    let leader = Catalogd::start(&fixture, "first").await;
    let flags = ["--tls-profile=custom", "--tls-custom-version=TLSv1.3"];
    let replica = Catalogd::start_with(&fixture, "second", &flags).await;
    assert_eq!(holder(&fixture).await, "first_uid-first");

    let client = fixture.client().await;
    let metrics = format!("https://localhost:{}/metrics", replica.metrics_port);
    let answer = client.get(&metrics).bearer_auth(fixture.token()).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let text = answer.text().await.unwrap();
    assert!(text.contains("leader_election_master_status{name=\"catalogd-operator-lock\"} 0"), "{text}");
    for (version, agrees) in [("-tls1_2", false), ("-tls1_3", true)] {
        let connected = Command::new(&openssl)
            .args(["s_client", "-connect", &format!("127.0.0.1:{}", replica.metrics_port), version])
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        assert_eq!(connected.status.success(), agrees, "{version}");
    }

    let review =
        json!({"request": {"uid": "1", "operation": "CREATE", "object": {"metadata": {"name": "a"}}}});
    let path = "mutate-olm-operatorframework-io-v1-clustercatalog";
    let url = format!("https://localhost:{}/{path}", replica.webhook_port);
    let answer = client.post(url).body(review.to_string()).send().await.unwrap();
    let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
    assert_eq!(answer["response"]["patchType"], "JSONPatch");
    drop(leader);
    replica.stop().await;
}

// docs/design/catalogd.md#command-line, docs/design/operations.md#start-up-errors; cases catalogd-56, operations-a59
#[test]
fn invalid_flags_exit_with_code_1_and_usage() {
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_catalogd")).args(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    for (arguments, error) in [
        (&[][..], "no serving certificate: "),
        (&["--tls-cert=a"], "tls-cert and tls-key flags must be used together\n"),
        (&["--metrics-bind-address=:7443"], "metrics-bind-address requires tls-cert and tls-key flags\n"),
        (
            &["--global-pull-secret=a"],
            "value of global-pull-secret should be of the format <namespace>/<name>\n",
        ),
        (
            &["--feature-gates=X=true"],
            "invalid argument \"X=true\" for \"--feature-gates\" flag: unrecognized feature gate: X\n",
        ),
        (
            &["--tls-profile=foo"],
            "invalid argument \"foo\" for \"--tls-profile\" flag: unknown TLS profile: \"foo\"\n",
        ),
        (&["foo"], "unknown command \"foo\" for \"catalogd\"\n"),
    ] {
        let (code, _, said) = run(arguments);
        assert_eq!(code, Some(1), "{arguments:?}");
        assert!(said.starts_with(&format!("Error: {error}")), "{arguments:?}: {said}");
        assert!(said.contains("Usage: "), "{arguments:?}: {said}");
    }
    let (code, version, _) = run(&["version"]);
    assert_eq!(code, Some(0));
    assert!(version.starts_with("\"version: \\\"") && version.ends_with("\\\"\"\n"), "{version}");
    let (code, script, _) = run(&["completion", "bash"]);
    assert_eq!(code, Some(0));
    assert!(script.contains("_catalogd"), "{script}");
}
