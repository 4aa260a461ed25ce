//! Resolver request of a ClusterExtension, and the properties that installed extensions provide to others.
//! operator-controller and the command line both use this crate, so that they give the same answers
//! (docs/design/apply.md#choice-of-the-bundle, docs/design/additions.md#annotations,
//! docs/design/additions.md#dependency-modes, docs/design/additions.md#best-effort-resolution).
//!
//! ```text
//! annotations, Settings ─ rules ► ExtensionRules ─────────────────────────────┐
//! spec.source.catalog ─ request ► ClusterCatalogs to query, package filter ───┼ request ► olm_resolve::Request
//! revisions ─ installed ► ExtensionBundle ─┐                                  │
//! CRDs, discovery ► ServedApis ────────────┴ providers ► providers, dependents ┘ (ClusterState)
//! OperatorCondition ─ operator_condition ► blocker of upgrades
//! Namespaces ─ namespaces ► selected names, time of the next list
//! ```
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use olm_api::cluster_extension::BundleMetadata;
//! use olm_request::{ClusterState, ExtensionRules, ExtensionBundle, ServedApis, Settings, providers, request};
//! use serde_json::json;
//!
//! let annotations = BTreeMap::from([("ext.olm.operatorframework.io/upgrade-scope".to_owned(), "minor".to_owned())]);
//! let rules = ExtensionRules::of(Some(&annotations), Settings::default());
//! assert!(rules.invalid.is_empty() && rules.can_block_upgrades());
//!
//! let bundle = BundleMetadata { name: "db.v1".to_owned(), version: "1.0.0".to_owned(), release: None };
//! let installed = [ExtensionBundle::new("db".to_owned(), "database".to_owned(), bundle, Vec::new())];
//! let owners = ["db"].into();
//! let (found, dependents) = providers(installed.iter(), &owners, &ServedApis::default(), "app", |_, _| true);
//! assert_eq!(found.providers[0].package(), Some("database"));
//!
//! let filter = serde_json::from_value(json!({"packageName": "app", "version": ">=1.0.0"}))?;
//! let state = ClusterState { dependents, ..ClusterState::default() };
//! let request = request(&filter, None, &rules, &state);
//! assert_eq!((request.package, request.version), ("app", Some(">=1.0.0")));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! Nothing here reads a cluster, logs or chooses. Callers pass objects in and get unreadable input back to
//! report.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod approval;
mod group;
mod held_message;
mod installed;
mod namespaces;
mod operator_condition;
mod providers;
mod refusal;
mod request;
mod rules;
mod safe_values;
mod windows;

pub use approval::{ApprovalMode, ApprovalRules, DraftChange, HoldCause};
pub use group::{GroupMember, step};
pub use held_message::{HeldChange, HeldMessage};
pub use installed::{ExtensionBundle, UnreadableAnnotation, installs, newest, owner, rolling_out};
pub use namespaces::{
    DEBOUNCE, ListStep, NamespaceSelector, PACE, SelectedNamespaces, UNREADY_PACE, list_step, pace,
};
pub use operator_condition::{
    mirrored, operator_condition, replaced_operator, upgrade_blocker, upgrade_report,
};
pub use providers::{CrdFields, ServedApis, owned, providers, unmet};
pub use refusal::RolledBackContent;
pub use request::{ClusterState, is_available, policy, priority, request, selector, served_image};
pub use rules::{CrdCheck, ExtensionRules, InvalidAnnotation, Settings, UninstallPolicy};
pub use safe_values::{OnUnknown, SAFE_VALUES};
pub use windows::{UpgradeWindows, WindowState};
