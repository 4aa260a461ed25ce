//! Field ownership: parsing and merging of `metadata.managedFields`
//! (docs/design/apply.md#field-ownership-and-writes).
//!
//! Pure. A field set ("FieldsV1") is a tree of JSON maps: `f:<name>` is a field, `k:{…}` an entry of a keyed list,
//! `v:<value>` an entry of a set, `.` the node itself. An empty map is a leaf.

use std::collections::BTreeMap;

use olm_api::names::REVISION_ENGINE_MANAGER;
use serde_json::{Map, Value, json};

use crate::object::{gvk, is_crd, text};

pub(crate) fn entries(object: &Value) -> &[Value] {
    object.pointer("/metadata/managedFields").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(crate) fn is_ours(entry: &Value) -> bool {
    text(entry, "/manager") == REVISION_ENGINE_MANAGER
        && text(entry, "/operation") == "Apply"
        && text(entry, "/subresource").is_empty()
}

fn our_fields(object: &Value) -> Option<&Map<String, Value>> {
    entries(object).iter().find(|entry| is_ours(entry))?.get("fieldsV1")?.as_object()
}

/// Fields of `object` that we own, without owner references. Another writer that changes such a field takes over its
/// ownership. `None` if we applied none.
pub(crate) fn owned(object: &Value) -> Option<Vec<Value>> {
    entries(object).iter().find(|entry| is_ours(entry))?;
    let ours = entries(object).iter().filter(|entry| text(entry, "/manager") == REVISION_ENGINE_MANAGER);
    let mut ours: Vec<Value> = ours.cloned().collect();
    for entry in ours.iter_mut().filter_map(Value::as_object_mut) {
        entry.remove("time");
        if let Some(Value::Object(metadata)) =
            entry.get_mut("fieldsV1").and_then(|all| all.get_mut("f:metadata"))
        {
            metadata.remove("f:ownerReferences");
        }
    }
    Some(ours)
}

/// The managedFields of `object` with all entries of `managers`, but our own applies, converted to our server-side
/// apply. Then we are the only owner of those fields and can remove them. `None` if there is no such entry.
pub(crate) fn taken_over(object: &Value, managers: &[&str]) -> Option<Vec<Value>> {
    let mut list = entries(object).to_vec();
    let is_superseded = |entry: &Value| {
        managers.contains(&text(entry, "/manager"))
            && text(entry, "/subresource").is_empty()
            && !is_ours(entry)
    };
    let first = list.iter().position(is_superseded)?;
    let target = list.iter().position(is_ours).unwrap_or(first);
    if target == first {
        let entry = list[first].as_object_mut()?;
        entry.insert("manager".to_owned(), REVISION_ENGINE_MANAGER.into());
        entry.insert("operation".to_owned(), "Apply".into());
    }
    let api_version = text(&list[target], "/apiVersion").to_owned();
    let mut fields = list[target].get("fieldsV1").cloned().unwrap_or_default();
    for entry in list.iter().filter(|entry| is_superseded(entry) && text(entry, "/apiVersion") == api_version)
    {
        union(&mut fields, entry.get("fieldsV1").unwrap_or(&Value::Null));
    }
    // Later versions must not remove these annotations: the reference keeps them too
    // (docs/design/apply.md#migration-to-revision-1).
    if let Some(annotations) = fields.pointer_mut("/f:metadata/f:annotations").and_then(Value::as_object_mut)
    {
        annotations.retain(|field, _| !field.starts_with("f:meta.helm.sh/"));
    }
    list[target].as_object_mut()?.insert("fieldsV1".to_owned(), fields);
    list.retain(|entry| !is_superseded(entry));
    Some(list)
}

/// `true` if `desired` drops the conversion webhook of a CRD that a revision set. One that neither `desired` nor an entry
/// of `managers` lists belongs to another writer, such as the operator.
pub(crate) fn drops_conversion(desired: &Value, actual: &Value, managers: &[&str]) -> bool {
    let is_converted = |object: &Value| text(object, "/spec/conversion/strategy") == "Webhook";
    let is_listed = |entry: &Value| {
        managers.contains(&text(entry, "/manager"))
            && entry.pointer("/fieldsV1/f:spec/f:conversion").is_some()
    };
    is_crd(&gvk(actual))
        && is_converted(actual)
        && !is_converted(desired)
        && (!desired["spec"]["conversion"].is_null() || entries(actual).iter().any(is_listed))
}

/// Makes the whole live conversion of a CRD ours alone. An apply removes no field that another manager owns, such as an
/// injected CA bundle, or nobody, such as a defaulted port, and the API server rejects these without the strategy Webhook
/// (docs/design/apply.md#field-ownership-and-writes).
pub(crate) fn take_over_conversion(actual: &Value, list: &mut Vec<Value>, claims: &mut Value) {
    for entry in list.iter_mut().filter(|entry| !is_ours(entry)) {
        remove_field(entry, &["fieldsV1", "f:spec", "f:conversion"]);
    }
    list.retain(|entry| entry.get("fieldsV1").is_some());
    union(claims, &json!({"f:spec": {"f:conversion": field_set(&actual["spec"]["conversion"])}}));
}

/// Removes a field, and the fields around it that become empty.
fn remove_field(object: &mut Value, path: &[&str]) {
    let (Some(map), [name, below @ ..]) = (object.as_object_mut(), path) else { return };
    let Some(value) = map.get_mut(*name) else { return };
    remove_field(value, below);
    if below.is_empty() || value.as_object().is_some_and(Map::is_empty) {
        map.remove(*name);
    }
}

/// Field set of a value without keyed lists.
fn field_set(value: &Value) -> Value {
    let members = value.as_object().into_iter().flatten();
    members.map(|(name, value)| (format!("f:{name}"), field_set(value))).collect::<Map<_, _>>().into()
}

/// Our fields in the outcome of an apply, if another client has removed our entry from `actual`. An apply alone would add
/// an entry of manager `before-first-apply`, so that no later one could remove a field. Null with an entry.
pub(crate) fn unrecorded(actual: &Value, outcome: &Value) -> Value {
    let entry = entries(outcome).iter().find(|entry| is_ours(entry));
    let is_recorded = entries(actual).iter().any(is_ours);
    entry.filter(|_| !is_recorded).map_or(Value::Null, |entry| entry["fieldsV1"].clone())
}

/// Merges one field set into another.
pub(crate) fn union(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                union(into.entry(key.clone()).or_insert_with(|| Value::Object(Map::new())), value);
            }
        }
        (into, from) if into.is_null() => *into = from.clone(),
        _ => {}
    }
}

