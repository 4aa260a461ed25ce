//! Full dependency solving over catalogs and installed extensions, with an explanation
//! (docs/design/additions.md#dependencies).
//!
//! [`solve`] answers a [`Question`] (what is wanted, what is installed, what the catalogs offer, what the cluster serves)
//! with a [`Plan`]: which bundles to install or upgrade, in which order, so that every requirement of every
//! bundle is met. Where there is none, a [`Conflict`] says why as a tree: each requirement, each candidate for it, and why
//! that candidate was dropped.
//!
//! The search is complete (`resolvo`, a SAT solver); among all plans the first in the order of preference is taken, whatever
//! the order of the inputs. Nothing is read and nothing is changed; the only clock is the caller's deadline.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod channels;
mod conflict;
mod hopeless;
mod plan;
mod question;
mod satisfy;
mod search;
mod steps;
mod universe;
mod why;

pub use conflict::{Conflict, Dropped, Goal, Reason, SolveError, Unmet};
pub use plan::{Because, Change, Chosen, Met, Plan, Previous, Step, solve};
pub use question::{InstalledExtension, Question, SourceCatalog, Wish};
