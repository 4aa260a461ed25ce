//! Owners of the fields of an object: decides for every field whether the revision applies it, and who else has it
//! (docs/design/apply.md#owners-of-fields).
//!
//! Pure: desired object and live object with its managedFields in, what to apply, which ownership to move first, what to
//! leave and who contends out. [`applied()`] has the part that needs no live object.

mod applied;
mod blocking;

use olm_api::annotations;
use olm_api::names::REVISION_ENGINE_MANAGER;
use serde_json::{Map, Value, json};

pub use applied::applied;
use applied::{POD_SPECS, is_injected};
pub(crate) use applied::{ambiguous_variable, is_aggregated};
pub use blocking::{Blocking, blocking};

pub use crate::managed_fields::conflicts;
use crate::managed_fields::{
    drops_conversion, enter, entries, is_ours, move_listed, take_over_conversion, taken_over, union,
};
use crate::object::{ObjectKey, text};
use crate::plan::{Owner, controller, is_helm_era_owner, metadata_patch};

/// Field manager of Helm installations by the reference.
const HELM_ERA_MANAGER: &str = "operator-controller";

/// Ownership to move before an apply.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Moves {
    /// Field managers whose entries become our applies.
    pub superseded: Vec<&'static str>,
    /// Set of fields that become ours: those without owner that the apply removes, or all of ours after our entry was
    /// removed. Null for none. The dropped conversion of a CRD is added to it.
    pub claims: Value,
}

impl Moves {
    /// Moves for an object that the owner controls or adopts.
    pub(crate) fn of(actual: &Value, owner: &Owner) -> Self {
        Self { superseded: superseded_managers(actual, owner).to_vec(), claims: Value::Null }
    }

    /// The managedFields of `actual` with every field of the object at its owner. `None` if they are so already.
    pub(crate) fn managed_fields(&self, desired: &Value, actual: &Value) -> Option<Vec<Value>> {
        let mut list = taken_over(actual, &self.superseded).unwrap_or_else(|| entries(actual).to_vec());
        let mut claims = self.claims.clone();
        if drops_conversion(desired, actual, &self.superseded) {
            take_over_conversion(actual, &mut list, &mut claims);
        }
        list.retain_mut(|entry| {
            let was_copy = is_copy(entry);
            if was_copy {
                move_listed(&mut entry["fieldsV1"], desired, &mut claims);
            }
            !was_copy || !is_leaf(&entry["fieldsV1"])
        });
        if !claims.is_null() && !list.iter().any(is_ours) {
            list.push(
                json!({"manager": REVISION_ENGINE_MANAGER, "operation": "Apply", "fieldsType": "FieldsV1",
                "apiVersion": desired["apiVersion"], "fieldsV1": {}}),
            );
        }
        let index = list.iter().position(is_ours)?;
        let mut ours = list.remove(index);
        let others: Vec<&Value> = list.iter().map(|entry| &entry["fieldsV1"]).collect();
        let fields = &mut ours["fieldsV1"];
        union(fields, &claims);
        move_string_data(desired, fields);
        claim_account_alias(desired, actual, fields, &others);
        claim_pull_policies(desired, actual, fields, &others);
        release(desired, fields, &others);
        list.insert(index, ours);
        (list != entries(actual)).then_some(list)
    }
}

/// Merge patch that makes the fields that `manager` has applied ours, so that our next apply drops those that it lacks.
/// `None` if there are none, or if we have applied nothing.
pub fn transfer_patch(actual: &Value, manager: &str) -> Option<Value> {
    entries(actual).iter().find(|entry| is_ours(entry))?;
    Some(metadata_patch(actual, [("managedFields", taken_over(actual, &[manager])?.into())]))
}

