//! Objects other than CustomResourceDefinitions: immutable fields, contradicting defaults, deleted data.

use olm_plan::fields::FieldChange;
use olm_plan::objects::{ChangeKind, ObjectChange, ObjectName, by_name, changes, replaceable_field};
use serde_json::Value;

use crate::rule::{DATA, DEFAULTS, IMMUTABLE};
use crate::{UpgradeFinding, UpgradeHold, finding};

/// Kinds whose objects have content of their own.
const WITH_DATA: [&str; 4] = ["ConfigMap", "Namespace", "PersistentVolumeClaim", "Secret"];
/// Parts of the `spec` of a StatefulSet that can be changed.
const OF_STATEFUL_SETS: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

/// Findings about each changed or deleted object.
pub(crate) fn check(old: &[Value], new: &[Value]) -> Vec<UpgradeFinding> {
    let objects = by_name(new);
    let mut found = Vec::new();
    for change in changes(old, new) {
        match change.change {
            ChangeKind::Created => {}
            ChangeKind::Deleted => found.extend(lost_data(&change.object)),
            ChangeKind::Changed => {
                found.extend(immutable(&change));
                found.extend(objects.get(&change.object).and_then(|new| contradiction(&change, new)));
            }
        }
    }
    found
}

fn lost_data(name: &ObjectName) -> Option<UpgradeFinding> {
    let has_data = name.group.is_empty() && WITH_DATA.contains(&name.kind.as_str());
    let message = "the new bundle does not have it: it is deleted with the old revision";
    has_data.then(|| finding(&DATA, name, UpgradeHold::No, message.to_owned()))
}

fn immutable(change: &ObjectChange) -> Option<UpgradeFinding> {
    if let Some(field) = replaceable_field(&change.object, &change.fields) {
        let message = format!("{field} cannot be changed: the object must be deleted and created again");
        return Some(finding(&IMMUTABLE, &change.object, UpgradeHold::UnlessReplaced, message));
    }
    let field = change.fields.iter().find(|field| is_immutable(&change.object, field))?;
    let message = format!("{} cannot be changed: the API server refuses it", field.path);
    Some(finding(&IMMUTABLE, &change.object, UpgradeHold::Always, message))
}

/// Reports whether the API server refuses the change of an object that operator-controller never replaces
/// (docs/design/apply.md#immutable-fields).
fn is_immutable(name: &ObjectName, change: &FieldChange) -> bool {
    let is_below = |field: &str| {
        change.path.strip_prefix(field).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    match (name.group.as_str(), name.kind.as_str()) {
        ("apps", "StatefulSet") => change.path.strip_prefix("spec.").is_some_and(|rest| {
            let part: String = rest.chars().take_while(|letter| letter.is_alphanumeric()).collect();
            !OF_STATEFUL_SETS.contains(&part.as_str())
        }),
        ("", "PersistentVolumeClaim") => {
            is_below("spec") && !is_below("spec.resources") && !is_below("spec.volumeAttributesClassName")
        }
        ("", "Secret") => is_below("type"),
        ("storage.k8s.io", "StorageClass") => {
            ["provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"].into_iter().any(is_below)
        }
        _ => false,
    }
}

/// A field that the API server set by default, and that the new content does not allow
/// (docs/design/apply.md#owners-of-fields).
fn contradiction(change: &ObjectChange, new: &Value) -> Option<UpgradeFinding> {
    let name = &change.object;
    let is_changed = |path: &str| change.fields.iter().any(|field| field.path.starts_with(path));
    let is_recreated = name.group == "apps"
        && name.kind == "Deployment"
        && is_changed("spec.strategy")
        && new["spec"]["strategy"]["type"] == "Recreate";
    let message = "strategy Recreate allows no spec.strategy.rollingUpdate, which the API server has set";
    is_recreated.then(|| finding(&DEFAULTS, name, UpgradeHold::No, message.to_owned()))
}
