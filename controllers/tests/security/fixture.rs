//! Objects of the install files.

use std::path::Path;

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client};
use serde_json::Value;

/// Objects in a file of `manifests/`.
pub(crate) fn documents(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests").join(file);
    let mut all = olm_yaml::all_from_slice(&std::fs::read(path).unwrap()).unwrap();
    all.retain(|document| !document.is_null());
    all
}

/// Applies the object with strict field validation.
pub(crate) async fn apply(client: &Client, object: &Value) {
    let typed: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let gvk = GroupVersionKind::try_from(typed.types.clone().unwrap()).unwrap();
    let (resource, capabilities) = pinned_kind(client, &gvk).await.unwrap();
    let api: Api<DynamicObject> = match (capabilities.scope, typed.metadata.namespace.as_deref()) {
        (Scope::Namespaced, Some(namespace)) => Api::namespaced_with(client.clone(), namespace, &resource),
        _ => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams { force: true, ..PatchParams::apply("test").validation_strict() };
    api.patch(typed.metadata.name.as_deref().unwrap(), &params, &Patch::Apply(object)).await.unwrap();
}
