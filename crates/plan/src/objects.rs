//! Object differences: created, changed and deleted objects.
//!
//! Pure. Secret data never leaves this module.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use olm_api::text::one_line;
use olm_api::{annotations, labels};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::fields::{self, FieldChange};

/// Identity of an object, independent of the API version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectName {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    /// API group. Empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Empty for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
}

impl ObjectName {
    /// Identity of `object`. Missing fields are empty.
    pub fn of(object: &Value) -> Self {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        Self {
            group: text("/apiVersion").split_once('/').map_or("", |(group, _)| group).to_owned(),
            kind: text("/kind").to_owned(),
            namespace: text("/metadata/namespace").to_owned(),
            name: text("/metadata/name").to_owned(),
        }
    }

    /// Reports whether it is a CustomResourceDefinition.
    pub fn is_crd(&self) -> bool {
        self.group == "apiextensions.k8s.io" && self.kind == "CustomResourceDefinition"
    }

    pub(crate) fn is_secret(&self) -> bool {
        self.group.is_empty() && self.kind == "Secret"
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.namespace.is_empty() { "" } else { "/" };
        f.write_str(&one_line(&format!("{} {}{slash}{}", self.kind, self.namespace, self.name)))
    }
}

/// Kind of change to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ChangeKind {
    /// It does not exist before.
    Created,
    /// It has other fields.
    Changed,
    /// It does not exist afterwards.
    Deleted,
}

/// Changed object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectChange {
    /// Kind of change.
    pub change: ChangeKind,
    /// Its identity.
    #[serde(flatten)]
    pub object: ObjectName,
    /// Fields of a changed object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldChange>,
    /// Remarks, such as the reason for which the change would fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Objects by identity. Of duplicates the last wins, as on a cluster.
pub fn by_name(objects: &[Value]) -> BTreeMap<ObjectName, &Value> {
    objects.iter().map(|object| (ObjectName::of(object), object)).collect()
}

/// Changes when `new` replaces `old`, sorted.
pub fn changes(old: &[Value], new: &[Value]) -> Vec<ObjectChange> {
    let (old, new) = (by_name(old), by_name(new));
    let deleted = old.keys().filter(|name| !new.contains_key(name));
    let mut changes: Vec<_> = deleted.map(|name| whole(ChangeKind::Deleted, name.clone())).collect();
    for (name, object) in &new {
        match old.get(name) {
            None => changes.push(whole(ChangeKind::Created, name.clone())),
            Some(before) => changes.extend(changed(name, before, object)),
        }
    }
    sort(&mut changes);
    changes
}

/// Sorts by kind of change (created first), then by name.
pub fn sort(changes: &mut [ObjectChange]) {
    changes.sort_by(|a, b| (a.change, &a.object).cmp(&(b.change, &b.object)));
}

/// Created or deleted object.
pub fn whole(change: ChangeKind, object: ObjectName) -> ObjectChange {
    ObjectChange { change, object, fields: Vec::new(), notes: Vec::new() }
}

/// Difference of the object. `None` if there is none.
pub fn changed(name: &ObjectName, old: &Value, new: &Value) -> Option<ObjectChange> {
    let mut fields = fields::changes(&comparable(old), &comparable(new));
    if name.is_secret() {
        fields.iter_mut().for_each(hide);
    }
    let notes = replaceable_field(name, &fields).map(|field| match is_replaceable(old) && is_replaceable(new) {
        true => format!(
            "{field} cannot be changed: the object is deleted and created again if annotation {} of the ClusterExtension \
             is Allow, else the change is rejected",
            annotations::EXT_REPLACE_IMMUTABLE
        ),
        false => format!("{field} cannot be changed: the change is rejected"),
    });
    let notes = notes.into_iter().collect();
    (!fields.is_empty()).then(|| ObjectChange { fields, notes, ..whole(ChangeKind::Changed, name.clone()) })
}

/// Reports whether replacing an object of a kind with such fields loses nothing: a Service may have an external address.
pub fn is_replaceable(object: &Value) -> bool {
    object["kind"] != "Service" || object["spec"]["type"].as_str().is_none_or(|kind| kind == "ClusterIP")
}

