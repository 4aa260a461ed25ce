//! File-based catalogs: from the files of a catalog folder to stored lines, and from lines to the typed content
//! of one package (spec 02 §A, spec 03 §1.5).
//!
//! ```text
//! folder ─ load ► Meta (one canonical line each) ─ Selector ► lines of a query
//!                                                └ PackageContent ► package, channels, bundles, deprecations
//! ```
//!
//! The crate is pure: folders and files are handed in as a [`Folder`] or as readers. Loading checks nothing about the
//! meaning of a catalog: every object is kept as it is.

mod folder;
mod ignore;
mod meta;
mod model;
mod selector;

pub use folder::{Entry, EntryKind, Folder, Limits, LoadError, load};
pub use meta::{Meta, MetaError, MetaReader, read_metas};
pub use model::{
    Bundle, Channel, ChannelEntry, Deprecation, DeprecationEntry, ModelError, Package, PackageContent,
    Property, Reference, RelatedImage,
};
pub use selector::Selector;

/// Schema of packages.
pub const SCHEMA_PACKAGE: &str = "olm.package";
/// Schema of channels.
pub const SCHEMA_CHANNEL: &str = "olm.channel";
/// Schema of bundles.
pub const SCHEMA_BUNDLE: &str = "olm.bundle";
/// Schema of deprecations.
pub const SCHEMA_DEPRECATIONS: &str = "olm.deprecations";
