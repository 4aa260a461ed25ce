//! Plan of a new revision: its digest, the objects, permissions, CRDs and images that it changes, and whether it
//! waits for an approval (docs/design/approvals.md#approval).
//!
//! operator-controller and the command line both use this crate, so that the approved digest is the one that both
//! compute. Pure.
//!
//! ```text
//! Bundle, RenderOptions, image digest ─ digest ► sha256:…
//! objects before and after ─┬ objects ► created, changed and deleted objects, with fields
//!                           ├ permissions ► gained and lost permissions
//!                           └ summary ► one line of text
//! newest revision, target ─── change ► olm_request::DraftChange
//! existing objects ───── adoption_digest ► sha256:…
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod adoption;
mod aggregation;
mod change;
mod danger;
mod digest;
pub mod fields;
mod holders;
pub mod objects;
pub mod permissions;
mod privileges;
mod sentence;
mod summary;

pub use adoption::{AdoptedObject, adoption_digest};
pub use change::{Target, change, newest_active};
pub use digest::digest;
pub use summary::summary;
