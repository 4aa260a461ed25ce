//! Objects of the documents that a real API server accepts.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use olm_control_plane::{ControlPlane, Options};
use serde_json::{Value, json};

use super::Edit;
use super::texts::{cleaned, completed, cut, seeds};

/// Document and lines, edit.
const ACCEPTED: &[(&str, Edit)] = &[
    ("001:1529-1540", cleaned),
    ("002:75-87", completed),
    ("002:191-204", completed),
    ("002:212-224", completed),
    ("002:230-242", completed),
    ("002:267-282", completed),
];

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_accepted_with_all_fields() {
    let Some(seeds) = seeds() else { return };
    let mut crds = olm_api::crds::crds();
    crds.push(olm_api::crds::operator_condition());
    let plane = ControlPlane::reused(Options::default(), &crds).await.unwrap();
    let namespace: Namespace =
        serde_json::from_value(json!({ "metadata": { "name": "operators" } })).unwrap();
    Api::all(plane.client()).create(&PostParams::default(), &namespace).await.unwrap();
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    for (at, edit) in ACCEPTED {
        let object = olm_yaml::from_slice(edit(&cut(&seeds, at)).as_bytes()).unwrap();
        let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
        let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(plane.client(), namespace, &resource),
            None => Api::all_with(plane.client(), &resource),
        };
        let typed = serde_json::from_value(object.clone()).unwrap();
        let created = api.create(&dry_run, &typed).await.unwrap_or_else(|error| panic!("{at}: {error}"));
        let created = serde_json::to_value(created).unwrap();
        assert!(is_part(&object["spec"], &created["spec"]), "{at}: {object}, {created}");
    }
}

/// Reports whether `whole` has all fields of `part`, with their values.
fn is_part(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            part.iter().all(|(name, value)| whole.get(name).is_some_and(|whole| is_part(value, whole)))
        }
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(part, whole)| is_part(part, whole))
        }
        _ => part == whole,
    }
}
