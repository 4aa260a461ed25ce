//! `olm system` with the real binary on a real API server. No pods run: the tests write the status of Deployments.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use olm_control_plane::{ControlPlane, HOUSEKEEPING, Options, eventually};
use serde_json::{Value, json};

use crate::fixture::{Ran, olm_in};

const SYSTEM: &str = "olmv1-system";
const SERVERS: [&str; 2] = ["catalogd-controller-manager", "operator-controller-controller-manager"];

struct Lab {
    plane: ControlPlane,
    folder: tempfile::TempDir,
}

impl Lab {
    async fn start() -> Self {
        let plane = ControlPlane::start_with(Options { controllers: HOUSEKEEPING }).await.unwrap();
        Self { plane, folder: tempfile::tempdir().unwrap() }
    }

    /// `install.yaml` with images of a version on loopback, without the webhook, which no catalogd answers.
    fn file(&self, version: &str, edit: impl FnOnce(String) -> String) -> PathBuf {
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/install.yaml");
        let text = std::fs::read_to_string(manifests).unwrap();
        let is_kept = |document: &&str| !document.contains("\nkind: MutatingWebhookConfiguration\n");
        let kept: Vec<&str> = text.split("\n---\n").filter(is_kept).collect();
        let text = kept.join("\n---\n").replace("olm.example/", "127.0.0.1:9/");
        let file = self.folder.path().join(format!("{version}.yaml"));
        std::fs::write(&file, edit(text.replace(":devel", &format!(":{version}")))).unwrap();
        file
    }

    async fn olm(&self, args: &[&str]) -> Ran {
        let mut command = olm_in(self.folder.path(), args);
        command.arg("--kubeconfig").arg(self.plane.kubeconfig());
        tokio::task::spawn_blocking(move || Ran::from(command.output().unwrap())).await.unwrap()
    }

    fn kubectl(&self, args: &[&str], input: &str) -> String {
        let mut kubectl = self.plane.kubectl().unwrap();
        let mut running = kubectl
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        running.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = running.wait_with_output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn exists(&self, object: &[&str]) -> bool {
        let get = [&["get"], object, &["--ignore-not-found", "-o", "name", "-n", SYSTEM]].concat();
        !self.kubectl(&get, "").is_empty()
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.plane.client(), SYSTEM)
    }

    /// Writes the status of available servers of any generation, once the Deployments exist.
    async fn set_available(&self, is_updated: bool) {
        let available = json!({"type": "Available", "status": "True", "reason": "Test", "message": ""});
        let status = json!({"status": {"replicas": 1, "updatedReplicas": u8::from(is_updated), "readyReplicas": 1,
            "availableReplicas": 1, "conditions": [available]}});
        for name in SERVERS {
            let api = self.deployments();
            eventually(name, async || api.get_opt(name).await.ok().flatten()).await;
            api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
        }
    }

