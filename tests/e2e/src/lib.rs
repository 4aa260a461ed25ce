//! Shared code of the end-to-end tests: connection to the cluster and its registry, content of one test, and waits.
//!
//! Every test uses its own objects, named after it with a random suffix, so that tests run concurrently and again
//! after a failure. `hack/e2e` prepares the cluster and sets the environment.

pub mod classic;
mod cluster;
mod extension;
mod forward;
mod manual;
mod revision;
mod scenario;
pub mod servers;
mod tool;
pub mod traffic;
pub mod webhooks;

pub use cluster::{Cluster, PATIENCE, eventually, hack_cluster};
pub use extension::{condition, describe, extension, is_installed};
pub use forward::Forward;
pub use manual::follow;
pub use revision::{object_set, revision_says};
pub use scenario::{Scenario, replace_in};
pub use tool::Tool;
