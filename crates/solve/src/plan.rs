//! Plans: changes to install or upgrade bundles.

use std::fmt;

use olm_version::Version;
use serde::Serialize;

/// Installations and upgrades in order. An empty list of steps means that nothing has to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangePlan {
    /// Steps in the order of execution.
    pub steps: Vec<ChangeStep>,
    /// Requested packages that are at their best bundle already, sorted by name.
    pub kept: Vec<String>,
    /// Requirements of the bundles in the steps and of kept packages, with the bundles that meet them.
    pub requirements: Vec<Met>,
}

/// Changes that must be made together because they depend on each other. Usually a single change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeStep {
    /// Changes, providers of kinds first, then by package.
    pub changes: Vec<Change>,
}

/// Installation of a package, or its change to another bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Name of the package.
    pub package: String,
    /// Installed bundle. Absent for a new installation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Previous>,
    /// Bundle to install.
    pub to: Chosen,
    /// Reason for the change.
    pub because: ChangeReason,
}

/// Bundle that is installed before a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Previous {
    /// Name of the ClusterExtension.
    pub extension: String,
    /// Name of the bundle.
    pub bundle: String,
    /// Version of the bundle.
    pub version: String,
}

/// Bundle of a catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Chosen {
    /// Name of the bundle.
    pub bundle: String,
    /// Version as in the status of an extension.
    pub version: String,
    /// Image reference.
    pub image: String,
    /// Catalog of the bundle.
    pub catalog: String,
    /// Preferred channel with the bundle. Absent if no channel contains it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// `true` if the catalog deprecates the bundle.
    pub deprecated: bool,
}

/// Reason for a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum ChangeReason {
    /// The user requests the package.
    #[serde(rename = "wanted")]
    Requested,
    /// A bundle of the plan requires it.
    Required {
        /// Name of that bundle.
        by: String,
        /// Text of the requirement.
        requires: String,
    },
    /// An installed bundle would break: its requirement would be unmet, or another bundle provides the same kind.
    WouldBreak {
        /// Text of the broken requirement or of the shared kind.
        what: String,
    },
}

/// Requirement with its provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Met {
    /// Name of the requiring bundle.
    pub bundle: String,
    /// Text of the requirement (docs/design/additions.md#requirement-texts).
    pub requires: String,
    /// Bundle that meets it, or the kind that the cluster serves.
    pub by: String,
    /// `true` if only the cluster meets it, not a bundle that OLM installed.
    pub external: bool,
}

/// Formats one line for each change, with a heading for a step of several changes, without a trailing newline.
impl fmt::Display for ChangePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<String> = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            let number = number + 1;
            match &step.changes[..] {
                [change] => lines.push(format!("{number}. {change}")),
                changes => {
                    lines.push(format!("{number}. together:"));
                    lines.extend(changes.iter().map(|change| format!("   - {change}")));
                }
            }
        }
        lines.extend(self.kept.iter().map(|package| format!("{package} already has its best bundle")));
        if lines.is_empty() {
            lines.push("nothing to do".to_owned());
        }
        f.write_str(&lines.join("\n"))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { package, from, to, because } = self;
        match from {
            Some(from) => {
                let lower = Version::parse(&to.version).ok() < Version::parse(&from.version).ok();
                let verb = if lower { "downgrade" } else { "upgrade" };
                write!(f, "{verb} {package} from {} to {}", from.version, to.version)?;
            }
            None => write!(f, "install {package} {}", to.version)?,
        }
        write!(f, " ({}, catalog {}", to.bundle, to.catalog)?;
        if let Some(channel) = &to.channel {
            write!(f, ", channel {channel}")?;
        }
        if to.deprecated {
            f.write_str(", deprecated")?;
        }
        write!(f, "): {because}")
    }
}

impl fmt::Display for ChangeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested => f.write_str("requested"),
            Self::Required { by, requires } => write!(f, "{by} requires an operator {requires}"),
            Self::WouldBreak { what } => write!(f, "the installed bundle cannot be kept: {what}"),
        }
    }
}
