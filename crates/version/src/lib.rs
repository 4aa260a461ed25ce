//! Versions, releases and the two languages that select them (docs/design/resolution.md#versions).
//!
//! * [`Version`]: a strict semantic version, ordered by precedence (build metadata never counts).
//! * [`Release`] and [`VersionRelease`]: the packaging revision of a version, the order of bundles.
//! * [`Constraint`]: the Masterminds language of `spec.source.catalog.version`.
//! * [`Range`]: the blang language of `skipRange` and of `olm.package.required`.
//! * [`names`]: the grammar of DNS labels and image references.
//!
//! The two languages look alike and differ in almost every rule, so they share no parser. Both follow the libraries
//! of the Go reference including their accidents, because they decide which bundle is chosen. Error texts are exact:
//! users see them in conditions. [`Constraint::fault_in`] tells the position of the fault and the expected text.
//!
//! This crate does no I/O and does not depend on catalogs or bundles.

mod constraint;
pub mod names;
mod pointer;
mod quote;
mod range;
mod release;
mod version;

pub use constraint::{Constraint, ConstraintError};
pub use pointer::Pointer;
pub use quote::{aggregate, excerpt, is_hidden, quote};
pub use range::{Range, RangeError};
pub use release::{Release, ReleaseError, VersionRelease, VersionReleaseError};
pub use version::{Version, VersionError};
