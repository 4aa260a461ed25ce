//! Writes of the objects of an installation, and their return to the state before.

use olm_cli_core::change::{WriteResult, WrittenObject};
use olm_cli_core::error::CliError;
use olm_cli_core::object_access::{ObjectAccess, ObjectId};
use serde::Serialize;
use serde_json::{Value, json};

use super::manifest::rank;

/// Field manager of installations, also that of `install.sh`.
pub(super) const MANAGER: &str = "olmv1-install";
/// Field managers of `kubectl apply`, client-side and server-side, with the operation.
const KUBECTL: [(&str, &str); 2] = [("kubectl-client-side-apply", "Update"), ("kubectl", "Apply")];
/// Annotations that belong to one version of an object.
const STATE: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision"];

/// Applied or deleted object.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Applied {
    /// With the UID of an object that was created.
    #[serde(flatten)]
    pub(super) id: ObjectId,
    /// State before. `None` if the object did not exist.
    #[serde(skip)]
    pub(super) before: Option<Value>,
    /// Expected result, until the API server has answered.
    pub(super) result: WriteResult,
}

impl Applied {
    /// Reads the state before.
    ///
    /// # Errors
    /// The API server does not answer, or denies access.
    pub(super) async fn read(access: &ObjectAccess<'_>, object: &Value) -> Result<Self, CliError> {
        let id = ObjectId::of(object);
        let before = access.get(&id).await?;
        let result = if before.is_some() { WriteResult::Changed } else { WriteResult::Created };
        Ok(Self { id, before, result })
    }

    /// Applies the object. Fields that `kubectl apply` wrote become fields of the installation, so that a later version
    /// can remove them.
    ///
    /// # Errors
    /// The API server refuses the object or does not answer. It may have stored the object in the latter case.
    pub(super) async fn write(&mut self, access: &ObjectAccess<'_>, object: &Value) -> Result<(), CliError> {
        let Some(before) = &self.before else {
            // In a dry run, its namespace or its CRD may not exist.
            if !access.dry_run {
                self.id = ObjectId::of(&access.apply(object, MANAGER).await?);
            }
            return Ok(());
        };
        if let Some(fields) = adopted(&before["metadata"]["managedFields"]).filter(|_| !access.dry_run) {
            let version = &before["metadata"]["resourceVersion"];
            let patch = json!({ "metadata": { "managedFields": fields, "resourceVersion": version } });
            access.merge(&self.id, &patch).await?;
        }
        let after = access.apply(object, MANAGER).await?;
        if content(before) == content(&after) {
            self.result = WriteResult::Unchanged;
        }
        Ok(())
    }
}

/// Managed fields in which those of `kubectl apply` belong to [`MANAGER`]. `None` if there are none.
pub(super) fn adopted(managed: &Value) -> Option<Vec<Value>> {
    let is_by = |entry: &Value, (manager, operation): (&str, &str)| {
        entry["manager"] == manager && entry["operation"] == operation && entry["subresource"].is_null()
    };
    let is_kubectl = |entry: &Value| KUBECTL.iter().any(|one| is_by(entry, *one));
    let (merged, others): (Vec<&Value>, Vec<&Value>) =
        managed.as_array()?.iter().partition(|entry| is_kubectl(entry) || is_by(entry, (MANAGER, "Apply")));
    let mut own = (*merged.iter().find(|entry| is_kubectl(entry))?).clone();
    (own["manager"], own["operation"]) = (json!(MANAGER), json!("Apply"));
    merged.iter().for_each(|entry| unite(&mut own["fieldsV1"], &entry["fieldsV1"]));
    Some(others.into_iter().cloned().chain([own]).collect())
}

/// Adds the fields of `other`.
fn unite(fields: &mut Value, other: &Value) {
    let (Some(fields), Some(other)) = (fields.as_object_mut(), other.as_object()) else { return };
    for (key, value) in other {
        unite(fields.entry(key).or_insert_with(|| value.clone()), value);
    }
}

/// Object without status and the metadata that the API server sets.
fn content(object: &Value) -> Value {
    WrittenObject::new(object.clone(), WriteResult::Unchanged, None).object
}

/// Objects that undo what was applied, last first: each with the state to apply, or to be deleted without one. CRDs and
/// Namespaces that were created stay, because their deletion deletes other objects with them. An object without UID may
/// be that of another client, and stays.
pub(super) fn undo(applied: &[Applied]) -> Vec<(ObjectId, Option<Value>)> {
    let is_undone = |one: &&Applied| match &one.before {
        Some(_) => one.result != WriteResult::Unchanged,
        None => rank(&one.id.kind) > 1 && !one.id.uid.is_empty(),
    };
    let changed = applied.iter().rev().filter(is_undone);
    changed.map(|one| (one.id.clone(), one.before.as_ref().map(restorable))).collect()
}

/// Part of an object that can be applied again.
fn restorable(before: &Value) -> Value {
    let mut object = content(before);
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        STATE.iter().for_each(|key| drop(annotations.remove(*key)));
    }
    object
}

/// Name of an object as kubectl prints it.
pub(super) fn line(id: &ObjectId) -> String {
    let object = json!({ "apiVersion": id.api_version, "kind": id.kind, "metadata": { "name": id.name } });
    WrittenObject::new(object, WriteResult::Unchanged, None).name()
}
