//! Null in lists and maps of RBAC objects, as the API server reads it. The comparison of permissions (`crates/plan`) and the required rights (`crates/bundle`) read it in the same way.

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use olm_revision::object::ObjectKey;
use serde_json::{Value, json};

use crate::fixture::Fixture;

/// ClusterRole with this content.
fn role(name: &str, content: Value) -> Value {
    let mut role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}});
    role.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
    role
}

/// The object as the API server would store it for a POST and for server-side apply, or the errors.
async fn stored(fixture: &Fixture, object: &Value) -> [Result<Value, String>; 2] {
    let key = ObjectKey::of(object);
    let api = fixture.api(&key).await;
    let post = PostParams { dry_run: true, ..PostParams::default() };
    let apply = PatchParams { dry_run: true, ..PatchParams::apply("nulls").force() };
    let new: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let both = [api.create(&post, &new).await, api.patch(&key.name, &apply, &Patch::Apply(object)).await];
    both.map(|stored| {
        stored.map(|stored| serde_json::to_value(stored).unwrap()).map_err(|error| error.to_string())
    })
}

#[tokio::test]
async fn null_is_an_empty_text_or_selector() {
    let fixture = Fixture::start().await;
    let rules =
        json!([{"apiGroups": [null], "resources": ["secrets"], "resourceNames": [null], "verbs": ["get"]}]);
    let expected =
        json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": [""], "verbs": ["get"]}]);
    for stored in stored(&fixture, &role("nulls", json!({"rules": rules}))).await {
        assert_eq!(stored.unwrap()["rules"], expected);
    }

    for (selector, expected) in [
        (Value::Null, json!({})),
        (json!({"matchLabels": {"a": null}}), json!({"matchLabels": {"a": ""}})),
        (
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": [null]}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": [""]}]}),
        ),
    ] {
        let all = role("nulls", json!({"aggregationRule": {"clusterRoleSelectors": [selector]}}));
        for stored in stored(&fixture, &all).await {
            let stored = stored.unwrap()["aggregationRule"]["clusterRoleSelectors"].take();
            assert_eq!(stored, json!([expected]), "{selector}");
        }
    }
    // The client for POST has types for the metadata, so only server-side apply can send null there.
    let labels = json!({"metadata": {"name": "nulls", "labels": {"a": null}}});
    let key = ObjectKey::of(&role("nulls", labels.clone()));
    let apply = PatchParams { dry_run: true, ..PatchParams::apply("nulls").force() };
    let labeled = Patch::Apply(role("nulls", labels));
    let labeled = fixture.api(&key).await.patch("nulls", &apply, &labeled).await.unwrap();
    assert_eq!(labeled.metadata.labels.unwrap()["a"], "");
}

#[tokio::test]
async fn other_types_and_spellings_grant_nothing() {
    let fixture = Fixture::start().await;
    let rule = |field: &str, group: Value| json!({"rules": [{field: [group], "resources": ["secrets"], "verbs": ["get"]}]});
    for content in [
        rule("apiGroups", json!(1)),
        rule("apiGroups", json!(true)),
        rule("APIGroups", json!("")),
        json!({"rules": [null]}),
        json!({"aggregationRule": {"clusterRoleSelectors": [1]}}),
        json!({"aggregationRule": {"clusterRoleSelectors": null}}),
        json!({"aggregationRule": {"clusterRoleSelectors": [{"matchExpressions": [null]}]}}),
        json!({"aggregationRule": {"ClusterRoleSelectors": [{}]}}),
    ] {
        for stored in stored(&fixture, &role("nulls", content.clone())).await {
            assert!(stored.is_err(), "{content}: {stored:?}");
        }
    }
    // A POST ignores a field in another spelling.
    let mut both = rule("apiGroups", json!("apps"));
    both["rules"][0]["APIGroups"] = json!([""]);
    both["Rules"] = rule("apiGroups", json!(""))["rules"].take();
    let [posted, applied] = stored(&fixture, &role("nulls", both)).await;
    assert_eq!(posted.unwrap()["rules"], rule("apiGroups", json!("apps"))["rules"]);
    assert!(applied.is_err(), "{applied:?}");
}
