//! Sizes, counts and delays of the wire contract (docs/design/apply.md#names-and-limits).

use std::time::Duration;

/// Most phases of one revision.
pub const MAX_PHASES: usize = 20;
/// Most objects of one phase.
pub const MAX_OBJECTS_PER_PHASE: usize = 50;
/// Most progression probes of one revision.
pub const MAX_PROGRESSION_PROBES: usize = 20;
/// Most assertions of one progression probe.
pub const MAX_ASSERTIONS: usize = 20;
/// Archived revisions that are kept when a new one is made.
pub const ARCHIVED_REVISIONS_KEPT: usize = 5;

/// Bytes of objects in one Secret, and the size above which an object is stored compressed.
pub const MAX_SECRET_DATA_BYTES: usize = 900 * 1024;
/// Bytes of one object after decompression.
pub const MAX_DECOMPRESSED_OBJECT_BYTES: usize = 10 * 1024 * 1024;

/// Delay after a revision validation error or a collision.
pub const COLLISION_RETRY: Duration = Duration::from_secs(10);
/// Delay while archival is incomplete.
pub const ARCHIVAL_RETRY: Duration = Duration::from_secs(5);
