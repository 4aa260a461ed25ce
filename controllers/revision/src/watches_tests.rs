//! Watches on a real API server.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::DeleteParams;
use olm_control_plane::{ControlPlane, Options, eventually};
use serde_json::json;

use super::*;

// docs/design/apply.md#watches
#[test]
fn object_without_owner_and_annotation_requeues_revisions_of_its_extension() {
    let users = ["demo-1", "demo-2", "demo-1-1", "other-1"].map(str::to_owned).into();
    let owner = |name: &str| json!([{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "name": name, "uid": "u"}]);
    let marked = |number: &str| json!({"olm.operatorframework.io/revision": number});
    for (label, owners, annotations, expected) in [
        ("demo", owner("demo-1"), json!({}), &["demo-1"][..]),
        ("demo", owner("demo-1"), marked("2"), &["demo-1", "demo-2"]),
        ("demo", owner("demo-3"), json!({}), &["demo-3"]),
        ("demo", json!([]), marked("2"), &["demo-2"]),
        ("demo", json!([]), json!({}), &["demo-1", "demo-2"]),
        ("demo", json!([]), marked("9"), &["demo-1", "demo-2", "demo-9"]),
        ("demo-1", json!([]), json!({}), &["demo-1-1"]),
        ("gone", json!([]), json!({}), &[]),
    ] {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "annotations": annotations,
            "ownerReferences": owners, "labels": {"olm.operatorframework.io/owner-name": label}}});
        let mut names = owning_revisions(&serde_json::from_value(object).unwrap(), &users);
        names.sort();
        assert_eq!(names, expected, "{label} {owners} {annotations}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_end_when_last_revision_releases_them() {
    let plane = ControlPlane::reused(Options::default(), &[]).await.unwrap();
    let client = plane.client();
    let cluster = KubeCluster::new(client.clone());
    let (watches, mut changed) = Watches::new(client.clone(), cluster, Arc::default());
    let kind = |group: &str, version: &str, kind: &str| GroupVersionKind::gvk(group, version, kind);
    let kinds = [kind("", "v1", "ConfigMap"), kind("apps", "v1", "Deployment")];
    watches.watch("a-1", &kinds, false).await.unwrap();
    watches.watch("b-1", &kinds[..1], true).await.unwrap();
    assert_eq!(watches.kinds(), ["ConfigMap", "Deployment"]);
    // Kinds that the revision no longer needs.
    watches.watch("a-1", &kinds[..1], true).await.unwrap();
    assert_eq!(watches.kinds(), ["ConfigMap"]);
    watches.release("a-1");
    assert_eq!(watches.kinds(), ["ConfigMap"]);
    watches.release("b-1");
    assert_eq!(watches.kinds(), [""; 0]);
    // A kind that is not served is skipped. The end of a watch requeues the revisions that use it.
    watches.watch("c-1", &[kind("acme.example", "v1", "Nothing")], true).await.unwrap();
    assert_eq!(watches.kinds(), [""; 0]);
    let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "briefs.acme.example"},
        "spec": {"group": "acme.example", "scope": "Namespaced", "names": {"plural": "briefs", "kind": "Brief"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    plane.apply_crds(&[crd]).await.unwrap();
    let brief = [kind("acme.example", "v1", "Brief")];
    eventually("the kind is served", async || {
        watches.watch("d-1", &brief, true).await.unwrap();
        (watches.kinds() == ["Brief"]).then_some(())
    })
    .await;
    while changed.try_recv().is_ok() {}
    let crds: Api<CustomResourceDefinition> = Api::all(client);
    crds.delete("briefs.acme.example", &DeleteParams::default()).await.unwrap();
    assert_eq!(changed.recv().await.unwrap().name, "d-1");
}
