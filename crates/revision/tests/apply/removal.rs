//! Archived revisions.

use olm_revision::result::Action;
use olm_revision::teardown::{CrdPolicy, TeardownOptions};
use serde_json::{Value, json};

use crate::world::{World, actions, config_map, crd, owner_names, phase};

// spec 05 acceptance 34
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
    // While it is being deleted nothing is written.
    assert_eq!(actions(&world.reconcile(&revision).await), [Action::Idle, Action::Idle]);
    assert!(world.get(&first).await.is_some());
    world.edit(&last, json!({"metadata": {"finalizers": null}})).await;
    let result = world.engine.teardown(&revision, &options).await.unwrap();
    assert_eq!(result.waiting.iter().map(|key| key.name.as_str()).collect::<Vec<_>>(), ["first"]);
    assert!(world.engine.teardown(&revision, &options).await.unwrap().is_complete());
    assert_eq!(world.get(&first).await, None);
}

pub(crate) async fn definitions_in_use(world: &World) {
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
