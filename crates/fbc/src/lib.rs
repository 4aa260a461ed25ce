//! File-based catalogs: from the files of a catalog folder to stored lines, from lines to the typed content of one
//! package, and authoring: validation, writing, templates (docs/design/catalogd.md#loading,
//! docs/design/resolution.md#fetch-errors, docs/design/cli.md#catalog-validation,
//! docs/design/cli.md#catalog-templates, docs/design/cli.md#smaller-catalogs).
//!
//! ```text
//! folder ─ load ► Meta (one canonical line each) ─ MetaSelector ► lines of a query
//!                                                ├ PackageContent ► package, channels, bundles, deprecations
//!                                                ├ validate_folder ► Report: the message of opm, and all findings
//!                                                ├ subset ► a smaller catalog
//!                                                └ write ► a catalog again
//! template ─ template ► Meta ─ template::convert ► template
//! Meta ─ migrate ► Meta
//! ```
//!
//! The crate is pure: folders and files are passed in as a [`Folder`] or as readers. Loading does not check the
//! semantics of a catalog: every object is kept unchanged.

mod folder;
mod ignore;
mod json;
mod meta;
mod migrate;
mod model;
mod origin;
mod selector;
mod shape;
mod subset;
pub mod template;
mod validate;
mod version_edges;
mod write;
mod write_yaml;

pub use folder::{Entry, EntryKind, Folder, LoadError, LoadLimits, below, load, load_authored};
pub use meta::{Meta, MetaError, MetaReader};
pub use migrate::{MigrationLevel, migrate};
pub use model::{
    Bundle, Channel, ChannelEntry, Deprecation, DeprecationEntry, DeprecationReference, ModelError, Package,
    PackageContent, Property, RelatedImage, heads,
};
pub use olm_yaml::Limits as DocumentLimits;
pub use origin::Origin;
pub use selector::MetaSelector;
pub use subset::{KeptPackage, PackageSubset, SmallerCatalog, Subset, SubsetError, subset};
pub use validate::{
    CatalogFinding, Duplicates, RULES, ValidationReport, repeated_key_warnings, validate_folder,
    validate_metas,
};
pub use version_edges::{VersionEdges, VersionedEntry};
pub use write::{Form, WriteError, write};

/// Schema of packages.
pub const SCHEMA_PACKAGE: &str = "olm.package";
/// Schema of channels.
pub const SCHEMA_CHANNEL: &str = "olm.channel";
/// Schema of bundles.
pub const SCHEMA_BUNDLE: &str = "olm.bundle";
/// Schema of deprecations.
pub const SCHEMA_DEPRECATIONS: &str = "olm.deprecations";
/// Property with the metadata of a ClusterServiceVersion.
pub const PROPERTY_CSV_METADATA: &str = "olm.csv.metadata";
/// Property with an encoded manifest of a bundle.
pub const PROPERTY_BUNDLE_OBJECT: &str = "olm.bundle.object";
