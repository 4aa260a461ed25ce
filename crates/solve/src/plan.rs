//! What to do.

use std::fmt;

use olm_version::Version;
use serde::Serialize;

use crate::conflict::SolveError;
use crate::question::Question;
use crate::search;

/// What to install and upgrade, in order. No steps: everything is as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The steps in the order in which they are to be done.
    pub steps: Vec<Step>,
    /// Wanted packages that are at their best bundle already, by name.
    pub kept: Vec<String>,
    /// Each requirement of the bundles of the plan's steps and of kept packages, and what meets it.
    pub requirements: Vec<Met>,
}

/// Changes that must be done together, because each needs another one of them: usually a single one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The changes, providers of kinds first, then by package.
    pub changes: Vec<Change>,
}

/// One package that is installed, or moved to another bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// The package's name.
    pub package: String,
    /// What is installed now; absent for a new installation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Previous>,
    /// The bundle to install.
    pub to: Chosen,
    /// Why.
    pub because: Because,
}

/// The bundle that is installed before a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Previous {
    /// Name of the ClusterExtension.
    pub extension: String,
    /// The bundle's name.
    pub bundle: String,
    /// The bundle's version.
    pub version: String,
}

/// A bundle of a catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Chosen {
    /// The bundle's name.
    pub bundle: String,
    /// Its version, as shown in the status of an extension.
    pub version: String,
    /// The reference of its image.
    pub image: String,
    /// The catalog that offers it.
    pub catalog: String,
    /// The preferred channel that has it; absent if none has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// True if its catalog deprecates it.
    pub deprecated: bool,
}

/// Why a change is part of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Because {
    /// It was asked for.
    Wanted,
    /// A bundle of the plan requires it.
    Required {
        /// That bundle.
        by: String,
        /// What it requires.
        requires: String,
    },
    /// What is installed would break: its requirement would no longer be met, or another bundle provides the same kind.
    WouldBreak {
        /// What breaks.
        what: String,
    },
}

/// A requirement and what meets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Met {
    /// The bundle that requires it.
    pub bundle: String,
    /// What it requires, in the words of docs/design/additions.md#requirement-texts.
    pub requires: String,
    /// The bundle that meets it, or the kind that the cluster serves.
    pub by: String,
    /// True if nothing that OLM installed meets it but the cluster itself.
    pub external: bool,
}

/// Finds the plan that is first in the order of preference.
///
/// Wanted packages, in the order of their names, get the best bundle that can be had; then installed extensions stay
/// where they are if they can; then requirements, in the order of the bundles and their properties, are met by the best
/// bundle (docs/design/additions.md#order-of-preference): one that is installed, else one that is not deprecated, of
/// the same catalog, of a catalog of higher priority, of the default channel, nearer to the head of its channel.
/// Nothing is installed that nothing needs.
///
/// # Errors
/// See [`SolveError`]; [`SolveError::Conflict`] says why no plan exists.
pub fn solve(question: &Question<'_>) -> Result<Plan, SolveError> {
    search::solve(question)
}

/// Without an end of line; one line for each change, and where a step has several a line before them.
impl fmt::Display for Plan {
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
        lines.extend(self.kept.iter().map(|package| format!("{package} is at its best bundle already")));
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

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wanted => f.write_str("wanted"),
            Self::Required { by, requires } => write!(f, "{by} requires an operator {requires}"),
            Self::WouldBreak { what } => write!(f, "cannot stay: {what}"),
        }
    }
}
