//! Metrics of extensions and their revisions (docs/design/additions.md#metrics). Only the leader runs controllers, so
//! only the leader exports them. The series of an extension are removed when it is deleted. [`extensions`] mirrors
//! statuses and their transitions, [`revisions`] counts during the apply of objects, and [`fetches`] counts downloads
//! from catalogd. [`classic`] has their names in classic OLM.

mod classic;
mod extensions;
mod fetches;
mod revisions;

pub use classic::{register_fetches, register_warnings};
pub use extensions::ExtensionMetrics;
pub use fetches::Fetches;
pub use revisions::RevisionMetrics;