/// Managers whose entries for `actual` are converted to our applies: our own, and that of the Helm era on
/// objects that it installed. Otherwise fields would have two owners and never be removed
/// (docs/design/apply.md#migration-to-revision-1).
pub(crate) fn superseded_managers(actual: &Value, owner: &Owner) -> &'static [&'static str] {
    if crate::plan::owners(actual).iter().any(|reference| is_helm_era_owner(reference, owner)) {
        &[REVISION_ENGINE_MANAGER, HELM_ERA_MANAGER]
    } else {
        &[REVISION_ENGINE_MANAGER]
    }
}

/// Managers of classic OLM, whose entries are converted, too, when a revision of a migrated extension adopts `actual`
/// from a sibling with this `outcome`: fields that no revision lists disappear. None if only that would change the pod
/// template (docs/design/migration.md#fields-of-classic-olm).
pub(crate) fn classic_managers(
    actual: &Value,
    outcome: &Value,
    siblings: &[String],
) -> &'static [&'static str] {
    let is_of_sibling =
        controller(actual).is_some_and(|reference| siblings.iter().any(|uid| uid == text(reference, "/uid")));
    let template = actual.pointer("/spec/template");
    let is_kept = template.is_some() && template == outcome.pointer("/spec/template");
    if is_of_sibling && !is_kept { &["olm", "catalog", "olm.install"] } else { &[] }
}

/// Sets of fields that autoscalers hold: those written through the subresource `scale`, except by kubectl, where a person
/// scales once.
pub(crate) fn scaled(actual: &Value) -> impl Iterator<Item = &Value> {
    let is_autoscaler = |entry: &&Value| {
        let manager = text(entry, "/manager");
        text(entry, "/subresource") == "scale"
            && !manager.starts_with("kubectl")
            && manager != REVISION_ENGINE_MANAGER
    };
    entries(actual).iter().filter(is_autoscaler).filter_map(|entry| entry.get("fieldsV1"))
}

/// `desired` without the fields that an autoscaler holds on `actual`.
pub(crate) fn without_scaled(desired: &Value, actual: &Value) -> Value {
    let mut rest = desired.clone();
    scaled(actual).for_each(|fields| remove(&mut rest, fields));
    rest
}

/// `true` if the replicas that `desired` sets are 0 and have no owner. The API server records none for a scale to 0.
pub(crate) fn is_scaled_to_zero(desired: &Value, actual: &Value) -> bool {
    let replicas = |object: &Value| object.pointer("/spec/replicas").and_then(Value::as_u64);
    replicas(actual) == Some(0)
        && replicas(desired).is_some_and(|replicas| replicas > 0)
        && !entries(actual).iter().any(|entry| entry.pointer("/fieldsV1/f:spec/f:replicas").is_some())
}

fn remove(object: &mut Value, fields: &Value) {
    let steps = fields.as_object().into_iter().flatten();
    for (name, below) in steps.filter_map(|(step, below)| Some((step.strip_prefix("f:")?, below))) {
        let Some(map) = object.as_object_mut() else { return };
        match map.get_mut(name) {
            Some(value) if !is_leaf(below) => remove(value, below),
            _ => drop(map.remove(name)),
        }
    }
}

/// `true` for the entry of a client that created our object from a copy, such as a backup: it owns all of our fields, and
/// none could ever be removed again.
fn is_copy(entry: &Value) -> bool {
    let annotations = entry.pointer("/fieldsV1/f:metadata/f:annotations");
    let is_marked = |annotations: &Value| annotations.get(format!("f:{}", annotations::REVISION)).is_some();
    !is_ours(entry) && text(entry, "/subresource").is_empty() && annotations.is_some_and(is_marked)
}

/// Makes us the owner of `serviceAccount` where the apply drops `serviceAccountName`. The API server sets it to the same
/// name, and would take the name from it again.
fn claim_account_alias(desired: &Value, actual: &Value, ours: &mut Value, others: &[&Value]) {
    for path in POD_SPECS {
        let names = |object: &Value, field| object.pointer(path).is_some_and(|pod| pod.get(field).is_some());
        let place = path.replace('/', "/f:");
        let owns_name = ours.pointer(&place).is_some_and(|pod| pod.get("f:serviceAccountName").is_some());
        if owns_name
            && names(actual, "serviceAccount")
            && !["serviceAccountName", "serviceAccount"].iter().any(|field| names(desired, field))
        {
            claim(&place, "f:serviceAccount", ours, others);
        }
    }
}