    async fn image(&self) -> String {
        let found = serde_json::to_value(self.deployments().get(SERVERS[0]).await.unwrap()).unwrap();
        found["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
    }

    /// Pod of catalogd whose image cannot be pulled.
    async fn create_pod(&self) {
        let api: Api<Pod> = Api::namespaced(self.plane.client(), SYSTEM);
        let context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
        let pod = json!({"metadata": {"name": "new", "labels": {"control-plane": SERVERS[0]}},
            "spec": {"containers": [{"name": "manager", "image": "127.0.0.1:9/a:v1", "securityContext": context}],
                "automountServiceAccountToken": false}});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        self.kubectl(&["create", "serviceaccount", "default", "-n", SYSTEM], "");
        api.create(&PostParams::default(), &pod).await.unwrap();
        let waiting = json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
        let status = json!({"status": {"phase": "Pending", "containerStatuses": [{"name": "manager", "image": "i",
            "imageID": "", "ready": false, "restartCount": 0, "state": waiting}]}});
        api.patch_status("new", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }
}

// docs/design/operations.md#olm-system
#[tokio::test(flavor = "multi_thread")]
async fn servers_are_installed_upgraded_rolled_back_and_uninstalled() {
    let lab = Lab::start().await;
    let ran = lab.olm(&["system", "status"]).await;
    assert_eq!(ran.code, 4, "{ran:?}");
    install(&lab).await;
    upgrade_deletes_dropped_objects(&lab).await;
    failed_upgrade_is_undone(&lab).await;
    refused_upgrade_is_undone(&lab).await;
    uninstall(&lab).await;
}

async fn install(lab: &Lab) {
    let file = lab.file("v0.1.0", |text| text);
    let path = file.to_str().unwrap();
    let ran = lab.olm(&["system", "install", "--file", path, "--dry-run"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        ran.stdout.contains("deployment.apps/catalogd-controller-manager created (dry run)\n"),
        "{ran:?}"
    );
    assert!(!lab.exists(&["namespace", SYSTEM]));
    let ran = lab.olm(&["system", "install"]).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("this program is not a release"), "{ran:?}");
    let args = ["system", "install", "--file", path];
    let ran = lab.olm(&[&args[..], &["--variant", "hardened"]].concat()).await;
    assert_eq!(ran.code, 2, "{ran:?}");
    let (ran, ()) = tokio::join!(lab.olm(&args), lab.set_available(true));
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.starts_with("installed OLM v0.1.0 in namespace olmv1-system: "), "{ran:?}");
    assert!(ran.stdout.ends_with(" objects created, 0 changed; the servers are ready\n"), "{ran:?}");
    for line in ["ok       permissions: cluster-admin\n", "warning  image: 127.0.0.1:9/catalogd:v0.1.0 "] {
        assert!(ran.stderr.contains(line), "{line}: {}", ran.stderr);
    }
    let again = lab.olm(&args).await;
    assert!(again.stdout.contains(": 0 objects created, 0 changed;"), "{again:?}");
    let status = lab.olm(&["system", "status", "-o", "json"]).await;
    assert_eq!(status.code, 3, "no pods: {status:?}");
    let status: Value = serde_json::from_str(&status.stdout).unwrap();
    assert_eq!(status["version"], "v0.1.0");
    assert_eq!(status["components"][0]["healthy"], true, "{status}");
    let text = lab.olm(&["system", "status"]).await.stdout;
    assert!(text.contains("SERVER-1: "), "{text}");
}

async fn upgrade_deletes_dropped_objects(lab: &Lab) {
    let budget = ["poddisruptionbudget", SERVERS[0]];
    let file = lab.file("v0.2.0", |text| {
        let is_kept = |one: &&str| {
            !(one.contains("kind: PodDisruptionBudget")
                && one.contains(&format!("\n  name: {}\n", SERVERS[0])))
        };
        text.split("\n---\n").filter(is_kept).collect::<Vec<_>>().join("\n---\n")
    });
    let args = ["system", "upgrade", "--file", file.to_str().unwrap()];
    let ran = lab.olm(&[&args[..], &["--dry-run"]].concat()).await;
    for line in [
        "deployment.apps/catalogd-controller-manager changed",
        "poddisruptionbudget.policy/catalogd-controller-manager deleted",
    ] {
        assert!(ran.stdout.contains(&format!("{line} (dry run)\n")), "{ran:?}");
    }
    let ran = lab.olm(&[&args[..], &["--dry-run", "-o", "json"]].concat()).await;
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&report["kind"], &report["from"]), (&json!("SystemChange"), &json!("v0.1.0")), "{report}");
    let objects = report["objects"].as_array().unwrap();
    let is_dropped = |one: &Value| one["kind"] == "PodDisruptionBudget" && one["result"] == "deleted";
    assert!(objects.iter().any(is_dropped), "{report}");
    assert!(lab.exists(&budget));
    let ran = lab.olm(&args).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("installation: v0.1.0 will be replaced by v0.2.0\n"), "{ran:?}");
    assert!(!lab.exists(&budget));
    assert_eq!(lab.image().await, "127.0.0.1:9/catalogd:v0.2.0");
    let older = lab.folder.path().join("v0.1.0.yaml");
    let ran = lab.olm(&["system", "upgrade", "--file", older.to_str().unwrap()]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.stderr.contains("v0.2.0 will be replaced by v0.1.0, which is older; --allow-downgrade"),
        "{ran:?}"
    );
}

