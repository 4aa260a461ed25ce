//! Resolver request of a ClusterExtension, and the properties that installed extensions provide to others.
//! operator-controller and the command line both use this crate, so that they give the same answers
//! (docs/design/apply.md#choice-of-the-bundle, docs/design/additions.md#annotations,
//! docs/design/additions.md#dependency-modes, docs/design/additions.md#best-effort-resolution).
//!
//! ```text
//! annotations, Settings ─ rules ► ExtensionRules ─────────────────────────────┐
//! spec.source.catalog ─ request ► ClusterCatalogs to query, package filter ───┼ request ► olm_resolve::Request
//! revisions ─ installed ► Installed ─┐                                        │
//! CRDs, discovery ► Served ──────────┴ surroundings ► providers, dependents ──┘ (Around)
//! ```
//!
//! Nothing here reads a cluster, logs or chooses. Callers pass objects in and get unreadable input back as faults to
//! report.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod installed;
mod request;
mod rules;
mod surroundings;

pub use installed::{Installed, Unreadable, installs, newest, owner};
pub use request::{Around, is_switched_on, policy, priority, request, selector, served_image};
pub use rules::{CrdCheck, ExtensionRules, InvalidAnnotation, Settings, UninstallPolicy};
pub use surroundings::{DefinitionSpec, Served, owned, surroundings};
