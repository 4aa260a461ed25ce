//! Rights on ExtensionPlans with the sample policy for approvers, and with that of the install files
//! (docs/design/approvals.md#approvers).

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use olm_api::{ExtensionPlan, names};
use olm_control_plane::eventually;
use serde_json::{Value, json};

use crate::fixture::documents;
use crate::policies::Cluster;

fn plan(extension: &str, approved: bool) -> ExtensionPlan {
    let digest = format!("sha256:{}", "a".repeat(64));
    let plan = json!({"extension": extension, "revision": 2, "digest": digest, "summary": "",
        "bundle": {"name": "b", "version": "1.0.0", "image": "r.example/b", "imageDigest": ""}});
    serde_json::from_value(json!({"metadata": {"name": names::plan_name(extension, 2, &digest)},
        "spec": {"approved": approved, "plan": plan}}))
    .unwrap()
}

/// ClusterRole, and its binding to the group of the same name.
fn role(name: &str, rules: Value) -> [Value; 2] {
    let group = "rbac.authorization.k8s.io";
    [
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": {"name": name},
            "rules": rules}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": name}]}),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn only_approvers_approve_plans() {
    let cluster = Cluster::start().await;
    let plans = |verbs: &[&str]| json!({"apiGroups": [names::EXT_GROUP], "resources": ["extensionplans"], "verbs": verbs});
    let approve = json!({"apiGroups": [names::GROUP], "resources": ["clusterextensions"],
        "resourceNames": ["lamp"], "verbs": ["approve"]});
    let roles = [
        // As operator-controller of hardened.yaml, and more.
        role("editors", json!([plans(&["create", "delete", "get", "patch", "update"])])),
        role("lamp-approvers", json!([plans(&["patch"]), approve])),
    ];
    for object in documents("policies/approvers.yaml").into_iter().chain(roles.into_iter().flatten()) {
        cluster.apply(&object).await;
    }
    let api = async |user: &str, group: &str| {
        Api::<ExtensionPlan>::all(cluster.client_of(user, &[group, "system:authenticated"]).await)
    };
    let (ed, ann) = (api("ed", "editors").await, api("ann", "extension-approvers").await);
    let lou = api("lou", "lamp-approvers").await;
    let refused = "spec.approved: only an approver may approve a plan or revoke its approval";
    // Policy and RBAC rights become active with a delay.
    eventually("the policy is active", async || {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let error = ed.create(&dry_run, &plan("lamp", true)).await.err()?;
        error.to_string().contains(refused).then_some(())
    })
    .await;
    let (lamp, other) = (plan("lamp", false), plan("other", false));
    for plan in [&lamp, &other] {
        ed.create(&PostParams::default(), plan).await.unwrap();
    }
    let [lamp, other] = [lamp, other].map(|plan| plan.metadata.name.unwrap());
    let set = async |api: &Api<ExtensionPlan>, name: &str, approved: bool| {
        let patch = Patch::Merge(json!({"spec": {"approved": approved}}));
        api.patch(name, &PatchParams::default(), &patch).await.map(drop)
    };
    let said = set(&ed, &lamp, true).await.unwrap_err().to_string();
    assert!(said.contains(refused), "{said}");
    // Other fields of the object, and an explicit false, are not an approval.
    let labels = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}, "spec": {"approved": false}}));
    ed.patch(&lamp, &PatchParams::default(), &labels).await.unwrap();
    // An approver of one extension approves only its plans.
    set(&lou, &lamp, true).await.unwrap();
    let said = set(&lou, &other, true).await.unwrap_err().to_string();
    assert!(said.contains(refused), "{said}");
    let said = set(&ed, &lamp, false).await.unwrap_err().to_string();
    assert!(said.contains(refused), "{said}");
    set(&ann, &other, true).await.unwrap();
    set(&ann, &other, false).await.unwrap();
    let said = ann.delete(&other, &DeleteParams::default()).await.unwrap_err().to_string();
    assert!(said.contains("forbidden"), "{said}");
    ed.delete(&lamp, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn created_plan_with_approval_is_denied() {
    let cluster = Cluster::start().await;
    for object in documents("install.yaml") {
        if object["metadata"]["name"] == "extensionplan-created-unapproved" {
            cluster.apply(&object).await;
        }
    }
    let admin: Api<ExtensionPlan> = Api::all(cluster.plane.client());
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let refused = async || admin.create(&dry_run, &plan("lamp", true)).await.err();
    let error = eventually("the policy is active", refused).await.to_string();
    assert!(error.contains("spec.approved: a plan cannot be created approved"), "{error}");
    let created = admin.create(&PostParams::default(), &plan("lamp", false)).await.unwrap();
    let approve = Patch::Merge(json!({"spec": {"approved": true}}));
    let name = created.metadata.name.unwrap();
    admin.patch(&name, &PatchParams::default(), &approve).await.unwrap();
}
