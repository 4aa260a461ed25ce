//! The files of `manifests/` on a real API server: applied by `kubectl apply` with strict validation, one over the
//! other, and over an installation of the reference.
//!
//! The CRDs of cert-manager and of the Prometheus operator are excerpts that contain only the fields in our files. No
//! controllers run here. `hack/upgrade-test --reference` adopts an installation with real pods.

// A test fails by panicking, in its helper functions too.
#![allow(clippy::unwrap_used, clippy::panic)]

extern crate olm_tokio as tokio;

mod install_grants;
mod install_script;
mod rights;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use kube::core::GroupVersionKind;
use kube::discovery::pinned_kind;
use kube::{Api, api::DynamicObject};
use olm_control_plane::{ControlPlane, Options};
use olm_manifests::{container, identity, named, objects, objects_at, of_kind, path, text};
use serde_json::{Value, json};

fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(file)
}

struct Server {
    plane: ControlPlane,
}

impl Server {
    async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    async fn start_with(options: Options) -> Self {
        let server = Self { plane: ControlPlane::start_with(options).await.unwrap() };
        let crds = ["cert-manager-crds.yaml", "monitoring-crds.yaml"];
        let crds: Vec<Value> = crds.iter().flat_map(|file| objects_at(&data(file))).collect();
        server.plane.apply_crds(&crds).await.unwrap();
        for namespace in ["cert-manager", "openshift-config", "openshift-monitoring"] {
            server.kubectl(&["create", "namespace", namespace], "");
        }
        server
    }

    /// Standard output of kubectl. Fails on an error or a warning.
    fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        let mut kubectl = (self.plane.kubectl().unwrap())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        kubectl.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = kubectl.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "kubectl {arguments:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn apply(&self, file: &Path, options: &[&str]) -> String {
        let option = if file.is_dir() { "-k" } else { "-f" };
        let arguments = [&["apply", "--validate=strict", option, file.to_str().unwrap()], options].concat();
        self.kubectl(&arguments, "")
    }

    async fn get(&self, object: &Value) -> Value {
        let version = text(object, "/apiVersion");
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let kind = GroupVersionKind::gvk(group, version, text(object, "/kind"));
        let client = self.plane.client();
        let (resource, _) = pinned_kind(&client, &kind).await.unwrap();
        let api: Api<DynamicObject> = match text(object, "/metadata/namespace") {
            "" => Api::all_with(client, &resource),
            namespace => Api::namespaced_with(client, namespace, &resource),
        };
        serde_json::to_value(api.get(text(object, "/metadata/name")).await.unwrap()).unwrap()
    }

    /// Checks that the pods of the file's Deployments are admitted.
    fn admits_pods(&self, file: &str) {
        for deployment in of_kind(&objects(file), "Deployment") {
            let template = &deployment["spec"]["template"];
            let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
            pod["metadata"]["name"] = json!("one-of-them");
            pod["metadata"]["namespace"] = deployment["metadata"]["namespace"].clone();
            self.kubectl(&["create", "--dry-run=server", "--validate=strict", "-f", "-"], &pod.to_string());
        }
    }
}

const SERVER_SIDE: &[&str] = &["--server-side", "--force-conflicts"];

// Case operations-a1
#[tokio::test(flavor = "multi_thread")]
async fn every_variant_is_valid_and_can_replace_every_other() {
    let server = Server::start().await;
    let variants = [
        "install.yaml",
        "hardened.yaml",
        "install-cert-manager.yaml",
        "experimental.yaml",
        "hardened.yaml",
        "install.yaml",
        "experimental.yaml",
        "install.yaml",
        "openshift.yaml",
    ];
    for variant in variants {
        server.apply(&path(variant), SERVER_SIDE);
        server.admits_pods(variant);
        // No volume of a previous variant remains.
        for deployment in of_kind(&objects(variant), "Deployment") {
            let stored = server.get(deployment).await;
            let count =
                |object: &Value| object["spec"]["template"]["spec"]["volumes"].as_array().unwrap().len();
            assert_eq!(count(&stored), count(deployment), "{variant}: {}", identity(deployment));
            assert_eq!(container(&stored)["args"], container(deployment)["args"], "{variant}");
        }
        let admin = "operator-controller-cluster-admin-rolebinding";
        let binding = server.get(named(&objects(variant), "ClusterRoleBinding", admin)).await;
        assert_eq!(binding.get("subjects").is_some(), variant != "hardened.yaml", "{variant}: {binding}");
        if variant == "install.yaml" {
            assert!(
                server
                    .apply(&path(variant), SERVER_SIDE)
                    .lines()
                    .all(|line| line.ends_with("serverside-applied"))
            );
        }
    }
    // No catalogd runs to answer the webhook.
    server
        .kubectl(&["delete", "mutatingwebhookconfiguration", "catalogd-mutating-webhook-configuration"], "");
    for addition in olm_manifests::ADDITIONS {
        server.apply(&path(addition), SERVER_SIDE);
        server.admits_pods(addition);
    }
}

// docs/design/operations.md#multiple-installations(1, 3): names, selectors and immutable references are those of the
// reference.
#[tokio::test(flavor = "multi_thread")]
async fn installation_of_the_reference_is_adopted() {
    for (before, after) in [(&[][..], &[][..]), (&[], SERVER_SIDE), (SERVER_SIDE, SERVER_SIDE)] {
        let server = Server::start().await;
        let reference = objects_at(&data("reference-installation.yaml"));
        // The reference has the same CRDs.
        server.apply(&path("crds"), before);
        server.apply(&data("reference-installation.yaml"), before);
        // Client-side or server-side apply, with the same field manager for both.
        server.apply(&path("install.yaml"), after);
        let ours = objects("install.yaml");
        for object in &ours {
            let stored = server.get(object).await;
            let was = reference.iter().find(|old| identity(old) == identity(object));
            match text(object, "/kind") {
                "Deployment" => {
                    assert!(was.is_some());
                    assert_eq!(container(&stored)["args"], container(object)["args"]);
                    let pod = |object: &Value| object["spec"]["template"]["spec"].clone();
                    let names = |list: &Value| -> Vec<String> {
                        list.as_array().unwrap().iter().map(|item| text(item, "/name").to_owned()).collect()
                    };
                    assert_eq!(
                        names(&pod(&stored)["volumes"]),
                        names(&pod(object)["volumes"]),
                        "{before:?} {after:?}"
                    );
                    assert_eq!(pod(&stored)["nodeSelector"], pod(object)["nodeSelector"]);
                }
                "PodDisruptionBudget" => assert!(stored["spec"].get("minAvailable").is_none(), "{stored}"),
                // Otherwise cert-manager would continue to write the CA bundle, which OLM writes now.
                "MutatingWebhookConfiguration" => {
                    assert!(
                        !stored["metadata"]["annotations"].to_string().contains("cert-manager.io"),
                        "{stored}"
                    );
                }
                "ClusterRoleBinding" | "RoleBinding" => assert_eq!(stored["roleRef"], object["roleRef"]),
                _ => {}
            }
        }
        let ours: Vec<String> = ours.iter().map(identity).collect();
        let left: Vec<String> = reference.iter().map(identity).filter(|name| !ours.contains(name)).collect();
        assert_eq!(
            left,
            [
                "Issuer cert-manager/self-sign-issuer",
                "Certificate cert-manager/olmv1-ca",
                "ClusterIssuer olmv1-ca",
                "Certificate olmv1-system/catalogd-service-cert",
                "Certificate olmv1-system/operator-controller-cert"
            ],
            "remaining objects of the reference"
        );
        server.apply(&path("experimental.yaml"), after);
    }
}
