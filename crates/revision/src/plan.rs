//! Plan for one object by the decision table of docs/design/apply.md#decision-table, and the bodies of its writes.
//!
//! Pure. Field ownership or a dry run of the API server decides whether an object of the revision differs, not this
//! module.

use olm_api::cluster_object_set::CollisionProtection;
use olm_api::{annotations, labels, names};
use serde_json::{Map, Value, json};

use crate::content::ContentObject;
use crate::fields::{applied, without_scaled};
use crate::generate::controller_reference;
use crate::object::{
    annotation, gvk, is_crd, label, map_mut, resource_version, set_annotation, set_label, text,
};
use crate::ordering::ordered_like;

/// Revision that owns the written objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Name of the ClusterObjectSet.
    pub name: String,
    /// UID of the ClusterObjectSet.
    pub uid: String,
    /// `spec.revision`.
    pub number: i64,
    /// Value of its label owner-name. Empty if missing.
    pub extension: String,
}

impl Owner {
    /// Owner reference for objects that this revision controls.
    pub(crate) fn reference(&self) -> Value {
        json!(controller_reference("ClusterObjectSet", &self.name, &self.uid))
    }

    pub(crate) fn is(&self, reference: &Value) -> bool {
        is_revision(reference) && text(reference, "/name") == self.name && text(reference, "/uid") == self.uid
    }
}

/// `true` for a reference to any revision.
pub(crate) fn is_revision(reference: &Value) -> bool {
    is_of_kind(reference, "ClusterObjectSet")
}

fn is_of_kind(reference: &Value, kind: &str) -> bool {
    let group = text(reference, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
    group == names::GROUP && text(reference, "/kind") == kind
}

/// Plan for an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectPlan {
    /// It does not exist: create it.
    Create,
    /// It exists: become its controller.
    Adopt,
    /// The revision controls it: repair differences.
    Repair,
    /// The revision controls it, and it is known to be unchanged. [`plan`] alone never returns this.
    Keep,
    /// It is deleted and created again, because a field cannot change. [`plan`] alone never returns this.
    Replace,
    /// It is being deleted and is either ours, or a former one of the extension, or a CustomResourceDefinition. It can
    /// be created again after the deletion.
    AwaitDeletion,
    /// A newer revision controls it: skip it.
    Leave,
    /// Another owner controls it.
    Collide,
}

/// Plan for `actual`. `siblings` are the UIDs of the other active revisions of the extension.
pub fn plan(
    actual: Option<&Value>,
    owner: &Owner,
    siblings: &[String],
    protection: &CollisionProtection,
) -> ObjectPlan {
    let Some(actual) = actual else {
        return ObjectPlan::Create;
    };
    match controller(actual) {
        Some(reference) if owner.is(reference) && is_deleting(actual) => ObjectPlan::AwaitDeletion,
        Some(reference) if owner.is(reference) => ObjectPlan::Repair,
        Some(reference) if siblings.iter().any(|uid| uid == text(reference, "/uid")) => {
            // Any user can change the annotation, and an admission policy may remove it from each write.
            let named = names::revision_number(&owner.extension, text(reference, "/name"));
            match named.unwrap_or_else(|| revision_of(actual)).cmp(&owner.number) {
                std::cmp::Ordering::Greater => ObjectPlan::Leave,
                std::cmp::Ordering::Less => ObjectPlan::Adopt,
                std::cmp::Ordering::Equal => ObjectPlan::Collide,
            }
        }
        _ if is_deleting(actual) && (is_crd(&gvk(actual)) || is_of_extension(actual, owner)) => {
            ObjectPlan::AwaitDeletion
        }
        Some(_) if *protection == CollisionProtection::None => ObjectPlan::Adopt,
        Some(_) => ObjectPlan::Collide,
        None if is_marked(actual) && may_adopt_orphan(actual, owner, siblings, protection) => {
            ObjectPlan::Adopt
        }
        None if is_marked(actual) => ObjectPlan::Collide,
        None if is_retained_crd(actual, owner, siblings) => ObjectPlan::Adopt,
        None if has_our_labels(actual, owner) && is_safe_to_adopt(actual, owner, siblings) => {
            ObjectPlan::Adopt
        }
        None => match protection {
            CollisionProtection::IfNoController | CollisionProtection::None => ObjectPlan::Adopt,
            CollisionProtection::Prevent | CollisionProtection::Other(_) => ObjectPlan::Collide,
        },
    }
}

