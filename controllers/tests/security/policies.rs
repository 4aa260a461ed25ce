//! Admission policies of the install files and the samples of `manifests/policies/`, evaluated by the API server
//! (docs/design/operations.md#admission-policies).

use http::{Method, Request};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use olm_api::ClusterExtension;
use olm_control_plane::{ControlPlane, eventually};
use serde_json::{Value, json};

use crate::fixture::{apply, documents};

pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let plane = ControlPlane::start().await.unwrap();
        plane.apply_crds(&olm_api::crds::crds()).await.unwrap();
        let cluster = Self { plane };
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": "olmv1-system"}})).unwrap();
        Api::all(cluster.plane.client()).create(&PostParams::default(), &namespace).await.unwrap();
        cluster
    }

    pub(crate) async fn apply(&self, object: &Value) {
        apply(&self.plane.client(), object).await;
    }

    /// Client of a user with these groups and no other rights.
    pub(crate) async fn client_of(&self, user: &str, groups: &[&str]) -> Client {
        self.plane.client_of(user, groups).await.unwrap()
    }
}

pub(crate) fn extension(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let selector = json!({"matchLabels": {"olm.operatorframework.io/metadata.name": "operatorhubio"}});
    let mut extension = json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "metadata": {"name": name},
        "spec": {"namespace": "grafana", "source": {"sourceType": "Catalog",
            "catalog": {"packageName": "grafana-operator", "selector": selector}}},
    });
    change(&mut extension);
    extension
}

/// Answer to a create request that is not persisted: `allowed`, or the error message.
pub(crate) async fn verdict(client: &Client, extension: &Value) -> String {
    let api: Api<ClusterExtension> = Api::all(client.clone());
    let typed = serde_json::from_value(extension.clone()).unwrap();
    match api.create(&PostParams { dry_run: true, ..PostParams::default() }, &typed).await {
        Ok(_) => "allowed".to_owned(),
        Err(kube::Error::Api(status)) => status.message.clone(),
        Err(error) => panic!("{error}"),
    }
}

pub(crate) async fn create(client: &Client, extension: &Value) {
    let api: Api<ClusterExtension> = Api::all(client.clone());
    api.create(&PostParams::default(), &serde_json::from_value(extension.clone()).unwrap()).await.unwrap();
}

