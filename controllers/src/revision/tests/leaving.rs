//! Archived and deleted revisions.

use std::time::Duration;

use olm_servers::{Call, Fault, Proxy, Rule};
use serde_json::{Value, json};

use super::world::{PACE, Running, World, config_map, crd, custom, eventually, phase, plain};

// Cases apply-10, apply-34, apply-35, api-45, api-46
pub(super) async fn archived_revision_deletes_objects_that_successor_does_not_list(world: &World) {
    let ns = "leaving";
    world.namespace(ns).await;
    let [both, dropped] = ["both", "dropped"].map(|name| config_map(ns, name, json!({})));
    let first = world.revision(ns, 1, json!([phase("a", &[&both, &dropped])]), plain).await;
    world.succeeds(&first).await;
    let second = world.revision(ns, 2, json!([phase("a", &[&both])]), plain).await;
    world.succeeds(&second).await;
    world.says(&first, "Progressing", "False/Archived revision is archived").await;
    let condition = async |type_: &str| world.condition(&first, type_).await.unwrap();
    assert_eq!(condition("Available").await, "Unknown/Archived revision is archived");
    assert_eq!(condition("Succeeded").await, "True/Succeeded Revision succeeded rolling out.");
    world.vanishes(&dropped).await;
    let live = world.get(&both).await.unwrap();
    assert_eq!(live["metadata"]["ownerReferences"].as_array().unwrap().len(), 1);
    eventually("our finalizer is removed", async || {
        let set = world.sets().get(&first).await.unwrap();
        set.metadata.finalizers.is_none_or(|finalizers| finalizers.is_empty()).then_some(())
    })
    .await;
    let back = kube::api::Patch::Merge(json!({"spec": {"lifecycleState": "Active"}}));
    let refused = world.sets().patch(&first, &Default::default(), &back).await.unwrap_err().to_string();
    assert!(refused.contains("cannot un-archive"), "{refused}");
    world.delete_revision(&second).await;
    world.leaves(&second).await;
    world.vanishes(&both).await;
}

// docs/design/apply.md#objects-handed-over: an upgrade that drops a CRD deletes no custom resource.
pub(super) async fn archived_revision_retains_crd_in_use(world: &World) {
    let ns = "spared";
    world.namespace(ns).await;
    let (definition, map) = (crd("spareds", "Spared"), config_map(ns, "a", json!({})));
    let first =
        world.revision(ns, 1, json!([phase("crds", &[&definition]), phase("b", &[&map])]), plain).await;
    world.succeeds(&first).await;
    let [one, two] = ["one", "two"].map(|name| custom("Spared", ns, name));
    world.create(&one).await;
    world.create(&two).await;
    let second = world.revision(ns, 2, json!([phase("c", &[&config_map(ns, "c", json!({}))])]), plain).await;
    world.succeeds(&second).await;
    assert_eq!(
        world.says(&first, "Progressing", "False/").await,
        "False/Blocked cannot delete CustomResourceDefinition spareds.acme.example: 2 custom resources exist \
         (first: acme.example/v1, Kind=Spared spared/one)"
    );
    world.vanishes(&map).await;
    // Nor does deleting the archived revision.
    world.delete_revision(&first).await;
    world.delete(&one).await;
    world
        .says(
            &first,
            "Progressing",
            "False/Blocked cannot delete CustomResourceDefinition spareds.acme.example: 1 ",
        )
        .await;
    assert!(world.get(&definition).await.is_some());
    world.delete(&two).await;
    world.leaves(&first).await;
    world.vanishes(&definition).await;
}

