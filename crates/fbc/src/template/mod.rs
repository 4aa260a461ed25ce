//! Catalog templates: short descriptions that are expanded to packages, channels and bundles
//! (docs/design/cli.md#catalog-templates).
//!
//! Expansion is pure: the template lists the images, the caller renders them and passes in their content.

mod basic;
mod semver;

pub use basic::BasicTemplate;
pub use semver::{BundleIdentity, SemverTemplate};

/// Failure to parse or expand a template. The texts match upstream where upstream has one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template cannot be parsed.
    #[error("render: unable to read file: {0}")]
    Read(String),
    /// The template names no bundle.
    #[error("render: no bundles specified or no bundles could be rendered")]
    NoBundles,
    /// The bundles do not fit the template.
    #[error("render: unable to post-process bundle info: {0}")]
    Bundles(String),
    /// Fault of a basic template.
    #[error("{0}")]
    Basic(String),
}
