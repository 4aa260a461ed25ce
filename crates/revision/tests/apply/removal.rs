//! Removal of revisions.

use olm_revision::engine::Revision;
use olm_revision::result::Action;
use olm_revision::teardown::{CrdPolicy, TeardownOptions};
use serde_json::{Value, json};

use crate::world::{World, actions, config_map, crd, deployment, owner_names, phase, until};

// Case apply-34
pub(crate) async fn teardown_waits_for_each_phase(world: &World) {
    let ns = "teardown";
    world.namespace(ns).await;
    let (first, last) = (config_map(ns, "first", json!({})), config_map(ns, "last", json!({})));
    let revision = world.revision("teardown", 1, vec![phase("a", &[&first]), phase("b", &[&last])]).await;
    world.complete(&revision).await;
    world.edit(&last, json!({"metadata": {"finalizers": ["acme.example/hold"]}})).await;
    let options = TeardownOptions::default();
    for _ in 0..2 {
        let result = world.engine.teardown(&revision, &options).await.unwrap();
        assert_eq!(result.waiting.iter().map(|key| key.name.as_str()).collect::<Vec<_>>(), ["last"]);
    }
    // Nothing is written while an object is being deleted.
    assert_eq!(actions(&world.reconcile(&revision).await), [Action::Idle, Action::Idle]);
    assert!(world.get(&first).await.is_some());
    world.edit(&last, json!({"metadata": {"finalizers": null}})).await;
    assert!(world.engine.teardown(&revision, &options).await.unwrap().is_complete());
    assert_eq!(world.get(&first).await, None);
}

// docs/design/apply.md#removal: a deletion leaves objects without another owner to garbage collection.
pub(crate) async fn final_teardown_keeps_the_last_owner_reference(world: &World) {
    let ns = "last";
    world.namespace(ns).await;
    let map = config_map(ns, "a", json!({}));
    let revision = world.revision("last", 1, vec![phase("a", &[&map])]).await;
    world.complete(&revision).await;
    let mut owners = world.get(&map).await.unwrap()["metadata"]["ownerReferences"].clone();
    owners[0]["controller"] = json!(false);
    world.edit(&map, json!({"metadata": {"ownerReferences": owners}})).await;
    for (is_final, expect) in [(true, vec![("last-1".to_owned(), Some(false))]), (false, vec![])] {
        let options = TeardownOptions { is_final, ..TeardownOptions::default() };
        // A removal does not process a completed object again.
        world.engine.forget(&revision.owner.uid);
        assert!(world.engine.teardown(&revision, &options).await.unwrap().is_complete());
        assert_eq!(owner_names(&world.get(&map).await.unwrap()), expect);
    }
}

pub(crate) async fn crd_in_use_blocks_or_is_kept_by_policy(world: &World) {
    let ns = "in-use";
    world.namespace(ns).await;
    let definition = crd("gadgets", "Gadget");
    let mut revision = world.revision("in-use", 1, vec![phase("crds", &[&definition])]).await;
    revision.probes = Default::default();
    world.complete(&revision).await;
    let gadget = json!({"apiVersion": "acme.example/v1", "kind": "Gadget", "metadata": {"name": "g", "namespace": ns}});
    world.create(&gadget).await;
    let policy = |crds| TeardownOptions { crds, ..TeardownOptions::default() };
    let result = world.engine.teardown(&revision, &policy(CrdPolicy::BlockIfInUse)).await.unwrap();
    assert_eq!(
        result.blocked,
        ["cannot delete CustomResourceDefinition gadgets.acme.example: 1 custom resources exist \
          (first: acme.example/v1, Kind=Gadget in-use/g)"]
    );
    assert!(world.engine.teardown(&revision, &policy(CrdPolicy::Keep)).await.unwrap().is_complete());
    let live = world.get(&definition).await.unwrap();
    assert_eq!(owner_names(&live), []);
    assert_eq!(live["metadata"]["labels"], Value::Null);
    assert!(world.get(&gadget).await.is_some());
}

