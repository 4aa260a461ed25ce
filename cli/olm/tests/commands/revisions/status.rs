use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::fixture::{Fixture, compare, crd, deployment, object};

const DONE: &str = "Progressing=True/Succeeded Revision 1.0.0 has rolled out.";
const FAILING: &str =
    "Available=False/ProbeFailure Object Deployment.apps/v1 pipe-system/manager: missing .status.conditions";
const COLLIDING: &str = "Progressing=True/Retrying revision object collisions in phase 3\nObject Service.v1 pipe-system/metrics\n";
const INSTALLED: &str = "Installed=True/Succeeded Installed bundle 127.0.0.1:1/pipe:1.0.0 successfully";

#[tokio::test(flavor = "multi_thread")]
async fn status_shows_health_objects_and_collisions() {
    let fixture = Fixture::start().await;
    cluster_without_extensions_has_no_status(&fixture).await;
    a_rollout_that_hangs(&fixture).await;
    unreadable_objects_are_marked(&fixture).await;
    programs(&fixture).await;
    watching(&fixture).await;
}

async fn cluster_without_extensions_has_no_status(fixture: &Fixture) {
    let ran = fixture.olm(&["status"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "The cluster has no ClusterExtensions.\n"));
    let ran = fixture.olm(&["status", "pipe"]).await;
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (4, "error: there is no ClusterExtension \"pipe\"; the cluster has no ClusterExtensions\n")
    );
    fixture.create_extension("pipe", "1.x").await;
    fixture.create_extension("valve", "2.0.0").await;
    let ran = fixture.olm(&["status", "pipes"]).await;
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (4, "error: there is no ClusterExtension \"pipes\"; existing: pipe, valve\n")
    );
    let ran = fixture.olm(&["status", "pipe"]).await;
    assert!(ran.stdout.ends_with("\nConditions: none yet\n\nThere is no revision yet.\n"), "{}", ran.stdout);
}

