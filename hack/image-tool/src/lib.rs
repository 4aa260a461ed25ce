//! OCI images for development and tests, without a container engine.
//!
//! [`olm_pack`] builds the images. This crate contains the files of an image that runs a program ([`Program::files`]),
//! pushing with a credentials file (`push`), and two registries for the tests of every crate that pulls:
//! [`registry`], in the test's own process with faults on demand, and [`docker_registry`], a real one.
//!
//! This is a developers' tool and a test library. The servers must not depend on it.

mod binary;
pub mod docker_registry;
mod push;
pub mod registry;
pub mod signing;

pub use binary::{Program, read_folder};
pub use olm_pack::{
    BUNDLE_CHANNELS_LABEL, CATALOG_LABEL, Image, ImageIndex, Layer, LayerEntry, Runtime, digest_of,
    write_archive, write_index_archive,
};
pub use push::{Push, push, push_index};
