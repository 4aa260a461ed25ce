//! Complete dependency solver over catalogs and installed extensions, with explanations
//! (docs/design/additions.md#dependencies).
//!
//! [`solve`] answers a [`SolverInput`] (requested packages, installed extensions, content of catalogs, APIs of the cluster)
//! with a [`ChangePlan`]: the bundles to install or upgrade, in order, so that every requirement of every bundle is met.
//! Without a plan, it returns a [`Conflict`]: a tree of each requirement, each of its candidates, and the reason for
//! the rejection of that candidate.
//!
//! The search is complete (`resolvo`, a SAT solver). Of all plans it returns the first in the order of preference,
//! whatever the order of the inputs. The crate does no I/O and changes nothing. The clock is read only for the
//! caller's deadline.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod channels;
mod conflict;
mod demands;
mod explain;
mod input;
mod plan;
mod satisfy;
mod search;
mod steps;
mod universe;
mod unsatisfiable;

pub use conflict::{Conflict, Dropped, Goal, RejectionReason, SolveError, Unmet};
pub use input::{InstalledExtension, PackageConstraints, SolverInput, SourceCatalog};
pub use plan::{Change, ChangePlan, ChangeReason, ChangeStep, Chosen, Met, Previous};
pub use search::solve;
