//! Policy of `hardened-impersonation.yaml` about authors of extensions, evaluated by the API server
//! (docs/tasks/rights.md).

use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use olm_api::ClusterExtension;
use olm_control_plane::eventually;
use serde_json::{Value, json};

use crate::fixture::documents;
use crate::policies::{Cluster, create, extension, of, verdict};

#[tokio::test(flavor = "multi_thread")]
async fn authors_must_be_allowed_to_impersonate_the_service_account() {
    let cluster = Cluster::start().await;
    for object in documents("hardened-impersonation.yaml") {
        cluster.apply(&object).await;
    }
    let rules = |group: &str, resource: &str, verbs: Value| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    for object in [
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "authors"},
            "rules": [rules("olm.operatorframework.io", "clusterextensions", json!(["*"]))]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "authors"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "authors"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "authors"}]}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "grafana"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "act", "namespace": "grafana"},
            "rules": [{"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["installer"],
                "verbs": ["impersonate"]}]}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "act", "namespace": "grafana"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "act"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}]}),
    ] {
        cluster.apply(&object).await;
    }
    let groups = ["authors", "system:authenticated"];
    let (ann, ben) = (cluster.client_of("ann", &groups).await, cluster.client_of("ben", &groups).await);
    authors_choose_permitted_service_accounts(&ann, &ben).await;
    only_authors_change_and_delete(&ben, &ann).await;
    servers_write_metadata_only(&cluster).await;
}

/// Ann may change the extension `grafana` and its metadata, and delete it. Ben may not.
async fn only_authors_change_and_delete(ben: &Client, ann: &Client) {
    let (bens, anns): (Api<ClusterExtension>, Api<ClusterExtension>) =
        (Api::all(ben.clone()), Api::all(ann.clone()));
    let merge = async |api: &Api<ClusterExtension>, patch: &Value| {
        let answer = api.patch("grafana", &PatchParams::default(), &Patch::Merge(patch)).await;
        answer.map_or_else(|error| error.to_string(), |_| "done".to_owned())
    };
    let metadata = |field: &str, value: Value| json!({"metadata": {field: value}});
    let owner = json!([{"apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "gone"}]);
    for (patch, back) in [
        (metadata("finalizers", json!(["foregroundDeletion"])), metadata("finalizers", Value::Null)),
        (metadata("ownerReferences", owner), metadata("ownerReferences", Value::Null)),
        (of("paused", json!("true")), of("paused", Value::Null)),
        (of("paused", json!("true")), of("paused", json!("false"))),
        (
            json!({"spec": {"source": {"catalog": {"version": "1.x"}}}}),
            json!({"spec": {"source": {"catalog": {"version": "2.x"}}}}),
        ),
    ] {
        for patch in [patch, back] {
            let said = merge(&bens, &patch).await;
            let denied = "ben may not impersonate the service account grafana/installer";
            assert!(said.contains(denied), "{patch}: {said}");
            assert_eq!(merge(&anns, &patch).await, "done", "{patch}");
        }
    }
    let said = merge(&anns, &json!({"spec": {"serviceAccount": null}})).await;
    assert!(said.contains("no service account is named"), "{said}");
    let other = json!({"metadata": {"labels": {"team": "a"}, "annotations": {"example.com/note": "mine"}}});
    assert_eq!(merge(&bens, &other).await, "done");
    let one = bens.delete("grafana", &DeleteParams::default()).await.unwrap_err();
    let all = bens.delete_collection(&DeleteParams::default(), &Default::default()).await.unwrap_err();
    for error in [one, all] {
        assert!(error.to_string().contains("ben may not impersonate"), "{error}");
    }
}

/// operator-controller and the garbage collector, with the rights of authors.
async fn servers_write_metadata_only(cluster: &Cluster) {
    for (name, deletes) in [
        ("olmv1-system:operator-controller-controller-manager", false),
        ("kube-system:generic-garbage-collector", true),
        ("grafana:generic-garbage-collector", false),
    ] {
        let user = format!("system:serviceaccount:{name}");
        let client = cluster.client_of(&user, &["authors", "system:authenticated"]).await;
        let api: Api<ClusterExtension> = Api::all(client);
        let merge =
            async |patch: Value| api.patch("grafana", &PatchParams::default(), &Patch::Merge(patch)).await;
        let denied = |error: kube::Error| error.to_string().contains("may not impersonate");
        if name.starts_with("grafana") {
            assert!(denied(merge(json!({"metadata": {"finalizers": ["example.com/x"]}})).await.unwrap_err()));
            continue;
        }
        merge(json!({"metadata": {"finalizers": ["example.com/held"]}})).await.unwrap();
        merge(json!({"metadata": {"finalizers": null}})).await.unwrap();
        assert!(denied(
            merge(json!({"spec": {"source": {"catalog": {"version": "3.x"}}}})).await.unwrap_err()
        ));
        let dry_run = DeleteParams { dry_run: true, ..DeleteParams::default() };
        assert!(!deletes || api.delete("grafana", &dry_run).await.is_ok());
    }
}

/// Ann may impersonate the ServiceAccount grafana/installer, Ben may not.
async fn authors_choose_permitted_service_accounts(ann: &Client, ben: &Client) {
    let naming = |name: &str, namespace: &str, account: Value| {
        let (namespace, account) = (namespace.to_owned(), account.clone());
        extension(name, move |extension| {
            extension["spec"]["namespace"] = namespace.into();
            extension["spec"]["serviceAccount"] = account;
        })
    };
    let installer = json!({"name": "installer"});
    let body = naming("grafana", "grafana", installer);
    let refused =
        async || Some(verdict(ben, &body).await).filter(|said| said.contains("may not impersonate"));
    let said = eventually("the policy is active", refused).await;
    assert!(said.ends_with("ben may not impersonate the service account grafana/installer"), "{said}");
    for (body, reason) in [
        (
            naming("other", "grafana", json!({"name": "somebody"})),
            "ann may not impersonate the service account grafana/somebody",
        ),
        (naming("other", "grafana", Value::Null), "Required value: no service account is named"),
        (
            naming("other", "olmv1-system", json!({"name": "operator-controller-controller-manager"})),
            "must not be the namespace of OLM",
        ),
    ] {
        let said = verdict(ann, &body).await;
        assert!(said.contains(reason), "{said}");
    }
    create(ann, &body).await;
}
