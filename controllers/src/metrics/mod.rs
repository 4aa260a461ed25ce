//! What `/metrics` says about extensions and their revisions (docs/design/additions.md#metrics). Only the leader has
//! controllers, so only the leader exports these; the series of an extension go with it. [`extensions`] is what the
//! statuses say and the steps between them, [`revisions`] what is counted while objects are applied, [`fetches`] what
//! came from catalogd.

pub(crate) mod extensions;
pub(crate) mod fetches;
pub(crate) mod revisions;