/// Makes us the owner of pull policies that the API server derived from the tag of the former image, so that the apply drops
/// them, and it derives them again.
fn claim_pull_policies(desired: &Value, actual: &Value, ours: &mut Value, others: &[&Value]) {
    let lists = POD_SPECS.map(|path| ["containers", "initContainers"].map(|list| format!("{path}/{list}")));
    for path in lists.as_flattened() {
        for container in desired.pointer(path).and_then(Value::as_array).into_iter().flatten() {
            let step = format!("k:{}", json!({"name": container["name"]}));
            let live = actual.pointer(path).and_then(|list| Some(enter(list, &step, "")?.0));
            let image = text(container, "/image");
            let is_outdated = |live: &Value| {
                live["image"] != image && live["imagePullPolicy"] != default_pull_policy(image)
            };
            if container.get("imagePullPolicy").is_none() && live.is_some_and(is_outdated) {
                claim(&format!("{}/{step}", path.replace('/', "/f:")), "f:imagePullPolicy", ours, others);
            }
        }
    }
}

/// Makes us the owner of a field beside one of ours, unless another manager owns it.
fn claim(place: &str, field: &str, ours: &mut Value, others: &[&Value]) {
    let owns = |set: &&Value| set.pointer(place).is_some_and(|set| set.get(field).is_some());
    if !others.iter().any(owns)
        && let Some(Value::Object(set)) = ours.pointer_mut(place)
    {
        set.insert(field.to_owned(), json!({}));
    }
}

/// Pull policy of a container without one, as the API server derives it.
fn default_pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').unwrap_or((image, ""));
    let tag = name.rsplit('/').next().and_then(|last| Some(last.split_once(':')?.1));
    if tag == Some("latest") || tag.is_none() && digest.is_empty() { "Always" } else { "IfNotPresent" }
}

fn is_leaf(fields: &Value) -> bool {
    fields.as_object().is_none_or(Map::is_empty)
}

/// Makes us the owner of `data` instead of `stringData`, which an apply before [`applied()`] has set.
fn move_string_data(desired: &Value, fields: &mut Value) {
    let gvk = ObjectKey::of(desired).gvk;
    if gvk.group.is_empty()
        && gvk.kind == "Secret"
        && let Some(moved) = fields.as_object_mut().and_then(|fields| fields.remove("f:stringData"))
    {
        union(&mut fields["f:data"], &moved);
    }
}

/// Drops fields of other writers of which we are the only owner, so that the apply keeps them: rules of an aggregated
/// ClusterRole, and CA bundles that an injector sets.
fn release(desired: &Value, ours: &mut Value, others: &[&Value]) {
    if is_aggregated(desired) && !others.iter().any(|fields| fields.get("f:rules").is_some()) {
        ours.as_object_mut().map(|fields| fields.remove("f:rules"));
    }
    if is_injected(desired) {
        release_bundles(desired, ours, others);
    }
}

/// Drops `caBundle` where `desired` has its parent without it.
fn release_bundles(desired: &Value, ours: &mut Value, others: &[&Value]) {
    const BUNDLE: &str = "f:caBundle";
    let Some(fields) = ours.as_object_mut() else { return };
    if desired.get("caBundle").is_none() && !others.iter().any(|other| other.get(BUNDLE).is_some()) {
        fields.remove(BUNDLE);
    }
    fields.retain(|step, below| {
        let others: Vec<&Value> = others.iter().filter_map(|other| other.get(step)).collect();
        let was_leaf = is_leaf(below);
        if let Some((desired, _)) = enter(desired, step, "") {
            release_bundles(desired, below, &others);
        }
        // An empty set would be the field itself.
        was_leaf || !is_leaf(below)
    });
}

#[cfg(test)]
#[path = "fields_tests.rs"]
mod tests;
