//! Accessors for Kubernetes objects of any kind.
//!
//! Objects stay [`serde_json::Value`]: a typed round trip would lose unknown fields. Nothing here accesses a cluster.

use std::fmt;

use kube::core::GroupVersionKind;
use olm_api::text::one_line;
use serde_json::{Map, Value, json};

/// Identity of an object: group, version, kind, namespace and name.
///
/// Displayed as `apps/v1, Kind=Deployment ns1/op`, with the core group as `/v1, Kind=ConfigMap ns1/cm`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectKey {
    /// Group, version and kind. Missing parts are empty.
    pub gvk: GroupVersionKind,
    /// Namespace. Empty for cluster-scoped objects.
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// Reads the identity of `object`. Members that are missing or not strings are empty.
    pub fn of(object: &Value) -> Self {
        Self {
            gvk: gvk(object),
            namespace: text(object, "/metadata/namespace").to_owned(),
            name: text(object, "/metadata/name").to_owned(),
        }
    }

    /// Creates an object with only this identity.
    pub(crate) fn to_object(&self) -> Value {
        let mut object = json!({"apiVersion": self.gvk.api_version(), "kind": self.gvk.kind,
            "metadata": {"name": self.name}});
        if !self.namespace.is_empty() {
            object["metadata"]["namespace"] = self.namespace.as_str().into();
        }
        object
    }

    /// `true` for an object of this kind, in any API version.
    pub fn is(&self, group: &str, kind: &str) -> bool {
        self.gvk.group == group && self.gvk.kind == kind
    }

    /// Identity without the API version: equal for every version of the object.
    pub fn unversioned(&self) -> Self {
        let gvk = GroupVersionKind::gvk(&self.gvk.group, "", &self.gvk.kind);
        Self { gvk, ..self.clone() }
    }

    /// Formats `<Kind>.<group/version> <namespace>/<name>`, the form of collision reports and probe lines
    /// (docs/design/apply.md#revision-conditions, docs/design/apply.md#collision-protection).
    pub fn kind_first(&self) -> String {
        let name = format!("{}.{} {}/{}", self.gvk.kind, self.gvk.api_version(), self.namespace, self.name);
        one_line(&name).into_owned()
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GroupVersionKind { group, version, kind } = &self.gvk;
        f.write_str(&one_line(&format!("{group}/{version}, Kind={kind} {}/{}", self.namespace, self.name)))
    }
}

/// Group, version and kind of `object`.
pub fn gvk(object: &Value) -> GroupVersionKind {
    let api_version = text(object, "/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    GroupVersionKind::gvk(group, version, text(object, "/kind"))
}

pub(crate) fn is_crd(gvk: &GroupVersionKind) -> bool {
    gvk.group == "apiextensions.k8s.io" && gvk.kind == "CustomResourceDefinition"
}

/// Groups of the API server itself that bundles can contain.
const BUILT_IN_GROUPS: [&str; 11] = [
    "",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apps",
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// `true` if neither a CustomResourceDefinition nor an aggregated API server serves the kind.
pub(crate) fn is_built_in(gvk: &GroupVersionKind) -> bool {
    BUILT_IN_GROUPS.contains(&gvk.group.as_str())
}

/// String at a JSON pointer, or `""`.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// `metadata.uid`.
pub(crate) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// `metadata.resourceVersion`.
pub(crate) fn resource_version(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion")
}

/// Value of a label. `None` if the object lacks it.
pub(crate) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// Value of an annotation. `None` if the object lacks it.
pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// Map at `path`, created if missing. `None` if the object has a value of another type there. Such an object is not
/// changed: the API server rejects it with a better message.
pub(crate) fn map_mut<'a>(object: &'a mut Value, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    let mut map = object.as_object_mut()?;
    for key in path {
        let entry = map.entry(*key).or_insert(Value::Null);
        if entry.is_null() {
            *entry = Value::Object(Map::new());
        }
        map = entry.as_object_mut()?;
    }
    Some(map)
}

pub(crate) fn set_label(object: &mut Value, key: &str, value: &str) {
    set_metadata(object, "labels", key, value);
}

pub(crate) fn set_annotation(object: &mut Value, key: &str, value: &str) {
    set_metadata(object, "annotations", key, value);
}

fn set_metadata(object: &mut Value, map: &str, key: &str, value: &str) {
    if let Some(map) = map_mut(object, &["metadata", map]) {
        map.insert(key.to_owned(), Value::from(value));
    }
}

/// Name of the storage version of a CustomResourceDefinition.
pub(crate) fn storage_version(crd: &Value) -> Option<&str> {
    let versions = crd.pointer("/spec/versions")?.as_array()?;
    let is_stored = |version: &&Value| version.get("storage") == Some(&Value::Bool(true));
    versions.iter().find(is_stored).map(|version| text(version, "/name"))
}

/// Kind that a CustomResourceDefinition defines, in a served version: preferably the storage version, which needs no
/// conversion.
pub fn served_kind(crd: &Value) -> Option<GroupVersionKind> {
    let is = |version: &Value, flag: &str| version.get(flag) == Some(&Value::Bool(true));
    let versions = crd.pointer("/spec/versions")?.as_array()?.iter().filter(|version| is(version, "served"));
    let served = versions.max_by_key(|version| is(version, "storage"))?;
    Some(GroupVersionKind::gvk(
        text(crd, "/spec/group"),
        text(served, "/name"),
        text(crd, "/spec/names/kind"),
    ))
}
