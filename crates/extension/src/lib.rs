//! What a ClusterExtension asks of the resolver, and what installed extensions offer to others: operator-controller and
//! the command line read both here, so that they say the same (docs/design/apply.md#choice-of-the-bundle,
//! docs/design/additions.md#annotations, docs/design/additions.md#dependency-modes,
//! docs/design/additions.md#best-effort-resolution).
//!
//! ```text
//! annotations, Settings ─ rules ► ExtensionRules ─────────────────────────────┐
//! spec.source.catalog ─ request ► which ClusterCatalogs are asked, for what ──┼ request ► olm_resolve::Request
//! revisions ─ installed ► Installed ─┐                                        │
//! definitions, discovery ► Served ───┴ surroundings ► providers, dependents ──┘ (Around)
//! ```
//!
//! Nothing here reads a cluster, logs or chooses: objects are handed in, and what cannot be read is handed back as a
//! fault to be told.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod installed;
mod request;
mod rules;
mod surroundings;

pub use installed::{Installed, Unreadable, installs, newest, owner};
pub use request::{Around, is_switched_on, policy, priority, request, selector, served_image};
pub use rules::{CrdCheck, ExtensionRules, InvalidAnnotation, Settings, UninstallPolicy};
pub use surroundings::{DefinitionSpec, Served, owned, surroundings};
