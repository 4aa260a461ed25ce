//! What the commands of `olm` share: the session, the sources of catalogs and of objects, writes to a cluster and waits
//! for their effect, output, and errors with exit codes (docs/design/cli.md#use-of-a-cluster).

pub mod access_level;
pub mod access_review;
pub mod bundle_source;
pub mod change;
pub mod classic_kinds;
pub mod controller;
pub mod error;
pub mod manifest;
pub mod names;
pub mod object_access;
pub mod output;
pub mod progress;
pub mod repeated_keys;
pub mod report;
pub mod session;
pub mod source;
pub mod version_expression;
