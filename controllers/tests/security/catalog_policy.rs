//! The policy of the install files about what catalogd writes to ClusterCatalogs, evaluated by the API server.

use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use olm_api::{ClusterCatalog, annotations, finalizers, labels};
use olm_control_plane::eventually;
use serde_json::{Value, json};

use crate::fixture::documents;
use crate::policies::Cluster;

const POLICY: &str = "clustercatalog-catalogd-writes";
const BASE: &str = "https://catalogd-service.olmv1-system.svc/catalogs/hub";
const REPOSITORY: &str = "r.example:5000/team/hub";

/// User of catalogd, with its rights and the policy of an install file.
async fn catalogd(cluster: &Cluster, file: &str) -> Client {
    let all = documents(file);
    let names = ["catalogd-manager-role", "catalogd-manager-rolebinding", POLICY];
    let is_needed = |object: &&Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        object["metadata"]["namespace"].is_null() && names.contains(&name)
    };
    let needed: Vec<&Value> = all.iter().filter(is_needed).collect();
    assert_eq!(needed.len(), 4, "{file}");
    for object in &needed {
        cluster.apply(object).await;
    }
    let binding = needed.iter().find(|object| object["kind"] == "ClusterRoleBinding").unwrap();
    let subject = |field: &str| binding["subjects"][0][field].as_str().unwrap();
    cluster
        .client_of(&format!("system:serviceaccount:{}:{}", subject("namespace"), subject("name")), &[])
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn catalogd_user_changes_only_finalizer_name_label_and_status() {
    let cluster = Cluster::start().await;
    let admins: Api<ClusterCatalog> = Api::all(cluster.plane.client());
    let catalog = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
        "metadata": {"name": "hub", "labels": {"team": "a"}, "finalizers": ["example.com/held"]},
        "spec": {"source": {"type": "Image", "image": {"ref": "r.example:5000/team/hub:v1"}}},
    });
    admins.create(&PostParams::default(), &serde_json::from_value(catalog).unwrap()).await.unwrap();
    for file in ["install.yaml", "openshift.yaml"] {
        let catalogs: Api<ClusterCatalog> = Api::all(catalogd(&cluster, file).await);
        let refused = async || {
            let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
            let spec = Patch::Merge(json!({"spec": {"priority": 9}}));
            let error = catalogs.patch("hub", &dry_run, &spec).await.err()?;
            error.to_string().contains("denied request").then_some(())
        };
        eventually("the policy is active", refused).await;
        catalogd_writes_what_it_needs(&catalogs).await;
        other_writes_are_denied(&catalogs).await;
        only_the_pinned_digest_is_served(&catalogs, &admins).await;
    }
    // Others may change everything.
    let changed = json!({"metadata": {"labels": {"team": "b"}}, "spec": {"priority": 9}});
    assert_eq!(merge(&admins, &changed).await, "done");
}

/// Answer to a patch: `done`, or the error.
async fn merge(catalogs: &Api<ClusterCatalog>, patch: &Value) -> String {
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
    catalogs
        .patch("hub", &parameters, &patch)
        .await
        .map_or_else(|error| error.to_string(), |_| "done".to_owned())
}

async fn merge_status(catalogs: &Api<ClusterCatalog>, status: &Value) -> String {
    let patch = Patch::Merge(json!({"status": status}));
    let answer = catalogs.patch_status("hub", &PatchParams::default(), &patch).await;
    answer.map_or_else(|error| error.to_string(), |_| "done".to_owned())
}

/// Reference with the digest whose hexadecimal digits are all `digit`.
fn digest(repository: &str, digit: &str) -> String {
    format!("{repository}@sha256:{}", digit.repeat(64))
}

/// Status with content of this repository.
fn serving(repository: &str) -> Value {
    json!({"resolvedSource": {"type": "Image", "image": {"ref": digest(repository, "1")}}, "urls": {"base": BASE}})
}

