//! Resolution: choice of the bundle of an extension from the content of catalogs
//! (docs/design/resolution.md#served-catalogs).
//!
//! A caller (controller or command line) validates the selector ([`CatalogSelector`]), gets the [`PackageIndex`] of
//! each selected and enabled catalog, and passes them to [`resolve`], or to [`explain()`] for the reasons.
//! [`DeprecationConditions`] are the deprecation conditions.
//!
//! ```text
//! Request ─┐   check (each bundle: kept or rejected by one rule)   rank (best bundle of each catalog, by priority)
//! Catalogs ┴──────────────────────────────────────────────────► Resolved | ResolveError      Explanation
//! ```
//!
//! With default [`Rules`] the answer equals the reference's. Everything beyond it is a rule. All functions are pure:
//! no clock, no cluster, no files. A [`PackageIndex`] is built once per generation of a catalog. A resolution only
//! reads it.
//!
//! ```
//! use std::sync::Arc;
//!
//! use olm_fbc::PackageContent;
//! use olm_resolve::{Catalog, Indexing, PackageIndex, Request, Rules, UpgradePolicy, explain, resolve};
//!
//! let bundle = br#"{"schema":"olm.bundle","package":"demo","name":"demo.v1.2.0","image":"registry.example/demo:v1.2.0",
//!     "properties":[{"type":"olm.package","value":{"packageName":"demo","version":"1.2.0"}}]}"#;
//! let content = PackageContent::from_metas("demo", [bundle.as_slice()])?;
//! let package = Arc::new(PackageIndex::new(&content, Indexing::default()));
//! let catalogs = [Catalog { name: "main".to_owned(), priority: 0, package: Ok(Some(package)) }];
//! let request = Request {
//!     package: "demo",
//!     channels: &[],
//!     version: Some("1.x"),
//!     policy: UpgradePolicy::CatalogProvided,
//!     installed: None,
//!     rules: Rules::default(),
//! };
//! let resolved = resolve(&request, &catalogs)?;
//! assert_eq!(resolved.image, "registry.example/demo:v1.2.0");
//! assert_eq!(explain(&request, &catalogs).chosen.unwrap().bundle, resolved.bundle);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod best_effort;
mod bundle_filter;
mod catalog;
mod cluster;
mod constraint;
mod dependency;
mod deprecation;
mod error;
mod explain;
mod group;
mod held;
mod identity;
mod package;
mod reach;
mod request;
mod resolver;
mod rules;
mod selector;
mod waiting;

pub use best_effort::{LeftOut, left_out_text};
pub use catalog::{Catalog, CatalogError};
pub use cluster::ClusterFacts;
pub use constraint::{
    AvailableProviders, DEPENDENCY_PROPERTIES, Gvk, Provider, Requirement, RequirementFault,
    RequirementVerdict, ValidationRule,
};
pub use dependency::{AssessedRequirement, Satisfier, missing_packages, satisfiers};
pub use deprecation::{ConditionState, DeprecationConditions, Deprecations};
pub use error::ResolveError;
pub use explain::{CatalogExplanation, Choice, Explanation, Fate, FollowedEdge, OfferExplanation, explain};
pub use group::{GroupStep, Member, group_step, required_members};
pub use held::{Held, HeldReason};
pub use package::{Edge, EdgeRule, Indexing, Offer, PackageIndex};
pub use reach::{Hop, Reach};
pub use request::{Installed, Request, UpgradeOrigin, UpgradePolicy};
pub use resolver::{Resolved, resolve};
pub use rules::{DependencyMode, Dependent, Rules, UnknownValue, UpgradeScope, named};
pub use selector::{CatalogSelector, Expression, SelectorError};
pub use waiting::{Waiting, waiting};
