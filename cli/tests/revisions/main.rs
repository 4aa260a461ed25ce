//! `olm status`, `olm history` and `olm rollback` with the real binary on a real API server. The engine of
//! operator-controller applies the revisions.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod help;
mod history;
#[path = "../program/mod.rs"]
mod program;
mod rollback;
mod setting;
mod status;
