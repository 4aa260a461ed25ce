//! Metadata by which classic OLM and operator-controller own an object, and the patches that remove it. Pure.

use olm_api::{annotations, labels};
use serde_json::{Map, Value, json};

use super::objects::CLASSIC;
use super::plan::model::PackagePlan;

/// Labels that make classic OLM repair or delete an object.
const OWNERSHIP: [&str; 6] = [
    "olm.owner",
    "olm.owner.kind",
    "olm.owner.namespace",
    "olm.managed",
    "olm.deployment-spec-hash",
    "olm.copiedFrom",
];
/// Finalizer of the migration on ClusterServiceVersions.
pub(super) const FINALIZER: &str = "olm.operatorframework.io/migration";
/// Finalizer of classic OLM on ClusterServiceVersions.
pub(super) const CLEANUP: &str = "operators.coreos.com/csv-cleanup";
/// CatalogSource of a Subscription during a migration. It does not exist: classic OLM resolves nothing in the namespace.
pub(super) const PAUSED: &str = "paused-by-olm-migrate";
/// Annotation of a serving certificate that classic OLM made.
pub(super) const CA_HASH: &str = "olmcahash";

/// Patch that removes owner references to objects of classic OLM, and its labels. `None` if the object has none, or
/// belongs to an OperatorCondition: that stays, and classic OLM would put its owner references back.
pub(super) fn from_classic(object: &Value) -> Option<Value> {
    let is_of_condition =
        |reference: &Value| reference["kind"] == "OperatorCondition" && is_of_classic(reference);
    if object["metadata"]["ownerReferences"].as_array().is_some_and(|all| all.iter().any(is_of_condition)) {
        return None;
    }
    let is_owned = |key: &str| OWNERSHIP.contains(&key) || is_component(key);
    patch(object, is_of_classic, is_owned, |_| false)
}

