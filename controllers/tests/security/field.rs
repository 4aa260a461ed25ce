//! Rights that real bundles need, compared with the checks of a real API server. `OLM_FIELD_DATA` names the folder of
//! the bundles.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use futures::{StreamExt, stream};
use http::HeaderValue;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};
use olm_bundle::rights::{Rights, Scoped};
use olm_control_plane::{ControlPlane, eventually};
use olm_revision::cluster::Cluster;
use olm_revision::kube_cluster::KubeCluster;
use serde_json::{Value, json};

use crate::impersonation::{create, grant, of};

/// Number of bundles tested concurrently.
const AT_ONCE: usize = 4;

// Case operations-a53
#[tokio::test(flavor = "multi_thread")]
async fn computed_rights_suffice_for_field_bundles() {
    let Some(root) = olm_require::field_data() else { return };
    let plane = ControlPlane::start().await.unwrap();
    let folders = root.join("bundles").read_dir().unwrap();
    let mut folders: Vec<PathBuf> = folders.map(|entry| entry.unwrap().path()).collect();
    folders.retain(|folder| folder.join("expected.jsonl").exists());
    folders.sort();
    let works: Vec<_> = folders
        .iter()
        .enumerate()
        .map(|(number, folder)| try_bundle(plane.client(), number, folder))
        .collect();
    let tried: Vec<usize> = stream::iter(works).buffer_unordered(AT_ONCE).collect().await;
    assert!(!tried.is_empty());
    let objects: usize = tried.iter().sum();
    let _ =
        writeln!(std::io::stdout(), "rights for field bundles: {} bundles, {objects} objects", tried.len());
}

/// Tries to apply the objects of a bundle without rights, then with the computed ones. Returns their number.
async fn try_bundle(client: Client, number: usize, folder: &Path) -> usize {
    let text = std::fs::read_to_string(folder.join("expected.jsonl")).unwrap();
    let objects: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let namespaces: BTreeSet<&str> =
        objects.iter().filter_map(|object| object["metadata"]["namespace"].as_str()).collect();
    for namespace in namespaces {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        // Several bundles may use the same namespace.
        let _ = Api::all(client.clone()).create(&PostParams::default(), &namespace).await;
    }
    let account = format!("installer-{number}");
    create(of::<ServiceAccount>(&client, "default"), json!({"metadata": {"name": account}})).await;
    let cluster = KubeCluster::new(client.clone());
    let user = format!("system:serviceaccount:default:{account}");
    let cluster = cluster.acting_as(HeaderValue::from_str(&user).unwrap());
    let refused = async || {
        let mut refused = Vec::new();
        for object in &objects {
            // Missing CRDs and objects without an apiVersion are not RBAC errors.
            if let Err(error) = cluster.apply(object, true).await
                && error.message.contains("forbidden")
            {
                refused.push(error.message);
            }
        }
        refused
    };
    let rights = Rights::of(&objects);
    assert!(!refused().await.is_empty(), "{}", folder.display());
    let exact: Scoped = rights.exact();
    grant(&client, "default", &account, &exact).await;
    eventually(&format!("{} can be applied", folder.display()), async || {
        refused().await.is_empty().then_some(objects.len())
    })
    .await
}
