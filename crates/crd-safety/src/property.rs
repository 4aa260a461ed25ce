//! Checks of one property, old schema against new (docs/design/apply.md#property-checks).

use std::collections::BTreeSet;

use olm_version::quote;
use serde_json::Value;

use crate::crd::Version;
use crate::finding::{CrdFinding, Findings, Impact, Section};
use crate::impact;
use crate::schema::Schema;
use crate::text::{canonical, canonical_schema, number};
use crate::unhandled;

/// Callback with the path of a property, its schema, and the schema at the same path of the other version.
type Visit<'v> = &'v mut dyn FnMut(&str, Schema<'_>, Option<Schema<'_>>);

/// Visits every property of `old`. Properties that only `new` has are skipped: no existing object has them.
pub(crate) fn each(old: &Version<'_>, new: &Version<'_>, visit: Visit<'_>) {
    if let Some(schema) = old.schema {
        descend(schema, new.schema, &mut "^".to_owned(), visit);
    }
}

fn descend(old: Schema<'_>, new: Option<Schema<'_>>, path: &mut String, visit: Visit<'_>) {
    visit(path, old, new);
    let length = path.len();
    for (step, child) in old.children() {
        path.push_str(&step.to_string());
        descend(child, new.and_then(|new| new.child(step)), path, visit);
        path.truncate(length);
    }
}

/// Compares every property of `old` with the one in `new`. `version` is the version text of the findings.
pub(crate) fn compare(
    section: Section,
    version: &str,
    old_version: &Version<'_>,
    new_version: &Version<'_>,
    findings: &mut Findings,
) {
    each(old_version, new_version, &mut |path, old, new| {
        compare_property(old, new, &mut |check, text, impact| {
            let impact = impact::in_version(
                impact.unwrap_or_else(|| impact::of_check(check, path)),
                old_version,
                new_version,
            );
            let (version, property) = (Some(version.to_owned()), Some(path.to_owned()));
            findings.push(CrdFinding { section, version, property, check, text, impact });
        });
    });
}

