//! Validation of existing custom resources against a new CustomResourceDefinition
//! (docs/design/additions.md#crd-checks).
//!
//! Each object gets the defaults of the new schema, as in the API server, and is then validated. Violations of the
//! old schema of the same version do not count. CEL rules and other checks that need an API server are not
//! evaluated. [`LiveCheck::judges`] takes that into account.

mod schema;
mod validator;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::crd::Crd;
use crate::schema::Schema;
use crate::text::canonical;
use crate::{CheckError, CrdFinding};
use validator::SchemaValidator;

/// Validates objects of one CRD against a new version of that CRD.
#[derive(Debug)]
pub struct LiveCheck {
    lists: Vec<ListedVersion>,
    /// `true` if the new schemas have constraints that are not evaluated here and that the old schemas lack.
    has_unevaluated: bool,
    /// Stored versions that are not served: data dropped by their schemas is not visible.
    unserved: BTreeSet<String>,
}

/// Objects of one version, with the schemas to validate them against.
#[derive(Debug)]
struct ListedVersion {
    version: String,
    validators: Vec<VersionValidators>,
}

#[derive(Debug)]
struct VersionValidators {
    version: String,
    new: SchemaValidator,
    /// Schema of the same version in the old CRD, if that version was served.
    old: Option<SchemaValidator>,
}

impl LiveCheck {
    /// Prepares the comparison of objects of the CRD `live` with the CRD `new`.
    ///
    /// # Errors
    /// Either CRD is not a CRD, is malformed, exceeds a limit, or has a schema that cannot be evaluated.
    pub fn new(live: &Value, new: &Value) -> Result<Self, CheckError> {
        let (old_crd, new_crd) = (Crd::read(live)?, Crd::read(new)?);
        let list = |version: &str, judged: &[&str]| -> Result<ListedVersion, CheckError> {
            let validators =
                judged.iter().filter_map(|judged| version_validators(&old_crd, &new_crd, judged).transpose());
            Ok(ListedVersion {
                version: version.to_owned(),
                validators: validators.collect::<Result<_, _>>()?,
            })
        };
        let served: Vec<&str> = old_crd.served().collect();
        let mut lists: Vec<ListedVersion> = if new_crd.webhook_conversion {
            // Only the webhook can convert an object to another version.
            let common = served.iter().filter(|version| new_crd.version(version).is_some());
            common.map(|version| list(version, &[version])).collect::<Result<_, _>>()?
        } else {
            // Without a webhook, an object differs between versions only by the fields that their schemas drop.
            let stored = old_crd.versions.iter().find(|version| version.stored).map(|version| version.name);
            let listed = stored.filter(|stored| served.contains(stored)).or_else(|| served.first().copied());
            let judged: Vec<&str> = new_crd.served().collect();
            listed.map(|version| list(version, &judged)).transpose()?.into_iter().collect()
        };
        lists.retain(|list| !list.validators.is_empty());
        let has_unevaluated = !unevaluated(&new_crd).is_subset(&unevaluated(&old_crd));
        let unserved = old_crd.stored_versions.iter().filter(|stored| !served.contains(stored));
        let unserved = unserved.map(|&version| version.to_owned()).collect();
        Ok(Self { lists, has_unevaluated, unserved })
    }

    /// Versions in which all objects must be listed. Empty if no schema has changed or no version can be listed.
    pub fn versions(&self) -> impl Iterator<Item = &str> {
        self.lists.iter().map(|list| list.version.as_str())
    }

    /// Violations of an object listed in one of [`Self::versions`]: `<version>: <path>: <problem>`, sorted, without
    /// any value of the object. Empty for a valid object.
    pub fn violations(&self, version: &str, object: &Value) -> Vec<String> {
        let list = self.lists.iter().find(|list| list.version == version);
        let mut all: Vec<String> = Vec::new();
        for VersionValidators { version, new, old } in list.iter().flat_map(|list| &list.validators) {
            let mut violations = new.violations(object);
            if let Some(old) = old.as_ref().filter(|_| !violations.is_empty()) {
                let known: BTreeSet<String> = old.violations(object).into_iter().collect();
                violations.retain(|violation| !known.contains(violation));
            }
            // Names of fields and patterns may contain line breaks. Messages must not.
            let line = |violation: String| format!("{version}: {}", violation.replace('\n', "\\n"));
            all.extend(violations.into_iter().map(line));
        }
        all.sort();
        all.dedup();
        all
    }

    /// Reports whether [`Self::violations`] of all objects decide if this finding breaks any of them.
    pub fn judges(&self, finding: &CrdFinding) -> bool {
        let is_served = finding.version.as_ref().is_none_or(|version| !self.unserved.contains(version));
        match finding.check {
            _ if !is_served => false,
            // A default changes the meaning of an object, not its validity.
            "default" => false,
            "unhandled" => !self.has_unevaluated,
            _ => !finding.is_absolute(),
        }
    }
}

impl CrdFinding {
    /// Reports whether the change is rejected by the API server itself, regardless of existing objects.
    pub fn is_absolute(&self) -> bool {
        matches!(self.check, "scope" | "storedVersionRemoval")
    }

    /// Reports whether stored objects become unreadable, or lose fields at their next write.
    pub fn loses_data(&self) -> bool {
        self.is_absolute() || self.check == "existingFieldRemoval"
    }
}

/// Schemas of `version` for validation. `None` if the schema has not changed.
fn version_validators(
    old: &Crd<'_>,
    new: &Crd<'_>,
    version: &str,
) -> Result<Option<VersionValidators>, CheckError> {
    let schema_of =
        |crd: &Crd<'_>| crd.version(version).and_then(|version| version.schema).map(Schema::to_map);
    let was_served = old.served().any(|served| served == version);
    let (before, after) = (schema_of(old).filter(|_| was_served), schema_of(new));
    if before == after {
        return Ok(None);
    }
    let validator =
        |crd: &Crd<'_>, schema: Option<Map<String, Value>>| -> Result<Option<SchemaValidator>, CheckError> {
            let field = format!("schema.openAPIV3Schema of version {version}");
            let unusable = || CheckError::malformed(crd.name, &field, "a schema that can be evaluated");
            schema.map(|schema| SchemaValidator::new(schema).ok_or_else(unusable)).transpose()
        };
    // Without a schema every object is valid.
    let Some(after) = validator(new, after)? else { return Ok(None) };
    Ok(Some(VersionValidators { version: version.to_owned(), new: after, old: validator(old, before)? }))
}

/// Constraints in the schemas of a CRD that are not evaluated here, each with its path.
fn unevaluated(crd: &Crd<'_>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for schema in crd.versions.iter().filter_map(|version| version.schema) {
        collect_unevaluated(schema, &mut "^".to_owned(), &mut found);
    }
    found
}

fn collect_unevaluated(schema: Schema<'_>, path: &mut String, found: &mut BTreeSet<String>) {
    for key in ["x-kubernetes-validations", "x-kubernetes-embedded-resource", "format"] {
        let constraint = schema.get(key).filter(|value| key != "format" || !schema::is_known_format(value));
        found.extend(constraint.map(|value| format!("{path} {key} {}", canonical(value))));
    }
    let length = path.len();
    for (step, child) in schema.children() {
        path.push_str(&step.to_string());
        collect_unevaluated(child, path, found);
        path.truncate(length);
    }
}

#[cfg(test)]
mod tests;
