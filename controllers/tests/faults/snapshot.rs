//! Everything that an extension has on the cluster, normalized so that equal outcomes compare equal.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client, ResourceExt};
use olm_api::{ClusterObjectSet, annotations};
use olm_revision::record::recorded;
use olm_servers::NAMESPACE;
use serde_json::{Value, json};

/// Kinds of the objects of a revision and of its own objects: group, version, kind.
const KINDS: [(&str, &str, &str); 11] = [
    ("", "v1", "ConfigMap"),
    ("", "v1", "Service"),
    ("", "v1", "ServiceAccount"),
    ("", "v1", "Secret"),
    ("apps", "v1", "Deployment"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io", "v1", "Role"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding"),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
    ("olm.operatorframework.io", "v1", "ClusterObjectSet"),
];

/// Objects of an extension by kind and name.
pub(crate) type Snapshot = BTreeMap<String, Value>;

/// Takes the extension `name` and all objects with it in their name or namespace. `NAME` replaces the name.
///
/// # Errors
/// An object has two controllers, or an owner that does not exist.
pub(crate) async fn take(client: &Client, name: &str) -> Result<Snapshot> {
    let mut found = Vec::new();
    for (group, version, kind) in KINDS {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let objects = api.list(&ListParams::default()).await?.items;
        let belongs = |object: &DynamicObject| {
            object.name_any().contains(name) || object.namespace().is_some_and(|space| space == name)
        };
        found.extend(objects.into_iter().filter(belongs).map(|object| (kind, object)));
    }
    let revisions: BTreeMap<String, String> = found
        .iter()
        .filter(|(kind, _)| *kind == "ClusterObjectSet")
        .map(|(_, object)| (object.name_any(), object.uid().unwrap_or_default()))
        .collect();
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("olm.operatorframework.io", "v1", "ClusterExtension"));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    found.extend(api.get_opt(name).await?.map(|extension| ("ClusterExtension", extension)));

    let hashed: Vec<String> = found
        .iter()
        .filter(|(kind, object)| ends_with_hash(kind, object))
        .map(|(_, object)| object.name_any())
        .collect();
    let mut snapshot = Snapshot::new();
    for (kind, object) in &found {
        check_owners(kind, object, &revisions)?;
        let key = format!("{kind} {}/{}", object.namespace().unwrap_or_default(), object.name_any());
        let text = serde_json::to_string(&normal(kind, object)?)?;
        let [key, text] = [key, text].map(|text| without_hashes(text, &hashed).replace(name, "NAME"));
        snapshot.insert(key, serde_json::from_str(&text)?);
    }
    Ok(snapshot)
}

/// Reports whether the object's name ends with a content hash, which differs with the extension's name.
fn ends_with_hash(kind: &str, object: &DynamicObject) -> bool {
    kind.starts_with("ClusterRole") || kind == "Secret" && object.namespace().as_deref() == Some(NAMESPACE)
}

/// Identity of an object, which may be deleted, with `HASH` in its name.
fn without_hash(mut object: Value) -> Value {
    let is_hashed = object["kind"].as_str().is_some_and(|kind| kind.starts_with("ClusterRole"));
    if let Some((stem, _)) = object["metadata"]["name"].as_str().and_then(|name| name.rsplit_once('-'))
        && is_hashed
    {
        object["metadata"]["name"] = json!(format!("{stem}-HASH"));
    }
    object
}

/// Replaces these names and image digests in the text by `HASH`.
fn without_hashes(text: String, names: &[String]) -> String {
    const DIGEST: &str = "sha256:";
    const DIGITS: usize = 64;
    let short = |text: String, name: &String| {
        let stem = name.rsplit_once('-').map_or(name.as_str(), |(stem, _)| stem);
        text.replace(name, &format!("{stem}-HASH"))
    };
    let text = names.iter().fold(text, short);
    let mut parts = text.split(DIGEST);
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        rest = rest + "HASH" + part.get(DIGITS..).unwrap_or_default();
    }
    rest
}

