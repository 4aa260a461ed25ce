//! Findings of the checks, and their text form.

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

/// Breaking change between the live and the new CRD. Sorts in report order. `Display` yields its report line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
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
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [&self.version, &self.property].into_iter().flatten() {
            write!(f, "{part}: ")?;
        }
        write!(f, "{}: {}", self.check, self.text)
    }
}

/// Complete error text for the findings of the CRD `name` (docs/design/apply.md#crd-upgrade-safety).
pub fn error_text(name: &str, findings: &[Finding]) -> String {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    format!("validating upgrade for CRD {}: {}", olm_version::quote(name), lines.join("\n"))
}

/// Collects findings up to [`MAX_BYTES`].
#[derive(Debug, Default)]
pub(crate) struct Findings {
    list: Vec<Finding>,
    bytes: usize,
}

impl Findings {
    pub(crate) fn push(&mut self, finding: Finding) {
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
    pub(crate) fn finish(mut self, name: &str) -> Result<Vec<Finding>, CheckError> {
        if self.bytes > MAX_BYTES {
            return Err(CheckError(format!(
                "CustomResourceDefinition {name:?}: the findings are longer than {MAX_BYTES} bytes"
            )));
        }
        self.list.sort();
        Ok(self.list)
    }
}