/// An upgrade with a Service that has a different owner. A ConfigMap has been deleted, and the Deployment of the
/// installed revision has no status.
async fn a_rollout_that_hangs(fixture: &Fixture) {
    let mut service = object("v1", "Service", "metrics");
    service["spec"] = json!({"ports": [{"port": 80}]});
    fixture.create(&service).await;
    let mut monitor = object("monitoring.coreos.com/v1", "ServiceMonitor", "metrics");
    monitor["spec"] = json!({});
    let objects = vec![
        object("v1", "ServiceAccount", "manager"),
        object("v1", "ConfigMap", "settings"),
        crd("pipes", "Pipe", &["length"]),
        deployment("manager"),
    ];
    fixture.make("pipe", 1, "0.9.0", vec![objects[0].clone()]).await;
    fixture.make("pipe", 2, "1.0.0", objects.clone()).await;
    fixture.archive("pipe-1").await;
    fixture.set_revision("pipe-2", &[DONE, "Succeeded=True/Succeeded done", FAILING]).await;
    let all = [objects, vec![service.clone(), monitor]].concat();
    fixture.make("pipe", 3, "1.1.0", all).await;
    fixture.set_revision("pipe-3", &[COLLIDING]).await;
    fixture.set_installed("pipe", "1.0.0", &[INSTALLED, FAILING, COLLIDING], &["pipe-2", "pipe-3"]).await;
    let map = object("v1", "ConfigMap", "settings");
    fixture.api(&map).delete("settings", &DeleteParams::default()).await.unwrap();

    let ran = fixture.olm(&["status", "pipe"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    compare("status.txt", &ran.stdout);
    let ran = fixture.olm(&["status", "pipe", "-o", "wide"]).await;
    compare("status-wide.txt", &ran.stdout);
    let ran = fixture.olm(&["status"]).await;
    compare("status-all.txt", &ran.stdout);
}

/// Objects that the caller may not read are marked in the output. The command succeeds.
async fn unreadable_objects_are_marked(fixture: &Fixture) {
    let olm = ["olm.operatorframework.io/clusterextensions", "olm.operatorframework.io/clusterobjectsets"];
    fixture.allow("stranger", &olm).await;
    let ran = fixture.olm_as("stranger", &["status", "pipe"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    assert!(ran.stdout.contains("│ ! cannot read its objects: Secret olmv1-system/pipe-"), "{}", ran.stdout);
    assert!(ran.stdout.contains("User \"stranger\" cannot get resource \"secrets\""), "{}", ran.stdout);

    fixture.allow("guest", &[&olm[..], &["/secrets", "/serviceaccounts", "/configmaps"]].concat()).await;
    let ran = fixture.olm_as("guest", &["status", "pipe"]).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.contains("ServiceAccount pipe-system/manager ready\n"), "{}", ran.stdout);
    let forbidden =
        "Deployment pipe-system/manager cannot be read: deployments.apps \"manager\" is forbidden: ";
    assert!(ran.stdout.contains(forbidden), "{}", ran.stdout);

    let ran = fixture.olm_as("nobody", &["status"]).await;
    assert_eq!(ran.code, 1);
    let advice = "you need the permission to list clusterextensions.olm.operatorframework.io";
    assert!(ran.stderr.contains(advice), "{}", ran.stderr);
}

async fn programs(fixture: &Fixture) {
    let ran = fixture.olm(&["status", "pipe", "-o", "json"]).await;
    let state: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(state["kind"], "ExtensionStatus");
    assert_eq!(state["health"], "Retrying");
    let states = |phase: usize| -> Vec<Value> {
        let objects = state["revisions"][0]["phases"][phase]["objects"].as_array().unwrap();
        objects.iter().map(|object| json!([object["kind"], object["state"]])).collect()
    };
    let all: Vec<Value> = (0..6).flat_map(states).collect();
    assert_eq!(
        json!(all),
        json!([
            ["ServiceAccount", "Ready"],
            ["ConfigMap", "Missing"],
            ["CustomResourceDefinition", "Ready"],
            ["Service", "Collision"],
            ["Deployment", "NotTaken"],
            ["ServiceMonitor", "NotServed"],
        ])
    );
    let ran = fixture.olm(&["status", "-o", "yaml"]).await;
    let all = olm_yaml::from_slice(ran.stdout.as_bytes()).unwrap();
    let health: Vec<Value> =
        all["extensions"].as_array().unwrap().iter().map(|one| one["health"].clone()).collect();
    assert_eq!(
        (&all["kind"], json!(health)),
        (&json!("ExtensionStatusList"), json!(["Retrying", "Pending"]))
    );
}

/// The state is printed again after each change. The command ends when the extension is deleted.
async fn watching(fixture: &Fixture) {
    let mut command = fixture.command(&["status", "valve", "--watch"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = lines_of(&mut child);
    lines.until("There is no revision yet.");
    fixture.make("valve", 1, "2.0.0", vec![object("v1", "ConfigMap", "valve"), deployment("valve")]).await;
    lines.until("Deployment pipe-system/valve not ready: missing .status.conditions");
    let deployment = object("apps/v1", "Deployment", "valve");
    fixture
        .set_status(
            &deployment,
            json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1,
                "conditions": [{"type": "Available", "status": "True"}]}),
        )
        .await;
    lines.until("Deployment pipe-system/valve ready");
    let extension = json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension",
        "metadata": {"name": "valve"}});
    fixture.api(&extension).delete("valve", &DeleteParams::default()).await.unwrap();
    let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap();
    assert_eq!(ended.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "ClusterExtension valve has been deleted\n");
}

struct Lines(std::sync::mpsc::Receiver<String>);

impl Lines {
    /// Reads until a line contains `text`.
    fn until(&self, text: &str) {
        let mut seen = Vec::new();
        loop {
            match self.0.recv_timeout(std::time::Duration::from_secs(60)) {
                Ok(line) if line.contains(text) => return,
                Ok(line) => seen.push(line),
                Err(_) => panic!("no {text:?} in\n{}", seen.join("\n")),
            }
        }
    }
}

fn lines_of(child: &mut Child) -> Lines {
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    Lines(receiver)
}
