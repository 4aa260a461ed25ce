//! `olm bundle run` with an API server. The tests write the status that the controllers would write.

use std::process::{Child, ChildStderr};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use olm_api::{ClusterCatalog, ClusterExtension};
use olm_control_plane::{HOUSEKEEPING, eventually};
use serde_json::{Value, json};

use super::fixture::{Fixture, ended, interrupt, pipe_bundle};
use crate::fixture::{Ran, olm_in};

const LABEL: &str = "ext.olm.operatorframework.io/bundle-run";
const CATALOG: &str = "pipe-bundle-run";

/// Fixture with the bundles pipe.v1.0.0 and pipe.v1.1.0 in folders.
async fn fixture() -> Fixture {
    let fixture = Fixture::start(HOUSEKEEPING).await;
    for folder in ["old", "new"] {
        for (path, content) in pipe_bundle(folder) {
            let path = fixture.path(folder).join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let values = [
            ("mediatype", "registry+v1"),
            ("manifests", "manifests/"),
            ("metadata", "metadata/"),
            ("package", "pipe"),
            ("channels", "stable"),
        ];
        let line = |(key, value)| format!("  operators.operatorframework.io.bundle.{key}.v1: {value}\n");
        let annotations = format!("annotations:\n{}", values.map(line).concat());
        std::fs::write(fixture.path(folder).join("metadata/annotations.yaml"), annotations).unwrap();
    }
    fixture
}

fn begin(fixture: &Fixture, folder: &str, more: &[&str]) -> Child {
    let folder = fixture.path(folder);
    let repository = fixture.reference("run/pipe");
    let line = [
        "bundle",
        "run",
        folder.to_str().unwrap(),
        "-n",
        "pipe-run",
        "--push-to",
        &repository,
        "--timeout",
        "1m",
    ];
    fixture.begin(&[&line[..], more].concat())
}

fn catalogs(fixture: &Fixture) -> Api<ClusterCatalog> {
    Api::all(fixture.client())
}

/// Waits until the run has written a catalog other than `before`, and serves it. Returns its image.
async fn serve(fixture: &Fixture, before: &str) -> String {
    let api = catalogs(fixture);
    let catalog = eventually("catalog of the run", async || {
        let found = api.get_opt(CATALOG).await.unwrap()?;
        (found.spec.source.image.as_ref()?.ref_ != before).then_some(found)
    })
    .await;
    let image = catalog.spec.source.image.unwrap().ref_;
    let condition = json!({"type": "Serving", "status": "True", "reason": "Available", "message": "Serving",
        "observedGeneration": catalog.metadata.generation, "lastTransitionTime": "2026-01-02T03:04:05Z"});
    let status = json!({"status": {
        "conditions": [condition],
        "resolvedSource": {"type": "Image", "image": {"ref": image}},
        "urls": {"base": "https://catalogd-service.olmv1-system.svc/catalogs/pipe-bundle-run"},
    }});
    api.patch_status(CATALOG, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    image
}

/// Installs the bundle of the run, with the image that the run pushed, as operator-controller does.
async fn install(fixture: &Fixture, extension: &ClusterExtension, number: i64, bundle: &str, image: &str) {
    let rolling = ["Progressing", "True", "RollingOut", "Revision is rolling out."];
    fixture.add_revision(extension, number, bundle, &[rolling]).await;
    let annotation =
        json!({"metadata": {"annotations": {"olm.operatorframework.io/bundle-reference": image}}});
    let name = format!("pipe-{number}");
    fixture.sets().patch(&name, &PatchParams::default(), &Patch::Merge(&annotation)).await.unwrap();
    fixture.settle(extension, number, bundle).await;
}

/// Digest reference of the bundle in the folder, as a run names it.
async fn bundle_image(fixture: &Fixture, folder: &str) -> String {
    let mut command = olm_in(&fixture.path(folder), &["bundle", "build", "."]);
    let built = tokio::task::spawn_blocking(move || Ran::from(command.output().unwrap())).await.unwrap();
    assert_eq!(built.code, 0, "{}", built.stderr);
    format!("{}@{}", fixture.reference("run/pipe"), built.stdout.trim())
}

/// Waits for a line of standard error, then lets a thread read the rest.
async fn until_printed(child: &mut Child, text: &'static str) -> std::thread::JoinHandle<String> {
    let stderr: ChildStderr = child.stderr.take().unwrap();
    let (found, rest) = tokio::task::spawn_blocking(move || {
        use std::io::BufRead;
        let mut lines = std::io::BufReader::new(stderr).lines();
        let mut seen = Vec::new();
        let found = lines.by_ref().map(Result::unwrap).any(|line| {
            let is_it = line.contains(text);
            seen.push(line);
            is_it
        });
        let rest = std::thread::spawn(move || lines.map(|line| line.unwrap() + "\n").collect::<String>());
        (found.then_some(()).ok_or(seen), rest)
    })
    .await
    .unwrap();
    assert_eq!(found, Ok(()), "{text}");
    rest
}

/// Creates the Deployment of the operator.
async fn create_deployment(fixture: &Fixture) {
    let labels = json!({"app": "pipe"});
    let container = json!({"name": "manager", "image": "r.example/pipe"});
    let deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "pipe", "labels": {"olm.operatorframework.io/owner-name": "pipe"}},
        "spec": {"selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}},
    }))
    .unwrap();
    let api: Api<Deployment> = Api::namespaced(fixture.client(), "pipe-run");
    api.create(&PostParams::default(), &deployment).await.unwrap();
}

