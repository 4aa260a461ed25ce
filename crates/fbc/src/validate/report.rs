//! What a validation has found.

use std::fmt;

use crate::Origin;

/// How much a [`Finding`] weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// `opm validate` refuses the catalog for it.
    Error,
    /// The reference accepts it; found in strict mode only.
    Warning,
}

/// One thing that is wrong with a catalog.
///
/// Printed on one line: the origin if known, the scope, the message, joined by `: `.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How much it weighs.
    pub severity: Severity,
    /// What the message is about, from the outside in: `invalid package "foo"`, `invalid channel "a"`. Empty where the
    /// message names it itself.
    pub scope: Vec<String>,
    /// What is wrong, for errors in the words of the reference.
    pub message: String,
    /// Where the object was written that must be mended.
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

/// All that a validation has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Errors in the order of the reference's checks, then warnings in the order of the catalog. Within the model
    /// check packages, channels and bundles come sorted by name.
    pub findings: Vec<Finding>,
    /// The complete message that `opm validate` prints, `None` where it accepts the catalog.
    pub reference_message: Option<String>,
}

impl Report {
    /// Whether the reference accepts the catalog; warnings do not count.
    pub fn is_valid(&self) -> bool {
        self.reference_message.is_none()
    }

    /// The findings for which the reference refuses the catalog.
    pub fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity == Severity::Error)
    }

    /// The findings of strict mode.
    pub fn warnings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.severity == Severity::Warning)
    }
}