// docs/design/apply.md#objects-handed-over; cases additions-a49, additions-a50
pub(crate) async fn crds_are_released_before_any_deletion(world: &World) {
    let ns = "saved";
    world.namespace(ns).await;
    let (definition, map) = (crd("gizmos", "Gizmo"), config_map(ns, "a", json!({})));
    let mut revision =
        world.revision("saved", 1, vec![phase("crds", &[&definition]), phase("deploy", &[&map])]).await;
    revision.probes = Default::default();
    world.complete(&revision).await;
    let gizmo =
        json!({"apiVersion": "acme.example/v1", "kind": "Gizmo", "metadata": {"name": "g", "namespace": ns}});
    world.create(&gizmo).await;
    let policy = |crds| TeardownOptions { crds, ..TeardownOptions::default() };
    world.calls();
    // Nothing is deleted while a custom resource exists.
    let result = world.engine.teardown(&revision, &policy(CrdPolicy::BlockIfInUse)).await.unwrap();
    assert_eq!((result.blocked.len(), world.calls()), (1, vec![]));
    // All other objects are deleted.
    let spare = policy(CrdPolicy::SpareIfInUse);
    world.engine.teardown(&revision, &spare).await.unwrap();
    let result = world.engine.teardown(&revision, &spare).await.unwrap();
    assert_eq!((result.blocked.len(), result.waiting.len()), (1, 0));
    assert_eq!(world.calls(), ["delete a"]);
    assert!(world.get(&gizmo).await.is_some());
    // The CRD is released first, while the objects of later phases still exist.
    world.complete(&revision).await;
    world.edit(&map, json!({"metadata": {"finalizers": ["acme.example/hold"]}})).await;
    world.calls();
    let result = world.engine.teardown(&revision, &policy(CrdPolicy::Keep)).await.unwrap();
    assert_eq!(result.waiting.len(), 1);
    assert_eq!(world.calls(), ["merge gizmos.acme.example", "delete a"]);
    assert_eq!(owner_names(&world.get(&definition).await.unwrap()), []);
    world.edit(&map, json!({"metadata": {"finalizers": null}})).await;
    // Only its former extension can adopt it.
    let kept_for = async || {
        let live = world.get(&definition).await.unwrap();
        live["metadata"]["annotations"]["ext.olm.operatorframework.io/kept-for"].clone()
    };
    assert_eq!(kept_for().await, "saved");
    let of_crds = async |extension: &str, number: i64| {
        let revision = world.revision(extension, number, vec![phase("crds", &[&definition])]).await;
        Revision { probes: Default::default(), ..revision }
    };
    let other = world.reconcile(&of_crds("other", 1).await).await;
    assert_eq!(actions(&other), [Action::Collision]);
    let again = of_crds("saved", 2).await;
    world.complete(&again).await;
    assert_eq!(kept_for().await, Value::Null);
    assert_eq!(owner_names(&world.get(&definition).await.unwrap()), [("saved-2".to_owned(), Some(true))]);
    // It is deleted with its last custom resource.
    world.delete(&gizmo).await;
    until(async || world.engine.teardown(&again, &spare).await.unwrap().is_complete().then_some(())).await;
    assert_eq!(world.get(&definition).await, None);
}

pub(crate) async fn crds_are_deleted_before_other_objects(world: &World) {
    let ns = "first";
    world.namespace(ns).await;
    let (definition, map) = (crd("trinkets", "Trinket"), config_map(ns, "a", json!({})));
    let phases = vec![phase("crds", &[&definition]), phase("deploy", &[&map])];
    let mut revision = world.revision("first", 1, phases).await;
    revision.probes = Default::default();
    world.complete(&revision).await;
    let held = json!({"apiVersion": "acme.example/v1", "kind": "Trinket",
        "metadata": {"name": "t", "namespace": ns, "finalizers": ["acme.example/hold"]}});
    world.create(&held).await;
    world.calls();
    let waits = "1 trinkets.acme.example (first: first/t): finalizer acme.example/hold";
    let options = TeardownOptions::default();
    for _ in 0..2 {
        let result = world.engine.teardown(&revision, &options).await.unwrap();
        let waiting: Vec<&str> = result.waiting.iter().map(|key| key.name.as_str()).collect();
        assert_eq!((waiting, result.terminating), (vec!["trinkets.acme.example"], vec![waits.to_owned()]));
    }
    assert_eq!(world.calls(), ["delete trinkets.acme.example"]);
    assert!(world.get(&map).await.is_some());
    // Without an operator the other objects are removed, and the custom resource is reported.
    let options = TeardownOptions { abandons: true, ..options };
    world.engine.teardown(&revision, &options).await.unwrap();
    let result = world.engine.teardown(&revision, &options).await.unwrap();
    assert!(result.is_complete());
    assert_eq!((result.terminating, world.get(&map).await), (vec![waits.to_owned()], None));
    // A reinstallation waits, whatever its name.
    for extension in ["first", "again"] {
        let phases = vec![phase("crds", &[&definition]), phase("deploy", &[&map])];
        let mut again = world.revision(extension, 2, phases).await;
        again.probes = Default::default();
        let result = world.reconcile(&again).await;
        assert_eq!(actions(&result), [Action::Awaited]);
        let text = format!(
            "waiting for the deletion of CustomResourceDefinition trinkets.acme.example, which waits for {waits}"
        );
        assert_eq!((result.obstacle(), result.is_complete()), (Some(text), false));
    }
    world.edit(&held, json!({"metadata": {"finalizers": null}})).await;
    until(async || world.get(&definition).await.is_none().then_some(())).await;
}

