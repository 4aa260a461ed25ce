//! Removal of revisions.

use olm_revision::engine::Revision;
use olm_revision::plan::Owner;
use olm_revision::result::Action;
use olm_revision::teardown::{CrdPolicy, TeardownOptions};
use serde_json::{Value, json};

use crate::fixture::{Fixture, actions, config_map, crd, deployment, owner_names, phase, until};

// Case apply-34
#[tokio::test]
async fn teardown_waits_for_each_phase() {
    let fixture = &Fixture::start().await;
    let ns = "teardown";
    fixture.namespace(ns).await;
    let (first, last) = (config_map(ns, "first", json!({})), config_map(ns, "last", json!({})));
    let revision = fixture.revision("teardown", 1, vec![phase("a", &[&first]), phase("b", &[&last])]).await;
    fixture.complete(&revision).await;
    fixture.edit(&last, json!({"metadata": {"finalizers": ["acme.example/hold"]}})).await;
    let options = TeardownOptions::default();
    for _ in 0..2 {
        let result = fixture.engine.teardown(&revision, &options).await.unwrap();
        assert_eq!(result.waiting.iter().map(|key| key.name.as_str()).collect::<Vec<_>>(), ["last"]);
    }
    // Nothing is written while an object is being deleted.
    assert_eq!(actions(&fixture.reconcile(&revision).await), [Action::Idle, Action::Idle]);
    assert!(fixture.get(&first).await.is_some());
    fixture.edit(&last, json!({"metadata": {"finalizers": null}})).await;
    assert!(fixture.engine.teardown(&revision, &options).await.unwrap().is_complete());
    assert_eq!(fixture.get(&first).await, None);
}

// docs/design/apply.md#removal: a deletion leaves objects without another owner to garbage collection.
#[tokio::test]
async fn final_teardown_keeps_the_last_owner_reference() {
    let fixture = &Fixture::start().await;
    let ns = "last";
    fixture.namespace(ns).await;
    let map = config_map(ns, "a", json!({}));
    let revision = fixture.revision("last", 1, vec![phase("a", &[&map])]).await;
    fixture.complete(&revision).await;
    let mut owners = fixture.get(&map).await.unwrap()["metadata"]["ownerReferences"].clone();
    owners[0]["controller"] = json!(false);
    fixture.edit(&map, json!({"metadata": {"ownerReferences": owners}})).await;
    for (is_final, expect) in [(true, vec![("last-1".to_owned(), Some(false))]), (false, vec![])] {
        let options = TeardownOptions { is_final, ..TeardownOptions::default() };
        // A removal does not process a completed object again.
        fixture.engine.forget(&revision.owner.uid);
        assert!(fixture.engine.teardown(&revision, &options).await.unwrap().is_complete());
        assert_eq!(owner_names(&fixture.get(&map).await.unwrap()), expect);
    }
}

// In a foreground deletion, garbage collection can remove the reference to the newest of several revisions.
#[tokio::test]
async fn crd_without_controller_is_deleted_with_its_last_revision() {
    let fixture = &Fixture::start().await;
    let crd = crd("leftovers", "Leftover");
    let mut revision = fixture.revision("leftover", 1, vec![phase("crds", &[&crd])]).await;
    revision.probes = Default::default();
    fixture.complete(&revision).await;
    let mut owners = fixture.get(&crd).await.unwrap()["metadata"]["ownerReferences"].clone();
    owners[0]["controller"] = json!(false);
    let annotations = json!({"olm.operatorframework.io/revision": "2"});
    let metadata = json!({"ownerReferences": owners, "annotations": annotations});
    fixture.edit(&crd, json!({"metadata": metadata})).await;
    let options = TeardownOptions { is_final: true, ..TeardownOptions::default() };
    until(async || fixture.engine.teardown(&revision, &options).await.unwrap().is_complete().then_some(()))
        .await;
    assert_eq!(fixture.get(&crd).await, None);
}

#[tokio::test]
async fn crd_in_use_blocks_or_is_kept_by_policy() {
    let fixture = &Fixture::start().await;
    let ns = "in-use";
    fixture.namespace(ns).await;
    let crd = crd("gadgets", "Gadget");
    let mut revision = fixture.revision("in-use", 1, vec![phase("crds", &[&crd])]).await;
    revision.probes = Default::default();
    fixture.complete(&revision).await;
    let gadget = json!({"apiVersion": "acme.example/v1", "kind": "Gadget", "metadata": {"name": "g", "namespace": ns}});
    fixture.create(&gadget).await;
    let policy = |crds| TeardownOptions { crds, ..TeardownOptions::default() };
    let result = fixture.engine.teardown(&revision, &policy(CrdPolicy::BlockIfInUse)).await.unwrap();
    assert_eq!(
        result.blocked,
        ["cannot delete CustomResourceDefinition gadgets.acme.example: 1 custom resources exist \
          (first: acme.example/v1, Kind=Gadget in-use/g)"]
    );
    assert!(fixture.engine.teardown(&revision, &policy(CrdPolicy::Keep)).await.unwrap().is_complete());
    let live = fixture.get(&crd).await.unwrap();
    assert_eq!(owner_names(&live), []);
    assert_eq!(live["metadata"]["labels"], Value::Null);
    assert!(fixture.get(&gadget).await.is_some());
}

