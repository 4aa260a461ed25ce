//! The author's loop: a package is begun (`init`), gets bundles (`add`, `template`), becomes an image (`build`) and is
//! published (`push`). No container engine and no other tool takes part.
//!
//! What a bundle's object in a catalog is and how a catalog file is edited are pure ([`bundle`], [`catalog_text`]); the
//! commands around them read and write files and registries.

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

/// How objects of a catalog are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Notation {
    /// JSON objects, one after the other
    Json,
    /// YAML documents
    Yaml,
}

impl Notation {
    pub(crate) fn form(self) -> olm_fbc::Form {
        match self {
            Self::Json => olm_fbc::Form::Json,
            Self::Yaml => olm_fbc::Form::Yaml,
        }
    }
}
