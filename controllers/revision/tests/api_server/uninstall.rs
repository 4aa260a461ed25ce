//! Custom resources of revisions that are deleted.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use olm_api::ClusterObjectSet;
use olm_servers::RunningController;
use serde_json::{Value, json};

use super::fixture::{
    Fixture, config_map, crd, custom_resource, deployment, eventually, field_value, phase, unmodified,
};

const POLICY: &str = "ext.olm.operatorframework.io/uninstall-policy";

fn held(kind: &str, namespace: &str) -> Value {
    let mut resource = custom_resource(kind, namespace, "one");
    resource["metadata"]["finalizers"] = json!(["acme.example/cleanup"]);
    resource
}

async fn let_go(fixture: &Fixture, resource: &Value) {
    fixture.edit(resource, json!({"metadata": {"finalizers": null}})).await;
}

pub(super) async fn custom_resources_are_deleted_before_operator(fixture: &Fixture) {
    let ns = "cleaning";
    fixture.namespace(ns).await;
    let (crd, operator) = (crd("cleaneds", "Cleaned"), deployment(ns, "operator"));
    let phases = json!([phase("crds", &[&crd]), phase("deploy", &[&operator])]);
    let name = fixture.revision(ns, 1, phases, unmodified).await;
    fixture.until_exists(&operator).await;
    let ready = json!({"status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1,
        "availableReplicas": 1, "conditions": [{"type": "Available", "status": "True"}]}});
    fixture.edit_status(&operator, ready).await;
    fixture.until_succeeded(&name).await;
    let resource = held("Cleaned", ns);
    fixture.create(&resource).await;
    fixture.delete_revision(&name).await;
    let waits = "True/Retrying waiting for 1 cleaneds.acme.example (first: cleaning/one): finalizer acme.example/cleanup";
    assert_eq!(fixture.until_condition(&name, "Progressing", "True/Retrying waiting").await, waits);
    let live = fixture.get(&operator).await.unwrap();
    assert_eq!(live["metadata"]["deletionTimestamp"], json!(null));
    let_go(fixture, &resource).await;
    fixture.until_deleted(&name).await;
    assert_eq!((fixture.get(&crd).await, fixture.get(&operator).await), (None, None));
}

pub(super) async fn custom_resources_without_operator_are_reported(fixture: &Fixture) {
    let ns = "stuck";
    fixture.namespace(ns).await;
    let (crd, map) = (crd("stucks", "Stuck"), config_map(ns, "a", json!({})));
    let phases = json!([phase("crds", &[&crd]), phase("b", &[&map])]);
    let name = fixture.revision(ns, 1, phases.clone(), unmodified).await;
    fixture.until_succeeded(&name).await;
    let uid = fixture.sets().get(&name).await.unwrap().metadata.uid.unwrap();
    let resource = held("Stuck", ns);
    fixture.create(&resource).await;
    fixture.delete_revision(&name).await;
    fixture.until_deleted(&name).await;
    assert_eq!(fixture.get(&map).await, None);
    let left = "1 stucks.acme.example (first: stuck/one): finalizer acme.example/cleanup";
    assert_eq!(
        fixture.event(&uid).await,
        format!(
            "CustomResourcesLeft revision stuck-1 is removed, but custom resources are left: {left}; remove their \
             finalizers if the operator cannot"
        )
    );
    // A reinstallation under another name waits for the deletion of the CRD.
    let again = fixture.revision("unstuck", 1, phases, unmodified).await;
    let waits = format!(
        "True/Retrying waiting for the deletion of CustomResourceDefinition stucks.acme.example, which waits for {left}"
    );
    assert_eq!(fixture.until_condition(&again, "Progressing", "True/Retrying").await, waits);
    let_go(fixture, &resource).await;
    fixture.until_succeeded(&again).await;
}

// docs/design/additions.md#uninstall-policy: the second owner is present only while the annotation demands it.
pub(super) async fn retained_crd_has_second_owner_while_policy_demands_it(fixture: &Fixture) {
    let ns = "second";
    fixture.namespace(ns).await;
    let crd = crd("seconds", "Second");
    let name = fixture.revision(ns, 1, json!([phase("crds", &[&crd])]), unmodified).await;
    fixture.until_succeeded(&name).await;
    assert_eq!(fixture.owners(&crd).await, Some(vec![name.clone()]));
    for (policy, owners) in [
        (json!("KeepCRDs"), vec![name.as_str(), "kube-system"]),
        (Value::Null, vec![name.as_str()]),
        (json!("BlockIfInUse"), vec![name.as_str(), "kube-system"]),
        (json!("Delete"), vec![name.as_str()]),
    ] {
        fixture.patch(&name, json!({"metadata": {"annotations": {POLICY: policy}}})).await;
        eventually("the owners match the policy", async || {
            (fixture.owners(&crd).await? == owners).then_some(())
        })
        .await;
    }
    fixture.delete_revision(&name).await;
    fixture.until_deleted(&name).await;
}

