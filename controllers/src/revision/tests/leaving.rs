//! Revisions that are archived or deleted.

use serde_json::json;

use super::world::{World, config_map, crd, custom, eventually, phase, plain};

// spec 05 acceptance 10, 34, 35, spec 01 acceptance 45, 46
pub(super) async fn archived_revisions_leave_nothing(world: &World) {
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
    eventually("the finalizer is gone", async || {
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

// spec 05 §18.4: an upgrade that drops a definition loses no custom resource
pub(super) async fn definitions_in_use_are_spared(world: &World) {
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
    // Nor does the end of its history.
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

// spec 07 A-50
pub(super) async fn definitions_can_be_kept(world: &World) {
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

    // Also where the content is lost: then everything else is left to garbage collection.
    let ns = "lost";
    let definition = crd("losts", "Lost");
    world.secret("default", ns, true, &[("k", definition.to_string().into_bytes())]).await;
    let phases =
        json!([{"name": "crds", "objects": [{"ref": {"name": ns, "namespace": "default", "key": "k"}}]}]);
    let name = world.revision(ns, 1, phases, keep).await;
    world.succeeds(&name).await;
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": ns, "namespace": "default"}});
    world.delete(&secret).await;
    world.delete_revision(&name).await;
    world.leaves(&name).await;
    assert_eq!(world.get(&definition).await.unwrap()["metadata"]["ownerReferences"], json!(null));
}

pub(super) async fn an_unknown_policy_removes_nothing(world: &World) {
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