// docs/design/apply.md#objects-handed-over; cases additions-a49, additions-a50
#[tokio::test]
async fn crds_are_released_before_any_deletion() {
    let fixture = &Fixture::start().await;
    let ns = "saved";
    fixture.namespace(ns).await;
    let (crd, map) = (crd("gizmos", "Gizmo"), config_map(ns, "a", json!({})));
    let mut revision =
        fixture.revision("saved", 1, vec![phase("crds", &[&crd]), phase("deploy", &[&map])]).await;
    revision.probes = Default::default();
    fixture.complete(&revision).await;
    let gizmo =
        json!({"apiVersion": "acme.example/v1", "kind": "Gizmo", "metadata": {"name": "g", "namespace": ns}});
    fixture.create(&gizmo).await;
    let policy = |crds| TeardownOptions { crds, ..TeardownOptions::default() };
    fixture.calls();
    // Nothing is deleted while a custom resource exists.
    let result = fixture.engine.teardown(&revision, &policy(CrdPolicy::BlockIfInUse)).await.unwrap();
    assert_eq!((result.blocked.len(), fixture.calls()), (1, vec![]));
    // All other objects are deleted.
    let spare = policy(CrdPolicy::SpareIfInUse);
    fixture.engine.teardown(&revision, &spare).await.unwrap();
    let result = fixture.engine.teardown(&revision, &spare).await.unwrap();
    assert_eq!((result.blocked.len(), result.waiting.len()), (1, 0));
    assert_eq!(fixture.calls(), ["delete a"]);
    assert!(fixture.get(&gizmo).await.is_some());
    // The CRD is released first, while the objects of later phases still exist.
    fixture.complete(&revision).await;
    fixture.edit(&map, json!({"metadata": {"finalizers": ["acme.example/hold"]}})).await;
    fixture.calls();
    let result = fixture.engine.teardown(&revision, &policy(CrdPolicy::Keep)).await.unwrap();
    assert_eq!(result.waiting.len(), 1);
    assert_eq!(fixture.calls(), ["merge gizmos.acme.example", "delete a"]);
    assert_eq!(owner_names(&fixture.get(&crd).await.unwrap()), []);
    fixture.edit(&map, json!({"metadata": {"finalizers": null}})).await;
    // Only its former extension can adopt it.
    let kept_for = async || {
        let live = fixture.get(&crd).await.unwrap();
        live["metadata"]["annotations"]["ext.olm.operatorframework.io/kept-for"].clone()
    };
    assert_eq!(kept_for().await, "saved");
    let of_crds = async |extension: &str, number: i64| {
        let revision = fixture.revision(extension, number, vec![phase("crds", &[&crd])]).await;
        Revision { probes: Default::default(), ..revision }
    };
    let other = fixture.reconcile(&of_crds("other", 1).await).await;
    assert_eq!(actions(&other), [Action::Collision]);
    let again = of_crds("saved", 2).await;
    fixture.complete(&again).await;
    assert_eq!(kept_for().await, Value::Null);
    assert_eq!(owner_names(&fixture.get(&crd).await.unwrap()), [("saved-2".to_owned(), Some(true))]);
    // It is deleted with its last custom resource.
    fixture.delete(&gizmo).await;
    until(async || fixture.engine.teardown(&again, &spare).await.unwrap().is_complete().then_some(())).await;
    assert_eq!(fixture.get(&crd).await, None);
}

