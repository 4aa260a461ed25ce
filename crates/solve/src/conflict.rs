//! Errors of the solver, and the explanation of a conflict.

use std::fmt;

use olm_resolve::ResolveError;
use serde::Serialize;

/// Error of [`crate::solve`].
#[derive(Debug, thiserror::Error)]
pub enum SolveError {
    /// No plan exists.
    #[error("{0}")]
    Conflict(Box<Conflict>),
    /// The deadline passed.
    #[error(
        "resolution exceeded time budget; the largest package involved is {package} with {bundles} bundles"
    )]
    TimeBudget {
        /// Package with the most bundles among those visited.
        package: String,
        /// Number of its visited bundles.
        bundles: usize,
    },
    /// Unreadable constraints, or an unreadable version of an installed bundle.
    #[error("package {package}: {fault}")]
    Constraints {
        /// Name of the package.
        package: String,
        /// Cause of the error.
        fault: Box<ResolveError>,
    },
    /// Two constraints or two installed extensions for the same package.
    #[error("package {package} is {state} more than once{}", names(extensions))]
    Twice {
        /// Name of the package.
        package: String,
        /// `requested` or `installed`.
        state: &'static str,
        /// Names of the extensions, sorted.
        extensions: Vec<String>,
    },
}

fn names(extensions: &[String]) -> String {
    if extensions.is_empty() { String::new() } else { format!(", by {}", extensions.join(" and ")) }
}

/// Minimal set of goals that cannot be reached together, with a tree of reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Conflict {
    /// Goals that cannot be reached together: requested before installed, then by package. Without any one of them a
    /// plan would exist.
    pub goals: Vec<Goal>,
    /// The goal that is explained, with each candidate and the reason for its rejection.
    pub unmet: Unmet,
}

/// Goal that a plan must reach.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Goal {
    /// Installation of a requested package.
    #[serde(rename = "wanted")]
    Requested {
        /// Name of the package.
        package: String,
        /// Requested version constraint.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<String>,
        /// Requested channels.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        channels: Vec<String>,
    },
    /// Retention of an installed extension.
    Installed {
        /// Name of the extension.
        extension: String,
        /// Name of the installed bundle.
        bundle: String,
    },
    /// Requirement of a bundle.
    Requirement {
        /// Name of the requiring bundle.
        bundle: String,
        /// Text of the requirement (docs/design/additions.md#requirement-texts).
        requires: String,
        /// Message from the author of the bundle.
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
}

/// Goal that cannot be reached, with all of its candidates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unmet {
    /// The goal.
    pub goal: Goal,
    /// Candidates, best first.
    pub candidates: Vec<Dropped>,
}

/// Rejected candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Dropped {
    /// Name of the bundle.
    pub bundle: String,
    /// Version as in the status of an extension. Empty if it cannot be read.
    pub version: String,
    /// Catalog of the bundle. Absent for an installed bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catalog: Option<String>,
    /// Reason for the rejection.
    pub reason: RejectionReason,
}

/// Reason for the rejection of a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum RejectionReason {
    /// The constraints of its package do not admit it: channel, version, or no upgrade edge.
    NotAdmitted {
        /// Rule that excludes it.
        rule: String,
    },
    /// Another bundle of its package is needed.
    SamePackage {
        /// Name of that bundle.
        bundle: String,
    },
    /// Another needed bundle provides the same kind.
    SameKind {
        /// The kind as `group: g, version: v, kind: k`.
        provides: String,
        /// Name of the other bundle.
        bundle: String,
    },
    /// This candidate prevents another goal.
    Leaves {
        /// Goal that cannot be reached.
        unmet: Box<Unmet>,
    },
    /// The bundle belongs to the required package, but does not meet the requirement.
    Unsuitable,
    /// The bundle declares an unreadable requirement.
    Invalid {
        /// Parse error of the requirement.
        fault: String,
    },
    /// The candidate fails too. The tree is cut here because it would become too large.
    Cut,
}

/// Formats one line for each goal and candidate, indented by depth, without a trailing newline.
impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.goals[..] {
            [] | [_] => f.write_str("no plan exists")?,
            goals => {
                let goals: Vec<_> = goals.iter().map(ToString::to_string).collect();
                write!(f, "no plan exists; these goals conflict: {}", goals.join("; "))?;
            }
        }
        self.unmet.write(f, 1)
    }
}

impl Unmet {
    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        write!(f, "\n{:indent$}{}", "", self.goal, indent = depth * 2)?;
        if self.candidates.is_empty() {
            return f.write_str(": no catalog offers a candidate");
        }
        for candidate in &self.candidates {
            write!(f, "\n{:indent$}- {candidate}", "", indent = depth * 2 + 2)?;
            if let RejectionReason::Leaves { unmet } = &candidate.reason {
                unmet.write(f, depth + 2)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested { package, version, channels } => {
                write!(f, "package {package} is requested")?;
                if let Some(version) = version {
                    write!(f, " in version {version}")?;
                }
                if channels.is_empty() {
                    Ok(())
                } else {
                    write!(f, " from channels [{}]", channels.join(" "))
                }
            }
            Self::Installed { extension, bundle } => {
                write!(f, "extension {extension} is installed (bundle {bundle})")
            }
            Self::Requirement { bundle, requires, message } => {
                write!(f, "{bundle} requires an operator {requires}")?;
                match message {
                    Some(message) if !requires.contains(message.as_str()) => write!(f, " ({message})"),
                    _ => Ok(()),
                }
            }
        }
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bundle, version, catalog, reason } = self;
        let origin = catalog.as_deref().unwrap_or("installed");
        let space = if version.is_empty() { "" } else { " " };
        write!(f, "{bundle}{space}{version} ({origin}): {reason}")
    }
}

impl fmt::Display for RejectionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAdmitted { rule } => f.write_str(rule),
            Self::SamePackage { bundle } => write!(f, "{bundle} of the same package is required"),
            Self::SameKind { provides, bundle } => {
                write!(f, "{bundle}, which is required, provides the same kind ({provides})")
            }
            Self::Leaves { .. } => f.write_str("excludes this goal:"),
            Self::Unsuitable => f.write_str("does not meet the requirement"),
            Self::Invalid { fault } => write!(f, "has an invalid dependency: {fault}"),
            Self::Cut => f.write_str("rejected, too; its reasons are omitted"),
        }
    }
}
