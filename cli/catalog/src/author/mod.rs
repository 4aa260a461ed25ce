//! Catalog authoring: `init` creates a package, `add` and `template` add bundles, `promote`, `remove` and `deprecate` edit a
//! package, `build` makes an image, `push` publishes it. No container engine or other tool is needed.
//!
//! Conversion of bundles ([`bundle`]) and edits of catalog files ([`catalog_text`]) are pure. The commands around
//! them access files and registries.

pub(crate) mod add;
pub mod build;
mod bundle;
mod catalog_dir;
mod catalog_text;
mod compose;
mod csv;
pub(crate) mod deprecate;
pub(crate) mod dockerfile;
mod edits;
pub(crate) mod init;
pub(crate) mod promote;
pub mod push;
pub(crate) mod remove;
pub(crate) mod render;
pub(crate) mod template;
mod yaml_lines;

pub(crate) use add::named_bundle_dir;
pub use bundle::{CatalogBundle, catalog_bundle};
pub(crate) use catalog_dir::{check_empty, write_directory};
pub use catalog_dir::{failed, require_package_name, write_whole};
pub(crate) use catalog_text::{meta, stream_text};
pub(crate) use csv::metadata_of;

/// Output format of catalog objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum CatalogFormat {
    /// JSON objects, one after the other
    Json,
    /// YAML documents
    Yaml,
}

impl CatalogFormat {
    pub(crate) fn form(self) -> olm_fbc::Form {
        match self {
            Self::Json => olm_fbc::Form::Json,
            Self::Yaml => olm_fbc::Form::Yaml,
        }
    }
}
