//! Control planes work, are independent, and leave no processes or files.

// A test fails by panicking.
#![allow(clippy::unwrap_used)]

extern crate olm_tokio as tokio;

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ObjectMeta, Patch, PatchParams, PostParams,
};
use kube::{Api, Client, ResourceExt};
use olm_control_plane::{ControlPlane, HOUSEKEEPING, Options, eventually};
use olm_require::skippable;
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

#[test]
fn reused_control_plane_has_initial_content() {
    skippable(reuse);
}

fn reuse() {
    let reused = || ControlPlane::reused(Options::default(), &[]);
    let kubeconfig = in_runtime(async {
        let plane = reused().await.unwrap();
        use_lamps(&plane.client()).await;
        plane.kubeconfig().to_owned()
    });
    in_runtime(async {
        let (second, other) = (reused().await.unwrap(), reused().await.unwrap());
        assert_eq!(second.kubeconfig(), kubeconfig);
        assert_ne!(other.kubeconfig(), kubeconfig);
        let groups = second.client().list_api_groups().await.unwrap().groups;
        assert!(groups.iter().all(|group| group.name != "example.org"), "{groups:?}");
        use_lamps(&second.client()).await;
        // A webhook affects requests for a while after its deletion.
        let webhook = serde_json::from_value(json!({"metadata": {"name": "lamps"}})).unwrap();
        let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(second.client());
        webhooks.create(&PostParams::default(), &webhook).await.unwrap();
    });
    in_runtime(async {
        for _ in 0..2 {
            assert_ne!(reused().await.unwrap().kubeconfig(), kubeconfig);
        }
    });
    assert!(!kubeconfig.exists());
}

/// Runs a test in a runtime of its own.
fn in_runtime<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(test)
}

/// Creates and changes objects. Fails unless the control plane has its initial content.
async fn use_lamps(client: &Client) {
    let roles: Api<ClusterRole> = Api::all(client.clone());
    assert!(!roles.get("view").await.unwrap().labels().contains_key("lamps"));
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "lamps.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"kind": "Lamp", "plural": "lamps"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    olm_control_plane::apply_crds(client, &[crd]).await.unwrap();
    let namespace = serde_json::from_value(json!({"metadata": {"name": "lamps"}})).unwrap();
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let kind = GroupVersionKind::gvk("example.org", "v1", "Lamp");
    let lamps: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), "lamps", &ApiResource::from_gvk(&kind));
    let lamp = DynamicObject::new("a", &ApiResource::from_gvk(&kind));
    eventually("lamps are served", async || lamps.create(&PostParams::default(), &lamp).await.ok()).await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"lamps": "yes"}}}));
    roles.patch("view", &PatchParams::default(), &label).await.unwrap();
    let lease = serde_json::from_value(json!({"metadata": {"name": "lamps"}})).unwrap();
    Api::<Lease>::default_namespaced(client.clone()).create(&PostParams::default(), &lease).await.unwrap();
}
