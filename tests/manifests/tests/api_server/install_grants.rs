//! What `manifests/install.sh --variant hardened` grants for existing extensions, and the exceptions that it keeps.

use olm_manifests::path;
use serde_json::{Value, json};

use super::install_script::Script;
use super::{SERVER_SIDE, Server};

const BINDING: &str = "operator-controller-content";
const EXCEPTIONS: &str = "operator-controller-exceptions";

fn create(server: &Server, object: &Value) {
    server.kubectl(&["create", "-f", "-"], &object.to_string());
}

fn create_extension(server: &Server, name: &str, namespace: &str, inline: &Value) {
    let source = json!({"sourceType": "Catalog", "catalog": {"packageName": name}});
    let config = json!({"configType": "Inline", "inline": inline});
    create(
        server,
        &json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name},
            "spec": {"namespace": namespace, "source": source, "config": config}}),
    );
}

/// Namespaces with the RoleBinding.
fn granted(server: &Server) -> String {
    let selector = format!("metadata.name={BINDING}");
    let namespaces = "jsonpath={.items[*].metadata.namespace}";
    server.kubectl(&["get", "rolebindings", "-A", "--field-selector", &selector, "-o", namespaces], "")
}

// docs/design/operations.md#hardened-rights
#[tokio::test(flavor = "multi_thread")]
async fn hardened_variant_grants_the_namespaces_of_extensions_before_it_takes_rights_away() {
    let server = Server::start().await;
    let script = Script::of(&server);
    server.apply(&path("crds"), SERVER_SIDE);
    for name in ["also", "apps", "other", "watched"] {
        server.kubectl(&["create", "namespace", name], "");
    }
    create_extension(
        &server,
        "lamp",
        "apps",
        &json!({"watchNamespaces": ["watched", "kube-system", "*", "-A"]}),
    );
    create_extension(&server, "pipe", "also", &json!({"watchNamespace": "missing"}));
    create_extension(&server, "tide", "olmv1-system", &json!({"watchNamespace": "kube-public"}));
    let timeout = [("SERVER_WAIT_TIMEOUT", "1s")];
    script.run(&[], &timeout).failed();
    assert_eq!(granted(&server), "", "with install.yaml");

    let run = script.run(&["--variant", "hardened"], &timeout);
    assert_eq!(granted(&server), "also apps watched", "{run:?}");
    let position = |text: &str| run.printed.find(text).unwrap();
    let line = format!("rolebinding.rbac.authorization.k8s.io/{BINDING} serverside-applied");
    assert_eq!(run.printed.matches(&line).count(), 3, "{run:?}");
    assert!(
        run.printed.rfind(&line).unwrap() < position("namespace/olmv1-system serverside-applied"),
        "{run:?}"
    );
    let warnings: Vec<&str> = run.said.lines().filter(|line| line.starts_with("warning: ")).collect();
    assert_eq!(warnings, ["warning: no grant in namespace missing"], "{run:?}");
    let stored = server.kubectl(&["--namespace", "watched", "get", "rolebinding", BINDING, "-o", "json"], "");
    let stored: Value = serde_json::from_str(&stored).unwrap();
    let account = "operator-controller-controller-manager";
    assert_eq!(
        (&stored["roleRef"]["kind"], &stored["roleRef"]["name"], &stored["subjects"]),
        (
            &json!("ClusterRole"),
            &json!("operator-controller-content-namespaced"),
            &json!([{"kind": "ServiceAccount", "name": account, "namespace": "olmv1-system"}])
        )
    );
    // An administrator may take a grant away.
    server.kubectl(&["--namespace", "watched", "delete", "rolebinding", BINDING], "");
    script.run(&["--variant", "hardened"], &timeout).failed();
    assert_eq!(granted(&server), "also apps");
}

// docs/design/operations.md#hardened-rights
#[tokio::test(flavor = "multi_thread")]
async fn exceptions_of_an_administrator_are_kept_when_the_file_is_applied_again() {
    let server = Server::start().await;
    let script = Script::of(&server);
    let timeout = [("SERVER_WAIT_TIMEOUT", "1s")];
    script.run(&["--variant", "hardened"], &timeout).failed();
    // As docs/tasks/rights.md writes them.
    for data in [json!({"webhooks": "mine,others"}), json!({"namespaces": "kube-green"})] {
        let patch = json!({ "data": data }).to_string();
        let system = ["--namespace", "olmv1-system", "patch", "configmap", EXCEPTIONS];
        server.kubectl(&[&system[..], &["--type", "merge", "-p", &patch]].concat(), "");
    }
    script.run(&["--variant", "hardened"], &timeout).failed();
    server.apply(&path("hardened.yaml"), SERVER_SIDE);
    let data = ["--namespace", "olmv1-system", "get", "configmap", EXCEPTIONS, "-o", "jsonpath={.data}"];
    let data: Value = serde_json::from_str(&server.kubectl(&data, "")).unwrap();
    assert_eq!(data, json!({"namespaces": "kube-green", "webhooks": "mine,others"}));
}
