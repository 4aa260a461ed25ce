//! What the end-to-end tests share: the connection to the cluster and its registry, content made for one test, and
//! waiting for what the cluster says.
//!
//! Every test works on objects of its own, named after it with a random ending, so that tests run side by side and
//! again after a failure. `hack/e2e` prepares the cluster and sets the environment.

mod cluster;
mod extension;
mod forward;
mod manual;
mod revision;
mod scenario;
pub mod servers;
mod tool;
pub mod traffic;

pub use cluster::{Cluster, PATIENCE, eventually, hack_cluster};
pub use extension::{condition, describe, extension, is_installed};
pub use forward::Forward;
pub use manual::follow;
pub use revision::{object_set, revision_says};
pub use scenario::{Scenario, replace_in};
pub use tool::Tool;
