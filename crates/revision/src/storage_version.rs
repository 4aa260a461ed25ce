//! Storage version of a CRD that a webhook of the same revision converts: it changes last, when the webhook answers
//! (docs/design/apply.md#storage-version).
//!
//! Pure. The live CRD is the only state: no annotation or memory records the step.

use serde_json::Value;

use crate::content::{ContentPhase, objects};
use crate::object::{ObjectKey, gvk, is_crd, storage_version, text};

/// `desired` with the storage version of the live CRD. `None` if both have the same one, if `desired` does not convert
/// by a webhook, or lacks that version.
pub(crate) fn with_live_storage(desired: &Value, actual: &Value) -> Option<Value> {
    let live = storage_version(actual)?;
    if !is_crd(&gvk(desired))
        || storage_version(desired)? == live
        || text(desired, "/spec/conversion/strategy") != "Webhook"
    {
        return None;
    }
    let mut staged = desired.clone();
    let mut is_listed = false;
    for version in staged.pointer_mut("/spec/versions")?.as_array_mut()? {
        let is_live = text(version, "/name") == live;
        is_listed |= is_live;
        version["storage"] = is_live.into();
    }
    is_listed.then_some(staged)
}

/// Deployments of `phases` behind the conversion webhook of `crd`. Empty if the webhook is not one of the
/// revision, or if the revision has custom resources of the CRD: to store these, the API server would need the webhook
/// before its Deployment exists.
pub(crate) fn backends(crd: &Value, phases: &[ContentPhase]) -> Vec<ObjectKey> {
    let client = |member| text(crd, &format!("/spec/conversion/webhook/clientConfig/service/{member}"));
    let (namespace, service) = (client("namespace"), client("name"));
    let keyed = || objects(phases).map(|object| (ObjectKey::of(object), object));
    let (group, kind) = (text(crd, "/spec/group"), text(crd, "/spec/names/kind"));
    if keyed().any(|(key, _)| key.is(group, kind)) {
        return Vec::new();
    }
    let selector = keyed()
        .find(|(key, _)| key.is("", "Service") && key.namespace == namespace && key.name == service)
        .and_then(|(_, service)| {
            service.pointer("/spec/selector")?.as_object().filter(|all| !all.is_empty())
        });
    let Some(selector) = selector else { return Vec::new() };
    let is_selected = |deployment: &Value| {
        let labels = deployment.pointer("/spec/template/metadata/labels");
        selector.iter().all(|(name, value)| labels.and_then(|labels| labels.get(name)) == Some(value))
    };
    keyed()
        .filter(|(key, object)| {
            key.is("apps", "Deployment") && key.namespace == namespace && is_selected(object)
        })
        .map(|(key, _)| key)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn crd(strategy: &str, versions: &[(&str, bool)]) -> Value {
        let versions: Vec<Value> =
            versions.iter().map(|(name, storage)| json!({"name": name, "storage": storage})).collect();
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "spec": {"group": "a.io", "names": {"kind": "A"}, "versions": versions, "conversion": {"strategy": strategy,
                "webhook": {"clientConfig": {"service": {"namespace": "ns", "name": "s"}}}}}})
    }

    #[test]
    fn storage_version_of_live_crd_is_retained_only_with_webhook() {
        let (v1, v2) = (("v1", true), ("v2", true));
        let (v1_old, v2_new) = (("v1", false), ("v2", false));
        let live = crd("None", &[v1]);
        for (desired, expected) in [
            (crd("Webhook", &[v1_old, v2]), Some(crd("Webhook", &[v1, v2_new]))),
            (crd("Webhook", &[v1, v2_new]), None),
            (crd("None", &[v1_old, v2]), None),
            (crd("Webhook", &[v2]), None),
        ] {
            assert_eq!(with_live_storage(&desired, &live), expected, "{desired}");
        }
    }

    #[test]
    fn backends_are_selected_deployments_of_the_revision() {
        let service = |selector: Value| {
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "ns"},
                "spec": {"selector": selector}})
        };
        let deployment = |name: &str, namespace: &str, labels: Value| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
                "spec": {"template": {"metadata": {"labels": labels}}}})
        };
        let custom =
            json!({"apiVersion": "a.io/v2", "kind": "A", "metadata": {"name": "c", "namespace": "ns"}});
        let deployments = [
            deployment("op", "ns", json!({"app": "x", "more": "y"})),
            deployment("other", "ns", json!({"app": "z"})),
            deployment("far", "elsewhere", json!({"app": "x"})),
        ];
        for (objects, expected) in [
            (vec![service(json!({"app": "x"}))], &["op"][..]),
            (vec![service(json!({"app": "x"})), custom], &[]),
            (vec![service(json!({}))], &[]),
            (vec![], &[]),
        ] {
            let phases =
                [ContentPhase::inline("a", objects), ContentPhase::inline("b", deployments.to_vec())];
            let found = backends(&crd("Webhook", &[]), &phases);
            assert_eq!(found.iter().map(|key| key.name.as_str()).collect::<Vec<_>>(), expected);
        }
    }
}
