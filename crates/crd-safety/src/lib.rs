//! CRD upgrade safety: checks that replacing a CustomResourceDefinition breaks no existing client or object
//! (docs/design/apply.md#crd-upgrade-safety).
//!
//! ```text
//! live CRD ┐            ┌ whole CRD ── scope, stored versions, removed fields
//!          ├► crd::Crd ─┼ same version ─ every property, old against new ───┐
//! new CRD  ┘            └ served pairs ─ every property, lower against higher┴► property ► unhandled
//! ```
//!
//! [`LiveCheck`] validates existing custom resources against the new CRD instead.
//!
//! ```
//! use olm_crd_safety::{LiveCheck, check};
//! use serde_json::json;
//!
//! let crd = |size: &str| {
//!     let spec = json!({"type": "object", "properties": {"size": {"type": size}}});
//!     json!({
//!         "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
//!         "metadata": {"name": "lamps.example.com"},
//!         "spec": {"scope": "Namespaced", "versions": [{"name": "v1", "served": true, "storage": true,
//!             "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}]},
//!     })
//! };
//! let (live, new) = (crd("integer"), crd("string"));
//! let findings = check(Some(&live), &new)?;
//! assert_eq!(findings[0].to_string(), "v1: ^.spec.size: type: type changed : \"integer\" -> \"string\"");
//!
//! let existing = LiveCheck::new(&live, &new)?;
//! assert!(existing.judges(&findings[0]));
//! assert_eq!(existing.violations("v1", &json!({"spec": {"size": 3}})).len(), 1);
//! assert!(existing.violations("v1", &json!({"spec": {}})).is_empty());
//! # Ok::<(), olm_crd_safety::CheckError>(())
//! ```
//!
//! Pure: takes objects, returns sorted findings. The texts are those of the reference. Changes that break nothing
//! but are refused by the reference yield no finding (docs/design/apply.md#harmless-changes): titles, a dropped
//! enum or pattern, and changes below the values of a map that have their own findings.

mod crd;
mod finding;
mod impact;
mod live;
mod priority;
mod property;
mod schema;
mod text;
mod unhandled;

use std::collections::BTreeSet;

use serde_json::Value;

pub use finding::{CrdFinding, Impact, Section, error_text, without_consequences};
pub use live::LiveCheck;

use crd::{Crd, Version};
use finding::{Findings, REMOVED_FIELD};

/// Reason why two objects cannot be compared: one of them is not a CRD, is malformed, or exceeds a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CheckError(String);

impl CheckError {
    /// A field of the CRD `name` has a value that the API server would reject.
    fn malformed(name: &str, field: &str, expected: &str) -> Self {
        Self(format!("CustomResourceDefinition {name:?}: {field} must be {expected}"))
    }
}

/// Reports whether `object` is a CustomResourceDefinition of `apiextensions.k8s.io/v1`
/// (docs/design/apply.md#crd-upgrade-safety).
pub fn is_crd(object: &Value) -> bool {
    object["apiVersion"] == crd::API_VERSION && object["kind"] == crd::KIND
}

/// Returns the breaking changes of replacing `live` by `new`, sorted. Empty if there is no live CRD.
///
/// Deterministic: the same objects yield the same findings in the same order.
///
/// # Errors
/// Either object is not a CRD, is malformed, or exceeds a limit.
pub fn check(live: Option<&Value>, new: &Value) -> Result<Vec<CrdFinding>, CheckError> {
    let Some(live) = live else { return Ok(Vec::new()) };
    let (old, new) = (Crd::read(live)?, Crd::read(new)?);
    let mut findings = Findings::default();
    whole_crd(&old, &new, &mut findings);
    for (version, counterpart) in common_versions(&old, &new) {
        property::compare(Section::Same, version.name, version, counterpart, &mut findings);
    }
    if !new.webhook_conversion {
        let known: BTreeSet<String> = served_pairs(&old, new.name)?.iter().map(ToString::to_string).collect();
        // Differences between versions of the old CRD do not block the upgrade.
        let fresh =
            served_pairs(&new, new.name)?.into_iter().filter(|finding| !known.contains(&finding.to_string()));
        fresh.for_each(|finding| findings.push(finding));
    }
    findings.finish(new.name)
}

/// Served versions of `live` that `new` does not serve. The check of the reference ignores them: clients that use them fail.
///
/// # Errors
/// Either object is not a CRD, is malformed, or exceeds a limit.
pub fn vanished_versions(live: &Value, new: &Value) -> Result<Vec<String>, CheckError> {
    let (old, new) = (Crd::read(live)?, Crd::read(new)?);
    let kept: BTreeSet<&str> = new.served().collect();
    Ok(old.served().filter(|version| !kept.contains(version)).map(str::to_owned).collect())
}

/// Checks scope, stored versions and removed fields: docs/design/apply.md#crd-findings.
fn whole_crd(old: &Crd<'_>, new: &Crd<'_>, findings: &mut Findings) {
    let mut push = |check, text, impact| {
        findings.push(CrdFinding {
            section: Section::Crd,
            version: None,
            property: None,
            check,
            text,
            impact,
        });
    };
    if old.scope != new.scope {
        let quote = olm_version::quote;
        push(
            "scope",
            format!("scope changed : {} -> {}", quote(old.scope), quote(new.scope)),
            Impact::StoredObjects,
        );
    }
    let gone: Vec<&str> =
        old.stored_versions.iter().copied().filter(|name| new.version(name).is_none()).collect();
    if !gone.is_empty() {
        push(
            "storedVersionRemoval",
            format!("stored versions removed : [{}]", gone.join(" ")),
            Impact::StoredObjects,
        );
    }
    for (version, new) in common_versions(old, new) {
        property::each(version, new, &mut |path, _, counterpart| {
            if counterpart.is_none() {
                let impact = impact::in_version(impact::of_removal(path), version, new);
                push("existingFieldRemoval", format!("{REMOVED_FIELD}{}.{path}", version.name), impact);
            }
        });
    }
}

/// Pairs each version of `old` with the version of that name in `new`, served or not.
fn common_versions<'c, 'a>(
    old: &'c Crd<'a>,
    new: &'c Crd<'a>,
) -> impl Iterator<Item = (&'c Version<'a>, &'c Version<'a>)> {
    old.versions.iter().filter_map(|version| Some((version, new.version(version.name)?)))
}

/// Compares each served version with each higher one: a higher version must accept objects of a lower one
/// (docs/design/apply.md#crd-findings). `name` is that of the CRD in errors.
fn served_pairs(crd: &Crd<'_>, name: &str) -> Result<Vec<CrdFinding>, CheckError> {
    let mut findings = Findings::default();
    let mut served: Vec<&Version<'_>> = crd.versions.iter().filter(|version| version.served).collect();
    served.sort_by_key(|version| priority::key(version.name));
    for (number, lower) in served.iter().enumerate() {
        for higher in &served[number + 1..] {
            let version = format!("{} -> {}", lower.name, higher.name);
            property::compare(Section::Served, &version, lower, higher, &mut findings);
        }
    }
    findings.finish(name)
}

#[cfg(test)]
mod tests;