async fn catalogd_writes_what_it_needs(catalogs: &Api<ClusterCatalog>) {
    let (finalizer, label) = (finalizers::DELETE_SERVER_CACHE, labels::METADATA_NAME);
    for (finalizers, name) in [
        (json!(["example.com/held", finalizer]), json!("hub")),
        (json!(["example.com/held"]), Value::Null),
        (json!(["example.com/held", finalizer]), json!("hub")),
    ] {
        let patch = json!({"metadata": {"finalizers": finalizers, "labels": {label: name}}});
        assert_eq!(merge(catalogs, &patch).await, "done", "{patch}");
    }
    assert_eq!(merge_status(catalogs, &serving(REPOSITORY)).await, "done");
    assert_eq!(merge_status(catalogs, &json!({"urls": null, "lastUnpacked": null})).await, "done");
    assert_eq!(merge_status(catalogs, &serving(REPOSITORY)).await, "done");
}

async fn other_writes_are_denied(catalogs: &Api<ClusterCatalog>) {
    let evil = "evil.example/hub:v1";
    for (patch, expected) in [
        (json!({"spec": {"source": {"image": {"ref": evil}}}}), "spec: catalogd may not change it"),
        (json!({"spec": {"availabilityMode": "Unavailable"}}), "spec: catalogd may not change it"),
        (json!({"metadata": {"annotations": {annotations::EXT_IMAGE_TEMPLATE: evil}}}), "metadata: "),
        (json!({"metadata": {"labels": {"team": null}}}), "metadata: "),
        (json!({"metadata": {"labels": {"other": "a"}}}), "metadata: "),
        (json!({"metadata": {"labels": {labels::METADATA_NAME: "other"}}}), "metadata.labels: "),
        (json!({"metadata": {"finalizers": [finalizers::DELETE_SERVER_CACHE]}}), "metadata: "),
        (json!({"metadata": {"finalizers": ["example.com/held", "example.com/more"]}}), "metadata: "),
    ] {
        let said = merge(catalogs, &patch).await;
        assert!(said.contains("denied request") && said.contains(expected), "{patch}: {said}");
    }
    // A follower pulls what the status names.
    for repository in
        ["evil.example/hub", "r.example:5000/team", "r.example:5000/team/hub2", "r.example:5000/team/hu"]
    {
        let said = merge_status(catalogs, &serving(repository)).await;
        assert!(
            said.contains("may serve only the repository of spec.source.image.ref"),
            "{repository}: {said}"
        );
    }
    // operator-controller reads the content at this address.
    let other = BASE.replace("hub", "other");
    for base in [&other, &format!("{other}?/catalogs/hub"), &format!("{BASE}/")] {
        let said = merge_status(catalogs, &json!({"urls": {"base": base}})).await;
        assert!(said.contains("its path must be /catalogs/ and the name of the catalog"), "{base}: {said}");
    }
}

async fn only_the_pinned_digest_is_served(catalogs: &Api<ClusterCatalog>, admins: &Api<ClusterCatalog>) {
    let pinned = |reference: &str| json!({"spec": {"source": {"image": {"ref": reference}}}});
    let serving = |digit: &str| {
        json!({"resolvedSource": {"type": "Image", "image": {"ref": digest(REPOSITORY, digit)}},
            "conditions": [], "urls": {"base": BASE}})
    };
    assert_eq!(merge(admins, &pinned(&digest(REPOSITORY, "2"))).await, "done");
    // The former content is served until the pinned one is.
    assert_eq!(merge_status(catalogs, &serving("1")).await, "done");
    let said = merge_status(catalogs, &serving("3")).await;
    assert!(said.contains("may serve only the digest of spec.source.image.ref"), "{said}");
    assert_eq!(merge_status(catalogs, &serving("2")).await, "done");
    for key in [annotations::EXT_IMAGE_TEMPLATE, annotations::CLASSIC_IMAGE_TEMPLATE] {
        let template = |value: Value| json!({"metadata": {"annotations": {key: value}}});
        assert_eq!(merge(admins, &template(json!(format!("{REPOSITORY}:v1")))).await, "done");
        assert_eq!(merge_status(catalogs, &serving("3")).await, "done");
        assert_eq!(merge_status(catalogs, &serving("2")).await, "done");
        assert_eq!(merge(admins, &template(Value::Null)).await, "done");
    }
    assert_eq!(merge(admins, &pinned(&format!("{REPOSITORY}:v1"))).await, "done");
}