const NEW: &str =
    "\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: new, namespace: olmv1-system}}\n";

async fn failed_upgrade_is_undone(lab: &Lab) {
    let file = lab.file("v0.3.0", |text| text + NEW);
    lab.create_pod().await;
    lab.set_available(false).await;
    let ran = lab.olm(&["system", "upgrade", "--timeout", "2s", "--file", file.to_str().unwrap()]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    let why = "Pod olmv1-system/new is not ready: waiting: ImagePullBackOff: no such image";
    assert!(ran.stderr.contains("error: the upgrade to v0.3.0 failed: timed out after 2s"), "{}", ran.stderr);
    assert!(ran.stderr.contains(why), "{}", ran.stderr);
    assert!(ran.stderr.contains("configmap/new deleted\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("deployment.apps/catalogd-controller-manager restored\n"), "{}", ran.stderr);
    assert!(!lab.exists(&["configmap", "new"]));
    let record = lab.kubectl(&["get", "configmap", "olm-installation", "-n", SYSTEM, "-o", "yaml"], "");
    assert!(record.contains("kind: Deployment") && !record.contains("name: new"), "{record}");
    assert_eq!(lab.image().await, "127.0.0.1:9/catalogd:v0.2.0");
}

async fn refused_upgrade_is_undone(lab: &Lab) {
    let refused =
        "\n---\n{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: x, namespace: olmv1-system}}\n";
    let file = lab.file("v0.4.0", |text| text + NEW + refused);
    lab.set_available(true).await;
    let ran = lab.olm(&["system", "upgrade", "--file", file.to_str().unwrap()]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("the upgrade to v0.4.0 failed: cannot apply ReplicaSet"), "{}", ran.stderr);
    assert!(ran.stderr.contains("the previous state is restored ("), "{}", ran.stderr);
    assert!(!lab.exists(&["configmap", "new"]));
    // The next upgrade removes the fields that the restored objects have in addition.
    let file = lab.folder.path().join("v0.3.0.yaml");
    let ran = lab.olm(&["system", "upgrade", "--file", file.to_str().unwrap()]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(lab.image().await, "127.0.0.1:9/catalogd:v0.3.0");
}

const EXTENSION: &str = "{\"apiVersion\": \"olm.operatorframework.io/v1\", \"kind\": \"ClusterExtension\", \"metadata\": \
    {\"name\": \"pipe\"}, \"spec\": {\"namespace\": \"default\", \"source\": {\"sourceType\": \"Catalog\", \"catalog\": \
    {\"packageName\": \"pipe\"}}}}";

/// First Secret of the backup of a migration.
const BACKUP: &str = "{apiVersion: v1, kind: Secret, metadata: {name: olm-migrate-ns.lamp, namespace: olmv1-system, \
    labels: {ext.olm.operatorframework.io/migration: lamp, ext.olm.operatorframework.io/migration-namespace: ns}, \
    annotations: {ext.olm.operatorframework.io/migration-digest: 'sha256:0'}}}";

async fn uninstall(lab: &Lab) {
    lab.kubectl(&["create", "-f", "-"], EXTENSION);
    let extension = "delete clusterextension.olm.operatorframework.io/pipe, with its objects, CRDs and custom resources\n";
    let ran = lab.olm(&["system", "uninstall", "--yes"]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stdout.starts_with(extension), "{ran:?}");
    let crd = ["crd", "clusterextensions.olm.operatorframework.io"];
    assert!(ran.stdout.contains("keep   customresourcedefinition.apiextensions.k8s.io/"), "{ran:?}");
    let ran = lab.olm(&["system", "uninstall", "--purge"]).await;
    assert_eq!(ran.code, 2, "it asks: {ran:?}");
    let ran = lab.olm(&["system", "uninstall", "--purge", "--dry-run"]).await;
    assert!(ran.stdout.contains("delete namespace/olmv1-system, with everything in it\n"), "{ran:?}");
    assert!(lab.exists(&crd));
    lab.kubectl(&["delete", "clusterextension", "pipe"], "");
    // The permissions of the installation in olmv1-system are those of the cluster.
    let ran = lab.olm(&["system", "uninstall", "--yes", "-n", "other"]).await;
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.stderr.contains("OLM is installed in another namespace: olmv1-system/"), "{ran:?}");
    lab.kubectl(&["create", "-f", "-"], BACKUP);
    let ran = lab.olm(&["system", "uninstall", "--purge", "--yes"]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(
        ran.stderr.contains("unfinished migration would be deleted: ns/lamp; finish the migration first: "),
        "{ran:?}"
    );
    let complete = "ext.olm.operatorframework.io/migration-complete=true";
    lab.kubectl(&["annotate", "secret", "olm-migrate-ns.lamp", complete, "-n", SYSTEM], "");
    let ran = lab.olm(&["system", "uninstall", "--yes"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("delete backup of the migration of ns/lamp\n"), "{ran:?}");
    assert!(lab.exists(&crd) && !lab.exists(&["namespace", SYSTEM]));
    lab.kubectl(&["create", "-f", "-"], EXTENSION);
    let ran = lab.olm(&["system", "uninstall", "--purge", "--yes"]).await;
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stderr.contains("no installed server can remove their finalizers"), "{ran:?}");
    lab.kubectl(&["delete", "clusterextension", "pipe"], "");
    let ran = lab.olm(&["system", "uninstall", "--purge", "--yes"]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.ends_with("OLM is uninstalled\n"), "{ran:?}");
    assert!(!lab.exists(&crd));
    assert_eq!(lab.olm(&["system", "uninstall", "--purge", "--yes"]).await.code, 4);
}

// An installation by `kubectl apply`, from which a later version removes fields.
#[tokio::test(flavor = "multi_thread")]
async fn installation_of_kubectl_apply_is_upgraded() {
    let lab = Lab::start().await;
    let old = lab.file("v0.1.0", |text| {
        text.replace("        - --leader-elect\n", "        - --leader-elect\n        - --old-flag\n")
    });
    let is_small = |document: &&str| !document.contains("\nkind: CustomResourceDefinition\n");
    let text = std::fs::read_to_string(&old).unwrap();
    let small: Vec<&str> = text.split("\n---\n").filter(is_small).collect();
    lab.kubectl(&["apply", "-f", "-"], &small.join("\n---\n"));
    for command in ["install", "upgrade"] {
        let ran = lab.olm(&["system", command]).await;
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("the variant of the installed servers is unknown"), "{ran:?}");
    }
    let new = lab.file("v0.2.0", |text| text);
    let ran = lab.olm(&["system", "upgrade", "--no-wait", "--file", new.to_str().unwrap()]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let deployment = serde_json::to_value(lab.deployments().get(SERVERS[0]).await.unwrap()).unwrap();
    assert!(!deployment["spec"].to_string().contains("--old-flag"), "{deployment}");
    let annotations = &deployment["metadata"]["annotations"];
    assert!(annotations.get("kubectl.kubernetes.io/last-applied-configuration").is_none(), "{annotations}");
    let managers = deployment["metadata"]["managedFields"].as_array().unwrap();
    assert!(managers.iter().all(|entry| entry["manager"] == "olmv1-install"), "{managers:?}");
}