/// Changed field that the API server never changes, of an object of a kind that can be replaced
/// (docs/design/apply.md#immutable-fields).
pub fn replaceable_field(name: &ObjectName, changes: &[FieldChange]) -> Option<&'static str> {
    let fields: &[&'static str] = match (name.group.as_str(), name.kind.as_str()) {
        ("apps", "Deployment" | "DaemonSet") => &["spec.selector"],
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &["roleRef"],
        ("batch", "Job") => &["spec.template", "spec.selector", "spec.completionMode"],
        ("scheduling.k8s.io", "PriorityClass") => &["value", "preemptionPolicy"],
        // Absent in the bundle, it is the live one.
        ("", "Service") => &["spec.clusterIP"],
        _ => &[],
    };
    let is_set = |change: &FieldChange| change.new.is_some();
    let is_below = |path: &str, field: &str| {
        path.strip_prefix(field).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    fields.iter().copied().find(|field| {
        changes
            .iter()
            .any(|change| is_below(&change.path, field) && (is_set(change) || name.kind != "Service"))
    })
}

/// Hides Secret data, and annotations, in which `kubectl apply` keeps a copy of the data.
fn hide(change: &mut FieldChange) {
    let parts = ["data", "stringData", "metadata.annotations"];
    if parts.iter().any(|part| change.path.starts_with(part)) {
        *change = FieldChange { path: change.path.clone(), old: None, new: None, secret: true };
    }
}

/// Object as an API server stores it: `stringData` of a Secret becomes `data`.
fn stored(object: &Value) -> Value {
    let mut object = object.clone();
    if !ObjectName::of(&object).is_secret() {
        return object;
    }
    let texts = object.as_object_mut().and_then(|secret| secret.remove("stringData"));
    let Some(Value::Object(texts)) = texts else { return object };
    let Some(secret) = object.as_object_mut() else { return object };
    let data = secret.entry("data").or_insert_with(|| json!({}));
    if let Some(data) = data.as_object_mut() {
        let encoded = |text: &str| Value::from(BASE64_STANDARD.encode(text));
        data.extend(texts.iter().filter_map(|(key, text)| Some((key.clone(), encoded(text.as_str()?)))));
    }
    object
}