// The second owner must be set before a foreground deletion.
pub(super) async fn paused_and_archived_revisions_give_crds_the_second_owner(fixture: &Fixture) {
    let ns = "third";
    fixture.namespace(ns).await;
    let crd = crd("thirds", "Third");
    let first = fixture.revision(ns, 1, json!([phase("crds", &[&crd])]), unmodified).await;
    fixture.until_succeeded(&first).await;
    let annotate = async |annotations: Value| {
        fixture.patch(&first, json!({"metadata": {"annotations": annotations}})).await;
    };
    let until_owned_by = async |owners: &[&str]| {
        eventually(&format!("{owners:?} own the CRD"), async || {
            (fixture.owners(&crd).await? == owners).then_some(())
        })
        .await;
    };
    let paused = "ext.olm.operatorframework.io/paused";
    annotate(json!({POLICY: "KeepCRDs", paused: "true"})).await;
    until_owned_by(&[&first, "kube-system"]).await;
    fixture.until_condition(&first, "Available", "True/ProbesSucceeded").await;
    annotate(json!({POLICY: null, paused: null})).await;
    until_owned_by(&[&first]).await;

    let resource = custom_resource("Third", ns, "one");
    fixture.create(&resource).await;
    let map = config_map(ns, "a", json!({}));
    let second = fixture.revision(ns, 2, json!([phase("maps", &[&map])]), unmodified).await;
    fixture.until_succeeded(&second).await;
    fixture.until_condition(&first, "Progressing", "False/Blocked cannot delete").await;
    annotate(json!({POLICY: "KeepCRDs"})).await;
    until_owned_by(&[&first, "kube-system"]).await;
    for name in [&first, &second] {
        fixture.delete_revision(name).await;
        fixture.until_deleted(name).await;
    }
    until_owned_by(&[]).await;
    assert!(fixture.get(&resource).await.is_some());
}

/// Waits until the garbage collector, which started before our CRDs existed, watches revisions.
async fn collecting(fixture: &Fixture) {
    let owner = json!([{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": "nobody",
        "uid": "00000000-0000-0000-0000-000000000000"}]);
    let set: ClusterObjectSet = serde_json::from_value(json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
        "metadata": {"name": "nobody-1", "ownerReferences": owner},
        "spec": {"lifecycleState": "Archived", "revision": 1, "collisionProtection": "Prevent"}}))
    .unwrap();
    fixture.sets().create(&PostParams::default(), &set).await.unwrap();
    fixture.until_deleted("nobody-1").await;
}

/// Creates a revision with this policy and deletes it in the foreground. Returns its CRD and a custom resource.
async fn deleted_in_foreground(
    fixture: &Fixture,
    ns: &str,
    plural: &str,
    kind: &str,
    policy: &str,
) -> [Value; 2] {
    fixture.namespace(ns).await;
    let (crd, map) = (crd(plural, kind), config_map(ns, "a", json!({})));
    let phases = json!([phase("crds", &[&crd]), phase("b", &[&map])]);
    let annotate = |set: &mut Value| set["metadata"]["annotations"][POLICY] = json!(policy);
    let name = fixture.revision(ns, 1, phases, annotate).await;
    fixture.until_succeeded(&name).await;
    let resource = custom_resource(kind, ns, "one");
    fixture.create(&resource).await;
    fixture.sets().delete(&name, &DeleteParams::foreground()).await.unwrap();
    fixture.until_object_deleted(&map).await;
    [crd, resource]
}

pub(super) async fn retained_crd_survives_foreground_deletion(fixture: &Fixture) {
    collecting(fixture).await;
    let ns = "foreground";
    let [crd, resource] = deleted_in_foreground(fixture, ns, "lasts", "Last", "KeepCRDs").await;
    fixture.until_deleted("foreground-1").await;
    assert!(fixture.get(&resource).await.is_some());
    assert_eq!(fixture.owners(&crd).await, Some(vec![]));
    let again = fixture.revision(ns, 2, json!([phase("crds", &[&crd])]), unmodified).await;
    fixture.until_succeeded(&again).await;
    assert_eq!(fixture.owners(&crd).await, Some(vec![again.clone()]));
    assert!(fixture.get(&resource).await.is_some());
    fixture.delete_revision(&again).await;
    fixture.until_deleted(&again).await;

    let [crd, resource] = deleted_in_foreground(fixture, "busy", "busies", "Busy", "BlockIfInUse").await;
    let blocked =
        "False/Blocked cannot delete CustomResourceDefinition busies.acme.example: 1 custom resources exist";
    fixture.until_condition("busy-1", "Progressing", blocked).await;
    fixture.delete(&resource).await;
    fixture.until_deleted("busy-1").await;
    fixture.until_object_deleted(&crd).await;
}

