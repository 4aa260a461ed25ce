//! The ClusterCatalog controller (docs/design/catalogd.md#controller): observe, [`decide`], act, [`status`].
//!
//! Every replica reconciles every catalog and holds content; only the leader asks registries what a tag means
//! and writes to the API. Followers take the digest that the leader put into the status. [`measures`] is for `/metrics`,
//! [`notices`] for Events.

mod controller;
pub mod decide;
pub mod measures;
pub mod notices;
pub mod readiness;
mod reconcile;
pub mod status;

use kube::runtime::reflector;
use olm_api::ClusterCatalog;

pub use controller::{Controller, run};

/// Whether a catalog exists and its status says that it is served.
pub fn is_served(catalogs: &reflector::Store<ClusterCatalog>, name: &str) -> bool {
    let catalog = catalogs.get(&reflector::ObjectRef::new(name));
    catalog.is_some_and(|catalog| decide::served_reference(&catalog).is_some())
}
