//! Catalog authoring: `init` creates a package, `add` and `template` add bundles, `build` makes an image, `push`
//! publishes it. No container engine or other tool is needed.
//!
//! Conversion of bundles ([`bundle`]) and edits of catalog files ([`catalog_text`]) are pure. The commands around
//! them access files and registries.

mod add;
mod build;
mod bundle;
mod catalog_dir;
mod catalog_text;
mod compose;
mod csv;
mod init;
mod push;
mod render;
mod template;

pub(crate) use add::{ABOUT as ADD_ABOUT, AddArgs};
pub(crate) use build::{ABOUT as BUILD_ABOUT, BuildArgs};
pub(crate) use catalog_dir::is_label;
pub(crate) use init::{ABOUT as INIT_ABOUT, InitArgs};
pub(crate) use push::{ABOUT as PUSH_ABOUT, PushArgs};
pub(crate) use render::{bundle_dir as render_bundle_dir, image as render_image};
pub(crate) use template::TemplateCommand;

pub(crate) use {
    add::run as add, build::run as build, init::run as init, push::run as push, template::run as template,
};

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
