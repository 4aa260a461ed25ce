//! Images from OCI registries: references, credentials, tag resolution, and pulls of selected folders of an image.
//!
//! [`Puller::pull_folder`] unpacks the folder of a catalog to disk, [`Puller::pull_files`] the files of a bundle to
//! memory. Layers are streamed through the filter. Unwanted content is never stored, and an archive cannot create
//! links, devices or paths outside of the target. Every call has a deadline, every size a limit, and errors state
//! whether a retry can succeed.
//!
//! ```text
//! reference ─ registries.conf ► sources ─ certificates, login ► session ► manifest ─ policy ► layers
//! layers ─ unpack ► folder or files
//! ```
//!
//! [`Puller::source`] and [`Puller::target`] copy whole images with unchanged bytes.
//!
//! This crate does not cache, does not interpret the files, and does not decide when to pull.

mod archive;
mod authorization;
mod budget;
mod certificates;
mod chain;
mod challenge;
mod client;
mod config;
mod credentials;
mod deny_list;
mod error;
mod fetch;
#[doc(hidden)]
pub mod fuzzing;
mod image;
mod inspect;
mod limits;
mod local;
mod paths;
mod platform;
pub mod policy;
mod proxies;
mod puller;
mod reference;
mod referrers;
mod registries;
mod request_error;
mod session;
mod settings;
mod sources;
mod store;
mod template;
mod transfer;
mod tree;
mod unpack;
mod verifier;

pub use budget::Retry;
pub use certificates::system_authorities;
pub use config::Config;
pub use credentials::{CredentialSource, Credentials, CredentialsError, Login};
pub use deny_list::DeniedNetworks;
pub use error::PullError;
pub use fetch::Hasher;
pub use image::ImageLabels;
pub use inspect::{InspectError, Inspected};
pub use limits::{ImageLimits, LimitCounts};
pub use local::unpack_layers;
pub use paths::RegistryPaths;
pub use platform::ImagePlatform;
pub use proxies::{Proxies, proxy_address};
pub use puller::{PulledFolder, Puller};
pub use reference::{CanonicalRef, Digest, Reference, ReferenceError, Selector};
pub use referrers::{Referrer, Referrers, referrers_tag};
pub use settings::RegistrySettings;
pub use store::remove_folder;
pub use template::{ImageTemplateError, KubernetesVersion, NotAKubernetesVersion, resolve_template};
pub use transfer::{Children, PushedBlob, RawManifest, ReferrersIndex, Repository, TransferError};

/// Label of catalog images that names the folder of their content (docs/design/images.md#layers).
pub const CATALOG_LABEL: &str = "operators.operatorframework.io.index.configs.v1";
/// Folders of a bundle image (docs/design/bundles.md#image-layout).
pub const BUNDLE_FOLDERS: [&str; 2] = ["manifests", "metadata"];

/// Content folder of a catalog image, for [`Puller::pull_folder`].
///
/// # Errors
/// The label is missing. The text matches upstream.
pub fn catalog_folder(labels: &ImageLabels) -> Result<String, String> {
    labels
        .get(CATALOG_LABEL)
        .cloned()
        .ok_or_else(|| format!("catalog image is missing the required label \"{CATALOG_LABEL}\""))
}