/// Object without the fields that only the API server or a revision writes, because they differ in every version of a
/// bundle. Also drops the namespace: a cluster-scoped object may name one, which the API server drops.
pub(crate) fn comparable(object: &Value) -> Value {
    let mut object = stored(object);
    if let Some(root) = object.as_object_mut() {
        root.remove("status");
    }
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return object };
    for field in [
        "namespace",
        "managedFields",
        "resourceVersion",
        "generation",
        "uid",
        "creationTimestamp",
        "selfLink",
        "ownerReferences",
    ] {
        metadata.remove(field);
    }
    let marks = [
        ("annotations", [annotations::REVISION, annotations::BUNDLE_VERSION, annotations::PACKAGE_NAME]),
        ("labels", [labels::MANAGED_BY, labels::OWNER_KIND, labels::OWNER_NAME]),
    ];
    for (field, keys) in marks {
        if let Some(map) = metadata.get_mut(field).and_then(Value::as_object_mut) {
            map.retain(|key, _| !keys.contains(&key.as_str()));
            if map.is_empty() {
                metadata.remove(field);
            }
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, name: &str, spec: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "ns"}, "spec": spec})
    }

    #[test]
    fn created_changed_and_deleted_objects_are_listed() {
        let old = [
            object("A", "same", &json!(1)),
            object("A", "other", &json!({"x": 1})),
            object("A", "gone", &json!(1)),
        ];
        let new = [
            object("A", "new", &json!(1)),
            object("A", "other", &json!({"x": 2})),
            object("A", "same", &json!(1)),
        ];
        let shown: Vec<_> = changes(&old, &new)
            .into_iter()
            .map(|change| (change.change, change.object.to_string(), change.fields.len()))
            .collect();
        assert_eq!(
            shown,
            [
                (ChangeKind::Created, "A ns/new".to_owned(), 0),
                (ChangeKind::Changed, "A ns/other".to_owned(), 1),
                (ChangeKind::Deleted, "A ns/gone".to_owned(), 0)
            ]
        );
    }

    #[test]
    fn change_of_immutable_field_has_a_note() {
        let noted = |api_version: &str, kind: &str, old: Value, new: Value| {
            let object = |fields: Value| {
                let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
                object.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
                object
            };
            let notes = changes(&[object(old)], &[object(new)]).remove(0).notes;
            notes.first().map(|note| note.split(' ').next().unwrap().to_owned())
        };
        let selector =
            |app: &str| json!({"spec": {"selector": {"matchLabels": {"app": app}}, "replicas": 1}});
        let address = |ip: Value| json!({"spec": {"clusterIP": ip, "clusterIPs": [ip], "x": ip}});
        let (a, b) =
            (json!({"value": 1, "roleRef": {"name": "a"}}), json!({"value": 2, "roleRef": {"name": "b"}}));
        for (api_version, kind, old, new, expected) in [
            ("apps/v1", "Deployment", selector("a"), selector("b"), Some("spec.selector")),
            ("apps/v1", "StatefulSet", selector("a"), selector("b"), None),
            (
                "apps/v1",
                "Deployment",
                json!({"spec": {"selectors": 1}}),
                json!({"spec": {"selectors": 2}}),
                None,
            ),
            ("rbac.authorization.k8s.io/v1", "RoleBinding", a.clone(), b.clone(), Some("roleRef")),
            ("scheduling.k8s.io/v1", "PriorityClass", a, b, Some("value")),
            ("v1", "Service", address(json!("10.0.0.1")), address(json!("None")), Some("spec.clusterIP")),
            ("v1", "Service", address(json!("10.0.0.1")), json!({"spec": {}}), None),
        ] {
            assert_eq!(noted(api_version, kind, old, new).as_deref(), expected, "{kind}");
        }
    }

    #[test]
    fn object_in_another_api_version_is_the_same_object() {
        let old =
            json!({"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}});
        let new =
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}});
        let changes = changes(&[old], &[new]);
        assert_eq!((changes.len(), changes[0].fields[0].path.as_str()), (1, "apiVersion"));
    }

    #[test]
    fn secret_data_is_never_shown() {
        let secret = |data: &str, label: &str| {
            json!({"apiVersion": "v1", "kind": "Secret", "data": {"password": data}, "stringData": {"text": data},
                "metadata": {"name": "s", "labels": {"l": label}, "annotations": {"last": data}}})
        };
        let changes = changes(&[secret("b2xk", "a")], &[secret("bmV3", "b")]);
        let text = serde_json::to_string(&changes).unwrap();
        assert!(!text.contains("b2xk") && !text.contains("bmV3"), "{text}");
        let paths: Vec<_> =
            changes[0].fields.iter().map(|field| (field.path.as_str(), field.secret)).collect();
        assert_eq!(
            paths,
            [
                ("data.password", true),
                ("data.text", true),
                ("metadata.annotations.last", true),
                ("metadata.labels.l", false)
            ]
        );
    }

    #[test]
    fn fields_of_revision_and_server_are_ignored() {
        let plain = object("A", "a", &json!(1));
        let mut live = plain.clone();
        live["status"] = json!({"ready": true});
        let unlike = json!({"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}, "spec": 1});
        assert_eq!(changed(&ObjectName::of(&plain), &unlike, &plain), None);
        live["metadata"]["uid"] = json!("u");
        live["metadata"]["ownerReferences"] = json!([{"uid": "x"}]);
        live["metadata"]["labels"] = json!({labels::OWNER_NAME: "e", labels::OWNER_KIND: "ClusterExtension"});
        live["metadata"]["annotations"] = json!({annotations::BUNDLE_VERSION: "1.0.0"});
        assert_eq!(changes(&[live], &[plain]), []);
    }
}
