//! Findings and report of a check.

use std::collections::BTreeMap;
use std::fmt;

use olm_bundle::{Bundle, InstallMode};
use serde::Serialize;

use crate::findings::Findings;
use crate::rule::{self, Level, Rule};

/// Violation of a rule.
///
/// Printed on one line: file and line, object and field, message, rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The violated rule.
    #[serde(serialize_with = "rule::by_id")]
    pub rule: &'static Rule,
    /// Severity.
    pub level: Level,
    /// Path relative to the root of the bundle. Empty for the whole bundle.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Line in the file, from 1. For a missing field, the line of its closest existing ancestor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Kind and name of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Path of the field, such as `spec.versions[0].name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The problem, and the allowed values or the fix.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.as_str(), self.line) {
            ("", _) => {}
            (file, Some(line)) => write!(f, "{file}:{line}: ")?,
            (file, None) => write!(f, "{file}: ")?,
        }
        if let Some(object) = &self.object {
            write!(f, "{object}: ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        write!(f, "{} [{}]", self.message, self.rule.id)
    }
}

/// Identity of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Name of the package.
    pub package: String,
    /// Name of the bundle.
    pub name: String,
    /// Version of the ClusterServiceVersion, if set.
    pub version: Option<String>,
    /// Names of the supported install modes.
    pub install_modes: Vec<&'static str>,
}

impl Identity {
    pub(crate) fn of(bundle: &Bundle) -> Self {
        Self {
            package: bundle.package_name().to_string(),
            name: bundle.name().to_string(),
            version: bundle.version().map(str::to_string),
            install_modes: bundle.install_modes().into_iter().map(InstallMode::name).collect(),
        }
    }
}

/// Result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Identity of the bundle, if it can be loaded.
    pub identity: Option<Identity>,
    /// Findings by file, line and rule.
    pub findings: Vec<Finding>,
    /// Number of findings omitted because a rule reports at most a hundred.
    pub omitted: usize,
}

impl Report {
    pub(crate) fn new(
        files: &BTreeMap<String, Vec<u8>>,
        identity: Option<Identity>,
        findings: Findings,
    ) -> Self {
        let (findings, omitted) = findings.finish(files);
        Self { identity, findings, omitted }
    }

    /// Findings of this level.
    pub fn of(&self, level: Level) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.level == level)
    }
}