// Case operations-a31
#[tokio::test(flavor = "multi_thread")]
async fn service_account_in_spec_returns_a_deprecation_warning() {
    let cluster = Cluster::start().await;
    let all = documents("install.yaml");
    let policies: Vec<&Value> = all
        .iter()
        .filter(|one| one["metadata"]["name"] == "clusterextension-serviceaccount-deprecated")
        .collect();
    assert_eq!(policies.len(), 2);
    for policy in policies {
        cluster.apply(policy).await;
    }
    let client = cluster.plane.client();
    let warnings = async |account: Value| {
        let extension = extension("lamp", |extension| extension["spec"]["serviceAccount"] = account);
        let path = "/apis/olm.operatorframework.io/v1/clusterextensions?dryRun=All";
        let request =
            Request::builder().method(Method::POST).uri(path).header("Content-Type", "application/json");
        let request = request.body(Body::from(extension.to_string().into_bytes())).unwrap();
        let answer = client.send(request).await.unwrap();
        assert_eq!(answer.status(), 201);
        let warnings = answer.headers().get_all("warning").iter();
        warnings.map(|warning| warning.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let warned =
        eventually("deprecation warning", async || warnings(json!({"name": "installer"})).await.pop()).await;
    assert!(
        warned.contains(
            "spec.serviceAccount is deprecated, ignored, and will be removed in a future release. The \
             operator-controller's cluster-admin service account is used for all cluster interactions."
        ),
        "{warned}"
    );
    assert_eq!(warnings(Value::Null).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn catalogs_from_untrusted_registries_are_rejected() {
    let cluster = Cluster::start().await;
    for object in documents("policies/trusted-catalogs.yaml") {
        cluster.apply(&object).await;
    }
    let api: Api<olm_api::ClusterCatalog> = Api::all(cluster.plane.client());
    let catalog = |reference: &str, annotations: Value| -> olm_api::ClusterCatalog {
        serde_json::from_value(json!({
            "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterCatalog",
            "metadata": {"name": "theirs", "annotations": annotations},
            "spec": {"source": {"type": "Image", "image": {"ref": reference}}},
        }))
        .unwrap()
    };
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let refused = async || {
        let other = catalog("quay.io/operatorhubio.example/catalog:latest", json!({}));
        api.create(&dry_run, &other).await.err()
    };
    let error = eventually("the policy is active", refused).await.to_string();
    assert!(
        error.contains(
            "spec.source.image.ref: quay.io/operatorhubio.example/catalog:latest begins with none of quay.io/operatorhubio/"
        ),
        "{error}"
    );
    let trusted = "quay.io/operatorhubio/catalog:latest";
    api.create(&PostParams::default(), &catalog(trusted, json!({}))).await.unwrap();
    // The template of either key gives the image.
    for key in [olm_api::annotations::EXT_IMAGE_TEMPLATE, olm_api::annotations::CLASSIC_IMAGE_TEMPLATE] {
        let template = |template: &str| json!({key: template});
        let (foreign, same) = ("evil.example/c:v{kube_minor_version}", "quay.io/operatorhubio/catalog:v1");
        let created = api.create(&dry_run, &catalog(trusted, template(foreign))).await;
        let patch = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        let patched = async |annotations: Value| {
            api.patch("theirs", &PatchParams::default(), &Patch::Merge(patch(annotations))).await
        };
        for refused in [created, patched(template(foreign)).await] {
            let error = refused.unwrap_err().to_string();
            let expected = format!("annotation {key}: {foreign} begins with none of quay.io/operatorhubio/");
            assert!(error.contains(&expected), "{error}");
        }
        patched(template(same)).await.unwrap();
        patched(template("")).await.unwrap();
    }
}

// docs/design/additions.md#service-account-impersonation
#[tokio::test(flavor = "multi_thread")]
async fn service_account_is_required_with_the_sample_policy() {
    let cluster = Cluster::start().await;
    for object in documents("policies/service-account-required.yaml") {
        cluster.apply(&object).await;
    }
    let client = cluster.plane.client();
    let refused = async || {
        let said = verdict(&client, &extension("lamp", |_| {})).await;
        (said != "allowed").then_some(said)
    };
    let said = eventually("the policy is active", refused).await;
    let reason = "spec.serviceAccount.name: Required value: the service account that installs the extension";
    assert!(said.ends_with(reason), "{said}");
    let named =
        extension("lamp", |extension| extension["spec"]["serviceAccount"] = json!({"name": "installer"}));
    assert_eq!(verdict(&client, &named).await, "allowed");
}

fn key(key: &str) -> String {
    format!("ext.olm.operatorframework.io/{key}")
}

/// Patch of an annotation.
pub(crate) fn of(annotation: &str, value: Value) -> Value {
    json!({"metadata": {"annotations": {key(annotation): value}}})
}

async fn patched(api: &Api<ClusterExtension>, patch: &Value) -> kube::Result<()> {
    api.patch("lamp", &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

async fn editors_change_only_other_fields(ed: &Api<ClusterExtension>) {
    for (annotation, value) in [
        ("approval", json!("Automatic")),
        ("approval", Value::Null),
        ("approved", json!("x")),
        ("approve-permission-increase", json!("true")),
        ("upgrade-window", json!("0 0 * * * 1h")),
        ("on-failure", json!("Rollback")),
        ("ignore-operator-condition", json!("true")),
    ] {
        let patch = of(annotation, value);
        let error = patched(ed, &patch).await.unwrap_err().to_string();
        assert!(error.contains("only an approver may set, change or remove"), "{patch}: {error}");
    }
    // Without it, the objects are applied with the rights of operator-controller.
    let error = patched(ed, &json!({"spec": {"serviceAccount": null}})).await.unwrap_err().to_string();
    assert!(error.contains("spec.serviceAccount: only an approver may set, change or remove it"), "{error}");
    for patch in [
        json!({"spec": {"source": {"catalog": {"version": "1.x"}}}}),
        of("paused", json!("true")),
        json!({"metadata": {"annotations": {"example.com/note": "mine"}}}),
    ] {
        patched(ed, &patch).await.unwrap();
    }
}

// docs/design/approvals.md#approvers
#[tokio::test(flavor = "multi_thread")]
async fn only_approvers_change_approvals_and_delete_extensions_with_approvals() {
    let cluster = Cluster::start().await;
    let group = "rbac.authorization.k8s.io";
    for object in documents("policies/approvers.yaml").into_iter().chain([
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": "editors"},
            "rules": [{"apiGroups": ["olm.operatorframework.io"], "resources": ["clusterextensions"],
                "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update"]}]}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "editors"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "editors"},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": "editors"}]}),
    ]) {
        cluster.apply(&object).await;
    }
    let admin: Api<ClusterExtension> = Api::all(cluster.plane.client());
    let groups = |group| [group, "system:authenticated"];
    let ed_client = cluster.client_of("ed", &groups("editors")).await;
    let ed: Api<ClusterExtension> = Api::all(ed_client.clone());
    let ann: Api<ClusterExtension> = Api::all(cluster.client_of("ann", &groups("extension-approvers")).await);
    let annotated = |name: &str, annotation: &str, value: &str| {
        let annotations = json!({key(annotation): value});
        extension(name, |extension| extension["metadata"]["annotations"] = annotations)
    };
    // Policy and RBAC rights become active with a delay.
    eventually("the policy is active", async || {
        let said = verdict(&ed_client, &annotated("lamp", "approved", "x")).await;
        said.contains("only an approver may set").then_some(())
    })
    .await;
    assert_eq!(verdict(&ed_client, &extension("plain", |_| {})).await, "allowed");
    let mut lamp = annotated("lamp", "approval", "Manual");
    lamp["spec"]["serviceAccount"] = json!({"name": "installer"});
    create(&cluster.plane.client(), &lamp).await;
    editors_change_only_other_fields(&ed).await;
    let error = ed.delete("lamp", &DeleteParams::default()).await.unwrap_err().to_string();
    assert!(error.contains("only an approver may delete"), "{error}");
    let error = ed.delete_collection(&DeleteParams::default(), &Default::default()).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("only an approver may delete"), "{error}");
    assert!(admin.get_opt("lamp").await.unwrap().is_some());
    // Other extensions have no approvals.
    create(&ed_client, &extension("plain", |_| {})).await;
    let account = Patch::Merge(json!({"spec": {"serviceAccount": {"name": "installer"}}}));
    ed.patch("plain", &PatchParams::default(), &account).await.unwrap();
    ed.delete("plain", &DeleteParams::default()).await.unwrap();
    patched(&ann, &of("approved", json!("x"))).await.unwrap();
    patched(&ann, &json!({"spec": {"serviceAccount": null}})).await.unwrap();
    patched(&ann, &of("approval", Value::Null)).await.unwrap();
}
