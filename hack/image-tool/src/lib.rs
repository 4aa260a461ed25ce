//! OCI images without a container engine: made from files, written as an archive, pushed to a registry.
//!
//! Three kinds of image exist here: a server binary with the shared libraries that it loads ([`runtime_files`]), a catalog
//! ([`Image::catalog`]) and a bundle ([`Image::bundle`]). The same input always gives the same bytes, hence the same digest.
//! [`registry`] is an in-process registry with faults on demand, for the tests of every crate that pulls.
//!
//! This is a developers' tool and a test library. The servers must not depend on it.

mod archive;
mod binary;
mod image;
mod layer;
mod push;
pub mod registry;

pub use archive::write_archive;
pub use binary::runtime_files;
pub use image::{BUNDLE_CHANNELS_LABEL, CATALOG_LABEL, Image, Runtime};
pub use layer::{Layer, LayerEntry};
pub use push::{Push, push};

/// Digest of `bytes` in the notation of registries: `sha256:<64 hex digits>`.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> String {
    use sha2::Digest;
    format!("sha256:{}", hex::encode(sha2::Sha256::digest(bytes)))
}
