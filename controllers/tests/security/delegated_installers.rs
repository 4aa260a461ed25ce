//! Policy `delegated-installers.yaml`, evaluated by the API server (docs/tasks/delegate.md).

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use olm_api::ClusterExtension;
use olm_control_plane::eventually;
use serde_json::{Value, json};

use crate::fixture::documents;
use crate::policies::{Cluster, create, extension, verdict};

// Case operations-a32
#[tokio::test(flavor = "multi_thread")]
async fn delegated_installers_are_limited_to_allowed_values() {
    let cluster = Cluster::start().await;
    for object in documents("policies/delegated-installers.yaml") {
        cluster.apply(&object).await;
    }
    let ann = cluster.client_of("ann", &["extension-installers", "system:authenticated"]).await;
    let other = |package: &str| {
        let package = package.to_owned();
        extension("other", |extension| extension["spec"]["source"]["catalog"]["packageName"] = package.into())
    };
    // Policy and RBAC rights become active with a delay.
    let refused = async || {
        let said = verdict(&ann, &other("lamp")).await;
        said.contains("packageName").then_some(said)
    };
    let said = eventually("the policy is active", refused).await;
    let reason =
        "spec.source.catalog.packageName: lamp is not among the packages argocd-operator,grafana-operator";
    assert!(said.ends_with(reason), "{said}");

    other_values_are_denied(&ann).await;
    create(&ann, &extension("grafana", |_| {})).await;
    // The policy applies only to members of the group.
    let admin = cluster.plane.client();
    create(&admin, &other("lamp")).await;
    delegated_installers_change_their_own(&ann, &admin).await;
}

async fn other_values_are_denied(ann: &Client) {
    let catalog = |field: &'static str, value: Value| {
        extension("other", move |extension| extension["spec"]["source"]["catalog"][field] = value)
    };
    for (body, reason) in [
        (
            extension("other", |extension| extension["spec"]["namespace"] = json!("kube-system")),
            "spec.namespace: kube-system is not among the namespaces argocd,grafana",
        ),
        (
            catalog("selector", Value::Null),
            "spec.source.catalog.selector.matchLabels: must have olm.operatorframework.io/metadata.name with one of \
             operatorhubio",
        ),
        (
            catalog("selector", json!({"matchLabels": {"olm.operatorframework.io/metadata.name": "mine"}})),
            "with one of operatorhubio",
        ),
        (
            catalog("upgradeConstraintPolicy", json!("SelfCertified")),
            "spec.source.catalog.upgradeConstraintPolicy: must be CatalogProvided",
        ),
        (
            extension("other", |extension| {
                extension["spec"]["install"] =
                    json!({"preflight": {"crdUpgradeSafety": {"enforcement": "None"}}});
            }),
            "spec.install.preflight.crdUpgradeSafety.enforcement: must be Strict",
        ),
        (
            extension("other", |extension| {
                extension["metadata"]["annotations"] =
                    json!({"ext.olm.operatorframework.io/crd-check": "Warn"});
            }),
            ANNOTATIONS,
        ),
        (
            extension("other", |extension| extension["spec"]["config"] = config("a")),
            "spec.config: may not be set, changed or removed",
        ),
    ] {
        let said = verdict(ann, &body).await;
        assert!(said.contains("denied request: ") && said.ends_with(reason), "{said}");
    }
}

const ANNOTATIONS: &str = "metadata.annotations: those that begin with ext.olm.operatorframework.io/ may not be set, changed \
                           or removed";

fn config(value: &str) -> Value {
    json!({"configType": "Inline", "inline": {"watchNamespace": value}})
}