/// Patch that removes the owner references to the ClusterServiceVersion of the plan and to its copies, and its labels.
/// Those of other ClusterServiceVersions stay, and what classic OLM needs for these. `None` if the object has none, or
/// belongs to an OperatorCondition.
pub(super) fn from_csv(object: &Value, plan: &PackagePlan) -> Option<Value> {
    let metadata = &object["metadata"];
    let owners = metadata["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    let is_kind = |reference: &Value, kind: &str| reference["kind"] == kind && is_of_classic(reference);
    if owners.iter().any(|reference| is_kind(reference, "OperatorCondition")) {
        return None;
    }
    let is_csv = |reference: &Value| is_kind(reference, "ClusterServiceVersion");
    let is_ours = |reference: &Value| is_csv(reference) && reference["name"] == plan.csv.as_str();
    let component = component(plan);
    let owner = metadata["labels"]["olm.owner"].as_str();
    let is_labeled_by_other = owner.is_some_and(|owner| owner != plan.csv);
    let mut labels = metadata["labels"].as_object().into_iter().flat_map(Map::keys);
    let is_shared = is_labeled_by_other
        || owners.iter().any(|reference| is_csv(reference) && !is_ours(reference))
        || labels.any(|key| is_component(key) && *key != component);
    let is_label = |key: &str| match key {
        "olm.owner" | "olm.owner.kind" | "olm.owner.namespace" => !is_labeled_by_other,
        key => key == component || (OWNERSHIP.contains(&key) && !is_shared),
    };
    patch(object, is_ours, is_label, |_| false)
}

/// Label that classic OLM puts on all objects of the package. The key is cut like each key of a label.
pub(super) fn component(plan: &PackagePlan) -> String {
    let name: String = format!("{}.{}", plan.package, plan.namespace).chars().take(63).collect();
    format!("{CLASSIC}/{}", name.trim_end_matches(['-', '.', '_']))
}

fn is_component(key: &str) -> bool {
    key.split_once('/').is_some_and(|(prefix, _)| prefix == CLASSIC)
}

/// Reports whether a label or annotation with this key has no meaning without classic OLM: the OperatorGroups that watch a
/// namespace, the ClusterServiceVersions that have a CRD, and the hash of its CA. Without the last one, operator-controller
/// renews a serving certificate of classic OLM.
fn is_record(key: &str) -> bool {
    let is_prefix = |prefix: &&str| key.starts_with(*prefix);
    key == CA_HASH
        || ["olm.operatorgroup.uid/", "operatorframework.io/installed-alongside-"].iter().any(is_prefix)
}

/// Patch that removes all owner references to objects of classic OLM, and its records. `None` if the object has none.
pub(super) fn release_from_classic(object: &Value) -> Option<Value> {
    patch(object, is_of_classic, is_record, is_record)
}

/// Reports whether the object has labels or annotations that have no meaning without classic OLM.
pub(super) fn has_records(object: &Value) -> bool {
    let of = |field: &str| object["metadata"][field].as_object().into_iter().flat_map(Map::keys);
    of("labels").chain(of("annotations")).any(|key| is_record(key))
}

/// Patch that removes owner references to revisions of `extension`, and the labels and annotations of
/// operator-controller. `None` if the object has none.
pub(super) fn from_extension(object: &Value, extension: &str) -> Option<Value> {
    let is_revision = |reference: &Value| {
        let name = reference["name"].as_str().unwrap_or_default();
        reference["kind"] == "ClusterObjectSet"
            && name.rsplit_once('-').is_some_and(|(prefix, _)| prefix == extension)
    };
    let is_label = |key: &str| [labels::OWNER_NAME, labels::OWNER_KIND, labels::REVISION_NAME].contains(&key);
    let is_annotation = |key: &str| {
        key.starts_with("olm.operatorframework.io/")
            || [annotations::EXT_KEPT_FOR, annotations::EXT_ADOPT].contains(&key)
    };
    patch(object, is_revision, is_label, is_annotation)
}

/// Reports whether an owner reference or an object is of a kind of classic OLM.
pub(super) fn is_of_classic(object: &Value) -> bool {
    let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/'));
    group.is_some_and(|(group, _)| group == CLASSIC)
}

fn patch(
    object: &Value,
    is_owner: impl Fn(&Value) -> bool,
    is_label: impl Fn(&str) -> bool,
    is_annotation: impl Fn(&str) -> bool,
) -> Option<Value> {
    let metadata = &object["metadata"];
    let mut patch = Map::new();
    let owners = metadata["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    let kept: Vec<&Value> = owners.iter().filter(|reference| !is_owner(reference)).collect();
    if kept.len() < owners.len() {
        patch.insert("ownerReferences".to_owned(), json!(kept));
    }
    let nulls = |field: &str, is_removed: &dyn Fn(&str) -> bool| {
        let keys = metadata[field].as_object().into_iter().flat_map(Map::keys);
        let removed = keys.filter(|key| is_removed(key)).map(|key| (key.clone(), Value::Null));
        Some(removed.collect::<Map<_, _>>()).filter(|removed| !removed.is_empty())
    };
    if let Some(removed) = nulls("labels", &is_label) {
        patch.insert("labels".to_owned(), Value::Object(removed));
    }
    if let Some(removed) = nulls("annotations", &is_annotation) {
        patch.insert("annotations".to_owned(), Value::Object(removed));
    }
    if patch.is_empty() {
        return None;
    }
    // Precondition, because lists of a merge patch replace those of the object.
    patch.insert("resourceVersion".to_owned(), metadata["resourceVersion"].clone());
    Some(json!({ "metadata": patch }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classic_ownership_is_removed_and_everything_else_kept() {
        let csv = json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "name": "lamp.v1.0.0", "uid": "c"});
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"});
        let object = json!({"metadata": {"resourceVersion": "7", "ownerReferences": [csv, other],
            "labels": {"olm.owner": "lamp.v1.0.0", "olm.managed": "true", "operators.coreos.com/lamp.ns": "",
                "app": "lamp", "olm.webhook-description-hash": "h"},
            "annotations": {"olmcahash": "x"}}});
        let expected = json!({"metadata": {"resourceVersion": "7", "ownerReferences": [other],
            "labels": {"olm.owner": null, "olm.managed": null, "operators.coreos.com/lamp.ns": null}}});
        assert_eq!(from_classic(&object), Some(expected));
        assert_eq!(from_classic(&json!({"metadata": {"labels": {"app": "lamp"}}})), None);
        let condition =
            json!({"apiVersion": "operators.coreos.com/v2", "kind": "OperatorCondition", "uid": "o"});
        let role = json!({"metadata": {"ownerReferences": [condition], "labels": {"olm.managed": "true"}}});
        assert_eq!(from_classic(&role), None);
    }

    #[test]
    fn ownership_of_other_packages_is_kept() {
        let plan = crate::apply::fixture::plan();
        let csv = |name: &str| json!({"apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "name": name});
        let object = |owners: &[Value], labels: Value| json!({"metadata": {"resourceVersion": "7", "ownerReferences": owners, "labels": labels}});
        let (ours, other) = (csv("lamp.v1.0.0"), csv("pipe.v1.0.0"));
        let component = "operators.coreos.com/lamp.ns";
        let shared = object(&[ours, other.clone()], json!({"olm.managed": "true", component: ""}));
        let expected = json!({"metadata": {"resourceVersion": "7", "ownerReferences": [other], "labels": {component: null}}});
        assert_eq!(from_csv(&shared, &plan), Some(expected));
        let crd =
            object(&[], json!({"olm.managed": "true", component: "", "operators.coreos.com/lamp.b": ""}));
        assert_eq!(from_csv(&crd, &plan).unwrap()["metadata"]["labels"], json!({component: null}));
        let owned = json!({"olm.owner": "lamp.v1.0.0", "olm.owner.kind": "ClusterServiceVersion", "olm.managed": "true"});
        let removed = from_csv(&object(&[], owned), &plan).unwrap();
        assert_eq!(removed["metadata"]["labels"].as_object().unwrap().len(), 3);
        let foreign = json!({"olm.owner": "pipe.v1.0.0", "olm.managed": "true"});
        assert_eq!(from_csv(&object(&[], foreign), &plan), None);
    }

    #[test]
    fn ownership_of_one_extension_is_removed() {
        let revision = |name: &str| json!({"apiVersion": "olm.operatorframework.io/v1", "kind": "ClusterObjectSet", "name": name});
        let object = json!({"metadata": {"resourceVersion": "7",
            "ownerReferences": [revision("lamp-1"), revision("lamp-two-1")],
            "labels": {"olm.operatorframework.io/owner-name": "lamp", "app": "lamp"},
            "annotations": {"olm.operatorframework.io/revision": "1", "note": "a"}}});
        let expected = json!({"metadata": {"resourceVersion": "7", "ownerReferences": [revision("lamp-two-1")],
            "labels": {"olm.operatorframework.io/owner-name": null},
            "annotations": {"olm.operatorframework.io/revision": null}}});
        assert_eq!(from_extension(&object, "lamp"), Some(expected));
        assert_eq!(from_extension(&json!({"metadata": {}}), "lamp"), None);
    }
}
