//! What to do about one object: the decision table of docs/design/apply.md#decision-table and the body that is written.
//!
//! Pure. Whether an object of ours still is what it should be is not decided here: field ownership or a dry run of the API
//! server answers that.

use olm_api::cluster_object_set::CollisionProtection;
use olm_api::names::REVISION_ENGINE_MANAGER;
use olm_api::{annotations, labels, names};
use serde_json::{Map, Value, json};

use crate::content::ContentObject;
use crate::object::{
    annotation, gvk, is_crd, label, map_mut, resource_version, set_annotation, set_label, text,
};

/// Field manager of installations that the reference made with Helm.
const HELM_ERA_MANAGER: &str = "operator-controller";

/// The revision on whose behalf objects are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Name of the ClusterObjectSet.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// `spec.revision`.
    pub number: i64,
    /// Value of its label owner-name; empty where it has none.
    pub extension: String,
}

impl Owner {
    /// The owner reference on objects that this revision controls.
    pub(crate) fn reference(&self) -> Value {
        json!({
            "apiVersion": format!("{}/{}", names::GROUP, names::VERSION), "kind": "ClusterObjectSet",
            "name": self.name, "uid": self.uid, "controller": true, "blockOwnerDeletion": true})
    }

    pub(crate) fn is(&self, reference: &Value) -> bool {
        is_of_kind(reference, "ClusterObjectSet")
            && text(reference, "/name") == self.name
            && text(reference, "/uid") == self.uid
    }
}

fn is_of_kind(reference: &Value, kind: &str) -> bool {
    let group = text(reference, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
    group == names::GROUP && text(reference, "/kind") == kind
}

/// What to do about an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// It does not exist.
    Create,
    /// It exists and becomes ours.
    Adopt,
    /// It is ours: repair it if it differs.
    Repair,
    /// It is ours and known to be as it should. [`plan`] alone cannot tell.
    Keep,
    /// It is being deleted and either ours or a CustomResourceDefinition; it can be created again once it is gone.
    AwaitDeletion,
    /// A newer revision has it.
    Leave,
    /// It is somebody else's.
    Collide,
}

/// Decides about `actual`. `siblings` are the UIDs of the other active revisions of the extension.
pub fn plan(
    actual: Option<&Value>,
    owner: &Owner,
    siblings: &[String],
    protection: &CollisionProtection,
) -> Plan {
    let Some(actual) = actual else {
        return Plan::Create;
    };
    match controller(actual) {
        Some(reference) if owner.is(reference) && is_deleting(actual) => Plan::AwaitDeletion,
        Some(reference) if owner.is(reference) => Plan::Repair,
        Some(reference) if siblings.iter().any(|uid| uid == text(reference, "/uid")) => {
            match number_of_sibling(reference, owner).min(revision_of(actual)).cmp(&owner.number) {
                std::cmp::Ordering::Greater => Plan::Leave,
                std::cmp::Ordering::Less => Plan::Adopt,
                std::cmp::Ordering::Equal => Plan::Collide,
            }
        }
        _ if is_deleting(actual) && is_crd(&gvk(actual)) => Plan::AwaitDeletion,
        Some(_) if *protection == CollisionProtection::None => Plan::Adopt,
        Some(_) => Plan::Collide,
        None if is_marked(actual) => {
            if is_abandoned(actual, owner, siblings, protection) {
                Plan::Adopt
            } else {
                Plan::Collide
            }
        }
        None if is_kept_for(actual, owner, siblings) => Plan::Adopt,
        None => match protection {
            CollisionProtection::IfNoController | CollisionProtection::None => Plan::Adopt,
            CollisionProtection::Prevent | CollisionProtection::Other(_) => Plan::Collide,
        },
    }
}

/// The number in the name of the sibling that controls an object; the highest where its name has none. The number on the
/// object, which anybody may change, must not be above it: each revision would leave the object to a newer one.
fn number_of_sibling(reference: &Value, owner: &Owner) -> i64 {
    let number =
        text(reference, "/name").strip_prefix(&owner.extension).and_then(|rest| rest.strip_prefix('-'));
    number.and_then(|number| number.parse().ok()).unwrap_or(i64::MAX)
}

/// An object without controller but with our mark may be about to be collected together with its former
/// revision (docs/design/apply.md#orphaned-objects).
fn is_abandoned(
    actual: &Value,
    owner: &Owner,
    siblings: &[String],
    protection: &CollisionProtection,
) -> bool {
    let is_of_this_extension =
        !owner.extension.is_empty() && label(actual, labels::OWNER_NAME) == Some(&owner.extension);
    stays(actual, owner, siblings)
        && (is_of_this_extension
            || matches!(protection, CollisionProtection::IfNoController | CollisionProtection::None))
}

/// A definition that stayed when the extension was uninstalled, and belongs to nobody since.
fn is_kept_for(actual: &Value, owner: &Owner, siblings: &[String]) -> bool {
    is_crd(&gvk(actual))
        && !owner.extension.is_empty()
        && annotation(actual, annotations::EXT_KEPT_FOR) == Some(&owner.extension)
        && stays(actual, owner, siblings)
}