#[tokio::test]
async fn crds_are_deleted_before_other_objects() {
    let fixture = &Fixture::start().await;
    let ns = "first";
    fixture.namespace(ns).await;
    let (crd, map) = (crd("trinkets", "Trinket"), config_map(ns, "a", json!({})));
    let phases = vec![phase("crds", &[&crd]), phase("deploy", &[&map])];
    let mut revision = fixture.revision("first", 1, phases).await;
    revision.probes = Default::default();
    fixture.complete(&revision).await;
    let held = json!({"apiVersion": "acme.example/v1", "kind": "Trinket",
        "metadata": {"name": "t", "namespace": ns, "finalizers": ["acme.example/hold"]}});
    fixture.create(&held).await;
    fixture.calls();
    let waits = "1 trinkets.acme.example (first: first/t): finalizer acme.example/hold";
    let options = TeardownOptions::default();
    for _ in 0..2 {
        let result = fixture.engine.teardown(&revision, &options).await.unwrap();
        let waiting: Vec<&str> = result.waiting.iter().map(|key| key.name.as_str()).collect();
        assert_eq!((waiting, result.terminating), (vec!["trinkets.acme.example"], vec![waits.to_owned()]));
    }
    assert_eq!(fixture.calls(), ["delete trinkets.acme.example"]);
    assert!(fixture.get(&map).await.is_some());
    // Without an operator the other objects are removed, and the custom resource is reported.
    let options = TeardownOptions { abandons: true, ..options };
    fixture.engine.teardown(&revision, &options).await.unwrap();
    let result = fixture.engine.teardown(&revision, &options).await.unwrap();
    assert!(result.is_complete());
    assert_eq!((result.terminating, fixture.get(&map).await), (vec![waits.to_owned()], None));
    // A reinstallation waits, whatever its name.
    for extension in ["first", "again"] {
        let phases = vec![phase("crds", &[&crd]), phase("deploy", &[&map])];
        let mut again = fixture.revision(extension, 2, phases).await;
        again.probes = Default::default();
        let result = fixture.reconcile(&again).await;
        assert_eq!(actions(&result), [Action::Awaited]);
        let text = format!(
            "waiting for the deletion of CustomResourceDefinition trinkets.acme.example, which waits for {waits}"
        );
        assert_eq!((result.blocker(), result.is_complete()), (Some(text), false));
    }
    fixture.edit(&held, json!({"metadata": {"finalizers": null}})).await;
    until(async || fixture.get(&crd).await.is_none().then_some(())).await;
}

// The Service of the webhook must not be deleted earlier: the API server must be able to read stored objects.
#[tokio::test]
async fn conversion_webhook_is_kept_while_needed() {
    let fixture = &Fixture::start().await;
    let ns = "converted";
    fixture.namespace(ns).await;
    let mut crd = crd("bolts", "Bolt");
    let mut old = crd["spec"]["versions"][0].clone();
    old["name"] = json!("v1alpha1");
    crd["spec"]["versions"][0]["storage"] = json!(false);
    crd["spec"]["versions"].as_array_mut().unwrap().push(old);
    crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"service": {"name": "s", "namespace": "default", "port": 443}}}});
    let map = config_map(ns, "a", json!({}));
    let phases = vec![phase("crds", &[&crd]), phase("deploy", &[&map])];
    let mut revision = fixture.revision("converted", 1, phases).await;
    revision.probes = Default::default();
    fixture.complete(&revision).await;
    let bolt = json!({"apiVersion": "acme.example/v1alpha1", "kind": "Bolt", "metadata": {"name": "b", "namespace": ns}});
    fixture.create(&bolt).await;
    let spare = TeardownOptions { crds: CrdPolicy::SpareIfInUse, ..TeardownOptions::default() };
    let result = fixture.engine.teardown(&revision, &spare).await.unwrap();
    assert_eq!((result.blocked.len(), fixture.get(&map).await.is_some()), (1, true));
    // Two stored versions without a conversion.
    let versions = json!([{"name": "v1", "storage": true}, {"name": "v1alpha1", "storage": false}]);
    let mut edited = crd["spec"]["versions"].clone();
    for (version, change) in edited.as_array_mut().unwrap().iter_mut().zip(versions.as_array().unwrap()) {
        version["storage"] = change["storage"].clone();
    }
    fixture.edit(&crd, json!({"spec": {"versions": edited}})).await;
    let delete = TeardownOptions::default();
    until(async || {
        let result = fixture.engine.teardown(&revision, &delete).await.unwrap();
        let text = result.terminating.first()?;
        text.starts_with("bolts.acme.example, which cannot be listed: ").then_some(())
    })
    .await;
    assert!(fixture.get(&map).await.is_some());
    let abandon = TeardownOptions { abandons: true, ..delete };
    until(async || fixture.engine.teardown(&revision, &abandon).await.unwrap().is_complete().then_some(()))
        .await;
    until(async || fixture.get(&crd).await.is_none().then_some(())).await;
    assert_eq!(fixture.get(&map).await, None);
}