// Case additions-a50
pub(super) async fn uninstall_policy_keep_crds_retains_crds(world: &World) {
    let ns = "kept";
    world.namespace(ns).await;
    let (definition, map) = (crd("kepts", "Kept"), config_map(ns, "a", json!({})));
    let keep = |set: &mut serde_json::Value| {
        set["metadata"]["annotations"]["ext.olm.operatorframework.io/uninstall-policy"] = json!("KeepCRDs");
    };
    let name = world.revision(ns, 1, json!([phase("crds", &[&definition]), phase("b", &[&map])]), keep).await;
    world.succeeds(&name).await;
    let resource = custom("Kept", ns, "one");
    world.create(&resource).await;
    world.delete_revision(&name).await;
    world.leaves(&name).await;
    assert!(world.get(&resource).await.is_some() && world.get(&map).await.is_none());
    let live = world.get(&definition).await.unwrap();
    assert_eq!(live["metadata"]["ownerReferences"], json!(null));
    assert_eq!(live["metadata"]["labels"], json!(null));
    // The recreated extension adopts the CRD.
    let again = world.revision(ns, 1, json!([phase("crds", &[&definition])]), plain).await;
    world.succeeds(&again).await;
    let live = world.get(&definition).await.unwrap();
    assert_eq!(live["metadata"]["ownerReferences"][0]["name"], again);
    assert_eq!(live["metadata"]["annotations"].get("ext.olm.operatorframework.io/kept-for"), None);
    assert!(world.get(&resource).await.is_some());

    // Also if the content is lost, together with the label by which its objects are found.
    let ns = "lost";
    world.namespace(ns).await;
    let (definition, map) = (crd("losts", "Lost"), config_map(ns, "a", json!({})));
    let name = world.revision(ns, 1, stored(world, ns, &[&definition, &map]).await, keep).await;
    world.succeeds(&name).await;
    world.delete(&secret(ns)).await;
    world.edit(&definition, json!({"metadata": {"labels": null}})).await;
    world.delete_revision(&name).await;
    world.leaves(&name).await;
    assert_eq!(world.get(&definition).await.unwrap()["metadata"]["ownerReferences"], json!(null));
    assert_eq!(world.get(&map).await, None);
}

pub(super) fn secret(namespace: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "content", "namespace": namespace}})
}

/// Returns one phase of objects that are stored in the Secret `content`.
pub(super) async fn stored(world: &World, namespace: &str, objects: &[&Value]) -> Value {
    let key = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    let keys: Vec<String> = objects.iter().map(|object| key(object)).collect();
    let texts = objects.iter().map(|object| object.to_string().into_bytes());
    let data: Vec<(&str, Vec<u8>)> = keys.iter().map(String::as_str).zip(texts).collect();
    world.secret(namespace, "content", true, &data).await;
    let refers = |key: &String| json!({"ref": {"name": "content", "namespace": namespace, "key": key}});
    json!([{"name": "stored", "objects": keys.iter().map(refers).collect::<Vec<_>>()}])
}

