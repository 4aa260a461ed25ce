//! Result of a validation.

use std::fmt;

use serde::Serialize;

use crate::Origin;

/// Severity of a [`Finding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// `opm validate` rejects the catalog.
    Error,
    /// Upstream accepts it. Reported in strict mode only.
    Warning,
}

/// Fault of a catalog.
///
/// Printed on one line: the origin if known, the scope, the message, joined by `: `.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Severity.
    pub severity: Severity,
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

impl fmt::Display for Finding {
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

/// Findings of a validation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Errors in the order of upstream's checks, then warnings in the order of the catalog. Within the model check
    /// packages, channels and bundles are sorted by name.
    pub findings: Vec<Finding>,
    /// Complete message of `opm validate`. `None` if it accepts the catalog.
    pub reference_message: Option<String>,
}

impl Report {
    /// `true` if upstream accepts the catalog. Warnings are ignored.
    pub fn is_valid(&self) -> bool {
        self.reference_message.is_none()
    }

    /// Findings for which upstream rejects the catalog.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity == Severity::Error)
    }

    /// Findings of strict mode.
    pub fn warnings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity == Severity::Warning)
    }
}