fn pods(fixture: &Fixture) -> Api<Pod> {
    Api::namespaced(fixture.client(), "pipe-run")
}

/// Creates a pod of the operator whose container has this state.
async fn create_pod(fixture: &Fixture, name: &str, state: Value) {
    let container = json!({"name": "manager", "image": "r.example/pipe"});
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"app": "pipe"}}, "spec": {"containers": [container]},
    }))
    .unwrap();
    pods(fixture).create(&PostParams::default(), &pod).await.unwrap();
    let status = json!({"name": "manager", "image": "r.example/pipe", "imageID": "", "ready": false, "restartCount": 1,
        "state": state});
    let status = json!({"status": {"containerStatuses": [status]}});
    pods(fixture).patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

async fn require_all_deleted(fixture: &Fixture) {
    assert!(fixture.extensions().get_opt("pipe").await.unwrap().is_none());
    assert!(catalogs(fixture).get_opt(CATALOG).await.unwrap().is_none());
    let namespaces: Api<Namespace> = Api::all(fixture.client());
    assert!(namespaces.get_opt("pipe-run").await.unwrap().is_none());
}

/// Waits for the deletion of the extension, and deletes its revisions, as operator-controller does.
async fn uninstall(fixture: &Fixture) {
    let api = fixture.extensions();
    eventually("deletion of the extension", async || {
        api.get_opt("pipe").await.unwrap().is_none().then_some(())
    })
    .await;
    for set in fixture.sets().list(&Default::default()).await.unwrap() {
        fixture.sets().delete(&set.name_any(), &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_installs_upgrades_and_removes_everything_at_interrupt() {
    let fixture = fixture().await;
    let mut child = begin(&fixture, "old", &["--keep"]);
    let first = serve(&fixture, "").await;
    assert!(first.starts_with(&fixture.reference("run/pipe@sha256:")), "{first}");
    let made = fixture.extension("pipe").await;
    let label = made.labels()[LABEL].clone();
    assert_eq!(catalogs(&fixture).get(CATALOG).await.unwrap().labels()[LABEL], label);
    let namespaces: Api<Namespace> = Api::all(fixture.client());
    assert_eq!(namespaces.get("pipe-run").await.unwrap().labels()[LABEL], label);
    let old = bundle_image(&fixture, "old").await;
    install(&fixture, &made, 1, "pipe.v1.0.0", &old).await;
    let rest = until_printed(&mut child, "following the logs; Ctrl-C ends the command").await;
    interrupt(&child);
    assert_eq!(ended(child).await.code, 0);
    assert_eq!(rest.join().unwrap(), "kept ClusterExtension pipe and its catalog (--keep)\n");

    // The same content again.
    let mut child = begin(&fixture, "old", &["--keep", "--no-logs"]);
    let said = "the bundle and its settings have not changed since the former run, so nothing is rolled out";
    let rest = until_printed(&mut child, said).await;
    assert_eq!(ended(child).await.code, 0, "{}", rest.join().unwrap());

    // Interrupted before it wrote the kept extension, a run without --keep does not remove it.
    let kept = fixture.extensions().get("pipe").await.unwrap();
    let child = begin(&fixture, "new", &[]);
    eventually("catalog of the next run", async || {
        let found = catalogs(&fixture).get(CATALOG).await.unwrap();
        (found.spec.source.image?.ref_ != first).then_some(())
    })
    .await;
    interrupt(&child);
    let ran = ended(child).await;
    assert_eq!(ran.code, 130, "{}", ran.stderr);
    let said = "kept ClusterExtension \"pipe\" of a former run, which this run did not change; run again, or remove it \
                with `olm uninstall pipe`\n";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    let there = fixture.extensions().get("pipe").await.unwrap();
    assert_eq!(there.metadata.resource_version, kept.metadata.resource_version);

    // Another folder: the kept extension is upgraded.
    let mut child = begin(&fixture, "new", &["--crd-check", "Live"]);
    serve(&fixture, &first).await;
    let changed = fixture.generation("pipe", 2).await;
    assert_eq!(changed.annotations()["ext.olm.operatorframework.io/crd-check"], "Live");
    assert_eq!(changed.uid(), made.uid());
    assert_ne!(changed.labels()[LABEL], label);
    let new = bundle_image(&fixture, "new").await;
    install(&fixture, &changed, 2, "pipe.v1.1.0", &new).await;
    let rest = until_printed(&mut child, "following the logs; Ctrl-C removes the operator").await;
    interrupt(&child);
    uninstall(&fixture).await;
    assert_eq!(ended(child).await.code, 0);
    let removed =
        "removed ClusterExtension \"pipe\", ClusterCatalog \"pipe-bundle-run\", namespace \"pipe-run\"\n";
    assert!(rest.join().unwrap().ends_with(removed));
    require_all_deleted(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_adopts_its_leftovers_and_no_foreign_objects() {
    let fixture = fixture().await;
    // An object of another owner is neither changed nor deleted, and nothing is pushed.
    let foreign: ClusterCatalog = serde_json::from_value(json!({
        "metadata": {"name": CATALOG},
        "spec": {"source": {"type": "Image", "image": {"ref": "r.example/mine:v1"}}},
    }))
    .unwrap();
    let foreign = catalogs(&fixture).create(&PostParams::default(), &foreign).await.unwrap();
    let ran = ended(begin(&fixture, "old", &[])).await;
    assert_eq!(ran.code, 3, "{}", ran.stderr);
    let said = "error: ClusterCatalog \"pipe-bundle-run\" exists, was not created by `olm bundle run`";
    assert!(ran.stderr.contains(said), "{}", ran.stderr);
    let there = catalogs(&fixture).get(CATALOG).await.unwrap();
    assert_eq!(there.metadata.resource_version, foreign.metadata.resource_version);
    catalogs(&fixture).delete(CATALOG, &DeleteParams::default()).await.unwrap();

    // A killed run leaves its objects behind.
    let mut killed = begin(&fixture, "old", &[]);
    let first = serve(&fixture, "").await;
    let made = fixture.extension("pipe").await;
    killed.kill().unwrap();
    killed.wait().unwrap();

    // The next one adopts them. Interrupted before the installation, it removes them.
    let child = begin(&fixture, "new", &[]);
    serve(&fixture, &first).await;
    let adopted = fixture.generation("pipe", 2).await;
    assert_eq!(adopted.uid(), made.uid());
    interrupt(&child);
    let ran = ended(child).await;
    assert_eq!(ran.code, 130, "{}", ran.stderr);
    assert!(ran.stderr.contains("removed ClusterExtension \"pipe\""), "{}", ran.stderr);
    require_all_deleted(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_of_pods_and_their_successors_are_followed() {
    let fixture = fixture().await;
    let mut child = begin(&fixture, "old", &[]);
    serve(&fixture, "").await;
    let made = fixture.extension("pipe").await;
    create_deployment(&fixture).await;
    let first = "2026-01-02T03:04:05.100Z one\n2026-01-02T03:04:05.100Z of the same time\n";
    fixture.set_log("pipe-a", first);
    create_pod(&fixture, "pipe-a", json!({"running": {}})).await;
    let image = bundle_image(&fixture, "old").await;
    install(&fixture, &made, 1, "pipe.v1.0.0", &image).await;
    let stdout = child.stdout.take().unwrap();
    let rest = until_printed(&mut child, "following the logs").await;
    let (sender, mut lines) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        use std::io::BufRead;
        std::io::BufReader::new(stdout)
            .lines()
            .map(Result::unwrap)
            .for_each(|line| sender.send(line).unwrap());
    });
    assert_eq!(lines.recv().await.as_deref(), Some("one"));
    assert_eq!(lines.recv().await.as_deref(), Some("of the same time"));
    // A stream that is opened again does not repeat lines.
    fixture.set_log("pipe-a", &format!("{first}2026-01-02T03:04:05.200Z two\n"));
    assert_eq!(lines.recv().await.as_deref(), Some("two"));
    fixture.set_log("pipe-b", "2026-01-02T03:05:00Z \u{1b}[32mthree\u{1b}[0m\n");
    create_pod(&fixture, "pipe-b", json!({"running": {}})).await;
    assert_eq!(lines.recv().await.as_deref(), Some("[pipe-b/manager] three"));
    pods(&fixture).delete("pipe-b", &DeleteParams::default().grace_period(0)).await.unwrap();
    let deleted = async || pods(&fixture).get_opt("pipe-b").await.unwrap().is_none().then_some(());
    eventually("deletion of the pod", deleted).await;
    fixture.set_log("pipe-b", "2026-01-02T03:06:00Z four\n");
    create_pod(&fixture, "pipe-b", json!({"running": {}})).await;
    assert_eq!(lines.recv().await.as_deref(), Some("[pipe-b/manager] four"));
    interrupt(&child);
    uninstall(&fixture).await;
    assert_eq!(ended(child).await.code, 0, "{}", rest.join().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_installation_is_explained_and_removed() {
    let fixture = fixture().await;
    let build = ["bundle", "build", "old", "--to", "old.oci"];
    let ran = Ran::from(olm_in(&fixture.path(""), &build).output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let child = begin(&fixture, "old.oci", &[]);
    serve(&fixture, "").await;
    let made = fixture.extension("pipe").await;
    create_deployment(&fixture).await;
    fixture.set_log("pipe-a", "panic: no\n");
    create_pod(&fixture, "pipe-a", json!({"waiting": {"reason": "CrashLoopBackOff"}})).await;
    let message = "invalid ClusterExtension configuration: required field \"watchNamespace\" is missing";
    fixture.say(&made, None, &[["Progressing", "False", "InvalidConfiguration", message]]).await;
    let ran = ended(child).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
    let logs = "pod pipe-a: container manager waits: CrashLoopBackOff\n[pipe-a/manager] panic: no\n";
    assert!(ran.stderr.contains(logs), "{}", ran.stderr);
    let said = format!("error: pipe: InvalidConfiguration: {message}\nthe objects of the run are removed\n");
    assert!(ran.stderr.ends_with(&said), "{}", ran.stderr);
    require_all_deleted(&fixture).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn folder_with_manifests_is_installed_as_a_generated_bundle() {
    let fixture = fixture().await;
    let manifests = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: pipe}\n---\n\
                     apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: pipe}\n\
                     spec:\n  selector: {matchLabels: {app: pipe}}\n  template:\n    metadata: {labels: {app: pipe}}\n    \
                     spec:\n      serviceAccountName: pipe\n      containers: [{name: manager, image: \"controller:latest\"}]\n";
    std::fs::create_dir(fixture.path("pipe")).unwrap();
    std::fs::write(fixture.path("pipe/operator.yaml"), manifests).unwrap();
    let monitor = "apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nmetadata: {name: pipe}\n";
    std::fs::write(fixture.path("pipe/monitor.yaml"), monitor).unwrap();
    let image = ["--set-image", "controller=r.example/manager:v1", "--skip-kind", "ServiceMonitor"];
    let mut line =
        vec!["bundle", "generate", "pipe", "--version", "0.0.1", "--from", "pipe", "--to", "generated"];
    line.extend(image);
    let ran = Ran::from(olm_in(&fixture.path(""), &line).output().unwrap());
    assert_eq!(ran.code, 0, "{}", ran.stderr);

    let mut child = begin(&fixture, "pipe", &[&image[..], &["--no-logs"]].concat());
    serve(&fixture, "").await;
    let made = fixture.extension("pipe").await;
    let bundle = bundle_image(&fixture, "generated").await;
    install(&fixture, &made, 1, "pipe.v0.0.1", &bundle).await;
    let rest = until_printed(&mut child, "pipe is installed: pipe.v0.0.1, version 0.0.1").await;
    uninstall(&fixture).await;
    assert_eq!(ended(child).await.code, 0);
    assert!(rest.join().unwrap().contains("removed ClusterExtension \"pipe\""));
    require_all_deleted(&fixture).await;
}