/// `true` if the revision can adopt an object without controller but with our annotation. This is unsafe while
/// garbage collection may delete the object together with its former revision
/// (docs/design/apply.md#orphaned-objects).
fn may_adopt_orphan(
    actual: &Value,
    owner: &Owner,
    siblings: &[String],
    protection: &CollisionProtection,
) -> bool {
    is_safe_to_adopt(actual, owner, siblings)
        && (is_of_extension(actual, owner)
            || matches!(protection, CollisionProtection::IfNoController | CollisionProtection::None))
}

/// `true` for a CRD that was retained when this extension was uninstalled and has no owner since.
fn is_retained_crd(actual: &Value, owner: &Owner, siblings: &[String]) -> bool {
    is_crd(&gvk(actual))
        && !owner.extension.is_empty()
        && annotation(actual, annotations::EXT_KEPT_FOR) == Some(&owner.extension)
        && is_safe_to_adopt(actual, owner, siblings)
}

/// `true` for an object with the label of this extension.
fn is_of_extension(actual: &Value, owner: &Owner) -> bool {
    !owner.extension.is_empty() && label(actual, labels::OWNER_NAME) == Some(&owner.extension)
}

/// `true` for an object of this extension whose revision annotation another client removed.
fn has_our_labels(actual: &Value, owner: &Owner) -> bool {
    is_of_extension(actual, owner) && label(actual, labels::MANAGED_BY) == Some(labels::MANAGED_BY_OLM)
}

/// `true` if an object without controller is safe to adopt: it is not being deleted, and every remaining owner is
/// this revision, an active sibling or the keeper, so that it is not garbage-collected.
fn is_safe_to_adopt(actual: &Value, owner: &Owner, siblings: &[String]) -> bool {
    let is_living = |reference: &Value| {
        owner.is(reference)
            || is_keeper(reference)
            || siblings.iter().any(|uid| uid == text(reference, "/uid"))
    };
    owners(actual).iter().all(is_living) && !is_deleting(actual)
}

/// Adds the keeper with this UID to the owners of a CustomResourceDefinition. This owner is never deleted, so that a
/// foreground deletion of the revision does not delete the CRD before the revision controller can release it. Other
/// kinds are unchanged.
pub(crate) fn add_keeper(desired: &mut Value, keeper_uid: &str) {
    let is_crd = is_crd(&gvk(desired));
    if let Some(Value::Array(owners)) = desired.pointer_mut("/metadata/ownerReferences")
        && is_crd
    {
        owners.push(keeper_reference(keeper_uid));
    }
}

pub(crate) fn keeper_reference(uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "name": names::KEEPER, "uid": uid})
}

pub(crate) fn is_keeper(reference: &Value) -> bool {
    let is = |pointer: &str, value: &str| text(reference, pointer) == value;
    is("/apiVersion", "v1") && is("/kind", "Namespace") && is("/name", names::KEEPER)
}

pub(crate) fn without_keeper(mut references: Vec<Value>) -> Vec<Value> {
    references.retain(|reference| !is_keeper(reference));
    references
}

/// `true` if garbage collection removed the reference to the controlling revision, and the keeper or `owner` remains.
pub(crate) fn is_left_behind(actual: &Value, owner: &Owner) -> bool {
    controller(actual).is_none()
        && owners(actual).iter().any(|reference| is_keeper(reference) || owner.is(reference))
        && label(actual, labels::OWNER_NAME) == Some(&owner.extension)
        && revision_of(actual) >= owner.number
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
}

