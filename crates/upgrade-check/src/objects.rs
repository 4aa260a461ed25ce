//! Objects other than CustomResourceDefinitions: immutable fields, contradicting defaults, deleted data.

use std::collections::BTreeSet;

use olm_plan::fields::FieldChange;
use olm_plan::objects::{
    ChangeKind, ObjectChange, ObjectName, by_name, changes, is_replaceable, replaceable_field,
};
use serde_json::Value;

use crate::rule::{DATA, DEFAULTS, IMMUTABLE};
use crate::{UpgradeFinding, UpgradeHold, finding};

/// Kinds of bundles whose objects have content of their own.
const WITH_DATA: [&str; 2] = ["ConfigMap", "Secret"];
/// Immutable fields with the value that the API server sets by default.
const DEFAULTED: [(&str, &str, &str); 2] =
    [("Secret", "type", "Opaque"), ("PriorityClass", "preemptionPolicy", "PreemptLowerPriority")];

/// Findings about each changed or deleted object.
pub(crate) fn check(old: &[Value], new: &[Value]) -> Vec<UpgradeFinding> {
    let (before, after) = (by_name(old), by_name(new));
    let mut found = Vec::new();
    for change in changes(old, new) {
        let name = &change.object;
        match (change.change, before.get(name), after.get(name)) {
            (ChangeKind::Deleted, Some(old), _) => {
                let is_renamed = new
                    .iter()
                    .any(|new| !before.contains_key(&ObjectName::of(new)) && has_content_of(new, old));
                found.extend(lost_data(name).filter(|_| !is_renamed));
            }
            (ChangeKind::Changed, Some(old), Some(new)) => {
                found.extend(immutable(&change, old, new));
                found.extend(contradiction(&change, new));
            }
            _ => {}
        }
    }
    found
}

fn lost_data(name: &ObjectName) -> Option<UpgradeFinding> {
    let has_data = name.group.is_empty() && WITH_DATA.contains(&name.kind.as_str());
    let message = "the new bundle does not have it: it is deleted with the old revision";
    has_data.then(|| finding(&DATA, name, UpgradeHold::No, message.to_owned()))
}

/// Reports whether a new object replaces an old one under another name, such as one with a hash.
fn has_content_of(new: &Value, old: &Value) -> bool {
    let keys = |object: &Value| -> BTreeSet<String> {
        let parts =
            ["data", "binaryData", "stringData"].into_iter().filter_map(|part| object[part].as_object());
        parts.flat_map(|part| part.keys().cloned()).collect()
    };
    new["kind"] == old["kind"] && keys(new) == keys(old)
}

fn immutable(change: &ObjectChange, old: &Value, new: &Value) -> Option<UpgradeFinding> {
    let name = &change.object;
    let changes: Vec<_> = change.fields.iter().filter(|field| !is_default(name, field)).cloned().collect();
    if let Some(field) = replaceable_field(name, &changes) {
        let hold = match is_replaceable(old) && is_replaceable(new) {
            true => UpgradeHold::UnlessReplaced,
            false => UpgradeHold::Always,
        };
        let message = format!("{field} cannot be changed: the object must be deleted and created again");
        return Some(finding(&IMMUTABLE, name, hold, message));
    }
    let field = changes.iter().find(|field| is_refused(name, field, old))?;
    let message = if field.secret { "the data" } else { &field.path };
    let message = format!("{message} cannot be changed: the API server refuses it");
    Some(finding(&IMMUTABLE, name, UpgradeHold::Always, message))
}

/// Reports whether the API server sets the same value where the field is absent.
fn is_default(name: &ObjectName, change: &FieldChange) -> bool {
    let value = |value: &Option<Value>, default: &str| {
        value
            .as_ref()
            .map_or_else(|| default.to_owned(), |value| value.as_str().unwrap_or_default().to_owned())
    };
    DEFAULTED.iter().any(|(kind, path, default)| {
        name.kind == *kind
            && change.path == *path
            && value(&change.old, default) == value(&change.new, default)
    })
}

/// Reports whether the API server refuses the change of an object that operator-controller never replaces.
fn is_refused(name: &ObjectName, change: &FieldChange, old: &Value) -> bool {
    let is_in = |part: &str| {
        change.path.strip_prefix(part).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    let is_content = ["data", "binaryData", "stringData"].into_iter().any(is_in);
    match (name.group.as_str(), name.kind.as_str()) {
        ("", "Secret") => is_in("type") || old["immutable"] == true && is_content,
        ("", "ConfigMap") => old["immutable"] == true && is_content,
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