// The Service of the webhook must not be deleted earlier: the API server must be able to read stored objects.
pub(crate) async fn conversion_webhook_is_kept_while_needed(world: &World) {
    let ns = "converted";
    world.namespace(ns).await;
    let mut definition = crd("bolts", "Bolt");
    let mut old = definition["spec"]["versions"][0].clone();
    old["name"] = json!("v1alpha1");
    definition["spec"]["versions"][0]["storage"] = json!(false);
    definition["spec"]["versions"].as_array_mut().unwrap().push(old);
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"service": {"name": "s", "namespace": "default", "port": 443}}}});
    let map = config_map(ns, "a", json!({}));
    let phases = vec![phase("crds", &[&definition]), phase("deploy", &[&map])];
    let mut revision = world.revision("converted", 1, phases).await;
    revision.probes = Default::default();
    world.complete(&revision).await;
    let bolt = json!({"apiVersion": "acme.example/v1alpha1", "kind": "Bolt", "metadata": {"name": "b", "namespace": ns}});
    world.create(&bolt).await;
    let spare = TeardownOptions { crds: CrdPolicy::SpareIfInUse, ..TeardownOptions::default() };
    let result = world.engine.teardown(&revision, &spare).await.unwrap();
    assert_eq!((result.blocked.len(), world.get(&map).await.is_some()), (1, true));
    // Two stored versions without a conversion.
    let versions = json!([{"name": "v1", "storage": true}, {"name": "v1alpha1", "storage": false}]);
    let mut edited = definition["spec"]["versions"].clone();
    for (version, change) in edited.as_array_mut().unwrap().iter_mut().zip(versions.as_array().unwrap()) {
        version["storage"] = change["storage"].clone();
    }
    world.edit(&definition, json!({"spec": {"versions": edited}})).await;
    let delete = TeardownOptions::default();
    until(async || {
        let result = world.engine.teardown(&revision, &delete).await.unwrap();
        let text = result.terminating.first()?;
        text.starts_with("bolts.acme.example, which cannot be listed: ").then_some(())
    })
    .await;
    assert!(world.get(&map).await.is_some());
    let abandon = TeardownOptions { abandons: true, ..delete };
    until(async || world.engine.teardown(&revision, &abandon).await.unwrap().is_complete().then_some(()))
        .await;
    until(async || world.get(&definition).await.is_none().then_some(())).await;
    assert_eq!(world.get(&map).await, None);
}

pub(crate) async fn operator_runs_with_a_ready_pod(world: &World) {
    let ns = "running";
    world.namespace(ns).await;
    let deployment = deployment(ns, "op");
    let revision = world.revision("running", 1, vec![phase("deploy", &[&deployment])]).await;
    assert!(!world.engine.has_operator(&revision).await);
    world.reconcile(&revision).await;
    assert!(!world.engine.has_operator(&revision).await);
    world.edit_status(&deployment, json!({"status": {"replicas": 1, "readyReplicas": 1}})).await;
    assert!(world.engine.has_operator(&revision).await);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}});
    world.delete(&namespace).await;
    assert!(!world.engine.has_operator(&revision).await);
}

// docs/design/additions.md#uninstall-policy: a retained CRD must not depend on a webhook that is deleted.
pub(crate) async fn conversion_webhook_is_removed_from_a_kept_crd(world: &World) {
    let mut definition = crd("tools", "Tool");
    let mut old = definition["spec"]["versions"][0].clone();
    (old["name"], old["storage"]) = (json!("v1alpha1"), json!(false));
    definition["spec"]["versions"].as_array_mut().unwrap().push(old);
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"service": {"name": "s", "namespace": "default", "port": 443}}}});
    let mut revision = world.revision("conversion", 1, vec![phase("crds", &[&definition])]).await;
    revision.probes = Default::default();
    world.complete(&revision).await;
    let keep = TeardownOptions { crds: CrdPolicy::Keep, ..TeardownOptions::default() };
    let stored = async |versions: Value| {
        world.edit_status(&definition, json!({"status": {"storedVersions": versions}})).await;
    };
    // The API server itself updates a changed CRD.
    let settled = async || {
        let result = world.engine.teardown(&revision, &keep).await.unwrap();
        result.waiting.is_empty().then_some(result)
    };
    stored(json!(["v1alpha1", "v1"])).await;
    let result = until(settled).await;
    assert_eq!(
        result.blocked,
        ["cannot keep CustomResourceDefinition tools.acme.example: its conversion webhook goes with the \
             extension, and custom resources may be stored as v1alpha1"]
    );
    stored(json!(["v1"])).await;
    assert!(until(settled).await.is_complete());
    assert_eq!(world.get(&definition).await.unwrap()["spec"]["conversion"], json!({"strategy": "None"}));
}