fn is_marked(object: &Value) -> bool {
    annotation(object, annotations::REVISION).is_some()
}

/// Revision number of the object. 0 if it is missing or not an integer. The next apply corrects it.
pub(crate) fn revision_of(object: &Value) -> i64 {
    annotation(object, annotations::REVISION).and_then(|number| number.parse().ok()).unwrap_or_default()
}

pub(crate) fn owners(object: &Value) -> &[Value] {
    object.pointer("/metadata/ownerReferences").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Owner reference with `controller: true`.
pub fn controller(object: &Value) -> Option<&Value> {
    owners(object).iter().find(|reference| reference.get("controller") == Some(&Value::Bool(true)))
}

/// `true` if the controller of the object is `owner`.
pub(crate) fn is_controlled(actual: &Value, owner: &Owner) -> bool {
    controller(actual).is_some_and(|reference| owner.is(reference))
}

/// Desired object of the revision: in the form of [`applied`], with the labels managed-by and owner-name, the revision
/// annotation and the owner reference.
pub fn desired(content: &ContentObject, owner: &Owner) -> Value {
    let mut object = applied(&content.object);
    set_label(&mut object, labels::MANAGED_BY, labels::MANAGED_BY_OLM);
    set_label(&mut object, labels::OWNER_NAME, &owner.extension);
    set_annotation(&mut object, annotations::REVISION, &owner.number.to_string());
    if let Some(metadata) = map_mut(&mut object, &["metadata"]) {
        metadata.insert("ownerReferences".to_owned(), json!([owner.reference()]));
    }
    object
}

/// Body of the dry run of `desired` over `actual`, without fields that an autoscaler holds. Other owners are kept without
/// control, the keeper only if desired.
/// The body has no resource version, because a concurrent change does not make the object invalid.
pub fn check_body(desired: &Value, actual: &Value, owner: &Owner) -> Value {
    let mut references = without_keeper(without(actual, owner));
    for reference in &mut references {
        if let Some(controller) = reference.get_mut("controller") {
            *controller = Value::Bool(false);
        }
    }
    references.push(owner.reference());
    references.extend(owners(desired).iter().filter(|reference| is_keeper(reference)).cloned());
    let mut body = ordered_like(&without_scaled(desired, actual), actual);
    if let Some(metadata) = map_mut(&mut body, &["metadata"]) {
        metadata.insert("ownerReferences".to_owned(), references.into());
    }
    body
}

/// Body of the server-side apply of `desired` over `actual`, after the takeover from superseded managers. The
/// resource version turns an unseen change into a conflict.
pub(crate) fn write_body(desired: &Value, actual: &Value, owner: &Owner) -> Value {
    let mut body = check_body(desired, actual, owner);
    if let Some(metadata) = map_mut(&mut body, &["metadata"]) {
        if let Some(Value::Array(references)) = metadata.get_mut("ownerReferences") {
            references.retain(|reference| !is_helm_era_owner(reference, owner));
        }
        metadata.insert("resourceVersion".to_owned(), resource_version(actual).into());
    }
    body
}

/// Owner references of the object other than `owner`.
pub(crate) fn without(actual: &Value, owner: &Owner) -> Vec<Value> {
    owners(actual).iter().filter(|reference| !owner.is(reference)).cloned().collect()
}

/// `true` for the reference to the extension itself, which the reference implementation wrote with Helm.
pub(crate) fn is_helm_era_owner(reference: &Value, owner: &Owner) -> bool {
    is_of_kind(reference, labels::OWNER_KIND_EXTENSION) && text(reference, "/name") == owner.extension
}

/// Merge patch that sets `metadata` members. It fails with a conflict if the object changed after the read.
pub(crate) fn metadata_patch<const N: usize>(actual: &Value, members: [(&str, Value); N]) -> Value {
    let version = [("resourceVersion", resource_version(actual).into())];
    let members = members.into_iter().chain(version).map(|(key, value)| (key.to_owned(), value));
    json!({"metadata": members.collect::<Map<_, _>>()})
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
