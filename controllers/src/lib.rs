//! operator-controller: installs and upgrades extensions from catalogs.
//!
//! ```text
//! ClusterExtension ─ extension ► choose, pull, render ► ClusterObjectSet ─ revision ► objects on the cluster
//!                        ▲ catalogs: content fetched from catalogd
//! ```
//!
//! [`run()`] starts everything. [`revision`] and [`platform`] can also run alone, on a [`RevisionCache`].

#[cfg(test)]
extern crate olm_tokio as tokio;

mod adoption;
mod ages;
mod bundles;
mod catalogd;
mod catalogs;
mod certificates;
mod dependencies;
mod extension;
#[cfg(test)]
mod fixture;
mod flags;
mod gates;
mod install_error;
mod metrics;
mod namespaces;
mod operator_conditions;
pub mod platform;
mod preflight;
pub mod revision;
mod revision_cache;
mod revision_writer;
mod run;

pub use flags::Flags;
pub use gates::KNOWN as GATES;
pub use revision_cache::RevisionCache;
pub use run::run;
