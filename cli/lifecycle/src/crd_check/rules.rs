//! Rules of `olm crd-check`. Their IDs are the names of the reference, with two of our own at the end.

use olm_crd_safety::Impact;
use olm_finding::{Level, Rule};

/// Rule of a removed CRD.
pub(super) const REMOVED: &str = "crdRemoval";
/// Rule of a version that is not served any more.
pub(super) const VANISHED: &str = "servedVersionRemoval";

olm_finding::rules! {
    RULES: ();

    SCOPE "scope" Error (()) "the scope does not change"
        "The API server rejects the change. Create a CRD with another name."
    STORED_VERSION "storedVersionRemoval" Error (()) "versions in status.storedVersions stay in spec.versions"
        "The API server rejects the change. Keep the version with served: false, migrate the objects, then remove it."
    FIELD "existingFieldRemoval" Error (()) "no field is removed from a version"
        "The field is dropped from each object at its next write. Keep it, and describe it as deprecated, or add a version."
    TYPE "type" Error (()) "the type of a field does not change"
        "Stored values of the old type become invalid. Add a field with another name."
    NULLABLE "nullable" Error (()) "nullable does not change"
        "Without it, stored nulls become invalid. With it, clients read a null that they may not expect."
    REQUIRED "required" Error (()) "no field becomes required"
        "Stored objects without the field become invalid at their next write. Keep it optional, or give it a default."
    DEFAULT "default" Warning (()) "the default of a field does not change"
        "Objects without the field get another meaning. Set the value in the operator instead."
    ENUM "enum" Error (()) "no allowed value is removed"
        "Stored objects with the value become invalid. Keep it, and treat it as its successor."
    MAXIMUM "maximum" Error (()) "maximum does not decrease" "Stored larger values become invalid."
    MAX_ITEMS "maxItems" Error (()) "maxItems does not decrease" "Stored longer lists become invalid."
    MAX_LENGTH "maxLength" Error (()) "maxLength does not decrease" "Stored longer texts become invalid."
    MAX_PROPERTIES "maxProperties" Error (()) "maxProperties does not decrease" "Stored larger maps become invalid."
    MINIMUM "minimum" Error (()) "minimum does not increase" "Stored smaller values become invalid."
    MIN_ITEMS "minItems" Error (()) "minItems does not increase" "Stored shorter lists become invalid."
    MIN_LENGTH "minLength" Error (()) "minLength does not increase" "Stored shorter texts become invalid."
    MIN_PROPERTIES "minProperties" Error (()) "minProperties does not increase" "Stored smaller maps become invalid."
    PATTERN "pattern" Error (()) "no pattern is added or changed"
        "Stored texts that do not match become invalid. A CEL rule with oldSelf can exempt values that do not change."
    ONE_OF "oneOf" Error (()) "oneOf does not change"
        "Stored objects that match none or several of the schemas become invalid."
    UNHANDLED "unhandled" Error (()) "other parts of a schema do not change"
        "A new CEL rule can invalidate stored objects. Another text of a rule, or x-kubernetes-list-type: atomic, cannot. The column BREAKS tells which."
    CRD "crdRemoval" Error (()) "no CRD is removed"
        "OLM deletes the CRD with the old revision only if no custom resources exist. Remove them first."
    SERVED_VERSION "servedVersionRemoval" Warning (()) "served versions stay served"
        "Requests of the version fail. Announce it, and set deprecated: true in an earlier release."
}

/// All rules.
pub(super) fn rules() -> impl Iterator<Item = &'static Rule> + Clone {
    RULES.iter().map(|declared| &declared.rule)
}

/// Rule with this ID. `unhandled` for a check that has none.
pub(super) fn rule(id: &str) -> &'static Rule {
    rules().find(|rule| rule.id == id).unwrap_or(&UNHANDLED)
}

/// Severity of a change by what it breaks.
pub(super) fn level(impact: Impact) -> Level {
    match impact {
        Impact::StoredObjects => Level::Error,
        Impact::Clients => Level::Warning,
        Impact::Nothing => Level::Note,
    }
}
