//! Reserved API groups with the sample policy (docs/design/operations.md#reserved-api-groups).

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use olm_control_plane::eventually;
use serde_json::{Value, json};

use crate::fixture::documents;
use crate::policies::Cluster;

const RESERVED: &str = "reserved.example.com";
const REASON: &str =
    "spec.group: reserved.example.com is reserved for extension:lamp,group:platform,user:root";
const INSTALLER: &str = "system:serviceaccount:olmv1-system:operator-controller-controller-manager";

type Crds = Api<CustomResourceDefinition>;

/// CRD of kind `kind` with the owner label of `extension`.
fn crd(group: &str, kind: &str, extension: Option<&str>) -> Value {
    let plural = format!("{kind}s");
    let mut object = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}}]},
    });
    if let Some(extension) = extension {
        object["metadata"]["labels"] = json!({"olm.operatorframework.io/owner-kind": "ClusterExtension",
            "olm.operatorframework.io/owner-name": extension});
    }
    object
}

/// `done`, or the error message.
fn said(answer: Result<CustomResourceDefinition, kube::Error>) -> String {
    match answer {
        Ok(_) => "done".to_owned(),
        Err(kube::Error::Api(status)) => status.message.clone(),
        Err(error) => panic!("{error}"),
    }
}

async fn create(api: &Crds, object: &Value, dry_run: bool) -> String {
    let params = PostParams { dry_run, ..PostParams::default() };
    said(api.create(&params, &serde_json::from_value(object.clone()).unwrap()).await)
}

async fn patch(api: &Crds, kind: &str, patch: Value) -> String {
    let name = format!("{kind}s.{RESERVED}");
    said(api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await)
}

/// Cluster with the policy, in which every user may write CRDs.
async fn start() -> Cluster {
    let cluster = Cluster::start().await;
    let group = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": "definers"},
        "rules": [{"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"],
            "verbs": ["create", "delete", "get", "patch", "update"]}]});
    let binding = json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"name": "definers"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "definers"},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:authenticated"}]});
    for mut object in documents("policies/reserved-api-groups.yaml").into_iter().chain([role, binding]) {
        if object["kind"] == "ConfigMap" {
            object["data"][RESERVED] = json!("extension:lamp,group:platform,user:root");
        }
        cluster.apply(&object).await;
    }
    cluster
}

// docs/design/operations.md#reserved-api-groups
#[tokio::test(flavor = "multi_thread")]
async fn crds_of_a_reserved_group_are_written_only_by_its_owners() {
    let cluster = start().await;
    let api = async |user: &str, groups: &[&str]| -> Crds {
        let groups: Vec<&str> = groups.iter().copied().chain(["system:authenticated"]).collect();
        Api::all(cluster.client_of(user, &groups).await)
    };
    let ann = api("ann", &[]).await;
    let lamp = crd(RESERVED, "first", Some("lamp"));
    // Policy and RBAC rights become active with a delay. The owner label alone is not a right.
    let refused = async || {
        let said = create(&ann, &lamp, true).await;
        said.contains("is reserved").then_some(said)
    };
    let refused = eventually("the policy is active", refused).await;
    assert!(refused.ends_with(REASON), "{refused}");
    let (root, pat) = (api("root", &[]).await, api("pat", &["platform"]).await);
    let installer = api(INSTALLER, &["system:serviceaccounts"]).await;
    for (writer, object, expected) in [
        (&ann, crd(RESERVED, "second", None), REASON),
        (&ann, crd("free.example.com", "third", None), "done"),
        (&ann, crd("more.reserved.example.com", "fourth", None), "done"),
        (&root, crd(RESERVED, "fifth", None), "done"),
        (&pat, crd(RESERVED, "sixth", Some("other")), "done"),
        (&installer, crd(RESERVED, "seventh", Some("other")), REASON),
        (&installer, crd(RESERVED, "eighth", None), REASON),
        (&installer, lamp.clone(), "done"),
    ] {
        let said = create(writer, &object, false).await;
        assert!(said.ends_with(expected), "{object}: {said}");
    }
    schema_and_owner_are_changed_only_by_owners(&ann, &installer, &pat).await;
    conversion_is_changed_only_by_owners(&ann, &installer).await;
    deleted_crd_keeps_its_spec(&ann, &root).await;
}

