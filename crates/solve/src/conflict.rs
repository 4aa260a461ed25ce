//! Why there is no plan.

use std::fmt;

use olm_resolve::ResolveError;
use serde::Serialize;

/// Why [`crate::solve`] gives no plan.
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
        /// The package with the most bundles among those that were looked at.
        package: String,
        /// How many bundles of it were looked at.
        bundles: usize,
    },
    /// A wish cannot be read, or the version of an installed bundle.
    #[error("package {package}: {fault}")]
    Wish {
        /// The package's name.
        package: String,
        /// What is wrong.
        fault: Box<ResolveError>,
    },
    /// Two wishes or two installed extensions for one package.
    #[error("package {package} is {state} more than once{}", names(extensions))]
    Twice {
        /// The package's name.
        package: String,
        /// `wanted` or `installed`.
        state: &'static str,
        /// The extensions, sorted.
        extensions: Vec<String>,
    },
}

fn names(extensions: &[String]) -> String {
    if extensions.is_empty() { String::new() } else { format!(", by {}", extensions.join(" and ")) }
}

/// Why no plan exists: goals that cannot be reached together, as few as possible, with a tree of reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Conflict {
    /// The goals that cannot be reached together, in the order wanted before installed, then by package. Leaving out any one
    /// of them would leave a plan.
    pub goals: Vec<Goal>,
    /// The one of them that is explained: each candidate, and why it was dropped.
    pub unmet: Unmet,
}

/// Something that a plan must reach.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Goal {
    /// A wanted package.
    Wanted {
        /// The package's name.
        package: String,
        /// The version constraint of the wish.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<String>,
        /// The channels of the wish.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        channels: Vec<String>,
    },
    /// An extension that must stay installed.
    Installed {
        /// The extension's name.
        extension: String,
        /// The installed bundle.
        bundle: String,
    },
    /// What a bundle requires.
    Requirement {
        /// The bundle that requires it.
        bundle: String,
        /// What it requires, in the words of docs/design/additions.md#requirement-texts.
        requires: String,
        /// What the author of the bundle says about it.
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
}

/// A goal that cannot be reached, with every candidate for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unmet {
    /// What cannot be reached.
    pub goal: Goal,
    /// The candidates, best first.
    pub candidates: Vec<Dropped>,
}

/// A candidate that was dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Dropped {
    /// The bundle's name.
    pub bundle: String,
    /// Its version, as shown in the status of an extension; empty if it cannot be read.
    pub version: String,
    /// The catalog that offers it; absent for an installed bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catalog: Option<String>,
    /// Why it was dropped.
    pub reason: Reason,
}

/// Why a candidate was dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Reason {
    /// The wish of its package does not admit it: channel, version, or no upgrade edge.
    NotAdmitted {
        /// Which rule.
        rule: String,
    },
    /// Another bundle of its package is needed.
    SamePackage {
        /// That bundle.
        bundle: String,
    },
    /// Another bundle that is needed provides the same kind.
    SameKind {
        /// The kind: `group: g, version: v, kind: k`.
        provides: String,
        /// The other bundle.
        bundle: String,
    },
    /// With it, something else cannot be reached.
    Leaves {
        /// What.
        unmet: Box<Unmet>,
    },
    /// It is of the package that is asked for, but does not meet the requirement.
    Unsuitable,
    /// It declares a requirement that cannot be read.
    Invalid {
        /// The fault.
        fault: String,
    },
    /// It leads to the same end; the tree is cut here because it would become too large.
    Cut,
}

/// Without an end of line; one line for each goal and candidate, indented by its depth.
impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.goals[..] {
            [] | [_] => f.write_str("no plan exists")?,
            goals => {
                let goals: Vec<_> = goals.iter().map(ToString::to_string).collect();
                write!(f, "no plan exists; these cannot be had together: {}", goals.join("; "))?;
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
            if let Reason::Leaves { unmet } = &candidate.reason {
                unmet.write(f, depth + 2)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wanted { package, version, channels } => {
                write!(f, "package {package} is wanted")?;
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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAdmitted { rule } => f.write_str(rule),
            Self::SamePackage { bundle } => write!(f, "{bundle} of the same package is needed"),
            Self::SameKind { provides, bundle } => {
                write!(f, "{bundle}, which is needed, provides the same kind ({provides})")
            }
            Self::Leaves { .. } => f.write_str("then this cannot be reached:"),
            Self::Unsuitable => f.write_str("does not meet the requirement"),
            Self::Invalid { fault } => write!(f, "has an invalid dependency: {fault}"),
            Self::Cut => f.write_str("leads nowhere either; the explanation ends here"),
        }
    }
}