// No object stays in Terminating without being reported.
pub(super) async fn foreground_deletion_reports_remaining_custom_resources(fixture: &Fixture) {
    let ns = "named";
    fixture.namespace(ns).await;
    let crd = crd("nameds", "Named");
    let name = fixture.revision(ns, 1, json!([phase("crds", &[&crd])]), unmodified).await;
    fixture.until_succeeded(&name).await;
    let resource = held("Named", ns);
    fixture.create(&resource).await;
    fixture.sets().delete(&name, &DeleteParams::foreground()).await.unwrap();
    let left = "False/Blocked revision named-1 is removed, but custom resources are left: 1 nameds.acme.example \
                (first: named/one): finalizer acme.example/cleanup; ";
    fixture.until_condition(&name, "Progressing", left).await;
    let_go(fixture, &resource).await;
    fixture.until_deleted(&name).await;
}

// Also when forced, without a controller that could remove owner references.
pub(super) async fn retained_crd_survives_uninstall_of_olm(fixture: &Fixture, controller: RunningController) {
    let ns = "permanent";
    fixture.namespace(ns).await;
    let crd = crd("permanents", "Permanent");
    let keep = |set: &mut Value| set["metadata"]["annotations"][POLICY] = json!("KeepCRDs");
    let name = fixture.revision(ns, 1, json!([phase("crds", &[&crd])]), keep).await;
    fixture.until_succeeded(&name).await;
    let resource = custom_resource("Permanent", ns, "one");
    fixture.create(&resource).await;
    controller.stop().await;
    fixture.patch(&name, json!({"metadata": {"finalizers": null}})).await;
    fixture.delete_revision(&name).await;
    eventually("only the second owner is left", async || {
        (fixture.owners(&crd).await? == ["kube-system"]).then_some(())
    })
    .await;
    let of_olm = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterobjectsets.olm.operatorframework.io"}});
    fixture.delete(&of_olm).await;
    fixture.until_object_deleted(&of_olm).await;
    assert!(fixture.get(&crd).await.is_some() && fixture.get(&resource).await.is_some());
}

/// Denies to delete ConfigMaps and CRDs whose name begins with the one of this namespace.
async fn deny_deletions(fixture: &Fixture, ns: &str) {
    fixture.namespace(ns).await;
    let admission = |kind: &str, spec: Value| json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": ns}, "spec": spec});
    let rules = json!([{"apiGroups": ["", "apiextensions.k8s.io"], "apiVersions": ["v1"], "operations": ["DELETE"],
        "resources": ["configmaps", "customresourcedefinitions"]}]);
    let policy = json!({"matchConstraints": {"resourceRules": rules}, "validations": [{
        "expression": "!oldObject.metadata.name.startsWith('undeletable')", "message": "not this one"}]});
    fixture.create(&admission("ValidatingAdmissionPolicy", policy)).await;
    let binding = json!({"policyName": ns, "validationActions": ["Deny"]});
    fixture.create(&admission("ValidatingAdmissionPolicyBinding", binding)).await;
}

// docs/design/apply.md#denied-deletions
pub(super) async fn denied_deletions_are_reported_until_the_end(fixture: &Fixture) {
    let ns = "undeletable";
    deny_deletions(fixture, ns).await;
    let [kept, other, earlier] =
        ["undeletable", "other", "earlier"].map(|name| config_map(ns, name, json!({})));
    let phases = |first: &Value| json!([phase("a", &[first]), phase("b", &[&kept, &other])]);
    let controller = fixture.controller();
    let name = fixture.revision(ns, 1, phases(&earlier), unmodified).await;
    fixture.until_succeeded(&name).await;
    // The policy takes effect with a delay.
    let maps: Api<ConfigMap> = Api::namespaced(fixture.client(), ns);
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    eventually("the policy is active", async || maps.delete("undeletable", &dry).await.err().map(drop)).await;
    let uid = fixture.sets().get(&name).await.unwrap().metadata.uid.unwrap();
    fixture.delete_revision(&name).await;
    let waits =
        "True/Retrying waiting for deletions that are denied: /v1, Kind=ConfigMap undeletable/undeletable: ";
    let text = fixture.until_condition(&name, "Progressing", waits).await;
    assert!(text.contains("not this one"), "{text}");
    let event = fixture.event(&uid).await;
    assert!(event.starts_with("DeletionDenied /v1, Kind=ConfigMap undeletable/undeletable: "), "{event}");
    fixture.until_object_deleted(&other).await;
    assert!(fixture.get(&earlier).await.is_some(), "the next phase waits");
    controller.stop().await;

    // After the deadline the rest is left to garbage collection, and what stays is named.
    let controller = fixture.controller_without_ordered_removal();
    fixture.until_deleted(&name).await;
    assert!(fixture.get(&kept).await.is_some());
    objects_left_are_named(fixture).await;
    removal_waits_while_a_revision_is_active(fixture, ns, &other).await;
    controller.stop().await;
}