/// Extension `grafana` belongs to the group, `other` does not.
async fn delegated_installers_change_their_own(ann: &Client, admin: &Client) {
    let (anns, admins): (Api<ClusterExtension>, Api<ClusterExtension>) =
        (Api::all(ann.clone()), Api::all(admin.clone()));
    let said = |answer: Result<(), kube::Error>| match answer {
        Ok(()) => "done".to_owned(),
        Err(kube::Error::Api(status)) => status.message.clone(),
        Err(error) => panic!("{error}"),
    };
    let merge = async |api: &Api<ClusterExtension>, name: &str, patch: Value| {
        said(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop))
    };
    let annotated =
        |value: Value| json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/paused": value}}});
    let foreign = "this extension is not one of those that extension-installers may change or delete";
    let given = json!({"metadata": {"finalizers": ["example.com/held"]}, "spec": {"config": config("a")}});
    assert_eq!(merge(&admins, "grafana", given).await, "done");
    assert_eq!(merge(&admins, "grafana", annotated(json!("true"))).await, "done");
    for (name, patch, expected) in [
        ("grafana", json!({"spec": {"source": {"catalog": {"version": "1.x"}}}}), "done"),
        ("grafana", json!({"metadata": {"annotations": {"example.com/note": "mine"}}}), "done"),
        ("grafana", annotated(json!("false")), ANNOTATIONS),
        ("grafana", annotated(Value::Null), ANNOTATIONS),
        (
            "grafana",
            json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/force": "x"}}}),
            ANNOTATIONS,
        ),
        (
            "grafana",
            json!({"spec": {"config": config("b")}}),
            "spec.config: may not be set, changed or removed",
        ),
        ("grafana", json!({"spec": {"config": null}}), "spec.config: may not be set, changed or removed"),
        ("grafana", json!({"metadata": {"finalizers": null}}), "metadata.finalizers: none may be removed"),
        (
            "grafana",
            json!({"spec": {"source": {"catalog": {"selector": null}}}}),
            "must have olm.operatorframework.io/metadata.name with one of operatorhubio",
        ),
        ("other", json!({"spec": {"source": {"catalog": {"version": "1.x"}}}}), foreign),
        ("other", json!({"metadata": {"annotations": {"example.com/note": "mine"}}}), foreign),
    ] {
        let said = merge(&anns, name, patch.clone()).await;
        assert!(said.ends_with(expected), "{name} {patch}: {said}");
    }
    let delete = async |name: &str| said(anns.delete(name, &DeleteParams::default()).await.map(drop));
    let refused = delete("other").await;
    assert!(refused.ends_with(foreign), "{refused}");
    assert!(admins.get_opt("other").await.unwrap().is_some());
    assert_eq!(delete("grafana").await, "done");
    // The deletion completes once the finalizer is removed.
    assert_eq!(merge(&admins, "grafana", json!({"metadata": {"finalizers": null}})).await, "done");
    assert!(admins.get_opt("grafana").await.unwrap().is_none());
    delegated_installers_configure(ann, admin).await;
}

/// Changes the parameters of the policy until a creation by the group has this verdict.
async fn set_parameters(admin: &Client, data: &Value, ann: &Client, created: &Value, ending: &str) {
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), "olmv1-system");
    let patch = Patch::Merge(json!({ "data": data }));
    maps.patch("delegated-installers", &PatchParams::default(), &patch).await.unwrap();
    let is_active = async || verdict(ann, created).await.ends_with(ending).then_some(());
    eventually("new parameters are active", is_active).await;
}

async fn delegated_installers_configure(ann: &Client, admin: &Client) {
    const NAMESPACES: &str =
        "may have only deploymentConfig, and watchNamespace or watchNamespaces among argocd,grafana";
    const PODS: &str = "may have only affinity, annotations, nodeSelector, resources and tolerations";
    let configured = |inline: Value| {
        extension("grafana", move |extension| {
            extension["spec"]["config"] = json!({"configType": "Inline", "inline": inline});
        })
    };
    let pods = |key: &str| configured(json!({"deploymentConfig": {"resources": {}, key: []}}));
    let watching = configured(json!({"watchNamespace": "grafana"}));
    set_parameters(admin, &json!({"config": "allow"}), ann, &watching, "allowed").await;
    for (body, expected) in [
        (configured(json!({"watchNamespaces": ["argocd", "grafana"]})), "allowed"),
        (configured(json!({"watchNamespace": "kube-system"})), NAMESPACES),
        (configured(json!({"watchNamespace": ""})), NAMESPACES),
        (configured(json!({"watchNamespaces": ["grafana", "kube-system"]})), NAMESPACES),
        (configured(json!({"watchNamespaceSelector": {"matchLabels": {"a": "b"}}})), NAMESPACES),
        (configured(json!({"WatchNamespace": "kube-system"})), NAMESPACES),
        (pods("tolerations"), "allowed"),
        (pods("env"), PODS),
        (pods("envFrom"), PODS),
        (pods("volumes"), PODS),
        (pods("volumeMounts"), PODS),
        (pods("Volumes"), PODS),
    ] {
        let said = verdict(ann, &body).await;
        assert!(said.ends_with(expected), "{body}: {said}");
    }
    // A member may change an extension whose configuration an administrator wrote.
    create(admin, &pods("env")).await;
    let anns: Api<ClusterExtension> = Api::all(ann.clone());
    let version = Patch::Merge(json!({"spec": {"source": {"catalog": {"version": "1.x"}}}}));
    anns.patch("grafana", &PatchParams::default(), &version).await.unwrap();
    let allowed = json!({"volumes-and-env": "allow"});
    let renamed = |name: &str| {
        let mut body = pods("env");
        body["metadata"]["name"] = name.into();
        body
    };
    set_parameters(admin, &allowed, ann, &renamed("argocd"), "allowed").await;
    let unnamed = "metadata.name: is not among the names argocd,other";
    let names = json!({"names": "argocd,other"});
    set_parameters(admin, &names, ann, &renamed("lamp"), unnamed).await;
    assert_eq!(verdict(ann, &renamed("argocd")).await, "allowed");
    let changed = anns.patch("grafana", &PatchParams::default(), &version).await.map(drop);
    let deleted = anns.delete("grafana", &DeleteParams::default()).await.map(drop);
    for error in [changed.unwrap_err(), deleted.unwrap_err()] {
        assert!(error.to_string().contains(unnamed), "{error}");
    }
}