/// Fields of `desired` that other managers own on `actual` and we do not: paths such as `.spec.replicas` by manager,
/// sorted.
pub fn conflicts(desired: &Value, actual: &Value) -> BTreeMap<String, Vec<String>> {
    let ours = our_fields(actual);
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for entry in entries(actual).iter().filter(|entry| !is_ours(entry)) {
        let Some(theirs) = entry.get("fieldsV1").and_then(Value::as_object) else { continue };
        let paths = found.entry(text(entry, "/manager").to_owned()).or_default();
        intersect(desired, theirs, ours, "", paths);
    }
    found.retain(|_, paths| {
        paths.sort();
        paths.dedup();
        !paths.is_empty()
    });
    found
}

/// `true` if we own every field of `desired` on `actual` with the desired value, so that an apply would change
/// nothing. In metadata we must own nothing else. Elsewhere we can also own defaults, of objects that a POST created.
/// `false` if only the API server can tell.
pub(crate) fn agrees(desired: &Value, actual: &Value) -> bool {
    our_fields(actual).is_some_and(|ours| holds(&without_identity(desired), actual, ours, false))
}

fn without_identity(desired: &Value) -> Value {
    let mut fields = desired.clone();
    for (path, names) in [("", ["apiVersion", "kind"]), ("/metadata", ["name", "namespace"])] {
        if let Some(Value::Object(map)) = fields.pointer_mut(path) {
            map.retain(|name, _| !names.contains(&name.as_str()));
        }
    }
    fields
}

/// Fields of `desired` that other clients have changed on `actual`: [`conflicts`], and under an empty manager those that
/// nobody owns because they were removed.
pub(crate) fn changed(desired: &Value, actual: &Value) -> BTreeMap<String, Vec<String>> {
    let mut changed = conflicts(desired, actual);
    let mut removed = Vec::new();
    missing(&without_identity(desired), our_fields(actual), "", &mut removed);
    removed.retain(|path| !changed.values().flatten().any(|set| set.starts_with(path.as_str())));
    if !removed.is_empty() {
        changed.insert(String::new(), removed);
    }
    changed
}

