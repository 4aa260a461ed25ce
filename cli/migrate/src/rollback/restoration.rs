//! Objects of the backup as they must become in a return to classic OLM (docs/design/migration.md#rollback). Pure.
//!
//! Only what the migration changed is changed back: values that others set since the backup stay.

use olm_api::labels;
use olm_cli_core::object_access::ObjectId;
use olm_revision::plan::controller;
use serde_json::{Map, Value, json};

use super::super::apply::{detached, fresh};
use super::super::detach::{CA_HASH, PAUSED, from_classic, from_extension, is_of_classic};
use super::super::plan::model::PackagePlan;
use super::trust::{self, Trusted};

/// Label of all objects that classic OLM reads.
const MANAGED: &str = "olm.managed";
/// API group of ClusterExtensions, and prefix of their labels and annotations. Those of additions begin with `ext.`.
const GROUP: &str = "olm.operatorframework.io";

/// Reports whether the migration deletes the object, or writes another content: generated RBAC, webhook configurations, and
/// the Secret of a serving certificate.
fn is_replaced(plan: &PackagePlan, saved: &Value) -> bool {
    let id = ObjectId::of(saved);
    plan.removed.iter().any(|removed| is_same(&removed.object, &id)) || is_certificate(saved)
}

/// Reports whether the object is created again if it does not exist.
pub(super) fn is_restored(plan: &PackagePlan, saved: &Value) -> bool {
    let id = ObjectId::of(saved);
    is_replaced(plan, saved) || plan.adopted.iter().any(|adopted| is_same(adopted, &id))
}

fn is_same(one: &ObjectId, other: &ObjectId) -> bool {
    (&one.kind, &one.namespace, &one.name) == (&other.kind, &other.namespace, &other.name)
}

fn is_certificate(saved: &Value) -> bool {
    saved["kind"] == "Secret" && saved["metadata"]["annotations"].get(CA_HASH).is_some()
}

/// Reports whether `live` has the fields of `desired`, except for metadata and defaults.
pub(super) fn is_same_content(desired: &Value, live: &Value) -> bool {
    let fields = desired.as_object().into_iter().flatten();
    fields.filter(|(field, _)| *field != "metadata").all(|(field, value)| has(&live[field], value))
}

/// Reports whether `live` has all fields of `desired`. Lists have equal lengths.
fn has(live: &Value, desired: &Value) -> bool {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            desired.iter().all(|(key, value)| live.get(key).is_some_and(|live| has(live, value)))
        }
        (Value::Array(live), Value::Array(desired)) => {
            live.len() == desired.len() && live.iter().zip(desired).all(|(live, desired)| has(live, desired))
        }
        _ => live == desired,
    }
}

/// The saved object as a new one without owners. Before an installation, classic OLM sees only objects with label
/// `olm.managed`: without its certificate it would make a new one, and restart the pods.
pub(super) fn unowned(saved: &Value) -> Value {
    let mut object = detached(saved);
    if let Some(managed) = saved["metadata"]["labels"].get(MANAGED) {
        object["metadata"]["labels"][MANAGED] = managed.clone();
    }
    object
}

/// Reports whether `live` is an object that a rollback created again from the saved one. Webhook configurations may trust
/// more CAs.
pub(crate) fn is_recreated(saved: &Value, live: &Value) -> bool {
    let mut trusted = Trusted::new();
    trust::collect(live, &mut trusted);
    let mut object = unowned(saved);
    trust::extend(&mut object, &trusted);
    !is_of_classic(saved) && controller(live).is_none() && is_same_content(&object, live)
}

/// The live object without metadata of the extension, with label `olm.managed` if it was there, and with the saved content
/// if the migration changed it. CA bundles have both CAs. While the extension exists, operator-controller writes its
/// certificates and their CA bundles again, so these stay.
pub(super) fn released(plan: &PackagePlan, saved: &Value, live: &Value, has_extension: bool) -> Value {
    let extension = plan.extension["metadata"]["name"].as_str().unwrap_or_default();
    let mut object = live.clone();
    if has_extension && is_certificate(saved) {
        return object;
    }
    disown(&mut object, saved, extension);
    if let Some(managed) = saved["metadata"]["labels"].get(MANAGED) {
        object["metadata"]["labels"][MANAGED] = managed.clone();
    }
    let mut trusted = Trusted::new();
    if is_replaced(plan, saved) {
        replace_content(&mut object, saved);
        trust::collect(live, &mut trusted);
    } else if !has_extension {
        trust::collect(saved, &mut trusted);
    }
    trust::extend(&mut object, &trusted);
    object
}

