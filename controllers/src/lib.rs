//! operator-controller: installs and upgrades extensions from catalogs.
//!
//! ```text
//! ClusterExtension ─ extension ► choose, pull, render ► ClusterObjectSet ─ revision ► objects on the cluster
//!                        ▲ catalogs: content fetched from catalogd
//! ```
//!
//! [`run()`] starts everything. The extension and the revision controller are crates of their own and share only
//! [`olm_controller_core`]. [`platform`] can also run alone.

#[cfg(test)]
extern crate olm_tokio as tokio;

mod catalogd;
mod flags;
mod gates;
pub mod platform;
mod run;

pub use flags::Flags;
pub use gates::KNOWN as GATES;
pub use run::run;
