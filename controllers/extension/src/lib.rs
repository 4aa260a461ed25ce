//! Installs and upgrades extensions: the extension controller with what it reads and checks.
//!
//! ```text
//! catalogs ─► choose, pull (bundles) and render ─► preflight ─► revision_writer ► ClusterObjectSet
//! dependencies, namespaces, operator_conditions: other inputs. adoption: installations of the reference
//! ```

#[cfg(test)]
extern crate olm_tokio as tokio;

mod adoption;
mod bundles;
mod catalogs;
mod controller;
mod dependencies;
mod features;
#[cfg(test)]
mod fixture;
mod namespaces;
mod operator_conditions;
mod preflight;
mod revision_writer;

pub use bundles::Bundles;
pub use catalogs::{Catalogs, Hosts, run as run_catalogs};
pub use controller::{INFORMERS, Parts, run};
pub use features::Features;
pub use namespaces::Namespaces;
pub use operator_conditions::OperatorConditions;