/// Removes owners, labels and annotations of the extension that the backup does not have.
fn disown(object: &mut Value, saved: &Value, extension: &str) {
    let is_ours = |key: &str| {
        let prefix = key.split_once('/').map(|(prefix, _)| prefix);
        prefix.is_some_and(|prefix| prefix == GROUP || prefix.strip_prefix("ext.") == Some(GROUP))
    };
    // Markers of the extension: other objects may have such keys for another reason.
    let is_marked = from_extension(object, extension).is_some()
        || object["metadata"]["labels"].get(labels::EXT_WEBHOOK_CERTIFICATE).is_some();
    if !is_marked {
        return;
    }
    let saved_owners = saved["metadata"]["ownerReferences"].as_array();
    let has_owner =
        |owner: &Value| saved_owners.into_iter().flatten().any(|saved| saved["uid"] == owner["uid"]);
    let is_owner = |owner: &Value| {
        let name = owner["name"].as_str().unwrap_or_default();
        let is_revision = name.rsplit_once('-').is_some_and(|(prefix, _)| prefix == extension);
        let is_group = owner["apiVersion"].as_str().is_some_and(|version| version.starts_with(GROUP));
        match owner["kind"].as_str() {
            Some("ClusterExtension") => is_group && name == extension,
            Some("ClusterObjectSet") => is_revision,
            // Second owner of CRDs that an uninstall policy protects.
            Some("Namespace") => {
                object["kind"] == "CustomResourceDefinition" && name == "kube-system" && !has_owner(owner)
            }
            _ => false,
        }
    };
    let owners = object["metadata"]["ownerReferences"].as_array();
    let kept: Option<Vec<Value>> =
        owners.map(|owners| owners.iter().filter(|owner| !is_owner(owner)).cloned().collect());
    if let Some(kept) = kept {
        object["metadata"]["ownerReferences"] = Value::from(kept);
    }
    for field in ["labels", "annotations"] {
        if let Some(map) = object["metadata"][field].as_object_mut() {
            let is_set_by_us =
                |key: &str, value: &Value| is_ours(key) || key == labels::MANAGED_BY && value == GROUP;
            map.retain(|key, value| !is_set_by_us(key, value) || saved["metadata"][field].get(key).is_some());
        }
    }
}

/// Gives `object` all fields of the saved one except for metadata and status, and the annotations of classic OLM.
fn replace_content(object: &mut Value, saved: &Value) {
    let is_kept = |field: &str| ["apiVersion", "kind", "metadata", "status"].contains(&field);
    if let Some(fields) = object.as_object_mut() {
        fields.retain(|field, _| is_kept(field));
        let content = saved.as_object().into_iter().flatten().filter(|(field, _)| !is_kept(field));
        fields.extend(content.map(|(field, value)| (field.clone(), value.clone())));
    }
    if let Some(hash) = saved["metadata"]["annotations"].get(CA_HASH) {
        object["metadata"]["annotations"][CA_HASH] = hash.clone();
    }
}

/// The Subscription as a new one, paused: classic OLM takes `spec.config` from it, and upgrades nothing yet.
pub(super) fn paused(saved: &Value) -> Value {
    let mut subscription = fresh(saved);
    subscription["spec"]["source"] = Value::from(PAUSED);
    subscription
}

/// Status of a Subscription that has installed `csv`. An upgrade that was found before the migration is found again.
pub(super) fn installed(saved: &Value, csv: &str) -> Value {
    let mut status = saved["status"].clone();
    for (field, value) in [("installedCSV", csv), ("currentCSV", csv), ("state", "AtLatestKnown")] {
        status[field] = Value::from(value);
    }
    status
}

/// Reports whether a status is that of a Subscription that has installed `csv`, and nothing else.
pub(super) fn has_installed(status: &Value, csv: &str) -> bool {
    ["installedCSV", "currentCSV"].iter().all(|field| status[*field] == csv)
}

/// Patch that restores labels and owner references of classic OLM. `None` if the object has them, or if there is no
/// ClusterServiceVersion. Owner references to other objects of classic OLM are not restored.
pub(super) fn owning(saved: &Value, live: &Value, csv: Option<&Value>) -> Option<Value> {
    let csv = csv?;
    let removed = from_classic(saved)?;
    let of_classic = removed["metadata"]["labels"].as_object().into_iter().flatten().map(|(key, _)| key);
    let labels =
        of_classic.filter_map(|key| Some((key.clone(), saved["metadata"]["labels"].get(key)?.clone())));
    let labels: Map<String, Value> =
        labels.filter(|(key, value)| live["metadata"]["labels"].get(key) != Some(value)).collect();
    let list = |object: &Value| object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    let mut owners = list(live);
    let is_csv = |owner: &Value| {
        is_of_classic(owner)
            && owner["kind"] == "ClusterServiceVersion"
            && owner["name"] == csv["metadata"]["name"]
    };
    let has_owner = |owners: &[Value]| owners.iter().any(|owner| owner["uid"] == csv["metadata"]["uid"]);
    let is_same_namespace = saved["metadata"]["namespace"] == csv["metadata"]["namespace"];
    let mut patch = json!({ "metadata": { "resourceVersion": live["metadata"]["resourceVersion"] } });
    let mut is_needed = !labels.is_empty();
    if let Some(owner) =
        list(saved).into_iter().find(is_csv).filter(|_| is_same_namespace && !has_owner(&owners))
    {
        let mut owner = owner;
        owner["uid"] = csv["metadata"]["uid"].clone();
        owners.push(owner);
        patch["metadata"]["ownerReferences"] = json!(owners);
        is_needed = true;
    }
    if !labels.is_empty() {
        patch["metadata"]["labels"] = Value::Object(labels);
    }
    is_needed.then_some(patch)
}

#[cfg(test)]
#[path = "restoration_tests.rs"]
mod tests;
