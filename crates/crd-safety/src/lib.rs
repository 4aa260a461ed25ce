//! Whether a CustomResourceDefinition may be replaced without breaking what exists
//! (docs/design/apply.md#crd-upgrade-safety).
//!
//! ```text
//! live CRD ┐            ┌ whole CRD ── scope, stored versions, removed fields
//!          ├► crd::Crd ─┼ same version ─ every property, old against new ───┐
//! new CRD  ┘            └ served pairs ─ every property, lower against higher┴► property ► unhandled
//! ```
//!
//! [`LiveCheck`] holds the custom resources that exist against the new CRD instead.
//!
//! Pure: objects come in, sorted findings go out. The texts are those of the reference; where it refuses a change that
//! breaks nothing (docs/design/apply.md#harmless-changes: titles, a dropped enum or pattern, anything below a map's
//! values that the values' own findings tell), nothing is said.

mod crd;
mod finding;
mod live;
mod priority;
mod property;
mod schema;
mod text;
mod unhandled;

use std::collections::BTreeSet;

use serde_json::Value;

pub use finding::{Finding, Section, error_text};
pub use live::LiveCheck;

use crd::{Crd, Version};
use finding::Findings;
use property::Comparison;

/// Why two objects cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// The object is something else.
    #[error(
        "object {name:?} is a {kind:?} of {api_version:?}, not a CustomResourceDefinition of apiextensions.k8s.io/v1"
    )]
    NotACrd {
        /// `metadata.name` of the object, empty where there is none.
        name: String,
        /// `apiVersion` of the object, empty where there is none.
        api_version: String,
        /// `kind` of the object, empty where there is none.
        kind: String,
    },
    /// A field holds what the API server would refuse.
    #[error("CustomResourceDefinition {name:?}: {field} must be {expected}")]
    Malformed {
        /// Name of the CRD.
        name: String,
        /// Where, from the object's root.
        field: String,
        /// What is allowed there.
        expected: &'static str,
    },
    /// Nested so deeply that nobody wrote it by hand.
    #[error("CustomResourceDefinition {name:?} is nested deeper than {limit} levels")]
    TooDeep {
        /// Name of the CRD.
        name: String,
        /// Levels of JSON lists and objects that are allowed.
        limit: usize,
    },
    /// More versions than can be compared pair by pair.
    #[error("CustomResourceDefinition {name:?} has {count} versions, at most {limit} are compared")]
    TooManyVersions {
        /// Name of the CRD.
        name: String,
        /// Versions that it has.
        count: usize,
        /// Versions that are allowed.
        limit: usize,
    },
    /// More findings than anybody would read.
    #[error("CustomResourceDefinition {name:?}: the findings are longer than {limit} bytes")]
    TooManyFindings {
        /// Name of the CRD.
        name: String,
        /// Bytes of text that are allowed.
        limit: usize,
    },
}

/// Whether `object` is what the check is about: a CustomResourceDefinition of `apiextensions.k8s.io/v1`
/// (docs/design/apply.md#crd-upgrade-safety).
pub fn is_crd(object: &Value) -> bool {
    object["apiVersion"] == crd::API_VERSION && object["kind"] == crd::KIND
}

/// What breaks when `live` is replaced by `new`, sorted; nothing where no CRD is live.
///
/// The result depends on the two objects only: same objects, same findings in the same order.
///
/// # Errors
/// One of them is no CRD, or is malformed or hostile.
pub fn check(live: Option<&Value>, new: &Value) -> Result<Vec<Finding>, CheckError> {
    let Some(live) = live else { return Ok(Vec::new()) };
    let (old, new) = (Crd::read(live)?, Crd::read(new)?);
    let mut findings = Findings::default();
    whole_crd(&old, &new, &mut findings);
    for (version, counterpart) in common_versions(&old, &new) {
        let comparison = Comparison { section: Section::Same, version: version.name.to_owned() };
        comparison.run(version, counterpart, &mut findings);
    }
    if !new.webhook_conversion {
        let mut known = Findings::default();
        served_pairs(&old, &mut known);
        let known: BTreeSet<Finding> = known.finish(new.name)?.into_iter().collect();
        let mut found = Findings::default();
        served_pairs(&new, &mut found);
        // What was wrong between the versions before is no reason to refuse the upgrade.
        let fresh = found.finish(new.name)?.into_iter().filter(|finding| !known.contains(finding));
        fresh.for_each(|finding| findings.push(finding));
    }
    findings.finish(new.name)
}

/// docs/design/apply.md#crd-findings.
fn whole_crd(old: &Crd<'_>, new: &Crd<'_>, findings: &mut Findings) {
    let mut push = |check, text| {
        findings.push(Finding { section: Section::Crd, version: None, property: None, check, text });
    };
    if old.scope != new.scope {
        let quote = olm_version::quote;
        push("scope", format!("scope changed : {} -> {}", quote(old.scope), quote(new.scope)));
    }
    let gone: Vec<&str> =
        old.stored_versions.iter().copied().filter(|name| new.version(name).is_none()).collect();
    if !gone.is_empty() {
        push("storedVersionRemoval", format!("stored versions removed : [{}]", gone.join(" ")));
    }
    for (version, counterpart) in common_versions(old, new) {
        property::each(version, counterpart, &mut |path, _, counterpart| {
            if counterpart.is_none() {
                push("existingFieldRemoval", format!("removed field : {}.{path}", version.name));
            }
        });
    }
}

/// The versions of `old` that `new` has too, served or not, each with its counterpart.
fn common_versions<'c, 'a>(
    old: &'c Crd<'a>,
    new: &'c Crd<'a>,
) -> impl Iterator<Item = (&'c Version<'a>, &'c Version<'a>)> {
    old.versions.iter().filter_map(|version| Some((version, new.version(version.name)?)))
}

/// docs/design/apply.md#crd-findings: whoever speaks a lower version must still be understood in a higher one.
fn served_pairs(crd: &Crd<'_>, findings: &mut Findings) {
    let mut served: Vec<&Version<'_>> = crd.versions.iter().filter(|version| version.served).collect();
    served.sort_by_key(|version| priority::key(version.name));
    for (number, lower) in served.iter().enumerate() {
        for higher in &served[number + 1..] {
            let version = format!("{} -> {}", lower.name, higher.name);
            Comparison { section: Section::Served, version }.run(lower, higher, findings);
        }
    }
}

#[cfg(test)]
mod tests;
