//! Permissions in namespaces that a label selects or a list names (docs/design/namespaces.md#deleted-namespaces,
//! docs/design/namespaces.md#taken-permissions).

use olm_revision::result::Action;
use serde_json::{Value, json};

use crate::fixture::{Fixture, actions, config_map, phase};

fn role(namespace: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "op", "namespace": namespace}, "rules": []})
}

// Without a controller for namespaces, a deleted one with a finalizer stays.
#[tokio::test]
async fn permissions_in_deleted_namespaces_are_skipped() {
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

fn binding(namespace: &str, role: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "op", "namespace": namespace}, "subjects": [],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}})
}

// A tenant takes the Role by a foreign controller, and then binds another role in our name.
#[tokio::test]
async fn taken_permissions_of_watched_namespaces_stop_no_other_object() {
    let fixture = &Fixture::start().await;
    let [tenant, other, own] = ["taken-tenant", "taken-other", "taken-own"];
    for namespace in [tenant, other, own] {
        fixture.namespace(namespace).await;
    }
    let mut foreign = role(tenant);
    foreign["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "mine", "uid": "mine", "controller": true}]);
    fixture.create(&foreign).await;
    let bindings = [binding(tenant, "op"), binding(other, "op")];
    let later = config_map(own, "later", json!({}));
    let phases = || {
        vec![
            phase("roles", &[&role(tenant), &role(other)]),
            phase("bindings", &[&bindings[0], &bindings[1]]),
            phase("deploy", &[&later]),
        ]
    };
    let mut revision = fixture.revision("taken", 1, phases()).await;
    assert!(fixture.reconcile(&revision).await.blocker().is_some(), "a single watched namespace");

    revision.watched_namespaces = [tenant, other].map(str::to_owned).into();
    let result = fixture.complete(&revision).await;
    assert_eq!(
        actions(&result),
        [Action::Skipped, Action::Idle, Action::Created, Action::Created, Action::Created]
    );
    let role_line =
        "Object Role.rbac.authorization.k8s.io/v1 taken-tenant/op: skipped, because it has another owner";
    assert_eq!(
        (result.taken().as_deref(), result.has_skipped(), result.blocker()),
        (Some(role_line), true, None)
    );

    // Our binding with the role of the tenant: the API server never changes roleRef.
    let ours = fixture.get(&bindings[0]).await.unwrap();
    fixture.delete(&bindings[0]).await;
    let mut forged = binding(tenant, "another");
    for field in ["ownerReferences", "labels", "annotations"] {
        forged["metadata"][field] = ours["metadata"][field].clone();
    }
    fixture.create(&forged).await;
    fixture.delete(&role(other)).await;
    let result = fixture.complete(&revision).await;
    assert_eq!(
        actions(&result),
        [Action::Skipped, Action::Created, Action::Skipped, Action::Idle, Action::Idle]
    );
    let lines = result.taken().unwrap();
    let binding_line = "Object RoleBinding.rbac.authorization.k8s.io/v1 taken-tenant/op: skipped, because ";
    assert!(lines.starts_with(role_line) && lines.contains(binding_line), "{lines}");

    // The names are free again.
    fixture.delete(&forged).await;
    fixture.delete(&foreign).await;
    let result = fixture.complete(&revision).await;
    assert_eq!(
        actions(&result),
        [Action::Created, Action::Idle, Action::Created, Action::Idle, Action::Idle]
    );
    assert_eq!(result.taken(), None);
}

// The objects of our own namespace and other kinds collide as before.
#[tokio::test]
async fn other_objects_of_watched_namespaces_collide() {
    let fixture = &Fixture::start().await;
    let ns = "taken-kinds";
    fixture.namespace(ns).await;
    fixture.create(&config_map(ns, "c", json!({}))).await;
    let mut revision =
        fixture.revision("taken-kinds", 1, vec![phase("a", &[&config_map(ns, "c", json!({}))])]).await;
    revision.watched_namespaces = [ns.to_owned()].into();
    let result = fixture.reconcile(&revision).await;
    assert!(result.blocker().is_some() && result.taken().is_none(), "{result:?}");
}
