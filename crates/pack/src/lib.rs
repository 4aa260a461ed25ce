//! Builds OCI images without a container engine: layers, configuration, manifest, image layouts and pushes.
//!
//! ```text
//! files ─ Layer ─┐
//!                ├ Image ─ write_layout ► folder ─ read_layout ► Image ─ push ► registry
//! labels ────────┘       └ write_archive ► one file
//!
//! SigningKey ─ signature, files ─ referrer ► Artifact ─ push_artifact ► registry
//! ```
//!
//! The same input always yields the same bytes and thus the same digest: entries are sorted, times are zero, the
//! owner is root, and nothing depends on the machine (docs/design/cli.md#authoring-commands). Other crates
//! read images from registries and find the credentials for pushes.

mod archive;
mod artifact;
mod error;
mod image;
mod layer;
mod layout;
mod push;
mod referrer;
mod signature;

pub use archive::write_archive;
pub use artifact::{Artifact, push_artifact};
pub use error::PackError;
pub use image::{BUNDLE_CHANNELS_LABEL, CATALOG_LABEL, Image, Runtime};
pub use layer::{Layer, LayerEntry};
pub use layout::{is_layout, read_layout, write_layout};
pub use push::{Login, Push, Pushed, push};
pub use referrer::{Subject, add_referrer, merge_referrers, referrer};
pub use signature::{SigningKey, add_signature, merge_signatures, signature_tag};

/// Digest of `bytes` in the notation of registries: `sha256:<64 hex digits>`.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> String {
    use sha2::Digest;
    format!("sha256:{}", hex::encode(sha2::Sha256::digest(bytes)))
}
