//! Permissions in namespaces that a label selects (docs/design/namespaces.md#deleted-namespaces).

use olm_revision::result::Action;
use serde_json::{Value, json};

use crate::fixture::{Fixture, actions, config_map, phase};

fn role(namespace: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "op", "namespace": namespace}, "rules": []})
}

// Without a controller for namespaces, a deleted one with a finalizer stays.
#[tokio::test]
async fn permissions_in_gone_namespaces_are_skipped() {
    let fixture = &Fixture::start().await;
    let [kept, going, missing] = ["sel-kept", "sel-going", "sel-missing"];
    fixture.namespace(kept).await;
    fixture.namespace(going).await;
    let roles = [role(kept), role(going), role(missing)];
    let mut revision =
        fixture.revision("sel", 1, vec![phase("roles", &[&roles[0], &roles[1], &roles[2]])]).await;
    let refused = fixture.reconcile(&revision).await;
    assert!(refused.phases[0].validation_error.is_some() && !refused.has_skipped(), "{refused:?}");

    revision.selected_namespaces = [kept, going, missing].map(str::to_owned).into();
    let result = fixture.complete(&revision).await;
    assert_eq!(actions(&result), [Action::Created, Action::Created, Action::Skipped]);
    assert!(result.has_skipped());

    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": going}});
    fixture.delete(&namespace).await;
    fixture.delete(&roles[1]).await;
    let result = fixture.complete(&revision).await;
    assert_eq!(actions(&result), [Action::Idle, Action::Skipped, Action::Skipped]);

    fixture.namespace(missing).await;
    let result = fixture.complete(&revision).await;
    assert_eq!(actions(&result), [Action::Idle, Action::Skipped, Action::Created]);

    // Other kinds and other namespaces are needed.
    let other = config_map(going, "c", json!({}));
    let mut revision = fixture.revision("sel-other", 1, vec![phase("configuration", &[&other])]).await;
    revision.selected_namespaces = [going.to_owned()].into();
    let refused = fixture.reconcile(&revision).await;
    assert!(refused.phases[0].validation_error.is_some(), "{refused:?}");
}
