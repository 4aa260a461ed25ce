//! Sizes, counts and delays of the wire contract (docs/design/apply.md#names-and-limits).

use std::time::Duration;

/// Maximum number of phases per revision.
pub const MAX_PHASES: usize = 20;
/// Maximum number of objects per phase.
pub const MAX_OBJECTS_PER_PHASE: usize = 50;
/// Maximum number of progression probes per revision.
pub const MAX_PROGRESSION_PROBES: usize = 20;
/// Maximum number of assertions per progression probe.
pub const MAX_ASSERTIONS: usize = 20;
/// Number of archived revisions that are retained when a new one is created.
pub const ARCHIVED_REVISIONS_KEPT: usize = 5;

/// Maximum size of the objects in one Secret, and the size above which an object is compressed, in bytes.
pub const MAX_SECRET_DATA_BYTES: usize = 900 * 1024;
/// Maximum size of a decompressed object in bytes.
pub const MAX_DECOMPRESSED_OBJECT_BYTES: usize = 10 * 1024 * 1024;

/// Maximum number of objects per page of a list. An object has at most 1.5 MB.
pub const LIST_PAGE: u32 = 16;

/// Requeue delay after a revision validation error or a collision.
pub const COLLISION_RETRY: Duration = Duration::from_secs(10);
/// Requeue delay while archival is incomplete.
pub const ARCHIVAL_RETRY: Duration = Duration::from_secs(5);
