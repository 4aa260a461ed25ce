//! The ClusterCatalog controller (docs/design/catalogd.md#controller): observe, [`decide`], act, [`status`].
//!
//! Every replica reconciles every catalog and holds content. Only the leader resolves tags at registries and writes
//! to the API. Followers pull the digest in the status. [`metrics`] is for `/metrics`, [`notices`] for Events.

mod cluster_version;
mod controller;
pub mod decide;
mod event_loop;
pub mod metrics;
pub mod notices;
pub mod readiness;
mod reconcile;
pub mod reference;
pub mod status;
pub mod template;
mod unpack;
mod unpack_error;

use kube::runtime::reflector;
use olm_api::ClusterCatalog;

pub use controller::Controller;
pub use event_loop::run;

/// `true` if the catalog exists and its status has the condition `Serving=True` and an image.
pub fn is_served(catalogs: &reflector::Store<ClusterCatalog>, name: &str) -> bool {
    let catalog = catalogs.get(&reflector::ObjectRef::new(name));
    catalog.is_some_and(|catalog| reference::served_reference(&catalog).is_some())
}
