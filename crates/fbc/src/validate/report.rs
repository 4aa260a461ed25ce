//! Result of a validation.

use std::collections::BTreeMap;
use std::fmt;

use olm_finding::{Level, Rule};
use serde::Serialize;

use crate::Origin;

olm_finding::rules! {
    /// Rules of a validation.
    pub RULES: ();

    REJECTED "CATALOG-1" Error (()) "`opm validate` accepts the catalog"
        "catalogd does not serve it. Correct the object that the finding names."
    REPEATED_KEY "CATALOG-3" Warning (()) "an object has each key once"
        "Of equal keys only the last one is read. Where the line `---` between two objects is missing, the first one is lost."
    UNDOCUMENTED "CATALOG-4" Warning (()) "objects follow the documented schemas"
        "opm accepts them, but other clients may not. Checked with --strict."
}

/// Fault of a catalog.
///
/// Printed on one line: the origin if known, the scope, the message, joined by `: `.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CatalogFinding {
    /// The violated rule, serialized as its ID.
    #[serde(serialize_with = "olm_finding::by_id")]
    pub rule: &'static Rule,
    /// Severity: an error if `opm validate` rejects the catalog.
    pub severity: Level,
    /// Scope of the message, outermost first: `invalid package "foo"`, `invalid channel "a"`. Empty if the message
    /// names the object itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scope: Vec<String>,
    /// Message. For errors in upstream's words.
    pub message: String,
    /// Origin of the object to fix.
    #[serde(flatten)]
    pub origin: Option<Origin>,
}

impl fmt::Display for CatalogFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        for scope in &self.scope {
            write!(f, "{scope}: ")?;
        }
        f.write_str(&self.message.replace('\n', " "))
    }
}

impl CatalogFinding {
    pub(super) fn new(
        rule: &'static Rule,
        scope: Vec<String>,
        message: String,
        origin: Option<Origin>,
    ) -> Self {
        Self { rule, severity: rule.level, scope, message, origin }
    }
}

/// Scope and message of an error without the names of objects at its end, and the number of their words.
fn kind_and_size(finding: &CatalogFinding) -> (String, usize) {
    let message = finding.message.split("; the first one is in ").next().unwrap_or_default();
    let (kind, names) =
        message.split_once(": ").or_else(|| message.split_once(" [")).unwrap_or((message, ""));
    let scope = finding.scope.join(": ");
    (format!("{scope}: {kind}"), 1 + names.split_whitespace().count())
}

/// Findings of a validation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValidationReport {
    /// Errors in the order of upstream's checks, then warnings in the order of the catalog. Within the model check
    /// packages, channels and bundles are sorted by name.
    pub findings: Vec<CatalogFinding>,
    /// Complete message of `opm validate`. `None` if it accepts the catalog.
    pub reference_message: Option<String>,
}

impl ValidationReport {
    /// `true` if upstream accepts the catalog. Warnings are ignored.
    pub fn is_valid(&self) -> bool {
        self.reference_message.is_none()
    }

    /// Findings for which upstream rejects the catalog.
    pub fn errors(&self) -> impl Iterator<Item = &CatalogFinding> {
        self.findings.iter().filter(|finding| finding.severity == Level::Error)
    }

    /// Errors that the catalog did not have at the time of the report `before`. An error about the same part is the same
    /// one unless it names more objects.
    pub fn errors_since(&self, before: &Self) -> Vec<&CatalogFinding> {
        let (known, now) = (before.error_sizes(), self.error_sizes());
        let is_new = |finding: &&CatalogFinding| {
            let (kind, _) = kind_and_size(finding);
            now.get(&kind) > known.get(&kind)
        };
        self.errors().filter(is_new).collect()
    }

    /// Number of objects that the errors of each kind name.
    fn error_sizes(&self) -> BTreeMap<String, usize> {
        let mut sizes = BTreeMap::new();
        for finding in self.errors() {
            let (kind, size) = kind_and_size(finding);
            *sizes.entry(kind).or_default() += size;
        }
        sizes
    }

    /// Findings for which upstream does not reject it.
    pub fn warnings(&self) -> impl Iterator<Item = &CatalogFinding> {
        self.findings.iter().filter(|finding| finding.severity == Level::Warning)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(errors: &[(&str, &str)]) -> ValidationReport {
        let finding = |(scope, message): &(&str, &str)| CatalogFinding {
            rule: &REJECTED,
            severity: Level::Error,
            scope: vec![(*scope).to_owned()],
            message: (*message).to_owned(),
            origin: None,
        };
        ValidationReport { findings: errors.iter().map(finding).collect(), reference_message: None }
    }

    #[test]
    fn error_is_new_if_its_part_had_none_or_it_names_more() {
        const HEADS: &str = "multiple channel heads found in graph";
        let heads = |names: &str| format!("{HEADS}: {names}");
        let before = [
            ("c", heads("a, b")),
            ("d", "duplicate bundle \"x\"; the first one is in f:1: document 1".to_owned()),
        ];
        for (after, expected) in [
            (vec![], 0),
            (vec![("c", heads("a, b"))], 0),
            (vec![("c", heads("a, z"))], 0),
            (vec![("c", heads("a, b, z"))], 1),
            (vec![("e", heads("a, b"))], 1),
            (vec![("d", "duplicate bundle \"x\"; the first one is in f:9: document 1".to_owned())], 0),
            (vec![("d", "duplicate bundle \"y\"; the first one is in f:9: document 1".to_owned())], 1),
            (vec![("c", heads("a, b")), ("c", "no channel head found in graph".to_owned())], 1),
        ] {
            let borrowed = |list: &[(&'static str, String)]| -> ValidationReport {
                report(&list.iter().map(|(scope, text)| (*scope, text.as_str())).collect::<Vec<_>>())
            };
            assert_eq!(borrowed(&after).errors_since(&borrowed(&before)).len(), expected, "{after:?}");
        }
    }
}
