//! `olm status`, `olm history` and `olm rollback` with the real binary on a real API server. The engine of
//! operator-controller applies the revisions.

mod apis;
pub(crate) mod fixture;
mod help;
mod history;
mod rollback;
mod status;
