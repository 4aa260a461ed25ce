//! Custom resources of revisions that are deleted.

use kube::api::{DeleteParams, PostParams};
use olm_api::ClusterObjectSet;
use serde_json::{Value, json};

use super::world::{Running, World, config_map, crd, custom, deployment, eventually, phase, plain};

const POLICY: &str = "ext.olm.operatorframework.io/uninstall-policy";

fn held(kind: &str, namespace: &str) -> Value {
    let mut resource = custom(kind, namespace, "one");
    resource["metadata"]["finalizers"] = json!(["acme.example/cleanup"]);
    resource
}

async fn let_go(world: &World, resource: &Value) {
    world.edit(resource, json!({"metadata": {"finalizers": null}})).await;
}

pub(super) async fn custom_resources_are_deleted_before_operator(world: &World) {
    let ns = "cleaning";
    world.namespace(ns).await;
    let (definition, operator) = (crd("cleaneds", "Cleaned"), deployment(ns, "operator"));
    let phases = json!([phase("crds", &[&definition]), phase("deploy", &[&operator])]);
    let name = world.revision(ns, 1, phases, plain).await;
    world.exists(&operator).await;
    let ready = json!({"status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1,
        "availableReplicas": 1, "conditions": [{"type": "Available", "status": "True"}]}});
    world.edit_status(&operator, ready).await;
    world.succeeds(&name).await;
    let resource = held("Cleaned", ns);
    world.create(&resource).await;
    world.delete_revision(&name).await;
    let waits = "True/Retrying waiting for 1 cleaneds.acme.example (first: cleaning/one): finalizer acme.example/cleanup";
    assert_eq!(world.says(&name, "Progressing", "True/Retrying waiting").await, waits);
    let live = world.get(&operator).await.unwrap();
    assert_eq!(live["metadata"]["deletionTimestamp"], json!(null));
    let_go(world, &resource).await;
    world.leaves(&name).await;
    assert_eq!((world.get(&definition).await, world.get(&operator).await), (None, None));
}

pub(super) async fn custom_resources_without_operator_are_reported(world: &World) {
    let ns = "stuck";
    world.namespace(ns).await;
    let (definition, map) = (crd("stucks", "Stuck"), config_map(ns, "a", json!({})));
    let phases = json!([phase("crds", &[&definition]), phase("b", &[&map])]);
    let name = world.revision(ns, 1, phases.clone(), plain).await;
    world.succeeds(&name).await;
    let uid = world.sets().get(&name).await.unwrap().metadata.uid.unwrap();
    let resource = held("Stuck", ns);
    world.create(&resource).await;
    world.delete_revision(&name).await;
    world.leaves(&name).await;
    assert_eq!(world.get(&map).await, None);
    let left = "1 stucks.acme.example (first: stuck/one): finalizer acme.example/cleanup";
    assert_eq!(
        world.event(&uid).await,
        format!(
            "CustomResourcesLeft revision stuck-1 is removed, but custom resources are left: {left}; remove their \
             finalizers if the operator cannot"
        )
    );
    // A reinstallation under another name waits for the deletion of the CRD.
    let again = world.revision("unstuck", 1, phases, plain).await;
    let waits = format!(
        "True/Retrying waiting for the deletion of CustomResourceDefinition stucks.acme.example, which waits for {left}"
    );
    assert_eq!(world.says(&again, "Progressing", "True/Retrying").await, waits);
    let_go(world, &resource).await;
    world.succeeds(&again).await;
}

// docs/design/additions.md#uninstall-policy: the second owner is present only while the annotation demands it.
pub(super) async fn retained_crd_has_second_owner_while_policy_demands_it(world: &World) {
    let ns = "second";
    world.namespace(ns).await;
    let definition = crd("seconds", "Second");
    let name = world.revision(ns, 1, json!([phase("crds", &[&definition])]), plain).await;
    world.succeeds(&name).await;
    assert_eq!(world.owners(&definition).await, Some(vec![name.clone()]));
    for (policy, owners) in [
        (json!("KeepCRDs"), vec![name.as_str(), "kube-system"]),
        (Value::Null, vec![name.as_str()]),
        (json!("BlockIfInUse"), vec![name.as_str(), "kube-system"]),
        (json!("Delete"), vec![name.as_str()]),
    ] {
        world.patch(&name, json!({"metadata": {"annotations": {POLICY: policy}}})).await;
        eventually("the owners match the policy", async || {
            (world.owners(&definition).await? == owners).then_some(())
        })
        .await;
    }
    world.delete_revision(&name).await;
    world.leaves(&name).await;
}