/// Adds a finding of a check, with its impact unless it follows from check and path.
type Report<'r> = &'r mut dyn FnMut(&'static str, String, Option<Impact>);

/// Compares one property. `new` is `None` if the property was removed: then no change is harmless.
fn compare_property(old: Schema<'_>, new: Option<Schema<'_>>, report: Report<'_>) {
    let is_removed = new.is_none();
    let new = new.unwrap_or_else(Schema::empty);
    type_and_nullable(old, new, report);
    required(old, new, report);
    default(old, new, report);
    enumeration(old, new, is_removed, report);
    for key in ["maximum", "maxItems", "maxLength", "maxProperties"] {
        bound(key, ("maximum", "decreased", |old, new| new < old), old, new, report);
    }
    for key in ["minimum", "minItems", "minLength", "minProperties"] {
        bound(key, ("minimum", "increased", |old, new| new > old), old, new, report);
    }
    pattern(old, new, is_removed, report);
    one_of(old, new, report);
    if let Some((text, impact)) = unhandled::changes(old, new, is_removed) {
        report("unhandled", text, Some(impact));
    }
}

fn type_and_nullable(old: Schema<'_>, new: Schema<'_>, report: Report<'_>) {
    let types = (old.text("type"), new.text("type"));
    if types.0 != types.1 {
        report("type", format!("type changed : {} -> {}", quote(types.0), quote(types.1)), None);
    }
    match (old.flag("nullable"), new.flag("nullable")) {
        (false, true) => {
            report("nullable", "nullable added : false -> true".to_owned(), Some(Impact::Clients))
        }
        (true, false) => report("nullable", "nullable removed : true -> false".to_owned(), None),
        _ => {}
    }
}

fn required(old: Schema<'_>, new: Schema<'_>, report: Report<'_>) {
    let names = |schema: Schema<'_>| -> BTreeSet<String> {
        schema.list("required").iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let added = without(&names(new), &names(old));
    if !added.is_empty() {
        report("required", format!("new required fields: [{}]", added.join(" ")), None);
    }
}

/// Sorted names in `all` that are not in `known`.
fn without(all: &BTreeSet<String>, known: &BTreeSet<String>) -> Vec<String> {
    all.difference(known).cloned().collect()
}

fn default(old: Schema<'_>, new: Schema<'_>, report: Report<'_>) {
    let text = |schema: Schema<'_>| schema.get("default").map(|value| quote(&canonical(value)));
    match (text(old), text(new)) {
        (None, Some(new)) => {
            report("default", format!("default added when there was none previously : {new}"), None)
        }
        (Some(old), None) => report("default", format!("default value removed : {old}"), None),
        (Some(old), Some(new)) if old != new => {
            report("default", format!("default value changed : {old} -> {new}"), None);
        }
        _ => {}
    }
}

fn enumeration(old: Schema<'_>, new: Schema<'_>, is_removed: bool, report: Report<'_>) {
    let values =
        |schema: Schema<'_>| -> BTreeSet<String> { schema.list("enum").iter().map(canonical).collect() };
    let (old, new) = (values(old), values(new));
    if old.is_empty() && !new.is_empty() {
        let new = without(&new, &old).join(" ");
        report("enum", format!("enum constraint added when there was none previously : [{new}]"), None);
    }
    let removed = without(&old, &new);
    let allows_all = new.is_empty() && !is_removed;
    if !removed.is_empty() && !allows_all {
        report("enum", format!("allowed enum values removed : [{}]", removed.join(" ")), None);
    }
}

/// Name of the bound, verb for tightening it, and the test for a tighter value.
type Side = (&'static str, &'static str, fn(f64, f64) -> bool);

fn bound(key: &'static str, side: Side, old: Schema<'_>, new: Schema<'_>, report: Report<'_>) {
    let (name, tightened, is_tighter) = side;
    let Some(limit) = new.number(key) else { return };
    // Counts print as integers. `maximum` and `minimum` may be any number.
    let shown = |schema: Schema<'_>, value: f64| match schema.integer(key) {
        Some(count) if !matches!(key, "maximum" | "minimum") => count.to_string(),
        _ => number(value),
    };
    match old.number(key) {
        None => {
            let limit = shown(new, limit);
            report(key, format!("{name} constraint added when there was none previously : {limit}"), None);
        }
        Some(before) if is_tighter(before, limit) => {
            report(
                key,
                format!("{name} {tightened} : {} -> {}", shown(old, before), shown(new, limit)),
                None,
            );
        }
        Some(_) => {}
    }
}

fn pattern(old: Schema<'_>, new: Schema<'_>, is_removed: bool, report: Report<'_>) {
    let (old, new) = (old.text("pattern"), new.text("pattern"));
    let change = match (old.is_empty(), new.is_empty()) {
        _ if old == new => return,
        (true, _) => "added",
        (_, false) => "changed",
        (_, true) if is_removed => "removed",
        (_, true) => return, // every text is allowed
    };
    report("pattern", format!("pattern {change} : {} -> {}", quote(old), quote(new)), None);
}

fn one_of(old: Schema<'_>, new: Schema<'_>, report: Report<'_>) {
    let entries = |schema: Schema<'_>| -> BTreeSet<String> {
        schema.list("oneOf").iter().map(canonical_schema).collect()
    };
    let (old, new) = (entries(old), entries(new));
    let (removed, added) = (without(&old, &new), without(&new, &old));
    let (what, schemas) = if old.is_empty() && !new.is_empty() {
        ("oneOf constraint added when there was none previously", added)
    } else if !removed.is_empty() {
        ("allowed oneOf schemas removed", removed)
    } else if !added.is_empty() {
        ("allowed oneOf schemas added", added)
    } else {
        return;
    };
    report("oneOf", format!("{what}: [{}]", schemas.join(" ")), None);
}
