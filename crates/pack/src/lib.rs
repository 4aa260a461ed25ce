//! Builds OCI images without a container engine: layers, configuration, manifest, image layouts.
//!
//! ```text
//! files ─ Layer ─┐
//!                ├ Image ─ write_layout ► folder ─ read_layout ► Image
//! labels ────────┘       ├ write_archive ► one file
//!                        └ ImageIndex ─ write_index_archive ► one file
//!
//! SigningKey ─ signature, files ─ referrer ► Artifact
//! ```
//!
//! The same input always yields the same bytes and thus the same digest: entries are sorted, times are zero, the
//! owner is root, and nothing depends on the machine (docs/design/cli.md#authoring-commands). `olm-oci`
//! pushes the results.

mod archive;
mod artifact;
mod docker_archive;
mod error;
mod files;
#[doc(hidden)]
pub mod fuzzing;
mod image;
mod index;
mod layer;
mod layout;
mod read;
mod referrer;
mod signature;

pub use archive::{write_archive, write_index_archive};
pub use artifact::Artifact;
pub use error::PackError;
pub use image::{BUNDLE_CHANNELS_LABEL, CATALOG_LABEL, Image, Runtime};
pub use index::ImageIndex;
pub use layer::{Layer, LayerEntry};
pub use layout::{is_layout, write_layout};
pub use read::{is_image, read_layout, read_whole_layout};
pub use referrer::{ReferrerSubject, add_referrer, merge_referrers, referrer};
pub use signature::{SigningKey, add_signature, merge_signatures, signature_tag};

/// Digest of `bytes` in the notation of registries: `sha256:<64 hex digits>`.
pub fn digest_of(bytes: &[u8]) -> String {
    use sha2::Digest;
    format!("sha256:{}", hex::encode(sha2::Sha256::digest(bytes)))
}