/// Waits until the garbage collector, which started before our CRDs existed, watches revisions.
async fn collecting(world: &World) {
    let owner = json!([{"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterExtension", "name": "nobody",
        "uid": "00000000-0000-0000-0000-000000000000"}]);
    let set: ClusterObjectSet = serde_json::from_value(json!({
        "apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet",
        "metadata": {"name": "nobody-1", "ownerReferences": owner},
        "spec": {"lifecycleState": "Archived", "revision": 1, "collisionProtection": "Prevent"}}))
    .unwrap();
    world.sets().create(&PostParams::default(), &set).await.unwrap();
    world.leaves("nobody-1").await;
}

/// Creates a revision with this policy and deletes it in the foreground. Returns its CRD and a custom resource.
async fn deleted_in_foreground(
    world: &World,
    ns: &str,
    plural: &str,
    kind: &str,
    policy: &str,
) -> [Value; 2] {
    world.namespace(ns).await;
    let (definition, map) = (crd(plural, kind), config_map(ns, "a", json!({})));
    let phases = json!([phase("crds", &[&definition]), phase("b", &[&map])]);
    let annotate = |set: &mut Value| set["metadata"]["annotations"][POLICY] = json!(policy);
    let name = world.revision(ns, 1, phases, annotate).await;
    world.succeeds(&name).await;
    let resource = custom(kind, ns, "one");
    world.create(&resource).await;
    world.sets().delete(&name, &DeleteParams::foreground()).await.unwrap();
    world.vanishes(&map).await;
    [definition, resource]
}

pub(super) async fn retained_crd_survives_foreground_deletion(world: &World) {
    collecting(world).await;
    let ns = "foreground";
    let [definition, resource] = deleted_in_foreground(world, ns, "lasts", "Last", "KeepCRDs").await;
    world.leaves("foreground-1").await;
    assert!(world.get(&resource).await.is_some());
    assert_eq!(world.owners(&definition).await, Some(vec![]));
    let again = world.revision(ns, 2, json!([phase("crds", &[&definition])]), plain).await;
    world.succeeds(&again).await;
    assert_eq!(world.owners(&definition).await, Some(vec![again.clone()]));
    assert!(world.get(&resource).await.is_some());
    world.delete_revision(&again).await;
    world.leaves(&again).await;

    let [definition, resource] = deleted_in_foreground(world, "busy", "busies", "Busy", "BlockIfInUse").await;
    let blocked =
        "False/Blocked cannot delete CustomResourceDefinition busies.acme.example: 1 custom resources exist";
    world.says("busy-1", "Progressing", blocked).await;
    world.delete(&resource).await;
    world.leaves("busy-1").await;
    world.vanishes(&definition).await;
}

// No object stays in Terminating without being reported.
pub(super) async fn foreground_deletion_reports_remaining_custom_resources(world: &World) {
    let ns = "named";
    world.namespace(ns).await;
    let definition = crd("nameds", "Named");
    let name = world.revision(ns, 1, json!([phase("crds", &[&definition])]), plain).await;
    world.succeeds(&name).await;
    let resource = held("Named", ns);
    world.create(&resource).await;
    world.sets().delete(&name, &DeleteParams::foreground()).await.unwrap();
    let left = "False/Blocked revision named-1 is removed, but custom resources are left: 1 nameds.acme.example \
                (first: named/one): finalizer acme.example/cleanup; ";
    world.says(&name, "Progressing", left).await;
    let_go(world, &resource).await;
    world.leaves(&name).await;
}

// Also when forced, without a controller that could remove owner references.
pub(super) async fn retained_crd_survives_uninstall_of_olm(world: &World, controller: Running) {
    let ns = "permanent";
    world.namespace(ns).await;
    let definition = crd("permanents", "Permanent");
    let keep = |set: &mut Value| set["metadata"]["annotations"][POLICY] = json!("KeepCRDs");
    let name = world.revision(ns, 1, json!([phase("crds", &[&definition])]), keep).await;
    world.succeeds(&name).await;
    let resource = custom("Permanent", ns, "one");
    world.create(&resource).await;
    controller.stop().await;
    world.patch(&name, json!({"metadata": {"finalizers": null}})).await;
    world.delete_revision(&name).await;
    eventually("only the second owner is left", async || {
        (world.owners(&definition).await? == ["kube-system"]).then_some(())
    })
    .await;
    let of_olm = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "clusterobjectsets.olm.operatorframework.io"}});
    world.delete(&of_olm).await;
    world.vanishes(&of_olm).await;
    assert!(world.get(&definition).await.is_some() && world.get(&resource).await.is_some());
}
