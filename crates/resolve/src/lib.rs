//! Resolution: from the content of catalogs to the one bundle of an extension
//! (docs/design/resolution.md#served-catalogs).
//!
//! A caller, be it a controller or a command line, checks the selector ([`CatalogSelector`]), asks each
//! selected catalog that is not switched off for its [`PackageIndex`], and hands the answers to [`resolve`], or to
//! [`explain`] where the reasons are wanted. [`target`] adds what follows from an installed bundle,
//! [`DeprecationConditions`] what the user is told about deprecation.
//!
//! ```text
//! Request ─┐   judge (each bundle: kept or dropped by one rule)   contest (best bundle of each catalog, by priority)
//! Catalogs ┴──────────────────────────────────────────────────► Resolved | ResolveError      Explanation
//! ```
//!
//! A request with default [`Rules`] is answered as the reference answers it; whatever goes beyond is a rule.
//! Everything here is a pure function of its inputs: no clock, no cluster, no files. A [`PackageIndex`] is built
//! once per generation of a catalog; a resolution only reads it.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod best_effort;
mod catalog;
mod cluster;
mod constraint;
mod dependency;
mod deprecation;
mod error;
mod explain;
mod identity;
mod judge;
mod package;
mod request;
mod resolver;
mod rules;
mod selector;
mod step;

pub use best_effort::{LeftOut, Needed, left_out_text};
pub use catalog::{Catalog, CatalogError};
pub use cluster::ClusterFacts;
pub use constraint::{
    DEPENDENCY_PROPERTIES, Gvk, Provider, Requirement, RequirementFault, RuleFailure, Surroundings, Verdict,
};
pub use dependency::{AssessedRequirement, Satisfier, missing_packages, satisfiers};
pub use deprecation::{ConditionState, DeprecationConditions, Deprecations};
pub use error::ResolveError;
pub use explain::{CatalogExplanation, Choice, Explanation, Fate, FollowedEdge, OfferExplanation, explain};
pub use judge::HeldReason;
pub use package::{Edge, EdgeRule, Indexing, Offer, PackageIndex};
pub use request::{Installed, Origin, Request, UpgradePolicy, Wanted};
pub use resolver::{Held, Remark, Resolved, resolve};
pub use rules::{DependencyMode, Dependent, Rules, UnknownValue, UpgradeScope};
pub use selector::{CatalogSelector, Expression, SelectorError};
pub use step::{Target, target};
