//! Resolution: from the content of catalogs to the one bundle of an extension (spec 03 §2).
//!
//! A caller, be it a controller or a command line, checks the selector ([`CatalogSelector`]), asks each
//! selected catalog that is not switched off for its [`PackageIndex`], and hands the answers to [`resolve`].
//! [`target`] adds what follows from an installed bundle, [`DeprecationConditions`] what the user is told
//! about deprecation.
//!
//! Everything here is a pure function of its inputs: no clock, no cluster, no files. A [`PackageIndex`] is built
//! once per generation of a catalog; a resolution only reads it.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod catalog;
mod deprecation;
mod package;
mod resolver;
mod selector;
mod step;

pub use catalog::{Catalog, CatalogError};
pub use deprecation::{ConditionState, DeprecationConditions, Deprecations};
pub use package::{Edge, EdgeRule, Offer, PackageIndex};
pub use resolver::{Installed, Origin, Request, ResolveError, Resolved, UpgradePolicy, Wanted, resolve};
pub use selector::{CatalogSelector, Expression, SelectorError};
pub use step::{Target, target};
