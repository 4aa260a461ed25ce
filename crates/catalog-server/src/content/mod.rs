//! Catalog content on disk: one immutable file per catalog, replaced by rename, and an index in memory
//! (docs/design/catalogd.md#storing-content, docs/design/catalogd.md#index). Readers hold the file open and never
//! wait for a writer.

pub mod answer_cache;
mod attempts;
mod copies;
mod disk;
mod folder;
pub mod index;
mod snapshot;
mod store;
mod writer;

pub use attempts::{Suspect, UnpackDirectory};
pub use copies::{CompressedCopy, CopySource};
pub use disk::read_range;
pub use folder::UnpackedFolder;
pub use index::Index;
pub use snapshot::Snapshot;
pub use store::{MIN_AGE, Store, SweepResult};
pub use writer::{ContentWriteError, Observer, Writer};
