//! Decides whether the installed extensions allow the platform's next version
//! (docs/design/operations.md#cluster-upgrades).
//!
//! ```text
//! ClusterObjectSet ► Revision ┐
//!                             ├► evaluate ► Verdict ► status of ClusterUpgradeStatus
//! flags, API objects ► Platform ┘                   ► condition of OpenShift's ClusterOperator, or of its OLM object
//! ```
//!
//! Pure: the time is a parameter, and objects are passed as JSON. operator-controller and `olm cluster-check` give
//! the same answer because both call [`evaluate`].

mod cluster_operator;
mod contention;
mod message;
mod openshift;
mod platform;
mod property;
mod revision;
mod status;
mod verdict;
mod version;

pub use cluster_operator::{ClusterOperatorCondition, Own, aggregated, contributed, merged};
pub use contention::{Contention, Turn};
pub use openshift::{
    CONTRIBUTED, ClusterOperatorMode, Outlet, OutletFacts, Reluctance, cluster_version, completed_version,
    outlet,
};
pub use platform::{Facts, OpenShiftVersionMap, Platform, UnknownMap};
pub use property::{Constraint, Declaration, ValueError};
pub use revision::Revision;
pub use status::{MAX_EXTENSIONS, status};
pub use verdict::{Verdict, evaluate};
pub use version::{MinorVersion, NotAVersion};
