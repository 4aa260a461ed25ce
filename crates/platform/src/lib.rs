//! Decides whether the installed extensions allow the platform's next version
//! (docs/design/operations.md#cluster-upgrades).
//!
//! ```text
//! ClusterObjectSet ► ConstrainedRevision ┐
//!                                        ├► evaluate ► Verdict ► status of ClusterUpgradeStatus
//! flags, API objects ► Platform ─────────┘                     ► condition of OpenShift's ClusterOperator, or of its
//!                                                                OLM object
//! ```
//!
//! Pure: the time is a parameter, and objects are passed as JSON. operator-controller and `olm cluster-check` give
//! the same answer because both call [`evaluate`].
//!
//! ```
//! use olm_platform::{Facts, MinorVersion, Platform, ConstrainedRevision, evaluate};
//! use serde_json::json;
//!
//! let version = Some(MinorVersion::new(4, 18));
//! let platform = Platform::of(&Facts { openshift_apis: true, cluster_version: version, ..Facts::default() });
//! let set = serde_json::from_value(json!({
//!     "metadata": {
//!         "name": "demo-1",
//!         "labels": {
//!             "olm.operatorframework.io/owner-kind": "ClusterExtension",
//!             "olm.operatorframework.io/owner-name": "demo",
//!         },
//!         "annotations": {
//!             "olm.operatorframework.io/bundle-name": "demo.v1.0.0",
//!             "olm.properties": r#"[{"type": "olm.maxOpenShiftVersion", "value": "4.18"}]"#,
//!         },
//!     },
//!     "spec": {"lifecycleState": "Active", "revision": 1, "collisionProtection": "Prevent"},
//! }))?;
//! let verdict = evaluate(&platform, &[], &ConstrainedRevision::of(&set));
//! assert_eq!((verdict.reason, verdict.blocking), ("IncompatibleOperatorsInstalled", 1));
//! # Ok::<(), serde_json::Error>(())
//! ```

mod cluster_operator;
mod contention;
mod message;
mod openshift;
mod platform;
mod property;
mod removed_apis;
mod revision;
mod status;
mod target;
mod verdict;
mod version;

pub use cluster_operator::{
    ClusterOperatorCondition, ClusterOperatorFields, aggregated, contributed, merged,
};
pub use contention::{ConditionContention, WriteDecision};
pub use openshift::{
    CONTRIBUTED, ClusterOperatorMode, Outlet, OutletFacts, OutletUnavailable, cluster_version,
    completed_version, outlet,
};
pub use platform::{Facts, OpenShiftVersionMap, Platform};
pub use property::{Declaration, PlatformConstraint, ValueError};
pub use removed_apis::removed_in;
pub use revision::ConstrainedRevision;
pub use status::{MAX_EXTENSIONS, status};
pub use target::UpgradeTarget;
pub use verdict::{Verdict, evaluate};
pub use version::{MinorVersion, NotAVersion};
