//! What a check found.

use std::collections::BTreeMap;
use std::fmt;

use olm_bundle::{Bundle, InstallMode};
use serde::Serialize;

use crate::findings::Findings;
use crate::rule::{self, Level, Rule};

/// One thing that is wrong with a bundle.
///
/// Printed on one line: file and line, the object and its field, the message, the rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule that is broken.
    #[serde(serialize_with = "rule::by_id")]
    pub rule: &'static Rule,
    /// How much it weighs.
    pub level: Level,
    /// Path from the bundle's root; empty for the bundle as a whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// Line in the file, from 1: that of the field, or of as much of its path as is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Kind and name of the object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The field, `spec.versions[0].name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What is wrong, and what is allowed or to do.
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

/// Who a bundle is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// Name of the package.
    pub package: String,
    /// Name of the bundle.
    pub name: String,
    /// Version of the ClusterServiceVersion; `None` where it has none.
    pub version: Option<String>,
    /// Install modes that it supports, by name.
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

/// All that a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Who the bundle is, where it can be loaded.
    pub identity: Option<Identity>,
    /// By file, line and rule.
    pub findings: Vec<Finding>,
    /// How many more findings there are: of one rule, at most a hundred are told.
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

    /// The findings of a level.
    pub fn of(&self, level: Level) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.level == level)
    }
}