/// Whether an object without controller is safe to take: it is not going, and no owner is left that could be collected,
/// which is everyone but us, our active siblings and the keeper.
fn stays(actual: &Value, owner: &Owner, siblings: &[String]) -> bool {
    let is_living = |reference: &Value| {
        owner.is(reference)
            || is_keeper(reference)
            || siblings.iter().any(|uid| uid == text(reference, "/uid"))
    };
    owners(actual).iter().all(is_living) && !is_deleting(actual)
}

/// Adds the keeper with this UID to the owners of a CustomResourceDefinition: an owner that is never deleted, so that a
/// foreground deletion of its revision does not delete the definition before the revision controller can release it.
/// Other kinds are unchanged.
pub(crate) fn keep(desired: &mut Value, keeper_uid: &str) {
    let is_definition = is_crd(&gvk(desired));
    if let Some(Value::Array(owners)) = desired.pointer_mut("/metadata/ownerReferences")
        && is_definition
    {
        owners
            .push(json!({"apiVersion": "v1", "kind": "Namespace", "name": names::KEEPER, "uid": keeper_uid}));
    }
}

pub(crate) fn is_keeper(reference: &Value) -> bool {
    let is = |pointer: &str, value: &str| text(reference, pointer) == value;
    is("/apiVersion", "v1") && is("/kind", "Namespace") && is("/name", names::KEEPER)
}

pub(crate) fn without_keeper(mut references: Vec<Value>) -> Vec<Value> {
    references.retain(|reference| !is_keeper(reference));
    references
}

/// Whether garbage collection has taken the revision that controlled an object off it, and left it to the keeper.
pub(crate) fn is_left_to_keeper(actual: &Value, owner: &Owner) -> bool {
    controller(actual).is_none()
        && owners(actual).iter().any(is_keeper)
        && label(actual, labels::OWNER_NAME) == Some(&owner.extension)
        && revision_of(actual) >= owner.number
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null())
}

fn is_marked(object: &Value) -> bool {
    annotation(object, annotations::REVISION).is_some()
}

/// Revision number of the object; 0 where it has none, or one that is no integer. The apply that follows corrects it.
fn revision_of(object: &Value) -> i64 {
    annotation(object, annotations::REVISION).and_then(|number| number.parse().ok()).unwrap_or_default()
}

pub(crate) fn owners(object: &Value) -> &[Value] {
    object.pointer("/metadata/ownerReferences").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The owner reference that controls the object.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    owners(object).iter().find(|reference| reference.get("controller") == Some(&Value::Bool(true)))
}

/// The object as its revision wants it: with label managed-by and owner-name, revision annotation and owner
/// reference.
pub fn desired(content: &ContentObject, owner: &Owner) -> Value {
    let mut object = content.object.clone();
    set_label(&mut object, labels::MANAGED_BY, labels::MANAGED_BY_OLM);
    set_label(&mut object, labels::OWNER_NAME, &owner.extension);
    set_annotation(&mut object, annotations::REVISION, &owner.number.to_string());
    if let Some(metadata) = map_mut(&mut object, &["metadata"]) {
        metadata.insert("ownerReferences".to_owned(), json!([owner.reference()]));
    }
    object
}

/// The body of the dry run of `desired` over `actual`: other owners stay, without control; the keeper only if desired.
/// A change since `actual` was read is no verdict on the object, so the resource version is not in it.
pub fn check_body(desired: &Value, actual: &Value, owner: &Owner) -> Value {
    let mut references = without_keeper(without(actual, owner));
    for reference in &mut references {
        if let Some(controller) = reference.get_mut("controller") {
            *controller = Value::Bool(false);
        }
    }
    references.push(owner.reference());
    references.extend(owners(desired).iter().filter(|reference| is_keeper(reference)).cloned());
    let mut body = desired.clone();
    if let Some(metadata) = map_mut(&mut body, &["metadata"]) {
        metadata.insert("ownerReferences".to_owned(), references.into());
    }
    body
}

/// The body of the server-side apply of `desired` over `actual`, whose superseded managers have been taken
/// over. The resource version turns a change that we have not seen into a conflict.
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

/// The owners of the object other than `owner`.
pub(crate) fn without(actual: &Value, owner: &Owner) -> Vec<Value> {
    owners(actual).iter().filter(|reference| !owner.is(reference)).cloned().collect()
}

/// Whether the reference left the extension itself as owner, as it did with Helm.
fn is_helm_era_owner(reference: &Value, owner: &Owner) -> bool {
    is_of_kind(reference, labels::OWNER_KIND_EXTENSION) && text(reference, "/name") == owner.extension
}

/// The managers whose plain updates of `actual` become our applies: our own, and that of the Helm era on
/// objects that it installed; fields would otherwise be owned twice and never be dropped
/// (docs/design/apply.md#migration-to-revision-1).
pub(crate) fn superseded_managers(actual: &Value, owner: &Owner) -> &'static [&'static str] {
    if owners(actual).iter().any(|reference| is_helm_era_owner(reference, owner)) {
        &[REVISION_ENGINE_MANAGER, HELM_ERA_MANAGER]
    } else {
        &[REVISION_ENGINE_MANAGER]
    }
}

/// The merge patch that sets `metadata` members of exactly the state that was read.
pub(crate) fn metadata_patch(
    actual: &Value,
    members: impl IntoIterator<Item = (&'static str, Value)>,
) -> Value {
    let mut metadata: Map<String, Value> =
        members.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    metadata.insert("resourceVersion".to_owned(), resource_version(actual).into());
    json!({"metadata": metadata})
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
