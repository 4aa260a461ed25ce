//! Findings of the checks, and their text form.

use std::collections::BTreeSet;
use std::fmt;

use crate::CheckError;

/// Maximum size of the findings of one CRD, in bytes. No status holds that much; a hostile pair of CRDs could yield
/// more.
const MAX_BYTES: usize = 32 << 20;

/// Scope of a comparison, in the order of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Section {
    /// The whole CRD.
    Crd,
    /// One version, old against new.
    Same,
    /// Two versions served at the same time.
    Served,
}

impl Section {
    /// Returns `crd`, `same` or `served`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Crd => "crd",
            Self::Same => "same",
            Self::Served => "served",
        }
    }
}

/// What a change breaks (docs/design/cli.md#impact-of-crd-changes). Sorts from the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Impact {
    /// Nothing: every object that was valid stays so, and means the same.
    Nothing,
    /// Clients: requests or values that they get change.
    Clients,
    /// Stored objects may become invalid, unreadable, or lose fields.
    StoredObjects,
}

impl Impact {
    /// Returns `nothing`, `clients` or `stored objects`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Clients => "clients",
            Self::StoredObjects => "stored objects",
        }
    }
}

/// Breaking change between the live and the new CRD. Sorts in report order. `Display` yields its report line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CrdFinding {
    /// Scope of the comparison.
    pub section: Section,
    /// `v1`, or `v1 -> v2` for a pair. `None` for the whole CRD.
    pub version: Option<String>,
    /// Path of the property, such as `^.spec.list.items.name`. `None` for the whole CRD.
    pub property: Option<String>,
    /// Name of the check (docs/design/apply.md#crd-findings, docs/design/apply.md#property-checks).
    pub check: &'static str,
    /// Description of the change.
    pub text: String,
    /// What it breaks. The reference does not tell.
    pub impact: Impact,
}

impl fmt::Display for CrdFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [&self.version, &self.property].into_iter().flatten() {
            write!(f, "{part}: ")?;
        }
        write!(f, "{}: {}", self.check, self.text)
    }
}

/// Begin of the text about a removed field, which version and path follow.
pub(crate) const REMOVED_FIELD: &str = "removed field : ";

/// Findings without those that another one implies: of a removed field, only its removal remains.
pub fn without_consequences(findings: Vec<CrdFinding>) -> Vec<CrdFinding> {
    let field = |finding: &CrdFinding| {
        let (version, path) = match (&finding.version, &finding.property) {
            (Some(version), Some(path)) => (version.as_str(), path.as_str()),
            _ => finding.text.strip_prefix(REMOVED_FIELD)?.split_once('.')?,
        };
        Some((version.to_owned(), path.to_owned()))
    };
    let is_removal = |finding: &CrdFinding| finding.check == "existingFieldRemoval";
    let removed: BTreeSet<_> =
        findings.iter().filter(|finding| is_removal(finding)).filter_map(field).collect();
    let is_implied = |finding: &CrdFinding| {
        let Some((version, path)) = field(finding) else { return false };
        let is_removed = |path: &str| removed.contains(&(version.clone(), path.to_owned()));
        (!is_removal(finding) && is_removed(&path))
            || path.match_indices('.').any(|(end, _)| is_removed(&path[..end]))
    };
    let implied: Vec<bool> = findings.iter().map(is_implied).collect();
    findings.into_iter().zip(implied).filter(|(_, implied)| !implied).map(|(finding, _)| finding).collect()
}

/// Complete error text for the findings of the CRD `name` (docs/design/apply.md#crd-upgrade-safety).
pub fn error_text(name: &str, findings: &[CrdFinding]) -> String {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    format!("validating upgrade for CRD {}: {}", olm_version::quote(name), lines.join("\n"))
}

/// Collects findings up to [`MAX_BYTES`].
#[derive(Debug, Default)]
pub(crate) struct Findings {
    list: Vec<CrdFinding>,
    bytes: usize,
}

impl Findings {
    pub(crate) fn push(&mut self, finding: CrdFinding) {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.bytes += length(&finding.version) + length(&finding.property) + finding.text.len();
        if self.bytes <= MAX_BYTES {
            self.list.push(finding);
        }
    }

    /// Returns the findings of the CRD `name`, sorted.
    ///
    /// # Errors
    /// The findings exceed [`MAX_BYTES`].
    pub(crate) fn finish(mut self, name: &str) -> Result<Vec<CrdFinding>, CheckError> {
        if self.bytes > MAX_BYTES {
            return Err(CheckError(format!(
                "CustomResourceDefinition {name:?}: the findings are longer than {MAX_BYTES} bytes"
            )));
        }
        self.list.sort();
        Ok(self.list)
    }
}
