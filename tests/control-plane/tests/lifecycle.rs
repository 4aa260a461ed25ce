//! Control planes work, are independent, and leave no processes or files.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use olm_control_plane::{ControlPlane, HOUSEKEEPING, Options, eventually};
use serde_json::json;

#[tokio::test]
async fn control_planes_are_independent_and_stop_on_drop() {
    let (first, second) = tokio::join!(ControlPlane::start(), ControlPlane::start());
    let (first, second) = (first.unwrap(), second.unwrap());

    let config = ConfigMap {
        metadata: ObjectMeta { name: Some("only-in-first".into()), ..Default::default() },
        ..Default::default()
    };
    Api::default_namespaced(first.client()).create(&PostParams::default(), &config).await.unwrap();
    let in_second: Vec<ConfigMap> =
        Api::default_namespaced(second.client()).list(&Default::default()).await.unwrap().items;
    assert!(in_second.iter().all(|found| found.name_any() != "only-in-first"));

    let client = first.client();
    let kubeconfig = first.kubeconfig().to_owned();
    assert!(kubeconfig.exists());
    drop(first);
    assert!(!kubeconfig.exists());
    assert!(client.apiserver_version().await.is_err());
    second.client().apiserver_version().await.unwrap();
}

#[tokio::test]
async fn rejected_crd_returns_an_error() {
    let plane = ControlPlane::start().await.unwrap();
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "lamps.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Cluster",
            "names": {"kind": "Lamp", "plural": "candles"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    let error = plane.apply_crds(&[crd]).await.unwrap_err().to_string();
    assert!(error.contains("must be spec.names.plural+\".\"+spec.group"), "{error}");
}

#[tokio::test]
async fn garbage_collection_and_api_server_restart_work() {
    let plane = ControlPlane::start_with(Options { controllers: HOUSEKEEPING }).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(plane.client());
    let map = |name: &str, owners: Vec<OwnerReference>| ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            owner_references: Some(owners),
            ..Default::default()
        },
        ..Default::default()
    };
    let owner = maps.create(&PostParams::default(), &map("owner", Vec::new())).await.unwrap();
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        name: "owner".into(),
        uid: owner.uid().unwrap(),
        ..Default::default()
    };
    maps.create(&PostParams::default(), &map("owned", vec![owner])).await.unwrap();

    plane.kill_apiserver();
    assert!(maps.get("owner").await.is_err());
    plane.start_apiserver().await.unwrap();
    maps.get("owned").await.unwrap();

    maps.delete("owner", &DeleteParams::default()).await.unwrap();
    eventually("dependent is deleted", async || maps.get_opt("owned").await.unwrap().is_none().then_some(()))
        .await;

    let namespaces: Api<Namespace> = Api::all(plane.client());
    let namespace: Namespace =
        serde_json::from_value(serde_json::json!({"metadata": {"name": "short-lived"}})).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    namespaces.delete("short-lived", &DeleteParams::default()).await.unwrap();
    eventually("namespace is deleted", async || {
        namespaces.get_opt("short-lived").await.unwrap().is_none().then_some(())
    })
    .await;
}