// Its successors would collide forever with the objects that it controls.
pub(super) async fn archived_revision_without_content_releases_objects(world: &World) {
    let ns = "forgetful";
    world.namespace(ns).await;
    let [both, dropped, held] = ["both", "dropped", "held"].map(|name| config_map(ns, name, json!({})));
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "forgetful"}, "rules": []});
    let first = world.revision(ns, 1, stored(world, ns, &[&both, &dropped, &role]).await, plain).await;
    world.succeeds(&first).await;
    let second = world
        .revision(ns, 2, json!([phase("a", &[&held]), phase("b", &[&both])]), |set| {
            let selector = json!({"type": "Label", "label": {"matchLabels": {"holds": "yes"}}});
            set["spec"]["phases"][0]["objects"][0]["object"]["metadata"]["labels"] = json!({"holds": "yes"});
            set["spec"]["progressionProbes"] = json!([{"selector": selector,
                "assertions": [{"type": "FieldValue", "fieldValue": {"fieldPath": "data.ready", "value": "yes"}}]}]);
        })
        .await;
    world.says(&second, "Available", "False/ProbeFailure ").await;
    // The new Secret has other content than the applied one.
    let other = held.to_string().into_bytes();
    let data = ["both", "dropped", "forgetful"].map(|key| (key, other.clone()));
    world.secret(ns, "content", true, &data).await;
    world.patch(&first, json!({"spec": {"lifecycleState": "Archived"}})).await;
    world.says(&first, "Progressing", "False/Archived revision is archived").await;
    assert_eq!((world.get(&dropped).await, world.get(&role).await), (None, None));
    let controller = async |object: &Value| {
        let live = world.get(object).await.unwrap();
        let owners = live["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
        owners.iter().map(|owner| owner["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(controller(&both).await, [second.as_str()]);
    world.edit(&held, json!({"data": {"ready": "yes"}})).await;
    world.succeeds(&second).await;
}

/// Removes the record from a revision whose content cannot be read, so that it is not recorded again.
async fn forget_record(world: &World, name: &str) {
    world.says(name, "Progressing", "True/Retrying ").await;
    world
        .patch(name, json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/objects": null}}}))
        .await;
}

/// Makes a revision wait for its first ConfigMap.
fn waits(set: &mut Value) {
    let probe = json!({"fieldPath": "data.ready", "value": "yes"});
    set["spec"]["progressionProbes"] = json!([{
        "selector": {"type": "GroupKind", "groupKind": {"group": "", "kind": "ConfigMap"}},
        "assertions": [{"type": "FieldValue", "fieldValue": probe}]}]);
}

// Garbage collection removes the rest once the revision is deleted.
pub(super) async fn archived_revision_without_content_or_record_hands_over_and_blocks(world: &World) {
    let ns = "unrecorded";
    world.namespace(ns).await;
    let [both, dropped, held] = ["both", "dropped", "held"].map(|name| config_map(ns, name, json!({})));
    let first = world.revision(ns, 1, stored(world, ns, &[&both, &dropped]).await, plain).await;
    world.succeeds(&first).await;
    world.delete(&secret(ns)).await;
    world.edit(&both, json!({"data": {"k": "v"}})).await;
    forget_record(world, &first).await;
    let phases = json!([phase("a", &[&held]), phase("b", &[&both])]);
    let second = world.revision(ns, 2, phases, waits).await;
    world.says(&second, "Available", "False/ProbeFailure ").await;
    world.patch(&first, json!({"spec": {"lifecycleState": "Archived"}})).await;
    let text = world.says(&first, "Progressing", "False/Blocked ").await;
    assert_eq!(
        text,
        "False/Blocked what revision unrecorded-1 lists is not known: resolving ref in phase \"stored\": getting Secret \
         unrecorded/content: Secret \"content\" not found; delete this revision to remove its objects"
    );
    let owner = async |object: &Value| {
        world.get(object).await.unwrap()["metadata"]["ownerReferences"][0]["name"].clone()
    };
    assert_eq!((owner(&both).await, owner(&dropped).await), (json!(second), json!(first)));
    world.delete_revision(&first).await;
    world.leaves(&first).await;
    assert_eq!(owner(&both).await, json!(second));
}

// Without its extension no controller restores that Secret.
pub(super) async fn archived_revision_hands_over_to_sibling_without_secret(world: &World) {
    let ns = "heirless";
    world.namespace(ns).await;
    let [both, missing] = ["both", "missing"].map(|name| config_map(ns, name, json!({})));
    let first = world.revision(ns, 1, json!([phase("a", &[&both])]), plain).await;
    world.succeeds(&first).await;
    let second = world.revision(ns, 2, stored(world, ns, &[&missing, &both]).await, |set| {
        waits(set);
        set["spec"]["phases"] = json!([{"name": "first", "objects": [set["spec"]["phases"][0]["objects"][0]]},
            {"name": "second", "objects": [set["spec"]["phases"][0]["objects"][1]]}]);
    });
    let second = second.await;
    world.says(&second, "Available", "False/ProbeFailure ").await;
    world.delete(&secret(ns)).await;
    world.patch(&first, json!({"spec": {"lifecycleState": "Archived"}})).await;
    world.says(&first, "Progressing", "False/Archived ").await;
    assert_eq!(world.get(&both).await.unwrap()["metadata"]["ownerReferences"][0]["name"], second);
}

// Lexical order of the names differs: revision 10 sorts before revision 9.
pub(super) async fn superseded_revisions_are_archived_oldest_first_and_adopt_nothing(world: &World) {
    let ns = "superseded";
    world.namespace(ns).await;
    let proxy = Proxy::start(world.plane.kubeconfig()).await.unwrap();
    let controller = Running::start(proxy.kubeconfig(), None, PACE);
    let [kept, dropped] = ["kept", "dropped"].map(|name| config_map(ns, name, json!({})));
    for number in [9, 10] {
        let name = world.revision(ns, number, json!([phase("a", &[&kept, &dropped])]), waits).await;
        world.says(&name, "Available", "False/ProbeFailure ").await;
    }
    let last = world.revision(ns, 11, json!([phase("a", &[&kept])]), plain).await;
    world.succeeds(&last).await;
    for number in [9, 10] {
        world.says(&format!("{ns}-{number}"), "Progressing", "False/Archived ").await;
    }
    world.vanishes(&dropped).await;
    let calls = proxy.calls(0);
    let body = |call: &Call| serde_json::from_slice::<Value>(&call.body).unwrap_or_default();
    let archived = calls.iter().filter(|call| body(call)["spec"]["lifecycleState"] == "Archived");
    let archived: Vec<&str> = archived.map(|call| call.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(archived.first(), Some(&"superseded-9"), "{archived:?}");
    let first = calls.iter().position(|call| body(call)["spec"]["lifecycleState"] == "Archived").unwrap();
    // Unlike a change of owner, an apply contains the kind.
    let is_heir = |call: &&Call| {
        call.path.ends_with("/configmaps/dropped")
            && body(call)["kind"].is_null()
            && body(call)["metadata"]["annotations"]["olm.operatorframework.io/revision"].is_string()
    };
    let inherited: Vec<String> = calls[first..].iter().filter(is_heir).map(Call::line).collect();
    assert_eq!(inherited, [""; 0]);
    controller.stop().await;
}

pub(super) async fn finalizer_added_during_removal_is_retained(world: &World) {
    let ns = "finalized";
    world.namespace(ns).await;
    let proxy = Proxy::start(world.plane.kubeconfig()).await.unwrap();
    let controller = Running::start(proxy.kubeconfig(), None, PACE);
    let map = config_map(ns, "a", json!({}));
    let name = world.revision(ns, 1, json!([phase("a", &[&map])]), plain).await;
    world.succeeds(&name).await;
    // Delays the removal of our finalizer.
    let path = format!("/clusterobjectsets/{name}");
    let slow = Rule::new(Fault::Delay(Duration::from_secs(2)), move |call| {
        call.method == http::Method::PATCH && call.path.ends_with(&path)
    });
    let slow = proxy.add(slow);
    world.patch(&name, json!({"spec": {"lifecycleState": "Archived"}})).await;
    proxy.wait_for_hits(slow, 1, Duration::from_secs(20)).await.unwrap();
    let both = json!(["olm.operatorframework.io/teardown", "acme.example/hold"]);
    world.patch(&name, json!({"metadata": {"finalizers": both}})).await;
    eventually("our finalizer is removed", async || {
        let set = world.sets().get(&name).await.unwrap();
        let finalizers = set.metadata.finalizers.unwrap_or_default();
        (!finalizers.iter().any(|one| one.contains("teardown"))).then_some(finalizers)
    })
    .await;
    let set = world.sets().get(&name).await.unwrap();
    assert_eq!(set.metadata.finalizers, Some(vec!["acme.example/hold".to_owned()]));
    controller.stop().await;
}

// Garbage collection deletes the rest, except for objects that the successor lists.
pub(super) async fn late_removal_hands_over_objects_of_successor(world: &World) {
    let ns = "hasty";
    world.namespace(ns).await;
    let controller = world.impatient_controller();
    let [both, dropped, missing] = ["both", "dropped", "missing"].map(|name| config_map(ns, name, json!({})));
    let first = world.revision(ns, 1, stored(world, ns, &[&both, &dropped]).await, plain).await;
    world.succeeds(&first).await;
    let held = json!([phase("a", &[&missing]), phase("b", &[&both])]);
    let second = world.revision(ns, 2, held, waits).await;
    world.says(&second, "Available", "False/ProbeFailure ").await;
    world.delete(&secret(ns)).await;
    world.delete_revision(&first).await;
    world.leaves(&first).await;
    let owner = async |object: &Value| {
        world.get(object).await.unwrap()["metadata"]["ownerReferences"][0]["name"].clone()
    };
    assert_eq!((owner(&both).await, owner(&dropped).await), (json!(second), json!(first)));

    // A possible new owner with unknown content delays the removal and is reported.
    let ns = "unknown";
    world.namespace(ns).await;
    let [both, missing] = ["both", "missing"].map(|name| config_map(ns, name, json!({})));
    let first = world.revision(ns, 1, json!([phase("a", &[&both])]), plain).await;
    world.succeeds(&first).await;
    let second = world.revision(ns, 2, stored(world, ns, &[&missing, &both]).await, waits).await;
    world.says(&second, "Available", "False/ProbeFailure ").await;
    world.delete(&secret(ns)).await;
    world.edit(&missing, json!({"data": {"k": "v"}})).await;
    forget_record(world, &second).await;
    world.delete_revision(&first).await;
    let told =
        "False/Blocked what revision unknown-2 lists is not known: resolving ref in phase \"stored\": ";
    world.says(&first, "Progressing", told).await;
    stored(world, ns, &[&missing, &both]).await;
    world.leaves(&first).await;
    controller.stop().await;
}

// docs/design/apply.md#recreated-extensions: objects that the recreated extension lists are not deleted with its
// earlier revisions.
pub(super) async fn revision_of_former_extension_hands_over_to_recreated_one(world: &World) {
    let ns = "former";
    world.namespace(ns).await;
    let [both, dropped, held] = ["both", "dropped", "held"].map(|name| config_map(ns, name, json!({})));
    let of = |set: &mut Value, uid: &str, kind: &str| {
        set["metadata"]["ownerReferences"] = json!([{"apiVersion": "olm.operatorframework.io/v1", "kind": kind,
            "name": ns, "uid": uid, "controller": true}]);
    };
    let first = world
        .revision(ns, 1, json!([phase("a", &[&both, &dropped])]), |set| of(set, "1", "ClusterExtension"));
    let first = first.await;
    world.succeeds(&first).await;
    // A revision with another controller is no sibling (docs/design/apply.md#revision-membership).
    let stranger =
        world.revision(ns, 7, json!([phase("a", &[&dropped])]), |set| of(set, "1", "Whatever")).await;
    world.says(&stranger, "Progressing", "True/Retrying revision object collisions in phase 0").await;
    let waits = |set: &mut Value| {
        of(set, "2", "ClusterExtension");
        let selector = json!({"type": "Label", "label": {"matchLabels": {"holds": "yes"}}});
        set["spec"]["phases"][0]["objects"][0]["object"]["metadata"]["labels"] = json!({"holds": "yes"});
        set["spec"]["progressionProbes"] = json!([{"selector": selector,
            "assertions": [{"type": "FieldValue", "fieldValue": {"fieldPath": "data.ready", "value": "yes"}}]}]);
    };
    let phases = json!([phase("a", &[&held]), phase("b", &[&both])]);
    let second = world.revision(ns, 2, phases, waits).await;
    world.says(&second, "Available", "False/ProbeFailure ").await;
    let uid = world.get(&both).await.unwrap()["metadata"]["uid"].clone();
    world.delete_revision(&first).await;
    world.leaves(&first).await;
    let live = world.get(&both).await.unwrap();
    assert_eq!(
        (&live["metadata"]["uid"], &live["metadata"]["ownerReferences"][0]["name"]),
        (&uid, &json!(second))
    );
}

pub(super) async fn unknown_uninstall_policy_removes_nothing(world: &World) {
    let ns = "policy";
    world.namespace(ns).await;
    let map = config_map(ns, "a", json!({}));
    let policy = |policy: &str| json!({"metadata": {"annotations": {"ext.olm.operatorframework.io/uninstall-policy": policy}}});
    let name = world.revision(ns, 1, json!([phase("a", &[&map])]), plain).await;
    world.succeeds(&name).await;
    world.patch(&name, policy("Keep")).await;
    world.delete_revision(&name).await;
    world
        .says(
            &name,
            "Progressing",
            "False/Blocked annotation ext.olm.operatorframework.io/uninstall-policy: ",
        )
        .await;
    assert!(world.get(&map).await.is_some());
    world.patch(&name, policy("Delete")).await;
    world.leaves(&name).await;
    assert_eq!(world.get(&map).await, None);
}
