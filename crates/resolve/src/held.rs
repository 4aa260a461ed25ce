//! Bundles that a rule beyond the reference holds back (docs/design/additions.md#unsatisfied-candidates).

use std::fmt;

use olm_version::quote;

use crate::rules::UpgradeScope;

/// Candidate that a rule beyond the reference held back. Displayed as one sentence without its final period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Name of the bundle.
    pub bundle: String,
    /// Version of the bundle. Empty if unreadable.
    pub version: String,
    /// Catalog of the bundle.
    pub catalog: String,
    /// Rule that holds it back.
    pub reason: HeldReason,
}

impl fmt::Display for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "passed over {}: {}", self.bundle, self.reason)
    }
}

/// Rule beyond the reference that holds a bundle back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldReason {
    /// The upgrade is beyond the scope.
    OutsideScope {
        /// Largest allowed step.
        scope: UpgradeScope,
        /// Installed version.
        installed: String,
    },
    /// Considered channels skip the bundle.
    Skipped {
        /// Names of these channels.
        channels: Vec<String>,
    },
    /// Unmet requirements of the bundle.
    Dependencies(String),
    /// Installed extension that the bundle would break.
    Dependent(String),
    /// Unmet demand of the bundle on the cluster.
    Cluster(String),
    /// The bundle declares a dependency, which mode Reject refuses.
    Refused {
        /// Type of the first property that declares a dependency.
        property: String,
    },
}

impl fmt::Display for HeldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutsideScope { scope, installed } => {
                write!(f, "outside of the upgrade scope \"{scope}\" of installed {installed}")
            }
            Self::Skipped { channels } => write!(f, "skipped in channels [{}]", channels.join(" ")),
            Self::Refused { property } => {
                write!(f, "declares a dependency via property {}, which mode Reject refuses", quote(property))
            }
            Self::Dependencies(text) | Self::Dependent(text) | Self::Cluster(text) => f.write_str(text),
        }
    }
}