#[tokio::test]
async fn operator_runs_with_a_ready_pod() {
    let fixture = &Fixture::start().await;
    let ns = "running";
    fixture.namespace(ns).await;
    let deployment = deployment(ns, "op");
    let revision = fixture.revision("running", 1, vec![phase("deploy", &[&deployment])]).await;
    assert!(!fixture.engine.has_operator(&revision).await);
    fixture.reconcile(&revision).await;
    assert!(!fixture.engine.has_operator(&revision).await);
    fixture.edit_status(&deployment, json!({"status": {"replicas": 1, "readyReplicas": 1}})).await;
    assert!(fixture.engine.has_operator(&revision).await);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}});
    fixture.delete(&namespace).await;
    assert!(!fixture.engine.has_operator(&revision).await);
}

// docs/design/additions.md#uninstall-policy: a retained CRD must not depend on a webhook that is deleted.
#[tokio::test]
async fn conversion_webhook_is_removed_from_a_kept_crd() {
    let fixture = &Fixture::start().await;
    let mut crd = crd("tools", "Tool");
    let mut old = crd["spec"]["versions"][0].clone();
    (old["name"], old["storage"]) = (json!("v1alpha1"), json!(false));
    crd["spec"]["versions"].as_array_mut().unwrap().push(old);
    crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"],
        "clientConfig": {"service": {"name": "s", "namespace": "default", "port": 443}}}});
    let mut revision = fixture.revision("conversion", 1, vec![phase("crds", &[&crd])]).await;
    revision.probes = Default::default();
    fixture.complete(&revision).await;
    let keep = TeardownOptions { crds: CrdPolicy::Keep, ..TeardownOptions::default() };
    let stored = async |versions: Value| {
        fixture.edit_status(&crd, json!({"status": {"storedVersions": versions}})).await;
    };
    // The API server itself updates a changed CRD.
    let removed = async || {
        let result = fixture.engine.teardown(&revision, &keep).await.unwrap();
        result.waiting.is_empty().then_some(result)
    };
    stored(json!(["v1alpha1", "v1"])).await;
    let result = until(removed).await;
    assert_eq!(
        result.blocked,
        [
            "cannot keep CustomResourceDefinition tools.acme.example: its conversion webhook is deleted with the \
             extension, and custom resources may be stored as v1alpha1"
        ]
    );
    stored(json!(["v1"])).await;
    assert!(until(removed).await.is_complete());
    assert_eq!(fixture.get(&crd).await.unwrap()["spec"]["conversion"], json!({"strategy": "None"}));
}

#[tokio::test]
async fn objects_that_finalizers_hold_are_named() {
    let fixture = &Fixture::start().await;
    let ns = "held";
    fixture.namespace(ns).await;
    let map = config_map(ns, "a", json!({}));
    let revision = fixture.revision(ns, 1, vec![phase("deploy", &[&map])]).await;
    fixture.complete(&revision).await;
    let finalizers = |list: Value| json!({"metadata": {"finalizers": list}});
    fixture.edit(&map, finalizers(json!(["acme.example/a", "acme.example/b"]))).await;
    let options = TeardownOptions { is_final: true, ..TeardownOptions::default() };
    fixture.engine.teardown(&revision, &options).await.unwrap();
    let result = fixture.engine.teardown(&revision, &options).await.unwrap();
    assert_eq!(result.awaited(), ["ConfigMap.v1 held/a: finalizer acme.example/a, acme.example/b"]);

    // A new installation waits for it, too.
    let again = fixture.revision("held-again", 1, vec![phase("deploy", &[&map])]).await;
    let again = Revision { owner: Owner { extension: ns.to_owned(), ..again.owner.clone() }, ..again };
    let result = fixture.reconcile(&again).await;
    let waits = "waiting for the deletion of ConfigMap.v1 held/a: finalizer acme.example/a, acme.example/b";
    assert_eq!(result.blocker().as_deref(), Some(waits));
    fixture.edit(&map, finalizers(json!([]))).await;
    until(async || fixture.get(&map).await.is_none().then_some(())).await;
    fixture.complete(&again).await;
}

#[tokio::test]
async fn object_in_deletion_without_controller_is_not_complete() {
    let fixture = &Fixture::start().await;
    let ns = "released-and-held";
    fixture.namespace(ns).await;
    let map = config_map(ns, "a", json!({}));
    let revision = fixture.revision(ns, 1, vec![phase("deploy", &[&map])]).await;
    fixture.complete(&revision).await;
    let held = json!({"metadata": {"finalizers": ["acme.example/a"], "ownerReferences": []}});
    fixture.edit(&map, held).await;
    fixture.delete(&map).await;
    assert_eq!(fixture.engine.fast_path(&revision.owner, &[], &revision.probes).await, None);
    let result = fixture.reconcile(&revision).await;
    let waits = "waiting for the deletion of ConfigMap.v1 released-and-held/a: finalizer acme.example/a";
    assert_eq!(result.blocker().as_deref(), Some(waits));
}