async fn objects_left_are_named(fixture: &Fixture) {
    let denied = crd("undeletables", "Undeletable");
    let name = fixture.revision("undeletable-crd", 2, json!([phase("a", &[&denied])]), unmodified).await;
    fixture.until_succeeded(&name).await;
    let uid = fixture.sets().get(&name).await.unwrap().metadata.uid.unwrap();
    fixture.delete_revision(&name).await;
    fixture.until_deleted(&name).await;
    let event = fixture.event(&uid).await;
    let left = "ObjectsLeft revision undeletable-crd-2 is removed, but objects are left, because their deletion is denied: \
                apiextensions.k8s.io/v1, Kind=CustomResourceDefinition /undeletables.acme.example: ";
    assert!(event.starts_with(left) && event.contains("not this one"), "{event}");
    assert!(fixture.get(&denied).await.is_some());
}

// A webhook that does not answer denies a deletion, too.
pub(super) async fn deletion_that_a_lost_webhook_denies_is_reported(fixture: &Fixture) {
    let ns = "unhooked";
    fixture.namespace(ns).await;
    let [kept, other] = ["kept", "other"].map(|name| config_map(ns, name, json!({})));
    let name = fixture.revision(ns, 1, json!([phase("a", &[&kept, &other])]), unmodified).await;
    fixture.until_succeeded(&name).await;
    let webhook = json!({"name": "lost.acme.example", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/"}, "matchConditions": [
            {"name": "kept", "expression": "request.namespace == 'unhooked' && request.name == 'kept'"}],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["configmaps"]}]});
    let lost = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": ns}, "webhooks": [webhook]});
    fixture.create(&lost).await;
    let maps: Api<ConfigMap> = Api::namespaced(fixture.client(), ns);
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    eventually("the webhook is called", async || maps.delete("kept", &dry).await.err().map(drop)).await;
    let uid = fixture.sets().get(&name).await.unwrap().metadata.uid.unwrap();
    fixture.delete_revision(&name).await;
    let waits = "True/Retrying waiting for deletions that are denied: /v1, Kind=ConfigMap unhooked/kept: ";
    let text = fixture.until_condition(&name, "Progressing", waits).await;
    assert!(text.contains("failed calling webhook \"lost.acme.example\""), "{text}");
    let event = fixture.event(&uid).await;
    assert!(event.starts_with("DeletionDenied /v1, Kind=ConfigMap unhooked/kept: "), "{event}");
    fixture.until_object_deleted(&other).await;
    fixture.delete(&lost).await;
    fixture.until_deleted(&name).await;
    assert!(fixture.get(&kept).await.is_none());
}

async fn removal_waits_while_a_revision_is_active(fixture: &Fixture, ns: &str, other: &Value) {
    let first = fixture.revision("undeletable-map", 1, json!([phase("a", &[other])]), unmodified).await;
    fixture.until_succeeded(&first).await;
    let waits = |set: &mut Value| {
        set["spec"]["progressionProbes"] = json!([field_value("", "ConfigMap", "data.k", "v")]);
    };
    let (extra, again) = (crd("undeletableextras", "Extra"), config_map(ns, "again", json!({})));
    let pending = json!([phase("a", &[&extra]), phase("b", &[&again])]);
    let second = fixture.revision("undeletable-map", 2, pending, waits).await;
    fixture.until_exists(&again).await;
    fixture.delete_revision(&second).await;
    let denied =
        "False/Blocked deletions are denied: apiextensions.k8s.io/v1, Kind=CustomResourceDefinition ";
    fixture.until_condition(&second, "Progressing", denied).await;
    fixture
        .delete(&json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": ns}}))
        .await;
    fixture.until_deleted(&second).await;
}
