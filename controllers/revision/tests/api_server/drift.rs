//! Drift that hides whose an object is.

use serde_json::json;

use super::fixture::{Fixture, config_map, eventually, phase, unmodified};

// docs/design/apply.md#watches, docs/design/apply.md#orphaned-objects
pub(super) async fn object_without_owner_and_annotations_is_repaired(fixture: &Fixture) {
    let ns = "stripped";
    fixture.namespace(ns).await;
    let map = config_map(ns, "a", json!({"k": "v"}));
    let name = fixture.revision(ns, 1, json!([phase("a", &[&map])]), unmodified).await;
    fixture.until_succeeded(&name).await;
    let stripped = json!({"ownerReferences": null, "annotations": null});
    fixture.edit(&map, json!({"metadata": stripped, "data": {"k": "theirs"}})).await;
    eventually("the object is repaired", async || {
        let live = fixture.get(&map).await?;
        let is_ours = live["metadata"]["annotations"]["olm.operatorframework.io/revision"] == "1";
        let owners = fixture.owners(&map).await?;
        (is_ours && owners == [name.as_str()] && live["data"]["k"] == "v").then_some(())
    })
    .await;
}