/// Fails if the object has two controllers, or an owning revision that does not exist.
fn check_owners(kind: &str, object: &DynamicObject, revisions: &BTreeMap<String, String>) -> Result<()> {
    let owners = object.owner_references();
    let controllers = owners.iter().filter(|owner| owner.controller == Some(true)).count();
    ensure!(controllers <= 1, "{kind} {} has {controllers} controllers", object.name_any());
    for owner in owners.iter().filter(|owner| owner.kind == "ClusterObjectSet") {
        ensure!(
            revisions.get(&owner.name) == Some(&owner.uid),
            "{kind} {} is owned by {}, which does not exist",
            object.name_any(),
            owner.name
        );
    }
    Ok(())
}

/// Removes what differs between equal outcomes: times, counters, UIDs, hashes.
fn normal(kind: &str, object: &DynamicObject) -> Result<Value> {
    let managers: Vec<String> = object
        .managed_fields()
        .iter()
        .filter_map(|entry| {
            let manager = entry.manager.as_deref()?;
            let operation = entry.operation.as_deref().unwrap_or_default();
            Some(format!("{manager} {operation} {}", entry.subresource.as_deref().unwrap_or_default()))
        })
        .filter(|entry| entry.starts_with("olm."))
        .collect();
    let owners: Vec<Value> = object
        .owner_references()
        .iter()
        .map(|owner| json!({"kind": owner.kind, "name": owner.name, "controller": owner.controller}))
        .collect();
    let mut content = object.data.clone();
    let members = content.as_object_mut().context("the object is not a map")?;
    if let Some(spec) = members.get_mut("spec").and_then(Value::as_object_mut) {
        for assigned in ["clusterIP", "clusterIPs"] {
            spec.remove(assigned);
        }
    }
    match kind {
        "ClusterExtension" | "ClusterObjectSet" => forget(&mut content),
        // The keys of the data are hashes.
        "Secret" => content = json!({"type": content["type"], "immutable": content["immutable"]}),
        _ => drop(members.remove("status")),
    }
    let mut notes = json!(object.annotations());
    // The record is packed, so that names in it must be replaced after unpacking.
    if let Some(record) = notes.get_mut(annotations::EXT_OBJECTS) {
        let set: ClusterObjectSet = serde_json::from_value(serde_json::to_value(object)?)?;
        let phases = recorded(&set).context("unreadable object record")?;
        let objects = phases.iter().flat_map(|phase| &phase.objects);
        *record = objects.map(|content| without_hash(content.object.clone())).collect();
    }
    Ok(json!({
        "labels": object.labels(), "annotations": notes, "owners": owners, "managers": managers,
        "finalizers": object.finalizers(), "content": content,
    }))
}

/// Removes what differs between equal outcomes from status and references of the kinds of OLM.
fn forget(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for member in ["lastTransitionTime", "observedGeneration", "key"] {
                members.remove(member);
            }
            members.values_mut().for_each(forget);
            // Conditions are a map by type, so that their order has no meaning.
            if let Some(conditions) = members.get_mut("conditions").and_then(Value::as_array_mut) {
                conditions.sort_by_key(|condition| condition["type"].to_string());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(forget),
        _ => {}
    }
}

/// Differences, one line per value.
pub(crate) fn difference(expected: &Snapshot, found: &Snapshot) -> Vec<String> {
    let mut lines = Vec::new();
    for key in expected.keys().chain(found.keys().filter(|key| !expected.contains_key(*key))) {
        match (expected.get(key), found.get(key)) {
            (Some(expected), Some(found)) => compare(key, expected, found, &mut lines),
            (expected, _) => {
                let what = if expected.is_some() { "missing" } else { "not expected" };
                lines.push(format!("{key}: {what}"));
            }
        }
    }
    lines
}

fn compare(path: &str, expected: &Value, found: &Value, lines: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(expected), Value::Object(found)) => {
            for member in expected.keys().chain(found.keys().filter(|key| !expected.contains_key(*key))) {
                let of = |map: &serde_json::Map<String, Value>| map.get(member).cloned().unwrap_or_default();
                compare(&format!("{path}.{member}"), &of(expected), &of(found), lines);
            }
        }
        (Value::Array(expected), Value::Array(found)) if expected.len() == found.len() => {
            for (index, (expected, found)) in expected.iter().zip(found).enumerate() {
                compare(&format!("{path}[{index}]"), expected, found, lines);
            }
        }
        _ if expected == found => {}
        _ => lines.push(format!("{path}: expected {expected}, found {found}")),
    }
}
