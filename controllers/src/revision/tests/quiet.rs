//! Number of requests of a pass (docs/design/apply.md#fast-path; case apply-68).

use std::collections::BTreeMap;

use serde_json::json;

use super::world::{Running, World, config_map, crd, custom, deployment, field_value, phase, plain};

// Cases apply-7, apply-68
pub(super) async fn pass_sends_requests_only_for_changed_objects(world: &World, controller: &Running) {
    let ns = "quiet";
    world.namespace(ns).await;
    let (map, op) = (config_map(ns, "a", json!({"k": "v"})), deployment(ns, "op"));
    // One half of the content is in the revision, the other in a Secret that the controller watches.
    world.secret(ns, "content", true, &[("k", op.to_string().into_bytes())]).await;
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "content", "namespace": ns}});
    world.edit(&secret, json!({"metadata": {"labels": {"olm.operatorframework.io/owner-name": ns}}})).await;
    let deploy =
        json!({"name": "deploy", "objects": [{"ref": {"name": "content", "namespace": ns, "key": "k"}}]});
    let name = world
        .revision(ns, 1, json!([phase("configuration", &[&map]), deploy]), |set| {
            set["spec"]["progressionProbes"] =
                json!([field_value("apps", "Deployment", "spec.template.metadata.labels.app", "op")]);
        })
        .await;
    world.succeeds(&name).await;
    let calls = |calls: &[(&str, u64)]| -> BTreeMap<String, u64> {
        calls.iter().map(|(method, count)| ((*method).to_owned(), *count)).collect()
    };

    // A pass without changes.
    let touched = controller.calls_for(async || {
        world.patch(&name, json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    });
    assert_eq!(touched.await, calls(&[]));
    // A status update of an object.
    let ticked = controller.calls_for(async || {
        world.edit_status(&op, json!({"status": {"readyReplicas": 0, "observedGeneration": 1}})).await;
    });
    assert_eq!(ticked.await, calls(&[("GET", 1)]));
    // A foreign label.
    let labelled = controller.calls_for(async || {
        world.edit(&map, json!({"metadata": {"labels": {"mine": "1"}}})).await;
    });
    // The fields that we own are unchanged.
    assert_eq!(labelled.await, calls(&[("GET", 1)]));
    // Drift: one read to detect it, one of the content to compare with, and one to confirm. Then a dry run and the
    // apply.
    let repaired = controller.calls_for(async || {
        world.edit(&map, json!({"data": {"k": "foreign"}})).await;
    });
    assert_eq!(repaired.await, calls(&[("GET", 3), ("PATCH", 2)]));
    assert_eq!(world.get(&map).await.unwrap()["data"]["k"], "v");
    // Foreign objects.
    world.create(&config_map(ns, "other", json!({}))).await;
    assert_eq!(controller.quiet().await, controller.quiet().await);
}

/// An archived revision that waits for a custom resource.
pub(super) async fn blocked_removal_reads_only_remaining_objects(world: &World, controller: &Running) {
    let ns = "left";
    world.namespace(ns).await;
    let definition = crd("leftovers", "Leftover");
    let maps: Vec<_> = (0..8).map(|n| config_map(ns, &format!("m-{n}"), json!({}))).collect();
    let phases = json!([phase("crds", &[&definition]), phase("b", &maps.iter().collect::<Vec<_>>())]);
    let first = world.revision(ns, 1, phases, plain).await;
    world.succeeds(&first).await;
    let resource = custom("Leftover", ns, "one");
    world.create(&resource).await;
    world.patch(&first, json!({"spec": {"lifecycleState": "Archived"}})).await;
    world.says(&first, "Progressing", "False/Blocked cannot delete CustomResourceDefinition leftovers").await;
    let touched = controller.calls_for(async || {
        world.patch(&first, json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    });
    // The CRD and the list of its custom resources.
    assert_eq!(touched.await, BTreeMap::from([("GET".to_owned(), 2)]));
}
