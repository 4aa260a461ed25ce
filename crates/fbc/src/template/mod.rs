//! Templates of catalogs: short descriptions from which packages, channels and bundles are made
//! (docs/design/additions.md#catalog-templates).
//!
//! Expansion is pure: the template names the images, the caller renders them and hands in what they hold.

mod basic;
mod semver;

pub use basic::BasicTemplate;
pub use semver::{BundleIdentity, SemverTemplate};

/// Why a template cannot be read or expanded. The texts are the reference's where it has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template itself.
    #[error("render: unable to read file: {0}")]
    Read(String),
    /// It names no bundle.
    #[error("render: no bundles specified or no bundles could be rendered")]
    NoBundles,
    /// The bundles do not fit the template.
    #[error("render: unable to post-process bundle info: {0}")]
    Bundles(String),
    /// A basic template.
    #[error("{0}")]
    Basic(String),
}