/// A finalizer of CRD `fifth` outlasts its deletion.
async fn deleted_crd_keeps_its_spec(ann: &Crds, root: &Crds) {
    let held = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    assert_eq!(patch(root, "fifth", held(json!(["example.com/held"]))).await, "done");
    root.delete(&format!("fifths.{RESERVED}"), &DeleteParams::default()).await.unwrap();
    let webhook =
        json!({"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://evil.example.com/"}});
    let conversion = json!({"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}});
    let said = patch(ann, "fifth", conversion).await;
    assert!(said.ends_with(REASON), "{said}");
    assert_eq!(patch(ann, "fifth", held(json!([]))).await, "done");
}

async fn schema_and_owner_are_changed_only_by_owners(ann: &Crds, installer: &Crds, pat: &Crds) {
    let label =
        |value: Value| json!({"metadata": {"labels": {"olm.operatorframework.io/owner-name": value}}});
    let other_schema = crd(RESERVED, "first", None)["spec"]["versions"].clone();
    let mut other_schema = json!({"spec": {"versions": other_schema}});
    other_schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] =
        json!({"type": "object"});
    let names = json!({"spec": {"names": {"shortNames": ["f"]}}});
    for (writer, change, expected) in [
        (ann, json!({"metadata": {"annotations": {"example.com/note": "mine"}}}), "done"),
        (ann, other_schema.clone(), REASON),
        (ann, names, REASON),
        (ann, label(json!("other")), REASON),
        (ann, label(Value::Null), REASON),
        (installer, other_schema, "done"),
        (installer, label(json!("other")), REASON),
        // operator-controller releases the CRD, and adopts it again.
        (installer, label(Value::Null), "done"),
        (installer, label(json!("other")), REASON),
        (installer, label(json!("lamp")), "done"),
        (pat, label(json!("other")), "done"),
        (pat, label(json!("lamp")), "done"),
    ] {
        let said = patch(writer, "first", change.clone()).await;
        assert!(said.ends_with(expected), "{change}: {said}");
    }
}

/// The conversion webhook reads and rewrites all objects of the kind.
async fn conversion_is_changed_only_by_owners(ann: &Crds, installer: &Crds) {
    let conversion = |value: Value| json!({"spec": {"conversion": value}});
    let client = |value: Value| conversion(json!({"webhook": {"clientConfig": value}}));
    let webhook = |client: Value| {
        conversion(json!({"strategy": "Webhook",
            "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client}}))
    };
    let service = webhook(json!({"service": {"namespace": "lamp", "name": "lamp-service"}}));
    let url = webhook(json!({"url": "https://lamp.example.com/"}));
    let ca = |host: &str| {
        let issued = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
        client(json!({"caBundle": k8s_openapi::ByteString(issued.cert.pem().into_bytes())}))
    };
    for (writer, change, expected) in [
        (ann, url.clone(), REASON),
        (ann, service.clone(), REASON),
        (installer, service, "done"),
        // As cert-manager and OpenShift inject it.
        (ann, ca("a.example.com"), "done"),
        (ann, ca("b.example.com"), "done"),
        (ann, client(json!({"caBundle": null})), "done"),
        (ann, client(json!({"service": {"name": "other"}})), REASON),
        (ann, client(json!({"service": {"path": "/other"}})), REASON),
        (ann, client(json!({"service": null, "url": "https://other.example.com/"})), REASON),
        (ann, conversion(json!({"webhook": {"conversionReviewVersions": ["v1", "v1beta1"]}})), REASON),
        (ann, conversion(json!({"strategy": "None", "webhook": null})), REASON),
        (installer, client(json!({"service": null, "url": "https://lamp.example.com/"})), "done"),
        (ann, ca("c.example.com"), "done"),
        (ann, client(json!({"url": "https://other.example.com/"})), REASON),
    ] {
        let said = patch(writer, "first", change.clone()).await;
        assert!(said.ends_with(expected), "{change}: {said}");
    }
}
