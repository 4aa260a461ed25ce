//! What the controllers of operator-controller share: the cache of revisions, the errors of an attempt, and metrics.

#[cfg(test)]
extern crate olm_tokio as tokio;

pub mod ages;
pub mod content;
pub mod install_error;
pub mod membership;
pub mod metrics;
mod revision_cache;
pub mod service_account;
mod upgrade_targets;

pub use revision_cache::{RevisionCache, RevisionChange};
pub use upgrade_targets::{ConditionReports, UpgradeTargets};