/// Paths of the fields of `desired` that are not in the set `ours`.
fn missing(desired: &Value, ours: Option<&Map<String, Value>>, path: &str, out: &mut Vec<String>) {
    let mut check = |value: &Value, below: Option<&Value>, path: String| match below {
        None => out.push(path),
        Some(Value::Object(below)) if !below.is_empty() => missing(value, Some(below), &path, out),
        Some(_) => {}
    };
    match desired {
        Value::Object(fields) => {
            for (name, value) in fields {
                let below = ours.and_then(|ours| ours.get(&format!("f:{name}")));
                check(value, below, format!("{path}.{name}"));
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let list = std::slice::from_ref(item);
                let own = ours
                    .into_iter()
                    .flatten()
                    .find_map(|(step, below)| Some((enter(&list.into(), step, path)?.1, below)));
                match own {
                    Some((path, below)) => check(item, Some(below), path),
                    None => check(item, None, format!("{path}[{index}]")),
                }
            }
        }
        _ => {}
    }
}

fn holds(desired: &Value, actual: &Value, ours: &Map<String, Value>, nothing_else: bool) -> bool {
    let size = desired.as_object().map(Map::len).or_else(|| desired.as_array().map(Vec::len));
    let mut held = 0;
    for (step, below) in ours.iter().filter(|(step, _)| *step != ".") {
        let Some((desired, path)) = enter(desired, step, "") else {
            if nothing_else {
                return false;
            }
            continue;
        };
        let is_same = match (enter(actual, step, ""), below.as_object()) {
            (Some((actual, _)), Some(below)) if !below.is_empty() => {
                holds(desired, actual, below, nothing_else || path == ".metadata")
            }
            // Others and defaults can fill an empty map.
            (Some((actual, _)), _) => desired == actual || *desired == json!({}) && actual.is_object(),
            // The API server drops some empty maps and lists.
            (None, _) => [json!({}), json!([])].contains(desired),
        };
        if !is_same {
            return false;
        }
        held += 1;
    }
    size == Some(held)
}

fn intersect(
    desired: &Value,
    theirs: &Map<String, Value>,
    ours: Option<&Map<String, Value>>,
    path: &str,
    out: &mut Vec<String>,
) {
    for (step, below) in theirs {
        let Some((value, path)) = enter(desired, step, path) else {
            continue;
        };
        let our_step = ours.and_then(|ours| ours.get(step));
        match below.as_object() {
            Some(below) if !below.is_empty() => {
                intersect(value, below, our_step.and_then(Value::as_object), &path, out);
            }
            _ if our_step.is_none() => out.push(path),
            _ => {}
        }
    }
}

/// Part of `desired` that a step of a field set refers to, with its path.
pub(crate) fn enter<'a>(desired: &'a Value, step: &str, path: &str) -> Option<(&'a Value, String)> {
    let (kind, rest) = step.split_once(':')?;
    match kind {
        "f" => Some((desired.get(rest)?, format!("{path}.{rest}"))),
        "k" => {
            let keys: Map<String, Value> = serde_json::from_str(rest).ok()?;
            let is_entry = |item: &&Value| keys.iter().all(|(key, value)| has_key(item, key, value));
            let shown: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            Some((desired.as_array()?.iter().find(is_entry)?, format!("{path}[{}]", shown.join(","))))
        }
        "v" => {
            let value: Value = serde_json::from_str(rest).ok()?;
            let found = desired.as_array()?.iter().find(|item| **item == value)?;
            Some((found, format!("{path}[={value}]")))
        }
        _ => None,
    }
}

/// `true` if the entry of a list has this key. The API server knows a port without protocol as one of TCP.
fn has_key(item: &Value, key: &str, value: &Value) -> bool {
    item.get(key).map_or(key == "protocol" && value == "TCP", |found| found == value)
}

