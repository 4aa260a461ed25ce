//! Number of requests of a pass (docs/design/apply.md#fast-path; case apply-68).

use std::collections::BTreeMap;

use olm_servers::RunningController;
use serde_json::json;

use super::fixture::{
    Fixture, calls_for, config_map, crd, custom_resource, deployment, field_value, phase, stable_counts,
    unmodified,
};

// Cases apply-7, apply-68
pub(super) async fn pass_sends_requests_only_for_changed_objects(
    fixture: &Fixture,
    controller: &RunningController,
) {
    let ns = "quiet";
    fixture.namespace(ns).await;
    let (map, op) = (config_map(ns, "a", json!({"k": "v"})), deployment(ns, "op"));
    // One half of the content is in the revision, the other in a Secret that the controller watches.
    fixture.secret(ns, "content", true, &[("k", op.to_string().into_bytes())]).await;
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "content", "namespace": ns}});
    fixture.edit(&secret, json!({"metadata": {"labels": {"olm.operatorframework.io/owner-name": ns}}})).await;
    let deploy =
        json!({"name": "deploy", "objects": [{"ref": {"name": "content", "namespace": ns, "key": "k"}}]});
    let name = fixture
        .revision(ns, 1, json!([phase("configuration", &[&map]), deploy]), |set| {
            set["spec"]["progressionProbes"] =
                json!([field_value("apps", "Deployment", "spec.template.metadata.labels.app", "op")]);
        })
        .await;
    fixture.until_succeeded(&name).await;
    let calls = |calls: &[(&str, u64)]| -> BTreeMap<String, u64> {
        calls.iter().map(|(method, count)| ((*method).to_owned(), *count)).collect()
    };

    // A pass without changes.
    let touched = calls_for(controller, async || {
        fixture.patch(&name, json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    });
    assert_eq!(touched.await, calls(&[]));
    // A status update of an object.
    let ticked = calls_for(controller, async || {
        fixture.edit_status(&op, json!({"status": {"readyReplicas": 0, "observedGeneration": 1}})).await;
    });
    assert_eq!(ticked.await, calls(&[("GET", 1)]));
    // A foreign label.
    let labeled = calls_for(controller, async || {
        fixture.edit(&map, json!({"metadata": {"labels": {"mine": "1"}}})).await;
    });
    // The fields that we own are unchanged.
    assert_eq!(labeled.await, calls(&[("GET", 1)]));
    // Drift: one read to detect it, one of the content to compare with, and one to confirm. Then a dry run and the
    // apply.
    let repaired = calls_for(controller, async || {
        fixture.edit(&map, json!({"data": {"k": "foreign"}})).await;
    });
    assert_eq!(repaired.await, calls(&[("GET", 3), ("PATCH", 2)]));
    assert_eq!(fixture.get(&map).await.unwrap()["data"]["k"], "v");
    // Foreign objects.
    fixture.create(&config_map(ns, "other", json!({}))).await;
    assert_eq!(stable_counts(controller).await, stable_counts(controller).await);
}

/// An archived revision that waits for a custom resource.
pub(super) async fn blocked_removal_reads_only_remaining_objects(
    fixture: &Fixture,
    controller: &RunningController,
) {
    let ns = "left";
    fixture.namespace(ns).await;
    let crd = crd("leftovers", "Leftover");
    let maps: Vec<_> = (0..8).map(|n| config_map(ns, &format!("m-{n}"), json!({}))).collect();
    let phases = json!([phase("crds", &[&crd]), phase("b", &maps.iter().collect::<Vec<_>>())]);
    let first = fixture.revision(ns, 1, phases, unmodified).await;
    fixture.until_succeeded(&first).await;
    let resource = custom_resource("Leftover", ns, "one");
    fixture.create(&resource).await;
    fixture.patch(&first, json!({"spec": {"lifecycleState": "Archived"}})).await;
    fixture
        .until_condition(
            &first,
            "Progressing",
            "False/Blocked cannot delete CustomResourceDefinition leftovers",
        )
        .await;
    let touched = calls_for(controller, async || {
        fixture.patch(&first, json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    });
    // The CRD and the list of its custom resources, in each pass: on a slow machine, the next one may be due.
    let touched = touched.await;
    assert_eq!(touched.keys().collect::<Vec<_>>(), ["GET"]);
    assert!(touched["GET"] % 2 == 0 && touched["GET"] < maps.len() as u64, "{touched:?}");
}