/// Moves the fields that `desired` lists from one field set into another one.
pub(crate) fn move_listed(from: &mut Value, desired: &Value, into: &mut Value) {
    let Some(map) = from.as_object_mut() else { return };
    map.retain(|step, below| {
        let is_leaf = below.as_object().is_none_or(Map::is_empty);
        let mut moved = Value::Null;
        match enter(desired, step, "") {
            None if step != "." => return true,
            Some((desired, _)) if !is_leaf => move_listed(below, desired, &mut moved),
            _ => moved = json!({}),
        }
        if !moved.is_null() {
            union(&mut into[step], &moved);
        }
        !is_leaf && below.as_object().is_some_and(|below| !below.is_empty())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsV1": fields})
    }

    fn object(managed: &[Value]) -> Value {
        json!({"metadata": {"managedFields": managed}})
    }

    const OURS: &str = REVISION_ENGINE_MANAGER;

    #[test]
    fn managed_fields_update_entry_of_olm_becomes_apply_entry() {
        let fields = json!({"f:data": {".": {}, "f:a": {}}});
        let other = entry("kubectl", "Update", json!({"f:data": {"f:b": {}}}));
        let before = object(&[entry(OURS, "Update", fields.clone()), other.clone()]);
        assert_eq!(taken_over(&before, &[OURS]), Some(vec![entry(OURS, "Apply", fields), other]));
    }

    #[test]
    fn updates_are_merged_into_the_apply_entry() {
        let before = object(&[
            entry(OURS, "Apply", json!({"f:data": {"f:a": {}}})),
            entry("operator-controller", "Update", json!({"f:data": {"f:a": {}, "f:b": {}}})),
            entry(OURS, "Update", json!({"f:immutable": {}})),
        ]);
        assert_eq!(
            taken_over(&before, &[OURS, "operator-controller"]),
            Some(vec![entry(OURS, "Apply", json!({"f:data": {"f:a": {}, "f:b": {}}, "f:immutable": {}}))])
        );
    }

    #[test]
    fn port_without_protocol_is_found_as_one_of_tcp() {
        let desired = json!({"spec": {"ports": [{"port": 53}, {"port": 53, "protocol": "UDP"}]}});
        let of = |protocol: &str| {
            let key = format!("k:{{\"port\":53,\"protocol\":{protocol:?}}}");
            let fields = json!({"f:spec": {"f:ports": {key: {"f:port": {}}}}});
            conflicts(&desired, &object(&[entry("kubectl-edit", "Update", fields)]))
        };
        for protocol in ["TCP", "UDP"] {
            let path = format!(".spec.ports[port=53,protocol={protocol:?}].port");
            assert_eq!(of(protocol), BTreeMap::from([("kubectl-edit".to_owned(), vec![path])]));
        }
        assert_eq!(of("SCTP"), BTreeMap::new());
    }

    // docs/design/apply.md#migration-to-revision-1: these annotations stay without an owner.
    #[test]
    fn helm_annotations_are_not_taken_over() {
        let fields = json!({"f:metadata": {"f:annotations": {
            ".": {}, "f:a": {}, "f:meta.helm.sh/release-name": {}, "f:meta.helm.sh/release-namespace": {}}}});
        let before = object(&[entry("operator-controller", "Update", fields)]);
        let kept = json!({"f:metadata": {"f:annotations": {".": {}, "f:a": {}}}});
        assert_eq!(taken_over(&before, &["operator-controller"]), Some(vec![entry(OURS, "Apply", kept)]));
    }

    #[test]
    fn applies_of_superseded_managers_are_merged() {
        let theirs = entry("olm.install", "Apply", json!({"f:spec": {"f:b": {}}}));
        let before = object(&[theirs, entry(OURS, "Apply", json!({"f:spec": {"f:a": {}}}))]);
        let both = entry(OURS, "Apply", json!({"f:spec": {"f:a": {}, "f:b": {}}}));
        assert_eq!(taken_over(&before, &[OURS, "olm.install"]), Some(vec![both]));
    }

    #[test]
    fn object_without_plain_updates_is_unchanged() {
        let mut status = entry(OURS, "Update", json!({}));
        status["subresource"] = json!("status");
        for managed in [vec![], vec![entry(OURS, "Apply", json!({}))], vec![status]] {
            assert_eq!(taken_over(&object(&managed), &[OURS]), None);
        }
        assert_eq!(taken_over(&json!({}), &[OURS]), None);
    }

    #[test]
    fn managed_fields_agree_only_if_olm_owns_all_desired_fields() {
        let desired = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "labels": {"a": "b"}},
            "spec": {"replicas": 1, "containers": [{"name": "m", "args": ["x", "y"], "dir": {}}], "set": ["s"]}});
        let container = json!({".": {}, "f:name": {}, "f:args": {}, "f:dir": {}, "f:policy": {}});
        let fields = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:replicas": {}, "f:strategy": {},
            "f:containers": {"k:{\"name\":\"m\"}": container}, "f:set": {".": {}, "v:\"s\"": {}}}});
        let found = |change: &dyn Fn(&mut Value, &mut Value)| {
            let (mut object, mut ours) = (desired.clone(), fields.clone());
            object["spec"]["strategy"] = json!("default");
            object["spec"]["containers"][0]["policy"] = json!("default");
            change(&mut object, &mut ours);
            object["metadata"]["managedFields"] = json!([entry(OURS, "Apply", ours)]);
            agrees(&desired, &object)
        };
        assert!(found(&|_, _| {}), "we can own defaults");
        assert!(found(&|object, _| object["metadata"]["labels"]["c"] = json!("d")), "others can add fields");
        assert!(
            found(&|object, _| object["spec"]["containers"][0]["dir"]["a"] = json!(1)),
            "also to an empty map"
        );
        let drop_empty =
            |object: &mut Value| drop(object["spec"]["containers"][0].as_object_mut().unwrap().remove("dir"));
        assert!(found(&|object, _| drop_empty(object)), "the API server drops an empty map");
        assert!(!found(&|object, _| object["spec"]["replicas"] = json!(2)));
        assert!(!found(&|object, _| object["spec"]["containers"][0]["args"] = json!(["x"])));
        assert!(
            !found(&|_, ours| drop(ours["f:spec"].as_object_mut().unwrap().remove("f:replicas"))),
            "owned by another manager"
        );
        assert!(!found(&|_, ours| drop(ours["f:spec"]["f:set"].as_object_mut().unwrap().remove("v:\"s\""))));
        assert!(!found(&|_, ours| ours["f:metadata"]["f:labels"]["f:old"] = json!({})), "a label to remove");
        assert!(!agrees(&desired, &desired), "we own nothing");
    }

    #[test]
    fn conflicts_lists_only_fields_of_other_managers() {
        let desired = json!({
            "metadata": {"labels": {"app": "x"}},
            "spec": {"replicas": 1, "containers": [{"name": "m", "image": "i"}], "set": ["a"]}});
        let actual = object(&[
            entry(OURS, "Apply", json!({"f:metadata": {"f:labels": {"f:app": {}}}})),
            entry("b", "Update", json!({"f:spec": {"f:replicas": {}, "f:paused": {}}})),
            entry(
                "a",
                "Apply",
                json!({
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {
                    "f:containers": {"k:{\"name\":\"m\"}": {".": {}, "f:image": {}}, "k:{\"name\":\"n\"}": {"f:image": {}}},
                    "f:set": {"v:\"a\"": {}, "v:\"b\"": {}}}}),
            ),
        ]);
        assert_eq!(
            conflicts(&desired, &actual),
            BTreeMap::from([
                (
                    "a".to_owned(),
                    vec![".spec.containers[name=\"m\"].image".to_owned(), ".spec.set[=\"a\"]".to_owned()]
                ),
                ("b".to_owned(), vec![".spec.replicas".to_owned()]),
            ])
        );
    }

    #[test]
    fn changed_lists_set_and_removed_fields() {
        let desired = json!({"apiVersion": "v1", "metadata": {"name": "n", "labels": {"a": "x", "b": "x"}},
            "spec": {"replicas": 1, "list": [{"name": "m", "image": "i"}, {"name": "n"}], "set": ["v", "w"]}});
        let ours = json!({"f:metadata": {"f:labels": {"f:a": {}}}, "f:spec": {
            "f:list": {"k:{\"name\":\"m\"}": {".": {}, "f:name": {}}}, "f:set": {"v:\"v\"": {}}}});
        let theirs = json!({"f:spec": {"f:replicas": {}}});
        let actual = object(&[entry(OURS, "Apply", ours), entry("user", "Update", theirs)]);
        let removed = [".metadata.labels.b", ".spec.list[name=\"m\"].image", ".spec.list[1]", ".spec.set[1]"];
        assert_eq!(
            changed(&desired, &actual),
            BTreeMap::from([
                (String::new(), removed.map(str::to_owned).to_vec()),
                ("user".to_owned(), vec![".spec.replicas".to_owned()]),
            ])
        );
    }
}
